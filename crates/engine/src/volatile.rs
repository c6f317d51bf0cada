//! Changes that are not journalled: those in subtrees whose policy says `durability: none`.
//!
//! ```text
//!   events ──▶ applied ──▶ (a position each, but no frame) ──▶ checkpoint
//!                              └─ before the next frame: one event that skips as many positions
//! ```
//!
//! After a crash such a subtree is what the last checkpoint held, and everything else is
//! a prefix of the answered operations. The journal is replayed on the checkpoint, so:
//!
//! Invariants:
//! - No journalled event rests on a change that is neither journalled nor in a checkpoint. A name never leaves its
//!   realm; sharing content from such a realm into another is refused (the client copies); a change of a policy,
//!   and the removal of a subtree's root, waits for a checkpoint ([`Shards::settle`]), and so do changes meanwhile.
//! - Inode numbers are reserved durably at every level.

use std::collections::BTreeSet;

use chiton_model::{Event, Op};
use chiton_types::frame::{FrameBuilder, FrameHeader};
use chiton_types::{Ino, Position, Refusal, Seq, SessionId, ShardId};

use crate::engine::Engine;
use crate::parts::{Output, Shards};
use crate::step::Stop;
use crate::wait_queue::Wait;

/// Position of a change that is not in the journal: the client has nothing to send again.
pub(crate) const NOT_JOURNALLED: Position = Position(0);
/// Most positions of one frame.
const SKIPPED_PER_FRAME: u64 = 1 << 30;

/// Changes that only memory holds.
#[derive(Debug, Default)]
pub(crate) struct Volatile {
    /// Of the last change that was not journalled.
    last: Position,
    /// Everything up to here is in a checkpoint.
    checkpointed: Position,
    /// Changes that are not journalled wait for the next checkpoint.
    settling: bool,
    /// Inodes that lost their last name by such a change.
    pub(crate) orphans: BTreeSet<Ino>,
}

impl Volatile {
    /// After a start from a checkpoint.
    pub(crate) fn at(checkpointed: Position) -> Volatile {
        Volatile { checkpointed, ..Volatile::default() }
    }
}

impl Engine {
    /// Position of the last event that has a frame.
    #[inline]
    pub fn journalled(&self) -> Position {
        self.output.journalled()
    }

    /// Before a checkpoint, whose position must be in the journal: see [`Output::write_skipped`].
    #[inline]
    pub fn write_skipped(&mut self) {
        self.output.write_skipped();
    }

    /// True if a request waits for a checkpoint.
    #[inline]
    pub fn wants_checkpoint(&self) -> bool {
        self.shards.volatile.settling
    }

    /// True if there is what only memory holds.
    pub fn has_volatile(&self) -> bool {
        self.shards.volatile.last > self.shards.volatile.checkpointed
    }

    /// A checkpoint of this position is durable.
    pub fn checkpointed(&mut self, position: Position) {
        self.shards.volatile.checkpointed = position;
        self.shards.volatile.settling = false;
        self.wake_where(|wait| *wait == Wait::Checkpoint);
    }
}

impl Output {
    /// Position of the last event that has a frame.
    #[inline]
    pub(crate) fn journalled(&self) -> Position {
        Position(self.position.0 - self.skipped)
    }

    /// Writes an event that takes the positions of those that have no frame, before any other frame.
    #[inline]
    pub(crate) fn write_skipped(&mut self) {
        while self.skipped > 0 {
            let count = self.skipped.min(SKIPPED_PER_FRAME);
            let event_count = u32::try_from(count).expect("a frame of bounded size");
            let header = FrameHeader { event_count, shard: ShardId(0), session: SessionId(0), seq: Seq(0) };
            let mut frame = FrameBuilder::begin(&mut self.frames, &header);
            Event::Skipped { count: event_count }.encode(frame.payload());
            frame.close();
            self.frame_events += count;
            self.skipped -= count;
        }
    }

    /// Applies events without a frame.
    pub(crate) fn apply_volatile(&mut self, events: &[Event], shards: &mut Shards) {
        for event in events {
            self.position = self.position.next();
            shards.ns.apply(event, self.position);
        }
        self.skipped += events.len() as u64;
        shards.volatile.last = self.position;
    }
}

impl Shards {
    /// Whether the planned events of an operation are not to be journalled.
    #[inline]
    pub(crate) fn is_volatile_change(&mut self, op: &Op, events: &[Event]) -> Result<bool, Stop> {
        if self.ns.policy_version() == 0 { Ok(false) } else { self.find_volatile(op, events) }
    }

    fn find_volatile(&mut self, op: &Op, events: &[Event]) -> Result<bool, Stop> {
        let is_policy = matches!(events.first(), Some(Event::Policy(_)));
        if is_policy {
            return Ok(false);
        }
        let place = op.footprint().place;
        let is_volatile = self.is_volatile_inode(place)?;
        if let Op::Clone { from, .. } = op
            && !is_volatile
            && self.is_volatile_inode(*from)?
        {
            return Err(Refusal::CrossDevice.into());
        }
        if is_volatile && self.volatile.settling {
            return Err(Stop::Wait(Wait::Checkpoint));
        }
        // The events remove the root of a realm.
        let mut losers = events.iter().filter_map(|event| event.footprint().loser());
        if !is_volatile && losers.any(|ino| self.ns.policy(ino).is_some()) {
            self.settle()?;
        }
        Ok(is_volatile)
    }

    pub(crate) fn is_volatile_inode(&mut self, ino: Ino) -> Result<bool, Stop> {
        if self.volatile.orphans.contains(&ino) {
            return Ok(true);
        }
        // Merges are journalled, and rest on the state around them.
        if self.root_of(ino)?.is_some() {
            return Ok(false);
        }
        // An inode that has lost its name and its directory belongs to no realm.
        let root = match self.ns.realm(ino) {
            Err(chiton_namespace::Fault::Refused(_)) => return Ok(false),
            root => root?,
        };
        Ok(self.is_volatile(root)?)
    }

    /// Waits until all that was not journalled is in a checkpoint. Meanwhile nothing is added to it.
    pub(crate) fn settle(&mut self) -> Result<(), Stop> {
        if self.volatile.last <= self.volatile.checkpointed {
            return Ok(());
        }
        self.volatile.settling = true;
        Err(Stop::Wait(Wait::Checkpoint))
    }
}
