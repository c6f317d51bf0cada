//! Blocks: immutable pieces of file content, one object each, with a checksum per chunk so that a small read needs
//! not fetch the whole.
//!
//! ```text
//!   payload (1 byte to 16 MiB)
//!   crc32c of each 64 KiB chunk of the payload, u32 LE each (the last chunk may be shorter)
//!   payload bytes u64 LE ‖ magic u32 LE ("CBLK") ‖ version u32 LE (1)
//! ```
//!
//! Invariants:
//! - No byte is returned that was not covered by a checksum that fits.
//! - The object's length alone determines where the trailer begins; the tail must match it. A damaged checksum
//!   matches no chunk, so the trailer has no checksum.
//! - Whole block: one request. Part, with a [`BlockIndex`] in hand: one request.

use std::ops::Range;

use chiton_types::{Put, Take};

use crate::{ObjectError, Objects};

/// Maximum payload: 16 MiB.
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Bytes of payload under one checksum.
pub const CHUNK_BYTES: u64 = 64 << 10;

const MAGIC: u32 = u32::from_le_bytes(*b"CBLK");
const VERSION: u32 = 1;
/// Payload bytes, magic, version.
const TAIL_BYTES: u64 = 8 + 4 + 4;

/// Bytes of the object that holds a payload of this many bytes.
pub fn encoded_bytes(payload_bytes: u64) -> u64 {
    payload_bytes + 4 * payload_bytes.div_ceil(CHUNK_BYTES) + TAIL_BYTES
}

/// The inverse of [`encoded_bytes`]; `None` if no block's object has this length.
pub fn payload_bytes_of(object_bytes: u64) -> Option<u64> {
    let body = object_bytes.saturating_sub(TAIL_BYTES);
    let chunks = body.div_ceil(CHUNK_BYTES + 4);
    let payload = body.saturating_sub(4 * chunks);
    let fits = (1..=BLOCK_BYTES_MAX).contains(&payload) && encoded_bytes(payload) == object_bytes;
    fits.then_some(payload)
}

fn payload_bytes(key: &str, object_bytes: u64) -> Result<u64, ObjectError> {
    payload_bytes_of(object_bytes)
        .ok_or_else(|| ObjectError::corrupt(key, format!("{object_bytes} bytes are no length of a block")))
}

/// The object of a block whose payload is `parts` one after the other. Panics unless they have 1 byte to 16 MiB.
pub fn encode_block(parts: &[&[u8]]) -> Vec<u8> {
    let payload = parts.iter().map(|part| part.len() as u64).sum();
    let mut bytes = Vec::with_capacity(encoded_bytes(payload) as usize);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    seal_block(&mut bytes);
    bytes
}

/// Turns a payload into the object of its block in place, by appending the trailer: saves [`encode_block`]'s copy.
/// Panics unless it has 1 byte to 16 MiB.
pub fn seal_block(payload: &mut Vec<u8>) {
    let bytes = payload.len() as u64;
    assert!((1..=BLOCK_BYTES_MAX).contains(&bytes), "a block of {bytes} bytes: must be 1 byte to 16 MiB");
    let crcs: Vec<u32> = payload.chunks(CHUNK_BYTES as usize).map(crc32c::crc32c).collect();
    payload.reserve_exact((encoded_bytes(bytes) - bytes) as usize);
    crcs.iter().for_each(|crc| payload.put_u32(*crc));
    payload.put_u64(bytes);
    payload.put_u32(MAGIC);
    payload.put_u32(VERSION);
}

/// The index of a block, for reads of a part: 4 bytes for each 64 KiB. The caller keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockIndex {
    payload_bytes: u64,
    crcs: Vec<u32>,
}

impl BlockIndex {
    /// Reads the trailer of a block (two requests: length, trailer). `NotFound`, `Corrupt`.
    pub fn fetch(objects: &dyn Objects, key: &str) -> Result<BlockIndex, ObjectError> {
        let object_bytes = objects.size(key)?;
        let payload = payload_bytes(key, object_bytes)?;
        BlockIndex::decode(key, payload, &objects.get(key, Some(payload..object_bytes))?)
    }

