//! A journal in one file: frames with their positions, lost positions, and an end mark. `docs/formats.md`, "Journal
//! export".
//!
//! ```text
//!   header ─ frame ─ frame ─ lost ─ frame ─ … ─ end (counts, checksum over all before)
//! ```
//!
//! Invariants:
//! - A file without its end, or with a wrong checksum, is not a whole export.
//! - The reader allocates memory for bytes that exist, not by a stated length.

use std::io::{self, Read, Write};

use chiton_journal::decode_frame;
use chiton_types::frame::{FRAME_BODY_BYTES_MAX, FrameHeader, PREFIX_BYTES, encode_frame};
use chiton_types::{Epoch, Position, Put, Take};
use crc32c::crc32c_append;

use crate::journal::error::JournalToolError;

const MAGIC: [u8; 8] = *b"CHITONX\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 44;
const UNKNOWN: u64 = u64::MAX;
/// Maximum length of a description of lost events, in bytes.
const TEXT_BYTES_MAX: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportHeader {
    /// The journal's identity: of its file system.
    pub journal: u64,
    /// Highest epoch in it.
    pub epoch: Epoch,
    /// Up to where the metadata store held the events then; unknown if the file system was in use.
    pub stored: Option<Position>,
    /// Position of the journal's first event.
    pub first: Position,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Frame {
        /// Position of its first event.
        first: Position,
        header: FrameHeader,
        /// Its bytes as they stood in the journal.
        bytes: Vec<u8>,
        /// Offset of the payload in them.
        payload_at: usize,
    },
    /// Positions whose events are lost.
    Lost {
        first: Position,
        /// The last, if known.
        last: Option<Position>,
        why: String,
    },
}

pub struct ExportWriter<W: Write> {
    to: W,
    crc: u32,
    frames: u64,
    events: u64,
    last: Position,
}

impl<W: Write> ExportWriter<W> {
    /// Begins an export.
    ///
    /// # Errors
    /// The error of the writer below.
    pub fn new(to: W, header: &ExportHeader) -> io::Result<ExportWriter<W>> {
        let mut writer = ExportWriter {
            to,
            crc: 0,
            frames: 0,
            events: 0,
            last: Position(header.first.0.saturating_sub(1)),
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u64(header.journal);
        bytes.put_u64(header.epoch.0);
        bytes.put_u64(header.stored.map_or(UNKNOWN, |p| p.0));
        bytes.put_u64(header.first.0);
        writer.put(&bytes)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc = crc32c_append(self.crc, bytes);
        self.to.write_all(bytes)
    }

    /// A frame whose first event has this position.
    ///
    /// # Errors
    /// The error of the writer below.
    pub fn frame(&mut self, first: Position, header: &FrameHeader, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 48);
        bytes.put_u8(1);
        bytes.put_u64(first.0);
        encode_frame(&mut bytes, header, payload);
        self.put(&bytes)?;
        self.frames += 1;
        self.events += u64::from(header.event_count);
        self.last = Position(first.0 + u64::from(header.event_count) - 1);
        Ok(())
    }

    /// Writes lost positions.
    ///
    /// # Errors
    /// The error of the writer below.
    pub fn lost(&mut self, first: Position, last: Option<Position>, why: &str) -> io::Result<()> {
        let mut why = why.to_owned();
        while why.len() as u64 > TEXT_BYTES_MAX {
            why.pop();
        }
        let mut bytes = Vec::new();
        bytes.put_u8(2);
        bytes.put_u64(first.0);
        bytes.put_u64(last.map_or(UNKNOWN, |p| p.0));
        bytes.put_bytes(why.as_bytes());
        self.put(&bytes)
    }

    /// Ends it; gives the writer back, flushed.
    ///
    /// # Errors
    /// The error of the writer below.
    pub fn finish(mut self) -> io::Result<W> {
        let mut bytes = Vec::new();
        bytes.put_u8(3);
        bytes.put_u64(self.frames);
        bytes.put_u64(self.events);
        bytes.put_u64(self.last.0);
        self.put(&bytes)?;
        let crc = self.crc;
        self.to.write_all(&crc.to_le_bytes())?;
        self.to.flush()?;
        Ok(self.to)
    }
}

pub struct ExportReader<R: Read> {
    from: R,
    header: ExportHeader,
    crc: u32,
    frames: u64,
    events: u64,
    ended: bool,
}

