//! Directories that get parts while they have names: whether they may, when the server sees to it, and by which steps.
//!
//! ```text
//!   a ─ 0 ─────────────────────────── max       many names: the last range, as much of it as one step moves
//!   a ─ 0 ────────────────── x ───── max   ─▶   a' has x … max
//!   a ─ 0 ── w ── … ── x ── … ── max       ─▶   in the end each plate has a range as wide, by one or more parts
//! ```
//!
//! Invariants:
//! - A step is one decision at the home: its frame has the list, the birth of the parts, and each name that moves. Until it is durable
//!   no other plate knows of it; requests for the parts wait for their births.
//! - Parts that are there never change their range. The home, which has the first range, gives away the end of it.
//! - Nobody has a lease on the names of the directory when they move, not even the client that asks for it. Afterwards each part lends those
//!   that it has: a lease covers the names in the range at that time, so it ends before the range changes.

use std::collections::VecDeque;

use chiton_model::{HASHES, Op, PartRange};
use chiton_namespace::{Planned, split};
use chiton_policy::Huge;
use chiton_types::{Attr, Capabilities, Cred, Ino, Kind, PlateId, Refusal};
use chiton_wire::Failure;
use hashbrown::HashMap;

use crate::dir_parts::others_from;
use crate::engine::Engine;
use crate::execute::OpCall;
use crate::moment::Moment;
use crate::parts::Shards;
use crate::placement::birth_key;
use crate::sessions::Slot;
use crate::step::{Progress, Stop};
use crate::wait_queue::Wait;

/// About how many names a step moves at most: it holds up other requests.
const MOVED_MAX: u64 = 16 << 10;
/// A directory with fewer names is looked at with each one that is added, another with each such number.
const LOOKED_AT: u64 = 64;
/// Directories that wait to be split, or of which the last client is known.
const REMEMBERED_MAX: usize = 4096;

/// Directories that the server is to split.
#[derive(Debug, Default)]
pub(crate) struct Splits {
    queue: VecDeque<Ino>,
    /// The first of them, if clients are asked for their leases on it: none is granted meanwhile.
    asked: Option<Ino>,
    /// One was added, or the clients have answered.
    is_due: bool,
    /// Of directories with many names, the session that added one when they were looked at last.
    last: HashMap<Ino, Slot>,
}

impl Splits {
    fn add(&mut self, dir: Ino) {
        if self.queue.len() < REMEMBERED_MAX && !self.queue.contains(&dir) {
            self.queue.push_back(dir);
            self.is_due = true;
        }
    }

    /// Whether another session adds names to a directory than when it was looked at last.
    fn has_others(&mut self, dir: Ino, slot: Slot) -> bool {
        if self.last.len() >= REMEMBERED_MAX {
            self.last.clear();
        }
        self.last.insert(dir, slot).is_some_and(|last| last != slot)
    }

    /// A client has acknowledged a recall.
    pub(crate) fn acknowledged(&mut self, ino: Ino) {
        self.is_due |= self.asked == Some(ino);
    }

    /// True, once, if there is work to begin or to resume.
    pub(crate) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }
}

impl Engine {
    /// Plans the next step of splitting a directory, and says which numbers it gives to parts. A directory that is split to the end stays
    /// as it is.
    pub(crate) fn plan_split(
        &mut self,
        call: &OpCall<'_>,
        dir: Ino,
        m: &Moment,
    ) -> Result<(Planned, Vec<Ino>), Stop> {
        self.await_rows(call.op)?;
        if self.is_realm() || self.peers.is_none() {
            return Err(Refusal::Unsupported.into());
        }
        self.shards.may_split(dir, call.cred)?;
        let planned = Planned { subject: Some(dir), ..Planned::default() };
        let mut newborn = Vec::new();
        for (first, plate) in self.shards.next_ranges(dir)? {
            let ino = self.offer_part(plate, birth_key(dir, first), m)?;
            newborn.push(PartRange { first, ino });
        }
        if newborn.is_empty() {
            return Ok((planned, Vec::new()));
        }
        let numbers = newborn.iter().map(|part| part.ino).collect();
        let mut parts = self.shards.ns.parts(dir)?;
        if parts.is_empty() {
            parts.push(PartRange { first: 0, ino: dir });
        }
        let at = 1..1 + newborn.len();
        parts.splice(1..1, newborn);
        split(&self.shards.ns, dir, (parts, at), &mut self.events)?;
        Ok((planned, numbers))
    }

