//! How a file is opened, free of any system's numbers.

use chiton_types::access;

/// The flags of an open(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OpenFlags {
    /// May read: O_RDONLY and O_RDWR.
    pub read: bool,
    /// May write: O_WRONLY and O_RDWR.
    pub write: bool,
    /// Opened to be executed: asks for the right to execute, not to read.
    pub exec: bool,
    /// O_APPEND: each write begins at the end of the file.
    pub append: bool,
    /// O_TRUNC: the file is emptied when it is opened.
    pub truncate: bool,
    /// O_EXCL: a file that exists is refused, if it was to be made.
    pub exclusive: bool,
    /// O_DIRECT.
    pub direct: bool,
    /// O_SYNC: each write is durable, attributes included.
    pub sync: bool,
    /// O_DSYNC: each write is durable.
    pub dsync: bool,
}

impl OpenFlags {
    /// O_RDONLY alone.
    pub const READ: OpenFlags = OpenFlags {
        read: true,
        write: false,
        exec: false,
        append: false,
        truncate: false,
        exclusive: false,
        direct: false,
        sync: false,
        dsync: false,
    };
    /// O_WRONLY alone.
    pub const WRITE: OpenFlags = OpenFlags { read: false, write: true, ..OpenFlags::READ };
    /// O_RDWR alone.
    pub const READ_WRITE: OpenFlags = OpenFlags { write: true, ..OpenFlags::READ };

    /// Whether nothing can be changed through it.
    pub(crate) fn reads_only(self) -> bool {
        self.read && !self.write && !self.truncate
    }

    /// From the flags of open(2) on Linux. 0x20 is `__FMODE_EXEC`, which FUSE passes on.
    pub fn from_linux(flags: i32) -> OpenFlags {
        let accmode = flags & 0o3;
        let exec = flags & 0x20 != 0;
        OpenFlags {
            read: accmode != 1 && !exec,
            write: accmode != 0,
            exec,
            append: flags & 0o2000 != 0,
            truncate: flags & 0o1000 != 0,
            exclusive: flags & 0o200 != 0,
            direct: flags & 0o40000 != 0,
            sync: flags & 0o4010000 == 0o4010000,
            dsync: flags & 0o10000 != 0,
        }
    }

    /// The rights to ask for: bits of [`chiton_types::access`].
    pub fn want(self) -> u8 {
        let mut want = 0;
        if self.read {
            want |= access::READ;
        }
        if self.write || self.truncate {
            want |= access::WRITE;
        }
        if self.exec {
            want |= access::EXEC;
        }
        want
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_flags_are_understood() {
        let check = |flags: i32, expect: OpenFlags, want: u8| {
            assert_eq!(OpenFlags::from_linux(flags), expect, "{flags:o}");
            assert_eq!(expect.want(), want, "{flags:o}");
        };
        check(libc::O_RDONLY, OpenFlags::READ, 4);
        check(libc::O_WRONLY | libc::O_APPEND, OpenFlags { append: true, ..OpenFlags::WRITE }, 2);
        check(libc::O_RDWR | libc::O_EXCL, OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE }, 6);
        check(libc::O_RDONLY | libc::O_TRUNC, OpenFlags { truncate: true, ..OpenFlags::READ }, 6);
        check(libc::O_WRONLY | libc::O_SYNC, OpenFlags { sync: true, dsync: true, ..OpenFlags::WRITE }, 2);
        check(libc::O_WRONLY | libc::O_DSYNC, OpenFlags { dsync: true, ..OpenFlags::WRITE }, 2);
        check(libc::O_WRONLY | libc::O_DIRECT, OpenFlags { direct: true, ..OpenFlags::WRITE }, 2);
        check(0x20, OpenFlags { exec: true, ..OpenFlags::default() }, 1);
    }
}
