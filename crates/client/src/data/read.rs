//! Reading: which layer of a file hides which, and reading ahead.
//!
//! Invariants:
//! - One read shows one state of the file as long as its range lies in the
//!   range that one answer of the server covers (a chunk of the map at least).
//! - Bytes go from the store right to where the caller wants them, unless they were read ahead.

use std::ops::Range;

use chiton_types::{BlockId, Refusal};

use super::block_io::BlockError;
use super::cache::PART_BYTES;
use super::content::Content;
use super::file::Inner;
use super::files::{Files, OpenFile};

/// First window of the read-ahead.
const WINDOW_BYTES_MIN: u64 = 256 << 10;

/// How one handle reads.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Where the next read begins if it continues this one.
    next: u64,
    window_bytes: u64,
    /// Up to where it was asked for.
    issued: u64,
    /// The last block that the store was asked to read ahead.
    asked: BlockId,
}

/// The layers of a range of a file, lowest last.
pub(super) enum Source<'a> {
    /// Bytes of the buffers in memory.
    Memory(&'a [u8]),
    /// A part of a block, which may still be on its way.
    Block(BlockId, u32),
    /// A hole, which reads as zeros.
    Hole,
}

/// A part of a block that is wanted at a place of the file.
struct Wanted {
    at: u64,
    len: usize,
    block: BlockId,
    block_offset: u32,
}

impl Inner {
    /// Calls `visit` for every piece of the range (within what is known), in no order.
    pub(super) fn pieces(&self, range: Range<u64>, visit: &mut dyn FnMut(Range<u64>, Source<'_>)) {
        let mut gaps = vec![range];
        gaps = below(
            gaps,
            |gap| {
                self.buffer
                    .over(gap)
                    .map(|(at, bytes)| (at..at + bytes.len() as u64, Source::Memory(bytes)))
                    .collect()
            },
            visit,
        );
        for map in [&self.pending, &self.sending] {
            if !map.is_empty() {
                gaps = below(
                    gaps,
                    |gap| map.over(gap).map(|e| (e.offset..e.end(), of_extent(&e))).collect(),
                    visit,
                );
            }
        }
        let inline = self.sending_inline.as_deref().or(match &self.content {
            Content::Inline(bytes) => Some(&bytes[..]),
            _ => None,
        });
        if let Some(bytes) = inline {
            gaps = below(
                gaps,
                |gap| {
                    let end = gap.end.min(bytes.len() as u64);
                    match gap.start < end {
                        true => {
                            vec![(gap.start..end, Source::Memory(&bytes[gap.start as usize..end as usize]))]
                        }
                        false => Vec::new(),
                    }
                },
                visit,
            );
        } else if let Content::Blocks(chunks) = &self.content {
            let map = chunks.extents();
            gaps =
                below(gaps, |gap| map.over(gap).map(|e| (e.offset..e.end(), of_extent(&e))).collect(), visit);
        }
        for gap in gaps {
            visit(gap, Source::Hole);
        }
    }

    /// Fills `into` from memory and returns the parts that are missing there.
    fn resolve(&self, at: u64, into: &mut [u8]) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        self.pieces(at..at + into.len() as u64, &mut |range, source| {
            let place = (range.start - at) as usize..(range.end - at) as usize;
            match source {
                Source::Memory(bytes) => into[place].copy_from_slice(bytes),
                Source::Hole => into[place].fill(0),
                Source::Block(block, block_offset) => match self.uploads.get(&block) {
                    Some(upload) => upload.read(block_offset, &mut into[place]),
                    None => wanted.push(Wanted { at: range.start, len: place.len(), block, block_offset }),
                },
            }
        });
        wanted
    }
}

fn of_extent(e: &chiton_model::Extent) -> Source<'static> {
    if e.block.is_hole() { Source::Hole } else { Source::Block(e.block, e.block_offset) }
}

