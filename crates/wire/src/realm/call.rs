//! Calls about decoupled realms: rare, so written with varints where that is shorter.

use chiton_model::field::{Fixed, Max, Upto};
use chiton_model::merge::{OnConflict, Settled};
use chiton_model::{choice, choice_code, record};
use chiton_namespace::Need;
use chiton_types::{BlockId, Ino, Name, Position, RealmId, ShardId};

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
/// Longest key of a row.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Longest text of a policy, and of the place of a journal.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

pub(super) type ShortText = Max<String, TEXT_BYTES_MAX>;
pub(super) type PolicyText = Max<u8, TEXT_BYTES_MAX>;
/// How many events a call has.
type EventCount = Upto<MERGE_EVENTS_MAX>;

record! {
    /// Shows that a client acts for a decoupling.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Claim "claim" {
        pub realm: RealmId as Fixed,
        /// Which of its clients, from 1: only the latest is heard.
        pub generation: u32 as Fixed,
    }
}

choice! {
    /// A call about decoupled realms.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum RealmCall "call about realms" {
        /// The client takes a subtree for itself. Answered [`super::RealmAnswer::Granted`] when other sessions have returned their leases
        /// there and the grant is durable.
        0 Decouple {
            root: Ino,
            /// A branch of this name, of which a directory may have several; else the directory's only decoupling.
            branch: Option<Name>,
            /// Drawn by the client: asked again with the same one, the answer is the same.
            nonce: u64 as Fixed,
            /// Where the journal will be, for administrators and for the next mount (host, directory).
            journal_at: String as ShortText,
            /// The policy as YAML; empty: the one that holds for the directory.
            policy: Vec<u8> as PolicyText,
        }
        /// Another client resumes a decoupling: answered [`super::RealmAnswer::Granted`] with a new generation.
        1 Attach {
            realm: RealmId as Fixed,
            /// Chosen by the client, as in `Decouple`: a repeated request has the same.
            nonce: u64 as Fixed,
            /// Location of the journal from now on, for people.
            journal_at: String as ShortText,
        }
        /// More inode numbers: [`super::RealmAnswer::Ranges`]. Durable when answered.
        2 Grant {
            claim: Claim,
            /// The shard that the inode numbers are to belong to.
            shard: ShardId,
            count: u64,
        }
        /// Rows of the subtree as it was at the base: [`super::RealmAnswer::Rows`].
        3 Rows {
            claim: Claim,
            needs: Vec<Need> as Max<NeedCode, NEEDS_MAX>,
        }
        /// Rows of the subtree as they are now: [`super::RealmAnswer::Rows`]. A client rehearses a merge with them.
        15 Present {
            claim: Claim,
            needs: Vec<Need> as Max<NeedCode, NEEDS_MAX>,
        }
        /// The rows with which the rehearsal of a merge begins: the decoupling itself, the policies at which the subtree ends, and the rows
        /// that others changed, as they were. [`super::RealmAnswer::Rows`] with one part of them, and whether it is the last.
        16 Remembered {
            claim: Claim,
            /// Those after this key.
            after: Vec<u8> as Max<u8, KEY_BYTES_MAX>,
        }
        /// Which of these did others change since the base: [`super::RealmAnswer::Foreign`]. For `diff` and `on_conflict: abort`.
        4 Check {
            claim: Claim,
            inodes: Vec<Ino> as Max<Ino, NEEDS_MAX>,
            names: Vec<(Ino, Name)> as Max<(Ino, Name), NEEDS_MAX>,
        }
        /// Events for the global namespace: [`super::RealmAnswer::Merged`].
        5 Merge {
            claim: Claim,
            /// The piece of the decoupled journal that they are from.
            batch: MergeBatch,
            /// Number of the first event here among those of the batch, from 0.
            from: u64,
            count: u32 as EventCount,
            /// The events, encoded one after another.
            events: Vec<u8>,
            /// These are the batch's last.
            last: bool,
            /// Apply without asking what others did: only hostile or impossible events are refused.
            blind: bool,
        }
        /// How conflicts are treated from now on, instead of as the policy says: [`super::RealmAnswer::Merged`] with how far
        /// merging is.
        10 Resolve {
            claim: Claim,
            /// How they are treated.
            on_conflict: OnConflict,
        }
        /// Takes or frees the merge lock of the directory: [`super::RealmAnswer::Merged`] with how far merging is, or
        /// [`chiton_types::Refusal::Busy`] while another decoupling has the lock.
        14 MergeLock {
            claim: Claim,
            /// Takes the lock; else frees it.
            acquire: bool,
        }
        /// The client looked at files of others, and has the result in its own, durably: a merge that meets
        /// one as it was then lets ours prevail: [`super::RealmAnswer::Merged`] with how far merging is.
        13 Settle {
            claim: Claim,
            /// Files of others, the position of the last change of each, and its outcome; at most [`NEEDS_MAX`].
            files: Vec<(Ino, Position, Settled)> as Max<(Ino, Position, Settled), NEEDS_MAX>,
        }
        /// The decoupling ends: [`super::RealmAnswer::Ended`]. Changes that are not merged are dropped.
        6 End {
            /// Whose; by `force` the generation does not matter.
            claim: Claim,
            /// An administrator ends what another client has.
            force: bool,
        }
        /// A decoupling becomes a branch of its directory: nobody is kept out of the directory any more, the client that has the
        /// decoupling is refused from now on ([`chiton_types::Refusal::Stale`]), and its journal waits for the next client:
        /// [`super::RealmAnswer::Ended`]. Of one that ends with its client nothing stays.
        12 BecomeBranch {
            realm: RealmId as Fixed,
            /// The branch's name; none: the server chooses one.
            name: Option<Name>,
        }
        /// Which policy, and which decoupling, an inode is under: [`super::RealmAnswer::Of`].
        7 Of {
            ino: Ino,
        }
        /// The decoupling that keeps others out of where an inode is: [`super::RealmAnswer::BlockedBy`]. Asked after
        /// [`chiton_types::Refusal::Busy`], so that it need not be asked for each refusal.
        11 BlockedBy {
            ino: Ino,
            /// A name in it, which may stand for the directory that is kept from others.
            name: Option<Name>,
        }
        /// All decouplings: [`super::RealmAnswer::Realms`].
        8 List
        /// An object that the decoupled client keeps in the server's store: [`super::RealmAnswer::Object`].
        9 Object {
            claim: Claim,
            /// Its name among those of the decoupling; for a list, the beginning of the names.
            name: String as ShortText,
            action: ObjectCall,
        }
    }
}

