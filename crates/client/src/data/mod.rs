//! File data: `read` and `write`, between the kernel and the object store.
//!
//! ```text
//!   write ─▶ DirtyBuffer ──(a block is full, or push)──▶ Upload ─▶ BlockIo ─▶ object store
//!                                                          │ done
//!                                  push: one Op::Write ◀── pending extents
//!
//!   read  ◀── DirtyBuffer ◀ pending ◀ sending ◀ Content (inline bytes, or extents by chunk)   upper hides lower
//!                                                  └─▶ ReadCache, BlockIo
//! ```
//!
//! Invariants:
//! - One [`FileState`](file::FileState) per inode however many handles; its lock is never held while the service or
//!   the object store is asked, so a recall of the same inode can always be answered.
//! - In the mode `linearizable`, data are dirty only under an exclusive lease, and content is believed only under a
//!   lease that has not run out.
//! - An operation names a block only after the block is stored.
//! - Memory is bounded: dirty bytes by a budget that makes writers wait, cached blocks by another, remembered idle
//!   files by a number. Threads: two upload, two read ahead, one pushes; they start when first needed.

mod block_io;
mod budget;
mod buffer;
mod cache;
mod content;
mod copy;
mod extent_map;
mod file;
mod files;
mod flusher;
mod lease;
mod loss;
mod near_blocks;
mod options;
mod pool;
mod push;
mod read;
mod seek;
mod shape;
mod table;
mod upload;
mod write;

pub use block_io::{BlockError, BlockIo, DirectBlocks, ServerBlocks};
pub(crate) use file::WriteNumber;
pub use files::Files;
pub use loss::OnLoss;
pub use near_blocks::NearBlocks;
pub use options::{DataMode, FilesOptions};
pub use seek::Whence;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests wait for real threads")]
mod tests;
