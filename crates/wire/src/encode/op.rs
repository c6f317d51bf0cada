//! Operations and their outcomes.

use chiton_model::codec::{put_body, put_extents, take_body, take_extents, take_name};
use chiton_model::{AttrChange, Gone, Hold, Make, Op, Outcome, RenameHow, SetTime, XattrHow};
use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Ino, Kind, Mode, Position, Time};

use super::{bad, put_attr, take_attr, take_bool, take_flags, take_kind, take_mode};

/// Fewest bytes that an encoded operation takes ([`Op::Reclaim`]).
pub(super) const OP_BYTES_MIN: usize = 9;

#[inline]
fn tag_and_inode(tag: u8, ino: Ino) -> [u8; 9] {
    let mut bytes = [tag; 9];
    bytes[1..].copy_from_slice(&ino.0.to_le_bytes());
    bytes
}

/// Every operation begins with its tag and the inode that it is about (the parent, where there is a name).
pub(super) fn put_op(out: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Make { parent, name, make, mode } => put_make(out, *parent, name.as_bytes(), make, *mode),
        Op::Link { ino, parent, name } => {
            out.extend_from_slice(&tag_and_inode(2, *parent));
            out.put_u64(ino.0);
            out.put_bytes(name.as_bytes());
        }
        Op::Unlink { parent, name } => {
            out.extend_from_slice(&tag_and_inode(3, *parent));
            out.put_bytes(name.as_bytes());
        }
        Op::Rmdir { parent, name } => {
            out.extend_from_slice(&tag_and_inode(4, *parent));
            out.put_bytes(name.as_bytes());
        }
        Op::Rename { from, from_name, to, to_name, how } => {
            out.extend_from_slice(&tag_and_inode(5, *from));
            out.put_u64(to.0);
            out.put_u8(*how as u8);
            out.put_bytes(from_name.as_bytes());
            out.put_bytes(to_name.as_bytes());
        }
        Op::SetAttr { ino, change } => {
            out.extend_from_slice(&tag_and_inode(6, *ino));
            put_change(out, change);
        }
        Op::Write { ino, body, size, mtime, kill_setid, hold } => {
            out.extend_from_slice(&tag_and_inode(7, *ino));
            out.put_u64(*size);
            out.put_i64(mtime.0);
            out.put_u8(u8::from(*kill_setid));
            match hold {
                Hold::None => out.put_u8(0),
                Hold::Exclusive => out.put_u8(1),
                Hold::Shared => out.put_u8(3),
                Hold::Appended(end) => {
                    out.put_u8(2);
                    out.put_u64(*end);
                }
            }
            put_body(out, body);
        }
        Op::Clone { from, from_offset, to, to_offset, len } => {
            out.extend_from_slice(&tag_and_inode(8, *from));
            out.put_u64(*from_offset);
            out.put_u64(to.0);
            out.put_u64(*to_offset);
            out.put_u64(*len);
        }
        Op::Remap { ino, expected, extents } => {
            out.extend_from_slice(&tag_and_inode(9, *ino));
            out.put_u64(expected.0);
            put_extents(out, extents);
        }
        Op::SetXattr { ino, name, value, how } => {
            out.extend_from_slice(&tag_and_inode(10, *ino));
            out.put_u8(*how as u8);
            out.put_bytes(name);
            out.put_bytes(value);
        }
        Op::RemoveXattr { ino, name } => {
            out.extend_from_slice(&tag_and_inode(11, *ino));
            out.put_bytes(name);
        }
        Op::Reclaim { ino } => out.extend_from_slice(&tag_and_inode(12, *ino)),
        Op::MakeUnnamed { parent, mode } => {
            out.extend_from_slice(&tag_and_inode(13, *parent));
            out.put_u16(mode.0);
        }
        Op::LinkUnnamed { ino, parent, name } => {
            out.extend_from_slice(&tag_and_inode(14, *parent));
            out.put_u64(ino.0);
            out.put_bytes(name.as_bytes());
        }
    }
}

