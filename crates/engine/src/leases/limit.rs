//! The limit of the table: the oldest leases are recalled, never dropped.

use std::time::Duration;

use chiton_types::Ino;
use chiton_wire::LeaseMode;

use super::Leases;
use crate::sessions::Slot;

impl Leases {
    /// Recalls the oldest leases while there are too many.
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
            if self.mode.holder() == Some(slot) && self.forget_exception(ino, slot) {
                // Where nothing is noted it counts as holding everything: nobody has to be asked.
                excess -= 1;
                continue;
            }
            let held = self.table.get(&ino).is_some_and(|holds| holds.iter().any(|h| h.slot == slot));
            if held && self.live.contains(&slot) {
                self.recalls.send(ino, slot, LeaseMode::None, mono);
                excess -= 1;
            }
        }
    }

    /// That the session which holds everything does not hold this is no longer noted. True if it was.
    fn forget_exception(&mut self, ino: Ino, universal: Slot) -> bool {
        let Some(holds) = self.table.get_mut(&ino) else { return false };
        let before = holds.len();
        holds.retain(|hold| hold.slot != universal || hold.mode > LeaseMode::None);
        let is_forgotten = holds.len() < before;
        if holds.is_empty() {
            self.table.remove(&ino);
        }
        self.entry_count -= usize::from(is_forgotten);
        is_forgotten
    }
}
