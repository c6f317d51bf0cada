//! Leases on the names of a directory: the holder may change them before it says so.

use std::time::Duration;

use chiton_types::{Ino, Time};
use chiton_wire::LeaseMode;
use smallvec::SmallVec;

use super::{Leases, Named};
use crate::sessions::Slot;

impl Leases {
    /// A session that can be asked for leases has made a directory at `since`, and things in it: it holds its names. Nobody
    /// else can have heard of it yet.
    pub(crate) fn born_with_names(&mut self, dir: Ino, slot: Slot, since: Time) {
        if !self.live.contains(&slot) {
            return;
        }
        if self.mode.holder() != Some(slot) {
            self.set(dir, slot, LeaseMode::Shared);
            self.order.push_back((dir, slot));
        }
        self.names.insert(dir, Named { slot, since });
    }

    /// Whether anybody holds the names of any directory.
    #[inline]
    pub(crate) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Gives a session the names of a directory, if nobody else holds anything on it, or wants to.
    pub(crate) fn grant_names(&mut self, dir: Ino, slot: Slot, (now, mono): (Time, Duration)) -> bool {
        let is_wanted = self.waiting.contains_key(&dir)
            || self.recalls.has(dir)
            || self.contended.get(&dir).is_some_and(|&until| mono < until);
        if is_wanted || self.strongest_of_others(dir, slot) > LeaseMode::None {
            return false;
        }
        if self.grant(dir, slot, LeaseMode::Shared, true, mono) < LeaseMode::Shared {
            return false;
        }
        if self.mode(dir, slot) < LeaseMode::Shared {
            // One that is alone is given no entry, and may have one from before.
            self.set(dir, slot, LeaseMode::Shared);
        }
        // A client that asks for more numbers may have pending operations from earlier, so its lease keeps its beginning.
        let since = self.names_since(dir, slot).unwrap_or(now);
        self.names.insert(dir, Named { slot, since });
        true
    }

    /// Whether the session holds the names of a directory.
    #[inline]
    pub(crate) fn holds_names(&self, dir: Ino, slot: Slot) -> bool {
        self.names_since(dir, slot).is_some()
    }

    /// Since when the session holds the names of a directory, if it does.
    pub(crate) fn names_since(&self, dir: Ino, slot: Slot) -> Option<Time> {
        self.names.get(&dir).filter(|holder| holder.slot == slot).map(|holder| holder.since)
    }

    /// Whether `slot` must wait before it looks at a directory: another client holds its names, and is asked to send its pending
    /// operations.
    #[inline]
    pub(crate) fn names_conflict(&mut self, dir: Ino, slot: Slot, mono: Duration) -> bool {
        !self.names.is_empty()
            && self.names.get(&dir).is_some_and(|holder| holder.slot != slot)
            && self.conflict(dir, slot, LeaseMode::Shared, mono)
    }

    /// The same before it changes a name there: the other gives back all that it holds on the directory.
    #[inline]
    pub(crate) fn names_taken(&mut self, dir: Ino, slot: Slot, mono: Duration) -> bool {
        !self.names.is_empty()
            && self.names.get(&dir).is_some_and(|holder| holder.slot != slot)
            && self.conflict(dir, slot, LeaseMode::None, mono)
    }

    /// Directories whose names clients hold: all these clients are asked to send their pending operations.
    pub(crate) fn any_names_conflict(&mut self, mono: Duration) -> SmallVec<[Ino; 4]> {
        let dirs: SmallVec<[Ino; 4]> = self.names.keys().copied().collect();
        dirs.into_iter().filter(|dir| self.conflict(*dir, Slot::SERVER, LeaseMode::Shared, mono)).collect()
    }
}
