//! Replays the frames of a journal, and reads the rows that they lack together.
//!
//! ```text
//!   frames ──▶ kept, up to a window ──▶ replayed one by one
//!                                        └ a row is missing: rows of the next frames, too, are fetched with it
//! ```
//!
//! Invariants:
//! - A row that is fetched ahead changes nothing: a row that is in memory is never overwritten, and that a row is absent is noted only
//!   for the frame that is about to be replayed.
//! - Where all rows are in memory, no event is decoded twice.

use std::collections::BTreeSet;

use chiton_engine::{Engine, Moment, ReplayFault};
use chiton_journal::Frame;
use chiton_model::FrameEvents;
use chiton_namespace::{Fetched, Need};
use chiton_types::Position;
use chiton_types::frame::FrameHeader;

use crate::error::StartError;
use crate::rows::install;

/// Frames that are kept, in number and in bytes.
const WINDOW_FRAMES: usize = 1_024;
const WINDOW_BYTES: usize = 4 << 20;
/// Frames whose rows are fetched together, and rows or ranges of rows of one fetch.
const AHEAD_FRAMES: usize = 256;
const AHEAD_NEEDS: usize = 4_096;
/// A row may say which row is needed next.
const AHEAD_ROUNDS: usize = 4;

/// Fetches the rows that a frame needs and that are not in memory.
pub(crate) type Fetch<'a> = dyn Fn(&[Need]) -> Result<Vec<Fetched>, StartError> + 'a;

pub(crate) struct Replaying<'a> {
    pub(crate) engine: &'a mut Engine,
    pub(crate) fetch: &'a Fetch<'a>,
    /// The rows on which the events were planned may have changed since. An event that no longer fits is passed over, and
    /// nothing is fetched ahead.
    pub(crate) base_changes: bool,
    pub(crate) moment: &'a Moment,
    kept: Vec<Kept>,
    bytes: usize,
}

struct Kept {
    header: FrameHeader,
    first: Position,
    payload: Vec<u8>,
}

impl<'a> Replaying<'a> {
    pub(crate) fn new(
        engine: &'a mut Engine,
        fetch: &'a Fetch<'a>,
        base_changes: bool,
        moment: &'a Moment,
    ) -> Replaying<'a> {
        Replaying { engine, fetch, base_changes, moment, kept: Vec::new(), bytes: 0 }
    }

    /// Replays the frame, now or with those that follow.
    pub(crate) fn take(&mut self, frame: &Frame<'_>) -> Result<(), StartError> {
        self.bytes += frame.payload.len();
        self.kept.push(Kept { header: frame.header, first: frame.first, payload: frame.payload.to_vec() });
        if self.kept.len() < WINDOW_FRAMES && self.bytes < WINDOW_BYTES {
            return Ok(());
        }
        self.finish()
    }

    /// Replays all that was taken.
    pub(crate) fn finish(&mut self) -> Result<(), StartError> {
        let frames = std::mem::take(&mut self.kept);
        self.bytes = 0;
        let mut looked_to = 0;
        for (n, frame) in frames.iter().enumerate() {
            while let Some(needs) = self.replay(frame)? {
                self.supply(&needs)?;
                if n >= looked_to && !self.base_changes {
                    looked_to = frames.len().min(n + AHEAD_FRAMES);
                    self.look_ahead(&frames[n..looked_to]);
                }
            }
        }
        Ok(())
    }

    /// Replays a frame, or a part of it: then what it lacks is returned.
    fn replay(&mut self, frame: &Kept) -> Result<Option<Vec<Need>>, StartError> {
        let Kept { header, first, payload } = frame;
        loop {
            match self.engine.replay(header, *first, payload, self.base_changes, self.moment) {
                Ok(()) => return Ok(None),
                Err(ReplayFault::Missing(needs)) => return Ok(Some(needs)),
                Err(ReplayFault::Malformed(cause)) => {
                    return Err(StartError::Corrupt(format!(
                        "the journal's frame at position {first}: {cause}"
                    )));
                }
                Err(ReplayFault::Misfit(at, _)) if self.base_changes => self.engine.pass_over(at),
                Err(ReplayFault::Misfit(at, misfit)) => {
                    return Err(StartError::Corrupt(format!(
                        "the journal's event at position {at} does not fit the metadata store: {misfit}. Do the two belong \
                         together? `chiton journal event recover` passes over what does not fit"
                    )));
                }
            }
        }
    }

    fn supply(&mut self, needs: &[Need]) -> Result<(), StartError> {
        let generation = self.engine.namespace().generation();
        install(self.engine, (self.fetch)(needs)?, generation).map_err(StartError::Corrupt)
    }

    /// Fetches rows that these frames will lack. A row that cannot be read fails again at the frame that needs it.
    fn look_ahead(&mut self, frames: &[Kept]) {
        let mut asked = BTreeSet::new();
        for _ in 0..AHEAD_ROUNDS {
            let ns = self.engine.namespace();
            let mut needs = Vec::new();
            for frame in frames {
                let events = FrameEvents::new(frame.first, frame.header.event_count, &frame.payload);
                for (_, event) in events.map_while(Result::ok) {
                    needs.extend(ns.needs(&event).into_iter().filter(|need| asked.insert(need.clone())));
                }
                if needs.len() >= AHEAD_NEEDS {
                    break;
                }
            }
            if needs.is_empty() {
                return;
            }
            let generation = ns.generation();
            let Ok(fetched) = (self.fetch)(&needs) else { return };
            let ns = self.engine.namespace();
            for rows in fetched.into_iter().filter(|fetched| !fetched.rows.is_empty()) {
                if ns.install(rows, generation).is_err() {
                    return;
                }
            }
        }
    }
}
