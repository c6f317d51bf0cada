//! The record of one change. One vocabulary for server, decoupled client, recovery, tools and sites.
//!
//! Invariants:
//! - An event is complete: inode numbers, times and owners are in it; applying it asks nobody.
//! - An event of a create takes at most 100 bytes in the journal for names up to 40 bytes.
//! - The tags and layouts are part of the formats (`docs/formats.md`, "Events").

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Attr, BlockId, Ino, Kind, Mode, Name, Position, RealmId, SessionId, ShardId, Time};

use crate::codec::{file_bytes, put_body, put_extents, take_body, take_extents, take_id, take_name};
use crate::decoupling::{Attached, Decoupling, MergedUpTo};
use crate::extent::Extent;
use crate::op::Body;
use crate::policy::PolicyChange;
use crate::reverted::Reverted;

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new inode and its first name.
    Make {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Name,
        /// The new inode.
        ino: Ino,
        /// Type.
        kind: Kind,
        /// Permissions.
        mode: Mode,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number.
        rdev: u32,
        /// All times of the inode, mtime and ctime of the parent.
        time: Time,
        /// Content of a file or target of a symbolic link.
        content: Vec<u8>,
    },
    /// A further name.
    Link {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Name,
        /// The inode.
        ino: Ino,
        /// Change time.
        time: Time,
    },
    /// A name less (also of a directory, which is then gone).
    Unlink {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Name,
        /// The inode that bore it.
        ino: Ino,
        /// If that was the last name: keep the inode as an orphan.
        orphan: bool,
        /// Change time.
        time: Time,
    },
    /// A name moved; what bore the new name is replaced or exchanged.
    Rename {
        /// Old directory.
        from: Ino,
        /// Old name.
        from_name: Name,
        /// New directory.
        to: Ino,
        /// New name.
        to_name: Name,
        /// The inode that moves.
        ino: Ino,
        /// What bore the new name.
        over: Over,
        /// Change time.
        time: Time,
    },
    /// Attributes set to these values.
    SetAttr {
        /// The inode.
        ino: Ino,
        /// New permissions.
        mode: Option<Mode>,
        /// New owner.
        uid: Option<u32>,
        /// New group.
        gid: Option<u32>,
        /// New size: content past it is dropped, new room reads as zeros.
        size: Option<u64>,
        /// New access time.
        atime: Option<Time>,
        /// New modification time.
        mtime: Option<Time>,
        /// Change time.
        ctime: Time,
    },
    /// New content.
    Write {
        /// The file.
        ino: Ino,
        /// The content.
        body: Body,
        /// Size afterwards.
        size: u64,
        /// Permissions afterwards, if set-id bits were cleared.
        mode: Option<Mode>,
        /// Modification and change time.
        mtime: Time,
    },
    /// A range shared from another file, already resolved: see [`crate::Op::Clone`].
    Clone {
        /// Source.
        from: Ino,
        /// First byte in it.
        from_offset: u64,
        /// Destination.
        to: Ino,
        /// First byte in it.
        to_offset: u64,
        /// Bytes.
        len: u64,
        /// Modification and change time of the destination.
        time: Time,
    },
    /// Same bytes in other blocks: changes no attribute that a user sees.
    Remap {
        /// The file.
        ino: Ino,
        /// The extents.
        extents: Vec<Extent>,
    },
    /// An extended attribute set or, with `None`, removed.
    Xattr {
        /// The inode.
        ino: Ino,
        /// Name.
        name: Vec<u8>,
        /// Value.
        value: Option<Vec<u8>>,
        /// Change time.
        ctime: Time,
    },
    /// A step in freeing an orphan: chunks from `from_chunk` on are dropped; 0 ends the inode itself.
    Reclaim {
        /// The orphan.
        ino: Ino,
        /// First chunk that is dropped.
        from_chunk: u32,
    },
    /// These garbage blocks are deleted from the object store: forget them.
    Swept {
        /// The blocks.
        blocks: Vec<BlockId>,
    },
    /// Inode counters of the shard below this mark may be in use.
    Reserve {
        /// The shard.
        shard: ShardId,
        /// The mark.
        counter_end: u64,
    },
    /// A session began.
    SessionOpened {
        /// Which.
        session: SessionId,
        /// Who: free text for administrators (host, process, mount point).
        identity: Vec<u8>,
    },
    /// A session ended, by itself or by expiry.
    SessionClosed {
        /// Which.
        session: SessionId,
    },
    /// A directory got a policy, or lost it.
    Policy(PolicyChange),
    /// Nothing, in so many positions, at least 1: changes that are not journalled, or what a journal tool has erased.
    Skipped {
        /// Positions that it takes. Every other event takes one.
        count: u32,
    },
    /// An orphan gets a name again (a merge brings back what others removed).
    Restore {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Name,
        /// The orphan.
        ino: Ino,
        /// Change time.
        time: Time,
    },
    /// Names in a directory changed and changed back: all that is left of redundant events.
    Touch {
        /// The directory.
        ino: Ino,
        /// When.
        time: Time,
    },
    /// A client takes a subtree for itself.
    Decoupled(Box<Decoupling>),
    /// Another client goes on with it.
    Attached(Box<Attached>),
    /// It may make inodes with these numbers, too.
    Granted {
        /// Which decoupling.
        id: RealmId,
        /// The first of each range, and the first past it.
        ranges: Vec<(Ino, Ino)>,
    },
    /// The events before this one in its frame are merged.
    Merged(Box<MergedUpTo>),
    /// It is over.
    DecouplingEnded {
        /// Which.
        id: RealmId,
    },
    /// A file is as it was before (a merge lets one side's file win as a whole).
    Revert {
        /// The file.
        ino: Ino,
        /// How it was.
        to: Box<Reverted>,
    },
}

