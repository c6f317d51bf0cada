//! A whole namespace as text, for backup, migration and debugging; and back. `docs/formats.md`, "Dump", has the format.
//!
//! ```text
//!   dump: walk a tree through a client ──▶ lines ──▶ load: make the same tree through a client
//! ```
//!
//! Invariants:
//! - A dump contains everything that can be restored: the same tree gives the same text, whatever its inode
//!   numbers, blocks and history. Dump, load, dump is identical.
//! - Both stream: memory grows with the depth of the tree and the number of files with several names, not with the tree.
//! - Loading changes no existing file. A file gets its name when it is complete. A name that is taken is refused,
//!   or skipped if the load is resumed.
//! - The dump marks unreadable parts, and continues.

mod load;
mod text;
mod write;

pub use load::{LoadError, LoadOptions, Loaded, load};
pub use write::{DumpError, DumpOptions, Dumped, dump};

/// First line of a dump.
const HEAD: &str = "chiton-dump 1";
/// Pieces in which zeros are holes.
const PAGE_BYTES: usize = 4 << 10;
/// Most bytes of content in one line.
const LINE_BYTES: usize = 48 << 10;
