//! Requests. Their header is written by hand: one store of 42 bytes, which takes 15 ns where eight fields one by one take 18,
//! and bits that say what follows it.
//!
//! ```text
//!  0        8        16         24       32    36    40     41     42
//!  │ id u64 │ seq u64│settled u64│epoch u64│uid u32│gid u32│flags u8│call u8│ [again] [groups] [privileges] [umask] the call
//! ```

use std::sync::Arc;

use chiton_model::field::{Code, Fixed, GROUPS_MAX, Max, OverLimit, Sample, Samples};
use chiton_model::record;
use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Cred, Epoch, Ino, Position, Privileges, Seq, Time};

use crate::call::Call;

/// A request on the main channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the client, unique among its requests in flight.
    pub id: u64,
    /// For calls that change something: the operation's number in the session (of a batch: of its first
    /// operation, the others follow without gaps). 0: not kept, not sent again.
    pub seq: Seq,
    /// The client knows that everything below this is durable, or was refused: the server may forget it.
    pub settled: Seq,
    /// The client's epoch.
    pub epoch: Epoch,
    /// Sent again after a reconnect. A batch that was never answered is sent again whole (with the default);
    /// of one that was, the operations that succeeded are sent again one by one.
    pub again: Option<Again>,
    pub cred: Cred,
    pub call: Call,
}

record! {
    /// The first answer to an operation that is sent again. The server repeats it, with the same inode number and the same time, also
    /// when it has lost the operation: the caller has seen them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Again "answer of before" {
        /// [`crate::Welcome::Accepted`]'s `boot` of the start of the server that answered it first; if it was never answered, of the one
        /// to which it was sent first.
        pub boot: u64 as Fixed,
        /// Its position then, 0 if it was never answered. Positions of two starts cannot be compared; (boot, position)
        /// is the order in which all sessions' operations took effect.
        pub position: Position,
        /// The inode that it made, 0 if none (or never answered): to be offered to the plan again.
        pub ino: Ino,
        /// The time of its change, 0 if not known.
        pub time: Time,
    }
}

record! {
    /// The answer that the client gave to the caller of an operation before the server knew of it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Acknowledged "acknowledged" {
        /// The inode that it makes (one of the next of the numbers that the session was granted in its shard), writes or removes.
        pub ino: Ino,
        pub time: Time,
        /// Count the made file as open.
        pub open: bool,
    }
}

/// Bytes of the header.
const HEAD_BYTES: usize = 42;

const HAS_AGAIN: u8 = 1;
const HAS_GROUPS: u8 = 2;
const HAS_PRIVILEGES: u8 = 4;
const PROTECTED_HARDLINKS: u8 = 8;
const HAS_UMASK: u8 = 16;
const ALL: u8 = HAS_AGAIN | HAS_GROUPS | HAS_PRIVILEGES | PROTECTED_HARDLINKS | HAS_UMASK;

type Groups = Max<Fixed, GROUPS_MAX>;

impl Request {
    /// Whether all counts and lengths are within the protocol's limits. The server would close the connection of a client that
    /// sends a request past them.
    ///
    /// # Errors
    /// The first limit that it exceeds.
    pub fn check_limits(&self) -> Result<(), OverLimit> {
        Request::check(self)
    }
}

impl Code<Request> for Request {
    const BYTES_MIN: usize = HEAD_BYTES;

    fn form() -> String {
        "request".to_owned()
    }

    fn put(request: &Request, out: &mut Vec<u8>) {
        let Request { id, seq, settled, epoch, again, cred, call } = request;
        let mut head = [0u8; HEAD_BYTES];
        head[0..8].copy_from_slice(&id.to_le_bytes());
        head[8..16].copy_from_slice(&seq.0.to_le_bytes());
        head[16..24].copy_from_slice(&settled.0.to_le_bytes());
        head[24..32].copy_from_slice(&epoch.0.to_le_bytes());
        head[32..36].copy_from_slice(&cred.uid.to_le_bytes());
        head[36..40].copy_from_slice(&cred.gid.to_le_bytes());
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        head[40] = bit(again.is_some(), HAS_AGAIN)
            | bit(cred.groups.is_some(), HAS_GROUPS)
            | bit(cred.privileges.is_some(), HAS_PRIVILEGES)
            | bit(cred.protected_hardlinks, PROTECTED_HARDLINKS)
            | bit(cred.umask != 0, HAS_UMASK);
        head[41] = call.tag();
        out.extend_from_slice(&head);
        if let Some(again) = again {
            Again::put(again, out);
        }
        if let Some(groups) = &cred.groups {
            Groups::put(groups, out);
        }
        if let Some(privileges) = &cred.privileges {
            Privileges::put(privileges, out);
        }
        if cred.umask != 0 {
            out.put_u16(cred.umask);
        }
        call.put_rest(out);
    }

    fn take(from: &mut Take<'_>) -> Result<Request, Malformed> {
        let mut head = Take::new(from.take(HEAD_BYTES, "a request's header")?);
        let (id, seq, settled, epoch) = (head.u64()?, Seq(head.u64()?), Seq(head.u64()?), Epoch(head.u64()?));
        let (uid, gid) = (head.u32()?, head.u32()?);
        let (flags, tag) = (head.u8()?, head.u8()?);
        if flags & !ALL != 0 {
            return Err(Malformed { expected: "known flags" });
        }
        let has = |flag: u8| flags & flag != 0;
        let again = if has(HAS_AGAIN) { Some(Again::take(from)?) } else { None };
        let groups: Option<Arc<[u32]>> = if has(HAS_GROUPS) { Some(Groups::take(from)?) } else { None };
        let privileges = if has(HAS_PRIVILEGES) { Some(Privileges::take(from)?) } else { None };
        let umask = if has(HAS_UMASK) { from.u16()? } else { 0 };
        let cred =
            Cred { uid, gid, groups, privileges, protected_hardlinks: has(PROTECTED_HARDLINKS), umask };
        Ok(Request { id, seq, settled, epoch, again, cred, call: Call::take_rest(tag, from)? })
    }

    fn check(request: &Request) -> Result<(), OverLimit> {
        let groups = request.cred.groups.as_ref();
        groups.map_or(Ok(()), Groups::check).map_err(|over| over.of("groups"))?;
        request.cred.privileges.as_ref().map_or(Ok(()), Privileges::check)?;
        Call::check(&request.call)
    }
}

impl Sample<Request> for Request {
    fn sample(from: &mut Samples<'_>) -> Request {
        let call = Call::sample(from);
        Request {
            id: from.number(),
            seq: Seq::sample(from),
            settled: Seq::sample(from),
            epoch: Epoch::sample(from),
            again: Option::<Again>::sample(from),
            cred: Cred {
                uid: u32::sample(from),
                gid: u32::sample(from),
                groups: Option::<Groups>::sample(from),
                privileges: Option::<Privileges>::sample(from),
                protected_hardlinks: from.flag(),
                umask: u16::sample(from),
            },
            call,
        }
    }
}
