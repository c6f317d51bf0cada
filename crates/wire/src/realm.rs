//! What clients and servers say to each other about decoupled realms.
//!
//! ```text
//!   Decouple ─▶ Granted ─▶ Rows, Grant … ─▶ Merge, Merge, Merge ─▶ End
//!                             ▲                 │ its journal lives on: after a crash
//!                             └──── Attach ◀────┘
//! ```
//!
//! Invariants:
//! - Each call may be asked again after a lost connection: `Decouple` and `Attach` are recognised by their nonce, a merge by
//!   its place in the decoupled journal.
//! - Whoever speaks for a decoupling shows its [`Claim`]. A later `Attach` begins a new generation, and what an older
//!   one says is refused with [`chiton_types::Refusal::Stale`].

use chiton_model::merge::Conflict;
pub use chiton_model::merge::{MergeState, OnConflict, Settled};
use chiton_namespace::{Need, Rows};
use chiton_types::{Attr, Ino, Name, Position, RealmId, ShardId, Time};

/// Most events of one merge call.
pub const MERGE_EVENTS_MAX: usize = 4096;
/// Most bytes of events of one merge call, encoded; one event may be larger.
pub const MERGE_BYTES_MAX: usize = 1 << 20;
/// Most rows, or names and inodes, asked for by one call.
pub const NEEDS_MAX: usize = 4096;
/// Most inode numbers given by one call.
pub const GRANT_MAX: u64 = 1 << 32;
/// Longest object that a decoupled client keeps.
pub const REALM_OBJECT_BYTES_MAX: usize = 16 << 20;
/// Most names in one answer.
pub const NAMES_MAX: usize = 1_000;
/// Longest text of a policy, and of the place of a journal.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// Who speaks for a decoupling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The decoupling.
    pub realm: RealmId,
    /// Which of its clients, from 1: only the latest is heard.
    pub generation: u32,
}

