//! Compaction: a file that was written in many small pieces gets few large blocks.
//!
//! Invariants:
//! - The bytes of a file do not change, nor any attribute that a user sees: if the file was changed meanwhile, the new
//!   blocks are thrown away.
//! - New blocks belong to the server's own session of this boot: if it dies, they are swept like anybody's.

use std::sync::atomic::Ordering::Relaxed;

use chiton_model::{CHUNK_BYTES, Extent, Op};
use chiton_namespace::{Fault, Mapped, Need};
use chiton_objects::{BLOCK_BYTES_MAX, encode_block, read_block};
use chiton_types::{Attr, BlockId, Ino};

use crate::plate::Plate;

/// A chunk with more extents than this …
const EXTENTS_MIN: usize = 256;
/// … whose extents have fewer bytes than this on average is compacted.
const EXTENT_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a new block.
const BLOCK_BYTES: usize = 4 << 20;
/// Files in one round, so that checkpoints are not held up.
const FILES: usize = 16;
/// Tries to get the rows of a file into memory.
const TRIES: usize = 8;

impl Plate {
    /// Compacts some of the fragmented files.
    pub(crate) fn compact(&self) {
        const {
            assert!(
                BLOCK_BYTES as u64 <= BLOCK_BYTES_MAX && EXTENT_BYTES_MAX * EXTENTS_MIN as u64 <= CHUNK_BYTES
            )
        };
        for _ in 0..FILES {
            let Some(ino) = self.engine.lock().take_fragmented() else { return };
            if self.is_stopping() {
                return;
            }
            if let Err(line) = self.compact_file(ino) {
                self.note_error(&format!("inode {ino} is not compacted: {line}"));
            }
        }
    }

    fn compact_file(&self, ino: Ino) -> Result<(), String> {
        let mut offset = 0;
        loop {
            let Some((attr, extents, end)) = self.chunk_from(ino, offset)? else { return Ok(()) };
            let bytes: u64 = extents.iter().map(|e| u64::from(e.len)).sum();
            if extents.len() > EXTENTS_MIN && bytes < EXTENT_BYTES_MAX * extents.len() as u64 {
                self.compact_chunk(&attr, &extents)?;
            }
            offset = end;
            if offset >= attr.size {
                return Ok(());
            }
        }
    }

    /// Attributes, and the extents and the end of the first chunk from `offset` on that has some, or none and the end of the file.
    /// `None` if the file is gone or holds no blocks.
    fn chunk_from(&self, ino: Ino, offset: u64) -> Result<Option<(Attr, Vec<Extent>, u64)>, String> {
        let mut len = 1;
        for _ in 0..TRIES {
            let needs: Vec<Need>;
            let generation;
            {
                let mut engine = self.engine.lock();
                let ns = engine.namespace();
                generation = ns.generation();
                match ns.attr(ino).and_then(|attr| Ok((attr, ns.map(ino, offset, len)?))) {
                    Ok((attr, Mapped::Extents(_, end, mut extents))) => {
                        let Some(first) = extents.first().map(|e| e.offset / CHUNK_BYTES) else {
                            if len == 1 && end < attr.size {
                                // How far does the hole go?
                                len = u64::MAX;
                                continue;
                            }
                            return Ok(Some((attr, extents, end)));
                        };
                        extents.retain(|e| e.offset / CHUNK_BYTES == first);
                        return Ok(Some((attr, extents, (first + 1) * CHUNK_BYTES)));
                    }
                    Err(Fault::Missing(missing)) => needs = missing,
                    _ => return Ok(None),
                }
            }
            self.supply(&needs, generation)?;
        }
        Ok(None)
    }

    fn compact_chunk(&self, attr: &Attr, extents: &[Extent]) -> Result<(), String> {
        let mut new: Vec<Extent> = Vec::new();
        let mut bytes = Vec::new();
        let mut start = extents.first().map_or(0, |e| e.offset);
        let mut end = start;
        for e in extents {
            if e.offset != end || bytes.len() + e.len as usize > BLOCK_BYTES {
                new.extend(self.write_run(start, &mut bytes)?);
                start = e.offset;
            }
            let range = u64::from(e.block_offset)..u64::from(e.block_offset) + u64::from(e.len);
            let part = read_block(&*self.blocks.objects, &e.block.key(), Some(range));
            bytes.extend(part.map_err(|error| error.to_string())?);
            end = e.end();
        }
        new.extend(self.write_run(start, &mut bytes)?);
        let blocks: Vec<BlockId> = new.iter().map(|e| e.block).collect();
        let op = Op::Remap { ino: attr.ino, expected: attr.position, extents: new };
        if !self.remap(&op)? {
            for block in blocks {
                self.blocks.objects.delete(&block.key()).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    /// Stores a run of bytes as a block; none if it is empty.
    fn write_run(&self, offset: u64, bytes: &mut Vec<u8>) -> Result<Option<Extent>, String> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let block =
            BlockId { writer: self.blocks.writer.0, number: self.blocks.written.fetch_add(1, Relaxed) + 1 };
        self.blocks.objects.put(&block.key(), &encode_block(&[bytes])).map_err(|e| e.to_string())?;
        let len = u32::try_from(bytes.len()).expect("a run is at most a block");
        bytes.clear();
        Ok(Some(Extent { offset, len, block, block_offset: 0, shared: false }))
    }

    /// Puts the new mapping in place; false if the file was changed or is in use elsewhere.
    fn remap(&self, op: &Op) -> Result<bool, String> {
        for _ in 0..TRIES {
            let (outcome, generation) =
                self.with_engine(|engine, m| (engine.remap(op, m), engine.namespace().generation()));
            match outcome {
                Ok(done) => return Ok(done),
                Err(needs) => self.supply(&needs, generation)?,
            }
        }
        Ok(false)
    }
}
