//! The namespace: the state that events build, and the two functions around it.
//!
//! ```text
//!   Op ── plan (may refuse) ──▶ Event ── apply (never refuses) ──▶ Namespace ── checkpoint ──▶ rows
//!                                                                     ▲
//!                                                  install ◀── fetch ─┘ Missing(needs)
//! ```
//!
//! Invariants:
//! - Pure: no clock, no socket, no random number, no lock, no thread.
//! - `plan` never changes the state; `apply` never refuses. Rows that are not in memory come back
//!   as [`Fault::Missing`]; the caller fetches them from the metadata store, installs them and asks again.
//! - Only clean rows leave memory.
//!
//! # Layout
//!
//! - [`Namespace`] (`namespace`): the state. `inodes`, `inode`, `node`, `dir`, [`chunk`], `tables`, `values`: its tables.
//! - `plan`: operations become events; [`permission`]: which caller may do what. `apply`: events become state.
//! - `query`: questions. `realm`: which policy holds where. `parts`: directories over several plates.
//! - `paging`: rows come and go. `dirty`, `checkpoint`: rows to be written. `row`, `stored`: their keys and values. `fault`: missing rows.
//! - `decoupling`, `before_images`, `serving`: subtrees that clients have decoupled, and the rows that these see.
//! - `validate`: is the state consistent.

pub mod chunk;
pub mod permission;

mod apply;
mod before_images;
mod checkpoint;
mod decoupling;
mod dir;
mod dirty;
mod fault;
mod inode;
mod inodes;
mod name_filters;
mod namespace;
mod node;
mod paging;
mod parts;
mod plan;
mod query;
mod realm;
mod row;
mod serving;
mod stored;
mod tables;
mod validate;
mod values;

pub use apply::Misfit;
pub use before_images::{KnownFile, image_tag};
pub use dir::Slot;
pub use dirty::CheckpointList;
pub use fault::{Fault, Need};
pub use inode::Inode;
pub use namespace::{Known, Listing, Mapped, Namespace, RowChange};
pub use node::{Node, Share};
pub use paging::{CorruptRow, Fetched, OpenError, RowSource, Rows};
pub use plan::{
    ContentIn, Context, Entries, InodeFacts, PlanState, Planned, WARM_OPS, end_folded, fold, plan, split,
    with_parts,
};
pub use realm::{PolicyPlace, path_of};
pub use row::{
    INODE_KEY_BYTES, ino_of, inode_row, plate_row_key, rest_of_plate_row, row_key, rows_with_tag, shard_of,
    start_rows, tag, tag_of,
};
pub use stored::{StoredInode, StoredRow, entry_of_key, entry_row_key};
pub use validate::Inconsistency;
pub use values::Xattrs;
