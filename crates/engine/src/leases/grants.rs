//! Grants: which lease a session is given, and when nobody is given any.

use std::time::Duration;

use chiton_types::Ino;
use chiton_wire::LeaseMode;

use super::mode::Change;
use super::{EVERYTHING, Leases};
use crate::sessions::Slot;

/// For how long no leases are given after the last look at those in a subtree that a client is decoupling.
const FREEZE: Duration = Duration::from_secs(1);

impl Leases {
    /// Gives a lease if nothing is in the way; returns what the session has now. `asked`: by a request for a lease
    /// or as the maker, not in passing.
    pub(crate) fn grant(
        &mut self,
        ino: Ino,
        slot: Slot,
        mode: LeaseMode,
        asked: bool,
        mono: Duration,
    ) -> LeaseMode {
        if self.is_paused(mono) {
            return LeaseMode::None;
        }
        if self.is_alone(slot) {
            return LeaseMode::Exclusive;
        }
        if !self.live.contains(&slot) {
            return LeaseMode::None;
        }
        let held = self.mode(ino, slot);
        if !asked {
            // Being recalled, waited for, or fought over: the client must not cache the answer.
            let being_recalled = self.recalls.has(ino);
            let fought_over =
                !self.contended.is_empty() && self.contended.get(&ino).is_some_and(|&until| mono < until);
            if being_recalled || self.waiting.contains_key(&ino) || (fought_over && held == LeaseMode::None) {
                return LeaseMode::None;
            }
        }
        if held >= mode {
            return held;
        }
        let others = self.strongest_of_others(ino, slot);
        if others == LeaseMode::Exclusive || (mode == LeaseMode::Exclusive && others > LeaseMode::None) {
            return held;
        }
        self.set(ino, slot, mode);
        self.order.push_back((ino, slot));
        mode
    }

    /// Gives a shared lease with content that is read, also where it is fought over: a kernel keeps pages, and shows them to
    /// programs that map or send the file, until it is notified of a change.
    pub(crate) fn grant_read(&mut self, ino: Ino, slot: Slot, mono: Duration) -> LeaseMode {
        if self.recalls.has(ino) || self.waiting.contains_key(&ino) {
            return LeaseMode::None;
        }
        self.grant(ino, slot, LeaseMode::Shared, true, mono)
    }

    /// Gives a session a lease on an inode that it has made, of which nobody else can have heard; returns the lease.
    pub(crate) fn grant_born(&mut self, ino: Ino, slot: Slot, mode: LeaseMode, mono: Duration) -> LeaseMode {
        if self.mode.holder().is_none_or(|holder| holder == slot)
            || self.table.contains_key(&ino)
            || self.is_paused(mono)
            || !self.live.contains(&slot)
        {
            return self.grant(ino, slot, mode, true, mono);
        }
        // The one that holds everything does not hold this.
        self.set(ino, slot, mode);
        self.order.push_back((ino, slot));
        mode
    }

    /// A request waits for the leases in a subtree: no new ones are given for a while.
    pub(crate) fn freeze(&mut self, mono: Duration) {
        if mono >= self.frozen_until {
            self.change(Change::LeasesGiven);
        }
        self.frozen_until = mono + FREEZE;
    }

    /// They are given again.
    pub(crate) fn thaw(&mut self) {
        self.frozen_until = Duration::ZERO;
        self.change(Change::LeasesGiven);
    }

    /// Whether nobody is given any lease.
    pub(super) fn is_paused(&self, mono: Duration) -> bool {
        mono < self.frozen_until || self.recalls.has(EVERYTHING)
    }
}
