//! Sessions that come and go: which of them hold leases, and which one holds everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chiton_types::{Ino, Time};
use chiton_wire::LeaseMode;

use super::Leases;
use super::mode::Change;
use crate::sessions::Slot;

impl Leases {
    /// A session can be asked to give leases back from now on. Before, it is given none.
    pub(crate) fn join(&mut self, slot: Slot) {
        if self.live.is_empty() {
            self.change(Change::FirstJoined(slot));
        }
        self.come(slot);
    }

    /// As [`Leases::join`], while sessions come back after a restart: the first one does not hold everything,
    /// or the resends of the others would have to wait for it, out of their order.
    pub(crate) fn rejoin(&mut self, slot: Slot) {
        self.change(Change::Rejoined);
        self.come(slot);
    }

    fn come(&mut self, slot: Slot) {
        self.live.insert(slot);
        self.is_shared.store(self.live.len() > 1, Ordering::Relaxed);
    }

    /// A session of before a restart has content in these files that it has not pushed, and has changed names in these
    /// directories before it said so: it is their holder until it gives them back. None need be there yet: their births may
    /// be sent again later.
    pub(crate) fn declare(&mut self, slot: Slot, dirty: &[Ino], dirs: &[Ino], since: Time) {
        for &ino in dirty {
            // A second holder cannot be, but by a defect of a client: its push is refused.
            if self.other_writer(ino, slot).is_none() {
                self.set(ino, slot, LeaseMode::Exclusive);
                self.order.push_back((ino, slot));
            }
        }
        for &dir in dirs {
            if self.names.get(&dir).is_none_or(|holder| holder.slot == slot) {
                self.born_with_names(dir, slot, since);
            }
        }
    }

    /// No more sessions come back, and their resends are done.
    pub(crate) fn all_back(&mut self) {
        self.change(Change::AllBack);
        let only = self.live.first().copied();
        if self.table.values().flatten().all(|hold| Some(hold.slot) == only) {
            self.only_one();
        }
    }

    /// A session went; returns the inodes that requests wait for and that it may have held up.
    pub(crate) fn leave(&mut self, slot: Slot) -> Vec<Ino> {
        if !self.live.remove(&slot) {
            return Vec::new();
        }
        self.is_shared.store(self.live.len() > 1, Ordering::Relaxed);
        self.change(Change::Released(slot));
        self.names.retain(|_, holder| holder.slot != slot);
        let mut freed = self.recalls.forget_all(slot);
        self.only_one();
        freed.retain(|ino| self.waiting.contains_key(ino));
        freed.sort_unstable();
        freed.dedup();
        freed
    }

    /// If there is one session only, it holds everything: nobody else holds anything.
    pub(super) fn only_one(&mut self) {
        let only = self.live.first().copied().filter(|_| self.live.len() == 1 && self.recalls.is_empty());
        if let Some(only) = only.filter(|_| self.mode.lets_one_hold_all()) {
            self.table.clear();
            self.order.clear();
            self.entry_count = 0;
            self.change(Change::Alone(only));
        }
    }

    /// Whether anything is decoupled. While it is, nobody holds everything; after a start nobody does anyway.
    pub(crate) fn decoupled(&mut self, is_decoupled: bool) {
        self.change(if is_decoupled { Change::DecouplingBegun } else { Change::DecouplingsEnded });
        self.only_one();
    }

    /// Whether sessions share the file system, now and later.
    pub(crate) fn is_shared(&self) -> Arc<AtomicBool> {
        self.is_shared.clone()
    }

    /// A session has nothing buffered and no pending operations. It still counts as caching all that it might cache, which may be
    /// more than it does.
    pub(super) fn hand_over(&mut self, slot: Slot) {
        self.names.retain(|_, holder| holder.slot != slot);
        self.change(Change::HandedOver(slot));
    }

    /// A session holds nothing any more.
    pub(super) fn give_up(&mut self, slot: Slot) {
        self.change(Change::Released(slot));
        self.names.retain(|_, holder| holder.slot != slot);
        let mut left = 0;
        self.table.retain(|_, holds| {
            holds.retain(|hold| hold.slot != slot);
            left += holds.len();
            !holds.is_empty()
        });
        self.entry_count = left;
    }
}
