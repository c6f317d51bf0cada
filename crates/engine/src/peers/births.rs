//! Inode numbers for births over plates. A plate that makes a directory on another uses a number that the other has lent to it
//! ahead, so that nothing but the birth itself is owed.
//!
//! Invariants:
//! - The owner never uses a number that it has lent. A range is lent durably before it is used.
//! - A range belongs to one start of the borrower. The next start asks for new ones; once it has carried out again what it had
//!   answered, nothing is born from the old ones any more.
//! - A request for a lent number that is not born waits until its borrower has sent the birth, or says that there is none.

use chiton_model::Event;
use chiton_namespace::Fault;
use chiton_types::{Ino, PlateId, Refusal, ShardId};
use chiton_wire::PeerMessage;

use super::{NOT_COMING_MAX, Peers};
use crate::engine::Engine;
use crate::parts::Queue;
use crate::step::Stop;
use crate::wait_queue::Wait;

/// Numbers that are lent at a time.
const RANGE_NUMBERS: u64 = 4096;

/// Numbers of a shard of another plate.
#[derive(Default)]
pub(super) struct Numbers {
    /// The next, and the first past those at hand; equal if there is none.
    next: u64,
    end: u64,
    /// A further range, for when they are used up.
    further: Option<(u64, u64)>,
    pub(super) is_asked: bool,
}

impl Peers {
    /// A number of another plate's shard, without using it up. `None`: it comes later.
    pub(crate) fn offer(&mut self, shard: ShardId, queue: &mut Queue) -> Option<Ino> {
        let plate = self.plates.of_shard(shard)?;
        let peer = self.others.get_mut(&plate)?;
        let is_greeted = peer.boot != 0;
        let numbers = peer.numbers.entry(shard).or_default();
        if numbers.next == numbers.end
            && let Some((first, end)) = numbers.further.take()
        {
            (numbers.next, numbers.end) = (first, end);
        }
        let has_few = numbers.further.is_none() && numbers.end - numbers.next < RANGE_NUMBERS / 2;
        let offered = (numbers.next < numbers.end).then(|| Ino::new(shard, numbers.next));
        if has_few && !numbers.is_asked {
            numbers.is_asked = true;
            if is_greeted {
                self.send(plate, PeerMessage::WantNumbers { shard }, queue);
            }
        }
        offered
    }

    /// The number just offered was used.
    pub(crate) fn take(&mut self, ino: Ino) {
        let peer = self.plates.of(ino).and_then(|plate| self.others.get_mut(&plate));
        if let Some(numbers) = peer.and_then(|peer| peer.numbers.get_mut(&ino.shard())) {
            numbers.next = numbers.next.max(ino.counter() + 1);
        }
    }

    pub(super) fn numbers_came(&mut self, from: PlateId, first: Ino, end: Ino) {
        let Some(peer) = self.others.get_mut(&from) else { return };
        let numbers = peer.numbers.entry(first.shard()).or_default();
        if std::mem::take(&mut numbers.is_asked) {
            numbers.further = Some((first.counter(), end.counter()));
        }
    }

    /// A number that an operation had before the start, for the same operation sent again: once its owner has said that it is
    /// unused. `Ok(None)`: it is in use, and the operation gets another.
    pub(crate) fn offer_former(&mut self, ino: Ino, queue: &mut Queue) -> Result<Option<Ino>, Stop> {
        let plate = self.other_of(ino).ok_or(Refusal::Stale)?;
        match self.unborn.get(&ino) {
            Some(Some(true)) => Ok(Some(ino)),
            Some(Some(false)) => Ok(None),
            Some(None) => Err(Stop::Wait(Wait::Unborn(ino))),
            None => {
                self.unborn.insert(ino, None);
                if self.others[&plate].boot != 0 {
                    self.send(plate, PeerMessage::AskUnborn { ino }, queue);
                }
                Err(Stop::Wait(Wait::Unborn(ino)))
            }
        }
    }

    /// Whether requests may have to wait for another plate's guard or birth.
    pub(super) fn may_hold_up(&self) -> bool {
        !self.guards.is_empty() || !self.lent.is_empty() || !self.folds.is_empty()
    }