    /// One step of splitting a directory that the server is to split. `None` if there is none.
    pub(crate) fn split_next(&mut self, m: &Moment) -> Option<Progress> {
        let dir = *self.shards.splits.queue.front()?;
        let is_over = match self.shards.next_ranges(dir) {
            Ok(ranges) => ranges.is_empty(),
            Err(Stop::Missing(needs)) => return Some(Progress::NeedRows(needs)),
            Err(_) => true,
        };
        if is_over {
            self.end_split(dir);
            return Some(Progress::More);
        }
        match self.operate_as_server(&Op::Split { dir }, m) {
            Ok(_) => Some(Progress::More),
            Err(Stop::Missing(needs)) => Some(Progress::NeedRows(needs)),
            Err(Stop::Wait(wait)) => {
                if matches!(wait, Wait::Leases(_)) && self.shards.splits.asked.is_none() {
                    self.shards.splits.asked = Some(dir);
                    self.clients.leases.wait(dir);
                }
                // Others may proceed meanwhile.
                self.shards.splits.queue.rotate_left(usize::from(self.shards.splits.asked.is_none()));
                None
            }
            Err(Stop::Yield) => None,
            // It is gone, or may not be split. It is tried again when it has grown further.
            Err(Stop::Fail(_)) => {
                self.end_split(dir);
                Some(Progress::More)
            }
        }
    }

    fn end_split(&mut self, dir: Ino) {
        self.shards.splits.queue.pop_front();
        self.shards.splits.last.remove(&dir);
        if let Some(asked) = self.shards.splits.asked.take() {
            self.clients.leases.wait_ended(asked);
        }
    }

    /// An operation has changed names: their directories may be so large now that they are to be split.
    #[inline]
    pub(crate) fn note_growth(&mut self, call: &OpCall<'_>) {
        if self.peers.is_some() && self.shards.ns.policy_version() > 0 {
            for dir in call.op.footprint().dirs() {
                self.shards.note_size(dir, call.slot);
            }
        }
    }
}

impl Shards {
    fn note_size(&mut self, dir: Ino, slot: Slot) {
        // The directory is in memory if the operation has changed it.
        let Ok(entries) = self.ns.entries_of(dir) else { return };
        if entries >= LOOKED_AT && !entries.is_multiple_of(LOOKED_AT) {
            return;
        }
        let Ok((_, policy)) = self.policy_of(dir) else { return };
        if entries < policy.huge_threshold || !matches!(policy.huge, Huge::Threshold | Huge::Auto) {
            return;
        }
        if !self.next_ranges(dir).is_ok_and(|ranges| !ranges.is_empty()) {
            return;
        }
        if policy.huge == Huge::Threshold || self.splits.has_others(dir, slot) {
            self.splits.add(dir);
        }
    }

    /// Refuses unless this is a directory whose parts a caller may change.
    pub(crate) fn may_administer_parts(&self, dir: Ino, cred: &Cred) -> Result<(), Stop> {
        let attr = self.ns.attr(dir)?;
        if attr.kind != Kind::Dir {
            return Err(Refusal::NotDir.into());
        }
        if attr.nlink == 0 || attr.flags & Attr::PART != 0 {
            return Err(Refusal::Stale.into());
        }
        let administers = || cred.everywhere(Capabilities::FOWNER).ok_or(Stop::Fail(Failure::NeedGroups));
        if cred.uid != attr.uid && !administers()? {
            return Err(Refusal::NotPermitted.into());
        }
        Ok(())
    }

    /// Refuses unless a caller may split a directory, and it can be split.
    fn may_split(&mut self, dir: Ino, cred: &Cred) -> Result<(), Stop> {
        self.may_administer_parts(dir, cred)?;
        // Names that a client decouples, or that are to stay together, are on one plate.
        if self.places_near(dir)? || self.ns.has_decouplings() && self.ns.is_above_decoupled(dir)? {
            return Err(Refusal::CrossDevice.into());
        }
        Ok(())
    }

    /// The ranges that the next step takes from a directory's own: where each begins, and the plate that gets it.
    fn next_ranges(&self, dir: Ino) -> Result<Vec<(u64, PlateId)>, Stop> {
        let plates = self.realms.here.plates;
        let of_home = plates.of(dir).ok_or(Refusal::Stale)?;
        let others = others_from(plates, of_home);
        if others.is_empty() || self.ns.attr(dir)?.flags & Attr::PART != 0 {
            return Ok(Vec::new());
        }
        let (_, last) = self.ns.hash_range(dir)?;
        let last = last.min(HASHES - 1);
        let width = HASHES / (others.len() as u64 + 1);
        // That many plates beside the home have not got all of theirs.
        let left = ((last / width) as usize).min(others.len());
        if left == 0 {
            return Ok(Vec::new());
        }
        let scaled = |part: u64, of: u64| (u128::from(part) * u128::from(of)) as f64;
        let names = self.ns.entries_of(dir)?;
        // Hashes are spread evenly.
        let moved = scaled(names, last + 1 - width) / (last + 1) as f64;
        if moved <= MOVED_MAX as f64 {
            return Ok((1..=left).map(|at| (at as u64 * width, others[at - 1])).collect());
        }
        let step = scaled(last + 1, MOVED_MAX) / names as f64;
        let first = (last + 1 - step as u64).max(left as u64 * width);
        Ok(vec![(first, others[left - 1])])
    }
}
