//! The changes that operations ask for.

use chiton_types::{Kind, Mode, Time};

use crate::extent::Extent;

/// How much the writer of new content knows of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Nothing: others may have changed it meanwhile.
    #[default]
    None,
    /// All: it has held the file exclusively since it looked at it. If others hold it by now, the write is refused.
    Exclusive,
    /// It holds the file shared, and has these bytes from a mapping. Others that hold it shared give it up first, but are not
    /// waited for while the writer itself is asked to: each may wait for the other's write.
    Shared,
    /// As `Exclusive`, and the bytes from this offset on were appended there, at the end of the file: they go to where its end
    /// is when the operation is carried out. (Another client's append before them may have been lost in a crash.)
    Appended(u64),
}

/// The inode that [`crate::Op::Make`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Make {
    /// A regular file with its content, at most [`crate::INLINE_BYTES_MAX`].
    File {
        content: Vec<u8>,
    },
    Dir,
    Symlink {
        /// 1 to [`crate::SYMLINK_BYTES_MAX`] bytes, no NUL.
        target: Vec<u8>,
    },
    /// A fifo, socket or device.
    Node {
        /// Its type: not a file, directory or symbolic link.
        kind: Kind,
        /// Device number, 0 unless a device.
        rdev: u32,
    },
}

/// How a rename treats the inode that bears the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RenameHow {
    /// The target is replaced, as POSIX demands.
    Replace = 0,
    /// The rename is refused if the target exists (RENAME_NOREPLACE).
    NoReplace = 1,
    /// Source and target exchange their names (RENAME_EXCHANGE).
    Exchange = 2,
    /// Replaces it, and leaves a whiteout under the old name (RENAME_WHITEOUT): the character device 0/0, by which overlayfs
    /// hides a name of the layer below.
    Whiteout = 3,
    /// Refuses, or moves and leaves a whiteout.
    NoReplaceWhiteout = 4,
}

impl RenameHow {
    pub fn from_u8(number: u8) -> Option<RenameHow> {
        Some(match number {
            0 => RenameHow::Replace,
            1 => RenameHow::NoReplace,
            2 => RenameHow::Exchange,
            3 => RenameHow::Whiteout,
            4 => RenameHow::NoReplaceWhiteout,
            _ => return None,
        })
    }

    /// Nothing that bears the new name is replaced.
    pub fn refuses(self) -> bool {
        matches!(self, RenameHow::NoReplace | RenameHow::NoReplaceWhiteout)
    }

    /// A whiteout gets the old name.
    pub fn leaves_whiteout(self) -> bool {
        matches!(self, RenameHow::Whiteout | RenameHow::NoReplaceWhiteout)
    }
}

/// The attribute that a setxattr expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum XattrHow {
    /// The attribute is created, or its value replaced.
    Set = 0,
    /// XATTR_CREATE: refuse if it exists.
    Create = 1,
    /// XATTR_REPLACE: refuse if it does not.
    Replace = 2,
}

/// New content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The whole content (at most [`crate::INLINE_BYTES_MAX`]), for a file that has
    /// no blocks. It may be shorter than the file's size: the rest reads as zeros.
    Inline(Vec<u8>),
    /// Ranges that change, in ascending order, without overlap; holes punch. A file that was inline so far
    /// loses that content: the extents must cover what is to stay. A block may be named by several extents of
    /// one operation, but by no other operation. The size never shrinks (truncate first).
    Extents(Vec<Extent>),
}

/// A value for atime or mtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock (UTIME_NOW): needs the right to write only.
    Now,
    /// A given time: needs ownership.
    At(Time),
}

/// The changes of [`crate::Op::SetAttr`]; `None` leaves the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AttrChange {
    /// chmod.
    pub mode: Option<Mode>,
    /// chown.
    pub uid: Option<u32>,
    /// chgrp.
    pub gid: Option<u32>,
    /// truncate.
    pub size: Option<u64>,
    /// Truncation through a descriptor: the right to write was checked at open.
    pub size_by_handle: bool,
    /// utimens.
    pub atime: Option<SetTime>,
    /// utimens.
    pub mtime: Option<SetTime>,
    /// Clear set-id bits (a truncate by one who is not root).
    pub kill_setid: bool,
}
