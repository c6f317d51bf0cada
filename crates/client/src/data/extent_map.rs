//! A map from ranges of a file to ranges of blocks, where what comes later hides what was there.
//!
//! Invariants:
//! - Extents do not overlap and none crosses the border of a chunk.
//! - An extent that was split has both its pieces marked `shared`: the server counts references by that.

use std::collections::BTreeMap;
use std::ops::Range;

use chiton_model::{CHUNK_BYTES, Extent};
use chiton_types::BlockId;

/// Extents in the order of their place in the file. Holes are extents of [`BlockId::HOLE`], where they matter.
#[derive(Clone, Debug, Default)]
pub(super) struct ExtentMap(BTreeMap<u64, Extent>);

/// The part of `e` within `range`, which it touches.
fn clip(e: &Extent, range: &Range<u64>) -> Extent {
    let start = e.offset.max(range.start);
    let end = e.end().min(range.end);
    let block_offset = if e.block.is_hole() { 0 } else { e.block_offset + (start - e.offset) as u32 };
    Extent { offset: start, len: (end - start) as u32, block_offset, ..*e }
}

impl ExtentMap {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.0.values()
    }

    /// Puts `e` over the extents there.
    pub(super) fn insert(&mut self, e: Extent) {
        self.cut(e.offset..e.end());
        self.0.insert(e.offset, e);
    }

    /// Puts a hole over the extents there.
    pub(super) fn insert_hole(&mut self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / CHUNK_BYTES + 1) * CHUNK_BYTES);
            let len = (end - at) as u32;
            self.insert(Extent { offset: at, len, block: BlockId::HOLE, block_offset: 0, shared: false });
            at = end;
        }
    }

    /// Puts `e` where nothing is, in as many pieces as that takes.
    pub(super) fn insert_below(&mut self, e: Extent) {
        let mut gaps = Vec::new();
        let mut at = e.offset;
        for over in self.over(e.offset..e.end()) {
            gaps.push(at..over.offset);
            at = over.end();
        }
        gaps.push(at..e.end());
        gaps.retain(|gap| !gap.is_empty());
        let split = gaps.len() > 1 && !e.block.is_hole();
        for gap in gaps {
            let mut piece = clip(&e, &gap);
            piece.shared |= split;
            self.0.insert(piece.offset, piece);
        }
    }

    pub(super) fn cut(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first =
            self.0.range(..range.start).next_back().filter(|(_, e)| e.end() > range.start).map(|(&at, _)| at);
        let from = first.unwrap_or(range.start);
        let touched: Vec<u64> = self.0.range(from..range.end).map(|(&at, _)| at).collect();
        for at in touched {
            let mut e = self.0.remove(&at).expect("it was just seen");
            let (left, right) = (e.offset < range.start, e.end() > range.end);
            e.shared |= left && right && !e.block.is_hole();
            if left {
                let piece = clip(&e, &(0..range.start));
                self.0.insert(piece.offset, piece);
            }
            if right {
                let piece = clip(&e, &(range.end..u64::MAX));
                self.0.insert(piece.offset, piece);
            }
        }
    }

    /// The extents in a range, clipped to it, in order.
    pub(super) fn over(&self, range: Range<u64>) -> impl Iterator<Item = Extent> {
        let first = self.0.range(..range.start).next_back().map(|(_, e)| e).filter(|e| e.end() > range.start);
        let rest = self.0.range(range.start..range.end.max(range.start)).map(|(_, e)| e);
        first
            .into_iter()
            .filter(|_| range.end > range.start)
            .copied()
            .collect::<Vec<_>>()
            .into_iter()
            .chain(rest.copied())
            .map(move |e| clip(&e, &range))
    }

    /// Marks as shared every block that is mapped by more than one extent.
    pub(super) fn share_repeated(&mut self) {
        let mut times: BTreeMap<BlockId, u32> = BTreeMap::new();
        for e in self.0.values().filter(|e| !e.block.is_hole()) {
            *times.entry(e.block).or_default() += 1;
        }
        for e in self.0.values_mut() {
            e.shared |= times.get(&e.block).is_some_and(|&n| n > 1);
        }
    }
}
