//! File locks: POSIX ranges and BSD whole-file locks, with waiting, fairness and deadlock detection.
//!
//! Invariants:
//! - Held POSIX locks of one owner on one inode do not overlap, and neighbours of the same kind are one.
//! - No two owners hold conflicting locks (overlapping, one of them exclusive). POSIX and BSD locks do not meet.
//! - Waiters are granted in the order in which they came, each as soon as no held lock is in its way. A new request
//!   may pass waiters (as in Linux): making it wait for them could deadlock two readers.
//! - A wait that would close a circle of POSIX waiters is refused.

mod ranges;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chiton_types::Ino;
use chiton_wire::{Lock, LockKind};

use crate::sessions::Slot;
use crate::wait_queue::Ticket;
use ranges::Ranges;

/// Most locks and waiters of one inode.
const LOCKS_MAX: usize = 65_536;

/// The owner of a lock: a session and the owner's name within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) slot: Slot,
    pub(crate) owner: u64,
}

/// The answer to a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The lock is set, or dropped.
    Granted,
    /// Another lock stands in the way, and the caller does not wait.
    Conflict,
    /// Another lock stands in the way, and the caller waits for it.
    Waits,
    /// Waiting would never end.
    Deadlock,
    /// Too many locks on the inode.
    Exhausted,
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    owner: Owner,
    lock: Lock,
}

#[derive(Debug, Default)]
struct File {
    posix: Ranges,
    flock: Vec<(Owner, LockKind, u32)>,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug, Default)]
pub(crate) struct Locks {
    files: BTreeMap<Ino, File>,
    /// Owners that wait for a POSIX lock, and where.
    posix_waits: BTreeMap<Owner, Ino>,
}

impl File {
    /// A held lock of another owner that conflicts.
    fn conflict(&self, owner: Owner, lock: &Lock) -> Option<(Owner, Lock)> {
        if lock.kind == LockKind::Unlock {
            return None;
        }
        if lock.flock {
            let other = |(held, kind, _): &&(Owner, LockKind, u32)| {
                *held != owner && (*kind == LockKind::Write || lock.kind == LockKind::Write)
            };
            let (held, kind, pid) = self.flock.iter().find(other)?;
            return Some((
                *held,
                Lock { owner: held.owner, kind: *kind, pid: *pid, start: 0, end: u64::MAX, ..*lock },
            ));
        }
        let held = self.posix.conflict(owner, lock.start, lock.end, lock.kind)?;
        let found = Lock {
            owner: held.owner.owner,
            kind: held.kind,
            pid: held.pid,
            start: held.start,
            end: held.end,
            ..*lock
        };
        Some((held.owner, found))
    }

    fn set(&mut self, owner: Owner, lock: &Lock) {
        if lock.flock {
            self.flock.retain(|(held, ..)| *held != owner);
            if lock.kind != LockKind::Unlock {
                self.flock.push((owner, lock.kind, lock.pid));
            }
        } else {
            self.posix.set(owner, lock.start, lock.end, lock.kind, lock.pid);
        }
    }

    fn is_empty(&self) -> bool {
        self.posix.is_empty() && self.flock.is_empty() && self.waiters.is_empty()
    }
}

impl Locks {
    /// Sets, changes or drops a lock. Waiters that can continue now are appended to `granted`.
    pub(crate) fn set(
        &mut self,
        owner: Owner,
        lock: &Lock,
        wait: Option<Ticket>,
        granted: &mut Vec<Ticket>,
    ) -> Verdict {
        if lock.kind == LockKind::Unlock && !self.files.contains_key(&lock.ino) {
            return Verdict::Granted;
        }
        let file = self.files.entry(lock.ino).or_default();
        if file.conflict(owner, lock).is_none() {
            if lock.kind != LockKind::Unlock && file.posix.len() + file.flock.len() >= LOCKS_MAX {
                return Verdict::Exhausted;
            }
            file.set(owner, lock);
            self.wake(lock.ino, granted);
            return Verdict::Granted;
        }
        if lock.flock && file.flock.iter().any(|(held, ..)| *held == owner) {
            // A conversion drops the old lock first, as in Linux: two readers that both want to write
            // would else wait for each other for ever.
            file.set(owner, &Lock { kind: LockKind::Unlock, ..*lock });
            self.wake(lock.ino, granted);
        }
        let Some(ticket) = wait else { return Verdict::Conflict };
        if !lock.flock && self.would_deadlock(owner, lock) {
            return Verdict::Deadlock;
        }
        let file = self.files.entry(lock.ino).or_default();
        if file.waiters.len() >= LOCKS_MAX {
            return Verdict::Exhausted;
        }
        file.waiters.push_back(Waiter { ticket, owner, lock: *lock });
        if !lock.flock {
            self.posix_waits.insert(owner, lock.ino);
        }
        Verdict::Waits
    }

