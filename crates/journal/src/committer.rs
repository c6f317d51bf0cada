//! Group commit where segments grow: one thread that takes all that is pending, writes, syncs, confirms.
//!
//! ```text
//!   segment:  header │ frames of commit 1 │ mark │ frames of commit 2 │ mark │ …      sync after each commit
//! ```
//!
//! Invariants:
//! - A mark is written only when all before it was synced, a new segment only when the one before it was.
//! - Between a sync and its confirmation it is looked whether a newer writer has come, and the witness records the position.
//! - A write that failed for lack of space is repeated from the same offset, then synced again: nothing relies on
//!   bytes that an earlier sync may have dropped. After any other error nothing is written again.

use std::sync::Arc;

use chiton_types::Position;

use crate::error::JournalError;
use crate::frame;
use crate::place::{Place, PlaceError};
use crate::reader::read_header;
use crate::segment::{MARK_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::tail::{Batch, Tail};
use crate::trim::Catalog;

pub(crate) struct Committer {
    pub(crate) tail: Arc<Tail>,
    pub(crate) place: Arc<dyn Place>,
    pub(crate) catalog: Arc<Catalog>,
    /// Header of the segment that is being written.
    pub(crate) header: SegmentHeader,
    /// Nothing of it is durable yet, and it is in no catalog.
    pub(crate) is_fresh: bool,
    /// Offset of the next mark or frame.
    pub(crate) offset: u64,
    /// A mark and the frames after it; kept for its memory.
    pub(crate) joined: Vec<u8>,
}

/// Frames of at most this many bytes are copied behind their mark, for a single write.
const JOINED_BYTES_MAX: usize = 64 << 10;

impl Committer {
    /// Commits until the journal is closed or failed.
    pub(crate) fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            if let Err(error) = self.commit(batch) {
                self.tail.report(error);
                return;
            }
        }
        // The mark distinguishes damage to the last commit from a torn commit. No caller waits for it, so an error
        // is ignored.
        if let Some(mark) = self.next_mark() {
            let marked = self.place.append(self.header.segment, self.offset, &mark);
            let _ = marked.and_then(|()| self.place.sync(self.header.segment));
        }
        self.tail.report(JournalError::Closed);
    }

    fn next_batch(&self) -> Option<Batch> {
        let mut state = self.tail.lock();
        let mut interval_passed = false;
        loop {
            if state.is_due(&self.tail.options) || (interval_passed && !state.is_empty()) {
                return Some(state.take());
            }
            if state.closing {
                return None;
            }
            let timed = !state.is_empty();
            interval_passed = self.tail.sleep(&mut state, timed);
        }
    }

    fn commit(&mut self, mut batch: Batch) -> Result<(), JournalError> {
        batch.seal();
        self.tail.hooks.before_commit(batch.last)?;
        let mut durable = self.tail.durable();
        let mut done = 0;
        while done < batch.frames.len() {
            match self.write(&batch.frames[done..], durable, batch.last) {
                Ok((bytes, position)) => {
                    durable = position;
                    done += bytes;
                    if done < batch.frames.len() {
                        self.tail.confirm(durable, bytes, None);
                    } else {
                        assert_eq!(durable, batch.last, "frames and positions of a commit disagree");
                        self.tail.confirm(durable, bytes, Some(batch.frames));
                        break;
                    }
                }
                Err(error) if error.may_heal() && !self.tail.lock().closing => {
                    self.tail.report(error);
                    self.tail.pause();
                }
                Err(fenced @ JournalError::Fenced { .. }) => return Err(fenced),
                Err(error) => return Err(JournalError::Failed(error.to_string())),
            }
        }
        Ok(())
    }

    /// Makes as many of the frames durable as fit the segment; returns their bytes and last position.
    fn write(
        &mut self,
        frames: &[u8],
        durable: Position,
        last: Position,
    ) -> Result<(usize, Position), JournalError> {
        let segment_bytes = self.tail.options.segment_bytes as u64;
        if self.offset >= segment_bytes {
            self.begin_segment(durable)?;
        }
        let room = segment_bytes.saturating_sub(self.offset) as usize;
        let (bytes, position) = if frames.len() <= room {
            (frames.len(), last)
        } else {
            let (bytes, events) = frame::run(frames, room);
            (bytes, Position(durable.0 + events))
        };
        let mark = self.next_mark();
        let at = self.offset + mark.map_or(0, |mark| mark.len() as u64);
        match mark {
            // One call for both is worth a copy of a few.
            Some(mark) if bytes <= JOINED_BYTES_MAX => {
                self.joined.clear();
                self.joined.extend_from_slice(&mark);
                self.joined.extend_from_slice(&frames[..bytes]);
                self.place.append(self.header.segment, self.offset, &self.joined)?;
            }
            mark => {
                if let Some(mark) = mark {
                    self.place.append(self.header.segment, self.offset, &mark)?;
                }
                self.place.append(self.header.segment, at, &frames[..bytes])?;
            }
        }
        self.place.sync(self.header.segment)?;
        if std::mem::take(&mut self.is_fresh) {
            // Not before: of those that have a successor a trim leaves none.
            self.catalog.add(self.header.segment, self.header.first);
        }
        self.check_fence()?;
        self.tail.hooks.witness(position)?;
        self.offset = at + bytes as u64;
        Ok((bytes, position))
    }

    /// A commit counts only if no newer writer has begun: checked after the sync, before anything is confirmed. (A
    /// writer that began before the write has read an end without it.)
    fn check_fence(&self) -> Result<(), JournalError> {
        // A newer writer begins with the next number, and trims from the first segment on, so that this segment
        // goes before that one: two checks instead of a list.
        let number = self.header.segment;
        if let Some(next) = number.checked_add(1)
            && self.place.holds(number)?
            && !self.place.holds(next)?
        {
            return Ok(());
        }
        let mut segments = match self.place.list() {
            Err(PlaceError::Missing) => Vec::new(),
            segments => segments?,
        };
        segments.retain(|segment| segment.number >= self.header.segment);
        for segment in segments.iter().filter(|segment| segment.number > self.header.segment) {
            let there = match self.place.read(segment.number, SEGMENT_HEADER_BYTES as u64) {
                Err(PlaceError::Missing) => continue,
                result => read_header(segment.number, &result?),
            };
            // A segment without a header is being created, or a crash left it: it fences once it has an epoch.
            if let Ok(there) = there
                && there.journal == self.header.journal
                && there.epoch > self.header.epoch
            {
                return Err(JournalError::Fenced { by: there.epoch });
            }
        }
        match segments.first() {
            Some(segment) if segment.number == self.header.segment => Ok(()),
            _ => Err(JournalError::Failed(format!(
                "segment {} is gone: was it, or its directory, removed or renamed?",
                self.header.segment
            ))),
        }
    }

    /// The mark that goes to the offset, if frames lie before it.
    fn next_mark(&self) -> Option<[u8; MARK_BYTES]> {
        (self.offset != SEGMENT_HEADER_BYTES as u64).then(|| self.header.mark(self.offset))
    }

    fn begin_segment(&mut self, durable: Position) -> Result<(), JournalError> {
        let segment = self.header.segment + 1;
        let header = SegmentHeader { segment, first: durable.next(), durable, ..self.header };
        create_past_void(&*self.place, &header, &header.encode())?;
        self.is_fresh = true;
        self.header = header;
        self.offset = SEGMENT_HEADER_BYTES as u64;
        Ok(())
    }
}

/// Creates a segment that grows. A segment of an older epoch with its number is void, since this writer's epoch
/// comes before it, and is replaced: this process holds the place's lock.
fn create_past_void(place: &dyn Place, header: &SegmentHeader, bytes: &[u8]) -> Result<(), JournalError> {
    loop {
        match place.create(header.segment, bytes) {
            Err(PlaceError::Exists) => {}
            result => return Ok(result?),
        }
        let there = match place.read(header.segment, SEGMENT_HEADER_BYTES as u64) {
            Err(PlaceError::Missing) => continue,
            result => read_header(header.segment, &result?)?,
        };
        if there.journal != header.journal || there.epoch >= header.epoch {
            return Err(JournalError::Fenced { by: there.epoch });
        }
        place.remove(header.segment)?;
    }
}
