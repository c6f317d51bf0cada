//! Numbers that the kernel and the file system exchange.

/// An inode as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct INodeNo(pub u64);

impl INodeNo {
    pub const ROOT: INodeNo = INodeNo(1);
}

/// Distinguishes inodes that had the same number one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(pub u64);

/// An open file, as the file system named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileHandle(pub u64);

/// The owner of a lock: an open file (flock, OFD) or the descriptor table of a process (fcntl). The kernel makes the number from the
/// address of that object, and the next object at the address has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockOwner(pub u64);

/// A lock that a caller asks about, or asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAsked {
    pub owner: LockOwner,
    /// flock(2), not fcntl(2). (`F_GETLK` never asks for these.)
    pub is_flock: bool,
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` for "to the end".
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// The process, in the mount's namespace of processes.
    pub pid: u32,
}

/// The caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub(crate) unique: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Request {
    /// Effective (file system) user id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Effective (file system) group id.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The thread that asks; 0 if it is in a namespace that cannot be seen, or the kernel itself.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The number under which the kernel waits for the reply.
    pub fn unique(&self) -> u64 {
        self.unique
    }
}
