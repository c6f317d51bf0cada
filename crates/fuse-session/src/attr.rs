//! Attributes of inodes in the kernel's terms.

use crate::body::Body;
use crate::numbers::{FileHandle, INodeNo};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    /// The request could not be carried out, or the file system dropped its reply.
    pub const EIO: Errno = Errno(libc::EIO);
    /// There is no such request; for most the kernel does not ask again.
    pub const ENOSYS: Errno = Errno(libc::ENOSYS);

    /// From a number of `errno.h`. Zero, and numbers that the kernel would not take, become EIO.
    pub fn from_i32(number: i32) -> Errno {
        if (1..512).contains(&number) { Errno(number) } else { Errno::EIO }
    }

    pub fn code(self) -> i32 {
        self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    RegularFile,
    Directory,
    Symlink,
    NamedPipe,
    Socket,
    CharDevice,
    BlockDevice,
}

impl FileType {
    /// The type's bits of a mode.
    pub(crate) fn mode(self) -> u32 {
        match self {
            FileType::RegularFile => libc::S_IFREG,
            FileType::Directory => libc::S_IFDIR,
            FileType::Symlink => libc::S_IFLNK,
            FileType::NamedPipe => libc::S_IFIFO,
            FileType::Socket => libc::S_IFSOCK,
            FileType::CharDevice => libc::S_IFCHR,
            FileType::BlockDevice => libc::S_IFBLK,
        }
    }

    /// The number in a listing (`DT_*`).
    pub(crate) fn in_listing(self) -> u32 {
        self.mode() >> 12
    }
}

/// A moment: seconds since 1970, also before, and the nanoseconds after that second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// Seconds since 1970; negative before.
    pub secs: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

impl Timestamp {
    /// The beginning of 1970.
    pub const EPOCH: Timestamp = Timestamp { secs: 0, nanos: 0 };
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrNow {
    /// When the request is carried out.
    Now,
    At(Timestamp),
}

/// The changes of a SETATTR; `None` leaves a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// chmod.
    pub mode: Option<u32>,
    /// chown.
    pub uid: Option<u32>,
    /// chgrp.
    pub gid: Option<u32>,
    /// truncate.
    pub size: Option<u64>,
    /// utimens.
    pub atime: Option<TimeOrNow>,
    /// utimens.
    pub mtime: Option<TimeOrNow>,
    /// Through this open file.
    pub fh: Option<FileHandle>,
    /// Clear the set-id bits (with [`crate::InitFlags::FUSE_HANDLE_KILLPRIV_V2`]).
    pub kill_suidgid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttr {
    /// The number by which the kernel asks for it.
    pub ino: INodeNo,
    /// The number that programs see (`st_ino`, `d_ino`).
    pub shown_ino: u64,
    /// Bytes that read(2) can return.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of attributes or content.
    pub ctime: Timestamp,
    pub kind: FileType,
    pub perm: u16,
    /// Number of names.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Preferred size of an access.
    pub blksize: u32,
}

impl FileAttr {
    /// Appends a `fuse_attr`.
    pub(crate) fn put(&self, out: &mut Body) {
        out.put_u64(self.shown_ino);
        out.put_u64(self.size);
        out.put_u64(self.blocks);
        for time in [self.atime, self.mtime, self.ctime] {
            out.put_u64(time.secs as u64);
        }
        for time in [self.atime, self.mtime, self.ctime] {
            out.put_u32(time.nanos);
        }
        out.put_u32(self.kind.mode() | u32::from(self.perm));
        for number in [self.nlink, self.uid, self.gid, self.rdev, self.blksize, 0] {
            out.put_u32(number);
        }
    }
}
