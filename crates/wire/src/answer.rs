//! The answers that a reply carries, and the reasons why it has none.

use chiton_model::field::{Fixed, Max, Range, Tagged};
use chiton_model::{Extent, Outcome, choice, code, record};
use chiton_types::codec::Put;
use chiton_types::{Attr, Ino, Kind, Name, Position, Refusal, Seq, Time};

use crate::call::BATCH_OPS_MAX;
use crate::lease::{LeaseMode, Lock};
use crate::realm::RealmAnswer;
use crate::stat_each::Stat;

choice! {
    /// Why a request got no answer.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Failure "failure" {
        /// The caller gets this errno.
        128 Refused(refusal: Refusal)
        /// Ask again with supplementary groups.
        129 NeedGroups
        /// The session is unknown or expired: its buffered content is lost (EIO), and the client begins a new one.
        130 SessionGone
        /// The request breaks the protocol; in words.
        131 Malformed(why: String)
    }
}

choice! {
    /// The answer to a request that does not fail.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Answer "answer" {
        /// It is done, and there is nothing to report.
        0 Done
        /// An operation was carried out at this position.
        1 Op {
            /// Position of its last event; 0: the journal holds nothing of it (it changed nothing, or its policy has it so), and
            /// it is not to be sent again.
            position: Position,
            outcome: Outcome,
            /// The lease that the session now has on the inode of `outcome.attr`.
            lease: LeaseMode,
            /// The session has a shared lease on the directory (names may be cached).
            parent_leased: bool,
        }
        /// A result for each operation of a batch that was performed, in order.
        2 Batch(results: Vec<Result<(Position, Outcome), Failure>> as Max<Result<(Position, Outcome), Failure>, BATCH_OPS_MAX>)
        /// Of each operation of [`crate::Call::WriteBehind`], in order: its position (as in `Op`), and the
        /// lease that the session now has on its inode (an exclusive one of a new directory: on its names).
        12 WriteBehind(results: Vec<Result<(Position, LeaseMode), Failure>> as Max<Result<(Position, LeaseMode), Failure>, BATCH_OPS_MAX>)
        /// To [`crate::Call::Ended`]: runs of numbers of operations that were carried out, each with its first number and the first past
        /// it, rising. They are durable. Operations below the last number that the client settled are not listed.
        14 CarriedOut {
            runs: Vec<(Seq, Seq)>,
            /// Position at which the session ended; 0: not known.
            end: Position,
        }
        /// To [`crate::Call::LeaseNames`].
        13 Names {
            /// The session has the lease. Not so where others have leases on the directory or want one, or where its policy
            /// has the server answer each operation.
            leased: bool,
            /// The directory's attributes.
            attr: Attr,
            /// Inode numbers: the first, and the first past them.
            numbers: (Ino, Ino) as Range,
            /// The server's clock.
            now: Time,
        }
        /// Attributes: to [`crate::Query::Lookup`], [`crate::Query::GetAttr`] and others that end at an inode.
        3 Attr {
            [
                /// For lookups: the session has a lease on the directory, so the name may be cached.
                parent_leased,
                /// For lookups: everybody may search the directory, so cached names need no check.
                parent_open,
            ]
            attr: Attr,
            /// The lease that the session now has on it (None: do not cache).
            lease: LeaseMode,
        }
        /// There is no such name: the answer to a lookup.
        4 Absent {
            [
                /// The session has a lease on the directory, so that may be cached.
                parent_leased,
                /// As in `Attr`.
                parent_open,
            ]
        }
        /// For lookups: a directory that another plate owns, which is to be asked for its attributes.
        15 Elsewhere {
            [
                /// As in `Attr`.
                parent_leased,
                /// As in `Attr`.
                parent_open,
            ]
            ino: Ino,
        }
        /// To [`crate::Query::Resolve`].
        16 Resolved(path: Resolved)
        /// Entries of a directory.
        5 Entries {
            [
                /// As in `Attr`.
                parent_leased,
                /// As in `Attr`.
                parent_open,
                /// There are no more.
                end,
            ]
            /// In the order of cookies.
            entries: Vec<DirEntry>,
        }
        /// To [`crate::Query::StatEach`]: of each target, in order.
        17 Stats(results: Vec<Result<Stat, Failure>> as Max<Result<Stat, Failure>, BATCH_OPS_MAX>)
        /// Bytes: a link's target, an attribute's value, names (each ended by NUL), a block's range, JSON.
        6 Bytes(bytes: Vec<u8>)
        /// Content of a file.
        7 Map {
            /// Attributes of the file, of the same moment as the content: they hold its size.
            attr: Attr,
            /// The lease on it.
            lease: LeaseMode,
            content: Content,
        }
        /// To [`crate::Query::StatFs`].
        8 StatFs(totals: StatFs)
        /// The lease that the session has now.
        9 Lease {
            /// At least what was asked.
            mode: LeaseMode,
            /// Attributes at that moment.
            attr: Attr,
            /// Others have the file open, and are to hear of each growth before it is answered ([`crate::Call::Grown`]).
            is_watched: bool,
        }
        /// The lock that conflicts, if any.
        10 Lock(lock: Option<Lock>)
        /// Answers about decoupled realms.
        11 Realm(answer: RealmAnswer)
    }
}

