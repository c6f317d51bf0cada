//! Streaming a journal's frames: for recovery, merge and tools.
//!
//! Invariants:
//! - Memory is bounded by one segment; where segments are whole, by 32 MiB of them if one is not longer.
//! - Frames come in order and without gaps, or replay ends in an error with the position.

use std::fmt;

use chiton_types::Position;

use crate::chain::Chain;
use crate::damage::{Damage, DamageKind};
use crate::error::JournalError;
use crate::place::Place;
use crate::reader::Frame;

/// The progress of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of segments that are done.
    pub bytes_done: u64,
    /// Bytes of all segments that have to be read.
    pub bytes_total: u64,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Frames passed to the visitor.
    pub frame_count: u64,
    /// Position of the journal's last event.
    pub last: Position,
    /// Damage behind the last event.
    pub torn: Option<Damage>,
}

/// The reason why a replay ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError<E> {
    Journal(JournalError),
    /// The visitor stopped it.
    Visitor(E),
}

impl<E> From<JournalError> for ReplayError<E> {
    fn from(error: JournalError) -> ReplayError<E> {
        ReplayError::Journal(error)
    }
}

impl<E: fmt::Display> fmt::Display for ReplayError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Journal(error) => error.fmt(f),
            ReplayError::Visitor(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for ReplayError<E> {}

/// Passes every frame that has an event after `after` to `visit`, in order. `progress` is called after each
/// segment.
///
/// # Errors
/// The visitor's; [`JournalError::Absent`]; [`JournalError::Trimmed`] if the event after `after` is no longer there;
/// [`JournalError::Damaged`], after all whole frames before the damage were visited.
pub fn replay<E>(
    place: &dyn Place,
    after: Position,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<(), E>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Replayed, ReplayError<E>> {
    let chain = Chain::load(place)?;
    let Some(first) = chain.first() else { return Err(chain.absent().into()) };
    let asked = Position(after.0.saturating_add(1));
    if first > asked {
        if let Some(damage) = chain.headless.first().filter(|d| d.segment < chain.links[0].header.segment) {
            return Err(JournalError::Damaged(damage.clone()).into());
        }
        return Err(JournalError::Trimmed { asked, first }.into());
    }
    let from = chain.link_of(asked);
    let bytes_total = chain.links[from..].iter().map(|link| link.bytes).sum();
    let mut done = Progress { bytes_done: 0, bytes_total };
    let mut frame_count = 0;
    let mut visit_later = |frame: &Frame<'_>| {
        if frame.last() <= after {
            return Ok(());
        }
        frame_count += 1;
        visit(frame).map_err(ReplayError::Visitor)
    };
    let end = chain.walk(place, from, &mut visit_later, &mut |bytes| {
        done.bytes_done += bytes;
        progress(done);
    })?;
    Ok(Replayed { frame_count, last: end.last, torn: end.torn })
}

impl Chain {
    /// Position of the first available event, or of the first that will be written.
    fn first(&self) -> Option<Position> {
        self.links.first().map(|link| link.header.first)
    }

    /// Why there is no journal in a chain without links.
    pub(crate) fn absent(&self) -> JournalError {
        match self.headless.iter().find(|damage| damage.kind == DamageKind::Corrupt) {
            Some(damage) => JournalError::Damaged(damage.clone()),
            None => JournalError::Absent,
        }
    }
}
