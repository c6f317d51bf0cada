//! The record of one change. One vocabulary for server, decoupled client, recovery, tools and sites.
//!
//! Invariants:
//! - An event is complete: inode numbers, times and owners are in it; applying it needs nothing else.
//! - An event of a create takes at most 100 bytes in the journal for names up to 40 bytes.
//! - The table below is the only place that knows all events. From it come the type, the bytes (`docs/formats.md`, "Events",
//!   which a test compares with it), JSON, the line for people, the time, and the [`Footprint`].
//!
//! To read an entry of the table:
//!
//! ```text
//!   17 "touch" Touch { fields in the order of their bytes: name: Type as codec => "key in JSON" }
//!    │    │      └ variant
//!    │    └ name for tools and JSON
//!    └ tag, the first byte
//! ```

mod names;

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{BlockId, Ino, Kind, Mode, Name, PlateId, RealmId, Seq, SessionId, ShardId, Time};
use serde_json::{Value, json};

use crate::change::{AttrChange, Body, Hold, SetTime, XattrHow};
use crate::codec::file_bytes;
use crate::decoupling::{Attached, Decoupling, MergedUpTo};
use crate::extent::Extent;
use crate::field::{
    Code, FileBytes, Hidden, Positive, Range, Sample, Samples, Shown, Text, Variants, add_json, listed,
};
use crate::footprint::{Footprint, NameChange, Role, Rows};
use crate::op::Op;
use crate::parts::PartRange;
use crate::policy::PolicyChange;
use crate::reverted::Reverted;
use crate::table::or_name;
use crate::text::{flag_letters, kind_name, octal, quoted, utc};

pub use names::Over;

