//! Group commit where segments grow: one thread that takes all that is pending, writes, syncs, confirms.
//!
//! ```text
//!   segment:  header │ frames of commit 1 │ mark │ frames of commit 2 │ mark │ …      sync after each commit
//! ```
//!
//! Invariants:
//! - A mark is written only when all before it was synced, a new segment only when the one before it was.
//! - Between a sync and its confirmation it is looked whether a newer writer has come.
//! - What failed for want of space is written again from the same offset, then synced again: nothing that an earlier
//!   sync may have dropped is relied on. After any other error nothing is written again.

use std::sync::Arc;

use chiton_types::Position;

use crate::error::JournalError;
use crate::frame;
use crate::place::{Place, PlaceError};
use crate::reader::read_header;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::tail::{Batch, Tail};
use crate::trim::Catalog;

/// The thread's state.
pub(crate) struct Committer {
    pub(crate) tail: Arc<Tail>,
    pub(crate) place: Arc<dyn Place>,
    pub(crate) catalog: Arc<Catalog>,
    /// Header of the segment that is being written.
    pub(crate) header: SegmentHeader,
    /// Where the next mark or frame goes.
    pub(crate) offset: u64,
}

impl Committer {
    /// Commits until the journal is closed or failed.
    pub(crate) fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            if let Err(error) = self.commit(batch) {
                self.tail.report(error);
                return;
            }
        }
        // So that damage to the last commit is told from a torn one. Nothing was promised: no error.
        let _ = self.mark().and_then(|_| self.place.sync(self.header.segment));
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

    fn commit(&mut self, batch: Batch) -> Result<(), JournalError> {
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
        let at = self.mark()?;
        self.place.append(self.header.segment, at, &frames[..bytes])?;
        self.place.sync(self.header.segment)?;
        self.look_for_newer()?;
        self.offset = at + bytes as u64;
        Ok((bytes, position))
    }

    /// After the sync and before anybody is told: a newer writer begins the segment after ours.
    fn look_for_newer(&self) -> Result<(), JournalError> {
        let segment = self.header.segment + 1;
        match self.place.read(segment, SEGMENT_HEADER_BYTES as u64) {
            Err(PlaceError::Missing) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(head) => match SegmentHeader::decode(&head) {
                Ok(header) if header.epoch > self.header.epoch => {
                    Err(JournalError::Fenced { by: header.epoch })
                }
                // What a crash left, or an older writer, is in nobody's way yet.
                _ => Ok(()),
            },
        }
    }

    /// Writes a mark if frames lie before it; returns the offset after it.
    fn mark(&self) -> Result<u64, PlaceError> {
        if self.offset == SEGMENT_HEADER_BYTES as u64 {
            return Ok(self.offset);
        }
        let mark = self.header.mark(self.offset);
        self.place.append(self.header.segment, self.offset, &mark)?;
        Ok(self.offset + mark.len() as u64)
    }

    fn begin_segment(&mut self, durable: Position) -> Result<(), JournalError> {
        let segment = self.header.segment + 1;
        let header = SegmentHeader { segment, first: durable.next(), durable, ..self.header };
        create_past_void(&*self.place, &header, &header.encode())?;
        self.catalog.add(segment, header.first);
        self.header = header;
        self.offset = SEGMENT_HEADER_BYTES as u64;
        Ok(())
    }
}

/// Creates a segment that grows. One of an older epoch with its number is void, since this writer's epoch stands
/// before it, and makes room: nobody else has the place's lock.
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