/// Tag, parent, type, permissions in one store of 12 bytes: the operation that comes in masses.
#[inline]
fn put_make(out: &mut Vec<u8>, parent: Ino, name: &[u8], make: &Make, mode: Mode) {
    let kind = match make {
        Make::File { .. } => Kind::File,
        Make::Dir => Kind::Dir,
        Make::Symlink { .. } => Kind::Symlink,
        Make::Node { kind, .. } => *kind,
    };
    let mut head = [0u8; 12];
    head[..9].copy_from_slice(&tag_and_inode(1, parent));
    head[9] = kind as u8;
    head[10..].copy_from_slice(&mode.0.to_le_bytes());
    out.extend_from_slice(&head);
    out.put_bytes(name);
    match make {
        Make::File { content: bytes } | Make::Symlink { target: bytes } => out.put_bytes(bytes),
        Make::Dir => {}
        Make::Node { rdev, .. } => out.put_u32(*rdev),
    }
}

fn take_make(parent: Ino, from: &mut Take<'_>) -> Result<Op, Malformed> {
    let kind = take_kind(from)?;
    let mode = take_mode(from)?;
    let name = take_name(from)?;
    let make = match kind {
        Kind::File => Make::File { content: from.bytes()?.to_vec() },
        Kind::Dir => Make::Dir,
        Kind::Symlink => Make::Symlink { target: from.bytes()?.to_vec() },
        Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block => Make::Node { kind, rdev: from.u32()? },
    };
    Ok(Op::Make { parent, name, make, mode })
}

pub(super) fn take_op(from: &mut Take<'_>) -> Result<Op, Malformed> {
    let tag = from.u8()?;
    let ino = Ino(from.u64()?);
    Ok(match tag {
        1 => return take_make(ino, from),
        2 => Op::Link { parent: ino, ino: Ino(from.u64()?), name: take_name(from)? },
        3 => Op::Unlink { parent: ino, name: take_name(from)? },
        4 => Op::Rmdir { parent: ino, name: take_name(from)? },
        5 => {
            let to = Ino(from.u64()?);
            let Some(how) = RenameHow::from_u8(from.u8()?) else { return bad("a kind of rename") };
            Op::Rename { from: ino, from_name: take_name(from)?, to, to_name: take_name(from)?, how }
        }
        6 => Op::SetAttr { ino, change: take_change(from)? },
        7 => {
            let (size, mtime, kill_setid) = (from.u64()?, Time(from.i64()?), take_bool(from)?);
            let hold = match from.u8()? {
                0 => Hold::None,
                1 => Hold::Exclusive,
                3 => Hold::Shared,
                2 => Hold::Appended(from.u64()?),
                _ => return bad("what a writer knows"),
            };
            Op::Write { ino, body: take_body(from)?, size, mtime, kill_setid, hold }
        }
        8 => Op::Clone {
            from: ino,
            from_offset: from.u64()?,
            to: Ino(from.u64()?),
            to_offset: from.u64()?,
            len: from.u64()?,
        },
        9 => Op::Remap { ino, expected: Position(from.u64()?), extents: take_extents(from)? },
        10 => {
            let how = match from.u8()? {
                0 => XattrHow::Set,
                1 => XattrHow::Create,
                2 => XattrHow::Replace,
                _ => return bad("a kind of setxattr"),
            };
            Op::SetXattr { ino, name: from.bytes()?.to_vec(), value: from.bytes()?.to_vec(), how }
        }
        11 => Op::RemoveXattr { ino, name: from.bytes()?.to_vec() },
        12 => Op::Reclaim { ino },
        13 => Op::MakeUnnamed { parent: ino, mode: take_mode(from)? },
        14 => Op::LinkUnnamed { parent: ino, ino: Ino(from.u64()?), name: take_name(from)? },
        _ => return bad("a type of operation"),
    })
}