macro_rules! events {
    ($(
        $(#[$doc:meta])*
        $tag:literal $name:literal $variant:ident
        $({ $($(#[$field_doc:meta])* $field:ident: $type:ty $(as $codec:ty)? $(=> $key:literal)?),+ $(,)? })?
        $(($inner:ident: $inner_type:ty))?
        footprint { $footprint:expr }
        $(attributes_of { $attributes_of:ident })?
        $(time { $time:expr })?
        text { $text:expr }
        $(operation { $operation:expr })?
        $(valid { $valid:expr })?
    )+) => {
        /// One change of the state.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Event {
            $($(#[$doc])* $variant $({ $($(#[$field_doc])* $field: $type),+ })? $(($inner_type))?),+
        }

        #[allow(unused_variables, reason = "each column of the table uses some of the fields")]
        impl Event {
            /// The names of all types of events, which `--type` takes.
            pub const TYPE_NAMES: &[&str] = &[$($name),+];

            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Event::$variant { .. } => $name),+
                }
            }

            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Event::$variant $({ $($field),+ })? $(($inner))? => {
                        out.put_u8($tag);
                        $($(<$crate::codec!($type $(, $codec)?) as Code<$type>>::put($field, out);)+)?
                        $(<$inner_type as Code<$inner_type>>::put($inner, out);)?
                    })+
                }
            }

            /// Reads one event.
            ///
            /// # Errors
            /// If the bytes are not an event; names and extents are checked, nothing is allocated by an unchecked length.
            pub fn decode(from: &mut Take<'_>) -> Result<Event, Malformed> {
                Ok(match from.u8()? {
                    $($tag => {
                        $($(let $field = <$crate::codec!($type $(, $codec)?) as Code<$type>>::take(from)?;)+)?
                        $(let $inner = <$inner_type as Code<$inner_type>>::take(from)?;)?
                        $($valid?;)?
                        Event::$variant $({ $($field),+ })? $(($inner))?
                    })+
                    _ => return Err(Malformed { expected: "a type of event" }),
                })
            }

            /// Which inodes and names it is about.
            pub fn footprint(&self) -> Footprint<NameChange<'_>> {
                match self {
                    $(Event::$variant $({ $($field),+ })? $(($inner))? => $footprint),+
                }
            }

            /// The inode of which it sets an attribute, and nothing else.
            pub fn attributes_of(&self) -> Option<Ino> {
                let ino = match self {
                    $(Event::$variant $({ $($field),+ })? $(($inner))? => None$(.or(Some(*$attributes_of)))?),+
                };
                ino.filter(|_| !self.footprint().alters(Rows::CONTENT))
            }

            /// The event that sets the same attribute of another inode.
            pub fn with_attributes_of(&self, other: Ino) -> Option<Event> {
                self.attributes_of()?;
                let mut event = self.clone();
                match &mut event {
                    $(Event::$variant $({ $($field),+ })? $(($inner))? => { $(*$attributes_of = other;)? })+
                }
                Some(event)
            }

            /// The time of the change, if the event has one.
            pub fn time(&self) -> Option<Time> {
                match self {
                    $(Event::$variant $({ $($field),+ })? $(($inner))? => None$(.or(Some($time)))?),+
                }
            }

            /// The operation whose whole effect it is, if there is one: a merge asks with it whether the event may happen.
            pub fn operation(&self) -> Option<Op> {
                match self {
                    $(Event::$variant $({ $($field),+ })? $(($inner))? => None$(.or(Some($operation)))?),+
                }
            }

            /// A line for people.
            pub fn describe(&self) -> String {
                match self {
                    $(Event::$variant $({ $($field),+ })? $(($inner))? => $text),+
                }
            }

            /// The fields under their names, and the type under `type`.
            pub fn json(&self) -> Value {
                let mut object = serde_json::Map::new();
                match self {
                    $(Event::$variant $({ $($field),+ })? $(($inner))? => {
                        $($(add_json(
                            &mut object,
                            or_name!($field $(, $key)?),
                            <$crate::codec!($type $(, $codec)?) as Shown<$type>>::json($field),
                        );)+)?
                        $(add_json(&mut object, "", <$inner_type as Shown<$inner_type>>::json($inner));)?
                    })+
                }
                object.insert("type".to_owned(), json!(self.type_name()));
                Value::Object(object)
            }

            /// The table of `docs/formats.md`: tag, event and fields.
            pub fn layouts() -> Vec<(u8, &'static str, String)> {
                vec![$((
                    $tag,
                    stringify!($variant),
                    Vec::<String>::from([
                        $($(listed(stringify!($field), &<$crate::codec!($type $(, $codec)?) as Code<$type>>::form())),+)?
                        $(<$inner_type as Code<$inner_type>>::form())?
                    ])
                    .join(", "),
                )),+]
            }
        }

        impl Variants<Event> for Event {
            const VARIANTS: &'static [&'static str] = &[$(stringify!($variant)),+];

            #[allow(unused_assignments, reason = "the last number is not looked at")]
            fn sample_variant(at: usize, from: &mut Samples<'_>) -> Event {
                let mut number = 0;
                $(
                    if at == number {
                        loop {
                            $($(let $field = <$crate::codec!($type $(, $codec)?) as Sample<$type>>::sample(from);)+)?
                            $(let $inner = <$inner_type as Sample<$inner_type>>::sample(from);)?
                            // Without bytes every number is 0, so this ends.
                            $(if $valid.is_err() {
                                continue;
                            })?
                            return Event::$variant $({ $($field),+ })? $(($inner))?;
                        }
                    }
                    number += 1;
                )+
                panic!("variant {at} of Event")
            }
        }
    };
}

