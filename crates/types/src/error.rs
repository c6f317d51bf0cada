//! Why an operation is refused, and the one table to errno.

use std::fmt;

/// A system error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $errno:literal, $text:literal;)*) => {
        /// Why the state of the file system, or a limit, forbids an operation. Not a failure of Chiton: the
        /// caller gets the errno and everything is as before. The codes are part of the wire protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Refusal { $($(#[$doc])* $name = $code,)* }

        impl Refusal {
            /// Every refusal, for tables and tests.
            pub const ALL: &'static [Refusal] = &[$(Refusal::$name,)*];

            /// The table from refusals to errno.
            pub fn errno(self) -> Errno {
                Errno(match self { $(Refusal::$name => $errno,)* })
            }

            /// Inverse of `refusal as u8`.
            pub fn from_u8(code: u8) -> Option<Refusal> {
                match code { $($code => Some(Refusal::$name),)* _ => None }
            }
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Refusal::$name => $text,)* })
            }
        }
    };
}

refusals! {
    /// EPERM
    NotPermitted = 1, 1, "operation not permitted";
    /// ENOENT
    NotFound = 2, 2, "no such file or directory";
    /// EIO: data or metadata cannot be read or written; the log names the object.
    Io = 3, 5, "input/output error";
    /// EBADF
    BadHandle = 4, 9, "bad file handle";
    /// EAGAIN
    WouldBlock = 5, 11, "would block";
    /// EACCES
    Access = 6, 13, "permission denied";
    /// EBUSY
    Busy = 7, 16, "device or resource busy";
    /// EEXIST
    Exists = 8, 17, "file exists";
    /// EXDEV: rename or link over the border of a realm, or of a plate.
    CrossDevice = 9, 18, "crosses the border of a subtree or a plate";
    /// ENOTDIR
    NotDir = 10, 20, "not a directory";
    /// EISDIR
    IsDir = 11, 21, "is a directory";
    /// EINVAL
    Invalid = 12, 22, "invalid argument";
    /// EFBIG
    TooBig = 13, 27, "file too large";
    /// ENOSPC
    NoSpace = 14, 28, "no space left";
    /// EROFS
    ReadOnly = 15, 30, "read-only";
    /// EMLINK
    TooManyLinks = 16, 31, "too many links";
    /// ERANGE
    Range = 17, 34, "result does not fit";
    /// EDEADLK
    Deadlock = 18, 35, "deadlock avoided";
    /// ENAMETOOLONG
    NameTooLong = 19, 36, "name too long";
    /// ENOTEMPTY
    NotEmpty = 20, 39, "directory not empty";
    /// ELOOP
    Loop = 21, 40, "too many symbolic links";
    /// ENODATA: no such extended attribute.
    NoXattr = 22, 61, "no such extended attribute";
    /// EOPNOTSUPP
    Unsupported = 23, 95, "operation not supported";
    /// ESTALE: the inode of a handle is gone.
    Stale = 24, 116, "stale file handle";
    /// EINTR
    Interrupted = 25, 4, "interrupted";
    /// E2BIG: extended attribute over its limit.
    ArgTooBig = 26, 7, "argument too large";
    /// ENOLCK
    NoLocks = 27, 37, "no locks available";
    /// ENXIO: SEEK_DATA or SEEK_HOLE past the end.
    NoData = 28, 6, "no data past this offset";
    /// ETXTBSY
    TextBusy = 29, 26, "text file busy";
    /// EOVERFLOW
    Overflow = 30, 75, "value too large";
    /// ENOTCONN: the server does not answer and the session could not be kept.
    NotConnected = 31, 107, "not connected";
    /// ECANCELED: the policy that holds here says that a client decouples the subtree before it changes something, and
    /// this client said that it does so. It decouples and asks again there; nobody else sees this.
    Undecoupled = 32, 125, "the subtree is to be decoupled first";
    /// EREMCHG: another part of the directory has the name; the directory's own inode lists the parts. The client asks that part;
    /// nobody else sees this.
    OtherPart = 33, 78, "another part of the directory has the name";
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_errnos_are_distinct() {
        let mut errnos: Vec<i32> = Vec::new();
        for &r in Refusal::ALL {
            assert_eq!(Refusal::from_u8(r as u8), Some(r));
            assert!(!errnos.contains(&r.errno().0), "{r:?}");
            errnos.push(r.errno().0);
        }
        assert_eq!(Refusal::from_u8(0), None);
    }
}