choice! {
    /// An action on an object of a decoupled client. Each may be asked again: of a put that says "another is there", the
    /// bytes show whether it is the client's own.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum ObjectCall "action" {
        /// Stores it, durably, if there is none of this name: [`super::ObjectAnswer::Put`].
        0 PutIfAbsent {
            bytes: Vec<u8> as Max<u8, REALM_OBJECT_BYTES_MAX>,
        }
        /// Its first bytes: [`super::ObjectAnswer::Bytes`].
        1 Get {
            /// At most so many.
            bytes_max: u64 as Fixed,
        }
        /// Removes it: [`super::ObjectAnswer::Deleted`].
        2 Delete
        /// Names with sizes, in order: [`super::ObjectAnswer::Names`].
        3 List {
            /// Those after this one.
            after: String as ShortText,
        }
    }
}

record! {
    /// A piece of a decoupled journal, squashed as one: events of positions past `after` up to `upto`. The same piece must
    /// give the same events each time it is sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MergeBatch "batch" {
        /// Everything up to here was merged before.
        pub after: Position,
        /// Journal position of the last event of the batch.
        pub upto: Position,
    }
}

/// How a row that a plan misses is encoded: `namespace` knows nothing of messages.
#[derive(Debug)]
pub struct NeedCode;

choice_code! { NeedCode => Need "need" {
    0 Inode(ino: Ino)
    1 Entry(dir: Ino, name: Name)
    2 Dir(dir: Ino)
    3 Slice { dir: Ino, after: u64 as Fixed, rows: u32 as Fixed }
    4 Content(ino: Ino)
    5 Chunk(ino: Ino, chunk: u32 as Fixed)
    6 Chunks(ino: Ino)
    7 Xattrs(ino: Ino)
    8 Block(block: BlockId)
} }
