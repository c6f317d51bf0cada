//! Group commit where segments are whole: each commit is one or more objects, up to `dispatch_size` of which are
//! being put at a time.
//!
//! ```text
//!   tail ──▶ dispatcher ──▶ put 7 ┐
//!              │  ▲          put 8 ├─▶ landed {8, 9}: 7 is out, nothing is confirmed
//!              │  └───────── put 9 ┘   landed {7, 8, 9}: confirmed up to 9
//! ```
//!
//! Invariants:
//! - Only contiguous numbers are confirmed.
//! - The first object of a writer is put alone: if a claim has no segment after it, the segment was trimmed, not
//!   lost.
//! - Nothing is ever removed to make room: the number may be a newer writer's by the time the removal happens.
//! - Memory is bounded by dispatch_size times (segment_bytes or one frame), and by pending_bytes_max.
//! - A retry puts the same bytes under the same number, so it recognises an earlier put that landed without an
//!   answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::thread;
use chiton_types::Position;

use crate::error::JournalError;
use crate::frame;
use crate::place::{Place, PlaceError};
use crate::reader::read_header;
use crate::segment::{MARK_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::tail::Tail;
use crate::trim::Catalog;

pub(crate) struct Dispatcher {
    pub(crate) tail: Arc<Tail>,
    pub(crate) place: Arc<dyn Place>,
    pub(crate) catalog: Arc<Catalog>,
    /// Header of the last object that was dispatched.
    pub(crate) header: SegmentHeader,
    /// Position of the last event that was dispatched.
    pub(crate) dispatched: Position,
    /// Frames that are taken and not yet dispatched.
    pub(crate) rest: Rest,
}

/// Frames of a batch from `from` on.
#[derive(Default)]
pub(crate) struct Rest {
    frames: Vec<u8>,
    from: usize,
}

/// An object that is being put.
struct Put {
    header: SegmentHeader,
    bytes: Vec<u8>,
    range: PutRange,
}

/// The position to confirm when an object has landed.
#[derive(Clone, Copy)]
struct PutRange {
    first: Position,
    last: Position,
    frames_bytes: usize,
}

/// The queue between dispatcher and putting threads.
#[derive(Default)]
struct Lane {
    state: Mutex<LaneState>,
    ready: Condvar,
}

#[derive(Default)]
struct LaneState {
    puts: VecDeque<Put>,
    landed: BTreeMap<u64, PutRange>,
    /// Objects dispatched and not yet confirmed.
    out_count: usize,
    ended: bool,
}

impl Dispatcher {
    /// Commits until the journal is closed or failed.
    pub(crate) fn run(mut self) {
        let lane = Arc::new(Lane::default());
        let mut putting = Vec::new();
        for _ in 0..self.tail.options.dispatch_size {
            let (lane, tail, place) = (lane.clone(), self.tail.clone(), self.place.clone());
            let thread = thread::spawn("journal-put", move || lane.put_all(&tail, &*place));
            putting.push(thread.expect("a thread can be started"));
        }
        let result = {
            let _end = EndAtDrop(&lane);
            dispatch(&self.tail, &self.catalog, &lane, &mut self.header, &mut self.dispatched, &mut self.rest)
        };
        for thread in putting {
            thread.join().expect("a putting thread does not panic");
        }
        self.tail.report(result.err().unwrap_or(JournalError::Closed));
    }
}

fn dispatch(
    tail: &Tail,
    catalog: &Catalog,
    lane: &Lane,
    header: &mut SegmentHeader,
    dispatched: &mut Position,
    rest: &mut Rest,
) -> Result<(), JournalError> {
    let claimed = header.segment;
    let mut confirmed = claimed;
    let mut interval_passed = false;
    loop {
        while let Some(range) = lane.landed(confirmed + 1) {
            confirmed += 1;
            catalog.add(confirmed, range.first);
            tail.hooks.witness(range.last)?;
            tail.confirm(range.last, range.frames_bytes, None);
        }
        let slots = if confirmed == claimed { 1 } else { tail.options.dispatch_size };
        let has_slot = lane.out_count() < slots;
        if has_slot && rest.from < rest.frames.len() {
            lane.push(rest.next_put(tail, header, dispatched), slots);
            continue;
        }
        let mut state = tail.lock();
        if state.failed() {
            return Ok(());
        }
        if has_slot && (state.is_due(&tail.options) || (interval_passed && !state.is_empty())) {
            let mut batch = state.take();
            drop(state);
            batch.seal();
            tail.hooks.before_commit(batch.last)?;
            *rest = Rest { frames: batch.frames, from: 0 };
            continue;
        }
        if state.closing && state.is_empty() && rest.from == rest.frames.len() && lane.out_count() == 0 {
            return Ok(());
        }
        if !lane.has_landed(confirmed + 1) {
            let timed = has_slot && !state.is_empty();
            interval_passed = tail.sleep(&mut state, timed);
        }
    }
}

impl Rest {
    /// The next object: as many frames as fit.
    fn next_put(&mut self, tail: &Tail, header: &mut SegmentHeader, dispatched: &mut Position) -> Put {
        let room = tail.options.segment_bytes.saturating_sub(SEGMENT_HEADER_BYTES + MARK_BYTES);
        let (frames_bytes, events) = frame::run(&self.frames[self.from..], room);
        let first = dispatched.next();
        *header = SegmentHeader { segment: header.segment + 1, first, durable: tail.durable(), ..*header };
        *dispatched = Position(dispatched.0 + events);
        let mut bytes = header.encode();
        bytes.reserve_exact(frames_bytes + MARK_BYTES);
        bytes.extend_from_slice(&self.frames[self.from..self.from + frames_bytes]);
        let mark = header.mark(bytes.len() as u64);
        bytes.extend_from_slice(&mark);
        self.from += frames_bytes;
        if self.from == self.frames.len() {
            *self = Rest::default();
        }
        Put { header: *header, bytes, range: PutRange { first, last: *dispatched, frames_bytes } }
    }
}

fn put_whole(place: &dyn Place, header: &SegmentHeader, bytes: &[u8]) -> Result<(), JournalError> {
    match place.create(header.segment, bytes) {
        Err(PlaceError::Exists) => {}
        result => return Ok(result?),
    }
    let there = read_header(header.segment, &place.read(header.segment, SEGMENT_HEADER_BYTES as u64)?)?;
    if there.journal != header.journal || there.epoch >= header.epoch {
        return Err(JournalError::Fenced { by: there.epoch });
    }
    // Numbers of older writers end before those of this one begin, so the place was changed by hand.
    Err(JournalError::Failed(format!(
        "segment {} is taken by epoch {}, which ended before epoch {}",
        header.segment, there.epoch, header.epoch
    )))
}

/// Ends the putting threads also when a hook panics.
struct EndAtDrop<'a>(&'a Lane);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.ready.notify_all();
    }
}

