//! Erasing events: each becomes one that does nothing, so that all positions stay.

use chiton_journal::{Frame, Identity, Place, rewrite};
use chiton_metastore::Metastore;
use chiton_model::Event;
use chiton_types::Position;
use serde::Serialize;

use crate::journal::error::JournalToolError;
use crate::journal::filter::Filter;
use crate::journal::{OnProgress, events_of};

/// Counts of an erasure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spliced {
    pub events: u64,
    /// Number of their operations.
    pub frames: u64,
}

/// An operation that does not decode is not rewritten.
fn unreadable(frame: &Frame<'_>, error: &dyn std::fmt::Display) -> JournalToolError {
    JournalToolError::Refused(format!(
        "the operation at position {} does not decode: {error}; export the undamaged events (chiton journal export), then reset the \
         journal (chiton journal reset)",
        frame.first
    ))
}

/// Erases the events that `filter` means; with `dry`, only counts them. `store` is for its path.
///
/// # Errors
/// [`JournalToolError::Refused`] if the filter names nothing; the journal's: a damaged one is not rewritten.
pub fn splice(
    place: &dyn Place,
    identity: Identity,
    filter: &Filter,
    store: Option<&dyn Metastore>,
    dry: bool,
    progress: OnProgress<'_>,
) -> Result<Spliced, JournalToolError> {
    if filter.is_all() {
        return Err(JournalToolError::Refused(
            "name the events to erase, as in --range 17..19 or --inode 42; to erase all, reset the journal"
                .to_owned(),
        ));
    }
    // The journal is read twice: the meaning of a path depends on earlier events, so the first pass decides and the
    // second erases.
    let mut erased = ErasedRanges::default();
    let mut seen = filter.begin(store)?;
    let mut done = Spliced::default();
    let mut decide = |frame: &Frame<'_>| -> Result<Option<Vec<u8>>, JournalToolError> {
        let events = events_of(frame).map_err(|e| unreadable(frame, &e))?;
        let mut hit = false;
        for (position, event) in &events {
            let is_erased = matches!(event, Event::Skipped { .. });
            if seen.matches(*position, &frame.header, event)? && !is_erased {
                erased.push(*position);
                (hit, done.events) = (true, done.events + 1);
            }
        }
        done.frames += u64::from(hit);
        Ok(None)
    };
    rewrite(place, identity, &mut decide, progress)?;
    if dry || done.events == 0 {
        return Ok(done);
    }
    let mut change = |frame: &Frame<'_>| -> Result<Option<Vec<u8>>, JournalToolError> {
        if !erased.any_in(frame.first, frame.last()) {
            return Ok(None);
        }
        let events = events_of(frame).map_err(|e| unreadable(frame, &e))?;
        let mut payload = Vec::with_capacity(frame.payload.len());
        for (position, event) in &events {
            let event = if erased.any_in(*position, *position) { &Event::NOTHING } else { event };
            event.encode(&mut payload);
        }
        Ok(Some(payload))
    };
    rewrite(place, identity, &mut change, progress)?;
    Ok(done)
}

/// Positions as ranges, because erased events are seldom scattered.
#[derive(Default)]
struct ErasedRanges(Vec<(Position, Position)>);

impl ErasedRanges {
    fn push(&mut self, position: Position) {
        match self.0.last_mut().filter(|(_, last)| last.next() == position) {
            Some((_, last)) => *last = position,
            None => self.0.push((position, position)),
        }
    }

    fn any_in(&self, first: Position, last: Position) -> bool {
        let at = self.0.partition_point(|(_, end)| *end < first);
        self.0.get(at).is_some_and(|(start, _)| *start <= last)
    }
}
