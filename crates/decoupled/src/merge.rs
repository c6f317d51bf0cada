//! Sending the decoupled journal to the server, batch after batch, and following what it says.
//!
//! ```text
//!   batch ─ piece, piece, piece ─▶ server ─ state ─▶ next piece │ further on │ back │ another batch
//! ```
//!
//! Invariants:
//! - The server's state decides what is sent next: it may be ahead (an answer was lost) or behind (it crashed, and what
//!   was not durable is gone).
//! - `durable` is only ever reported past what the server has made durable.

use std::sync::Arc;
use std::time::Duration;

use chiton_journal::Place;
use chiton_runtime::SharedWorld;
use chiton_types::{Position, Refusal};
use chiton_wire::MergeState;

use crate::batches::{Batch, Batches};
use crate::calls::ClaimCalls;
use crate::error::RealmError;
use crate::report::{MergeProgress, MergeReport};

/// Batches whose durability is not asked for yet.
const BATCHES_LOOSE_MAX: usize = 8;
/// Calls in a row that get nowhere.
const STUCK_MAX: u32 = 16;
/// Looks at the journal in a row in which no batch gets done.
const TURNS_MAX: u32 = 16;

/// One merge.
pub(crate) struct Merger<'a> {
    pub(crate) calls: &'a ClaimCalls,
    pub(crate) place: Arc<dyn Place>,
    pub(crate) world: &'a SharedWorld,
    /// Told how far it is.
    pub(crate) progress: &'a dyn Fn(MergeProgress),
    /// Told what of the journal is merged for good.
    pub(crate) durable: &'a mut dyn FnMut(Position) -> Result<(), RealmError>,
}

/// What became of a batch.
enum Sent {
    Done,
    /// The server is somewhere else.
    Elsewhere,
    Stopped,
}

impl Merger<'_> {
    /// Merges everything up to `cut`, which is the end of an operation and durable here. `state` follows what the
    /// server says.
    pub(crate) fn run(&mut self, state: &mut MergeState, cut: Position) -> Result<MergeReport, RealmError> {
        let begun = self.world.monotonic();
        let mut report = MergeReport::default();
        let outcome = self.send_all(state, cut, &mut report);
        report.seconds = self.world.monotonic().saturating_sub(begun).as_secs_f64();
        outcome.map(|()| report)
    }

    fn send_all(
        &mut self,
        state: &mut MergeState,
        cut: Position,
        report: &mut MergeReport,
    ) -> Result<(), RealmError> {
        let start = state.merged;
        // Merged, and the server's position that must be durable for it.
        let mut loose: Vec<(Position, Position)> = Vec::new();
        let mut turns = 0;
        while state.merged < cut {
            turns += 1;
            if turns > TURNS_MAX {
                return Err(RealmError::nonsense("the merge does not get on"));
            }
            let first = state.window.map(|(upto, _)| upto);
            if first.is_some_and(|first| first > cut) {
                return Err(RealmError::nonsense("a batch that ends after the journal does"));
            }
            let mut batches = Batches::read(self.place.clone(), state.merged, first, cut);
            while let Some(batch) = batches.next()? {
                let mut position = Position(0);
                match self.send(&batch, state, &mut position, report)? {
                    Sent::Done => {}
                    Sent::Elsewhere => {
                        loose.retain(|(upto, _)| *upto < state.merged);
                        if state.merged > batch.range.after {
                            loose.push((state.merged, position));
                        }
                        break;
                    }
                    Sent::Stopped => {
                        report.stopped = true;
                        return self.settle(state, &mut loose);
                    }
                }
                turns = 0;
                report.events += batch.span();
                report.squashed += batch.span().saturating_sub(batch.len());
                loose.push((batch.range.upto, position));
                let events_total = cut.0 - start.0.min(cut.0);
                (self.progress)(MergeProgress {
                    events_done: state.merged.0.saturating_sub(start.0).min(events_total),
                    events_total,
                });
                if loose.len() >= BATCHES_LOOSE_MAX {
                    self.settle(state, &mut loose)?;
                    if state.merged < batch.range.upto {
                        break;
                    }
                }
            }
            if state.merged >= cut {
                // If that shows that something was lost, it is sent again.
                self.settle(state, &mut loose)?;
            }
        }
        Ok(())
    }

    /// Waits until the server has made durable what was merged. A server that crashed meanwhile has lost what was not,
    /// and answers for positions that are others' by now: so what counts is what it says afterwards, in `state`.
    fn settle(
        &mut self,
        state: &mut MergeState,
        loose: &mut Vec<(Position, Position)>,
    ) -> Result<(), RealmError> {
        let Some(&(upto, position)) = loose.last() else { return Ok(()) };
        let service = &self.calls.calls.service;
        service
            .commit(position)
            .map_err(|refusal| RealmError::refused("the merged changes are not durable", refusal))?;
        *state = self.calls.state()?;
        loose.clear();
        (self.durable)(upto.min(state.merged))
    }

    /// Sends what the server lacks of a batch.
    fn send(
        &mut self,
        batch: &Batch,
        state: &mut MergeState,
        position: &mut Position,
        report: &mut MergeReport,
    ) -> Result<Sent, RealmError> {
        let upto = batch.range.upto;
        let mut done = match state.window {
            Some((end, done)) if end == upto => done,
            _ => 0,
        };
        let mut stuck = 0;
        loop {
            let piece = batch.piece(done);
            let (count, bytes, last) = (u64::from(piece.count), piece.events.len() as u64, piece.last);
            let merged = match self.calls.merge(&piece) {
                Err(error) if error.refusal() == Refusal::WouldBlock && stuck < STUCK_MAX => {
                    stuck += 1;
                    chiton_runtime::thread::sleep(Duration::from_millis(10));
                    continue;
                }
                merged => merged?,
            };
            report.calls += 1;
            report.sent += count;
            report.bytes += bytes;
            report.skipped += merged.skipped;
            report.note_conflicts(&merged.conflicts);
            report.note_lost(&merged.lost);
            *position = (*position).max(merged.position);
            *state = merged.state;
            if merged.stopped {
                return Ok(Sent::Stopped);
            }
            match state.window {
                _ if state.merged == upto => return Ok(Sent::Done),
                Some((end, now))
                    if end == upto && state.merged == batch.range.after && now <= batch.len() =>
                {
                    let finished = last && now == batch.len();
                    stuck = if now > done && !finished { 0 } else { stuck + 1 };
                    done = now;
                }
                None if state.merged == batch.range.after => {
                    // It has forgotten what was not durable.
                    stuck += 1;
                    done = 0;
                }
                _ => return Ok(Sent::Elsewhere),
            }
            if stuck > STUCK_MAX {
                return Err(RealmError::nonsense("the merge does not get on"));
            }
        }
    }
}
