//! Which number a new inode gets: the one that it had before a restart, one that the client has named, one of a decoupled client's
//! ranges, one that another plate has lent, or the next of its shard.

use chiton_model::{Make, Op};
use chiton_types::{Ino, Refusal};

use crate::decoupled::Decoupled;
use crate::engine::Engine;
use crate::execute::OpCall;
use crate::moment::Moment;
use crate::parts::Shards;
use crate::placement::{birth_key, draw_shard};
use crate::step::Stop;
use crate::wait_queue::Wait;

impl Engine {
    /// The number for a new inode, and whether it is the next of its counter.
    #[inline]
    pub(crate) fn offer(&mut self, call: &OpCall<'_>, m: &Moment) -> Result<(Ino, bool), Stop> {
        let (parent, dir_name) = if let Op::Make { parent, name, make, .. } = call.op {
            (parent, Some(name).filter(|_| matches!(make, Make::Dir)))
        } else if let Op::MakeUnnamed { parent, .. } = call.op {
            (parent, None)
        } else if let Op::Rename { from, how, .. } = call.op
            && how.leaves_whiteout()
        {
            // The whiteout's.
            (from, None)
        } else {
            return Ok((Ino(0), false));
        };
        if let (Some(again), Some(peers)) = (call.again, &mut self.peers)
            && again.ino != Ino(0)
            && !self.shards.ns.owns(again.ino)
            && let Some(ino) = peers.offer_former(again.ino, &mut self.queue)?
        {
            return Ok((ino, false));
        }
        if let Some(again) = call.again.filter(|again| again.ino != Ino(0) && self.shards.ns.owns(again.ino))
            && let Some(ino) = self.shards.offer_former(again.ino)?
        {
            return Ok((ino, false));
        }
        if let Some(acknowledged) = call.acknowledged {
            return Ok((self.offer_acknowledged(call, acknowledged)?, false));
        }
        if let Some(Decoupled { numbers, .. }) = &self.decoupled {
            let shard = match dir_name {
                Some(name) => numbers.pick(birth_key(*parent, name.hash64())),
                None => parent.shard(),
            };
            return match numbers.offer(shard)? {
                Some(ino) => Ok((ino, true)),
                None => Err(Stop::Wait(Wait::Numbers)),
            };
        }
        let shard = match dir_name {
            Some(name) if !self.shards.places_near(*parent)? => {
                draw_shard(birth_key(*parent, name.hash64()), &self.settings.shard_weights)
            }
            _ => parent.shard(),
        };
        if usize::from(shard.0) >= self.shards.inodes.shard_count() {
            return Err(Refusal::Stale.into());
        }
        if let Some(peers) = self.peers.as_mut().filter(|_| !self.shards.ns.owns(Ino::new(shard, 0))) {
            return match peers.offer(shard, &mut self.queue) {
                Some(ino) => Ok((ino, true)),
                None => Err(Stop::Wait(Wait::Numbers)),
            };
        }
        match self.shards.inodes.offer(shard, m.durable) {
            Ok(ino) => Ok((ino, true)),
            Err(position) => Err(Stop::Wait(Wait::Durable(position))),
        }
    }

    /// The number just offered was used.
    #[inline]
    pub(crate) fn use_number(&mut self, ino: Ino) {
        if let Some(decoupled) = &mut self.decoupled {
            decoupled.numbers.take(ino);
        } else if let Some(peers) = self.peers.as_mut().filter(|_| !self.shards.ns.owns(ino)) {
            peers.take(ino);
        } else if let Some(counter_end) = self.shards.inodes.take(ino.shard()) {
            self.output.reserve(ino.shard(), counter_end, &mut self.shards);
        }
    }
}

impl Shards {
    /// The number that an inode had before the server lost it; unless it is in use, by a defect of the client.
    pub(crate) fn offer_former(&self, ino: Ino) -> Result<Option<Ino>, Stop> {
        let former = self.inodes.is_former(ino, &self.marks_at_start)
            && !self.ns.decouplings().any(|d| d.map.overlaps(ino, Ino(ino.0 + 1)));
        match self.ns.attr(ino) {
            Err(chiton_namespace::Fault::Refused(Refusal::Stale)) if former => Ok(Some(ino)),
            Err(chiton_namespace::Fault::Missing(needs)) if former => Err(Stop::Missing(needs)),
            _ => Ok(None),
        }
    }
}
