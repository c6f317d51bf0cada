//! The parts that a directory gets at its birth, one on each plate (`huge: always`), and loses with its name.
//!
//! Invariants:
//! - The operation that makes the directory makes all its parts.
//! - Numbers are only looked at before the operation is decided, and used up afterwards. If it is tried again, it may get others.

use chiton_model::{Event, Make, Op, PartRange, equal_parts};
use chiton_namespace::Fault;
use chiton_types::{Ino, PlateId, Plates, ShardId};

use crate::engine::Engine;
use crate::execute::OpCall;
use crate::moment::Moment;
use crate::parts::Shards;
use crate::placement::birth_key;
use crate::sessions::Slot;
use crate::step::Stop;
use crate::wait_queue::Wait;

impl Engine {
    /// Where a directory is born its parent's policy says: the parent must be born, if another plate is about to make it.
    pub(crate) fn await_parent(&mut self, op: &Op) -> Result<(), Stop> {
        if matches!(op, Op::Make { make: Make::Dir, .. }) { self.await_rows(op) } else { Ok(()) }
    }

    /// The parts of the directory that an operation is about to make as `home`; none if all its names will be on one plate.
    pub(crate) fn offer_parts(
        &mut self,
        call: &OpCall<'_>,
        home: Ino,
        m: &Moment,
    ) -> Result<Vec<PartRange>, Stop> {
        let Op::Make { parent, name, make: Make::Dir, .. } = call.op else { return Ok(Vec::new()) };
        let is_decided_here = call.acknowledged.is_none() && !self.is_realm();
        if !is_decided_here || !self.shards.gives_parts(*parent)? {
            return Ok(Vec::new());
        }
        let plates = self.shards.realms.here.plates;
        let Some(of_home) = plates.of(home) else { return Ok(Vec::new()) };
        let mut inodes = vec![home];
        for plate in others_from(plates, of_home) {
            inodes.push(self.offer_part(plate, birth_key(*parent, name.hash64()), m)?);
        }
        Ok(equal_parts(&inodes))
    }

    /// A number for a part on a plate, which is not used up yet. The key draws its shard.
    pub(crate) fn offer_part(&mut self, plate: PlateId, key: u64, m: &Moment) -> Result<Ino, Stop> {
        let shards = self.shards.realms.here.plates.shards_of(plate);
        let shard = ShardId(shards.start + (key % u64::from(shards.end - shards.start)) as u16);
        if self.shards.ns.owns(Ino::new(shard, 0)) {
            return self
                .shards
                .inodes
                .offer(shard, m.durable)
                .map_err(|position| Stop::Wait(Wait::Durable(position)));
        }
        let offered = self.peers.as_mut().and_then(|peers| peers.offer(shard, &mut self.queue));
        offered.ok_or(Stop::Wait(Wait::Numbers))
    }
}

/// The plates on which a directory has its parts, in the order of their ranges, beside the home's. They begin behind that, so that not all
/// directories have the same plate for the first names.
pub(crate) fn others_from(plates: Plates, of_home: PlateId) -> Vec<PlateId> {
    let mut others: Vec<_> = plates.all().filter(|plate| *plate != of_home).collect();
    let later = others.iter().position(|plate| *plate > of_home).unwrap_or(0);
    others.rotate_left(later);
    others
}

impl Engine {
    /// Parts of this plate that the last operation ended with their directory, or left as orphans.
    pub(crate) fn parts_ended(&mut self, slot: Slot) {
        for event in &self.events {
            if let Event::Reclaim { ino, from_chunk: 0 } = event {
                self.clients.leases.forget(*ino);
            }
            if let Event::Detached { ino, .. } = event
                && self.shards.ns.owns(*ino)
                && self.shards.orphans.insert(*ino)
            {
                self.shards.tree_removed(*ino, slot);
            }
        }
    }
}

impl Shards {
    /// Whether directories that are made in a directory get parts.
    pub(crate) fn gives_parts(&mut self, parent: Ino) -> Result<bool, Fault> {
        if self.realms.here.plates.count() == 1 || self.ns.policy_version() == 0 {
            return Ok(false);
        }
        Ok(self.policy_of(parent)?.1.parts_from_birth() && !self.places_near(parent)?)
    }
}
