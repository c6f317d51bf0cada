//! From the bytes of a request to the method that answers it.

use std::path::Path;
use std::sync::Arc;

use crate::abi::{self, fattr, opcode};
use crate::attr::{Errno, SetAttr, TimeOrNow, Timestamp};
use crate::device::Device;
use crate::fields::Fields;
use crate::filesystem::Filesystem;
use crate::flags::{AccessFlags, CopyFileRangeFlags, OpenFlags, RenameFlags, WriteFlags};
use crate::numbers::{FileHandle, INodeNo, LockAsked, LockOwner, Request};
use crate::reply::{
    Pending, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};

/// A `fuse_in_header`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) ino: u64,
    uid: u32,
    gid: u32,
    pub(crate) pid: u32,
}

impl Header {
    /// The header of a request, and its arguments.
    pub(crate) fn take(bytes: &[u8]) -> Option<(Header, Fields<'_>)> {
        let mut fields = Fields::new(bytes);
        let len = fields.u32()? as usize;
        let (opcode, unique, ino) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        // Extensions follow the arguments, in units of 8 bytes; init requests none.
        let extensions = 8 * usize::from(fields.u16()?);
        let end = len.checked_sub(extensions).filter(|&end| end <= bytes.len())?;
        let arguments = bytes.get(abi::IN_HEADER_BYTES..end)?;
        Some((Header { opcode, unique, ino, uid, gid, pid }, Fields::new(arguments)))
    }
}

