//! The decoupled journal in pieces, as a merge sends it.
//!
//! ```text
//!   segments ──▶ frames ──▶ at most 65,536 events, whole frames ──▶ squashed, filtered, encoded ──▶ Batch
//!      (a thread of its own: the next batch is made while this one is sent)
//! ```
//!
//! Invariants:
//! - A batch between the same two positions has the same events, whichever process reads it and whenever.
//! - Memory is bounded by a few batches.

use std::collections::VecDeque;
use std::sync::Arc;

use chiton_journal::{Frame, Place, ReplayError, replay};
use chiton_model::{Event, FrameEvents};
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::thread::{self, JoinHandle};
use chiton_types::{Position, Take};
use chiton_wire::{MERGE_BYTES_MAX, MERGE_EVENTS_MAX, MergeBatch};

use crate::calls::Piece;
use crate::error::RealmError;
use crate::filter::filter;

/// Maximum number of events of a batch, before redundant events are removed. One frame may hold more.
pub(crate) const BATCH_EVENTS: u64 = 65_536;
/// Batches that the reader prepares ahead of the sender.
const AHEAD: usize = 2;

/// A piece of the journal, ready to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) range: MergeBatch,
    bytes: Vec<u8>,
    /// Offset in `bytes` at which each event ends.
    ends: Vec<usize>,
}

impl Batch {
    fn new(range: MergeBatch, mut events: Vec<Event>) -> Batch {
        filter(&mut events);
        let mut bytes = Vec::with_capacity(events.len() * 80);
        let mut ends = Vec::with_capacity(events.len());
        for event in &events {
            event.encode(&mut bytes);
            ends.push(bytes.len());
        }
        Batch { range, bytes, ends }
    }

    /// Number of events that are sent.
    pub(crate) fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Positions of the journal that it stands for.
    pub(crate) fn span(&self) -> u64 {
        self.range.upto.0 - self.range.after.0
    }

    /// The next piece to send after `done` events.
    pub(crate) fn piece(&self, done: u64) -> Piece<'_> {
        let from = usize::try_from(done).unwrap_or(usize::MAX).min(self.ends.len());
        let start = if from == 0 { 0 } else { self.ends[from - 1] };
        let within = |end: &&usize| **end - start <= MERGE_BYTES_MAX;
        let fitting = self.ends[from..].iter().take(MERGE_EVENTS_MAX).take_while(within).count();
        // One that is larger goes alone.
        let count = fitting.max(1).min(self.ends.len() - from);
        let end = if count == 0 { start } else { self.ends[from + count - 1] };
        Piece {
            range: self.range,
            from: from as u64,
            count: count as u32,
            events: &self.bytes[start..end],
            last: from + count == self.ends.len(),
        }
    }
}

/// Batches that the reader has made and the sender has not yet taken.
#[derive(Default)]
struct BatchQueue {
    batches: VecDeque<Batch>,
    /// The reader is through, and how.
    end: Option<Result<(), RealmError>>,
    /// The sender has stopped.
    abandoned: bool,
}

#[derive(Default)]
struct Handoff {
    queue: Mutex<BatchQueue>,
    changed: Condvar,
}

/// The batches of a journal between two positions, in order.
pub(crate) struct Batches {
    handoff: Arc<Handoff>,
    reader: Option<JoinHandle>,
}

impl Batches {
    /// Begins to read after `after`, which is the end of a frame, up to `cut`, which is one too and durable. The first
    /// batch ends at `first` if that is given.
    pub(crate) fn read(
        place: Arc<dyn Place>,
        after: Position,
        first: Option<Position>,
        cut: Position,
    ) -> Batches {
        let handoff = Arc::new(Handoff::default());
        let shared = handoff.clone();
        let body = move || {
            let mut put = |batch| shared.put(batch);
            let end = read_batches(&*place, after, first, cut, &mut put);
            shared.queue.lock().end = Some(end);
            shared.changed.notify_all();
        };
        let reader = thread::spawn("chiton-batches", body).expect("a thread can be started");
        Batches { handoff, reader: Some(reader) }
    }

    /// The next one; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Batch>, RealmError> {
        let mut queue = self.handoff.queue.lock();
        loop {
            if let Some(batch) = queue.batches.pop_front() {
                self.handoff.changed.notify_all();
                return Ok(Some(batch));
            }
            if let Some(end) = &queue.end {
                return end.clone().map(|()| None);
            }
            self.handoff.changed.wait(&mut queue);
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.handoff.queue.lock().abandoned = true;
        self.handoff.changed.notify_all();
        if let Some(reader) = self.reader.take() {
            // A reader that panicked has logged it.
            let _ = reader.join();
        }
    }
}

