//! Operations of a session that is over, which its client sends again in its next session.
//!
//! ```text
//!   crash ── window ── the session ends ── changes of others … ── Late[a, b, …] ──▶ a ✓ · b contradicted · c rests on b
//!                          `since` ┘
//! ```
//!
//! The client was away while the window was open. The server lost operations that it had answered, and continued without them.
//!
//! Invariants:
//! - An operation is carried out only if it has the outcome that its caller got: the same inode number, and a change. Nothing that it
//!   changes may have changed after `since`, except by earlier late operations of this session. A directory counts as changed if its own
//!   attributes did: other names in it do not matter.
//! - All else is refused for good. An operation about the same inodes or names as a refused one is refused too.
//! - Once one is refused, nothing is removed or replaced that this session's late operations have not made or changed themselves. A
//!   program that renames a new file into place and then removes the old one would otherwise lose both.
//! - It comes after everything that sessions send again in the recovery window, and takes leases from others as a new operation does.

use std::collections::BTreeSet;

use chiton_model::{Event, Op, Role};
use chiton_types::{Ino, Name, Position, Refusal, Seq};
use chiton_wire::{Again, Answer, BATCH_OPS_MAX, Call, Failure};

use crate::dedup::{Done, Standing};
use crate::engine::Engine;
use crate::execute::{OpCall, sets_policy};
use crate::moment::Moment;
use crate::peers::unnumbered_key;
use crate::sessions::Slot;
use crate::step::Stop;
use crate::wait_queue::{Task, Wait};

/// Most inodes, names and runs of positions that are remembered of a session: beyond that its late operations are refused.
const REMEMBERED_MAX: usize = 1 << 16;

/// The late operations of a session so far.
#[derive(Debug, Default)]
pub(crate) struct LateReturn {
    /// Runs of positions of those that were carried out: the first and the last, rising.
    own: Vec<(Position, Position)>,
    /// Inodes of the refused operations.
    lost_inodes: BTreeSet<Ino>,
    lost_names: BTreeSet<(Ino, Name)>,
    /// There were too many to remember.
    is_full: bool,
}

impl LateReturn {
    fn has_lost(&self) -> bool {
        self.is_full || !self.lost_inodes.is_empty() || !self.lost_names.is_empty()
    }

    fn is_own(&self, position: Position) -> bool {
        let at = self.own.partition_point(|(_, last)| *last < position);
        self.own.get(at).is_some_and(|(first, _)| *first <= position)
    }

    /// Whether an operation may change a row whose last change was at `changed`, without harm to others.
    fn may_change(&self, changed: Position, since: Position) -> bool {
        self.is_own(changed) || (changed <= since && !self.has_lost())
    }

    fn carried_out(&mut self, first: Position, last: Position) {
        let is_room = self.own.len() < REMEMBERED_MAX;
        match self.own.last_mut() {
            Some((_, end)) if end.next() == first => *end = last,
            _ if is_room => self.own.push((first, last)),
            _ => self.is_full = true,
        }
    }

    fn lose(&mut self, call: &OpCall<'_>) {
        let footprint = call.op.footprint();
        let subjects = footprint.inodes().iter().filter(|touch| touch.role != Role::Directory);
        let made = call.again.map(|again| again.ino).filter(|ino| *ino != Ino(0));
        self.lost_inodes.extend(subjects.map(|touch| touch.ino).chain(made));
        self.lost_names.extend(footprint.names().map(|touch| (touch.dir, touch.name.clone())));
        self.is_full |= self.lost_inodes.len().max(self.lost_names.len()) > REMEMBERED_MAX;
    }
}

impl Engine {
    /// Carries out late operations, from where it stopped.
    pub(crate) fn late(&mut self, task: &mut Task, slot: Slot, m: &Moment) -> Result<Answer, Stop> {
        let request = &task.request;
        let Call::Late { since, ops, acknowledged } = &request.call else {
            unreachable!("called for these only")
        };
        if ops.len() > BATCH_OPS_MAX {
            return Err(Failure::Malformed(format!("a batch has at most {BATCH_OPS_MAX} operations")).into());
        }
        if request.seq == Seq(0) {
            return Err(Failure::Malformed("late operations have numbers".into()).into());
        }
        while let Some(op) = ops.get(task.results.len()) {
            let at = task.results.len();
            let one = acknowledged[at];
            let ino = if matches!(op, Op::Make { .. }) { one.ino } else { Ino(0) };
            let call = OpCall {
                session: task.session,
                slot,
                seq: Seq(request.seq.0.saturating_add(at as u64)),
                again: Some(Again { ino, time: one.time, ..Again::default() }),
                cred: &request.cred,
                open: one.open,
                leases: false,
                acknowledged: None,
                late: Some(*since),
                unnumbered: unnumbered_key(0, 0),
                op,
            };
            match self.execute(&call, m) {
                Ok(done) => {
                    self.counters.count(op.counter());
                    task.results.push(Ok((done.position, done.outcome)));
                }
                // It was answered before: it waits until there is space.
                Err(Stop::Fail(Failure::Refused(Refusal::NoSpace))) => return Err(Stop::Wait(Wait::Room)),
                Err(Stop::Fail(failure)) => task.results.push(Err(failure)),
                Err(stop) => return Err(stop),
            }
        }
        Ok(Answer::Batch(std::mem::take(&mut task.results)))
    }