/// Has a request answered; `None`: its arguments are too short, and it is not.
pub(crate) fn dispatch<F: Filesystem>(
    filesystem: &F,
    device: &Arc<Device>,
    header: &Header,
    mut fields: Fields<'_>,
) -> Option<()> {
    let req = &Request { unique: header.unique, uid: header.uid, gid: header.gid, pid: header.pid };
    let ino = INodeNo(header.ino);
    // Created last, so that a request which cannot be decoded is answered elsewhere.
    let pending = || Pending::new(device, header.unique);
    let empty = || ReplyEmpty { pending: pending() };
    let entry = || ReplyEntry { pending: pending() };
    let xattr = || ReplyXattr { pending: pending() };
    match header.opcode {
        opcode::LOOKUP => filesystem.lookup(req, ino, fields.name()?, entry()),
        opcode::FORGET => filesystem.forget(ino, fields.u64()?),
        opcode::BATCH_FORGET => {
            let count = fields.u32()?;
            fields.skip(4)?;
            for _ in 0..count {
                // This request has no reply, so one that is too short is skipped.
                let (Some(ino), Some(nlookup)) = (fields.u64(), fields.u64()) else { break };
                filesystem.forget(INodeNo(ino), nlookup);
            }
        }
        opcode::GETATTR => {
            let flags = fields.u32()?;
            fields.skip(4)?;
            let fh = FileHandle(fields.u64()?);
            let fh = (flags & abi::GETATTR_FH != 0).then_some(fh);
            filesystem.getattr(req, ino, fh, ReplyAttr { pending: pending() });
        }
        opcode::SETATTR => {
            let change = set_attr(&mut fields)?;
            filesystem.setattr(req, ino, &change, ReplyAttr { pending: pending() });
        }
        opcode::READLINK => filesystem.readlink(req, ino, ReplyData { pending: pending() }),
        opcode::SYMLINK => {
            let (name, target) = (fields.name()?, fields.name()?);
            filesystem.symlink(req, ino, name, Path::new(target), entry());
        }
        opcode::MKNOD => {
            let (mode, rdev, umask) = (fields.u32()?, fields.u32()?, fields.u32()?);
            fields.skip(4)?;
            filesystem.mknod(req, ino, fields.name()?, mode, umask, rdev, entry());
        }
        opcode::MKDIR => {
            let (mode, umask) = (fields.u32()?, fields.u32()?);
            filesystem.mkdir(req, ino, fields.name()?, mode, umask, entry());
        }
        opcode::UNLINK => filesystem.unlink(req, ino, fields.name()?, empty()),
        opcode::RMDIR => filesystem.rmdir(req, ino, fields.name()?, empty()),
        opcode::RENAME => {
            let to = INodeNo(fields.u64()?);
            let (from_name, to_name) = (fields.name()?, fields.name()?);
            filesystem.rename(req, ino, from_name, to, to_name, RenameFlags::empty(), empty());
        }
        opcode::RENAME2 => {
            let (to, flags) = (INodeNo(fields.u64()?), RenameFlags(fields.u32()?));
            fields.skip(4)?;
            let (from_name, to_name) = (fields.name()?, fields.name()?);
            filesystem.rename(req, ino, from_name, to, to_name, flags, empty());
        }
        opcode::LINK => {
            let linked = INodeNo(fields.u64()?);
            filesystem.link(req, linked, ino, fields.name()?, entry());
        }
        opcode::OPEN => {
            let flags = OpenFlags(fields.u32()? as i32);
            filesystem.open(req, ino, flags, ReplyOpen { pending: pending() });
        }
        opcode::CREATE | opcode::TMPFILE => {
            let (flags, mode, umask) = (fields.u32()? as i32, fields.u32()?, fields.u32()?);
            fields.skip(4)?;
            if header.opcode == opcode::TMPFILE {
                filesystem.tmpfile(req, ino, mode, umask, flags, ReplyCreate { pending: pending() });
            } else {
                let name = fields.name()?;
                filesystem.create(req, ino, name, mode, umask, flags, ReplyCreate { pending: pending() });
            }
        }
        opcode::READ => {
            let (fh, offset, size) = (FileHandle(fields.u64()?), fields.u64()?, fields.u32()?);
            filesystem.read(req, ino, fh, offset, size, ReplyData { pending: pending() });
        }
        opcode::WRITE => {
            let (fh, offset, size) = (FileHandle(fields.u64()?), fields.u64()?, fields.u32()?);
            let flags = WriteFlags(fields.u32()?);
            // The owner of locks, flags of the open file, padding.
            fields.skip(16)?;
            let data = fields.bytes(size as usize)?;
            filesystem.write(req, ino, fh, offset, data, flags, ReplyWrite { pending: pending() });
        }
        opcode::STATFS => filesystem.statfs(req, ino, ReplyStatfs { pending: pending() }),
        opcode::RELEASE => {
            let fh = FileHandle(fields.u64()?);
            // Flags, and the owner of its lock of flock(2), which is known by the handle.
            fields.skip(16)?;
            filesystem.release(ino, fh, empty());
        }
        opcode::FLUSH => {
            let fh = FileHandle(fields.u64()?);
            fields.skip(8)?;
            filesystem.flush(req, ino, fh, LockOwner(fields.u64()?), empty());
        }
        opcode::FSYNC | opcode::FSYNCDIR => {
            let fh = FileHandle(fields.u64()?);
            let datasync = fields.u32()? & abi::FSYNC_FDATASYNC != 0;
            if header.opcode == opcode::FSYNC {
                filesystem.fsync(req, ino, fh, datasync, empty());
            } else {
                filesystem.fsyncdir(req, ino, fh, datasync, empty());
            }
        }
        opcode::SETXATTR => {
            let (size, flags) = (fields.u32()?, fields.u32()? as i32);
            let name = fields.name()?;
            filesystem.setxattr(req, ino, name, fields.bytes(size as usize)?, flags, empty());
        }
        opcode::GETXATTR => {
            let size = fields.u32()?;
            fields.skip(4)?;
            filesystem.getxattr(req, ino, fields.name()?, size, xattr());
        }
        opcode::LISTXATTR => filesystem.listxattr(req, ino, fields.u32()?, xattr()),
        opcode::REMOVEXATTR => filesystem.removexattr(req, ino, fields.name()?, empty()),
        opcode::IOCTL => {
            // A `fuse_ioctl_in`: handle, flags, command, argument, bytes that come along and bytes that are awaited.
            fields.skip(12)?;
            let command = fields.u32()?;
            fields.skip(8)?;
            let (in_bytes, out_bytes) = (fields.u32()?, fields.u32()?);
            let argument = fields.bytes(in_bytes as usize)?;
            filesystem.ioctl(req, ino, command, argument, out_bytes, ReplyData { pending: pending() });
        }
        opcode::OPENDIR => {
            let flags = OpenFlags(fields.u32()? as i32);
            filesystem.opendir(req, ino, flags, ReplyOpen { pending: pending() });
        }
        opcode::READDIR | opcode::READDIRPLUS => {
            let (fh, offset, room) = (FileHandle(fields.u64()?), fields.u64()?, fields.u32()?);
            if header.opcode == opcode::READDIR {
                filesystem.readdir(req, ino, fh, offset, ReplyDirectory::new(pending(), room));
            } else {
                filesystem.readdirplus(req, ino, fh, offset, ReplyDirectoryPlus::new(pending(), room));
            }
        }
        opcode::RELEASEDIR => filesystem.releasedir(req, ino, FileHandle(fields.u64()?), empty()),
        opcode::ACCESS => filesystem.access(req, ino, AccessFlags(fields.u32()? as i32), empty()),
        opcode::GETLK => {
            let (fh, lock) = lock(&mut fields)?;
            filesystem.getlk(req, ino, fh, &lock, ReplyLock { pending: pending() });
        }
        opcode::SETLK | opcode::SETLKW => {
            let (fh, lock) = lock(&mut fields)?;
            filesystem.setlk(req, ino, fh, &lock, header.opcode == opcode::SETLKW, empty());
        }
        opcode::FALLOCATE => {
            let (fh, offset, length) = (FileHandle(fields.u64()?), fields.u64()?, fields.u64()?);
            filesystem.fallocate(req, ino, fh, offset, length, fields.u32()? as i32, empty());
        }
        opcode::LSEEK => {
            let (fh, offset, whence) =
                (FileHandle(fields.u64()?), fields.u64()? as i64, fields.u32()? as i32);
            filesystem.lseek(req, ino, fh, offset, whence, ReplyLseek { pending: pending() });
        }
        opcode::COPY_FILE_RANGE => {
            let (fh_in, offset_in) = (FileHandle(fields.u64()?), fields.u64()?);
            let (ino_out, fh_out) = (INodeNo(fields.u64()?), FileHandle(fields.u64()?));
            let (offset_out, len, flags) = (fields.u64()?, fields.u64()?, CopyFileRangeFlags(fields.u64()?));
            let reply = ReplyWrite { pending: pending() };
            filesystem
                .copy_file_range(req, ino, fh_in, offset_in, ino_out, fh_out, offset_out, len, flags, reply);
        }
        opcode::DESTROY => empty().ok(),
        // INTERRUPT is one of them: the kernel does not send it again (`docs/decisions/2026-11-25-fuse-session.md`).
        _ => empty().error(Errno::ENOSYS),
    }
    Some(())
}

