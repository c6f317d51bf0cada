//! Answers about decoupled realms.

use chiton_model::field::{Fixed, Max, Range};
use chiton_model::merge::{Conflict, MergeState};
use chiton_model::{choice, number, record};
use chiton_namespace::Rows;
use chiton_types::{Attr, Ino, Name, Position, Time};

use super::call::{Claim, NAMES_MAX, PolicyText, ShortText, TEXT_BYTES_MAX};

choice! {
    /// An answer about decoupled realms.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum RealmAnswer "answer about realms" {
        /// The realm is the client's.
        0 Granted(granted: Box<Granted>)
        /// Numbers for new inodes: first, and first past the range.
        1 Ranges(ranges: Vec<(Ino, Ino)> as Vec<Range>)
        /// For each need what was found, in order. Where that would be too long for one answer, those at the end are left
        /// out: they are to be asked for again.
        2 Rows(found: Vec<FoundRows>)
        /// For each inode and each name in the order asked.
        3 Foreign {
            inodes: Vec<Foreign>,
            names: Vec<Foreign>,
        }
        /// The events were dealt with.
        4 Merged(merged: Merged)
        /// The decoupling is over (or was already).
        5 Ended
        /// The realm of an inode.
        6 Of {
            /// The directory whose policy holds for it.
            root: Ino,
            /// The decoupling that it is in (no branch).
            decoupled: Option<Box<RealmInfo>>,
        }
        /// The decoupling in the way, if there is one.
        9 BlockedBy(blocked: Option<Blocked>)
        /// All decouplings: to [`super::RealmCall::List`].
        7 Realms(realms: Vec<RealmInfo>)
        /// An object of the client's.
        8 Object(answer: ObjectAnswer)
    }
}

choice! {
    /// The outcome of a call about an object.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum ObjectAnswer "outcome for an object" {
        /// Stored; or another one is there.
        0 Put(done: bool)
        /// Content; `None`: no such object.
        1 Bytes(bytes: Option<Vec<u8>>)
        /// The object does not exist any more.
        2 Deleted
        /// Names with sizes in bytes; there may be more after the last.
        3 Names(names: Vec<(String, u64)> as Max<(Max<String, TEXT_BYTES_MAX>, u64), NAMES_MAX>)
    }
}

record! {
    /// A decoupling that keeps others out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Blocked "blocked" {
        /// The directory that was taken.
        pub root: Ino,
        /// Others may look (`interfere_policy: block_writes`).
        pub only_writes: bool,
        /// The name that was asked about stands for it; else the inode lies in it.
        pub is_name: bool,
        /// The session has a shared lease on the root: as long as it has, the
        /// decoupling is not over, and calls that it refuses need not be sent.
        pub leased: bool,
    }
}

record! {
    /// The state that a client needs to work in a realm without the server.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Granted "grant" {
        /// To be shown with every call.
        pub claim: Claim,
        pub root: Attr,
        /// The server's state that the client starts from.
        pub base: Position,
        /// The writer whose blocks the realm's files may name.
        pub writer: u64 as Fixed,
        /// Numbers for new inodes, reserved durably.
        pub ranges: Vec<(Ino, Ino)> as Vec<Range>,
        /// Directories below the root that have a policy of their own: neither they nor what is below them is the client's.
        pub borders: Vec<Ino>,
        /// Number of shards of the file system.
        pub shards: u16 as Fixed,
        /// The first shard of the plate on which the subtree lies.
        pub first_shard: u16 as Fixed,
        /// The first shard behind those of that plate.
        pub end_shard: u16 as Fixed,
        /// The policy that holds, as YAML, complete.
        pub policy: Vec<u8> as PolicyText,
        /// How far merging is (after `Attach`).
        pub state: MergeState,
        /// Identity of the file system.
        pub filesystem: u64 as Fixed,
    }
}

record! {
    /// Rows found for one need.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct FoundRows "rows found" {
        /// Keys and values as the metadata store has them (`docs/formats.md`).
        pub rows: Rows,
        /// There are no more after these (for a slice of a directory).
        pub exhausted: bool,
    }
}

number! {
    /// The change of others to an inode or a name since the base.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Foreign "a change of others" {
        Same = 0,
        /// It is there, and changed or new.
        Changed = 1,
        /// The object is removed.
        Removed = 2,
    }
}

record! {
    /// The outcome of events.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct Merged "merged" {
        /// How far merging is now: where the next call begins.
        pub state: MergeState,
        /// The server's position of the last event that they became: they are durable when it is.
        pub position: Position,
        /// Events that changed nothing.
        pub skipped: u64,
        /// Events that a limit, or the border of the realm, forbade: each with the reason.
        pub lost: Vec<(u64, String)>,
        /// Conflicts with changes of others.
        pub conflicts: Vec<Conflict>,
        /// The policy forbids conflicts, and there is one: nothing was merged from there on.
        pub stopped: bool,
    }
}

record! {
    /// A decoupling, as it is listed.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RealmInfo "decoupling" {
        /// Its number and latest client.
        pub claim: Claim,
        pub root: Ino,
        /// Where it is: its path, or the end of it that begins at `above`.
        pub path: Vec<u8>,
        /// The directory that the path begins at, and the one of another plate that it is in; none if the path is whole.
        pub above: Option<(Ino, Ino)>,
        /// The name, if it is a branch.
        pub branch: Option<Name>,
        /// The identity of the session that has it.
        pub owner: String,
        /// That session is there now.
        pub is_attached: bool,
        /// It is the asking session itself.
        pub is_own: bool,
        /// Location of the journal, for people.
        pub journal_at: String as ShortText,
        /// The policy, as YAML.
        pub policy: Vec<u8> as PolicyText,
        pub since: Time,
        /// The server's state that it started from.
        pub base: Position,
        /// How far merging is.
        pub state: MergeState,
        /// Inode numbers reserved for it, and how many of them are merged.
        pub reserved: u64 as Fixed,
        /// Numbers of merged inodes.
        pub used: u64 as Fixed,
        /// It is being merged: others of the directory wait.
        pub is_merging: bool,
    }
}
