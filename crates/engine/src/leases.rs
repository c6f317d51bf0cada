//! Leases on inodes, which let sessions cache them, and their recalls.
//!
//! ```text
//!   change by B ── A holds a lease? ──▶ recall to A ── A gives it back ──▶ B is tried again
//!                       │ no
//!                       ▼ carried out
//! ```
//!
//! Invariants:
//! - A change is carried out only when no other session holds a lease on an inode that it touches.
//! - While a request waits for an inode, no new lease on it is granted unasked; the recalled holder's own
//!   requests are not held up, so it can write back what it has.
//! - After a restart a session holds what it declares that it has not handed over ([`Leases::declare`]), and nothing else.
//! - A lease that was forgotten here but not given back cannot exist: the table's limit recalls, it does not drop.
//! - A client holds the names of a directory exclusively only if it asked for them. No other client holds anything on the
//!   directory then. Another client that looks at it waits until the holder has sent its pending operations there.
//! - The only session there is holds everything without a table ([`Mode::Holder`]). When a second one comes, the first
//!   keeps that: an inode on which nobody has an entry counts as held by it, so the worst is one recall too many. Where
//!   others have one it holds what its own says, and without one nothing.
//!
//! A client must treat a lease that is granted by an answer to a request as void if a recall for that inode came
//! while the request was under way: answer and recall travel on two connections.

mod grants;
mod limit;
mod mode;
mod names;
mod recalls;
mod sessions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use chiton_types::{Ino, Time};
use chiton_wire::{LeaseMode, Recall};
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::leases::mode::{Change, Mode};
use crate::leases::recalls::Recalls;
use crate::sessions::Slot;

/// Stands for all inodes in a recall: the session that holds everything gives all up.
pub(crate) const EVERYTHING: Ino = Recall::EVERYTHING;
/// Most recalls that are out while more are sent only because a client looked.
const DOWNGRADES_MAX: usize = 4_096;

/// The holder of the names of a directory, and since when by the server's clock.
#[derive(Clone, Copy, Debug)]
struct Named {
    slot: Slot,
    since: Time,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    slot: Slot,
    mode: LeaseMode,
}

#[derive(Debug)]
pub(crate) struct Leases {
    table: HashMap<Ino, SmallVec<[Hold; 2]>>,
    entry_count: usize,
    entries_max: usize,
    /// How long after a recall for a change nobody is given a lease unasked: an inode that several sessions change
    /// would else cost a recall for each change.
    rest: Duration,
    /// Grants in order, to find the oldest. Some are no longer true.
    order: VecDeque<(Ino, Slot)>,
    /// Exclusive holders of directories' names, beside the entries of the table.
    names: BTreeMap<Ino, Named>,
    live: BTreeSet<Slot>,
    /// Whether there is more than one: the clients in this process look at it.
    is_shared: Arc<AtomicBool>,
    /// Whether one session holds all that is not in the table.
    mode: Mode,
    recalls: Recalls,
    waiting: HashMap<Ino, u32>,
    contended: HashMap<Ino, Duration>,
    /// No new leases until then.
    frozen_until: Duration,
}

impl Leases {
    /// A table of at most about `entries_max` leases; `rest`: see the field.
    pub(crate) fn new(entries_max: usize, rest: Duration) -> Leases {
        Leases {
            table: HashMap::new(),
            entry_count: 0,
            entries_max,
            rest,
            order: VecDeque::new(),
            names: BTreeMap::new(),
            live: BTreeSet::new(),
            is_shared: Arc::default(),
            mode: Mode::Open,
            recalls: Recalls::default(),
            waiting: HashMap::new(),
            contended: HashMap::new(),
            frozen_until: Duration::ZERO,
        }
    }

    fn change(&mut self, change: Change) {
        self.mode = self.mode.after(change);
    }

    /// Asks the session that holds everything to give all of it up; or, if it may keep shared leases, to hand over what
    /// it has buffered, while no new leases are given. False if nobody is to be waited for.
    pub(crate) fn recall_everything(&mut self, keep: LeaseMode, mono: Duration) -> bool {
        let wanted = match keep {
            LeaseMode::None => self.mode.holder(),
            LeaseMode::Shared | LeaseMode::Exclusive => self.mode.buffering_holder(),
        };
        if let Some(holder) = wanted {
            self.recalls.send(EVERYTHING, holder, keep, mono);
        }
        wanted.is_some()
    }

    /// Asks this session to give everything up, if it is the one that holds everything.
    pub(crate) fn recall_everything_of(&mut self, slot: Slot, mono: Duration) {
        if self.mode.holder() == Some(slot) {
            self.recalls.send(EVERYTHING, slot, LeaseMode::None, mono);
        }
    }

