//! Rehearses a merge: makes the report of one that began now, and changes nothing.
//!
//! ```text
//!   what the server remembers ─▶ a namespace of this process ◀─ plan, apply ─ the journal, event by event
//!                                   └─ fetches the rows that the next events need, as they are now
//! ```
//!
//! Invariants:
//! - [`chiton_merge::plan_merge`] decides, as it does in the server, over the same rows and with the same map. So a rehearsal reports what a
//!   merge then does, unless others change something in between.
//! - Memory grows with the rows that the journal touches.

use std::ops::Range;

use chiton_journal::Place;
use chiton_merge::{MergeContext, MergeStep, Skipped, plan_merge};
use chiton_model::Event;
use chiton_model::merge::{Conflict, MergeMap, MergeState, OnConflict};
use chiton_namespace::{Fault, Fetched, Namespace, Need};
use chiton_types::{Ino, Position, Refusal, Time};
use chiton_wire::{NEEDS_MAX, Settled};

use crate::batches::read_sent;
use crate::calls::ClaimCalls;
use crate::error::RealmError;
use crate::report::MergeReport;

/// Events of the rehearsal have positions from here on, which no server reaches.
const POSITIONS_FROM: Position = Position(1 << 62);
/// The last number of a shard, which no server reaches either.
const COUNTER_LAST: u64 = (1 << 48) - 1;
/// Events whose rows are fetched together.
const AHEAD: usize = 512;
/// Answers about one event before it is given up, as in the server.
const ANSWERS_MAX: usize = 4096;

pub(crate) struct Rehearsal<'a> {
    calls: &'a ClaimCalls,
    state: Namespace,
    map: MergeMap,
    position: Position,
    /// For a copy of a file of others.
    fresh: Ino,
    report: MergeReport,
}

/// How the events continue.
enum Next {
    Further,
    /// The policy forbids a conflict.
    Stop,
}

impl<'a> Rehearsal<'a> {
    /// Begins with the rows that the server keeps for the decoupling's merges. `shards` are those of its plate: directories above the subtree
    /// may be on another.
    pub(crate) fn begin(
        calls: &'a ClaimCalls,
        shards: Range<u16>,
        on_conflict: OnConflict,
    ) -> Result<Rehearsal<'a>, RealmError> {
        let mut state = Namespace::of_start_rows(calls.remembered()?).map_err(RealmError::nonsense)?;
        state.keep_to(shards);
        let id = calls.claim.realm;
        if state.decoupling(id).is_none() {
            return Err(RealmError::nonsense("no decoupling"));
        }
        let mut map = state.borrow_map(id);
        map.set_on_conflict(on_conflict);
        let fresh = Ino::new(map.root().shard(), COUNTER_LAST);
        Ok(Rehearsal { calls, state, map, position: POSITIONS_FROM, fresh, report: MergeReport::default() })
    }

    /// As the client reports files on which both sides agree.
    pub(crate) fn settle(&mut self, files: impl IntoIterator<Item = (Ino, Position, Settled)>) {
        files.into_iter().for_each(|(ino, position, how)| self.map.settle(ino, position, how));
    }

    /// Goes through the journal from where merging is.
    pub(crate) fn run(
        mut self,
        place: &dyn Place,
        state: &MergeState,
        cut: Position,
    ) -> Result<MergeReport, RealmError> {
        let (first, mut done) = state.batch.map_or((None, 0), |(upto, done)| (Some(upto), done));
        let (mut some, mut outcome) = (Vec::with_capacity(AHEAD), Ok(Next::Further));
        read_sent(place, state.merged, first, cut, &mut |event| {
            if done > 0 {
                // An interrupted merge has carried it out.
                done -= 1;
                return;
            }
            if matches!(outcome, Ok(Next::Further)) {
                some.push(event.clone());
                if some.len() == AHEAD {
                    outcome = self.events(&std::mem::take(&mut some));
                }
            }
        })?;
        if let Next::Further = outcome? {
            self.report.stopped = matches!(self.events(&some)?, Next::Stop);
        } else {
            self.report.stopped = true;
        }
        Ok(self.report)
    }

    fn events(&mut self, events: &[Event]) -> Result<Next, RealmError> {
        let needs = self.state.needs_all(events);
        self.fetch(needs)?;
        for event in events {
            if let Next::Stop = self.event(event.clone())? {
                return Ok(Next::Stop);
            }
        }
        Ok(Next::Further)
    }

    /// As the server merges one event.
    fn event(&mut self, mut event: Event) -> Result<Next, RealmError> {
        let mut conflicts: Vec<Conflict> = Vec::new();
        let mut skipped = Some(Skipped::Refused(Refusal::Io));
        for _ in 0..ANSWERS_MAX {
            let context = MergeContext { is_open: &|_| false, fresh: self.fresh, now: Time(0) };
            match plan_merge(&self.state, &mut event, &mut self.map, &context, &mut conflicts) {
                Ok(MergeStep::Emit) => {
                    self.apply(&event)?;
                    skipped = None;
                    break;
                }
                Ok(MergeStep::First(events)) => {
                    events.iter().try_for_each(|event| self.apply(event))?;
                }
                Ok(MergeStep::Instead(events)) => {
                    events.iter().try_for_each(|event| self.apply(event))?;
                    skipped = None;
                    break;
                }
                Ok(MergeStep::Skip(why)) => {
                    skipped = Some(why);
                    break;
                }
                Ok(MergeStep::Stop) => {
                    self.report.note_conflicts(&conflicts);
                    return Ok(Next::Stop);
                }
                Err(Fault::Missing(needs)) => self.fetch(needs)?,
                Err(Fault::Refused(refusal)) => {
                    skipped = Some(Skipped::Refused(refusal));
                    break;
                }
                Err(Fault::Elsewhere(_) | Fault::Realm(_)) => {
                    skipped = Some(Skipped::Outside);
                    break;
                }
                Err(Fault::NeedGroups) => unreachable!("merges ask as root, whose groups decide nothing"),
            }
        }
        self.report.note_conflicts(&conflicts);
        if let Some(skipped) = skipped.filter(|skipped| skipped.loses()) {
            self.report.note_lost(&[(0, skipped.reason())]);
        }
        Ok(Next::Further)
    }

    fn apply(&mut self, event: &Event) -> Result<(), RealmError> {
        loop {
            let needs = self.state.needs(event);
            if needs.is_empty() {
                break;
            }
            self.fetch(needs)?;
        }
        if event.footprint().newborn() == Some(self.fresh) {
            self.fresh = Ino(self.fresh.0 - 1);
        }
        self.position = self.position.next();
        self.state.apply(event, self.position);
        self.map.note_own(self.position);
        Ok(())
    }

    fn fetch(&mut self, mut needs: Vec<Need>) -> Result<(), RealmError> {
        needs.sort_unstable();
        needs.dedup();
        let mut rest = &needs[..];
        while !rest.is_empty() {
            let asked = &rest[..rest.len().min(NEEDS_MAX)];
            let found = self.calls.present(asked.to_vec())?;
            rest = &rest[found.len()..];
            for (need, found) in asked.iter().zip(found) {
                let (need, rows, exhausted) = (need.clone(), found.rows, found.exhausted);
                let fetched = Fetched { need, rows, exhausted, unreadable: false };
                self.state.install(fetched, self.state.generation()).map_err(RealmError::nonsense)?;
            }
        }
        Ok(())
    }
}
