//! What may happen to a tree.

use chiton_model::RenameHow;
use chiton_types::{Ino, Name, Time};

use super::{Birth, List};

/// One change of the tree, as whoever asked for it understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new inode under a new name.
    Make {
        /// Directory.
        parent: Ino,
        /// Name in it.
        name: Name,
        /// The number that was answered, or [`unknown`].
        ino: Ino,
        /// What is made.
        what: What,
        /// Owner, permissions, lists.
        birth: Birth,
    },
    /// A new file without a name, which its maker has open.
    MakeUnnamed {
        /// Directory in which it is made.
        parent: Ino,
        /// The number that was answered, or [`unknown`].
        ino: Ino,
        /// Permissions.
        mode: u16,
    },
    /// The first name of such a file.
    LinkUnnamed {
        /// File.
        ino: Ino,
        /// Directory of the name.
        parent: Ino,
        /// Name.
        name: Name,
    },
    /// A further name.
    Link {
        /// File.
        ino: Ino,
        /// Directory of the new name.
        parent: Ino,
        /// New name.
        name: Name,
    },
    /// A name less.
    Unlink {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Name,
    },
    /// An empty directory less.
    Rmdir {
        /// Directory that holds it.
        parent: Ino,
        /// Name.
        name: Name,
    },
    /// A name moves.
    Rename {
        /// Old directory.
        from: Ino,
        /// Old name.
        from_name: Name,
        /// New directory.
        to: Ino,
        /// New name.
        to_name: Name,
        /// What happens to what bears the new name.
        how: RenameHow,
        /// The number of the whiteout, if one is left: as it was found, or [`unknown`].
        whiteout: Ino,
        /// Its owner and group.
        owner: (u32, u32),
    },
    /// Ranges of a file get new bytes; it is `size` long afterwards, at least.
    Write {
        /// File.
        ino: Ino,
        /// Offsets and bytes.
        pieces: Vec<(u64, Vec<u8>)>,
        /// Least size afterwards.
        size: u64,
    },
    /// A range reads as zeros, as far as the file goes.
    Punch {
        /// File.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Bytes of one file become bytes of another (or elsewhere in the same).
    Copy {
        /// Source.
        from: Ino,
        /// First byte in it.
        from_offset: u64,
        /// Destination.
        to: Ino,
        /// First byte in it.
        to_offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A new size.
    Truncate {
        /// File.
        ino: Ino,
        /// Size.
        size: u64,
    },
    /// Mode, owner, times.
    Set {
        /// Inode.
        ino: Ino,
        /// Permissions.
        mode: Option<u16>,
        /// Owner.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
        /// Last access.
        atime: Option<Time>,
        /// Last change of content.
        mtime: Option<Time>,
    },
    /// An extended attribute gets a value, or is removed.
    Xattr {
        /// Inode.
        ino: Ino,
        /// Full name.
        name: String,
        /// Value; `None` removes.
        value: Option<Vec<u8>>,
    },
    /// An access control list is set or removed. The entries of an access list for owner, mask and others are in the mode, too.
    List {
        /// Inode.
        ino: Ino,
        /// The default list of a directory, not the access list.
        default: bool,
        /// The list; `None` removes.
        list: Option<List>,
    },
    /// Somebody holds the inode open, once more.
    Open {
        /// Inode.
        ino: Ino,
    },
    /// Somebody holds it open once less.
    Close {
        /// Inode.
        ino: Ino,
    },
}

/// What [`Change::Make`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A file with its content.
    File(Vec<u8>),
    /// A directory.
    Dir,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// The character device 0/0.
    Whiteout,
}

/// The time of a change whose asker was not told it. Compared trees may have any there.
pub const TIME_UNKNOWN: Time = Time(i64::MAX);

/// The number of an inode that was made without its maker being told which it is. Compared trees may have any there.
pub fn unknown(n: u64) -> Ino {
    Ino(u64::MAX - n)
}

/// True for what [`unknown`] gives.
pub fn is_unknown(ino: Ino) -> bool {
    ino.0 > u64::MAX - (1 << 32)
}
