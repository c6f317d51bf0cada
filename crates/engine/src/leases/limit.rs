//! The limit of the table: the oldest leases are recalled, never dropped.

use std::time::Duration;

use chiton_types::Ino;
use chiton_wire::LeaseMode;

use super::{EVERYTHING, Hold, Leases};
use crate::sessions::Slot;

impl Leases {
    /// Recalls the oldest leases while there are too many. If the session that holds everything fills the table with inodes of
    /// which it holds less, because others look at inodes that it might have cached, it is asked once to give up everything.
    pub(crate) fn limit(&mut self, mono: Duration) {
        if self.order.len() > 2 * self.entries_max.max(1024) {
            let table = &self.table;
            self.order.retain(|(ino, slot)| {
                table.get(ino).is_some_and(|holds| holds.iter().any(|h| h.slot == *slot))
            });
        }
        let names_excess = self.names.len().saturating_sub(self.entries_max + self.recalls.len());
        if names_excess > 0 {
            // In the order in which they were made, more or less.
            let dirs: Vec<(Ino, Slot)> = self
                .names
                .iter()
                .take(self.recalls.len() + names_excess)
                .map(|(dir, holder)| (*dir, holder.slot))
                .collect();
            dirs.into_iter().for_each(|(dir, slot)| self.recalls.send(dir, slot, LeaseMode::Shared, mono));
        }
        let mut excess = self.entry_count.saturating_sub(self.entries_max + self.recalls.len());
        while excess > 0 {
            let Some((ino, slot)) = self.order.pop_front() else { return };
            if self.mode.holder() == Some(slot) {
                match self.forget_exception(ino, slot) {
                    Some(true) => excess -= 1,
                    Some(false) => {
                        self.recalls.send(EVERYTHING, slot, LeaseMode::None, mono);
                        self.order.push_front((ino, slot));
                        return;
                    }
                    None => {}
                }
                continue;
            }
            let held = self.table.get(&ino).is_some_and(|holds| holds.iter().any(|h| h.slot == slot));
            if held && self.live.contains(&slot) {
                self.recalls.send(ino, slot, LeaseMode::None, mono);
                excess -= 1;
            }
        }
    }

    /// Of the session that holds everything it is no longer noted that it holds less of this inode. Then it counts as holding nothing if
    /// others have a lease, else everything: so it stays noted (false) if it shares a lease with others. `None` if nothing is noted.
    pub(super) fn forget_exception(&mut self, ino: Ino, universal: Slot) -> Option<bool> {
        let (live, holds) = (&self.live, self.table.get_mut(&ino)?);
        let noted = holds.iter().find(|hold| hold.slot == universal)?.mode;
        let is_other =
            |hold: &Hold| hold.slot != universal && hold.mode > LeaseMode::None && live.contains(&hold.slot);
        if noted > LeaseMode::None && holds.iter().any(is_other) {
            return Some(false);
        }
        holds.retain(|hold| hold.slot != universal);
        if holds.is_empty() {
            self.table.remove(&ino);
        }
        self.entry_count -= 1;
        Some(true)
    }
}