impl<R: Read> ExportReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`JournalToolError::NotAnExport`]; or the error of the reader below.
    pub fn new(mut from: R) -> Result<ExportReader<R>, JournalToolError> {
        let mut bytes = [0; HEADER_BYTES];
        from.read_exact(&mut bytes).map_err(|e| short(e, "a header"))?;
        let mut take = Take::new(&bytes);
        let magic = take.take(8, "a magic number").is_ok_and(|magic| magic == MAGIC);
        let version = take.u32().unwrap_or(0);
        if !magic || version != VERSION {
            let what =
                if magic { format!("its version is {version}") } else { "it begins otherwise".to_owned() };
            return Err(JournalToolError::NotAnExport(format!(
                "{what} (this program knows version {VERSION})"
            )));
        }
        let mut field = || take.u64().expect("the header's bytes are there");
        let (journal, epoch, stored, first) = (field(), field(), field(), field());
        let header = ExportHeader {
            journal,
            epoch: Epoch(epoch),
            stored: (stored != UNKNOWN).then_some(Position(stored)),
            first: Position(first),
        };
        Ok(ExportReader { from, header, crc: crc32c_append(0, &bytes), frames: 0, events: 0, ended: false })
    }

    pub fn header(&self) -> &ExportHeader {
        &self.header
    }

    fn take<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], JournalToolError> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|e| short(e, expected))?;
        self.crc = crc32c_append(self.crc, &bytes);
        Ok(bytes)
    }

    fn number(&mut self, expected: &'static str) -> Result<u64, JournalToolError> {
        self.take::<8>(expected).map(u64::from_le_bytes)
    }

    /// Reads a stated number of bytes, if they exist.
    fn bytes(&mut self, len: u64, expected: &'static str) -> Result<Vec<u8>, JournalToolError> {
        let mut bytes = Vec::new();
        let got = (&mut self.from).take(len).read_to_end(&mut bytes)?;
        if got as u64 != len {
            return Err(JournalToolError::NotAnExport(format!("it ends within {expected}")));
        }
        self.crc = crc32c_append(self.crc, &bytes);
        Ok(bytes)
    }

    /// The next record; `None` at the end, which has then been checked.
    ///
    /// # Errors
    /// [`JournalToolError::NotAnExport`]; or the error of the reader below.
    pub fn next_record(&mut self) -> Result<Option<Record>, JournalToolError> {
        if self.ended {
            return Ok(None);
        }
        match self.take::<1>("a record")? {
            [1] => self.frame().map(Some),
            [2] => {
                let (first, last) = (self.number("lost positions")?, self.number("lost positions")?);
                let (mut len, mut shift) = (0u64, 0);
                loop {
                    let [byte] = self.take::<1>("the length of a text")?;
                    len |= u64::from(byte & 0x7f) << shift;
                    shift += 7;
                    if byte < 0x80 {
                        break;
                    }
                    if shift > 14 {
                        return Err(JournalToolError::NotAnExport("a text is too long".to_owned()));
                    }
                }
                let why = self.bytes(len.min(TEXT_BYTES_MAX), "a text")?;
                Ok(Some(Record::Lost {
                    first: Position(first),
                    last: (last != UNKNOWN).then_some(Position(last)),
                    why: String::from_utf8_lossy(&why).into_owned(),
                }))
            }
            [3] => {
                let (frames, events) = (self.number("its end")?, self.number("its end")?);
                self.number("its end")?;
                let expected = self.crc;
                let found = u32::from_le_bytes(self.take::<4>("its checksum")?);
                if (frames, events) != (self.frames, self.events) || found != expected {
                    return Err(JournalToolError::NotAnExport(
                        "its end does not fit the rest: it is damaged".to_owned(),
                    ));
                }
                self.ended = true;
                Ok(None)
            }
            [kind] => Err(JournalToolError::NotAnExport(format!("there are no records of type {kind}"))),
        }
    }

    fn frame(&mut self) -> Result<Record, JournalToolError> {
        let first = self.number("the position of a frame")?;
        let prefix = self.take::<PREFIX_BYTES>("a frame")?;
        let length = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
        if length as usize > FRAME_BODY_BYTES_MAX {
            return Err(JournalToolError::NotAnExport(format!("a frame of {length} bytes")));
        }
        let body = self.bytes(u64::from(length), "a frame")?;
        let mut bytes = prefix.to_vec();
        bytes.extend_from_slice(&body);
        let damaged = |what: &dyn std::fmt::Display| {
            JournalToolError::NotAnExport(format!("the frame at position {first}: {what}"))
        };
        let (header, payload) = decode_frame(&bytes).map_err(|cause| damaged(&cause))?;
        if first == 0 || first.checked_add(u64::from(header.event_count)).is_none() {
            return Err(damaged(&"no position is like that"));
        }
        self.frames += 1;
        self.events = self.events.saturating_add(u64::from(header.event_count));
        let payload_at = bytes.len() - payload.len();
        Ok(Record::Frame { first: Position(first), header, bytes, payload_at })
    }
}

fn short(error: io::Error, expected: &str) -> JournalToolError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            JournalToolError::NotAnExport(format!("it ends where {expected} should be: was it cut off?"))
        }
        _ => JournalToolError::File(error),
    }
}
