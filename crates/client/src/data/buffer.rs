//! Bytes that were written and are not yet on their way: exact ranges of one file.
//!
//! ```text
//!   slot (block_bytes)      slot                    slot
//!   |aaaaaaaaaaaaaaaaaaaaaa|bbbb    cc    dddddddddd|eee
//!    full: leaves at once   segments: packed into one block at the next push
//! ```
//!
//! Invariants:
//! - Segments do not overlap, and none crosses the border of a slot: bytes that are written from front to back becomes whole
//!   blocks, and no block crosses the border of a chunk of the map.
//! - Written bytes are copied once. Segments are joined only when the smaller side is copied (or is small), so that
//!   writing from back to front does not copy everything over and over.

use std::collections::BTreeMap;
use std::ops::Range;

use chiton_objects::block::encoded_bytes;

use super::budget::Budget;

/// From this length on a segment gets memory for a whole block at once.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// The memory that a segment takes beside its bytes.
const SEGMENT_COST_BYTES: usize = 96;

/// Bytes at their place in the file.
pub(super) type Piece = (u64, Vec<u8>);

/// The dirty bytes of one file.
#[derive(Debug)]
pub(super) struct DirtyBuffer {
    segments: BTreeMap<u64, Vec<u8>>,
    slot_bytes: u64,
}

impl DirtyBuffer {
    pub(super) fn new(slot_bytes: usize) -> DirtyBuffer {
        DirtyBuffer { segments: BTreeMap::new(), slot_bytes: slot_bytes as u64 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Puts `data` at `offset`, over the bytes there.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], budget: &Budget) {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let slot_end = (at / self.slot_bytes + 1) * self.slot_bytes;
            let before = self.segments.range_mut(..=at).next_back();
            if let Some((&start, segment)) = before {
                let end = start + segment.len() as u64;
                if at < end {
                    let n = rest.len().min((end - at) as usize);
                    let from = (at - start) as usize;
                    segment[from..from + n].copy_from_slice(&rest[..n]);
                    (at, rest) = (at + n as u64, &rest[n..]);
                    continue;
                }
            }
            let next = self.segments.range(at..).next().map_or(u64::MAX, |(&start, _)| start);
            let n = rest.len().min((next.min(slot_end) - at) as usize);
            let before = self.segments.range(..at).next_back();
            let start = match before {
                Some((&start, s)) if start + s.len() as u64 == at && !at.is_multiple_of(self.slot_bytes) => {
                    start
                }
                _ => {
                    self.segments.insert(at, Vec::new());
                    budget.take(SEGMENT_COST_BYTES);
                    at
                }
            };
            let segment = self.segments.get_mut(&start).expect("found or made above");
            append(segment, &rest[..n], self.slot_bytes as usize, budget);
            (at, rest) = (at + n as u64, &rest[n..]);
            self.join_next(start, budget);
        }
    }

    /// Joins the segment at `start` with the one right behind it, if that costs little.
    fn join_next(&mut self, start: u64, budget: &Budget) {
        let Some(segment) = self.segments.get(&start) else { return };
        let end = start + segment.len() as u64;
        let Some(next) = self.segments.get(&end) else { return };
        let cheap = next.len() <= segment.len() || next.len() <= 4096;
        if !cheap || end.is_multiple_of(self.slot_bytes) {
            return;
        }
        let next = self.segments.remove(&end).expect("it was just seen");
        let segment = self.segments.get_mut(&start).expect("it was just seen");
        append(segment, &next, self.slot_bytes as usize, budget);
        budget.give_segment(next);
    }

    /// Takes out the segment that reaches the end of a slot, if it is a good part of it: a caller that writes sequentially has left
    /// it behind.
    pub(super) fn take_full(&mut self, slot_end: u64, budget: &Budget) -> Option<Piece> {
        let (&start, segment) = self.segments.range(..slot_end).next_back()?;
        let bytes = segment.len() as u64;
        if start + bytes != slot_end || bytes < self.slot_bytes / 4 {
            return None;
        }
        budget.give(SEGMENT_COST_BYTES);
        self.segments.remove(&start).map(|bytes| (start, bytes))
    }

    /// Takes out all segments. The memory of their bytes stays taken from the budget.
    pub(super) fn take(&mut self, budget: &Budget) -> Vec<Piece> {
        budget.give(self.segments.len() * SEGMENT_COST_BYTES);
        std::mem::take(&mut self.segments).into_iter().collect()
    }

    /// Removes the bytes of a range, and gives their memory back.
    pub(super) fn cut(&mut self, range: Range<u64>, budget: &Budget) {
        if range.is_empty() {
            return;
        }
        let before = self.segments.range(..range.start).next_back();
        let first =
            before.filter(|(at, s)| **at + s.len() as u64 > range.start).map_or(range.start, |(&at, _)| at);
        let touched: Vec<u64> = self.segments.range(first..range.end).map(|(&at, _)| at).collect();
        for at in touched {
            let mut segment = self.segments.remove(&at).expect("it was just seen");
            let end = at + segment.len() as u64;
            if end > range.end {
                let tail = segment[(range.end - at) as usize..].to_vec();
                budget.take(tail.capacity() + SEGMENT_COST_BYTES);
                self.segments.insert(range.end, tail);
            }
            if at < range.start {
                segment.truncate((range.start - at) as usize);
                self.segments.insert(at, segment);
            } else {
                budget.give_segment(segment);
            }
        }
    }

    /// The bytes in a range, clipped to it, in order.
    pub(super) fn over(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.segments.range(..range.start).next_back();
        let rest = self.segments.range(range.start..range.end.max(range.start));
        first.into_iter().chain(rest).filter_map(move |(&at, s)| {
            let start = at.max(range.start);
            let end = (at + s.len() as u64).min(range.end);
            (start < end).then(|| (start, &s[(start - at) as usize..(end - at) as usize]))
        })
    }
}

/// Appends without growing by doubling once it is clear that a block comes about.
fn append(bytes: &mut Vec<u8>, data: &[u8], slot_bytes: usize, budget: &Budget) {
    let room = bytes.capacity();
    if bytes.len() + data.len() > room {
        if bytes.len() + data.len() > SMALL_BYTES_MAX {
            let mut whole = budget.buffer(encoded_bytes(slot_bytes as u64) as usize);
            whole.extend_from_slice(bytes);
            budget.give_buffer(std::mem::replace(bytes, whole));
        } else {
            bytes.reserve(data.len());
            budget.take(bytes.capacity() - room);
        }
    }
    bytes.extend_from_slice(data);
}

impl Budget {
    /// Gives back what a segment held.
    fn give_segment(&self, bytes: Vec<u8>) {
        self.give(SEGMENT_COST_BYTES);
        self.give_buffer(bytes);
    }
}
