//! How an operation may be carried out: words of the columns in the table of operations.

/// An operation that needs rows of several plates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcrossPlates {
    /// Its plate guards the rows of the others while it decides.
    Guarded,
    /// Likewise, if its inode is a directory with parts, or if it sets a policy. Otherwise it never needs rows of other plates.
    OfParts,
    /// It is refused, as across mounts.
    Refused,
    /// It never needs any. If it seems to, its client knows the rows of the past.
    Never,
}

/// An operation that a caller puts into a batch, past the buffers of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batched {
    /// It concerns nothing that is buffered.
    AtOnce,
    /// The client pushes the buffered content of its inodes first.
    Pushed,
    /// It may not be part of a batch, and is refused.
    Never,
}
