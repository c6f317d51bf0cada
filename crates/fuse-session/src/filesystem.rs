//! The operations of a file system. Each method gets its reply as an argument and may send it later, on any thread.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use crate::attr::{Errno, SetAttr};
use crate::flags::{AccessFlags, CopyFileRangeFlags, OpenFlags, RenameFlags, WriteFlags};
use crate::init::KernelConfig;
use crate::numbers::{FileHandle, INodeNo, LockAsked, LockOwner, Request};
use crate::reply::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};

/// A file system as the kernel asks it. A method without a description answers the system call of its name. Modes of new inodes come without the umask applied where
/// [`crate::InitFlags::FUSE_DONT_MASK`] was agreed on, and with the umask beside them.
#[allow(unused_variables, clippy::too_many_arguments)]
pub trait Filesystem: Send + Sync {
    /// The first request: chooses among the kernel's capabilities.
    ///
    /// # Errors
    /// Any error fails the mount.
    fn init(&mut self, config: &mut KernelConfig) -> io::Result<()>;

    /// The mount is gone, and no request is being answered any more.
    fn destroy(&self);

    /// A name is looked up; `.` and `..` only with [`crate::InitFlags::FUSE_EXPORT_SUPPORT`], then `parent` may be any inode, also
    /// one that the kernel has forgotten.
    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry);

    /// The kernel drops `nlookup` of the references that entries gave it to this inode.
    fn forget(&self, ino: INodeNo, nlookup: u64);

    /// stat(2).
    fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr);

    /// chmod, chown, truncate, utimens.
    fn setattr(&self, req: &Request, ino: INodeNo, change: &SetAttr, reply: ReplyAttr);

    /// The target of a symbolic link.
    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData);

    /// mknod(2), also of regular files.
    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    );

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry);

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty);

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty);

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry);

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    );

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry);

    /// open(2) of a name that does not exist, with O_CREAT.
    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    );

    /// open(2) with O_TMPFILE.
    fn tmpfile(&self, req: &Request, parent: INodeNo, mode: u32, umask: u32, flags: i32, reply: ReplyCreate) {
        reply.error(Errno::ENOSYS);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen);

    fn read(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, size: u32, reply: ReplyData);

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        reply: ReplyWrite,
    );

    /// A descriptor is closed; the fcntl(2) locks of this owner go.
    fn flush(&self, req: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty);

    /// The last descriptor is closed: locks that belong to the open file go.
    fn release(&self, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty);

    fn fsync(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty);

    fn opendir(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen);

    /// A part of a listing.
    fn readdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory);

    /// A part of a listing, with attributes.
    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    );

    /// closedir(3).
    fn releasedir(&self, req: &Request, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty);

    /// fsync(2) of a directory.
    fn fsyncdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty);

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs);

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    );

    /// getxattr(2) of a caller with room for `size` bytes; 0 asks for the size.
    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr);

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr);

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty);

    /// ioctl(2) of a file or directory, with the bytes that the command hands in. The reply is a `fuse_ioctl_out` of 16 bytes and
    /// `out_bytes` that the command hands out.
    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        command: u32,
        argument: &[u8],
        out_bytes: u32,
        reply: ReplyData,
    );

    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty);

    /// F_GETLK.
    fn getlk(&self, req: &Request, ino: INodeNo, fh: FileHandle, lock: &LockAsked, reply: ReplyLock);

    /// F_SETLK, F_SETLKW (`sleep`), flock(2).
    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock: &LockAsked,
        sleep: bool,
        reply: ReplyEmpty,
    );

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    );

    /// lseek(2) to data or a hole.
    fn lseek(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek);

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    );
}
