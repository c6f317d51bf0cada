//! Reading the frames of one segment's bytes.
//!
//! Invariants:
//! - No frame is given out whose checksum is wrong, and none after damage.
//! - Ambiguous damage counts as torn. A bad frame is corruption only if a mark follows it, or if it ends where a
//!   whole frame begins and none of its sectors is zero (as a page would be that a crash kept from the disk).

use chiton_types::{Malformed, Position};

use crate::damage::{Cause, Damage, DamageKind};
use crate::segment::{MARK_BYTES, MARK_TAG, SEGMENT_HEADER_BYTES, SegmentHeader};
use chiton_types::frame::{FRAME_BODY_BYTES_MAX, FrameHeader, PREFIX_BYTES, checksum, parse_body};

const SECTOR_BYTES: usize = 512;

/// A frame in a segment's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Position of its first event.
    pub first: Position,
    pub header: FrameHeader,
    /// The encoded events.
    pub payload: &'a [u8],
    /// Number of the segment that holds it.
    pub segment: u64,
    /// Where it begins in the segment, in bytes.
    pub offset: u64,
}

impl Frame<'_> {
    pub fn last(&self) -> Position {
        Position(self.first.0 + u64::from(self.header.event_count) - 1)
    }
}

/// Iterates over the frames of a segment; an error is the last item.
#[derive(Clone, Debug)]
pub struct SegmentReader<'a> {
    header: SegmentHeader,
    bytes: &'a [u8],
    offset: usize,
    next: Position,
    ended: bool,
    /// The header could not be read: marks cannot be checked.
    headless: bool,
}

