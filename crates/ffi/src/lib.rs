//! Chiton for programs in C, and in every language that can call C: the client and the decoupled subtrees, as
//! about fifty functions. The promises of each stand in `include/chiton.h`, which is written by hand.
//!
//! ```text
//!   chiton.h ─▶ open, files, batches, trees, jobs ─▶ border ─▶ Chiton ─┬─ Client
//!                                      │               └─ Subtree
//!                                      └─▶ last: errno and a sentence, by thread
//! ```
//!
//! Two features, both on by default, bring a server into the library: `embedded` (`chiton_open`, `chiton_format`) and
//! `decoupled` (`chiton_decouple`). Without them the library is a client of a server elsewhere, and links no store.
//!
//! Invariants:
//! - No panic crosses the border: it becomes EIO, with a sentence that says so.
//! - One place decides what pointers mean ([`border`]): it refuses null where something must be there, and text that is not UTF-8,
//!   but for paths, which are bytes.
//! - The header is the same whatever the library was built with: a call of a feature that is off fails with EOPNOTSUPP.
//! - Results are copied into the caller's memory: the caller gives back nothing but handles.

#![warn(missing_docs)]

mod batches;
mod files;
mod jobs;
mod open;
mod searches;
mod tree_jobs;
mod trees;

mod border;
#[cfg_attr(not(feature = "decoupled"), path = "decoupling_absent.rs")]
mod decoupling;
mod handle;
mod last;
#[cfg_attr(not(feature = "embedded"), path = "server_absent.rs")]
mod server;

pub use batches::{
    BatchResult, Change, FileToBeOpened, Link, NameIn, chiton_closev, chiton_linkv, chiton_lookupv,
    chiton_openv, chiton_pread, chiton_pwrite, chiton_setattrv, chiton_statv, chiton_unlinkv,
};
pub use files::{
    Attr, EntryFn, chiton_flush, chiton_list, chiton_mkdir, chiton_read, chiton_remove, chiton_rename,
    chiton_stat, chiton_write,
};
pub use handle::Chiton;
pub use jobs::{
    chiton_decouple, chiton_discard, chiton_is_synchronous, chiton_merge, chiton_sync, chiton_sync_mode,
};
pub use last::{chiton_errno, chiton_error};
pub use open::{chiton_close, chiton_connect, chiton_format, chiton_open};
pub use searches::{FindConditions, FoundFn, chiton_find, chiton_start_find, chiton_wait_find};
pub use tree_jobs::{
    TreeJob, chiton_cancel_tree_job, chiton_start_chmod_tree, chiton_start_chown_tree,
    chiton_start_copy_tree, chiton_start_remove_tree, chiton_start_usage, chiton_tree_job,
    chiton_wait_tree_job,
};
pub use trees::{
    TreeFn, Usage, chiton_chmod_tree, chiton_chown_tree, chiton_copy_tree, chiton_remove_tree, chiton_usage,
};