    /// The plate to which a number is lent.
    fn borrower(&self, ino: Ino) -> Option<PlateId> {
        let (_, lent) = self.lent.range(..=ino).next_back()?;
        (ino < lent.end).then_some(lent.to)
    }

    /// Whether a birth is still to be sent to another plate, once it is durable. One that was sent has arrived before whatever is
    /// said next.
    fn owes_birth(&self, to: PlateId, ino: Ino) -> bool {
        let Some(peer) = self.others.get(&to) else { return false };
        let mut owed = peer.owed.range(peer.sent.saturating_add(1)..).map(|(_, owed)| owed);
        owed.any(|owed| {
            let mut events = chiton_model::FrameEvents::new(owed.position, owed.count, &owed.events);
            events.any(|event| event.is_ok_and(|(_, event)| event.footprint().newborn() == Some(ino)))
        })
    }
}

impl Engine {
    /// Waits until an inode is born whose number is lent to another plate.
    pub(crate) fn await_birth(&mut self, ino: Ino) -> Result<(), Stop> {
        let Some(peers) = &mut self.peers else { return Ok(()) };
        let Some(to) = peers.borrower(ino) else { return Ok(()) };
        match self.shards.ns.attr(ino) {
            Err(Fault::Refused(Refusal::Stale)) if !peers.not_coming.contains(&ino) => {
                if peers.others[&to].boot != 0 && peers.asked_births.insert(ino) {
                    peers.send(to, PeerMessage::AwaitBirth { ino }, &mut self.queue);
                }
                Err(Stop::Wait(Wait::Birth(ino)))
            }
            Err(Fault::Missing(needs)) => Err(Stop::Missing(needs)),
            _ => Ok(()),
        }
    }

    /// Another plate has a request for an inode that this one was to make.
    pub(super) fn birth_awaited(&mut self, from: PlateId, ino: Ino) {
        let Some(peers) = &mut self.peers else { return };
        if peers.owes_birth(from, ino) {
            peers.wants_commit = true;
        } else if peers.opened_at.is_some() {
            peers.send(from, PeerMessage::NotComing { ino }, &mut self.queue);
        } else {
            // An operation that is sent again may still make it.
            peers.awaited.push((from, ino));
        }
    }

    /// The plate to which a number is lent has no birth to send.
    pub(super) fn birth_not_coming(&mut self, ino: Ino) {
        let Some(peers) = &mut self.peers else { return };
        if peers.not_coming.len() >= NOT_COMING_MAX {
            peers.not_coming.clear();
        }
        peers.not_coming.insert(ino);
        peers.asked_births.remove(&ino);
        self.wake_where(|wait| *wait == Wait::Birth(ino));
    }

    /// Lends numbers of a shard to another plate.
    pub(super) fn lend_numbers(&mut self, to: PlateId, shard: ShardId) {
        let Some(peers) = &self.peers else { return };
        let boot = peers.others[&to].boot;
        let is_own = peers.plates.of_shard(shard) == Some(peers.plate);
        if !is_own || boot == 0 {
            return;
        }
        let Some((first, end, mark)) = self.shards.inodes.take_range(shard, RANGE_NUMBERS) else { return };
        if let Some(counter_end) = mark {
            self.output.reserve(shard, counter_end, &mut self.shards);
        }
        self.commit_peer_event(&Event::Lent { to, boot, first, end });
        let position = self.output.position;
        if let Some(peers) = &mut self.peers {
            peers.wants_commit = true;
            let peer = peers.others.get_mut(&to).expect("another plate");
            peer.lending.push_back((position, first, end));
        }
    }

    /// Whether a number that was lent to an earlier start of another plate is unused.
    pub(super) fn asked_unborn(&mut self, from: PlateId, ino: Ino) -> Result<(), Stop> {
        let Some(peers) = &self.peers else { return Ok(()) };
        let is_lent = peers.borrower(ino) == Some(from);
        let is_unborn = match self.shards.ns.attr(ino) {
            Err(Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
            Err(Fault::Refused(Refusal::Stale)) => is_lent,
            _ => false,
        };
        peers.send(from, PeerMessage::Unborn { ino, is_unborn }, &mut self.queue);
        Ok(())
    }
}
