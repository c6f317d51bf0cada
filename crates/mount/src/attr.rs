//! Attributes and times between the file system's words and FUSE's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chiton_types::{Attr, Kind, Mode, Refusal, Time};
use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, TimeOrNow};

/// Inode numbers are never used twice, so generations are not needed.
pub(crate) const GENERATION: Generation = Generation(0);

/// What the caller gets for a refusal. The table itself is [`Refusal::errno`].
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
        size: attr.size,
        blocks: attr.allocated.div_ceil(512),
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: file_type(attr.kind),
        perm: attr.mode.0,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 4096,
        flags: 0,
    }
}

fn system_time(time: Time) -> SystemTime {
    let distance = Duration::from_nanos(time.0.unsigned_abs());
    if time.0 >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

/// A time that the kernel sent.
pub(crate) fn time(at: SystemTime) -> Time {
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => Time::from_parts(after.as_secs().try_into().unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            // The kernel counts nanoseconds forward from the second, fuser subtracts them as it does the seconds:
            // -1 s + 999,999,999 ns (a nanosecond before the epoch) arrives as 1.999,999,999 s before it.
            let raw = before.duration();
            Time::from_parts(0i64.saturating_sub_unsigned(raw.as_secs()), raw.subsec_nanos())
        }
    }
}

/// What utimens(2) asked for.
pub(crate) fn set_time(asked: TimeOrNow) -> chiton_namespace::SetTime {
    match asked {
        TimeOrNow::Now => chiton_namespace::SetTime::Now,
        TimeOrNow::SpecificTime(at) => chiton_namespace::SetTime::At(time(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_pass_on_both_sides_of_the_epoch() {
        // What the kernel sends, in seconds and nanoseconds, goes through fuser's conversion first.
        let check = |secs: i64, nanos: u32| {
            let from_fuser = if secs >= 0 {
                UNIX_EPOCH + Duration::new(secs as u64, nanos)
            } else {
                UNIX_EPOCH - Duration::new(secs.unsigned_abs(), nanos)
            };
            assert_eq!(time(from_fuser), Time::from_parts(secs, nanos), "{secs} {nanos}");
        };
        check(0, 0);
        check(1_700_000_000, 1);
        check(-1, 999_999_999);
        check(-1, 0);
        check(-5, 500_000_000);
        assert_eq!(system_time(Time(-1)), UNIX_EPOCH - Duration::from_nanos(1));
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
