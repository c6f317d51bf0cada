//! Numbers of the kernel's interface (`linux/fuse.h`).

/// Version of the FUSE protocol.
pub(crate) const MAJOR: u32 = 7;
/// The newest revision whose additions are known here (Linux 6.16).
pub(crate) const MINOR: u32 = 44;
/// The oldest that is served: Linux 4.20 has sizes of requests that can be negotiated, 5.4 all that we ask for.
pub(crate) const MINOR_MIN: u32 = 28;

/// Bytes of a `fuse_in_header`.
pub(crate) const IN_HEADER_BYTES: usize = 40;

/// The operations that are served, each with its number.
macro_rules! opcodes {
    ($($name:ident = $number:literal,)*) => {
        pub(crate) mod opcode {
            $(pub(crate) const $name: u32 = $number;)*

            /// The request's name, for the log.
            pub(crate) fn name(opcode: u32) -> &'static str {
                match opcode {
                    $($number => stringify!($name),)*
                    _ => "unknown",
                }
            }
        }
    };
}

opcodes! {
    LOOKUP = 1,
    FORGET = 2,
    GETATTR = 3,
    SETATTR = 4,
    READLINK = 5,
    SYMLINK = 6,
    MKNOD = 8,
    MKDIR = 9,
    UNLINK = 10,
    RMDIR = 11,
    RENAME = 12,
    LINK = 13,
    OPEN = 14,
    READ = 15,
    WRITE = 16,
    STATFS = 17,
    RELEASE = 18,
    FSYNC = 20,
    SETXATTR = 21,
    GETXATTR = 22,
    LISTXATTR = 23,
    REMOVEXATTR = 24,
    FLUSH = 25,
    INIT = 26,
    OPENDIR = 27,
    READDIR = 28,
    RELEASEDIR = 29,
    FSYNCDIR = 30,
    GETLK = 31,
    SETLK = 32,
    SETLKW = 33,
    ACCESS = 34,
    CREATE = 35,
    DESTROY = 38,
    IOCTL = 39,
    BATCH_FORGET = 42,
    FALLOCATE = 43,
    READDIRPLUS = 44,
    RENAME2 = 45,
    LSEEK = 46,
    COPY_FILE_RANGE = 47,
    TMPFILE = 51,
}

/// Kinds of notifications.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const STORE: i32 = 4;
    /// Linux 6.16.
    pub(crate) const INC_EPOCH: i32 = 8;
    /// A flag of [`INVAL_ENTRY`] (Linux 6.2).
    pub(crate) const EXPIRE_ONLY: u32 = 1;
}

/// Which fields of a SETATTR hold.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// A GETATTR through an open file.
pub(crate) const GETATTR_FH: u32 = 1;
/// A lock of flock(2).
pub(crate) const LK_FLOCK: u32 = 1;
/// fdatasync(2).
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
