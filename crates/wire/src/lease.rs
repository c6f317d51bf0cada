//! Leases and locks, as messages name them.

use chiton_model::field::Fixed;
use chiton_model::{number, record};
use chiton_types::Ino;

number! {
    /// The rights of a client on an inode that it need not ask the server for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum LeaseMode "lease" {
        None = 0,
        /// Cache names (present and absent), attributes and content.
        Shared = 1,
        /// Also buffer writes and own size and times: nobody else has a lease.
        Exclusive = 2,
    }
}

record! {
    /// A lock, POSIX (by range) or BSD (whole file).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Lock "lock" {
        pub ino: Ino,
        /// flock(2) instead of fcntl(2).
        pub flock: bool,
        /// Owner as the kernel of that mount names it.
        pub owner: u64 as Fixed,
        /// First byte of the range.
        pub start: u64 as Fixed,
        /// Last byte, inclusive; `u64::MAX` for "to the end".
        pub end: u64 as Fixed,
        pub kind: LockKind,
        /// Process id of the holder, which `F_GETLK` returns.
        pub pid: u32 as Fixed,
    }
}

number! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LockKind "kind of lock" {
        /// F_UNLCK, LOCK_UN.
        Unlock = 0,
        /// F_RDLCK, LOCK_SH.
        Read = 1,
        /// F_WRLCK, LOCK_EX.
        Write = 2,
    }
}