events! {
    /// A new inode and its first name.
    1 "make" Make {
        kind: Kind,
        mode: Mode,
        parent: Ino,
        ino: Ino => "inode",
        /// All times of the inode, mtime and ctime of the parent.
        time: Time => "time_ns",
        uid: u32,
        gid: u32,
        /// Device number; 0 unless `kind` is a device.
        rdev: u32,
        name: Name,
        /// Content of a file or target of a symbolic link.
        content: Vec<u8> => "content_bytes",
    }
    footprint {
        Footprint::at(*parent).dir(*parent).inode(Role::Newborn, *ino, Rows::ATTRS.and(Rows::CONTENT))
            .changes(*parent, name, None, Some(*ino))
    }
    time { *time }
    text {{
        let bytes = if content.is_empty() { String::new() } else { format!(", {} bytes", content.len()) };
        let (kind, mode) = (kind_name(*kind), octal(mode.0));
        format!("make {kind} {} in {parent} as {ino}, mode {mode}, owner {uid}:{gid}{bytes}", quoted(name))
    }}

    /// A file gets a further name.
    2 "link" Link {
        /// The type of the inode.
        kind: Kind,
        parent: Ino,
        ino: Ino => "inode",
        time: Time => "time_ns",
        name: Name,
    }
    footprint {
        Footprint::at(*parent).dir(*parent).subject(*ino, Rows::ATTRS).changes(*parent, name, None, Some(*ino))
    }
    time { *time }
    text { format!("link {} {ino} as {} in {parent}", kind_name(*kind), quoted(name)) }

    /// A name less (also of a directory, which is then gone).
    3 "unlink" Unlink {
        /// If that was the last name: keep the inode as an orphan.
        orphan: bool,
        /// The type of the inode.
        kind: Kind,
        parent: Ino,
        /// The inode that bore it.
        ino: Ino => "inode",
        time: Time => "time_ns",
        name: Name,
    }
    footprint {
        Footprint::at(*parent).dir(*parent).subject(*ino, Rows::ATTRS).changes(*parent, name, Some(*ino), None)
    }
    time { *time }
    text {{
        let orphan = if *orphan { ", which is open" } else { "" };
        format!("unlink {} in {parent}, inode {ino}{orphan}", quoted(name))
    }}

    /// A name moved; an inode that bore the new name is replaced or exchanged.
    4 "rename" Rename {
        /// The inode that bore the new name.
        over: Over,
        /// The type of the inode that moves.
        kind: Kind,
        /// The directory that loses the name.
        from: Ino,
        /// The directory that gains it.
        to: Ino,
        /// The inode that moves.
        ino: Ino => "inode",
        time: Time => "time_ns",
        from_name: Name,
        to_name: Name,
    }
    footprint {{
        let footprint = Footprint::at(*to).dir(*from).dir(*to).subject(*ino, Rows::ATTRS);
        let footprint = match over.ino() {
            Some(other) => footprint.inode(Role::Victim, other, Rows::ATTRS),
            None => footprint,
        };
        footprint
            .changes(*from, from_name, Some(*ino), over.exchanged())
            .changes(*to, to_name, over.ino(), Some(*ino))
    }}
    time { *time }
    text {{
        let over = match over {
            Over::Nothing => String::new(),
            Over::Replaced { ino, orphan: false, .. } => format!(", replacing {ino}"),
            Over::Replaced { ino, orphan: true, .. } => format!(", replacing {ino}, which is open"),
            Over::Exchanged { ino, .. } => format!(", exchanged with {ino}"),
        };
        format!("rename {} in {from} to {} in {to}, inode {ino}{over}", quoted(from_name), quoted(to_name))
    }}

    /// Attributes set to these values.
    5 "setattr" SetAttr {
        ino: Ino => "inode",
        ctime: Time => "time_ns",
        mode: Option<Mode>,
        uid: Option<u32>,
        gid: Option<u32>,
        /// New size: content past it is dropped, new room reads as zeros.
        size: Option<u64> as Option<FileBytes>,
        atime: Option<Time> => "atime_ns",
        mtime: Option<Time> => "mtime_ns",
    }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS.and_if(size.is_some(), Rows::CONTENT)) }
    attributes_of { ino }
    time { *ctime }
    text {{
        let mut set = Vec::new();
        set.extend(mode.map(|mode| format!("mode {}", octal(mode.0))));
        set.extend(uid.map(|uid| format!("owner {uid}")));
        set.extend(gid.map(|gid| format!("group {gid}")));
        set.extend(size.map(|size| format!("size {size}")));
        set.extend(atime.map(|time| format!("atime {}", utc(time))));
        set.extend(mtime.map(|time| format!("mtime {}", utc(time))));
        format!("setattr {ino}: {}", if set.is_empty() { "ctime".to_owned() } else { set.join(", ") })
    }}
    operation {
        Op::SetAttr {
            ino: *ino,
            change: AttrChange {
                mode: *mode,
                uid: *uid,
                gid: *gid,
                size: *size,
                size_by_handle: true,
                atime: atime.map(SetTime::At),
                mtime: mtime.map(SetTime::At),
                kill_setid: false,
            },
        }
    }

    6 "write" Write {
        ino: Ino => "inode",
        /// Size of the file after the write, in bytes.
        size: u64 as FileBytes,
        /// Modification and change time.
        mtime: Time => "time_ns",
        /// Permissions afterwards, if set-id bits were cleared.
        mode: Option<Mode>,
        body: Body => "content",
    }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS.and(Rows::CONTENT)) }
    time { *mtime }
    text {
        match body {
            Body::Inline(bytes) => format!("write {ino}: {} bytes inline, size {size}", bytes.len()),
            Body::Extents(extents) => {
                let bytes: u64 = extents.iter().map(|e| u64::from(e.len)).sum();
                format!("write {ino}: {bytes} bytes in {} extents, size {size}", extents.len())
            }
        }
    }
    operation {
        Op::Write {
            ino: *ino,
            size: *size,
            mtime: *mtime,
            kill_setid: false,
            hold: Hold::None,
            body: body.clone(),
        }
    }

    /// A range shared from another file, already resolved: see [`crate::Op::Clone`].
    7 "clone" Clone {
        from: Ino,
        to: Ino => "inode",
        /// First byte in the source.
        from_offset: u64,
        /// First byte in the destination.
        to_offset: u64,
        len: u64 => "bytes",
        /// Modification and change time of the destination.
        time: Time => "time_ns",
    }
    footprint {
        Footprint::at(*to)
            .inode(Role::Source, *from, Rows::NONE)
            .subject(*to, Rows::ATTRS.and(Rows::CONTENT))
    }
    time { *time }
    text { format!("clone {len} bytes of {from} at {from_offset} to {to} at {to_offset}") }
    operation {
        Op::Clone { from: *from, from_offset: *from_offset, to: *to, to_offset: *to_offset, len: *len }
    }
    valid { file_bytes(from_offset.max(to_offset).saturating_add(len)) }

    /// Same bytes in other blocks: changes no attribute that a user sees.
    8 "remap" Remap {
        ino: Ino => "inode",
        extents: Vec<Extent>,
    }
    footprint { Footprint::at(*ino).subject(*ino, Rows::BLOCKS) }
    text { format!("remap {ino}: {} extents", extents.len()) }

    /// An extended attribute set or, with no value, removed.
    9 "xattr" Xattr {
        ino: Ino => "inode",
        ctime: Time => "time_ns",
        name: Vec<u8> as Text,
        value: Option<Vec<u8>> => "value_bytes",
    }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS.and(Rows::XATTRS)) }
    attributes_of { ino }
    time { *ctime }
    text {{
        let name = String::from_utf8_lossy(name);
        match value {
            Some(value) => format!("set xattr {name:?} of {ino}, {} bytes", value.len()),
            None => format!("remove xattr {name:?} of {ino}"),
        }
    }}
    operation {
        match value.clone() {
            Some(value) => Op::SetXattr { ino: *ino, how: XattrHow::Set, name: name.clone(), value },
            None => Op::RemoveXattr { ino: *ino, name: name.clone() },
        }
    }

    /// A step in freeing an orphan: chunks from `from_chunk` on are dropped; 0 ends the inode itself.
    10 "reclaim" Reclaim {
        ino: Ino => "inode",
        from_chunk: u32,
    }
    footprint { Footprint::at(*ino).inode(Role::Orphan, *ino, Rows::ATTRS.and(Rows::CONTENT)) }
    text { format!("reclaim {ino} from chunk {from_chunk}") }

    /// These garbage blocks are deleted from the object store: forget them.
    11 "swept" Swept {
        blocks: Vec<BlockId>,
    }
    footprint { Footprint::nowhere() }
    text { format!("swept {} blocks", blocks.len()) }

    /// Inode counters of the shard below this mark may be in use.
    12 "reserve" Reserve {
        shard: ShardId,
        counter_end: u64,
    }
    footprint { Footprint::nowhere() }
    text { format!("reserve inode numbers of shard {shard} below {counter_end}") }

    /// A session began.
    13 "session-opened" SessionOpened {
        session: SessionId,
        /// Free text for administrators (host, process, mount point), and a secret.
        identity: Vec<u8> as Hidden => "",
    }
    footprint { Footprint::nowhere() }
    text { format!("session {session} opened") }

    /// A session ended, or expired.
    14 "session-closed" SessionClosed {
        session: SessionId,
    }
    footprint { Footprint::nowhere() }
    text { format!("session {session} closed") }

    /// Nothing, in so many positions, at least 1: changes that are not journalled, or events that a journal tool has erased.
    15 "skipped" Skipped {
        /// Positions that it takes. Every other event takes one.
        count: u32 as Positive,
    }
    footprint { Footprint::nowhere() }
    text {
        match count {
            1 => "nothing".to_owned(),
            count => format!("nothing, in {count} positions"),
        }
    }

    /// An orphan gets a name again (a merge brings back what others removed).
    16 "restore" Restore {
        parent: Ino,
        /// An inode without names, which gets one.
        ino: Ino => "inode",
        time: Time => "time_ns",
        name: Name,
    }
    footprint {
        Footprint::at(*parent).dir(*parent).subject(*ino, Rows::ATTRS).changes(*parent, name, None, Some(*ino))
    }
    time { *time }
    text { format!("restore {ino} as {} in {parent}", quoted(name)) }

    /// Names in a directory changed and changed back: all that is left of redundant events.
    17 "touch" Touch {
        ino: Ino => "inode",
        time: Time => "time_ns",
    }
    footprint { Footprint::at(*ino).dir(*ino) }
    time { *time }
    text { format!("touch directory {ino}") }

    /// A directory got a policy, or lost it.
    18 "policy" Policy(change: PolicyChange)
    footprint { Footprint::at(change.ino).inode(Role::Root, change.ino, Rows::POLICY) }
    time { change.time }
    text {{
        let path = String::from_utf8_lossy(&change.path);
        match &change.text {
            Some(text) => format!("policy {} of {} ({path:?}), {} bytes", change.version, change.ino, text.len()),
            None => format!("policy {} removed from {} ({path:?})", change.version, change.ino),
        }
    }}

    /// A client takes a subtree for itself.
    19 "decoupled" Decoupled(decoupling: Box<Decoupling>)
    footprint {
        Footprint::at(decoupling.root()).inode(Role::Root, decoupling.root(), Rows::DECOUPLING)
    }
    time { decoupling.since }
    text {{
        let branch = decoupling.branch.as_ref().map(|name| format!(", branch {}", quoted(name)));
        let (id, root, branch) = (decoupling.id, decoupling.root(), branch.unwrap_or_default());
        format!("decoupling {id} of {root} for {:?}{branch}", decoupling.identity)
    }}

    /// Another client resumes a decoupling.
    20 "attached" Attached(attached: Box<Attached>)
    footprint { Footprint::nowhere() }
    text {
        format!("decoupling {} continues with {:?}, client {}", attached.id, attached.identity, attached.generation)
    }

    /// A decoupling may make inodes with these numbers, too.
    21 "granted" Granted {
        id: RealmId => "realm",
        /// The first of each range, and the first past it.
        ranges: Vec<(Ino, Ino)> as Vec<Range>,
    }
    footprint { Footprint::nowhere() }
    text {{
        // The ranges of a damaged journal may be any.
        let lengths = ranges.iter().map(|(first, end)| end.0.saturating_sub(first.0));
        let count = lengths.fold(0, u64::saturating_add);
        format!("decoupling {id} may use {count} more inode numbers")
    }}

    /// The events before this one in its frame are merged.
    22 "merged" Merged(merged: Box<MergedUpTo>)
    footprint { Footprint::at(merged.map.root()) }
    text {
        match merged.state.batch {
            None => format!("decoupling {} is merged up to {}", merged.id, merged.state.merged),
            Some((upto, done)) => {
                format!("decoupling {} is merged by {done} events of its batch up to {upto}", merged.id)
            }
        }
    }

    /// A decoupling is over.
    23 "decoupling-ended" DecouplingEnded {
        id: RealmId => "realm",
    }
    footprint { Footprint::nowhere() }
    text { format!("decoupling {id} ends") }

    /// A file is as it was before (a merge lets one side's file win as a whole).
    24 "revert" Revert {
        ino: Ino => "inode",
        /// The attributes and the content at the base.
        to: Box<Reverted> => "",
    }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS.and(Rows::XATTRS).and(Rows::CONTENT)) }
    text { format!("revert {ino} to {} bytes", to.size) }

    /// A file or directory is immutable or append-only, or no longer.
    25 "flags" Flags {
        ino: Ino => "inode",
        ctime: Time => "time_ns",
        /// Bits of [`chiton_types::Attr::SETTABLE`].
        flags: u8,
    }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS) }
    attributes_of { ino }
    time { *ctime }
    text { format!("flags of {ino}: {}", flag_letters(*flags)) }
    operation { Op::SetFlags { ino: *ino, flags: *flags } }

    /// The events before this one in its frame also change rows of another plate, which is to carry them out.
    26 "owes" Owes {
        to: PlateId => "plate",
        /// Of the effect, counted from 1 for each plate.
        number: u64,
        session: SessionId,
        seq: Seq,
        /// Number of encoded events.
        count: u32,
        /// The events, encoded one after the other.
        events: Vec<u8> => "event_bytes",
    }
    footprint { Footprint::nowhere() }
    text { format!("effect {number} is owed to plate {to}: {count} events") }

    /// The events after this one in its frame were decided by another plate, and end the guards of their operation here.
    27 "carried-out" CarriedOut {
        from: PlateId => "plate",
        number: u64,
        session: SessionId,
        seq: Seq,
    }
    footprint { Footprint::nowhere() }
    text { format!("effect {number} of plate {from} is carried out") }

    /// Another plate has carried out the effects up to this one durably.
    28 "settled" Settled {
        to: PlateId => "plate",
        upto: u64,
    }
    footprint { Footprint::nowhere() }
    text { format!("plate {to} has carried out the effects up to {upto}") }

    /// A row stays as it is until an operation that another plate decides has ended.
    29 "guarded" Guarded {
        ino: Ino => "inode",
        holder: PlateId => "plate",
        /// Start of that plate, and the attempt of the operation in which it asked.
        boot: u64,
        attempt: u64,
        session: SessionId,
        seq: Seq,
    }
    footprint { Footprint::at(*ino) }
    text { format!("inode {ino} is guarded for operation {seq} of session {session} at plate {holder}") }

    /// The operation did not happen, or needs this row no more.
    30 "guard-ended" GuardEnded {
        ino: Ino => "inode",
        holder: PlateId => "plate",
        session: SessionId,
        seq: Seq,
    }
    footprint { Footprint::at(*ino) }
    text { format!("inode {ino} is not guarded any more for operation {seq} of session {session} at plate {holder}") }

    /// Another plate may make inodes with these numbers, in its present start.
    31 "lent" Lent {
        to: PlateId => "plate",
        /// Number of the borrower's start.
        boot: u64,
        first: Ino,
        /// The first past them.
        end: Ino,
    }
    footprint { Footprint::nowhere() }
    text { format!("the inode numbers from {first} below {end} are lent to plate {to}") }

    /// A plate that started anew has sent everything from before: the numbers lent to its earlier starts are used no more.
    32 "peer-opened" PeerOpened {
        plate: PlateId,
        /// Number of its present start.
        boot: u64,
    }
    footprint { Footprint::nowhere() }
    text { format!("plate {plate} is open") }

    /// An operation that was answered before a crash is refused after it, because what it rested on is lost. It is not carried out
    /// when it is sent once more.
    33 "refused" Refused {
        session: SessionId,
        seq: Seq,
    }
    footprint { Footprint::nowhere() }
    text { format!("operation {seq} of session {session} is refused after the crash") }

    /// A directory has these parts, itself among them; or none.
    34 "parts" Parts {
        ino: Ino => "inode",
        parts: Vec<PartRange>,
    }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS) }
    text { format!("directory {ino} has {} parts", parts.len()) }

    /// A part of a directory begins to exist, without names.
    35 "part" Part {
        /// The inode of the whole directory.
        home: Ino,
        ino: Ino => "inode",
        /// The range of its names' hashes: the lowest and the highest.
        first: u64,
        last: u64,
        mode: Mode,
        uid: u32,
        gid: u32,
        time: Time => "time_ns",
    }
    footprint { Footprint::at(*ino).inode(Role::Newborn, *ino, Rows::ATTRS.and(Rows::CONTENT)) }
    time { *time }
    text { format!("part {ino} of directory {home}, names with hashes from {first} to {last}") }

    /// A name goes from an inode of a directory to another one of the same directory. The inode that it names
    /// stays as it is.
    36 "moved" Moved {
        /// The type of the inode that it names.
        kind: Kind,
        from: Ino,
        to: Ino,
        ino: Ino => "inode",
        name: Name,
    }
    footprint {
        Footprint::at(*from)
            .dir(*from)
            .dir(*to)
            .changes(*from, name, Some(*ino), None)
            .changes(*to, name, None, Some(*ino))
    }
    text { format!("{} of directory {from} is in its part {to} from now on", quoted(name)) }

    /// An inode whose name went from one inode of a directory to another knows the other one from now on, unless its name has left the
    /// directory meanwhile.
    37 "parent" Parent {
        ino: Ino => "inode",
        from: Ino,
        to: Ino,
    }
    footprint { Footprint::at(*ino).subject(*ino, Rows::NONE) }
    text { format!("{ino} is in {to}, if it was in {from}") }

    /// The directory of a part has its names from now on. The part stays, with this range of no hashes of names, as long as inodes may take
    /// it for their directory.
    38 "folded" Folded {
        ino: Ino => "inode",
        /// The lowest hash of its range.
        first: u64,
    }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS) }
    text { format!("part {ino} has no names from now on") }

    /// The directory of a part was removed with its content. The part is an orphan from now on, and its plate frees its names.
    39 "detached" Detached {
        ino: Ino => "inode",
        time: Time => "time_ns",
    }
    footprint { Footprint::at(*ino).inode(Role::Orphan, *ino, Rows::ATTRS) }
    text { format!("part {ino} is of a removed directory from now on") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_happened() {
        let name = |bytes: &[u8]| Name::new(bytes).expect("a name");
        let make = Event::Make {
            parent: Ino::ROOT,
            name: name(b"a b"),
            ino: Ino(7),
            kind: Kind::File,
            mode: Mode(0o644),
            uid: 1,
            gid: 2,
            rdev: 0,
            time: Time(0),
            content: vec![1],
        };
        assert_eq!(make.describe(), "make file \"a b\" in 1 as 7, mode 0644, owner 1:2, 1 bytes");
        let name = name(b"\xff\"\n");
        let link = Event::Link { kind: Kind::File, parent: Ino(1), name, ino: Ino(7), time: Time(0) };
        assert_eq!(link.describe(), "link file 7 as \"\\xff\\\"\\n\" in 1");
    }
}
