//! Requests.
//!
//! ```text
//!  0        8        16         24       32    36    40     41     42
//!  │ id u64 │ seq u64│settled u64│epoch u64│uid u32│gid u32│flags u8│call u8│ [again] [groups] [privileges] [umask] the call
//! ```

use std::sync::Arc;

use chiton_model::Op;
use chiton_model::codec::take_name;
use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{BlockId, Cred, Epoch, Ino, Position, Seq, SessionId, Time};

use super::cred::{put_privileges, take_privileges};
use super::realm::{put_realm_call, take_realm_call};
use super::{
    LOCK_BYTES, bad, put_lock, put_text, take_bool, take_flags, take_lease, take_lock, take_text,
    take_u32_varint,
};
use crate::message::{Acknowledged, Again, BATCH_OPS_MAX, Call, GROUPS_MAX, Query, Request};

const HAS_AGAIN: u8 = 1;
const HAS_GROUPS: u8 = 2;
const HAS_PRIVILEGES: u8 = 4;
const PROTECTED_HARDLINKS: u8 = 8;
const HAS_UMASK: u8 = 16;

/// Most operations for which memory is reserved before the first is read: a sender can claim any count.
const OPS_RESERVED_MAX: usize = 1024;
/// Bytes of an encoded [`Acknowledged`].
const ACKNOWLEDGED_BYTES: usize = 17;

impl Request {
    /// Whether the counts are within the protocol's limits; in words what is not. A request past them would
    /// make the server close the connection.
    pub fn check_limits(&self) -> Result<(), String> {
        if let Some(groups) = &self.cred.groups
            && groups.len() > GROUPS_MAX
        {
            return Err(format!("{} supplementary groups exceed {GROUPS_MAX}", groups.len()));
        }
        match &self.call {
            Call::Batch { ops, .. } | Call::WriteBehind { ops, .. } if ops.len() > BATCH_OPS_MAX => {
                Err(format!("a batch of {} operations exceeds {BATCH_OPS_MAX}; split it", ops.len()))
            }
            _ => Ok(()),
        }
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut head = [0u8; 42];
        head[0..8].copy_from_slice(&self.id.to_le_bytes());
        head[8..16].copy_from_slice(&self.seq.0.to_le_bytes());
        head[16..24].copy_from_slice(&self.settled.0.to_le_bytes());
        head[24..32].copy_from_slice(&self.epoch.0.to_le_bytes());
        head[32..36].copy_from_slice(&self.cred.uid.to_le_bytes());
        head[36..40].copy_from_slice(&self.cred.gid.to_le_bytes());
        let again = if self.again.is_some() { HAS_AGAIN } else { 0 };
        let groups = if self.cred.groups.is_some() { HAS_GROUPS } else { 0 };
        let privileges = if self.cred.privileges.is_some() { HAS_PRIVILEGES } else { 0 };
        let links = if self.cred.protected_hardlinks { PROTECTED_HARDLINKS } else { 0 };
        let umask = if self.cred.umask != 0 { HAS_UMASK } else { 0 };
        head[40] = again | groups | privileges | links | umask;
        head[41] = tag(&self.call);
        out.extend_from_slice(&head);
        if let Some(again) = self.again {
            out.put_u64(again.boot);
            out.put_u64(again.position.0);
            out.put_u64(again.ino.0);
            out.put_i64(again.time.0);
        }
        if let Some(groups) = &self.cred.groups {
            out.put_varint(groups.len() as u64);
            for gid in groups.iter() {
                out.put_u32(*gid);
            }
        }
        if let Some(privileges) = &self.cred.privileges {
            put_privileges(out, privileges);
        }
        if self.cred.umask != 0 {
            out.put_u16(self.cred.umask);
        }
        put_call(out, &self.call);
    }

