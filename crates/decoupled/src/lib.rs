//! Decoupled subtrees: a client takes a directory for itself, works there alone, and merges its changes.
//!
//! ```text
//!   Realms ─ decouple ─▶ Realm ─┬─ client(): everything a client can do, at the speed of this process
//!     ▲                         ├─ sync(): merges the changes so far, work continues
//!     └── recover ◀─ crash ─────┴─ merge() | discard(): the end
//! ```
//!
//! A directory may have several **branches**: decouplings side by side that exclude no client, each with a name and
//! a client of its own ([`Realms::create_branch`]).
//!
//! A program that itself chooses when it works alone and when all clients see its changes holds a [`Subtree`]. A
//! [`Composition`] shows several unmerged journals together.
//!
//! A [`Realm`] is a server engine in this process. It fetches the rows of the subtree on demand
//! ([`chiton_server::DecoupledSubtree`]). Its journal is the client's journal: in memory, on the local disk or in the
//! object store, depending on the policy's durability. A merge reads the journal back in merge batches.
//!
//! # Getting started
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use chiton_client::{Client, ClientOptions};
//! use chiton_decoupled::{Realms, RealmsOptions, Subtree, default_state_dir};
//!
//! let fs = Arc::new(Client::connect(&"unix:/srv/chiton/socket".parse()?, ClientOptions::default())?);
//! let state_dir = default_state_dir().ok_or("no state directory")?;
//! let options = RealmsOptions { state_dir, client: ClientOptions::default(), accept_truncated: false };
//! let realms = Realms::new(fs.clone(), options);
//!
//! let policy = b"consistency: weak\ndurability: local\n";
//! let job = Subtree::begin(&realms, "/results", Some(policy))?;
//! job.client().create_file("/part-0", b"result")?; // without a message to the server
//! job.sync_mode(true)?; // merged: all clients see /results/part-0
//! job.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//! - A merge sends only events that are durable at the policy's level. So the server never has changes that this
//!   client would lack after a crash.
//! - The journal is trimmed only up to the position that the server has merged and made durable.
//! - A merge batch has the same events each time, whichever process sends it.
//!
//! # Layout
//!
//! - [`Subtree`]: the two modes, for programs. [`Realms`]: all decouplings of a client. [`Realm`]: one of them.
//! - [`Branch`]: branches. [`Composition`]: views of unmerged journals.
//! - `merge`, `batches`, `merge_lock`, `auto_merge`: merging. `diff`, `conflict_check`, `text_merge`, `resolve`:
//!   comparing with other clients' changes before it. `rehearsal`: a merge that only reports.
//! - `state_dir`, `durable_mark`, `remote`: a decoupling on this machine, and in the object store.
//! - `calls`, `base`: the server, as this crate calls it.

#![warn(missing_docs)]

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
mod diff3;
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
mod rehearsal;
mod resolve;
mod take_theirs;
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
pub use composed::{Composed, JournalConflict, Node, Step, Written};
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
pub use state_dir::{LeftRealm, LocalRealm, User};
pub use subtree::{Subtree, SubtreeFile, Working};
pub use unmerged::{
    JournalAt, Unmerged, decoupling_at, decouplings, durable_upto, journal_at, journal_on_disk, user_at,
};