impl Lane {
    fn out_count(&self) -> usize {
        self.state.lock().out_count
    }

    fn has_landed(&self, number: u64) -> bool {
        self.state.lock().landed.contains_key(&number)
    }

    fn landed(&self, number: u64) -> Option<PutRange> {
        let mut state = self.state.lock();
        let range = state.landed.remove(&number)?;
        state.out_count -= 1;
        Some(range)
    }

    /// `slots`: as many may be under way.
    fn push(&self, put: Put, slots: usize) {
        let mut state = self.state.lock();
        assert!(state.out_count < slots, "{} objects are under way, at most {slots} may be", state.out_count);
        state.puts.push_back(put);
        state.out_count += 1;
        drop(state);
        self.ready.notify_one();
    }

    fn next(&self) -> Option<Put> {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some(put) = state.puts.pop_front() {
                return Some(put);
            }
            self.ready.wait(&mut state);
        }
    }

    fn put_all(&self, tail: &Tail, place: &dyn Place) {
        while let Some(put) = self.next() {
            loop {
                match put_whole(place, &put.header, &put.bytes) {
                    Ok(()) => break,
                    Err(_) if self.state.lock().ended => return,
                    Err(error) if error.may_heal() && !tail.lock().closing => {
                        tail.report(error);
                        tail.pause();
                    }
                    Err(error) if error.may_heal() => {
                        return tail.report(JournalError::Failed(error.to_string()));
                    }
                    Err(error) => return tail.report(error),
                }
            }
            self.state.lock().landed.insert(put.header.segment, put.range);
            tail.poke();
        }
    }
}
