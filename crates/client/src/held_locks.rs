//! The locks that a session holds, so that they can be declared again to a server that was restarted.
//!
//! Invariants:
//! - Ranges of one owner (of one inode, of one sort) do not overlap.

use chiton_wire::{Lock, LockKind};

/// The locks that this session holds, for its declaration on a new connection.
#[derive(Debug, Default)]
pub(crate) struct HeldLocks(Vec<Lock>);

impl HeldLocks {
    /// A lock was set, changed or dropped: as fcntl(2) has it, the range loses what it was before.
    pub(crate) fn set(&mut self, lock: Lock) {
        let mut next = Vec::with_capacity(self.0.len() + 2);
        for held in self.0.drain(..) {
            let same = held.ino == lock.ino && held.flock == lock.flock && held.owner == lock.owner;
            if !same || held.end < lock.start || lock.end < held.start {
                next.push(held);
                continue;
            }
            if held.start < lock.start {
                next.push(Lock { end: lock.start - 1, ..held });
            }
            if lock.end < held.end {
                next.push(Lock { start: lock.end + 1, ..held });
            }
        }
        if lock.kind != LockKind::Unlock {
            next.push(lock);
        }
        self.0 = next;
    }

    pub(crate) fn all(&self) -> Vec<Lock> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chiton_types::Ino;

    #[test]
    fn ranges_are_cut_out() {
        let lock =
            |owner, start, end, kind| Lock { ino: Ino(5), flock: false, owner, start, end, kind, pid: 1 };
        let mut held = HeldLocks::default();
        held.set(lock(1, 0, 99, LockKind::Write));
        held.set(lock(2, 0, u64::MAX, LockKind::Read));
        held.set(lock(1, 10, 19, LockKind::Unlock));
        held.set(lock(1, 50, 99, LockKind::Read));
        held.set(lock(2, 0, u64::MAX, LockKind::Unlock));
        let mut ranges: Vec<_> = held.all().iter().map(|l| (l.owner, l.start, l.end, l.kind as u8)).collect();
        ranges.sort_unstable();
        assert_eq!(ranges, [(1, 0, 9, 2), (1, 20, 49, 2), (1, 50, 99, 1)]);
    }
}