/// A call about decoupled realms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RealmCall {
    /// The client takes a subtree for itself. Answered [`RealmAnswer::Granted`] when others have given up their leases
    /// there and the grant is durable.
    Decouple {
        /// The directory.
        root: Ino,
        /// A branch of this name, of which a directory may have several; else the directory's only decoupling.
        branch: Option<Name>,
        /// Drawn by the client: asked again with the same one, the answer is the same.
        nonce: u64,
        /// Where the journal will be, for administrators and for the next mount (host, directory).
        journal_at: String,
        /// The policy as YAML; empty: the one that holds for the directory.
        policy: Vec<u8>,
    },
    /// Another client goes on with a decoupling: answered [`RealmAnswer::Granted`] with a new generation.
    Attach {
        /// The decoupling.
        realm: RealmId,
        /// As in `Decouple`.
        nonce: u64,
        /// Where the journal is from now on.
        journal_at: String,
    },
    /// More inode numbers: [`RealmAnswer::Ranges`]. Durable when answered.
    Grant {
        /// Whose.
        claim: Claim,
        /// In this shard.
        shard: ShardId,
        /// How many.
        count: u64,
    },
    /// Rows of the subtree as it was at the base: [`RealmAnswer::Rows`].
    Rows {
        /// Whose.
        claim: Claim,
        /// Which.
        needs: Vec<Need>,
    },
    /// Which of these did others change since the base: [`RealmAnswer::Foreign`]. For `diff` and `on_conflict: abort`.
    Check {
        /// Whose.
        claim: Claim,
        /// Inodes.
        inodes: Vec<Ino>,
        /// Names in directories.
        names: Vec<(Ino, Name)>,
    },
    /// Events for the global namespace: [`RealmAnswer::Merged`].
    Merge {
        /// Whose.
        claim: Claim,
        /// The piece of the decoupled journal that they are from.
        window: MergeWindow,
        /// Number of the first event here among those of the window, from 0.
        from: u64,
        /// How many.
        count: u32,
        /// The events, encoded one after another.
        events: Vec<u8>,
        /// These are the window's last.
        last: bool,
        /// Apply without asking what others did: only hostile or impossible events are refused.
        blind: bool,
    },
    /// What is done with conflicts from now on, instead of what the policy says: [`RealmAnswer::Merged`] with how far
    /// merging is.
    Resolve {
        /// Whose.
        claim: Claim,
        /// What is done.
        on_conflict: OnConflict,
    },
    /// The client is about to merge, or has merged: [`RealmAnswer::Merged`] with how far merging is. One at a time merges in a
    /// directory: [`chiton_types::Refusal::Busy`] while another does.
    Turn {
        /// Whose.
        claim: Claim,
        /// It begins; else it is over.
        begins: bool,
    },
    /// The client looked at files of others, and has in its own, durably, what came of them: a merge that meets one as it was
    /// then lets ours prevail: [`RealmAnswer::Merged`] with how far merging is.
    Settle {
        /// Whose.
        claim: Claim,
        /// Files of others, the position of the last change of each, and what came of it; at most [`NEEDS_MAX`].
        files: Vec<(Ino, Position, Settled)>,
    },
    /// The decoupling ends: [`RealmAnswer::Ended`]. What is not merged is dropped.
    End {
        /// Whose; by `force` the generation does not matter.
        claim: Claim,
        /// An administrator ends what another client has.
        force: bool,
    },
    /// A decoupling becomes a branch of its directory: nobody is kept out of the directory any more, the client that has the
    /// decoupling is refused from now on ([`chiton_types::Refusal::Stale`]), and its journal waits for the next client:
    /// [`RealmAnswer::Ended`]. Of one that ends with its client nothing stays.
    BecomeBranch {
        /// The decoupling.
        realm: RealmId,
        /// The branch's name; none: the server chooses one.
        name: Option<Name>,
    },
    /// Which policy, and which decoupling, an inode is under: [`RealmAnswer::Of`].
    Of {
        /// The inode.
        ino: Ino,
    },
    /// What keeps others out of where an inode is: [`RealmAnswer::BlockedBy`]. Asked after [`chiton_types::Refusal::Busy`], so
    /// that it need not be asked for each refusal.
    BlockedBy {
        /// The inode.
        ino: Ino,
        /// A name in it, which may stand for the directory that is kept from others.
        name: Option<Name>,
    },
    /// All decouplings: [`RealmAnswer::Realms`].
    List,
    /// An object that the decoupled client keeps in the server's store: [`RealmAnswer::Object`].
    Object {
        /// Whose.
        claim: Claim,
        /// Its name among those of the decoupling; of a list, what names begin with.
        name: String,
        /// What to do.
        what: ObjectCall,
    },
}

/// What to do with an object of a decoupled client. Each may be asked again: of a put that says "another is there", the
/// bytes tell whether it is one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectCall {
    /// Stores it, durably, if there is none of this name: [`ObjectAnswer::Put`].
    PutIfAbsent {
        /// The content.
        bytes: Vec<u8>,
    },
    /// Its first bytes: [`ObjectAnswer::Bytes`].
    Get {
        /// At most so many.
        bytes_max: u64,
    },
    /// Removes it: [`ObjectAnswer::Deleted`].
    Delete,
    /// Names with sizes, in order: [`ObjectAnswer::Names`].
    List {
        /// Those after this one.
        after: String,
    },
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectAnswer {
    /// Stored; or another one is there.
    Put(bool),
    /// Content; `None`: no such object.
    Bytes(Option<Vec<u8>>),
    /// It is gone.
    Deleted,
    /// Names with sizes in bytes; there may be more after the last.
    Names(Vec<(String, u64)>),
}

/// A piece of a decoupled journal, squashed as one: events of positions past `after` up to `upto`. The same piece must
/// give the same events each time it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeWindow {
    /// Everything up to here was merged before.
    pub after: Position,
    /// Its last position.
    pub upto: Position,
}

