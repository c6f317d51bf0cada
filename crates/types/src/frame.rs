//! Frames of a journal: one operation's events with their length and checksum. The engine writes them, the journal keeps them.
//!
//! ```text
//! 0        4        8                                                        8 + length
//! ├ length ┼ crc32c ┼ event_count ┬ shard ┬ session ┬ seq    ┬ payload … ┤
//!   u32      u32      varint        u16     varint    varint
//! ```
//!
//! Invariants:
//! - The checksum covers the length and the body, and neither the segment nor the offset: a frame is encoded
//!   before anyone knows where it will lie. In memory, on its way to the journal, a frame has no checksum yet.
//! - `event_count` is never 0, so a body is never empty and a length of 0 means that no frame is here.

use std::mem;

use crc32c::{crc32c, crc32c_append};

use crate::{Malformed, Seq, SessionId, ShardId, Take};

/// Bytes before a frame's body: length and checksum.
pub const PREFIX_BYTES: usize = 8;
/// Longest body of a frame, in bytes.
pub const FRAME_BODY_BYTES_MAX: usize = 64 << 20;
/// Shortest body: four fields of one byte and the two of the shard.
pub const BODY_BYTES_MIN: usize = 5;
/// Longest encoding of the fields in front of the payload.
const FIELDS_BYTES_MAX: usize = 5 + 2 + 10 + 10;

/// The fields of every frame in front of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// How many positions the frame takes; at least 1.
    pub event_count: u32,
    /// The shard that the events belong to.
    pub shard: ShardId,
    /// The session that asked; 0 for the server itself.
    pub session: SessionId,
    /// The operation's number within the session; 0 for the server itself.
    pub seq: Seq,
}

/// Checksum of a frame.
#[inline]
#[must_use]
pub fn checksum(length: u32, body: &[u8]) -> u32 {
    crc32c_append(crc32c(&length.to_le_bytes()), body)
}

/// Appends a whole frame to `buf`.
///
/// # Panics
/// If `header.event_count` is 0 or the body exceeds [`FRAME_BODY_BYTES_MAX`].
#[inline]
pub fn encode_frame(buf: &mut Vec<u8>, header: &FrameHeader, payload: &[u8]) {
    let mut frame = FrameBuilder::begin(buf, header);
    frame.payload().extend_from_slice(payload);
    frame.seal();
}

/// A frame whose payload its maker writes in place.
///
/// Dropped without [`FrameBuilder::seal`], it leaves the buffer as it was.
#[derive(Debug)]
pub struct FrameBuilder<'a> {
    buf: &'a mut Vec<u8>,
    start: usize,
    payload_start: usize,
}

