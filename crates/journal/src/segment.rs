//! Segments: numbered pieces of a journal, each with a header of 64 bytes, and the marks inside them.
//!
//! ```text
//! 0       8         12        20      28      36        44      52        60      64
//! ├ magic ┼ version ┼ journal ┼ nonce ┼ epoch ┼ segment ┼ first ┼ durable ┼ crc32c ┼ frames and marks …
//!   8 bytes u32       u64       u64     u64     u64       u64     u64       u32
//! ```
//!
//! A **mark** is 8 bytes between frames: the tag `ffffffff`, then a checksum over tag, nonce, segment number and
//! offset. It means that everything before it in the segment was durable when it was written. So a bad frame with a
//! mark after it is corruption. A bad frame without one belongs to the last commit, which a crash may have torn in
//! any order of its pages. Nonce and offset in the checksum keep a payload from forging a mark.
//!
//! Invariants:
//! - `durable < first`: the header witnesses that all up to `durable` was durable when it was written.

use chiton_types::{Epoch, Position, Put, Take};
use crc32c::crc32c;

use crate::damage::Cause;

pub const SEGMENT_HEADER_BYTES: usize = 64;
/// In a place of whole segments, this many numbers after a writer's first segment (its claim, a header alone) are
/// never used. Puts of the earlier writer may land at any later time. They find their number taken by the claim, or
/// land in this range, where an older epoch is void. More than any `dispatch_size`.
pub const FENCE_NUMBERS: u64 = 1024;
/// The one version of the format so far.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"CHITONJ\n";
const CLAIM_MAGIC: [u8; 8] = *b"CHITONC\n";

pub(crate) const MARK_BYTES: usize = 8;
/// First four bytes of a mark; no frame is that long.
pub(crate) const MARK_TAG: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// A header without frames that stops the earlier writer, in a place of whole segments. Only this flag
    /// distinguishes it from a segment that lost its frames.
    pub is_claim: bool,
    /// Which journal it is a piece of.
    pub journal: u64,
    /// Random number that its writer drew when it opened the journal.
    pub nonce: u64,
    /// Fence: past a segment of a newer epoch this one is void.
    pub epoch: Epoch,
    /// Its number: 1, 2, 3 …
    pub segment: u64,
    /// Position of its first event.
    pub first: Position,
    /// Up to where the journal was durable when the segment was begun.
    pub durable: Position,
}

impl SegmentHeader {
    /// Decodes a header.
    ///
    /// # Panics
    /// If `durable` is not before `first`.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.durable < self.first, "a segment begins after what is durable");
        let mut buf = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        buf.extend_from_slice(if self.is_claim { &CLAIM_MAGIC } else { &MAGIC });
        buf.put_u32(VERSION);
        for field in [self.journal, self.nonce, self.epoch.0, self.segment, self.first.0, self.durable.0] {
            buf.put_u64(field);
        }
        buf.put_u32(crc32c(&buf));
        debug_assert_eq!(buf.len(), SEGMENT_HEADER_BYTES);
        buf
    }

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// The damage. [`Cause::HeaderAbsent`] (too few bytes, or all of them zero) is the result of a crash: the
    /// header lies within one sector and is written first.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, Cause> {
        let Some(bytes) = bytes.get(..SEGMENT_HEADER_BYTES) else {
            return Err(Cause::HeaderAbsent { bytes: bytes.len() as u64 });
        };
        if bytes.iter().all(|&b| b == 0) {
            return Err(Cause::HeaderAbsent { bytes: 0 });
        }
        let malformed = |m: chiton_types::Malformed| Cause::Malformed { expected: m.expected };
        let mut take = Take::new(bytes);
        let magic = take.take(8, "a magic number").map_err(malformed)?;
        let is_claim = magic == CLAIM_MAGIC;
        if !is_claim && magic != MAGIC {
            return Err(Cause::Malformed { expected: "the magic number of a journal segment" });
        }
        let version = take.u32().map_err(malformed)?;
        if version != VERSION {
            return Err(Cause::Version { expected: VERSION, found: version });
        }
        let mut field = || take.u64().map_err(malformed);
        let header = SegmentHeader {
            is_claim,
            journal: field()?,
            nonce: field()?,
            epoch: Epoch(field()?),
            segment: field()?,
            first: Position(field()?),
            durable: Position(field()?),
        };
        let expected = take.u32().map_err(malformed)?;
        let found = crc32c(&bytes[..SEGMENT_HEADER_BYTES - 4]);
        if expected != found {
            return Err(Cause::Checksum { expected, found });
        }
        if header.durable >= header.first {
            return Err(Cause::Malformed { expected: "a durable position before the first one" });
        }
        Ok(header)
    }

    /// The mark at `offset` of this segment.
    pub(crate) fn mark(&self, offset: u64) -> [u8; MARK_BYTES] {
        let mut mark = [0xff; MARK_BYTES];
        mark[4..].copy_from_slice(&self.mark_checksum(offset).to_le_bytes());
        mark
    }

    fn mark_checksum(&self, offset: u64) -> u32 {
        let mut bytes = [0xff; 28];
        for (i, field) in [self.nonce, self.segment, offset].into_iter().enumerate() {
            bytes[4 + 8 * i..12 + 8 * i].copy_from_slice(&field.to_le_bytes());
        }
        crc32c(&bytes)
    }

    /// True if a mark of this segment lies in `bytes` at or after `from`.
    pub(crate) fn mark_after(&self, bytes: &[u8], from: usize) -> bool {
        self.find_mark(bytes, from).is_some()
    }

    /// The offset of the first mark of this segment in `bytes` at or after `from`.
    pub(crate) fn find_mark(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let rest = bytes.get(from..).unwrap_or(&[]);
        let tag = MARK_TAG.to_le_bytes();
        rest.windows(MARK_BYTES)
            .enumerate()
            .position(|(i, window)| window[..4] == tag && window == self.mark((from + i) as u64))
            .map(|i| from + i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        is_claim: false,
        journal: 7,
        nonce: 0xabcd,
        epoch: Epoch(3),
        segment: 9,
        first: Position(1000),
        durable: Position(999),
    };

    #[test]
    fn header_round_trips_and_every_flipped_bit_is_seen() {
        let bytes = HEADER.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
        for n in 0..bytes.len() {
            assert_eq!(SegmentHeader::decode(&bytes[..n]), Err(Cause::HeaderAbsent { bytes: n as u64 }));
        }
    }

    #[test]
    fn marks_hold_at_their_offset_and_for_their_writer_only() {
        let mut bytes = vec![0xff; 50];
        bytes[20..28].copy_from_slice(&HEADER.mark(20));
        assert!(HEADER.mark_after(&bytes, 0) && HEADER.mark_after(&bytes, 20));
        assert!(!HEADER.mark_after(&bytes, 21) && !HEADER.mark_after(&bytes, 99));
        assert!(!SegmentHeader { nonce: 1, ..HEADER }.mark_after(&bytes, 0));
        assert!(!HEADER.mark_after(&bytes[1..], 0));
    }
}