/// Two bytes say what follows: bit 0 mode, 1 uid, 2 gid, 3 size, 4 `size_by_handle`, 5 `kill_setid`; then
/// bits 0-1 atime and 2-3 mtime (0 left, 1 now, 2 given).
fn put_change(out: &mut Vec<u8>, change: &AttrChange) {
    let bit = |set: bool, n: u8| u8::from(set) << n;
    out.put_u8(
        bit(change.mode.is_some(), 0)
            | bit(change.uid.is_some(), 1)
            | bit(change.gid.is_some(), 2)
            | bit(change.size.is_some(), 3)
            | bit(change.size_by_handle, 4)
            | bit(change.kill_setid, 5),
    );
    let time = |t: Option<SetTime>| match t {
        None => 0,
        Some(SetTime::Now) => 1,
        Some(SetTime::At(_)) => 2,
    };
    out.put_u8(time(change.atime) | time(change.mtime) << 2);
    if let Some(mode) = change.mode {
        out.put_u16(mode.0);
    }
    for id in [change.uid, change.gid].into_iter().flatten() {
        out.put_u32(id);
    }
    if let Some(size) = change.size {
        out.put_u64(size);
    }
    for time in [change.atime, change.mtime] {
        if let Some(SetTime::At(time)) = time {
            out.put_i64(time.0);
        }
    }
}

fn take_change(from: &mut Take<'_>) -> Result<AttrChange, Malformed> {
    let bits = take_flags(from, 0x3f)?;
    let times = take_flags(from, 0x0f)?;
    let has = |n: u8| bits & 1 << n != 0;
    let time = |which: u8, from: &mut Take<'_>| match which & 3 {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => Ok(Some(SetTime::At(Time(from.i64()?)))),
        _ => bad("a way to set a time"),
    };
    Ok(AttrChange {
        mode: if has(0) { Some(take_mode(from)?) } else { None },
        uid: if has(1) { Some(from.u32()?) } else { None },
        gid: if has(2) { Some(from.u32()?) } else { None },
        size: if has(3) { Some(from.u64()?) } else { None },
        size_by_handle: has(4),
        kill_setid: has(5),
        atime: time(times, from)?,
        mtime: time(times >> 2, from)?,
    })
}

/// Bits of the byte before an outcome.
const HAS_ATTR: u8 = 1;
const HAS_GONE: u8 = 2;
const GONE_ORPHAN: u8 = 4;
const HAS_OTHER: u8 = 8;
/// All of them: a byte above is no outcome.
pub(super) const OUTCOME_BITS: u8 = 15;

#[inline]
pub(super) fn put_outcome(out: &mut Vec<u8>, position: Position, outcome: &Outcome) {
    let attr = if outcome.attr.is_some() { HAS_ATTR } else { 0 };
    let gone = match outcome.gone {
        None => 0,
        Some(Gone { orphan: false, .. }) => HAS_GONE,
        Some(Gone { orphan: true, .. }) => HAS_GONE | GONE_ORPHAN,
    };
    let other = if outcome.other.is_some() { HAS_OTHER } else { 0 };
    out.put_u8(attr | gone | other);
    out.put_u64(position.0);
    out.put_i64(outcome.time.0);
    if let Some(attr) = &outcome.attr {
        put_attr(out, attr);
    }
    if let Some(gone) = &outcome.gone {
        out.put_u64(gone.ino.0);
    }
    if let Some(other) = outcome.other {
        out.put_u64(other.0);
    }
}

/// What follows the byte `bits`, which the caller has read to tell it from a failure.
#[inline]
pub(super) fn take_outcome(bits: u8, from: &mut Take<'_>) -> Result<(Position, Outcome), Malformed> {
    if bits & !OUTCOME_BITS != 0 || bits & (HAS_GONE | GONE_ORPHAN) == GONE_ORPHAN {
        return bad("an outcome");
    }
    let position = Position(from.u64()?);
    let time = Time(from.i64()?);
    let attr = if bits & HAS_ATTR != 0 { Some(take_attr(from)?) } else { None };
    let gone = if bits & HAS_GONE != 0 {
        Some(Gone { ino: Ino(from.u64()?), orphan: bits & GONE_ORPHAN != 0 })
    } else {
        None
    };
    let other = if bits & HAS_OTHER != 0 { Some(Ino(from.u64()?)) } else { None };
    Ok((position, Outcome { attr, gone, other, time }))
}
