//! The operations that the tests need, and two implementations: the library, and a mount.

use std::collections::BTreeMap;

pub(crate) type Errno = i32;
/// The answer of a file system.
pub(crate) type Answer<T> = Result<T, Errno>;

/// The user of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: &'static [u32],
}

pub(crate) const ROOT: User = User { uid: 0, gid: 0, groups: &[] };
pub(crate) const ALICE: User = User { uid: 1201, gid: 1301, groups: &[1400] };
pub(crate) const BOB: User = User { uid: 1202, gid: 1302, groups: &[1401] };

/// The part of stat(2) that tests look at. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) ino: u64,
    /// `S_IFMT` bits and permissions.
    pub(crate) mode: u32,
    pub(crate) nlink: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    /// Units of 512 bytes.
    pub(crate) blocks: u64,
    pub(crate) atime: i64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
}

/// How a file is opened: the flags of open(2).
pub(crate) type Flags = i32;

/// A file system with absolute paths (from its own root) and open files by number.
pub(crate) trait FsUnderTest {
    fn open(&self, user: User, path: &str, flags: Flags, mode: u32) -> Answer<u64>;
    fn close(&self, fd: u64) -> Answer<()>;
    fn read_at(&self, fd: u64, offset: u64, len: usize) -> Answer<Vec<u8>>;
    fn write_at(&self, user: User, fd: u64, offset: u64, bytes: &[u8]) -> Answer<()>;
    fn fsync(&self, fd: u64) -> Answer<()>;
    fn seek(&self, fd: u64, offset: u64, whence: i32) -> Answer<u64>;
    fn fallocate(&self, fd: u64, mode: i32, offset: u64, len: u64) -> Answer<()>;
    fn copy_range(&self, from: u64, from_offset: u64, to: u64, to_offset: u64, len: u64) -> Answer<u64>;
    fn fstat(&self, fd: u64) -> Answer<Stat>;

    fn stat(&self, user: User, path: &str) -> Answer<Stat>;
    fn access(&self, user: User, path: &str, want: i32) -> Answer<()>;
    fn list(&self, user: User, path: &str) -> Answer<BTreeMap<Vec<u8>, u64>>;
    fn mkdir(&self, user: User, path: &str, mode: u32) -> Answer<()>;
    fn mkfifo(&self, user: User, path: &str, mode: u32) -> Answer<()>;
    fn symlink(&self, user: User, target: &str, path: &str) -> Answer<()>;
    fn readlink(&self, path: &str) -> Answer<Vec<u8>>;
    fn link(&self, user: User, from: &str, to: &str) -> Answer<()>;
    fn unlink(&self, user: User, path: &str) -> Answer<()>;
    fn rmdir(&self, user: User, path: &str) -> Answer<()>;
    fn rename(&self, user: User, from: &str, to: &str, flags: u32) -> Answer<()>;
    fn chmod(&self, user: User, path: &str, mode: u32) -> Answer<()>;
    fn chown(&self, user: User, path: &str, uid: Option<u32>, gid: Option<u32>) -> Answer<()>;
    fn truncate(&self, user: User, path: &str, size: u64) -> Answer<()>;
    /// Access and modification time, in nanoseconds; `None`: now.
    fn utimens(&self, user: User, path: &str, times: Option<(i64, i64)>) -> Answer<()>;
    fn setxattr(&self, user: User, path: &str, name: &str, value: &[u8], flags: i32) -> Answer<()>;
    fn getxattr(&self, user: User, path: &str, name: &str) -> Answer<Vec<u8>>;
    fn listxattr(&self, path: &str) -> Answer<Vec<Vec<u8>>>;
    fn removexattr(&self, user: User, path: &str, name: &str) -> Answer<()>;

    /// A new file with this content.
    fn put(&self, user: User, path: &str, bytes: &[u8]) -> Answer<()> {
        let fd = self.open(user, path, libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY, 0o644)?;
        let written = self.write_at(user, fd, 0, bytes);
        self.close(fd)?;
        written
    }

    /// The whole content of a file.
    fn get(&self, user: User, path: &str) -> Answer<Vec<u8>> {
        let fd = self.open(user, path, libc::O_RDONLY, 0)?;
        let bytes = self.read_at(fd, 0, 64 << 20);
        self.close(fd)?;
        bytes
    }

    fn names(&self, path: &str) -> Vec<String> {
        let listed = self.list(ROOT, path).expect("a directory that root may list");
        listed.into_keys().map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
    }
}
