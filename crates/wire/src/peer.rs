//! Messages between plates. An operation that changes rows of several plates is decided by one of them: the others guard
//! their rows for it, and carry out its events afterwards.
//!
//! ```text
//!   mkdir of a/d, a on plate 1, d on plate 2                    rmdir of a/d
//!     1 ── WantNumbers ─▶ 2   (ahead)                             1 ── Guard(d) ──────▶ 2   recalls leases, journals the guard
//!     1 ◀──── Numbers ─── 2                                       1 ◀── Granted(row) ── 2   once that is durable
//!     1   frame [make, owes 2]  ─▶ answers the client             1   frame [unlink, owes 2] ─▶ answers the client
//!     1 ── Effect [make] ─▶ 2   once that is durable              1 ── Effect [unlink] ─▶ 2   ends the guard
//!     1 ◀── CarriedOut ──── 2   once the effect is durable        1 ◀── CarriedOut ────── 2
//! ```
//!
//! Invariants:
//! - Messages between two starts of two plates arrive in order or not at all. A plate that starts anew says [`PeerMessage::Hello`];
//!   what an older start of either side sent is void.
//! - A message that is lost with a start is sent again after the greeting, by the plate that waits for its answer.

use crate::handshake::IDENTITY_BYTES_MAX;
use chiton_model::field::{Fixed, Max};
use chiton_model::{choice, record};
use chiton_types::{
    Attr, Cred, Ino, Kind, Mode, Name, PlateId, Position, Refusal, Seq, SessionId, ShardId, Time,
};

use crate::answer::{Failure, Resolved};

/// Names the token at plate 0 in place of an inode. An operation that gives a directory another parent guards it last of all, so that
/// no two of them together make a loop.
pub const TOKEN: Ino = Ino(0);

/// Names what is decoupled on a plate, in place of an inode. An operation that removes a tree guards it on every plate: no decoupling begins
/// meanwhile, and the row that is shown names the roots ([`GuardedRow::of_decouplings`]).
pub const DECOUPLINGS: Ino = Ino(u64::MAX);

record! {
    /// Names an operation between plates: its client's session and number. Those that are never sent again have session 0 and a
    /// number that the deciding plate gave for as long as it runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct OpKey "operation key" {
        pub session: SessionId,
        pub seq: Seq,
    }
}

record! {
    /// A row that a plate guards for an operation of another, as it stays until the guard ends.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct GuardedRow "guarded row" {
        pub attr: Attr,
        /// It is a directory without entries.
        pub is_empty: bool,
        /// Of a directory: the inode that bears the name that was asked for, with its type.
        pub named: Option<(Ino, Kind)>,
        /// The access list, if there is one.
        pub access: Option<Vec<u8>>,
        /// Why the operation may not have the row although it is there.
        pub kept: Option<Refusal>,
        /// Of a directory with parts: those beside this inode. Of [`DECOUPLINGS`]: the roots of the decouplings.
        pub parts: Vec<Ino>,
        /// Of a part: its entries, if they were asked for and are not too many.
        pub entries: Option<Vec<(Name, (Ino, Kind))>>,
    }
}

impl GuardedRow {
    /// The row that stands for [`DECOUPLINGS`]: it has nothing but the roots of decoupled subtrees and branches.
    pub fn of_decouplings(roots: Vec<Ino>) -> GuardedRow {
        let attr = Attr {
            ino: DECOUPLINGS,
            kind: Kind::Dir,
            mode: Mode(0),
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            allocated: 0,
            atime: Time(0),
            mtime: Time(0),
            ctime: Time(0),
            btime: Time(0),
            parent: DECOUPLINGS,
            flags: 0,
            position: Position(0),
        };
        GuardedRow {
            attr,
            is_empty: false,
            named: None,
            access: None,
            kept: None,
            parts: roots,
            entries: None,
        }
    }
}