    /// Reads one.
    ///
    /// # Errors
    /// If the bytes are none, or a limit is passed.
    pub fn decode(from: &mut Take<'_>) -> Result<Request, Malformed> {
        let mut head = Take::new(from.take(42, "a request's header")?);
        let id = head.u64()?;
        let seq = Seq(head.u64()?);
        let settled = Seq(head.u64()?);
        let epoch = Epoch(head.u64()?);
        let (uid, gid) = (head.u32()?, head.u32()?);
        let flags =
            take_flags(&mut head, HAS_AGAIN | HAS_GROUPS | HAS_PRIVILEGES | PROTECTED_HARDLINKS | HAS_UMASK)?;
        let tag = head.u8()?;
        let again = if flags & HAS_AGAIN != 0 {
            Some(Again {
                boot: from.u64()?,
                position: Position(from.u64()?),
                ino: Ino(from.u64()?),
                time: Time(from.i64()?),
            })
        } else {
            None
        };
        let groups = if flags & HAS_GROUPS != 0 { Some(take_groups(from)?) } else { None };
        let privileges = if flags & HAS_PRIVILEGES != 0 { Some(take_privileges(from)?) } else { None };
        let protected_hardlinks = flags & PROTECTED_HARDLINKS != 0;
        let umask = if flags & HAS_UMASK != 0 { from.u16()? } else { 0 };
        let cred = Cred { uid, gid, groups, privileges, protected_hardlinks, umask };
        let call = take_call(tag, from)?;
        Ok(Request { id, seq, settled, epoch, again, cred, call })
    }
}