impl Handoff {
    /// Waits for room. Returns false if the sender has stopped.
    fn put(&self, batch: Batch) -> bool {
        let mut queue = self.queue.lock();
        while queue.batches.len() >= AHEAD && !queue.abandoned {
            self.changed.wait(&mut queue);
        }
        if queue.abandoned {
            return false;
        }
        queue.batches.push_back(batch);
        self.changed.notify_all();
        true
    }
}

/// Gives each event between two positions that a merge sends to `visit`. `first`: as for [`Batches::read`].
pub(crate) fn read_sent(
    place: &dyn Place,
    after: Position,
    first: Option<Position>,
    cut: Position,
    visit: &mut dyn FnMut(&Event),
) -> Result<(), RealmError> {
    read_batches(place, after, first, cut, &mut |batch| {
        let mut from = Take::new(&batch.bytes);
        while !from.is_empty() {
            visit(&Event::decode(&mut from).expect("it was encoded here"));
        }
        true
    })
}

/// Gives each event between two positions to `visit`, as the journal has it.
pub(crate) fn read_events(
    place: &dyn Place,
    after: Position,
    cut: Position,
    visit: &mut dyn FnMut(&Event),
) -> Result<(), RealmError> {
    if after >= cut {
        return Ok(());
    }
    let mut visit_frame = |frame: &Frame<'_>| {
        if frame.first > cut {
            return Err(Halt::Enough);
        }
        decode(frame, &mut |event| visit(&event))
    };
    match replay(place, after, &mut visit_frame, &mut |_| {}) {
        Ok(_) | Err(ReplayError::Visitor(Halt::Enough)) => Ok(()),
        Err(ReplayError::Visitor(Halt::Failed(error))) => Err(error),
        Err(ReplayError::Journal(error)) => Err(RealmError::journal(error)),
    }
}

fn decode(frame: &Frame<'_>, take: &mut dyn FnMut(Event)) -> Result<(), Halt> {
    for event in FrameEvents::new(frame.first, frame.header.event_count, frame.payload) {
        let (_, event) =
            event.map_err(|e| Halt::Failed(RealmError::journal(format!("position {}: {e}", frame.first))))?;
        take(event);
    }
    Ok(())
}

/// Why reading ends before the journal does.
enum Halt {
    /// Reading reached the cut, or the visitor stopped it.
    Enough,
    Failed(RealmError),
}

impl From<chiton_journal::JournalError> for Halt {
    fn from(error: chiton_journal::JournalError) -> Halt {
        Halt::Failed(RealmError::journal(error))
    }
}

/// Passes the batches between two positions to `put`, until `put` returns false.
pub(crate) fn read_batches(
    place: &dyn Place,
    after: Position,
    first: Option<Position>,
    cut: Position,
    put: &mut dyn FnMut(Batch) -> bool,
) -> Result<(), RealmError> {
    if after >= cut {
        return Ok(());
    }
    let mut begun = MergeBatch { after, upto: after };
    let mut fixed = first;
    let mut events = Vec::new();
    let mut visit = |frame: &Frame<'_>| {
        let span = u64::from(frame.header.event_count);
        let is_full = match fixed {
            Some(end) => begun.upto == end,
            None => begun.upto > begun.after && begun.upto.0 + span > begun.after.0 + BATCH_EVENTS,
        };
        if is_full || begun.upto >= cut {
            let batch = Batch::new(begun, std::mem::take(&mut events));
            (begun, fixed) = (MergeBatch { after: begun.upto, upto: begun.upto }, None);
            if !put(batch) || begun.upto >= cut {
                return Err(Halt::Enough);
            }
        }
        decode(frame, &mut |event| events.push(event))?;
        begun.upto = frame.last();
        if begun.upto > cut || fixed.is_some_and(|end| begun.upto > end) {
            let what = format!("no operation ends at position {}, but one at {}", cut.0, begun.upto.0);
            return Err(Halt::Failed(RealmError::journal(what)));
        }
        Ok(())
    };
    match replay(place, after, &mut visit, &mut |_| {}) {
        Ok(_) if begun.upto < cut => {
            Err(RealmError::journal(format!("it ends at position {}, before {}", begun.upto.0, cut.0)))
        }
        Ok(_) => {
            put(Batch::new(begun, events));
            Ok(())
        }
        Err(ReplayError::Visitor(Halt::Enough)) => Ok(()),
        Err(ReplayError::Visitor(Halt::Failed(error))) => Err(error),
        Err(ReplayError::Journal(error)) => Err(RealmError::journal(error)),
    }
}