    fn decode(key: &str, payload_bytes: u64, trailer: &[u8]) -> Result<BlockIndex, ObjectError> {
        let corrupt = |cause: String| ObjectError::corrupt(key, cause);
        let chunks = payload_bytes.div_ceil(CHUNK_BYTES) as usize;
        let mut take = Take::new(trailer);
        let mut read = || {
            let crcs = take.take(4 * chunks, "the checksums")?;
            let fields = (take.u64()?, take.u32()?, take.u32()?);
            take.finish().map(|()| (crcs, fields))
        };
        let (crcs, (stated_bytes, magic, version)) = read().map_err(|e| corrupt(e.to_string()))?;
        if magic != MAGIC || version != VERSION {
            return Err(corrupt(format!(
                "no block of version {VERSION} (magic {magic:#x}, version {version})"
            )));
        }
        if stated_bytes != payload_bytes {
            return Err(corrupt(format!("has a payload of {payload_bytes} bytes, states {stated_bytes}")));
        }
        let crcs = crcs.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Ok(BlockIndex { payload_bytes, crcs })
    }

    /// Length of the payload in bytes.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Checks payload bytes that begin at chunk `first` and end at a chunk's or the payload's end.
    fn verify(&self, key: &str, first: usize, bytes: &[u8]) -> Result<(), ObjectError> {
        for (n, chunk) in bytes.chunks(CHUNK_BYTES as usize).enumerate() {
            if crc32c::crc32c(chunk) != self.crcs[first + n] {
                let cause =
                    format!("the checksum of chunk {} of {} does not fit", first + n, self.crcs.len());
                return Err(ObjectError::corrupt(key, cause));
            }
        }
        Ok(())
    }

    /// Fills `into` with the payload from `offset` on, verified, in one request. If the range starts at a chunk and
    /// ends at one (or at the payload's end), the store reads right into `into`; else through a copy.
    ///
    /// `NotFound`; `Corrupt`, also if the range ends past the payload. After an error `into` holds anything.
    pub fn read_into(
        &self,
        objects: &dyn Objects,
        key: &str,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ObjectError> {
        let end = offset.saturating_add(into.len() as u64);
        let cover = self.cover(key, &(offset..end))?;
        let first = (cover.start / CHUNK_BYTES) as usize;
        if cover == (offset..end) {
            objects.read_into(key, offset, into)?;
            return self.verify(key, first, into);
        }
        let bytes = objects.get(key, Some(cover.clone()))?;
        self.verify(key, first, &bytes)?;
        let skip = (offset - cover.start) as usize;
        into.copy_from_slice(&bytes[skip..skip + into.len()]);
        Ok(())
    }

    /// The payload bytes of `range`, verified, in one request. Errors as [`BlockIndex::read_into`].
    pub fn read(&self, objects: &dyn Objects, key: &str, range: Range<u64>) -> Result<Vec<u8>, ObjectError> {
        let cover = self.cover(key, &range)?;
        let mut bytes = objects.get(key, Some(cover.clone()))?;
        self.verify(key, (cover.start / CHUNK_BYTES) as usize, &bytes)?;
        bytes.truncate((range.end - cover.start) as usize);
        bytes.drain(..(range.start - cover.start) as usize);
        Ok(bytes)
    }

    /// The whole chunks that hold `range`.
    fn cover(&self, key: &str, range: &Range<u64>) -> Result<Range<u64>, ObjectError> {
        if range.start > range.end || range.end > self.payload_bytes {
            return Err(ObjectError::out_of_range(key, range, self.payload_bytes));
        }
        if range.is_empty() {
            return Ok(range.clone());
        }
        let start = range.start / CHUNK_BYTES * CHUNK_BYTES;
        Ok(start..range.end.next_multiple_of(CHUNK_BYTES).min(self.payload_bytes))
    }
}

/// Reads and verifies the payload of a block, or a part of it (then with three requests: a caller that often reads
/// parts keeps the [`BlockIndex`]). `NotFound`; `Corrupt`, also if the range ends past the payload.
pub fn read_block(
    objects: &dyn Objects,
    key: &str,
    range: Option<Range<u64>>,
) -> Result<Vec<u8>, ObjectError> {
    match range {
        None => read_whole_block(objects, key).map(|(payload, _)| payload),
        Some(range) => BlockIndex::fetch(objects, key)?.read(objects, key, range),
    }
}

/// The verified payload of a block and its index, in one request.
pub fn read_whole_block(objects: &dyn Objects, key: &str) -> Result<(Vec<u8>, BlockIndex), ObjectError> {
    let mut bytes = objects.get(key, None)?;
    let payload = payload_bytes(key, bytes.len() as u64)?;
    let index = BlockIndex::decode(key, payload, &bytes[payload as usize..])?;
    bytes.truncate(payload as usize);
    index.verify(key, 0, &bytes)?;
    Ok((bytes, index))
}

#[cfg(test)]
mod tests;