/// What bore the new name of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Nothing.
    Nothing,
    /// This inode lost that name.
    Replaced {
        /// Which.
        ino: Ino,
        /// If that was its last: keep it as an orphan.
        orphan: bool,
    },
    /// This inode got the old name.
    Exchanged {
        /// Which.
        ino: Ino,
    },
}

impl Over {
    /// The inode that bore the new name, if any.
    pub fn ino(self) -> Option<Ino> {
        match self {
            Over::Nothing => None,
            Over::Replaced { ino, .. } | Over::Exchanged { ino } => Some(ino),
        }
    }
}

impl Event {
    /// Attributes of what the event makes, right after it; `None` if it makes nothing.
    pub fn born(&self, position: Position) -> Option<Attr> {
        let Event::Make { parent, ino, kind, mode, uid, gid, rdev, time, content, .. } = self else {
            return None;
        };
        let is_dir = *kind == Kind::Dir;
        Some(Attr {
            ino: *ino,
            kind: *kind,
            mode: *mode,
            nlink: if is_dir { 2 } else { 1 },
            uid: *uid,
            gid: *gid,
            rdev: *rdev,
            size: content.len() as u64,
            allocated: content.len() as u64,
            atime: *time,
            mtime: *time,
            ctime: *time,
            btime: *time,
            parent: *parent,
            lists: 0,
            position,
        })
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Event::Make { parent, name, ino, kind, mode, uid, gid, rdev, time, content } => {
                out.put_u8(1);
                out.put_u8(*kind as u8);
                out.put_u16(mode.0);
                out.put_u64(parent.0);
                out.put_u64(ino.0);
                out.put_i64(time.0);
                out.put_varint(u64::from(*uid));
                out.put_varint(u64::from(*gid));
                out.put_varint(u64::from(*rdev));
                out.put_bytes(name.as_bytes());
                out.put_bytes(content);
            }
            Event::Link { parent, name, ino, time } => {
                out.put_u8(2);
                out.put_u64(parent.0);
                out.put_u64(ino.0);
                out.put_i64(time.0);
                out.put_bytes(name.as_bytes());
            }
            Event::Unlink { parent, name, ino, orphan, time } => {
                out.put_u8(3);
                out.put_u8(u8::from(*orphan));
                out.put_u64(parent.0);
                out.put_u64(ino.0);
                out.put_i64(time.0);
                out.put_bytes(name.as_bytes());
            }
            Event::Rename { from, from_name, to, to_name, ino, over, time } => {
                out.put_u8(4);
                let (tag, other) = match over {
                    Over::Nothing => (0, None),
                    Over::Replaced { ino, orphan: false } => (1, Some(ino)),
                    Over::Replaced { ino, orphan: true } => (2, Some(ino)),
                    Over::Exchanged { ino } => (3, Some(ino)),
                };
                out.put_u8(tag);
                out.put_u64(from.0);
                out.put_u64(to.0);
                out.put_u64(ino.0);
                if let Some(other) = other {
                    out.put_u64(other.0);
                }
                out.put_i64(time.0);
                out.put_bytes(from_name.as_bytes());
                out.put_bytes(to_name.as_bytes());
            }
            Event::SetAttr { ino, mode, uid, gid, size, atime, mtime, ctime } => {
                out.put_u8(5);
                let bit = |set: bool, n: u8| u8::from(set) << n;
                out.put_u8(
                    bit(mode.is_some(), 0)
                        | bit(uid.is_some(), 1)
                        | bit(gid.is_some(), 2)
                        | bit(size.is_some(), 3)
                        | bit(atime.is_some(), 4)
                        | bit(mtime.is_some(), 5),
                );
                out.put_u64(ino.0);
                out.put_i64(ctime.0);
                if let Some(mode) = mode {
                    out.put_u16(mode.0);
                }
                if let Some(uid) = uid {
                    out.put_u32(*uid);
                }
                if let Some(gid) = gid {
                    out.put_u32(*gid);
                }
                if let Some(size) = size {
                    out.put_u64(*size);
                }
                if let Some(atime) = atime {
                    out.put_i64(atime.0);
                }
                if let Some(mtime) = mtime {
                    out.put_i64(mtime.0);
                }
            }
            Event::Write { ino, body, size, mode, mtime } => {
                out.put_u8(6);
                out.put_u8(u8::from(mode.is_some()));
                out.put_u64(ino.0);
                out.put_varint(*size);
                out.put_i64(mtime.0);
                if let Some(mode) = mode {
                    out.put_u16(mode.0);
                }
                put_body(out, body);
            }
            Event::Clone { from, from_offset, to, to_offset, len, time } => {
                out.put_u8(7);
                out.put_u64(from.0);
                out.put_u64(to.0);
                out.put_varint(*from_offset);
                out.put_varint(*to_offset);
                out.put_varint(*len);
                out.put_i64(time.0);
            }
            Event::Remap { ino, extents } => {
                out.put_u8(8);
                out.put_u64(ino.0);
                put_extents(out, extents);
            }
            Event::Xattr { ino, name, value, ctime } => {
                out.put_u8(9);
                out.put_u8(u8::from(value.is_some()));
                out.put_u64(ino.0);
                out.put_i64(ctime.0);
                out.put_bytes(name);
                if let Some(value) = value {
                    out.put_bytes(value);
                }
            }
            Event::Reclaim { ino, from_chunk } => {
                out.put_u8(10);
                out.put_u64(ino.0);
                out.put_u32(*from_chunk);
            }
            Event::Swept { blocks } => {
                out.put_u8(11);
                out.put_varint(blocks.len() as u64);
                for b in blocks {
                    out.put_u64(b.writer);
                    out.put_u64(b.number);
                }
            }
            Event::Reserve { shard, counter_end } => {
                out.put_u8(12);
                out.put_u16(shard.0);
                out.put_u64(*counter_end);
            }
            Event::SessionOpened { session, identity } => {
                out.put_u8(13);
                out.put_u64(session.0);
                out.put_bytes(identity);
            }
            Event::SessionClosed { session } => {
                out.put_u8(14);
                out.put_u64(session.0);
            }
            Event::Policy(change) => {
                out.put_u8(18);
                change.put(out);
            }
            Event::Skipped { count } => {
                out.put_u8(15);
                out.put_varint(u64::from(*count));
            }
            Event::Restore { parent, name, ino, time } => {
                out.put_u8(16);
                out.put_u64(parent.0);
                out.put_u64(ino.0);
                out.put_i64(time.0);
                out.put_bytes(name.as_bytes());
            }
            Event::Touch { ino, time } => {
                out.put_u8(17);
                out.put_u64(ino.0);
                out.put_i64(time.0);
            }
            Event::Decoupled(decoupling) => {
                out.put_u8(19);
                decoupling.put(out);
            }
            Event::Attached(attached) => {
                out.put_u8(20);
                attached.put(out);
            }
            Event::Granted { id, ranges } => {
                out.put_u8(21);
                out.put_u32(id.0);
                out.put_varint(ranges.len() as u64);
                for (first, end) in ranges {
                    out.put_u64(first.0);
                    out.put_u64(end.0);
                }
            }
            Event::Merged(merged) => {
                out.put_u8(22);
                merged.put(out);
            }
            Event::DecouplingEnded { id } => {
                out.put_u8(23);
                out.put_u32(id.0);
            }
            Event::Revert { ino, to } => {
                out.put_u8(24);
                out.put_u64(ino.0);
                to.put(out);
            }
        }
    }

    /// Reads one event.
    ///
    /// # Errors
    /// If the bytes are not an event; names and extents are checked, nothing is allocated by an unchecked length.
    pub fn decode(from: &mut Take<'_>) -> Result<Event, Malformed> {
        let flag = |v: u8| match v {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed { expected: "a flag of 0 or 1" }),
        };
        let small = |v: u64| u32::try_from(v).map_err(|_| Malformed { expected: "a number of 32 bits" });
        Ok(match from.u8()? {
            1 => {
                let kind = Kind::from_u8(from.u8()?).ok_or(Malformed { expected: "a type of inode" })?;
                let mode = Mode(from.u16()?);
                let parent = Ino(from.u64()?);
                let ino = Ino(from.u64()?);
                let time = Time(from.i64()?);
                let uid = small(from.varint()?)?;
                let gid = small(from.varint()?)?;
                let rdev = small(from.varint()?)?;
                let name = take_name(from)?;
                let content = from.bytes()?.to_vec();
                Event::Make { parent, name, ino, kind, mode, uid, gid, rdev, time, content }
            }
            2 => {
                let (parent, ino, time) = (Ino(from.u64()?), Ino(from.u64()?), Time(from.i64()?));
                Event::Link { parent, ino, time, name: take_name(from)? }
            }
            3 => {
                let orphan = flag(from.u8()?)?;
                let (parent, ino, time) = (Ino(from.u64()?), Ino(from.u64()?), Time(from.i64()?));
                Event::Unlink { parent, ino, orphan, time, name: take_name(from)? }
            }
            4 => {
                let tag = from.u8()?;
                let (from_dir, to, ino) = (Ino(from.u64()?), Ino(from.u64()?), Ino(from.u64()?));
                let over = match tag {
                    0 => Over::Nothing,
                    1 => Over::Replaced { ino: Ino(from.u64()?), orphan: false },
                    2 => Over::Replaced { ino: Ino(from.u64()?), orphan: true },
                    3 => Over::Exchanged { ino: Ino(from.u64()?) },
                    _ => return Err(Malformed { expected: "a kind of rename" }),
                };
                let time = Time(from.i64()?);
                let (from_name, to_name) = (take_name(from)?, take_name(from)?);
                Event::Rename { from: from_dir, from_name, to, to_name, ino, over, time }
            }
            5 => {
                let bits = from.u8()?;
                let (ino, ctime) = (Ino(from.u64()?), Time(from.i64()?));
                let has = |n: u8| bits & 1 << n != 0;
                Event::SetAttr {
                    ino,
                    ctime,
                    mode: if has(0) { Some(Mode(from.u16()?)) } else { None },
                    uid: if has(1) { Some(from.u32()?) } else { None },
                    gid: if has(2) { Some(from.u32()?) } else { None },
                    size: if has(3) { Some(file_bytes(from.u64()?)?) } else { None },
                    atime: if has(4) { Some(Time(from.i64()?)) } else { None },
                    mtime: if has(5) { Some(Time(from.i64()?)) } else { None },
                }
            }
            6 => {
                let has_mode = flag(from.u8()?)?;
                let (ino, size, mtime) = (Ino(from.u64()?), file_bytes(from.varint()?)?, Time(from.i64()?));
                let mode = if has_mode { Some(Mode(from.u16()?)) } else { None };
                Event::Write { ino, size, mode, mtime, body: take_body(from)? }
            }
            7 => {
                let (source, to) = (Ino(from.u64()?), Ino(from.u64()?));
                let (from_offset, to_offset, len) = (from.varint()?, from.varint()?, from.varint()?);
                for offset in [from_offset, to_offset] {
                    file_bytes(offset.saturating_add(len))?;
                }
                Event::Clone { from: source, to, from_offset, to_offset, len, time: Time(from.i64()?) }
            }
            8 => Event::Remap { ino: Ino(from.u64()?), extents: take_extents(from)? },
            9 => {
                let has_value = flag(from.u8()?)?;
                let (ino, ctime) = (Ino(from.u64()?), Time(from.i64()?));
                let name = from.bytes()?.to_vec();
                let value = if has_value { Some(from.bytes()?.to_vec()) } else { None };
                Event::Xattr { ino, name, value, ctime }
            }
            10 => Event::Reclaim { ino: Ino(from.u64()?), from_chunk: from.u32()? },
            11 => {
                let n = from.count(16)?;
                let mut blocks = Vec::with_capacity(n);
                for _ in 0..n {
                    blocks.push(BlockId { writer: from.u64()?, number: from.u64()? });
                }
                Event::Swept { blocks }
            }
            12 => Event::Reserve { shard: ShardId(from.u16()?), counter_end: from.u64()? },
            13 => Event::SessionOpened { session: SessionId(from.u64()?), identity: from.bytes()?.to_vec() },
            14 => Event::SessionClosed { session: SessionId(from.u64()?) },
            15 => match small(from.varint()?)? {
                0 => return Err(Malformed { expected: "a count of positions, at least 1" }),
                count => Event::Skipped { count },
            },
            16 => {
                let (parent, ino, time) = (Ino(from.u64()?), Ino(from.u64()?), Time(from.i64()?));
                Event::Restore { parent, ino, time, name: take_name(from)? }
            }
            17 => Event::Touch { ino: Ino(from.u64()?), time: Time(from.i64()?) },
            18 => Event::Policy(PolicyChange::take(from)?),
            19 => Event::Decoupled(Box::new(Decoupling::take(from)?)),
            20 => Event::Attached(Box::new(Attached::take(from)?)),
            21 => {
                let id = take_id(from)?;
                let ranges = (0..from.count(16)?).map(|_| Ok((Ino(from.u64()?), Ino(from.u64()?))));
                Event::Granted { id, ranges: ranges.collect::<Result<_, Malformed>>()? }
            }
            22 => Event::Merged(Box::new(MergedUpTo::take(from)?)),
            23 => Event::DecouplingEnded { id: take_id(from)? },
            24 => Event::Revert { ino: Ino(from.u64()?), to: Box::new(Reverted::take(from)?) },
            _ => return Err(Malformed { expected: "a type of event" }),
        })
    }
}
