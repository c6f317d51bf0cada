//! Attributes, as `stat` shows them.

use crate::{Ino, Position, Time};

/// Type of an inode. The numbers are part of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    File = 1,
    Dir = 2,
    Symlink = 3,
    Fifo = 4,
    Socket = 5,
    Char = 6,
    Block = 7,
}

impl Kind {
    /// Inverse of `kind as u8`.
    pub fn from_u8(n: u8) -> Option<Kind> {
        Some(match n {
            1 => Kind::File,
            2 => Kind::Dir,
            3 => Kind::Symlink,
            4 => Kind::Fifo,
            5 => Kind::Socket,
            6 => Kind::Char,
            7 => Kind::Block,
            _ => return None,
        })
    }
}

/// Permission bits, set-id bits and sticky bit: the low 12 bits of `st_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mode(pub u16);

impl Mode {
    pub const SETUID: u16 = 0o4000;
    pub const SETGID: u16 = 0o2000;
    pub const STICKY: u16 = 0o1000;

    /// True if every bit of `bits` is set.
    pub fn has(self, bits: u16) -> bool {
        self.0 & bits == bits
    }

    /// After a change of content or owner by one who is not root: set-user-id goes, set-group-id too where the group
    /// may execute. Directories keep theirs.
    #[must_use]
    pub fn without_setid(self, kind: Kind) -> Mode {
        if kind == Kind::Dir {
            return self;
        }
        let group = if self.has(0o010) { Mode::SETGID } else { 0 };
        Mode(self.0 & !(Mode::SETUID | group))
    }
}

/// Attributes of an inode, as `stat` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    pub ino: Ino,
    pub kind: Kind,
    pub mode: Mode,
    /// Number of names (directories: 2 + subdirectories).
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number of device nodes, else 0.
    pub rdev: u32,
    /// Size in bytes (directories: number of entries times 32; symbolic links: length of the target).
    pub size: u64,
    /// Bytes allocated, inline or in blocks; holes do not count.
    pub allocated: u64,
    /// Time of the last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of attributes.
    pub ctime: Time,
    /// Time of creation.
    pub btime: Time,
    /// The directory where it was born or moved to last (itself for the root).
    pub parent: Ino,
    /// Bits: [`Attr::ACCESS_LIST`], [`Attr::DEFAULT_LIST`], [`Attr::IMMUTABLE`], [`Attr::APPEND_ONLY`], [`Attr::HAS_PARTS`],
    /// [`Attr::PART`], [`Attr::XATTRS`].
    pub flags: u8,
    /// Position of the last change.
    pub position: Position,
}

impl Attr {
    /// An access list: the mode alone does not say who may do what.
    pub const ACCESS_LIST: u8 = 1;
    /// A default list, of a directory: inodes made in it inherit that.
    pub const DEFAULT_LIST: u8 = 2;
    /// Immutable (`chattr +i`): nobody changes content, attributes or names.
    pub const IMMUTABLE: u8 = 4;
    /// Append-only (`chattr +a`): a file only grows at its end, a directory only gets more names.
    pub const APPEND_ONLY: u8 = 8;
    /// Those that `chattr` sets.
    pub const SETTABLE: u8 = Attr::IMMUTABLE | Attr::APPEND_ONLY;
    /// A directory of which other inodes, its parts, have some of the names.
    pub const HAS_PARTS: u8 = 16;
    /// A part of the directory that is its parent.
    pub const PART: u8 = 32;
    /// Extended attributes; lists are among them.
    pub const XATTRS: u8 = 64;
    /// All bits that have a meaning.
    pub const FLAGS: u8 =
        Attr::ACCESS_LIST | Attr::DEFAULT_LIST | Attr::SETTABLE | Attr::HAS_PARTS | Attr::PART | Attr::XATTRS;

    /// True if everybody may search this directory.
    pub fn is_open(&self) -> bool {
        self.mode.has(0o111) && self.flags & Attr::ACCESS_LIST == 0
    }

    /// It has parts, or is one: it does not have all names of its directory.
    pub fn is_parted(&self) -> bool {
        self.flags & (Attr::HAS_PARTS | Attr::PART) != 0
    }
}

/// The three questions that a permission check can ask; combine with `|`. `chiton_namespace::permission` answers them.
pub mod access {
    /// Read (list, for directories).
    pub const READ: u8 = 4;
    /// Write (change entries, for directories).
    pub const WRITE: u8 = 2;
    /// Execute (search, for directories).
    pub const EXEC: u8 = 1;
}
