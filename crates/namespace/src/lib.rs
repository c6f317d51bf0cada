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
//! - `plan` never changes the state; `apply` never refuses. What is not in memory comes back as
//!   [`Fault::Missing`]; whoever holds the metadata store fetches it, installs it and asks again.
//! - Only clean rows leave memory.

pub mod chunk;
pub mod event;
pub mod extent;
pub mod merge;
pub mod permission;

mod apply;
mod checkpoint;
mod decoupling;
mod dir;
mod dirt;
mod fault;
mod images;
mod inode;
mod inodes;
mod namespace;
mod op;
mod paging;
mod plan;
mod query;
mod realm;
mod reverted;
mod row;
mod serving;
mod side;
mod stored;
mod validate;
mod values;

pub use apply::Misfit;
pub use decoupling::{Attached, DECOUPLING_TEXT_BYTES_MAX, Decoupling, Interference, MergedUpTo};
pub use dirt::CheckpointList;
pub use event::{Event, Over};
pub use extent::{CHUNK_BYTES, Extent};
pub use fault::{Fault, Need};
pub use namespace::{Context, Listing, Mapped, Namespace, Planned, RowChange};
pub use op::{
    AttrChange, Body, FILE_BYTES_MAX, Gone, Hold, INLINE_BYTES_MAX, LINKS_MAX, Make, Op, Outcome, RenameHow,
    SYMLINK_BYTES_MAX, SetTime, XATTR_NAME_BYTES_MAX, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrHow,
};
pub use paging::{CorruptRow, Fetched, OpenError, RowSource, Rows};
pub use plan::WARM_OPS;
pub use realm::{POLICY_BYTES_MAX, POLICY_HISTORY_MAX, PolicyChange};
pub use reverted::{OldContent, Reverted};
pub use stored::{StoredInode, StoredRow, entry_of_key, entry_row_key, inode_row_key};
pub use validate::Inconsistency;
