//! The changes of a tree.

use chiton_model::RenameHow;
use chiton_types::{Ino, Name, Time};

use super::{Birth, List};

/// One change, as its caller understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new inode under a new name.
    Make {
        parent: Ino,
        name: Name,
        /// The number that was answered, or [`unknown`].
        ino: Ino,
        what: NewInode,
        birth: Birth,
    },
    /// A new file without a name, which its maker has open.
    MakeUnnamed {
        /// Directory in which it is made.
        parent: Ino,
        /// The number that was answered, or [`unknown`].
        ino: Ino,
        mode: u16,
    },
    /// The first name of an unnamed file.
    LinkUnnamed {
        ino: Ino,
        /// Directory of the name.
        parent: Ino,
        name: Name,
    },
    Link {
        ino: Ino,
        /// Directory of the new name.
        parent: Ino,
        name: Name,
    },
    Unlink {
        parent: Ino,
        name: Name,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Directory that holds it.
        parent: Ino,
        name: Name,
    },
    /// Removes a directory with everything in it.
    RemoveTree {
        /// Directory that holds it.
        parent: Ino,
        name: Name,
    },
    Rename {
        from: Ino,
        from_name: Name,
        to: Ino,
        to_name: Name,
        /// The treatment of an existing file with the new name.
        how: RenameHow,
        /// The number of the whiteout, if one is left: as it was found, or [`unknown`].
        whiteout: Ino,
        owner: (u32, u32),
    },
    /// Ranges of a file get new bytes; it is `size` long afterwards, at least.
    Write {
        ino: Ino,
        /// Pieces of content, each with its offset.
        pieces: Vec<(u64, Vec<u8>)>,
        size: u64,
    },
    /// A range reads as zeros, as far as the file goes.
    Punch {
        ino: Ino,
        offset: u64,
        len: u64,
    },
    /// Bytes of one file become bytes of another (or elsewhere in the same).
    Copy {
        from: Ino,
        /// First byte in it.
        from_offset: u64,
        to: Ino,
        /// First byte in it.
        to_offset: u64,
        len: u64,
    },
    Truncate {
        ino: Ino,
        size: u64,
    },
    Set {
        ino: Ino,
        mode: Option<u16>,
        uid: Option<u32>,
        gid: Option<u32>,
        atime: Option<Time>,
        /// Last change of content.
        mtime: Option<Time>,
    },
    /// An extended attribute gets a value, or is removed.
    Xattr {
        ino: Ino,
        name: String,
        /// The new value; `None` removes the attribute.
        value: Option<Vec<u8>>,
    },
    /// Sets or removes an access control list. The entries of an access list for owner, mask and others are also in
    /// the mode.
    List {
        ino: Ino,
        /// The default list of a directory, not the access list.
        default: bool,
        /// The list; `None` removes.
        list: Option<List>,
    },
    /// A client opens the inode once more.
    Open {
        ino: Ino,
    },
    /// A client closes the inode once.
    Close {
        ino: Ino,
    },
}

impl Change {
    /// The inode whose plate decides it: the directory whose name is given or taken (of a rename, the new one), or else the inode.
    pub fn place(&self) -> Ino {
        match self {
            Change::Make { parent, .. }
            | Change::MakeUnnamed { parent, .. }
            | Change::LinkUnnamed { parent, .. }
            | Change::Link { parent, .. }
            | Change::Unlink { parent, .. }
            | Change::Rmdir { parent, .. }
            | Change::RemoveTree { parent, .. } => *parent,
            Change::Rename { to, .. } | Change::Copy { to, .. } => *to,
            Change::Write { ino, .. }
            | Change::Punch { ino, .. }
            | Change::Truncate { ino, .. }
            | Change::Set { ino, .. }
            | Change::Xattr { ino, .. }
            | Change::List { ino, .. }
            | Change::Open { ino }
            | Change::Close { ino } => *ino,
        }
    }

    /// The name that is given or taken, with its directory; of a rename the new one.
    pub fn name(&self) -> Option<(Ino, &Name)> {
        match self {
            Change::Make { parent, name, .. }
            | Change::LinkUnnamed { parent, name, .. }
            | Change::Link { parent, name, .. }
            | Change::Unlink { parent, name }
            | Change::Rmdir { parent, name }
            | Change::RemoveTree { parent, name } => Some((*parent, name)),
            Change::Rename { to, to_name, .. } => Some((*to, to_name)),
            Change::MakeUnnamed { .. }
            | Change::Copy { .. }
            | Change::Write { .. }
            | Change::Punch { .. }
            | Change::Truncate { .. }
            | Change::Set { .. }
            | Change::Xattr { .. }
            | Change::List { .. }
            | Change::Open { .. }
            | Change::Close { .. } => None,
        }
    }
}

/// The inode that [`Change::Make`] creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewInode {
    /// A file with its content.
    File(Vec<u8>),
    Dir,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// The character device 0/0.
    Whiteout,
}

/// The time of a change whose caller does not know it. A compared tree may have any.
pub const TIME_UNKNOWN: Time = Time(i64::MAX);

/// The number of an inode whose maker does not know it. A compared tree may have any.
pub fn unknown(n: u64) -> Ino {
    Ino(u64::MAX - n)
}

/// Whether a number comes from [`unknown`].
pub fn is_unknown(ino: Ino) -> bool {
    ino.0 > u64::MAX - (1 << 32)
}
