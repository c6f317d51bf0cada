//! Recalls: which sessions are asked for which leases, until they acknowledge.
//!
//! Invariants:
//! - A lease that is being recalled is not recalled again, unless its holder may keep less.
//! - A number is used once, and only the session that it was sent to can acknowledge it.

use std::collections::BTreeMap;
use std::time::Duration;

use chiton_types::Ino;
use chiton_wire::{LeaseMode, Recall};
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::sessions::Slot;

/// A recall that is out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Out {
    pub(super) ino: Ino,
    slot: Slot,
    pub(super) keep: LeaseMode,
    since: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Recalls {
    out: BTreeMap<u64, Out>,
    by_ino: HashMap<Ino, SmallVec<[u64; 2]>>,
    last: u64,
    /// Recalls that the server is yet to send.
    pub(super) outbox: Vec<(Slot, Recall)>,
}

impl Recalls {
    /// Recalls the lease of a session on an inode down to `keep`.
    pub(super) fn send(&mut self, ino: Ino, slot: Slot, keep: LeaseMode, mono: Duration) {
        let ids = self.by_ino.entry(ino).or_default();
        let is_out = ids.iter().any(|id| {
            let out = &self.out[id];
            out.slot == slot && out.keep <= keep
        });
        if is_out {
            return;
        }
        self.last += 1;
        let id = self.last;
        ids.push(id);
        self.out.insert(id, Out { ino, slot, keep, since: mono });
        self.outbox.push((slot, Recall { id, ino, keep, grown: None }));
    }

    /// A session acknowledges. `None` if it was not asked so (or answers late).
    pub(super) fn take(&mut self, slot: Slot, id: u64) -> Option<Out> {
        if self.out.get(&id)?.slot != slot {
            return None;
        }
        self.forget(id)
    }

    fn forget(&mut self, id: u64) -> Option<Out> {
        let out = self.out.remove(&id)?;
        if let Some(ids) = self.by_ino.get_mut(&out.ino) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_ino.remove(&out.ino);
            }
        }
        Some(out)
    }

    /// A session is gone; returns the inodes whose leases were being recalled from it.
    pub(super) fn forget_all(&mut self, slot: Slot) -> Vec<Ino> {
        let ids: Vec<u64> = self.out.iter().filter(|(_, out)| out.slot == slot).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.forget(id)).map(|out| out.ino).collect()
    }

    /// Whether anything on an inode is being recalled.
    #[inline]
    pub(super) fn has(&self, ino: Ino) -> bool {
        !self.by_ino.is_empty() && self.by_ino.contains_key(&ino)
    }

    /// Whether a session's lease on an inode is being recalled.
    pub(super) fn has_of(&self, ino: Ino, slot: Slot) -> bool {
        self.by_ino.get(&ino).is_some_and(|ids| ids.iter().any(|id| self.out[id].slot == slot))
    }

    /// Sessions that were asked before `since`, each once.
    pub(super) fn overdue(&self, since: Duration) -> Vec<Slot> {
        let mut slots: Vec<Slot> =
            self.out.values().filter(|out| out.since < since).map(|out| out.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// The recalls that a session has not acknowledged.
    pub(super) fn out_to(&self, slot: Slot) -> Vec<Recall> {
        let of_slot = self.out.iter().filter(|(_, out)| out.slot == slot);
        of_slot.map(|(id, out)| Recall { id: *id, ino: out.ino, keep: out.keep, grown: None }).collect()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }
}