    /// The held lock that would conflict.
    pub(crate) fn get(&self, owner: Owner, lock: &Lock) -> Option<Lock> {
        self.files.get(&lock.ino)?.conflict(owner, lock).map(|(_, found)| found)
    }

    /// Follows the waiters from holder to holder, beginning with the holders of the range that `owner` wants.
    fn would_deadlock(&self, owner: Owner, lock: &Lock) -> bool {
        let mut seen = BTreeSet::new();
        let mut todo = self.blockers(owner, lock);
        while let Some(blocker) = todo.pop() {
            if blocker == owner {
                return true;
            }
            if !seen.insert(blocker) {
                continue;
            }
            let Some(ino) = self.posix_waits.get(&blocker) else { continue };
            for waiter in self.files[ino].waiters.iter().filter(|w| w.owner == blocker && !w.lock.flock) {
                todo.extend(self.blockers(blocker, &waiter.lock));
            }
        }
        false
    }

    fn blockers(&self, owner: Owner, lock: &Lock) -> Vec<Owner> {
        let Some(file) = self.files.get(&lock.ino) else { return Vec::new() };
        file.posix.conflicts(owner, lock.start, lock.end, lock.kind).map(|held| held.owner).collect()
    }

    /// Grants what can be granted on `ino`, first come first served.
    fn wake(&mut self, ino: Ino, granted: &mut Vec<Ticket>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let mut n = 0;
        while n < file.waiters.len() {
            let Waiter { owner, lock, .. } = file.waiters[n];
            if file.conflict(owner, &lock).is_some() {
                n += 1;
                continue;
            }
            file.set(owner, &lock);
            let waiter = file.waiters.remove(n).expect("just looked at");
            self.posix_waits.remove(&owner);
            granted.push(waiter.ticket);
            // A change to a weaker lock may let earlier waiters continue.
            n = 0;
        }
        if file.is_empty() {
            self.files.remove(&ino);
        }
    }

    /// Gives up waiting; true if the ticket waited for a lock.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let mut found = None;
        for (ino, file) in &mut self.files {
            if let Some(n) = file.waiters.iter().position(|w| w.ticket == ticket) {
                let waiter = file.waiters.remove(n).expect("just found");
                found = Some((*ino, waiter.owner, waiter.lock.flock));
                break;
            }
        }
        let Some((ino, owner, flock)) = found else { return false };
        if !flock {
            self.posix_waits.remove(&owner);
        }
        if self.files[&ino].is_empty() {
            self.files.remove(&ino);
        }
        true
    }

    /// Drops all of a session; its waiters are forgotten, those of others that can continue are in `granted`.
    pub(crate) fn drop_slot(&mut self, slot: Slot, granted: &mut Vec<Ticket>) {
        self.posix_waits.retain(|owner, _| owner.slot != slot);
        let mut changed = Vec::new();
        for (ino, file) in &mut self.files {
            let before = (file.posix.len(), file.flock.len(), file.waiters.len());
            file.posix.drop_slot(slot);
            file.flock.retain(|(held, ..)| held.slot != slot);
            file.waiters.retain(|waiter| waiter.owner.slot != slot);
            if before != (file.posix.len(), file.flock.len(), file.waiters.len()) {
                changed.push(*ino);
            }
        }
        for ino in changed {
            self.wake(ino, granted);
        }
    }

    /// Ranges that are locked, of all owners.
    pub(crate) fn len(&self) -> usize {
        self.files.values().map(|file| file.posix.len() + file.flock.len()).sum()
    }
}

#[cfg(test)]
mod tests;