    /// Before it is planned: whether it is of a kind that can be late, concerns this plate alone, and rests on nothing that is lost.
    pub(crate) fn may_be_late(&self, call: &OpCall<'_>) -> Result<(), Stop> {
        if call.late.is_none() {
            return Ok(());
        }
        let Some(session) = self.clients.sessions.get(call.session) else {
            return Err(Failure::SessionGone.into());
        };
        let rests_on_lost = session.late.as_ref().is_some_and(|late| {
            let is_lost = |dir: Ino, name: &Name| late.lost_names.contains(&(dir, name.clone()));
            late.is_full || call.op.footprint().names().any(|touch| is_lost(touch.dir, touch.name))
        });
        let is_elsewhere = call.op.footprint().inodes().iter().any(|touch| !self.shards.ns.owns(touch.ino));
        match rests_on_lost || is_elsewhere || !can_be_late(call.op) {
            true => Err(contradicted()),
            false => Ok(()),
        }
    }

    /// Once it is planned: whether it has the outcome of before, and nobody has contradicted it. `offered`: the number for a new inode.
    /// `is_volatile`: it leaves nothing in the journal, so that positions do not show a contradiction.
    pub(crate) fn is_uncontradicted(
        &self,
        call: &OpCall<'_>,
        (since, offered): (Position, Ino),
        is_volatile: bool,
    ) -> Result<(), Stop> {
        let nothing = LateReturn::default();
        let session = self.clients.sessions.get(call.session);
        let late = session.and_then(|session| session.late.as_deref()).unwrap_or(&nothing);
        let is_numbered = !matches!(call.op, Op::Make { .. }) || call.again.is_some_and(|a| a.ino == offered);
        if self.events.is_empty() || !is_numbered || is_volatile {
            return Err(contradicted());
        }
        let ns = &self.shards.ns;
        for event in &self.events {
            let footprint = event.footprint();
            for touch in footprint.inodes().iter().filter(|touch| touch.ino != offered || offered == Ino(0)) {
                if !ns.owns(touch.ino) {
                    return Err(contradicted());
                }
                let inode = ns.inode(touch.ino)?;
                let may = match touch.role {
                    Role::Directory => late.is_own(inode.attrs_changed()) || inode.attrs_changed() <= since,
                    Role::Subject
                    | Role::Victim
                    | Role::Newborn
                    | Role::Orphan
                    | Role::Source
                    | Role::Root => {
                        !late.lost_inodes.contains(&touch.ino) && late.may_change(inode.position, since)
                    }
                };
                if !may {
                    return Err(contradicted());
                }
            }
            for change in footprint.names().filter(|change| change.before.is_some()) {
                let changed = ns.name_changed(change.dir, change.name)?;
                if !changed.is_some_and(|changed| late.may_change(changed, since)) {
                    return Err(contradicted());
                }
            }
        }
        Ok(())
    }

    /// A late operation was carried out, with events from `first` on.
    pub(crate) fn late_carried_out(&mut self, call: &OpCall<'_>, first: Position) {
        if call.late.is_none() {
            return;
        }
        let last = self.output.position;
        if let Some(session) = self.clients.sessions.get_mut(call.session).filter(|_| first <= last) {
            session.late.get_or_insert_default().carried_out(first, last);
        }
    }

    /// A late operation was refused: for good, unless it waits for room.
    pub(crate) fn late_refused(&mut self, call: &OpCall<'_>, failure: &Failure) {
        if call.late.is_none() || *failure == Failure::Refused(Refusal::NoSpace) {
            return;
        }
        self.refuse_for_good(call);
        if let Some(session) = self.clients.sessions.get_mut(call.session) {
            session.late.get_or_insert_default().lose(call);
        }
    }

    /// An earlier answered operation on which this one rested is lost. If the refusal does not reach its client, the operation is sent once more: by then
    /// other clients may have changed what it would find.
    pub(crate) fn refuse_for_good(&mut self, call: &OpCall<'_>) {
        let (session, seq) = (call.session, call.seq);
        let Some(known) = self.clients.sessions.get_mut(session) else { return };
        if known.dedup.standing(seq) == Standing::New {
            known.dedup.record(seq, Done::REFUSED);
            self.output.commit_own(&Event::Refused { session, seq }, &mut self.shards);
        }
    }
}

fn contradicted() -> Stop {
    Refusal::Io.into()
}

fn can_be_late(op: &Op) -> bool {
    op.can_be_late() && !sets_policy(op)
}

#[cfg(test)]
mod tests;