fn take_groups(from: &mut Take<'_>) -> Result<Arc<[u32]>, Malformed> {
    let n = from.count(4)?;
    if n > GROUPS_MAX {
        return bad("at most 65,536 groups");
    }
    let bytes = from.take(n * 4, "groups")?;
    Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// 0 to 31 calls, 32 and up questions.
fn tag(call: &Call) -> u8 {
    match call {
        Call::Op { open: false, .. } => 0,
        Call::Op { open: true, .. } => 1,
        Call::Batch { stop_on_failure: false, .. } => 2,
        Call::Batch { stop_on_failure: true, .. } => 3,
        Call::Commit { .. } => 4,
        Call::Lease { .. } => 5,
        Call::Closed { .. } => 6,
        Call::Reopen { .. } => 7,
        Call::SetLock { .. } => 8,
        Call::CancelLock { .. } => 9,
        Call::GetLock { .. } => 10,
        Call::PutBlock { .. } => 11,
        Call::GetBlock { .. } => 12,
        Call::Admin { .. } => 13,
        Call::Ping => 14,
        Call::Bye => 15,
        Call::Realm(_) => 16,
        Call::LeaseNames { .. } => 17,
        Call::Ended { .. } => 20,
        Call::WriteBehind { .. } => 18,
        Call::Grown { .. } => 19,
        Call::Query(Query::Lookup { .. }) => 32,
        Call::Query(Query::GetAttr { .. }) => 33,
        Call::Query(Query::Open { .. }) => 34,
        Call::Query(Query::Access { .. }) => 35,
        Call::Query(Query::ReadDir { .. }) => 36,
        Call::Query(Query::ReadLink { .. }) => 37,
        Call::Query(Query::GetXattr { .. }) => 38,
        Call::Query(Query::ListXattr { .. }) => 39,
        Call::Query(Query::Map { .. }) => 40,
        Call::Query(Query::Resolve { .. }) => 41,
        Call::Query(Query::StatFs) => 42,
    }
}

fn put_call(out: &mut Vec<u8>, call: &Call) {
    match call {
        Call::Op { op, .. } => op.encode(out),
        Call::Batch { ops, .. } => {
            out.put_varint(ops.len() as u64);
            for op in ops {
                op.encode(out);
            }
        }
        Call::WriteBehind { ops, acknowledged } => {
            assert_eq!(ops.len(), acknowledged.len(), "each operation with the answer that its caller got");
            out.put_varint(ops.len() as u64);
            for (op, one) in ops.iter().zip(acknowledged) {
                out.put_u64(one.ino.0);
                out.put_i64(one.time.0);
                out.put_u8(u8::from(one.open));
                op.encode(out);
            }
        }
        Call::Ended { session, secret } => {
            out.put_u64(session.0);
            out.put_u64(*secret);
        }
        Call::LeaseNames { dir, numbers } => {
            out.put_u64(dir.0);
            out.put_u32(*numbers);
        }
        Call::Query(query) => put_query(out, query),
        Call::Commit { upto } => out.put_u64(upto.0),
        Call::Lease { ino, mode } => {
            out.put_u64(ino.0);
            out.put_u8(*mode as u8);
        }
        Call::Closed { inos } => put_inos(out, inos),
        Call::Reopen { opens, locks, dirty, names } => {
            out.put_varint(opens.len() as u64);
            for (ino, count) in opens {
                out.put_u64(ino.0);
                out.put_u32(*count);
            }
            out.put_varint(locks.len() as u64);
            for lock in locks {
                put_lock(out, lock);
            }
            put_inos(out, dirty);
            put_inos(out, names);
        }
        Call::SetLock { lock, wait } => {
            put_lock(out, lock);
            out.put_u8(u8::from(*wait));
        }
        Call::CancelLock { id } => out.put_u64(*id),
        Call::GetLock { lock } => put_lock(out, lock),
        Call::Grown { ino, size, last } => {
            out.put_u64(ino.0);
            out.put_u64(*size);
            out.put_u8(*last);
        }
        Call::PutBlock { block, bytes } => {
            out.put_u64(block.writer);
            out.put_u64(block.number);
            out.put_bytes(bytes);
        }
        Call::GetBlock { block, offset, len } => {
            out.put_u64(block.writer);
            out.put_u64(block.number);
            out.put_u32(*offset);
            out.put_u32(*len);
        }
        Call::Admin { what } => put_text(out, what),
        Call::Realm(call) => put_realm_call(out, call),
        Call::Ping | Call::Bye => {}
    }
}

fn take_call(tag: u8, from: &mut Take<'_>) -> Result<Call, Malformed> {
    Ok(match tag {
        0 | 1 => Call::Op { op: Op::decode(from)?, open: tag == 1 },
        2 | 3 => Call::Batch { ops: take_ops(from)?, stop_on_failure: tag == 3 },
        4 => Call::Commit { upto: Position(from.u64()?) },
        5 => Call::Lease { ino: Ino(from.u64()?), mode: take_lease(from)? },
        6 => Call::Closed { inos: take_inos(from)? },
        7 => {
            let n = from.count(12)?;
            let mut opens = Vec::with_capacity(n);
            for _ in 0..n {
                opens.push((Ino(from.u64()?), from.u32()?));
            }
            let n = from.count(LOCK_BYTES)?;
            let mut locks = Vec::with_capacity(n);
            for _ in 0..n {
                locks.push(take_lock(from)?);
            }
            Call::Reopen { opens, locks, dirty: take_inos(from)?, names: take_inos(from)? }
        }
        8 => Call::SetLock { lock: take_lock(from)?, wait: take_bool(from)? },
        9 => Call::CancelLock { id: from.u64()? },
        10 => Call::GetLock { lock: take_lock(from)? },
        11 => Call::PutBlock { block: take_block(from)?, bytes: from.bytes()?.to_vec() },
        12 => Call::GetBlock { block: take_block(from)?, offset: from.u32()?, len: from.u32()? },
        13 => Call::Admin { what: take_text(from)? },
        14 => Call::Ping,
        15 => Call::Bye,
        16 => Call::Realm(Box::new(take_realm_call(from)?)),
        17 => Call::LeaseNames { dir: Ino(from.u64()?), numbers: from.u32()? },
        18 => take_write_behind(from)?,
        19 => Call::Grown { ino: Ino(from.u64()?), size: from.u64()?, last: from.u8()? },
        20 => Call::Ended { session: SessionId(from.u64()?), secret: from.u64()? },
        32.. => Call::Query(take_query(tag, from)?),
        _ => return bad("a call"),
    })
}

fn put_inos(out: &mut Vec<u8>, inos: &[Ino]) {
    out.put_varint(inos.len() as u64);
    for ino in inos {
        out.put_u64(ino.0);
    }
}

fn take_inos(from: &mut Take<'_>) -> Result<Vec<Ino>, Malformed> {
    let n = from.count(8)?;
    let bytes = from.take(n * 8, "inodes")?;
    let mut inos = Vec::with_capacity(n);
    let mut each = Take::new(bytes);
    for _ in 0..n {
        inos.push(Ino(each.u64()?));
    }
    Ok(inos)
}

fn take_block(from: &mut Take<'_>) -> Result<BlockId, Malformed> {
    Ok(BlockId { writer: from.u64()?, number: from.u64()? })
}

fn take_ops(from: &mut Take<'_>) -> Result<Vec<Op>, Malformed> {
    let n = from.count(Op::BYTES_MIN)?;
    if n > BATCH_OPS_MAX {
        return bad("at most 16,384 operations");
    }
    let mut ops = Vec::with_capacity(n.min(OPS_RESERVED_MAX));
    for _ in 0..n {
        ops.push(Op::decode(from)?);
    }
    Ok(ops)
}

fn take_write_behind(from: &mut Take<'_>) -> Result<Call, Malformed> {
    let n = from.count(ACKNOWLEDGED_BYTES + Op::BYTES_MIN)?;
    if n > BATCH_OPS_MAX {
        return bad("at most 16,384 operations");
    }
    let (mut ops, mut acknowledged) = (Vec::new(), Vec::new());
    ops.reserve(n.min(OPS_RESERVED_MAX));
    acknowledged.reserve(n.min(OPS_RESERVED_MAX));
    for _ in 0..n {
        acknowledged.push(Acknowledged {
            ino: Ino(from.u64()?),
            time: Time(from.i64()?),
            open: take_bool(from)?,
        });
        ops.push(Op::decode(from)?);
    }
    Ok(Call::WriteBehind { ops, acknowledged })
}

fn put_query(out: &mut Vec<u8>, query: &Query) {
    match query {
        Query::Lookup { parent, name } => {
            out.put_u64(parent.0);
            out.put_bytes(name.as_bytes());
        }
        Query::GetAttr { ino } | Query::ReadLink { ino } | Query::ListXattr { ino } => out.put_u64(ino.0),
        Query::Open { ino, want } | Query::Access { ino, want } => {
            out.put_u64(ino.0);
            out.put_u8(*want);
        }
        Query::ReadDir { dir, cookie, entries_max, plus } => {
            out.put_u64(dir.0);
            out.put_u64(*cookie);
            out.put_varint(u64::from(*entries_max));
            out.put_u8(u8::from(*plus));
        }
        Query::GetXattr { ino, name } => {
            out.put_u64(ino.0);
            out.put_bytes(name);
        }
        Query::Map { ino, offset, len } => {
            out.put_u64(ino.0);
            out.put_u64(*offset);
            out.put_u64(*len);
        }
        Query::Resolve { from, path, follow } => {
            out.put_u64(from.0);
            out.put_u8(u8::from(*follow));
            out.put_bytes(path);
        }
        Query::StatFs => {}
    }
}

fn take_query(tag: u8, from: &mut Take<'_>) -> Result<Query, Malformed> {
    Ok(match tag {
        32 => Query::Lookup { parent: Ino(from.u64()?), name: take_name(from)? },
        33 => Query::GetAttr { ino: Ino(from.u64()?) },
        34 => Query::Open { ino: Ino(from.u64()?), want: take_flags(from, 7)? },
        35 => Query::Access { ino: Ino(from.u64()?), want: take_flags(from, 7)? },
        36 => Query::ReadDir {
            dir: Ino(from.u64()?),
            cookie: from.u64()?,
            entries_max: take_u32_varint(from)?,
            plus: take_bool(from)?,
        },
        37 => Query::ReadLink { ino: Ino(from.u64()?) },
        38 => Query::GetXattr { ino: Ino(from.u64()?), name: from.bytes()?.to_vec() },
        39 => Query::ListXattr { ino: Ino(from.u64()?) },
        40 => Query::Map { ino: Ino(from.u64()?), offset: from.u64()?, len: from.u64()? },
        41 => {
            let (dir, follow) = (Ino(from.u64()?), take_bool(from)?);
            Query::Resolve { from: dir, path: from.bytes()?.to_vec(), follow }
        }
        42 => Query::StatFs,
        _ => return bad("a question"),
    })
}