record! {
    /// A message between plates of two servers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PeerFrame "peer frame" {
        pub from: PlateId,
        pub to: PlateId,
        pub message: PeerMessage,
    }
}

record! {
    /// A path on its way from plate to plate.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Walk "path on its way" {
        /// The inode that it has led to, of the receiver.
        pub at: Ino,
        /// The directory in which that was found by its name: if it is a symbolic link, its target begins there. 0: it was not found by
        /// a name.
        pub below: Ino,
        /// The components that are left, with a slash between two.
        pub rest: Vec<u8>,
        /// Also follow a symbolic link at the end.
        pub follow: bool,
        /// The end must be a directory.
        pub must_be_dir: bool,
        /// Symbolic links that were followed so far.
        pub links: u8,
        /// Where absolute paths begin, and above which `..` does not lead: the root of the file system, or the directory to which the
        /// client is limited.
        pub root: Ino,
    }
}

choice! {
    /// A question about the subtree to which a client is limited. It is put to the plate of the inode, which answers as far as it has the
    /// directories: see [`PeerMessage::Subtree`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub enum SubtreeQuestion "question about a subtree" {
        /// Whether an inode is this directory or below it.
        0 Within {
            ino: Ino,
            root: Ino,
        }
        /// Which directory this path leads to. No symbolic link is followed.
        1 Path {
            (2)
            /// Operations that clients have pending in the directories on the way come first.
            settled,
            from: Ino,
            /// Names, with a slash between two.
            names: Vec<u8> as Max<u8, SUBTREE_BYTES_MAX>,
        }
    }
}

/// Longest path of a subtree to which a client is limited.
pub const SUBTREE_BYTES_MAX: usize = 1024;
/// A plate that cannot answer a question about a subtree names at most so many questions to other plates: a file may have many names.
pub const SUBTREE_ONWARD_MAX: usize = 1024;