/// Visits what a layer has in the gaps, and returns what is still missing.
fn below<'a>(
    gaps: Vec<Range<u64>>,
    layer: impl Fn(Range<u64>) -> Vec<(Range<u64>, Source<'a>)>,
    visit: &mut dyn FnMut(Range<u64>, Source<'_>),
) -> Vec<Range<u64>> {
    let mut rest = Vec::with_capacity(gaps.len());
    for gap in gaps {
        let mut at = gap.start;
        for (range, source) in layer(gap.clone()) {
            if at < range.start {
                rest.push(at..range.start);
            }
            at = range.end;
            visit(range, source);
        }
        if at < gap.end {
            rest.push(at..gap.end);
        }
    }
    rest
}

impl Files {
    /// Up to `len` bytes from byte `offset` on; fewer only at the end of the file.
    ///
    /// # Errors
    /// [`Refusal::Io`] if content cannot be read or is corrupt (a line on stderr names the block).
    pub fn read(&self, fh: u64, offset: u64, len: usize) -> Result<Vec<u8>, Refusal> {
        let open = self.handle(fh)?;
        // Not more than there can be: `len` is anybody's.
        let most = {
            let (inner, _) =
                self.with_content(&open.file, &open.cred, offset..offset.saturating_add(1), false)?;
            inner.size.saturating_sub(offset).min(len as u64) as usize
        };
        let mut bytes = vec![0; most];
        let n = self.read_open(&open, offset, &mut bytes)?;
        bytes.truncate(n);
        Ok(bytes)
    }

    /// Fills `into` from byte `offset` on and says how much it was; less only at the end of the file.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub fn read_into(&self, fh: u64, offset: u64, into: &mut [u8]) -> Result<usize, Refusal> {
        let open = self.handle(fh)?;
        self.read_open(&open, offset, into)
    }

    pub(super) fn read_open(&self, open: &OpenFile, offset: u64, into: &mut [u8]) -> Result<usize, Refusal> {
        let mut done = 0;
        let mut again = true;
        while done < into.len() {
            match self.read_known(open, offset.saturating_add(done as u64), &mut into[done..]) {
                Ok(0) => break,
                Ok(n) => {
                    done += n;
                    again = true;
                }
                // The block may have been replaced by another one with the same bytes: ask where they are, once.
                Err((_, BlockError::NotFound)) if std::mem::take(&mut again) => {
                    let mut inner = open.file.lock();
                    inner.content = Content::Unknown;
                }
                Err((block, error)) => {
                    if let Some(block) = block {
                        tracing::warn!("inode {}: cannot read block {}: {error}", open.file.ino, block.key());
                    }
                    return Err(error.refusal());
                }
            }
        }
        Ok(done)
    }

    /// Reads as far as the content is known after at most one question to the server.
    fn read_known(
        &self,
        open: &OpenFile,
        at: u64,
        into: &mut [u8],
    ) -> Result<usize, (Option<BlockId>, BlockError)> {
        let refused = |refusal| (None, BlockError::Refused(refusal, String::new()));
        let end = at.saturating_add(into.len() as u64);
        let (mut inner, keep) = self.with_content(&open.file, &open.cred, at..end, false).map_err(refused)?;
        let end = end.min(inner.size);
        if at >= end {
            return Ok(0);
        }
        let end = inner.content.known_to(at, end);
        let into = &mut into[..(end - at) as usize];
        let wanted = inner.resolve(at, into);
        let ahead = if keep { self.plan_ahead(open, &inner, at, end) } else { Vec::new() };
        if !keep {
            inner.content = Content::Unknown;
        }
        drop(inner);
        for part in ahead {
            self.fetch_ahead(open, part);
        }
        for want in wanted {
            let from = (want.at - at) as usize;
            let place = &mut into[from..from + want.len];
            self.cache
                .read(&*self.io, want.block, want.block_offset, place)
                .map_err(|error| (Some(want.block), error))?;
        }
        Ok((end - at) as usize)
    }

    /// Which parts of blocks to fetch because this handle reads on and on.
    fn plan_ahead(&self, open: &OpenFile, inner: &Inner, at: u64, end: u64) -> Vec<Wanted> {
        let mut ahead = open.ahead.lock();
        let mut parts = Vec::new();
        if at == ahead.next {
            ahead.window_bytes = (ahead.window_bytes * 2).max(WINDOW_BYTES_MIN);
        } else {
            *ahead = ReadAhead::default();
        }
        ahead.next = end;
        ahead.window_bytes = ahead.window_bytes.min(self.options.read_ahead_bytes_max);
        let from = ahead.issued.max(end);
        let to = (end + ahead.window_bytes).min(inner.size);
        if ahead.window_bytes == 0 || to <= from || (to - from < ahead.window_bytes / 2 && to < inner.size) {
            return parts;
        }
        let to = inner.content.known_to(from, to);
        ahead.issued = to;
        inner.pieces(from..to, &mut |range, source| {
            let Source::Block(block, block_offset) = source else { return };
            if !inner.uploads.contains_key(&block) {
                let len = (range.end - range.start) as usize;
                parts.push(Wanted { at: range.start, len, block, block_offset });
            }
        });
        parts.sort_unstable_by_key(|part| part.at);
        parts
    }

    /// Whether the store itself reads blocks ahead; asks it once.
    fn store_reads_ahead(&self, open: &OpenFile, block: BlockId) -> bool {
        let mut ahead = open.ahead.lock();
        let reads = ahead.asked == block || self.io.will_need(block);
        ahead.asked = if reads { block } else { BlockId::HOLE };
        reads
    }

    /// Lets the pool fetch a range of a block into the cache.
    fn fetch_ahead(&self, open: &OpenFile, part: Wanted) {
        if self.store_reads_ahead(open, part.block) {
            return;
        }
        let (mut offset, end) = (part.block_offset, part.block_offset + part.len as u32);
        while offset < end {
            let len = (end - offset).min(PART_BYTES - offset % PART_BYTES);
            let key = (part.block, offset / PART_BYTES);
            if self.cache.reserve(key, offset, len) {
                let (cache, io) = (self.cache.clone(), self.io.clone());
                let taken = self.ahead_pool.submit(move || {
                    let mut bytes = cache.buffer(len as usize);
                    match io.read_into(key.0, offset, &mut bytes) {
                        Ok(()) => cache.fill(key, bytes),
                        Err(_) => cache.give_up(key),
                    }
                });
                if !taken {
                    self.cache.give_up(key);
                }
            }
            offset += len;
        }
    }
}
