//! What callers ask: operations, which change something, and what `plan` answers.

use chiton_types::{Attr, Ino, Kind, Mode, Name, Time};

use crate::Extent;

/// Largest content that lives inside its inode. Larger content is in blocks.
pub const INLINE_BYTES_MAX: usize = 8 << 10;
/// Longest target of a symbolic link.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Longest name of an extended attribute.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Largest value of an extended attribute.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// All extended attributes of one inode together, names and values.
pub const XATTR_TOTAL_BYTES_MAX: usize = 128 << 10;
/// Largest file: 64 PiB less one byte.
pub const FILE_BYTES_MAX: u64 = (1 << 56) - 1;
/// Most names of one file.
pub const LINKS_MAX: u32 = 65_000;

/// What the writer of new content knows of the file.
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

/// An operation that changes the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new inode under a new name (open O_CREAT|O_EXCL, mkdir, symlink, mknod).
    Make {
        /// Directory.
        parent: Ino,
        /// Name in it.
        name: Name,
        /// What to make.
        make: Make,
        /// Permissions that the caller asks for, to which the umask of the credentials is applied where the directory has
        /// no default list.
        mode: Mode,
    },
    /// A new file without a name (open O_TMPFILE), which lives as long as it is open.
    MakeUnnamed {
        /// Directory: the file belongs to its realm, and is made as if in it.
        parent: Ino,
        /// Permissions, the umask already applied.
        mode: Mode,
    },
    /// A first name of a file that has none, and is open.
    LinkUnnamed {
        /// The file.
        ino: Ino,
        /// Directory of the name.
        parent: Ino,
        /// The name.
        name: Name,
    },
    /// A further name of a file.
    Link {
        /// The file (not a directory).
        ino: Ino,
        /// Directory of the new name.
        parent: Ino,
        /// The new name.
        name: Name,
    },
    /// Removes a name that is not a directory's.
    Unlink {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Name,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Directory that holds it.
        parent: Ino,
        /// Name.
        name: Name,
    },
    /// Moves a name.
    Rename {
        /// Directory of the old name.
        from: Ino,
        /// Old name.
        from_name: Name,
        /// Directory of the new name.
        to: Ino,
        /// New name.
        to_name: Name,
        /// What happens to what is there.
        how: RenameHow,
    },
    /// chmod, chown, truncate, utimens.
    SetAttr {
        /// Inode.
        ino: Ino,
        /// What to set.
        change: AttrChange,
    },
    /// New content of a file. Right to write was checked at open.
    Write {
        /// Regular file.
        ino: Ino,
        /// The content.
        body: Body,
        /// Size after it. For extents: at least the end of the last one that is not a hole.
        size: u64,
        /// Time of the (last) write.
        mtime: Time,
        /// Clear set-id bits as a write by one who is not root does.
        kill_setid: bool,
        /// What the writer knows of the file.
        hold: Hold,
    },
    /// Shares a range of one file's content with another file (copy_file_range, reflink): no byte is copied.
    /// Both files are in blocks, ranges within the source's size; the same file only without overlap.
    Clone {
        /// Source.
        from: Ino,
        /// First byte in the source.
        from_offset: u64,
        /// Destination.
        to: Ino,
        /// First byte in the destination.
        to_offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Replaces the mapping of one range by blocks with the same bytes (compaction); refused with `WouldBlock`
    /// if the file changed since `expected`.
    Remap {
        /// Regular file.
        ino: Ino,
        /// Position of the inode's last change when its content was read.
        expected: chiton_types::Position,
        /// The new extents.
        extents: Vec<Extent>,
    },
    /// Sets an extended attribute.
    SetXattr {
        /// Inode.
        ino: Ino,
        /// Full name (`user.x`).
        name: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// Must (not) exist before.
        how: XattrHow,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// Inode.
        ino: Ino,
        /// Full name.
        name: Vec<u8>,
    },
    /// Frees an orphan that nobody holds open any more, a limited number of chunks of its map at a time;
    /// asked by the server only, again and again until the outcome's `gone` says that it is no orphan any more.
    Reclaim {
        /// Inode without names.
        ino: Ino,
    },
}

/// What [`Op::Make`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Make {
    /// A regular file with its content, at most [`INLINE_BYTES_MAX`].
    File {
        /// The content.
        content: Vec<u8>,
    },
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink {
        /// 1 to [`SYMLINK_BYTES_MAX`] bytes, no NUL.
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

/// What a rename does with what bears the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RenameHow {
    /// Replaces it (POSIX).
    Replace = 0,
    /// Refuses (RENAME_NOREPLACE).
    NoReplace = 1,
    /// Gives it the old name (RENAME_EXCHANGE).
    Exchange = 2,
    /// Replaces it, and leaves a whiteout under the old name (RENAME_WHITEOUT): the character device 0/0, by which overlayfs
    /// hides a name of the layer below.
    Whiteout = 3,
    /// Refuses, or moves and leaves a whiteout.
    NoReplaceWhiteout = 4,
}

impl RenameHow {
    /// From its number.
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

/// What a setxattr expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum XattrHow {
    /// Create or replace.
    Set = 0,
    /// XATTR_CREATE: refuse if it exists.
    Create = 1,
    /// XATTR_REPLACE: refuse if it does not.
    Replace = 2,
}

/// New content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The whole content (at most [`INLINE_BYTES_MAX`]), for a file that has no blocks. It may be shorter than the
    /// file's size: what is missing reads as zeros.
    Inline(Vec<u8>),
    /// Ranges that change, in ascending order, without overlap; holes punch. A file that was inline so far
    /// loses that content: the extents must cover what is to stay. A block may be named by several extents of
    /// one operation, but by no other operation. The size never shrinks (truncate first).
    Extents(Vec<Extent>),
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock (UTIME_NOW): needs the right to write only.
    Now,
    /// A given time: needs ownership.
    At(Time),
}

/// What [`Op::SetAttr`] changes; `None` leaves it.
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

/// What became of an operation that was carried out.
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
    /// When it was carried out, as far as is known, else 0. Not always `attr.ctime`: a file's writer says when it wrote, and
    /// that may be later than what follows by the server's clock.
    pub time: Time,
}

/// An inode that lost its last name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Which.
    pub ino: Ino,
    /// Still there, because open or because its content must be freed in steps.
    pub orphan: bool,
}