choice! {
    /// A message from one plate to another.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum PeerMessage "peer message" {
        /// The first message of a start. The other side answers with its own, unless this is an answer.
        0 Hello {
            (1) is_answer,
            /// Number of the sender's start.
            boot: u64 as Fixed,
            /// Effects of the receiver that this plate has carried out durably: those up to this number.
            carried_out: u64 as Fixed,
        }
        /// The clients of the sender have said what it had answered before its start. Of the guards that the receiver holds for it,
        /// those of these operations stand, and those of operations under way that this start has asked for in these attempts.
        15 Collected {
            operations: Vec<OpKey>,
            guards: Vec<(OpKey, u64)>,
        }
        /// The sender has carried out again what it had answered, and sent all births: the numbers that the receiver lent to its
        /// older starts come back, and guards of older starts that no operation has taken over end. Of tokens, those of these operations
        /// stand.
        2 Open {
            moves: Vec<OpKey>,
        }
        /// Asks the owner of a row to guard it. Asked again, it is granted again.
        3 Guard {
            (16) takes_over,
            /// The operation holds guards that come later in the order: if another operation has this one, it does not wait.
            is_late: bool,
            /// The operation needs all entries of the directory.
            entries: bool,
            key: OpKey,
            /// Counts, in a start of the sender, the attempts of all operations to take their guards. A guard of another attempt does
            /// not count, unless the operation was answered before the start and takes it over.
            attempt: u64,
            /// Or [`TOKEN`], or [`DECOUPLINGS`].
            ino: Ino,
            /// Of a directory: the name that the operation is about.
            name: Option<Name>,
            /// The client that keeps its leases on the row, by the number of its greeting ([`crate::Hello`]); 0: none.
            client: u64 as Fixed,
        }
        /// The guard is durable. No row: the inode does not exist, and nothing is guarded, or it is the token.
        4 Granted {
            key: OpKey,
            attempt: u64,
            ino: Ino,
            row: Option<GuardedRow>,
        }
        /// Another operation has the guard, and the one that asked does not wait for it.
        17 Occupied {
            key: OpKey,
            attempt: u64,
            ino: Ino,
        }
        /// Asks for a directory on the way up from the target of a move, as it is now, and if it is to be known, for the name that a
        /// child has in it. The operation holds the token.
        18 AskPlace {
            key: OpKey,
            attempt: u64,
            ino: Ino,
            child: Option<Ino>,
        }
        /// The answer; nothing if there is no such inode, or no such name.
        19 Place {
            key: OpKey,
            attempt: u64,
            ino: Ino,
            attr: Option<Attr>,
            name: Option<Name>,
        }
        /// Asks to which realm a directory belongs, once the plate has the policies up to this version.
        20 AskRealm {
            ino: Ino,
            version: u64,
        }
        /// The answer, with the version of the policies that it rests on.
        21 Realm {
            ino: Ino,
            version: u64,
            realm: Ino,
        }
        /// A change of a policy is carried out there. Asks the plate to recall the names that clients hold exclusively: they were granted
        /// under the policies before.
        22 RecallNames {
            key: OpKey,
        }
        /// The plate has recalled them.
        23 NamesRecalled {
            key: OpKey,
        }
        /// Carry a path on, for a client of the sender. `session`: the client's session with the receiver, which grants it leases.
        24 Carry {
            /// Counts what this start of the sender asks.
            number: u64,
            /// The client's own session with the plate that is asked; it counts only if it is of a client with this identity.
            session: SessionId,
            identity: Vec<u8> as Max<u8, IDENTITY_BYTES_MAX>,
            cred: Cred,
            walk: Walk,
        }
        /// How far the path led. All that it shows is durable.
        25 Carried {
            number: u64,
            passed: Resolved,
            /// How it continues from there; nothing if it ended.
            onward: Option<Walk>,
        }
        /// Asks about the subtree to which a client is limited. The answer waits for rows and births alone, so that operations that hold
        /// guards, or are carried out again after a start, may wait for it.
        27 AskSubtree {
            question: SubtreeQuestion,
        }
        /// The answer, as far as the plate has the directories.
        28 Subtree {
            question: SubtreeQuestion,
            /// The directory that was asked for: the root that the inode is below, or that at the end of the path.
            found: Option<Ino>,
            /// If none is found: it is found if one of these finds it, each a question to another plate. None: there is no such directory.
            onward: Vec<SubtreeQuestion> as Max<SubtreeQuestion, SUBTREE_ONWARD_MAX>,
        }
        /// It leads nowhere. All on which that rests is durable.
        26 NotCarried {
            number: u64,
            failure: Failure,
        }
        /// The operation was refused or abandoned, or its moves are durable everywhere: its guards end, the token with them.
        5 Release {
            key: OpKey,
        }
        /// Events to carry out, in the order of their numbers, which begin at 1. They end the guards of the operation, but not the
        /// token.
        6 Effect {
            number: u64 as Fixed,
            key: OpKey,
            /// How many events follow.
            count: u32,
            /// The events, encoded one after the other.
            events: Vec<u8>,
        }
        /// Everything up to this number is carried out durably.
        7 CarriedOut {
            upto: u64 as Fixed,
        }
        /// Asks for inode numbers of a shard of the receiver.
        8 WantNumbers {
            shard: ShardId,
        }
        /// The receiver may make inodes with these numbers, until its next start is open.
        9 Numbers {
            first: Ino,
            end: Ino,
        }
        /// A request waits for an inode whose number was lent to the receiver: it is to make the birth durable and send it.
        10 AwaitBirth {
            ino: Ino,
        }
        /// The sender has no birth of this inode to send, beyond those that it has sent.
        11 NotComing {
            ino: Ino,
        }
        /// Asks whether a number that was lent to an earlier start of the sender is still unused.
        12 AskUnborn {
            ino: Ino,
        }
        /// The answer to [`PeerMessage::AskUnborn`].
        13 Unborn {
            (14) is_unborn,
            ino: Ino,
        }
    }
}
