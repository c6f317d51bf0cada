//! POSIX locks of one inode: ranges with owners, split and merged as fcntl(2) says.
//!
//! Invariants: ranges of one owner do not overlap; adjacent ones of the same kind are merged; ends are inclusive.

use chiton_wire::LockKind;

use crate::locks::Owner;
use crate::sessions::Slot;

/// A range of a file that an owner has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) owner: Owner,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: LockKind,
    pub(crate) pid: u32,
}

/// The locked ranges of one file.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    held: Vec<Held>,
}

impl Ranges {
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Ranges of others that conflict with `start..=end`.
    pub(crate) fn conflicts(
        &self,
        owner: Owner,
        start: u64,
        end: u64,
        kind: LockKind,
    ) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |held| {
            let overlaps = held.start <= end && start <= held.end;
            let exclusive = kind == LockKind::Write || held.kind == LockKind::Write;
            held.owner != owner && overlaps && exclusive && kind != LockKind::Unlock
        })
    }

    /// The conflicting range that begins first.
    pub(crate) fn conflict(&self, owner: Owner, start: u64, end: u64, kind: LockKind) -> Option<&Held> {
        self.conflicts(owner, start, end, kind).min_by_key(|held| (held.start, held.owner))
    }

    /// Replaces what the owner holds in `start..=end` by `kind`.
    pub(crate) fn set(&mut self, owner: Owner, start: u64, end: u64, kind: LockKind, pid: u32) {
        let mut new = Held { owner, start, end, kind, pid };
        let mut rest = Vec::new();
        self.held.retain(|held| {
            if held.owner != owner {
                return true;
            }
            let adjacent = held.end.checked_add(1) == Some(start) || end.checked_add(1) == Some(held.start);
            let overlaps = held.start <= end && start <= held.end;
            if held.kind == kind && (adjacent || overlaps) {
                new.start = new.start.min(held.start);
                new.end = new.end.max(held.end);
                return false;
            }
            if !overlaps {
                return true;
            }
            if held.start < start {
                rest.push(Held { end: start - 1, ..*held });
            }
            if held.end > end {
                rest.push(Held { start: end + 1, ..*held });
            }
            false
        });
        self.held.append(&mut rest);
        if kind != LockKind::Unlock {
            self.held.push(new);
        }
    }

    /// Drops all of a session.
    pub(crate) fn drop_slot(&mut self, slot: Slot) {
        self.held.retain(|held| held.owner.slot != slot);
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.iter()
    }
}