impl<'a> FrameBuilder<'a> {
    /// Starts a frame at the end of `buf`.
    ///
    /// # Panics
    /// If `header.event_count` is 0.
    #[inline]
    pub fn begin(buf: &'a mut Vec<u8>, header: &FrameHeader) -> FrameBuilder<'a> {
        assert!(header.event_count > 0, "a frame takes at least one position");
        let start = buf.len();
        // One fixed array and one copy: several small pushes cost half of the throughput.
        let mut fields = [0u8; PREFIX_BYTES + FIELDS_BYTES_MAX];
        let mut at = write_varint(&mut fields, PREFIX_BYTES, u64::from(header.event_count));
        fields[at..at + 2].copy_from_slice(&header.shard.0.to_le_bytes());
        at = write_varint(&mut fields, at + 2, header.session.0);
        at = write_varint(&mut fields, at, header.seq.0);
        buf.extend_from_slice(&fields[..at]);
        FrameBuilder { payload_start: start + at, buf, start }
    }

    /// The buffer, to append the payload to. Bytes that were there before must stay.
    #[inline]
    pub fn payload(&mut self) -> &mut Vec<u8> {
        self.buf
    }

    /// Fills in length and checksum; returns the frame's bytes, prefix included.
    ///
    /// # Panics
    /// As [`FrameBuilder::close`].
    #[inline]
    pub fn seal(mut self) -> usize {
        let bytes = self.fill_in_length();
        seal(&mut self.buf[self.start..]);
        mem::forget(self);
        bytes
    }

    /// Fills in the length only; returns the frame's bytes, prefix included. The journal fills in the checksum when it writes the
    /// frame: the writer that appends it may hold a lock.
    ///
    /// # Panics
    /// If the buffer was cut into the frame's fields or the body exceeds [`FRAME_BODY_BYTES_MAX`].
    #[inline]
    pub fn close(mut self) -> usize {
        let bytes = self.fill_in_length();
        mem::forget(self);
        bytes
    }

    #[inline]
    fn fill_in_length(&mut self) -> usize {
        assert!(self.buf.len() >= self.payload_start, "the buffer was cut while a frame was being written");
        let frame = &mut self.buf[self.start..];
        let bytes = frame.len();
        let body_bytes = bytes - PREFIX_BYTES;
        assert!(
            body_bytes <= FRAME_BODY_BYTES_MAX,
            "frame body of {body_bytes} bytes exceeds the format's limit"
        );
        frame[..4].copy_from_slice(&(body_bytes as u32).to_le_bytes());
        bytes
    }
}

/// Fills in the checksum of a frame that has its length.
///
/// # Panics
/// If `frame` is shorter than its prefix.
#[inline]
pub fn seal(frame: &mut [u8]) {
    let (prefix, body) = frame.split_at_mut(PREFIX_BYTES);
    prefix[4..].copy_from_slice(&checksum(body.len() as u32, body).to_le_bytes());
}

impl Drop for FrameBuilder<'_> {
    fn drop(&mut self) {
        self.buf.truncate(self.start);
    }
}

#[inline]
fn write_varint(to: &mut [u8], mut at: usize, mut v: u64) -> usize {
    while v >= 0x80 {
        to[at] = v as u8 | 0x80;
        v >>= 7;
        at += 1;
    }
    to[at] = v as u8;
    at + 1
}

/// Splits a body whose checksum was right into its fields and its payload.
///
/// # Errors
/// If the fields are not what the format says.
#[inline]
pub fn parse_body(body: &[u8]) -> Result<(FrameHeader, &[u8]), Malformed> {
    let mut take = Take::new(body);
    let event_count = event_count(&mut take)?;
    let shard = ShardId(take.u16()?);
    let session = SessionId(take.varint()?);
    let seq = Seq(take.varint()?);
    Ok((FrameHeader { event_count, shard, session, seq }, take.rest()))
}

/// Reads the first field of a body: how many events the frame holds.
///
/// # Errors
/// If that is 0, or no number of 32 bits.
#[inline]
pub fn event_count(take: &mut Take<'_>) -> Result<u32, Malformed> {
    match u32::try_from(take.varint()?) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(Malformed { expected: "an event count of 1 to 2^32 - 1" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(event_count: u32, shard: u16, session: u64, seq: u64) -> FrameHeader {
        FrameHeader { event_count, shard: ShardId(shard), session: SessionId(session), seq: Seq(seq) }
    }

    #[test]
    fn fields_round_trip_and_overhead_is_small() {
        let check = |header: FrameHeader, overhead_bytes: usize| {
            let mut buf = b"before".to_vec();
            encode_frame(&mut buf, &header, b"payload");
            assert_eq!(buf.len(), 6 + overhead_bytes + 7);
            assert_eq!(parse_body(&buf[6 + PREFIX_BYTES..]), Ok((header, &b"payload"[..])));
        };
        check(header(1, 0, 0, 0), 13);
        check(header(2, 63, 100, 100_000), 15);
        check(header(100, u16::MAX, 16_000, 2_000_000), 16);
        check(header(u32::MAX, 1, u64::MAX, u64::MAX), 8 + 27);
    }

    #[test]
    fn abandoned_frame_leaves_no_trace() {
        let mut buf = b"before".to_vec();
        let mut frame = FrameBuilder::begin(&mut buf, &header(1, 2, 3, 4));
        frame.payload().extend_from_slice(b"never mind");
        drop(frame);
        assert_eq!(buf, b"before");
    }
}