/// A `fuse_lk_in`.
fn lock(fields: &mut Fields<'_>) -> Option<(FileHandle, LockAsked)> {
    let (fh, owner) = (FileHandle(fields.u64()?), LockOwner(fields.u64()?));
    let (start, end, kind, pid) = (fields.u64()?, fields.u64()?, fields.u32()? as i32, fields.u32()?);
    let is_flock = fields.u32()? & abi::LK_FLOCK != 0;
    Some((fh, LockAsked { owner, is_flock, start, end, kind, pid }))
}

/// A `fuse_setattr_in`.
fn set_attr(fields: &mut Fields<'_>) -> Option<SetAttr> {
    let valid = fields.u32()?;
    fields.skip(4)?;
    let (fh, size, _lock_owner) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (atime, mtime, _ctime) = (fields.u64()? as i64, fields.u64()? as i64, fields.u64()?);
    let (atime_nanos, mtime_nanos, _) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let mode = fields.u32()?;
    fields.skip(4)?;
    let (uid, gid) = (fields.u32()?, fields.u32()?);
    let has = |flag: u32| valid & flag != 0;
    let time = |is_set: bool, is_now: bool, secs: i64, nanos: u32| {
        let at = if is_now { TimeOrNow::Now } else { TimeOrNow::At(Timestamp { secs, nanos }) };
        is_set.then_some(at)
    };
    Some(SetAttr {
        mode: has(fattr::MODE).then_some(mode),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        size: has(fattr::SIZE).then_some(size),
        atime: time(has(fattr::ATIME), has(fattr::ATIME_NOW), atime, atime_nanos),
        mtime: time(has(fattr::MTIME), has(fattr::MTIME_NOW), mtime, mtime_nanos),
        fh: has(fattr::FH).then_some(FileHandle(fh)),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_bounds_its_arguments() {
        let mut bytes = Vec::new();
        bytes.extend(48u32.to_ne_bytes());
        bytes.extend(opcode::FORGET.to_ne_bytes());
        for number in [5u64, 6] {
            bytes.extend(number.to_ne_bytes());
        }
        for number in [7u32, 8, 9, 0] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(10u64.to_ne_bytes());
        let (header, mut fields) = Header::take(&bytes).expect("whole");
        assert_eq!((header.opcode, header.unique, header.ino), (opcode::FORGET, 5, 6));
        assert_eq!((header.uid, header.gid, header.pid), (7, 8, 9));
        assert_eq!((fields.u64(), fields.u64()), (Some(10), None));
        bytes[36] = 1;
        let (_, mut fields) = Header::take(&bytes).expect("whole");
        assert_eq!(fields.u64(), None, "it was an extension");
        bytes[36] = 2;
        assert!(Header::take(&bytes).is_none());
        assert!(Header::take(&bytes[..39]).is_none());
    }

    #[test]
    fn set_attributes_are_those_that_are_marked() {
        let mut bytes = Vec::new();
        let valid = fattr::MODE | fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW | fattr::KILL_SUIDGID;
        bytes.extend(u64::from(valid).to_ne_bytes());
        for number in [1u64, 2, 3, -1i64 as u64, 5, 6] {
            bytes.extend(number.to_ne_bytes());
        }
        for number in [999_999_999u32, 8, 9, 0o100_600, 0, 11, 12, 0] {
            bytes.extend(number.to_ne_bytes());
        }
        let change = set_attr(&mut Fields::new(&bytes)).expect("whole");
        let expect = SetAttr {
            mode: Some(0o100_600),
            atime: Some(TimeOrNow::At(Timestamp { secs: -1, nanos: 999_999_999 })),
            mtime: Some(TimeOrNow::Now),
            kill_suidgid: true,
            ..SetAttr::default()
        };
        assert_eq!(change, expect);
    }

    #[test]
    fn locks_say_which_kind_they_are() {
        let check = |flags: u32, expect: bool| {
            let mut bytes = Vec::new();
            for number in [1u64, 2, 3, 4] {
                bytes.extend(number.to_ne_bytes());
            }
            for number in [libc::F_WRLCK as u32, 5, flags, 0] {
                bytes.extend(number.to_ne_bytes());
            }
            let (fh, lock) = lock(&mut Fields::new(&bytes)).expect("whole");
            let of_owner = LockOwner(2);
            let kind = libc::F_WRLCK;
            assert_eq!(fh, FileHandle(1));
            assert_eq!(lock, LockAsked { owner: of_owner, is_flock: expect, start: 3, end: 4, kind, pid: 5 });
        };
        check(0, false);
        check(1, true);
    }
}
