//! Applying what changes content: maps, references of blocks, garbage.

use chiton_model::Body;
use chiton_model::{CHUNK_BYTES, Extent};
use chiton_model::{OldContent, Reverted};
use chiton_types::{BlockId, Ino, Position};

use crate::chunk::{Chunk, Effects, share_repeated};
use crate::inode::{COMPLETE, INLINE, MAPPED, OF_XATTRS, XATTRS, xattr_flags};
use crate::namespace::Namespace;
use crate::paging::chunk_of;
use crate::values::{BlockKey, ChunkKey, ContentKey, GarbageKey, OrphanKey, Present, Xattrs, XattrsKey};

impl Namespace {
    pub(super) fn write(&mut self, ino: Ino, body: &Body, size: u64, position: Position) {
        match body {
            Body::Inline(bytes) => {
                let inode = self.changing(ino, position);
                let had = inode.has(INLINE);
                inode.flags = inode.flags & !INLINE | if bytes.is_empty() { 0 } else { INLINE };
                inode.node.set_bytes(bytes.len() as u64);
                if had || !bytes.is_empty() {
                    let value = (!bytes.is_empty()).then(|| bytes.as_slice().into());
                    self.contents.change(ContentKey(ino), &mut self.dirty, !had, |v| *v = value);
                }
            }
            Body::Extents(extents) => {
                self.map_instead_of_inline(ino, position);
                self.overlay(ino, extents, position);
            }
        }
        self.changing(ino, position).node.set_size(size);
    }

    /// A file whose content was inline, or that had none, is mapped from now on; the inline content is dropped.
    fn map_instead_of_inline(&mut self, ino: Ino, position: Position) {
        let inode = self.changing(ino, position);
        if inode.has(MAPPED) {
            return;
        }
        let had = inode.has(INLINE);
        inode.flags = inode.flags & !INLINE | MAPPED | COMPLETE;
        inode.node.set_bytes(0);
        if had {
            self.contents.change(ContentKey(ino), &mut self.dirty, false, |v| *v = None);
        }
    }

    /// Puts extents into the map.
    pub(super) fn overlay(&mut self, ino: Ino, extents: &[Extent], position: Position) {
        let mut fx = Effects::default();
        for e in extents {
            self.change_chunk(ino, chunk_of(e.offset), |chunk| chunk.overlay(*e, &mut fx));
        }
        self.settle(ino, fx, position);
    }

    pub(super) fn truncate(&mut self, ino: Ino, size: u64, position: Position) {
        let inode = self.changing(ino, position);
        let shrinks = size < inode.size();
        inode.node.set_size(size);
        if shrinks && inode.has(INLINE) {
            let keep = usize::try_from(size).unwrap_or(usize::MAX);
            let left = self.contents.change(ContentKey(ino), &mut self.dirty, false, |v| {
                let content = v.take().unwrap_or_default();
                let left = keep.min(content.len());
                *v = (left > 0).then(|| content[..left].into());
                left
            });
            let inode = self.changing(ino, position);
            inode.node.set_bytes(left as u64);
            if left == 0 {
                inode.flags &= !INLINE;
            }
        }
        if shrinks && self.changing(ino, position).has(MAPPED) {
            self.drop_from(ino, size, position);
            if size == 0 {
                // Empty again: small content may live in the inode again.
                self.changing(ino, position).flags &= !MAPPED;
            }
        }
    }

    /// Drops everything mapped at or past `start`.
    fn drop_from(&mut self, ino: Ino, start: u64, position: Position) {
        let mut fx = Effects::default();
        let chunks: Vec<u32> = self.chunks_in(ino, start, u64::MAX).map(|(n, _)| n).collect();
        for n in chunks {
            self.change_chunk(ino, n, |chunk| chunk.truncate(start.max(u64::from(n) * CHUNK_BYTES), &mut fx));
        }
        self.settle(ino, fx, position);
    }

    pub(super) fn clone_range(
        &mut self,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: u64,
        position: Position,
    ) {
        let mut fx = Effects::default();
        let source: Vec<u32> = self.chunks_in(from, from_offset, from_offset + len).map(|(n, _)| n).collect();
        let mut pieces = Vec::new();
        for n in source {
            self.change_chunk(from, n, |chunk| {
                chunk.share(from_offset, from_offset + len, &mut fx);
                pieces.extend(chunk.slice(from_offset, from_offset + len));
            });
        }
        // The source is as it was: only its blocks have one user more.
        self.settle_blocks(fx);
        self.map_instead_of_inline(to, position);
        let mut extents = Vec::new();
        for piece in pieces {
            let moved = Extent { offset: piece.offset - from_offset + to_offset, ..piece };
            moved.split_at_chunks(&mut extents);
        }
        // Holes of the source punch: first everything, then what is mapped.
        let mut fx = Effects::default();
        let end = to_offset + len;
        let targets: Vec<u32> = self.chunks_in(to, to_offset, end).map(|(n, _)| n).collect();
        for n in targets {
            let base = u64::from(n) * CHUNK_BYTES;
            let (offset, end) = (base.max(to_offset), (base + CHUNK_BYTES).min(end));
            let len = (end - offset) as u32;
            let hole = Extent { offset, len, block: BlockId::HOLE, block_offset: 0, shared: false };
            self.change_chunk(to, n, |chunk| chunk.overlay(hole, &mut fx));
        }
        self.settle(to, fx, position);
        self.overlay(to, &extents, position);
        let inode = self.changing(to, position);
        inode.node.set_size(inode.size().max(to_offset + len));
    }

