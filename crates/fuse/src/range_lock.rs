//! Locks between the kernel's words and ours.

use chiton_fuse_session::{FileHandle, LockAsked, LockOwner};
use chiton_types::{Ino, Refusal};
use chiton_wire::{Lock, LockKind};

/// The kernel's "to the end of the file".
const KERNEL_END: u64 = i64::MAX as u64;

/// A lock from the kernel's request through an open file. A flock(2) lock belongs to that open file, and covers the whole of it,
/// whatever owner and range the request has.
///
/// # Errors
/// [`Refusal::Invalid`] for a kind, or a range, that does not exist.
pub(crate) fn of(ino: Ino, fh: FileHandle, asked: &LockAsked) -> Result<Lock, Refusal> {
    let kind = match asked.kind {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(Refusal::Invalid),
    };
    let whole = LockAsked { owner: LockOwner(fh.0), start: 0, end: KERNEL_END, ..*asked };
    let LockAsked { owner, is_flock: flock, start, end, pid, .. } =
        if asked.is_flock { whole } else { *asked };
    let end = if end >= KERNEL_END { u64::MAX } else { end };
    if start > end {
        return Err(Refusal::Invalid);
    }
    Ok(Lock { ino, flock, owner: owner.0, start, end, kind, pid })
}

/// Everything of one sort that `owner` may hold on a file, to be dropped.
pub(crate) fn all_of(ino: Ino, flock: bool, owner: u64) -> Lock {
    Lock { ino, flock, owner, start: 0, end: u64::MAX, kind: LockKind::Unlock, pid: 0 }
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
        let asked = |is_flock, start, end, kind| LockAsked {
            owner: LockOwner(2),
            is_flock,
            start,
            end,
            kind,
            pid: 3,
        };
        let check = |is_flock: bool, start: u64, end: u64, expect: Result<(u64, u64), Refusal>| {
            let lock = of(Ino(1), FileHandle(4), &asked(is_flock, start, end, libc::F_WRLCK));
            assert_eq!(lock.map(|lock| (lock.start, lock.end)), expect, "{start}..={end}");
            assert!(lock.is_ok_and(|lock| lock.flock) == (is_flock && expect.is_ok()));
            assert!(lock.is_err() || lock.is_ok_and(|lock| lock.owner == if is_flock { 4 } else { 2 }));
        };
        check(false, 0, 9, Ok((0, 9)));
        check(false, 0, KERNEL_END, Ok((0, u64::MAX)));
        check(false, 5, u64::MAX, Ok((5, u64::MAX)));
        check(false, 5, 4, Err(Refusal::Invalid));
        check(true, 5, 4, Ok((0, u64::MAX)));
        assert_eq!(of(Ino(1), FileHandle(4), &asked(false, 0, 1, 77)), Err(Refusal::Invalid));
        assert_eq!(kernel_end(u64::MAX), KERNEL_END);
    }
}
