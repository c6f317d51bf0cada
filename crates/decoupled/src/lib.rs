//! Decoupled subtrees: a client takes a directory for itself, works there alone, and gives back what it did.
//!
//! ```text
//!   Realms ─ decouple ─▶ Realm ─┬─ client(): everything a client can do, at the speed of this process
//!     ▲                         ├─ sync(): what there is so far goes to the server, work goes on
//!     └── recover ◀─ crash ─────┴─ merge() | discard(): the end
//! ```
//!
//! A directory may have several **branches**: decouplings side by side that keep nobody out, each with a name and a
//! client of its own ([`Realms::create_branch`]).
//!
//! A program that wants to say by itself when it works alone and when everybody sees what it does holds a [`Subtree`].
//! Journals that nobody has merged can be looked at together ([`Composition`]).
//!
//! A [`Realm`] is a server engine in this process over the rows of the subtree, which are fetched when they are needed
//! ([`chiton_server::RealmStart`]). Its journal is the client's journal: in memory, on the local disk or in the object
//! store, as the policy's durability says. A merge reads it back, piece by piece.
//!
//! Invariants:
//! - What a merge sends was durable at the policy's level before, so that what the server has is never ahead of what
//!   this client would have after a crash.
//! - The journal is trimmed only past what the server has merged and made durable.
//! - The same piece of the journal is sent as the same events each time, by whomever.

mod branches;
mod realm;
mod realms;
mod subtree;

mod compose;
mod composed;
mod provenance;
mod unmerged;

mod base;
mod calls;
mod durable_mark;
mod obstacle;
mod remote;
mod state_dir;
mod text_merge;

mod auto_merge;
mod batches;
mod both_removed;
mod conflict_check;
mod copied;
mod diff;
mod filter;
mod merge;
mod merge_lock;
mod rebase;
mod resolve;
mod temporary_names;

mod error;
#[cfg(test)]
mod event_samples;
mod options;
mod quoted;
mod report;
mod stages;

pub use branches::{BRANCH_POLICY, Branch};
pub use compose::Composition;
pub use composed::{Composed, Contradiction, Node, Step, Written};
pub use error::{RealmError, SubtreeError};
pub use options::{Journals, RealmsOptions, default_state_dir};
pub use quoted::{if_no_text, quoted};
pub use realm::{Inside, Realm};
pub use realms::Realms;
pub use remote::durable_in_store;
pub use report::{
    Change, ChangeKind, ConflictLine, Diff, MergeProgress, MergeReport, RealmStatus, SideVersion,
};
pub use resolve::{Choice, OpenConflict};
pub use stages::Stage;
pub use state_dir::{LocalRealm, User};
pub use subtree::{Subtree, SubtreeFile, Working};
pub use unmerged::{
    JournalAt, Unmerged, decoupling_at, decouplings, durable_upto, journal_at, journal_on_disk, user_at,
};