    /// Inodes on which there may be leases stronger than this, in order.
    pub(crate) fn held(&self, than: LeaseMode) -> Vec<Ino> {
        let is_stronger = |holds: &[Hold]| holds.iter().any(|hold| hold.mode > than);
        let held = self.table.iter().filter(|(_, holds)| is_stronger(holds)).map(|(ino, _)| *ino);
        let mut held: Vec<Ino> = held.collect();
        if than < LeaseMode::Exclusive {
            held.extend(self.names.keys());
        }
        held.sort_unstable();
        held.dedup();
        held
    }

    /// True if no other session can hold anything, and this one holds everything: it was asked to give nothing back.
    #[inline]
    pub(crate) fn is_alone(&self, slot: Slot) -> bool {
        self.live.len() == 1
            && self.mode.holder() == Some(slot)
            && self.table.is_empty()
            && self.recalls.is_empty()
    }

    /// The lease of a session on an inode.
    pub(crate) fn mode(&self, ino: Ino, slot: Slot) -> LeaseMode {
        let holds = self.table.get(&ino);
        if let Some(hold) = holds.and_then(|holds| holds.iter().find(|h| h.slot == slot)) {
            return hold.mode;
        }
        if self.mode.holder() == Some(slot) && !holds.is_some_and(|holds| self.is_held(holds)) {
            return LeaseMode::Exclusive;
        }
        LeaseMode::None
    }

    /// Whether any of those who are there holds something.
    fn is_held(&self, holds: &[Hold]) -> bool {
        holds.iter().any(|hold| hold.mode > LeaseMode::None && self.live.contains(&hold.slot))
    }

    /// The strongest lease that another session has on an inode.
    fn strongest_of_others(&self, ino: Ino, slot: Slot) -> LeaseMode {
        let mut strongest = LeaseMode::None;
        self.each_other(ino, slot, |_, mode| strongest = strongest.max(mode));
        strongest
    }

    /// Whether another session may have changed an inode and not said so.
    pub(crate) fn is_written(&self, ino: Ino, slot: Slot) -> bool {
        self.strongest_of_others(ino, slot) == LeaseMode::Exclusive
    }

    /// Another session that was given an exclusive lease on this inode. (One that holds everything was not given this one.)
    pub(crate) fn other_writer(&self, ino: Ino, slot: Slot) -> Option<Slot> {
        let mut others = self.table.get(&ino)?.iter().filter(|hold| hold.slot != slot);
        others
            .find(|hold| hold.mode == LeaseMode::Exclusive && self.live.contains(&hold.slot))
            .map(|h| h.slot)
    }

    /// Whether others were given a lease on this inode. (One that holds everything was not given this one.)
    pub(crate) fn others_have(&self, ino: Ino, slot: Slot) -> bool {
        let is_other =
            |hold: &Hold| hold.slot != slot && hold.mode > LeaseMode::None && self.live.contains(&hold.slot);
        self.table.get(&ino).is_some_and(|holds| holds.iter().any(is_other))
    }

    fn each_other(&self, ino: Ino, slot: Slot, mut visit: impl FnMut(Slot, LeaseMode)) {
        let holds = self.table.get(&ino);
        let mut holder = self.mode.holder().filter(|u| *u != slot);
        if holds.is_some_and(|holds| self.is_held(holds)) {
            // It has an entry like the others, or nothing.
            holder = None;
        }
        let names = if self.names.is_empty() { None } else { self.names.get(&ino).map(|holder| holder.slot) };
        for hold in holds.into_iter().flatten() {
            if holder == Some(hold.slot) {
                holder = None;
            }
            if hold.slot != slot && hold.mode > LeaseMode::None && self.live.contains(&hold.slot) {
                visit(hold.slot, if names == Some(hold.slot) { LeaseMode::Exclusive } else { hold.mode });
            }
        }
        if let Some(holder) = holder {
            visit(holder, LeaseMode::Exclusive);
        }
    }

    /// Whether `slot` must wait before it does something that leaves others at most `keep` on `ino`. Recalls are
    /// put into the outbox, once each.
    pub(crate) fn conflict(&mut self, ino: Ino, slot: Slot, keep: LeaseMode, mono: Duration) -> bool {
        let mut holders: SmallVec<[Slot; 4]> = SmallVec::new();
        self.each_other(ino, slot, |holder, mode| {
            if mode > keep {
                holders.push(holder);
            }
        });
        if holders.is_empty() {
            return false;
        }
        // One that holds everything has not asked for this.
        if keep == LeaseMode::None && self.table.contains_key(&ino) {
            self.contended.insert(ino, mono + self.rest);
        }
        for holder in holders {
            self.recalls.send(ino, holder, keep, mono);
        }
        true
    }

