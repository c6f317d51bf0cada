//! Frames: how messages lie in the stream.
//!
//! ```text
//!   0        4      5
//!   │ len u32│ kind │ body (len - 1 bytes) │ len u32│ kind │ …
//! ```
//!
//! Invariants:
//! - A length of 0 or above [`FRAME_BYTES_MAX`] is an error before anything is allocated for it, and a buffer
//!   grows with the bytes that have come, not with those that were announced.
//! - One read may bring many frames, and many frames go out in one write:
//!   [`FrameReader`] reads into the room that it has, [`put_frame`] appends in place.

use std::fmt;
use std::io;

use chiton_types::codec::Put;
use chiton_wire::FRAME_BYTES_MAX;

use crate::stream::Stream;
use crate::tls::HANDSHAKE_RECORD;

/// Bytes of the length field.
const LEN_BYTES: usize = 4;
/// Room of a read buffer that holds no long frame.
pub const READ_BYTES: usize = 256 << 10;

/// Longest frame before a greeting is answered: a hello with the longest identity, and room to grow.
pub const GREETING_BYTES_MAX: usize = 512;

/// The content of a frame. The numbers are part of the wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    Hello = 1,
    Welcome = 2,
    Request = 3,
    Reply = 4,
    Recall = 5,
    RecallDone = 6,
    Peer = 7,
}

impl FrameKind {
    fn from_u8(n: u8) -> Option<FrameKind> {
        Some(match n {
            1 => FrameKind::Hello,
            2 => FrameKind::Welcome,
            3 => FrameKind::Request,
            4 => FrameKind::Reply,
            5 => FrameKind::Recall,
            6 => FrameKind::RecallDone,
            7 => FrameKind::Peer,
            _ => return None,
        })
    }
}

/// Bytes that are not a sequence of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A length of 0, or above [`FRAME_BYTES_MAX`].
    Length(u32),
    /// A length above [`GREETING_BYTES_MAX`] before the greeting is answered.
    Greeting(u32),
    /// The first bytes of TLS, where it is not spoken.
    Tls,
    /// The kind of the frame is unknown.
    Kind(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Length(len) => {
                write!(f, "malformed frame: length {len} is not between 1 and {FRAME_BYTES_MAX}")
            }
            FrameError::Greeting(len) => {
                write!(
                    f,
                    "malformed frame: length {len} exceeds {GREETING_BYTES_MAX} before the greeting is answered"
                )
            }
            FrameError::Tls => f.write_str("the client speaks TLS, and this server does not"),
            FrameError::Kind(kind) => write!(f, "malformed frame: unknown kind {kind}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// A message does not fit a frame: it would have had so many bytes. Nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTooLong(pub usize);

impl fmt::Display for FrameTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message of {} bytes exceeds {FRAME_BYTES_MAX}; ask for less at a time", self.0)
    }
}