record! {
    /// A path, as far as it led: every name on it, and every inode.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct Resolved "resolved path" {
        /// Each name that was looked up, with its directory and the inode that bears it. At most as many as a client may learn
        /// from one answer: the first ones.
        pub names: Vec<(Ino, Name, Ino)> as Max<(Ino, Name, Ino), PASSED_MAX>,
        /// The inodes that the path led to, each where it was met, with the lease that the session with its plate now has on it. The
        /// last one is the end of the path. A lease on a directory covers its names.
        pub inodes: Vec<(Attr, LeaseMode)>,
        /// Targets of the symbolic links that were followed.
        pub targets: Vec<(Ino, Vec<u8>)>,
        /// The last inode is a directory that lacks this name, which was the last one of the path.
        pub absent: Option<Name>,
    }
}

/// Most names in an answer to [`crate::Query::Resolve`].
pub const PASSED_MAX: usize = 1024;

impl Resolved {
    /// The inode at the end, with the lease on it; nothing if its name is absent.
    pub fn end(&self) -> Option<&(Attr, LeaseMode)> {
        self.inodes.last().filter(|_| self.absent.is_none())
    }
}

choice! {
    /// Content of a file, as the server knows it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Content "kind of content" {
        /// All of it; if it is shorter than the file's size, the rest reads as zeros.
        0 Inline(bytes: Vec<u8>)
        /// The mapping of the chunks from `start` to `end` (multiples of the chunk size, `end` exclusive).
        1 Extents {
            /// First byte of the file that is covered.
            start: u64 as Fixed,
            /// One past the last byte covered.
            end: u64 as Fixed,
            /// The extents mapped there; the rest is holes.
            extents: Vec<Extent>,
        }
    }
}

record! {
    /// One entry of a directory.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DirEntry "entry" {
        pub name: Name,
        pub ino: Ino,
        pub kind: Kind,
        /// Place in the order of the directory ([`chiton_types::name_hash`] of the name).
        pub cookie: u64 as Fixed,
        /// With `plus`: attributes, and whether the session has a lease on them.
        pub attr: Option<(Attr, LeaseMode)> as AttrWithLease,
    }
}

/// Attributes and the lease on them, if there are any.
struct AttrWithLease;

code!(
    AttrWithLease => Option<(Attr, LeaseMode)>,
    1,
    "0 (none), or 1 + lease and attributes",
    |v, out| match v {
        None => out.put_u8(0),
        Some((attr, lease)) => {
            out.put_u8(1 + *lease as u8);
            Attr::put(attr, out);
        }
    },
    |from| match from.u8()? {
        0 => Ok(None),
        n => {
            let lease = LeaseMode::take_rest(n - 1, from)?;
            Ok(Some((Attr::take(from)?, lease)))
        }
    };
    draw = |from| Option::<(Attr, LeaseMode)>::sample(from)
);

record! {
    /// Totals of a file system.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct StatFs "totals" {
        /// Bytes of the store's disk.
        pub bytes_total: u64 as Fixed,
        /// Bytes free on it.
        pub bytes_free: u64 as Fixed,
        pub inodes_used: u64 as Fixed,
    }
}