    /// A session gave a lease back; returns the inode. `None` if it was not asked to (or answers late).
    pub(crate) fn acknowledge(&mut self, slot: Slot, id: u64) -> Option<Ino> {
        let out = self.recalls.take(slot, id)?;
        if out.ino == EVERYTHING {
            match out.keep {
                LeaseMode::None => self.give_up(slot),
                _ => self.hand_over(slot),
            }
            return Some(out.ino);
        }
        if self.holds_names(out.ino, slot) {
            self.names.remove(&out.ino);
        }
        let mode = self.mode(out.ino, slot).min(out.keep);
        self.set(out.ino, slot, mode);
        if self.mode.holder() == Some(slot) {
            // The table now notes that it holds less of this inode: the limit counts the note as it counts a lease.
            self.order.push_back((out.ino, slot));
        }
        if self.mode.holder() == Some(slot) && self.waiting.is_empty() {
            // The last that it was asked for while there were others. (A client that waits and cannot hold anything yet
            // would else find it held again.)
            self.only_one();
        }
        Some(out.ino)
    }

    /// Stores what a session holds.
    fn set(&mut self, ino: Ino, slot: Slot, mode: LeaseMode) {
        // Of the holder of everything the exceptions are stored, of all others what they hold.
        let store = self.mode.holder() == Some(slot) || mode > LeaseMode::None;
        let live = &self.live;
        let holds = self.table.entry(ino).or_default();
        let before = holds.len();
        holds.retain(|h| h.slot != slot && live.contains(&h.slot));
        if store {
            holds.push(Hold { slot, mode });
        }
        let after = holds.len();
        if after == 0 {
            self.table.remove(&ino);
        }
        self.entry_count = self.entry_count + after - before;
    }

    /// Asks the session that keeps others from a shared lease on an inode to downgrade its own to shared, and does not wait:
    /// another session that looks again can be given one. Does not ask a session that has the inode open, which would want
    /// the lease back, nor where the inode is fought over.
    pub(crate) fn downgrade_idle(
        &mut self,
        ino: Ino,
        slot: Slot,
        mono: Duration,
        is_open: impl Fn(Slot) -> bool,
    ) {
        let is_busy = self.recalls.len() >= DOWNGRADES_MAX
            || self.is_paused(mono)
            || !self.live.contains(&slot)
            || self.recalls.has(ino)
            || self.waiting.contains_key(&ino)
            || self.contended.get(&ino).is_some_and(|&until| mono < until);
        if is_busy {
            return;
        }
        let mut holders: SmallVec<[Slot; 4]> = SmallVec::new();
        self.each_other(ino, slot, |holder, mode| {
            if mode > LeaseMode::Shared {
                holders.push(holder);
            }
        });
        if !holders.iter().any(|holder| is_open(*holder)) {
            holders.into_iter().for_each(|holder| self.recalls.send(ino, holder, LeaseMode::Shared, mono));
        }
    }

    /// The inode is gone.
    pub(crate) fn forget(&mut self, ino: Ino) {
        self.names.remove(&ino);
        if let Some(holds) = self.table.remove(&ino) {
            self.entry_count -= holds.len();
        }
    }

    /// A request waits for the inode.
    pub(crate) fn wait(&mut self, ino: Ino) {
        *self.waiting.entry(ino).or_default() += 1;
    }

    /// A request waits no longer.
    pub(crate) fn wait_ended(&mut self, ino: Ino) {
        if let Some(n) = self.waiting.get_mut(&ino) {
            *n -= 1;
            if *n == 0 {
                self.waiting.remove(&ino);
            }
        }
    }

    /// True if a lease of this session on the inode is being recalled.
    pub(crate) fn is_recalled(&self, ino: Ino, slot: Slot) -> bool {
        self.recalls.has_of(ino, slot)
    }

    /// True if anybody waits for the inode.
    pub(crate) fn is_wanted(&self, ino: Ino) -> bool {
        self.waiting.contains_key(&ino)
    }

    /// Sessions that have not given back a lease that they were asked for before `since`, each once.
    pub(crate) fn overdue(&mut self, since: Duration, now: Duration) -> Vec<Slot> {
        self.contended.retain(|_, until| *until > now);
        self.recalls.overdue(since)
    }

    /// True if nobody holds any lease.
    pub(crate) fn is_nobodys(&self) -> bool {
        self.table.is_empty() && self.mode.holder().is_none()
    }

    /// Leases in the table.
    pub(crate) fn len(&self) -> usize {
        self.entry_count
    }

    /// The recalls that a session has not acknowledged.
    pub(crate) fn recalls_out(&self, slot: Slot) -> Vec<Recall> {
        self.recalls.out_to(slot)
    }

    /// Recalls to be sent, each once.
    pub(crate) fn take_recalls(&mut self) -> impl Iterator<Item = (Slot, Recall)> + '_ {
        self.recalls.outbox.drain(..)
    }

    /// Whether there are recalls to be sent.
    #[inline]
    pub(crate) fn has_recalls(&self) -> bool {
        !self.recalls.outbox.is_empty()
    }

    /// Recalls that are out.
    pub(crate) fn recall_count(&self) -> usize {
        self.recalls.len()
    }
}

#[cfg(test)]
mod tests;
