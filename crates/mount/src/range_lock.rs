//! Locks between the kernel's words and ours.
//!
//! fuser does not say whether a lock is flock(2)'s or fcntl(2)'s. Both are taken as ranges with an owner (an open
//! file, or a process), as NFS does: so they conflict with each other.

use chiton_proto::{Lock, LockKind};
use chiton_types::{Ino, Refusal};

/// The kernel's "to the end of the file".
const KERNEL_END: u64 = i64::MAX as u64;

/// A lock as the kernel asks for it; `end` is inclusive.
///
/// # Errors
/// [`Refusal::Invalid`] for a kind that there is not.
pub(crate) fn of(ino: Ino, owner: u64, start: u64, end: u64, kind: i32, pid: u32) -> Result<Lock, Refusal> {
    let kind = match kind {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(Refusal::Invalid),
    };
    let end = if end >= KERNEL_END { u64::MAX } else { end };
    if start > end {
        return Err(Refusal::Invalid);
    }
    Ok(Lock { ino, flock: false, owner, start, end, kind, pid })
}

/// Everything that `owner` may hold on a file, to be dropped.
pub(crate) fn all_of(ino: Ino, owner: u64) -> Lock {
    Lock { ino, flock: false, owner, start: 0, end: u64::MAX, kind: LockKind::Unlock, pid: 0 }
}

pub(crate) fn kernel_end(end: u64) -> u64 {
    end.min(KERNEL_END)
}

pub(crate) fn kernel_kind(kind: LockKind) -> i32 {
    match kind {
        LockKind::Unlock => libc::F_UNLCK,
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_to_the_end_have_no_end() {
        let check = |start: u64, end: u64, expect: Result<u64, Refusal>| {
            let lock = of(Ino(1), 2, start, end, libc::F_WRLCK, 3);
            assert_eq!(lock.map(|lock| lock.end), expect, "{start}..={end}");
        };
        check(0, 9, Ok(9));
        check(0, KERNEL_END, Ok(u64::MAX));
        check(5, u64::MAX, Ok(u64::MAX));
        check(5, 4, Err(Refusal::Invalid));
        assert_eq!(of(Ino(1), 2, 0, 1, 77, 3), Err(Refusal::Invalid));
        assert_eq!(kernel_end(u64::MAX), KERNEL_END);
    }
}
