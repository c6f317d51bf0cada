//! Attributes and times between the file system's words and FUSE's.

use chiton_fuse_session::{Errno, FileAttr, FileType, Generation, INodeNo, TimeOrNow, Timestamp};
use chiton_types::{Attr, Kind, Mode, Refusal, Time};

/// Inode numbers are never used twice, so generations are not needed.
pub(crate) const GENERATION: Generation = Generation(0);

/// The errno of a refusal, as [`Refusal::errno`] lists it.
pub(crate) fn errno(refusal: Refusal) -> Errno {
    Errno::from_i32(refusal.errno().0)
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::Char => FileType::CharDevice,
        Kind::Block => FileType::BlockDevice,
    }
}

/// The type in the upper bits of a mode, as mknod(2) gives it: 0 means a regular file.
pub(crate) fn kind_of_mode(mode: u32) -> Option<Kind> {
    Some(match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Kind::File,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFSOCK => Kind::Socket,
        libc::S_IFCHR => Kind::Char,
        libc::S_IFBLK => Kind::Block,
        _ => return None,
    })
}

/// The permission bits of a mode as the kernel gives it.
pub(crate) fn mode(mode: u32) -> Mode {
    Mode((mode & 0o7777) as u16)
}

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        shown_ino: attr.ino.0,
        size: attr.size,
        blocks: attr.allocated.div_ceil(512),
        atime: timestamp(attr.atime),
        mtime: timestamp(attr.mtime),
        ctime: timestamp(attr.ctime),
        kind: file_type(attr.kind),
        perm: attr.mode.0,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 4096,
    }
}

fn timestamp(time: Time) -> Timestamp {
    const NANOS: i64 = 1_000_000_000;
    let nanos = time.0.rem_euclid(NANOS);
    Timestamp { secs: time.0.div_euclid(NANOS), nanos: u32::try_from(nanos).expect("less than a second") }
}

/// A time that the kernel sent.
pub(crate) fn time(at: Timestamp) -> Time {
    Time::from_parts(at.secs, at.nanos)
}

pub(crate) fn set_time(asked: TimeOrNow) -> chiton_model::SetTime {
    match asked {
        TimeOrNow::Now => chiton_model::SetTime::Now,
        TimeOrNow::At(at) => chiton_model::SetTime::At(time(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_pass_on_both_sides_of_the_epoch() {
        let check = |secs: i64, nanos: u32, expect: i64| {
            let at = Timestamp { secs, nanos };
            assert_eq!(time(at), Time(expect), "{secs} {nanos}");
            assert_eq!(timestamp(Time(expect)), at, "{secs} {nanos}");
        };
        check(0, 0, 0);
        check(1_700_000_000, 1, 1_700_000_000_000_000_001);
        check(-1, 999_999_999, -1);
        check(-1, 0, -1_000_000_000);
        check(-5, 500_000_000, -4_500_000_000);
    }

    #[test]
    fn modes_name_kinds() {
        let check = |mode: u32, expect: Option<Kind>| assert_eq!(kind_of_mode(mode), expect, "{mode:o}");
        check(0o644, Some(Kind::File));
        check(libc::S_IFREG | 0o600, Some(Kind::File));
        check(libc::S_IFIFO, Some(Kind::Fifo));
        check(libc::S_IFDIR, None);
        check(libc::S_IFLNK, None);
    }
}
