//! The namespace as `plan` reads it: each row is in memory, or is missing and can be fetched.

use chiton_model::{Body, CHUNK_BYTES, Event, Extent, OldContent, Reverted};
use chiton_types::{Ino, Name};

use super::rename::is_at_or_above;
use super::{ContentIn, InodeFacts, PlanState};
use crate::fault::{Fault, Need};
use crate::inode::{COMPLETE, INLINE, Inode, MAPPED};
use crate::namespace::{Known, Namespace};
use crate::paging::chunk_of;
use crate::values::{BlockKey, ChunkKey, Xattrs};

/// Most chunks that one event frees.
const RECLAIM_CHUNKS: usize = 1024;

impl Inode {
    #[inline]
    pub(crate) fn facts(&self) -> InodeFacts {
        InodeFacts {
            ino: self.ino,
            parent: self.parent,
            position: self.position,
            kind: self.kind(),
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: self.size(),
            ctime: self.ctime,
            flags: self.attr_flags(),
            content: match self.flags & (INLINE | MAPPED) {
                0 => ContentIn::Nothing,
                INLINE => ContentIn::Inline,
                _ => ContentIn::Blocks,
            },
        }
    }
}

impl PlanState for Namespace {
    #[inline]
    fn inode(&self, ino: Ino) -> Result<InodeFacts, Fault> {
        Ok(self.inode(ino)?.facts())
    }

    #[inline]
    fn entry(&self, dir: &InodeFacts, name: &Name) -> Result<Option<Ino>, Fault> {
        Ok(match self.entry(self.inode(dir.ino)?, name)? {
            Known::Present(slot) => Some(slot.ino),
            Known::Absent => None,
        })
    }

    fn is_empty(&self, dir: &InodeFacts) -> Result<bool, Fault> {
        Ok(self.inode(dir.ino)?.entries() == 0)
    }

    fn parts(&self, dir: &InodeFacts) -> Result<Vec<Ino>, Fault> {
        Ok(self.parts(dir.ino)?.into_iter().map(|part| part.ino).collect())
    }

    fn xattrs(&self, inode: &InodeFacts) -> Result<Option<&Xattrs>, Fault> {
        self.xattrs_of(self.inode(inode.ino)?)
    }

    fn inline_content(&self, inode: &InodeFacts) -> Result<&[u8], Fault> {
        self.content(self.inode(inode.ino)?)
    }

    fn same_realm(&self, a: Ino, b: Ino) -> Result<(), Fault> {
        self.same_realm(a, b)
    }

    fn has_maps_for(&self, event: &Event) -> Result<(), Fault> {
        if let Event::SetAttr { ino, size: Some(size), .. } = event {
            self.truncatable(self.inode(*ino)?, *size)?;
        }
        if let Event::Write { ino, body: Body::Extents(extents), .. } | Event::Remap { ino, extents } = event
        {
            self.replaceable(self.inode(*ino)?, extents)?;
        }
        if let Event::Clone { from, from_offset, to, to_offset, len, .. } = event {
            let (source, target) = (self.inode(*from)?, self.inode(*to)?);
            let (from_range, to_range) = ((*from_offset, from_offset + len), (*to_offset, to_offset + len));
            self.clonable(source, from_range, target, to_range)?;
        }
        Ok(())
    }

    fn reclaim_from(&self, inode: &InodeFacts) -> Result<u32, Fault> {
        self.reclaim_from(self.inode(inode.ino)?)
    }
}

impl Namespace {
    /// Whether `dir` is `above` or below it. Walks the parents of directories up to the root.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn is_at_or_above(&self, above: Ino, dir: &Inode) -> Result<bool, Fault> {
        is_at_or_above(self, above, &dir.facts())
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
        if size >= inode.size() {
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
}

fn missing(needs: Vec<Need>) -> Result<(), Fault> {
    if needs.is_empty() { Ok(()) } else { Err(Fault::Missing(needs)) }
}
