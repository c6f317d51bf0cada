//! write, clone, remap, truncate, reclaim: what changes content.

use chiton_model::Event;
use chiton_model::{Body, FILE_BYTES_MAX, Gone, Hold, INLINE_BYTES_MAX};
use chiton_model::{CHUNK_BYTES, Extent};
use chiton_model::{OldContent, Reverted};
use chiton_types::{Ino, Kind, Position, Refusal, Time};

use crate::apply::split_at_chunks;
use crate::chunk::share_repeated;
use crate::fault::{Fault, Need};
use crate::inode::{COMPLETE, INLINE, Inode, MAPPED};
use crate::namespace::{Context, Namespace, Planned};
use crate::paging::chunk_of;
use crate::permission;
use crate::values::{BlockKey, ChunkKey};

/// Most chunks that one event frees.
const RECLAIM_CHUNKS: usize = 1024;

impl Namespace {
    pub(super) fn plan_write(
        &self,
        ino: Ino,
        (body, size, hold): (&Body, u64, Hold),
        mtime: Time,
        kill_setid: bool,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let inode = self.file(ino)?;
        let placed = match hold {
            Hold::Appended(end) if end != inode.size => Some(self.appended(inode, body, size, end)?),
            _ => None,
        };
        let (body, size) = placed.as_ref().map_or((body, size), |(body, size)| (body, *size));
        if size > FILE_BYTES_MAX {
            return Err(Refusal::TooBig.into());
        }
        let body = match body {
            Body::Inline(bytes) => {
                if bytes.len() > INLINE_BYTES_MAX || bytes.len() as u64 > size || inode.has(MAPPED) {
                    return Err(Refusal::Invalid.into());
                }
                Body::Inline(bytes.clone())
            }
            Body::Extents(extents) => {
                let end = extents.iter().filter(|e| !e.block.is_hole()).map(Extent::end).max().unwrap_or(0);
                if size < inode.size || end > size || !in_order(extents) {
                    return Err(Refusal::Invalid.into());
                }
                let mut extents = extents.clone();
                for e in &mut extents {
                    e.shared = false;
                }
                share_repeated(&mut extents);
                self.replaceable(inode, &extents)?;
                Body::Extents(extents)
            }
        };
        let mode = self.judge(inode, |inode| Ok(permission::written(inode, kill_setid)))?;
        out.push(Event::Write { ino, body, size, mode, mtime });
        Ok(Planned { subject: Some(ino), gone: None, other: None })
    }

    /// What was appended at `end`, where the end of the file is now, and the size then. The bytes below belong to a state of the
    /// file that is no more.
    fn appended(&self, inode: &Inode, body: &Body, size: u64, end: u64) -> Result<(Body, u64), Fault> {
        let more = size.checked_sub(end).ok_or(Refusal::Invalid)?;
        let size =
            inode.size.checked_add(more).filter(|size| *size <= FILE_BYTES_MAX).ok_or(Refusal::TooBig)?;
        let body = match body {
            Body::Inline(bytes) => {
                let tail = bytes.get(end as usize..).ok_or(Refusal::Invalid)?;
                if inode.has(MAPPED) || size > INLINE_BYTES_MAX as u64 {
                    return Err(Refusal::Invalid.into());
                }
                let mut content = self.content(inode)?.to_vec();
                content.resize(inode.size as usize, 0);
                content.extend_from_slice(tail);
                Body::Inline(content)
            }
            Body::Extents(extents) => {
                let has_inline = inode.has(INLINE) && inode.extra > 0;
                if has_inline || extents.iter().any(|e| e.offset < end) {
                    return Err(Refusal::Invalid.into());
                }
                let mut placed = Vec::with_capacity(extents.len());
                for e in extents {
                    split_at_chunks(Extent { offset: e.offset - end + inode.size, ..*e }, &mut placed);
                }
                Body::Extents(placed)
            }
        };
        Ok((body, size))
    }

    pub(super) fn plan_clone(
        &self,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: u64,
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let (source, target) = (self.file(from)?, self.file(to)?);
        let source_end = from_offset.checked_add(len).filter(|&end| end <= source.size);
        let target_end = to_offset.checked_add(len).filter(|&end| end <= FILE_BYTES_MAX);
        let (Some(source_end), Some(target_end)) = (source_end, target_end) else {
            return Err(Refusal::Invalid.into());
        };
        let overlap = from == to && from_offset < target_end && to_offset < source_end;
        let inline = |inode: &Inode| inode.has(INLINE) && inode.extra > 0;
        if len == 0 || overlap || inline(source) || inline(target) {
            return Err(Refusal::Invalid.into());
        }
        self.clonable(source, (from_offset, source_end), target, (to_offset, target_end))?;
        out.push(Event::Clone { from, from_offset, to, to_offset, len, time: ctx.now });
        Ok(Planned { subject: Some(to), gone: None, other: None })
    }