/// An answer about decoupled realms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RealmAnswer {
    /// The realm is the client's.
    Granted(Box<Granted>),
    /// Numbers for new inodes: first, and first past the range.
    Ranges(Vec<(Ino, Ino)>),
    /// For each need what was found, in order. Where that would be too long for one answer, those at the end are left
    /// out: they are to be asked for again.
    Rows(Vec<FoundRows>),
    /// For each inode and each name in the order asked.
    Foreign {
        /// Inodes.
        inodes: Vec<Foreign>,
        /// Names.
        names: Vec<Foreign>,
    },
    /// The events were dealt with.
    Merged(Merged),
    /// The decoupling is over (or was already).
    Ended,
    /// Where an inode belongs.
    Of {
        /// The directory whose policy holds for it.
        root: Ino,
        /// The decoupling that it is in (no branch).
        decoupled: Option<Box<RealmInfo>>,
    },
    /// What is in the way, if anything is.
    BlockedBy(Option<Blocked>),
    /// All.
    Realms(Vec<RealmInfo>),
    /// An object of the client's.
    Object(ObjectAnswer),
}

/// A decoupling that keeps others out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The directory that was taken.
    pub root: Ino,
    /// Others may look (`interfere_policy: block_writes`).
    pub only_writes: bool,
    /// The name that was asked about stands for it; else the inode lies in it.
    pub is_name: bool,
    /// The session has a shared lease on the root: as long as it has, the decoupling is not over, and what is refused because
    /// of it need not be asked for.
    pub leased: bool,
}

/// What a client needs to act in a realm by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// To be shown with every call.
    pub claim: Claim,
    /// The root directory.
    pub root: Attr,
    /// The server's state that the client starts from.
    pub base: Position,
    /// The writer whose blocks the realm's files may name.
    pub writer: u64,
    /// Numbers for new inodes, reserved durably.
    pub ranges: Vec<(Ino, Ino)>,
    /// Directories below the root that have a policy of their own: neither they nor what is below them is the client's.
    pub borders: Vec<Ino>,
    /// Number of shards of the file system.
    pub shards: u16,
    /// The policy that holds, as YAML, complete.
    pub policy: Vec<u8>,
    /// How far merging is (after `Attach`).
    pub state: MergeState,
    /// Identity of the file system.
    pub filesystem: u64,
}

/// Rows found for one need.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FoundRows {
    /// Keys and values as the metadata store has them (`docs/formats.md`).
    pub rows: Rows,
    /// There are no more after these (for a slice of a directory).
    pub exhausted: bool,
}

/// What others did to an inode or a name since the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Foreign {
    /// Nothing.
    Same = 0,
    /// It is there, and changed or new.
    Changed = 1,
    /// It is gone.
    Removed = 2,
}

/// What became of events.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Merged {
    /// How far merging is now: where the next call goes on.
    pub state: MergeState,
    /// The server's position of the last event that they became: they are durable when it is.
    pub position: Position,
    /// Events that changed nothing.
    pub skipped: u64,
    /// Events that a limit, or the border of the realm, forbade: each with the reason.
    pub lost: Vec<(u64, String)>,
    /// What contradicted what others did.
    pub conflicts: Vec<Conflict>,
    /// The policy forbids conflicts, and there is one: nothing was merged from there on.
    pub stopped: bool,
}

/// A decoupling, for those who ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealmInfo {
    /// Its number and latest client.
    pub claim: Claim,
    /// The root directory.
    pub root: Ino,
    /// Where it is.
    pub path: Vec<u8>,
    /// The name, if it is a branch.
    pub branch: Option<Name>,
    /// Who has it: the identity of the session.
    pub owner: String,
    /// That session is there now.
    pub is_attached: bool,
    /// It is the asking session itself.
    pub is_own: bool,
    /// Where the journal is.
    pub journal_at: String,
    /// The policy, as YAML.
    pub policy: Vec<u8>,
    /// Since when.
    pub since: Time,
    /// The server's state that it started from.
    pub base: Position,
    /// How far merging is.
    pub state: MergeState,
    /// Inode numbers reserved for it, and how many of them are merged.
    pub reserved: u64,
    /// Numbers of merged inodes.
    pub used: u64,
    /// It is being merged: others of the directory wait.
    pub is_merging: bool,
}