/// Appends a frame whose body `encode` appends.
///
/// # Errors
/// If it became too long; `out` is then as before.
pub fn put_frame(
    out: &mut Vec<u8>,
    kind: FrameKind,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<(), FrameTooLong> {
    let start = out.len();
    out.put_u32(0);
    out.put_u8(kind as u8);
    encode(out);
    let len = out.len() - start - LEN_BYTES;
    if len > FRAME_BYTES_MAX {
        out.truncate(start);
        return Err(FrameTooLong(len));
    }
    out[start..start + LEN_BYTES].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(())
}

/// Cuts a stream of bytes into frames.
///
/// ```text
///   buf  ░░░░░░░░│ frame │ frame │ part of a fr…│ room │
///               start                          end
/// ```
#[derive(Debug, Default)]
pub struct FrameReader {
    /// The greeting is not answered yet: long frames are refused, and no more than a short one is read.
    is_greeting: bool,
    /// All of it is initialised, so that reading into it needs no clearing.
    buf: Vec<u8>,
    start: usize,
    end: usize,
}

impl FrameReader {
    /// A reader without a buffer; it comes with the first read, or by [`FrameReader::lend`].
    pub fn new() -> FrameReader {
        FrameReader::default()
    }

    /// A reader for a peer that has to greet first; see [`FrameReader::greeted`].
    pub fn for_greeting() -> FrameReader {
        FrameReader { is_greeting: true, ..FrameReader::default() }
    }

    /// The greeting is answered: frames may be as long as any.
    pub fn greeted(&mut self) {
        self.is_greeting = false;
    }

    /// Bytes of its buffer.
    pub fn held(&self) -> usize {
        self.buf.len()
    }

    /// True between frames: no part of one was read.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Moves the reader into the buffer `spare` if that is longer than its own. Many idle connections can share
    /// one buffer: lend it for a read, take it back with [`FrameReader::reclaim`].
    pub fn lend(&mut self, spare: &mut Vec<u8>) {
        if self.buf.len() < spare.len() {
            let part = self.end - self.start;
            spare[..part].copy_from_slice(&self.buf[self.start..self.end]);
            self.buf = std::mem::take(spare);
            (self.start, self.end) = (0, part);
        }
    }

    /// Takes the buffer back into `spare`, if `spare` has none. A part of a frame moves to a buffer of its own size unless
    /// it fills half of this one: a slow peer holds at most twice as many bytes as it has sent.
    pub fn reclaim(&mut self, spare: &mut Vec<u8>) {
        const PART_BYTES_MAX: usize = READ_BYTES / 2;
        let usual = (READ_BYTES..=4 * READ_BYTES).contains(&self.buf.len());
        if !spare.is_empty() || self.end - self.start > PART_BYTES_MAX || !usual {
            return;
        }
        let part = self.buf[self.start..self.end].to_vec();
        *spare = std::mem::replace(&mut self.buf, part);
        (self.start, self.end) = (0, self.buf.len());
    }

    /// Reads once from `stream` into the room that there is. 0: the peer closed.
    ///
    /// # Errors
    /// Those of recv(2); `WouldBlock` if nothing is there and `wait` is false.
    pub fn fill(&mut self, stream: &Stream, wait: bool) -> io::Result<usize> {
        self.make_room();
        let mut room = self.buf.len() - self.end;
        if self.is_greeting {
            // The rest stays with the peer until it is known to be one.
            let kept = self.end - self.start;
            room = room.min((LEN_BYTES + GREETING_BYTES_MAX).saturating_sub(kept).max(1));
        }
        let mut n = stream.recv(&mut self.buf[self.end..self.end + room], wait)?;
        self.end += n;
        // No event announces bytes that have come and are held.
        while !self.is_greeting && stream.holds_bytes() {
            self.make_room();
            let more = stream.recv(&mut self.buf[self.end..], false)?;
            self.end += more;
            n += more;
        }
        Ok(n)
    }

    /// Whether the last read left room, so that another one would most likely find nothing.
    pub fn has_room(&self) -> bool {
        self.end < self.buf.len()
    }

    /// Appends bytes that were read otherwise (tests, other transports).
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.make_room();
            let n = bytes.len().min(self.buf.len() - self.end);
            self.buf[self.end..self.end + n].copy_from_slice(&bytes[..n]);
            self.end += n;
            bytes = &bytes[n..];
        }
    }

    /// The next complete frame; `None` if more bytes must come first.
    ///
    /// # Errors
    /// If the bytes are no frame. The stream cannot be read further then.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<(FrameKind, &[u8])>, FrameError> {
        let Some(len) = self.announced()? else { return Ok(None) };
        let have = &self.buf[self.start + LEN_BYTES..self.end];
        let Some(&kind) = have.first() else { return Ok(None) };
        let kind = FrameKind::from_u8(kind).ok_or(FrameError::Kind(kind))?;
        if have.len() < len {
            return Ok(None);
        }
        let body = self.start + LEN_BYTES + 1;
        let end = self.start + LEN_BYTES + len;
        self.start = end;
        Ok(Some((kind, &self.buf[body..end])))
    }

    /// The length of the frame at the front, checked.
    #[inline]
    fn announced(&self) -> Result<Option<usize>, FrameError> {
        let Some(len) = self.buf[self.start..self.end].first_chunk::<LEN_BYTES>() else { return Ok(None) };
        if self.is_greeting && len.starts_with(&HANDSHAKE_RECORD) {
            return Err(FrameError::Tls);
        }
        let len = u32::from_le_bytes(*len);
        if len == 0 || len as usize > FRAME_BYTES_MAX {
            return Err(FrameError::Length(len));
        }
        if self.is_greeting && len as usize > GREETING_BYTES_MAX {
            return Err(FrameError::Greeting(len));
        }
        Ok(Some(len as usize))
    }

    /// Makes the free tail at least half of the buffer, or doubles the buffer while a long frame fills it.
    fn make_room(&mut self) {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
            if self.buf.len() > 4 * READ_BYTES {
                self.buf = Vec::new();
            }
        }
        if self.buf.len() < READ_BYTES {
            self.buf.resize(READ_BYTES, 0);
        }
        if self.buf.len() - self.end < self.buf.len() / 2 && self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buf.len() {
            self.buf.resize(2 * self.buf.len(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: &[u8], chunk: usize) -> Result<Vec<(FrameKind, Vec<u8>)>, FrameError> {
        let (mut reader, mut found) = (FrameReader::new(), Vec::new());
        for part in bytes.chunks(chunk) {
            reader.push(part);
            while let Some((kind, body)) = reader.next_frame()? {
                found.push((kind, body.to_vec()));
            }
        }
        assert!(reader.is_empty() || found.len() < 100);
        Ok(found)
    }

    #[test]
    fn frames_come_out_however_they_are_cut() {
        let (mut bytes, mut expect) = (Vec::new(), Vec::new());
        for i in 0..100u32 {
            // One is longer than the read buffer.
            let body = vec![i as u8; if i == 50 { 3 * READ_BYTES } else { i as usize * 7 }];
            assert_eq!(put_frame(&mut bytes, FrameKind::Reply, |out| out.extend_from_slice(&body)), Ok(()));
            expect.push((FrameKind::Reply, body));
        }
        for chunk in [1, 3, 4096, 1 << 20, bytes.len()] {
            assert_eq!(frames(&bytes, chunk).as_ref(), Ok(&expect), "cut by {chunk}");
        }
    }

    #[test]
    fn bad_lengths_and_kinds_are_refused_without_allocating_for_them() {
        let check = |bytes: &[u8], expect: FrameError| assert_eq!(frames(bytes, 2), Err(expect));
        check(&[0, 0, 0, 0], FrameError::Length(0));
        check(&[0xff; 4], FrameError::Length(u32::MAX));
        let over = FRAME_BYTES_MAX as u32 + 1;
        check(&over.to_le_bytes(), FrameError::Length(over));
        check(&[9, 0, 0, 0, 77], FrameError::Kind(77));
        let mut reader = FrameReader::new();
        reader.push(&(FRAME_BYTES_MAX as u32).to_le_bytes());
        reader.push(&[FrameKind::Request as u8]);
        assert_eq!(reader.next_frame(), Ok(None));
        assert_eq!(reader.buf.len(), READ_BYTES);
    }

    #[test]
    fn a_peer_that_has_not_greeted_announces_no_long_frame() {
        let mut reader = FrameReader::for_greeting();
        reader.push(&(GREETING_BYTES_MAX as u32).to_le_bytes());
        assert_eq!(reader.next_frame(), Ok(None));
        let long = GREETING_BYTES_MAX as u32 + 1;
        let mut reader = FrameReader::for_greeting();
        reader.push(&long.to_le_bytes());
        assert_eq!(reader.next_frame(), Err(FrameError::Greeting(long)));
        reader.greeted();
        assert_eq!(reader.next_frame(), Ok(None));
    }

    #[test]
    fn a_message_that_is_too_long_leaves_the_buffer_as_it_was() {
        let mut out = vec![1, 2, 3];
        let put = put_frame(&mut out, FrameKind::Reply, |out| out.resize(3 + 4 + FRAME_BYTES_MAX + 1, 0));
        assert_eq!((put, out), (Err(FrameTooLong(FRAME_BYTES_MAX + 1)), vec![1, 2, 3]));
    }

    #[test]
    fn a_lent_buffer_comes_back() {
        let mut spare = vec![0; READ_BYTES];
        let mut reader = FrameReader::new();
        reader.lend(&mut spare);
        assert!(spare.is_empty());
        reader.push(&[9, 0, 0, 0, FrameKind::Request as u8, 1]);
        assert_eq!(reader.next_frame(), Ok(None));
        reader.reclaim(&mut spare);
        assert_eq!((spare.len(), reader.buf.len()), (READ_BYTES, 6));
        reader.lend(&mut spare);
        reader.push(&[2; 7]);
        assert_eq!(reader.next_frame(), Ok(Some((FrameKind::Request, &[1, 2, 2, 2, 2, 2, 2, 2][..]))));
        // Not much more memory is held for a long frame than for the part of it that has come.
        let mut spare = vec![0; READ_BYTES];
        let mut reader = FrameReader::new();
        reader.lend(&mut spare);
        reader.push(&(FRAME_BYTES_MAX as u32).to_le_bytes());
        for sent in [10, 5_000, 90_000, 100_000, 300_000] {
            reader.lend(&mut spare);
            reader.push(&vec![FrameKind::Request as u8; sent - (reader.end - reader.start)]);
            assert_eq!(reader.next_frame(), Ok(None));
            reader.reclaim(&mut spare);
            assert!(reader.buf.len() <= 2 * sent, "{} bytes for {sent}", reader.buf.len());
            spare.resize(READ_BYTES, 0);
        }
    }
}
