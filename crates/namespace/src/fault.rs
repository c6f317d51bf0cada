//! Why a plan or a query gave no answer.

use chiton_types::{BlockId, Ino, Name, Refusal};

/// A row, or a range of rows, that must be in memory before the question can be answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Inode(Ino),
    /// One entry of a directory too large to be loaded whole.
    Entry(Ino, Name),
    /// All entries of a directory.
    Dir(Ino),
    /// At least the next `rows` entries of a large directory after a cookie.
    Slice {
        dir: Ino,
        /// Hash after which they begin.
        after: u64,
        rows: u32,
    },
    /// Inline content, or the target of a symbolic link.
    Content(Ino),
    /// One chunk of a file's map.
    Chunk(Ino, u32),
    /// All chunks of a file's map.
    Chunks(Ino),
    Xattrs(Ino),
    /// References of a shared block.
    Block(BlockId),
}

impl Need {
    /// The same of another inode.
    pub(crate) fn translated(&self, to: impl Fn(Ino) -> Ino) -> Need {
        match self {
            Need::Inode(ino) => Need::Inode(to(*ino)),
            Need::Entry(dir, name) => Need::Entry(to(*dir), name.clone()),
            Need::Dir(dir) => Need::Dir(to(*dir)),
            Need::Slice { dir, after, rows } => Need::Slice { dir: to(*dir), after: *after, rows: *rows },
            Need::Content(ino) => Need::Content(to(*ino)),
            Need::Chunk(ino, n) => Need::Chunk(to(*ino), *n),
            Need::Chunks(ino) => Need::Chunks(to(*ino)),
            Need::Xattrs(ino) => Need::Xattrs(to(*ino)),
            Need::Block(block) => Need::Block(*block),
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The state, permissions or limits forbid it.
    Refused(Refusal),
    /// Fetch these rows, install them, ask again.
    Missing(Vec<Need>),
    /// Another plate owns this inode.
    Elsewhere(Ino),
    /// Another plate must say to which realm this directory of its belongs.
    Realm(Ino),
    /// The decision depends on supplementary groups or capabilities of the caller: ask again with them.
    NeedGroups,
}

impl From<Refusal> for Fault {
    fn from(r: Refusal) -> Fault {
        Fault::Refused(r)
    }
}

impl From<Need> for Fault {
    fn from(n: Need) -> Fault {
        Fault::Missing(vec![n])
    }
}
