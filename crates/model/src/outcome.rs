//! Outcomes of operations.

use chiton_types::{Attr, Ino, Time};

/// The outcome of an operation that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The inode that the operation was about (made, linked, renamed, changed, unlinked): its attributes
    /// afterwards; `None` if it is gone.
    pub attr: Option<Attr>,
    /// Inode that lost its last name or place by this operation (unlink, rmdir, rename over), and whether it
    /// lives on as an orphan until it is closed.
    pub gone: Option<Gone>,
    /// Another inode whose attributes the operation changed: a rename replaced one of its names, or exchanged it.
    pub other: Option<Ino>,
    /// When it was carried out, as far as is known, else 0. Not always `attr.ctime`: a file's
    /// writer says when it wrote, and that may be later than later events by the server's clock.
    pub time: Time,
}

/// An inode that lost its last name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    pub ino: Ino,
    /// Still there, because open or because its content must be freed in steps.
    pub orphan: bool,
}
