//! A piece of a file's content, and the encoding that events and rows share.

use chiton_types::BlockId;
use chiton_types::codec::{Malformed, Put, Take};

/// File ranges are mapped in chunks of this many bytes; one metadata row maps one chunk.
/// No extent crosses the border of a chunk.
pub const CHUNK_BYTES: u64 = 64 << 20;

/// `len` bytes at `offset` of a file are the bytes from `block_offset` of `block`.
///
/// In an operation an extent whose block is [`BlockId::HOLE`] punches its range. In
/// a map there are no such extents: an unmapped range is a hole and reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u32,
    /// The block that holds the bytes.
    pub block: BlockId,
    /// First byte within the block's payload.
    pub block_offset: u32,
    /// More than one extent (here or in another file) may refer to the block: its row of references decides
    /// when it is garbage. An extent that is not shared is its block's only reference.
    pub shared: bool,
}

/// Fewest bytes that an encoded extent takes.
pub const EXTENT_BYTES_MIN: usize = 6;

impl Extent {
    /// One past the last byte in the file.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// Splits it where it crosses the border of a chunk, and adds the pieces.
    pub fn split_at_chunks(mut self, out: &mut Vec<Extent>) {
        loop {
            let border = (self.offset / CHUNK_BYTES + 1) * CHUNK_BYTES;
            if self.end() <= border {
                out.push(self);
                return;
            }
            let head = (border - self.offset) as u32;
            out.push(Extent { len: head, ..self });
            let block_offset = if self.block.is_hole() { 0 } else { self.block_offset + head };
            self = Extent { offset: border, len: self.len - head, block_offset, ..self };
        }
    }

    /// Appends the encoding: varint offset, varint len, flags (bit 0 shared, bit 1 hole), then unless a hole
    /// varint writer, varint number, varint block offset.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.offset);
        out.put_varint(u64::from(self.len));
        out.put_u8(u8::from(self.shared) | u8::from(self.block.is_hole()) << 1);
        if !self.block.is_hole() {
            out.put_varint(self.block.writer);
            out.put_varint(self.block.number);
            out.put_varint(u64::from(self.block_offset));
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// If it is empty, crosses a chunk's border or ends past 2^63.
    pub fn decode(from: &mut Take<'_>) -> Result<Extent, Malformed> {
        let bad = |expected| Malformed { expected };
        let offset = from.varint()?;
        let len = u32::try_from(from.varint()?).map_err(|_| bad("an extent's length"))?;
        let flags = from.u8()?;
        let (block, block_offset) = if flags & 2 != 0 {
            (BlockId::HOLE, 0)
        } else {
            let block = BlockId { writer: from.varint()?, number: from.varint()? };
            (block, u32::try_from(from.varint()?).map_err(|_| bad("an offset in a block"))?)
        };
        let whole = len > 0
            && offset < 1 << 56
            && offset / CHUNK_BYTES == (offset + u64::from(len) - 1) / CHUNK_BYTES;
        if !whole
            || flags > 3
            || block_offset.checked_add(len).is_none()
            || (flags & 2 == 0 && block.is_hole())
        {
            return Err(bad("an extent within one chunk"));
        }
        Ok(Extent { offset, len, block, block_offset, shared: flags & 1 != 0 })
    }
}
