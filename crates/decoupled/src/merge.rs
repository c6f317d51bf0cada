//! Sends the decoupled journal to the server, batch after batch, and follows the server's state.
//!
//! ```text
//!   batch ─ piece, piece, piece ─▶ server ─ state ─▶ next piece │ further on │ back │ another batch
//! ```
//!
//! Invariants:
//! - The server's state decides what is sent next. The server may be ahead (its answer was lost) or behind (it
//!   crashed, and lost changes that were not durable).
//! - `durable` reports only positions that the server has made durable.

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

/// Maximum number of batches that are merged and not yet known to be durable.
const BATCHES_LOOSE_MAX: usize = 8;
/// Calls in a row that get nowhere.
const STUCK_MAX: u32 = 16;
/// Looks at the journal in a row in which no batch gets done.
const TURNS_MAX: u32 = 16;

/// One merge of a journal.
pub(crate) struct Merger<'a> {
    pub(crate) calls: &'a ClaimCalls,
    pub(crate) place: Arc<dyn Place>,
    pub(crate) world: &'a SharedWorld,
    /// Called with the progress.
    pub(crate) progress: &'a dyn Fn(MergeProgress),
    /// Called with the position up to which the merge is durable.
    pub(crate) durable: &'a mut dyn FnMut(Position) -> Result<(), RealmError>,
}

/// The outcome of sending a batch.
enum Sent {
    Done,
    /// The server expects another position.
    Elsewhere,
    Stopped,
}

impl Merger<'_> {
    /// Merges everything up to `cut`, which must be the end of an operation and durable here. Keeps `state` equal
    /// to the server's.
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
                return Err(RealmError::nonsense("the merge makes no progress"));
            }
            let first = state.batch.map(|(upto, _)| upto);
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

    /// Waits until the merged changes are durable at the server. A server that crashed has lost later changes, and
    /// its positions now belong to other changes. So only the `state` that it reports afterwards counts.
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

    /// Sends the part of a batch that the server lacks.
    fn send(
        &mut self,
        batch: &Batch,
        state: &mut MergeState,
        position: &mut Position,
        report: &mut MergeReport,
    ) -> Result<Sent, RealmError> {
        let upto = batch.range.upto;
        let mut done = match state.batch {
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
            match state.batch {
                _ if state.merged == upto => return Ok(Sent::Done),
                Some((end, now))
                    if end == upto && state.merged == batch.range.after && now <= batch.len() =>
                {
                    let finished = last && now == batch.len();
                    stuck = if now > done && !finished { 0 } else { stuck + 1 };
                    done = now;
                }
                None if state.merged == batch.range.after => {
                    // The server lost changes that were not durable.
                    stuck += 1;
                    done = 0;
                }
                _ => return Ok(Sent::Elsewhere),
            }
            if stuck > STUCK_MAX {
                return Err(RealmError::nonsense("the merge makes no progress"));
            }
        }
    }
}
