//! Files that grow while other clients have them open: these hear of the new size before the writer is answered.
//!
//! ```text
//!   writer ── Grown(size) ──▶ engine ──▶ each other client that has the file open ──▶ its kernel
//!          ◀──── done ─────── the last acknowledgement ◀──────────────────────────────────┘
//! ```
//!
//! A kernel that has a file open takes its end from memory when it maps, splices or copies the file, and asks nobody.
//!
//! Invariants:
//! - A notice recalls nothing and holds up nobody but the writer that asked for it.
//! - The ids of notices and of recalls differ: both are acknowledged in the same way.

use std::collections::BTreeMap;
use std::time::Duration;

use chiton_model::{FILE_BYTES_MAX, Op};
use chiton_policy::Data;
use chiton_types::{Cred, Ino, Kind, Position, Refusal, access};
use chiton_wire::{Answer, Grown, LeaseMode, Recall};

use crate::moment::Moment;
use crate::opens::Opens;
use crate::parts::{Clients, Shards};
use crate::sessions::Slot;
use crate::step::{Command, Stop};
use crate::wait_queue::{Task, Wait};

/// Recalls are numbered below.
const FIRST_ID: u64 = 1 << 63;

/// Names the notices that one writer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Round(u64);

#[derive(Clone, Copy, Debug)]
struct Notice {
    round: Round,
    slot: Slot,
    ino: Ino,
    grown: Grown,
    since: Duration,
}

/// Notices that are not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Growths {
    out: BTreeMap<u64, Notice>,
    noted: u64,
    rounds: u64,
}

impl Growths {
    fn begin(&mut self) -> Round {
        self.rounds += 1;
        Round(self.rounds)
    }

    fn note(&mut self, notice: Notice) -> Recall {
        let id = FIRST_ID + self.noted;
        self.noted += 1;
        self.out.insert(id, notice);
        recall(id, &notice)
    }

    fn is_over(&self, round: Round) -> bool {
        self.out.values().all(|notice| notice.round != round)
    }

    /// A client has taken a notice in. Returns the round if that was the last of it.
    pub(crate) fn acknowledge(&mut self, slot: Slot, id: u64) -> Option<Round> {
        self.out.get(&id).filter(|notice| notice.slot == slot)?;
        let round = self.out.remove(&id)?.round;
        self.is_over(round).then_some(round)
    }

    /// A session ended; returns the rounds that waited for nobody else.
    pub(crate) fn leave(&mut self, slot: Slot) -> Vec<Round> {
        if self.out.is_empty() {
            return Vec::new();
        }
        let mut rounds: Vec<Round> =
            self.out.values().filter(|notice| notice.slot == slot).map(|notice| notice.round).collect();
        self.out.retain(|_, notice| notice.slot != slot);
        rounds.dedup();
        rounds.retain(|round| self.is_over(*round));
        rounds
    }

    /// How many are out.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Sessions that have not acknowledged a notice from before `since`.
    pub(crate) fn overdue(&self, since: Duration) -> impl Iterator<Item = Slot> {
        self.out.values().filter(move |notice| notice.since < since).map(|notice| notice.slot)
    }

    /// Notices that a session has not acknowledged.
    pub(crate) fn out_to(&self, slot: Slot) -> impl Iterator<Item = Recall> {
        self.out.iter().filter(move |(_, notice)| notice.slot == slot).map(|(id, notice)| recall(*id, notice))
    }
}

fn recall(id: u64, notice: &Notice) -> Recall {
    Recall { id, ino: notice.ino, keep: LeaseMode::Exclusive, grown: Some(notice.grown) }
}

impl Shards {
    /// Whether the client that is about to write a file has to report each growth ([`chiton_wire::Call::Grown`]): others have
    /// it open, and its policy does not let them be behind.
    pub(crate) fn is_watched(&mut self, ino: Ino, slot: Slot, opens: &Opens) -> Result<bool, Stop> {
        Ok(opens.others(ino, slot).next().is_some() && self.policy_of(ino)?.1.data == Data::Linearizable)
    }

    /// Refuses the growth of a file that its client answered and has not pushed, if it may not write there.
    pub(crate) fn check_growth(
        &self,
        ino: Ino,
        grown: Grown,
        cred: &Cred,
        slot: Slot,
        opens: &Opens,
    ) -> Result<(), Stop> {
        let attr = self.ns.attr(ino)?;
        if attr.kind != Kind::File || grown.size == 0 || grown.size > FILE_BYTES_MAX {
            return Err(Refusal::Invalid.into());
        }
        if !opens.has(ino, slot) {
            self.ns.access(cred, ino, access::WRITE)?;
        }
        Ok(())
    }

    /// The size that an operation would give a file, if that is more than it has, the caller has not opened it (and reports
    /// nothing about it), and others have.
    pub(crate) fn growth_of(&self, op: &Op, slot: Slot, opens: &Opens) -> Result<Option<(Ino, Grown)>, Stop> {
        let Op::SetAttr { ino, change } = op else { return Ok(None) };
        let Some(size) = change.size else { return Ok(None) };
        if opens.has(*ino, slot) || opens.others(*ino, slot).next().is_none() {
            return Ok(None);
        }
        let is_longer = self.ns.attr(*ino)?.size < size;
        Ok(is_longer.then_some((*ino, Grown { size, last: 0 })))
    }
}

impl Clients {
    /// The answer, when all others that have the file open have acknowledged its growth.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn notify_growth(
        &mut self,
        ino: Ino,
        grown: Grown,
        slot: Slot,
        done: (Position, Answer),
        task: &mut Task,
        commands: &mut Vec<Command>,
        m: &Moment,
    ) -> Result<Answer, Stop> {
        let round = self.growths.begin();
        for other in self.opens.others(ino, slot) {
            let Some(session) = self.sessions.of_slot(other) else { continue };
            let notice = Notice { round, slot: other, ino, grown, since: m.mono };
            commands.push(Command::Recall(session, self.growths.note(notice)));
        }
        if self.growths.is_over(round) {
            return Ok(done.1);
        }
        task.done = Some(Box::new(done));
        Err(Stop::Wait(Wait::Growth(round)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_with_its_last_acknowledgement_or_session() {
        let mut growths = Growths::default();
        let (a, b) = (Slot(1), Slot(2));
        let note = |growths: &mut Growths, round, slot, secs| {
            let grown = Grown { size: 9, last: 7 };
            growths.note(Notice { round, slot, ino: Ino(5), grown, since: Duration::from_secs(secs) }).id
        };
        let (first, second) = (growths.begin(), growths.begin());
        let one = note(&mut growths, first, a, 1);
        let two = note(&mut growths, first, b, 1);
        note(&mut growths, second, b, 3);
        assert_eq!(growths.acknowledge(b, one), None, "a's to acknowledge");
        assert_eq!(growths.acknowledge(a, one), None, "b has not");
        assert_eq!(growths.acknowledge(a, one), None, "twice");
        let missing: Vec<u64> = growths.out_to(b).map(|recall| recall.id).collect();
        assert_eq!(missing, [two, two + 1]);
        let overdue: Vec<Slot> = growths.overdue(Duration::from_secs(2)).collect();
        assert_eq!(overdue, [b]);
        assert_eq!(growths.leave(b), [first, second]);
        assert!(growths.leave(b).is_empty() && growths.out_to(a).next().is_none());
    }
}