    /// The file is as it was: see [`Reverted`].
    pub(super) fn revert(&mut self, ino: Ino, to: &Reverted, position: Position) {
        match &to.content {
            OldContent::Same => {}
            OldContent::Inline(bytes) => {
                if self.changing(ino, position).has(MAPPED) {
                    self.drop_from(ino, 0, position);
                    self.changing(ino, position).flags &= !MAPPED;
                }
                self.write(ino, &Body::Inline(bytes.clone()), to.size, position);
            }
            OldContent::Chunks(chunks) => {
                self.map_instead_of_inline(ino, position);
                let mut fx = Effects::default();
                for (number, _) in chunks {
                    let start = u64::from(*number) * CHUNK_BYTES;
                    self.change_chunk(ino, *number, |chunk| chunk.truncate(start, &mut fx));
                }
                self.settle(ino, fx, position);
                let extents = chunks.iter().flat_map(|(_, extents)| extents.iter().copied()).collect();
                let extents = self.referring_again(extents);
                self.overlay(ino, &extents, position);
            }
        }
        if let Some(xattrs) = &to.xattrs {
            let had = self.changing(ino, position).has(XATTRS);
            let mut flags = 0;
            if had || !xattrs.is_empty() {
                let value = (!xattrs.is_empty()).then(|| Xattrs(xattrs.clone()));
                flags = value.as_ref().map_or(0, xattr_flags);
                self.xattrs.change(XattrsKey(ino), &mut self.dirty, !had, |v| *v = value);
            }
            let inode = self.changing(ino, position);
            inode.flags = inode.flags & !OF_XATTRS | flags;
        }
        let inode = self.changing(ino, position);
        (inode.mode, inode.uid, inode.gid) = (to.mode, to.uid, to.gid);
        inode.node.set_size(to.size);
        inode.set_flags(to.flags);
        (inode.atime, inode.mtime, inode.ctime) = (to.atime, to.mtime, to.ctime);
    }

    /// Extents of blocks that were dropped or are others' too, as a map may have them now: a block that
    /// others refer to has a row of references, and a block without references is no garbage from here on.
    fn referring_again(&mut self, mut extents: Vec<Extent>) -> Vec<Extent> {
        for e in &mut extents {
            let block = BlockKey(e.block);
            e.shared = self.blocks.value(block).is_some();
            if !e.shared {
                self.garbage.change(GarbageKey(e.block), &mut self.dirty, false, |v| *v = None);
            }
        }
        share_repeated(&mut extents);
        extents
    }

    pub(super) fn reclaim(&mut self, ino: Ino, from_chunk: u32, position: Position) {
        let start = u64::from(from_chunk) * CHUNK_BYTES;
        if self.changing(ino, position).has(MAPPED) {
            self.drop_from(ino, start, position);
        }
        if from_chunk > 0 {
            return;
        }
        self.orphans.change(OrphanKey(ino), &mut self.dirty, false, |v| *v = None);
        self.end_inode(ino);
    }

    fn change_chunk(&mut self, ino: Ino, n: u32, f: impl FnOnce(&mut Chunk)) {
        self.chunks.change(ChunkKey(ino, n), &mut self.dirty, false, |v| {
            let mut chunk = v.take().unwrap_or_default();
            f(&mut chunk);
            *v = (!chunk.is_empty()).then_some(chunk);
        });
    }

    /// Applies the effects of map changes on the file's size on disk, references, and garbage.
    fn settle(&mut self, ino: Ino, fx: Effects, position: Position) {
        let inode = self.changing(ino, position);
        inode.node.set_bytes(inode.content_bytes().wrapping_add_signed(fx.allocated_delta));
        self.settle_blocks(fx);
    }

    fn settle_blocks(&mut self, mut fx: Effects) {
        fx.settle_refs();
        for (block, count) in fx.became_shared {
            self.blocks.change(BlockKey(block), &mut self.dirty, false, |v| *v = Some(count));
        }
        for (block, delta) in fx.refs {
            let left = self.blocks.change(BlockKey(block), &mut self.dirty, false, |v| {
                let count = v.unwrap_or(0).checked_add_signed(delta);
                let count = count.unwrap_or_else(|| panic!("references of block {block:?} fall below 0"));
                *v = (count > 0).then_some(count);
                count
            });
            if left == 0 {
                fx.dropped.push(block);
            }
        }
        for block in fx.dropped {
            self.garbage.change(GarbageKey(block), &mut self.dirty, false, |v| *v = Some(Present));
        }
    }
}