    pub(super) fn plan_remap(
        &self,
        ino: Ino,
        expected: Position,
        extents: &[Extent],
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let inode = self.file(ino)?;
        if inode.position != expected || !inode.has(MAPPED) {
            return Err(Refusal::WouldBlock.into());
        }
        let end = extents.last().map_or(0, Extent::end);
        if end > inode.size || !in_order(extents) || extents.iter().any(|e| e.block.is_hole()) {
            return Err(Refusal::Invalid.into());
        }
        let mut extents = extents.to_vec();
        for e in &mut extents {
            e.shared = false;
        }
        share_repeated(&mut extents);
        self.replaceable(inode, &extents)?;
        out.push(Event::Remap { ino, extents });
        Ok(Planned { subject: Some(ino), gone: None, other: None })
    }

    pub(super) fn plan_reclaim(&self, ino: Ino, out: &mut Vec<Event>) -> Result<Planned, Fault> {
        let inode = self.inode(ino)?;
        if inode.nlink > 0 {
            return Err(Refusal::Busy.into());
        }
        let from_chunk = self.reclaim_from(inode)?;
        out.push(Event::Reclaim { ino, from_chunk });
        Ok(Planned { subject: Some(ino), gone: Some(Gone { ino, orphan: from_chunk > 0 }), other: None })
    }

    /// First chunk that the next step of a reclaim frees, all of whose rows are in memory.
    pub(crate) fn reclaim_from(&self, inode: &Inode) -> Result<u32, Fault> {
        if !inode.has(MAPPED) {
            return Ok(0);
        }
        self.map_complete(inode)?;
        let all = ChunkKey(inode.ino, 0)..=ChunkKey(inode.ino, u32::MAX);
        let last: Vec<u32> =
            self.chunks.range(all).rev().take(RECLAIM_CHUNKS + 1).map(|(k, _)| k.1).collect();
        let from = if last.len() > RECLAIM_CHUNKS { last[RECLAIM_CHUNKS - 1] } else { 0 };
        self.range_blocks_present(inode.ino, u64::from(from) * CHUNK_BYTES, u64::MAX)?;
        Ok(from)
    }