impl<'a> SegmentReader<'a> {
    /// Starts at the front of `bytes`, which are segment `number`.
    ///
    /// # Errors
    /// If the header is damaged or of another number.
    pub fn new(number: u64, bytes: &'a [u8]) -> Result<SegmentReader<'a>, Damage> {
        let header = read_header(number, bytes)?;
        Ok(SegmentReader {
            header,
            bytes,
            offset: SEGMENT_HEADER_BYTES,
            next: header.first,
            ended: false,
            headless: false,
        })
    }

    /// The same for bytes whose header cannot be read, with one that is guessed.
    pub(crate) fn headless(header: SegmentHeader, bytes: &'a [u8]) -> SegmentReader<'a> {
        let offset = SEGMENT_HEADER_BYTES.min(bytes.len());
        SegmentReader { header, bytes, offset, next: header.first, ended: false, headless: true }
    }

    /// Continues at `offset`, behind damage. The caller must know the positions from there.
    pub(crate) fn resume_at(&mut self, offset: usize) {
        (self.offset, self.ended, self.next) = (offset, false, Position(1));
    }

    /// True if a whole frame, a mark or the end is at `offset`.
    pub(crate) fn is_whole_at(&self, offset: usize) -> bool {
        let mut there = self.clone();
        there.resume_at(offset);
        offset <= self.bytes.len() && there.step().is_ok()
    }

    /// The first mark at or after `from`.
    pub(crate) fn next_mark(&self, from: usize) -> Option<usize> {
        self.header.find_mark(self.bytes, from)
    }

    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Position of the event that would come next.
    pub fn next_position(&self) -> Position {
        self.next
    }

    /// Where the next frame would begin, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset as u64
    }

    fn step(&mut self) -> Result<Option<Frame<'a>>, (Cause, usize)> {
        loop {
            let rest = &self.bytes[self.offset..];
            let Some(prefix) = rest.first_chunk::<PREFIX_BYTES>() else {
                let cause = Cause::Short { expected: PREFIX_BYTES as u64, found: rest.len() as u64 };
                return if rest.iter().all(|&b| b == 0) { Ok(None) } else { Err((cause, rest.len())) };
            };
            let length = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
            let expected = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]);
            if length == MARK_TAG {
                let mark = self.header.mark(self.offset as u64);
                let found = u32::from_le_bytes([mark[4], mark[5], mark[6], mark[7]]);
                if expected != found && !self.headless {
                    return Err((Cause::Checksum { expected, found }, MARK_BYTES));
                }
                self.offset += MARK_BYTES;
                continue;
            }
            if length == 0 {
                let cause = Cause::Malformed { expected: "zeros up to the end after a length of 0" };
                return if rest.iter().all(|&b| b == 0) { Ok(None) } else { Err((cause, rest.len())) };
            }
            return self.frame(rest, length, expected).map(Some);
        }
    }

    fn frame(&mut self, rest: &'a [u8], length: u32, expected: u32) -> Result<Frame<'a>, (Cause, usize)> {
        if length as usize > FRAME_BODY_BYTES_MAX {
            let cause = Cause::Length { expected_max: FRAME_BODY_BYTES_MAX as u64, found: u64::from(length) };
            return Err((cause, rest.len()));
        }
        let frame_bytes = PREFIX_BYTES + length as usize;
        let Some(body) = rest.get(PREFIX_BYTES..frame_bytes) else {
            return Err((
                Cause::Short { expected: frame_bytes as u64, found: rest.len() as u64 },
                rest.len(),
            ));
        };
        let found = checksum(length, body);
        if expected != found {
            return Err((Cause::Checksum { expected, found }, frame_bytes));
        }
        let malformed = |m: Malformed| (Cause::Malformed { expected: m.expected }, 0);
        let (header, payload) = parse_body(body).map_err(malformed)?;
        let next = self.next.0.checked_add(u64::from(header.event_count));
        let next = next.ok_or_else(|| malformed(Malformed { expected: "a position below 2^64" }))?;
        let offset = self.offset as u64;
        let frame = Frame { first: self.next, header, payload, segment: self.header.segment, offset };
        self.next = Position(next);
        self.offset += frame_bytes;
        Ok(frame)
    }

    /// Torn or corrupt, for bad bytes at the offset that seem to be `span` long.
    fn judge(&self, cause: &Cause, span: usize) -> DamageKind {
        let after = self.offset + span;
        let whole_but_wrong = matches!(cause, Cause::Malformed { .. }) && span == 0;
        let frame_follows = || {
            let mut rest = self.clone();
            rest.offset = after;
            after < self.bytes.len() && matches!(rest.step(), Ok(Some(_)))
        };
        let sector_lost = || {
            let from = self.offset.next_multiple_of(SECTOR_BYTES).min(after);
            self.bytes[from..after].chunks_exact(SECTOR_BYTES).any(|sector| sector.iter().all(|&b| b == 0))
        };
        if whole_but_wrong
            || self.header.mark_after(self.bytes, self.offset)
            || (matches!(cause, Cause::Checksum { .. }) && frame_follows() && !sector_lost())
        {
            DamageKind::Corrupt
        } else {
            DamageKind::Torn
        }
    }
}

impl<'a> Iterator for SegmentReader<'a> {
    type Item = Result<Frame<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.step() {
            Ok(Some(frame)) => Some(Ok(frame)),
            Ok(None) => {
                self.ended = true;
                None
            }
            Err((cause, span)) => {
                self.ended = true;
                let kind = self.judge(&cause, span);
                Some(Err(Damage { segment: self.header.segment, offset: self.offset as u64, kind, cause }))
            }
        }
    }
}

/// Reads and checks the header of segment `number`.
///
/// # Errors
/// Torn where a crash may have left it so.
pub(crate) fn read_header(number: u64, bytes: &[u8]) -> Result<SegmentHeader, Damage> {
    let damage = |cause| {
        let kind = match cause {
            Cause::HeaderAbsent { .. } => DamageKind::Torn,
            _ => DamageKind::Corrupt,
        };
        Damage { segment: number, offset: 0, kind, cause }
    };
    let header = SegmentHeader::decode(bytes).map_err(damage)?;
    if header.segment != number {
        return Err(damage(Cause::Misplaced { name: "segment", expected: number, found: header.segment }));
    }
    Ok(header)
}