    /// Everything that sharing a range of `source` with `target` touches is in memory.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn clonable(
        &self,
        source: &Inode,
        (from, from_end): (u64, u64),
        target: &Inode,
        (to, to_end): (u64, u64),
    ) -> Result<(), Fault> {
        // The range of the destination is punched as a whole before the source's extents are put there.
        self.chunks_present(source, from, from_end)?;
        self.range_replaceable(target, to, to_end)?;
        self.range_blocks_present(source.ino, from, from_end)
    }

    /// Everything that a truncation to `size` touches is in memory.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn truncatable(&self, inode: &Inode, size: u64) -> Result<(), Fault> {
        if size >= inode.size {
            return Ok(());
        }
        if inode.has(INLINE) {
            self.content(inode)?;
        }
        if inode.has(MAPPED) {
            self.map_complete(inode)?;
            self.range_blocks_present(inode.ino, size, u64::MAX)?;
        }
        Ok(())
    }

    /// Everything that putting `extents` into the file touches is in memory.
    pub(crate) fn replaceable(&self, inode: &Inode, extents: &[Extent]) -> Result<(), Fault> {
        if !inode.has(MAPPED) {
            return Ok(());
        }
        let mut needs = Vec::new();
        for e in extents {
            match self.range_replaceable(inode, e.offset, e.end()) {
                Ok(()) => {}
                Err(Fault::Missing(more)) => needs.extend(more),
                Err(other) => return Err(other),
            }
        }
        missing(needs)
    }

    /// Everything that a revert of the file touches is in memory.
    pub(crate) fn revertible(&self, inode: &Inode, to: &Reverted) -> Result<(), Fault> {
        if to.xattrs.is_some() {
            self.xattrs_of(inode)?;
        }
        match &to.content {
            OldContent::Same => Ok(()),
            OldContent::Inline(_) => {
                if inode.has(INLINE) {
                    self.content(inode)?;
                }
                if inode.has(MAPPED) {
                    self.map_complete(inode)?;
                    self.range_blocks_present(inode.ino, 0, u64::MAX)?;
                }
                Ok(())
            }
            OldContent::Chunks(chunks) => {
                if inode.has(INLINE) {
                    self.content(inode)?;
                }
                for (number, _) in chunks {
                    let start = u64::from(*number) * CHUNK_BYTES;
                    self.chunks_present(inode, start, start + CHUNK_BYTES)?;
                    self.range_blocks_present(inode.ino, start, start + CHUNK_BYTES)?;
                }
                // Whether others refer to the blocks decides whether their extents are shared.
                self.blocks_present(chunks.iter().flat_map(|(_, extents)| extents).map(|e| e.block).collect())
            }
        }
    }

    /// The chunks of a range are in memory, and the references of all shared blocks in it.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn range_replaceable(&self, inode: &Inode, start: u64, end: u64) -> Result<(), Fault> {
        if !inode.has(MAPPED) {
            return Ok(());
        }
        self.chunks_present(inode, start, end)?;
        // A block that continues into or out of the range may merge with a neighbour.
        self.range_blocks_present(inode.ino, start.saturating_sub(1), end.saturating_add(1))
    }

    /// The chunks of a range are in memory.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn chunks_present(&self, inode: &Inode, start: u64, end: u64) -> Result<(), Fault> {
        if !inode.has(MAPPED) || inode.has(COMPLETE) || start >= end {
            return Ok(());
        }
        let (first, last) = (chunk_of(start), chunk_of(end - 1));
        if last - first > 64 {
            return Err(Need::Chunks(inode.ino).into());
        }
        missing(
            (first..=last)
                .filter(|&n| self.chunks.get(ChunkKey(inode.ino, n)).is_none())
                .map(|n| Need::Chunk(inode.ino, n))
                .collect(),
        )
    }

    fn map_complete(&self, inode: &Inode) -> Result<(), Fault> {
        if inode.has(COMPLETE) { Ok(()) } else { Err(Need::Chunks(inode.ino).into()) }
    }

    /// The references of all shared blocks in a range are in memory.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn range_blocks_present(&self, ino: Ino, start: u64, end: u64) -> Result<(), Fault> {
        let mut blocks = Vec::new();
        for (_, chunk) in self.chunks_in(ino, start, end) {
            blocks.extend(chunk.slice(start, end).into_iter().filter(|e| e.shared).map(|e| e.block));
        }
        self.blocks_present(blocks)
    }

    fn blocks_present(&self, mut blocks: Vec<chiton_types::BlockId>) -> Result<(), Fault> {
        blocks.sort_unstable();
        blocks.dedup();
        missing(
            blocks.into_iter().filter(|&b| self.blocks.get(BlockKey(b)).is_none()).map(Need::Block).collect(),
        )
    }

    /// Chunks in memory that a range touches.
    pub(crate) fn chunks_in(
        &self,
        ino: Ino,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = (u32, &crate::chunk::Chunk)> {
        let last = u32::try_from(end.saturating_sub(1) / CHUNK_BYTES).unwrap_or(u32::MAX);
        let first = u32::try_from(start / CHUNK_BYTES).unwrap_or(u32::MAX).min(last);
        self.chunks.range(ChunkKey(ino, first)..=ChunkKey(ino, last)).map(|(k, c)| (k.1, c))
    }

    fn file(&self, ino: Ino) -> Result<&Inode, Fault> {
        let inode = self.inode(ino)?;
        match inode.kind {
            Kind::File => Ok(inode),
            Kind::Dir => Err(Refusal::IsDir.into()),
            _ => Err(Refusal::Invalid.into()),
        }
    }
}

fn missing(needs: Vec<Need>) -> Result<(), Fault> {
    if needs.is_empty() { Ok(()) } else { Err(Fault::Missing(needs)) }
}

/// Extents as an operation must bring them: within the largest file, whole, in order, without overlap.
fn in_order(extents: &[Extent]) -> bool {
    extents
        .iter()
        .all(|e| e.len > 0 && e.end() <= FILE_BYTES_MAX + 1 && chunk_of(e.offset) == chunk_of(e.end() - 1))
        && extents.windows(2).all(|w| w[0].end() <= w[1].offset)
}
