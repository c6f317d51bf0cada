//! One chunk of a file's map: which bytes of which blocks its [`CHUNK_BYTES`] are.
//!
//! ```text
//!   file   |aaaaaaaa|bbbb|        |cc|          overlay d over the middle of a:
//!          ^ base of the chunk     ^ holes are not stored
//!          |aaa|dd|aaa|bbbb|      |cc|          a is split, so both its halves are now shared (2)
//! ```
//!
//! Invariants:
//! - Extents are sorted by offset, do not overlap, lie in one chunk, and none is a hole. Offsets are absolute.
//! - No two neighbours could be one extent (contiguous in file and block, same `shared` flag).
//! - **References.** One reference = one extent in some map, of any file. For every block: if one of its extents is
//!   not `shared` it is the only one, and the block has no row of references; else all are `shared` and the row's
//!   count is the number of extents. A block never goes back from shared to not shared, a count of 1 is fine.
//! - Every change of a map reports in [`Effects`] what keeps the above true over all files:
//!
//! | what happens to an extent | it was not shared | it was shared |
//! |---|---|---|
//! | an end is cut off | nothing | nothing |
//! | it is split in two | both halves shared, `became_shared` 2 | `refs` +1 |
//! | it vanishes | `dropped`: garbage | `refs` -1: garbage when the row falls to 0 |
//! | it merges with a neighbour | nothing | `refs` -1 |
//! | [`Chunk::share`] | shared, `became_shared` 1 | nothing |
//! | [`Chunk::overlay`] puts it there | nothing | `refs` +1 |
//!
//! So a clone is: `share` the source's range, `slice` it, move the copies, `overlay` them in the destination. And a
//! write that maps one new block by several extents passes all of them with `shared` set: see [`share_repeated`].

use std::collections::BTreeMap;

use chiton_types::BlockId;
use chiton_types::codec::{Malformed, Put, Take};

use chiton_model::{CHUNK_BYTES, EXTENT_BYTES_MIN, Extent};

/// The effects of map changes outside the maps: size, rows of references, garbage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Change of the bytes that are mapped.
    pub allocated_delta: i64,
    /// Blocks whose only reference vanished: garbage.
    pub dropped: Vec<BlockId>,
    /// Blocks that were not shared, and how many references they have now. Their row begins here, before any
    /// of `refs` is added.
    pub became_shared: Vec<(BlockId, u32)>,
    /// Changes of the counts of shared blocks. A block may stand here several times and pass through 0 on its way:
    /// add all up ([`Effects::settle_refs`]) before asking whether it is garbage. A block without a row counts from 0.
    pub refs: Vec<(BlockId, i32)>,
}

impl Effects {
    /// Leaves one entry a block in `refs`, in order of blocks, and none that change nothing.
    pub fn settle_refs(&mut self) {
        self.refs.sort_unstable_by_key(|&(block, _)| block);
        self.refs.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        self.refs.retain(|&(_, change)| change != 0);
    }
}

/// Sets `shared` on every extent whose block stands in more than one of `extents`. A write that puts one block in
/// several places of a file (or over a chunk's border) must do this before it hands them to [`Chunk::overlay`].
pub fn share_repeated(extents: &mut [Extent]) {
    // The usual write maps each block once, in one or a few extents: no map of counts for one.
    if extents.len() < 2 {
        return;
    }
    let mut times: BTreeMap<BlockId, u32> = BTreeMap::new();
    for e in extents.iter().filter(|e| !e.block.is_hole()) {
        *times.entry(e.block).or_default() += 1;
    }
    for e in extents {
        e.shared |= times.get(&e.block).is_some_and(|&n| n > 1);
    }
}

/// One chunk of a file's map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    extents: Vec<Extent>,
}

impl Chunk {
    /// The extents, in order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// True if nothing is mapped: the chunk needs no row.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// The same chunk over other blocks, which `name` gives for those that it has.
    pub fn with_blocks(mut self, name: impl Fn(BlockId) -> BlockId) -> Chunk {
        for extent in &mut self.extents {
            extent.block = name(extent.block);
        }
        self
    }

    /// Bytes that are mapped.
    pub fn allocated(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(e.len)).sum()
    }

    /// Memory on the heap, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.extents.capacity() * size_of::<Extent>()
    }

    /// Puts `e` over its range, or punches the range if its block is [`BlockId::HOLE`].
    ///
    /// An `e` that is not `shared` must name a block that no map refers to yet, or continue that block's one extent
    /// (then they become one).
    ///
    /// # Panics
    /// If `e` is empty, or not within the one chunk in which the others are.
    pub fn overlay(&mut self, mut e: Extent, fx: &mut Effects) {
        let end = e.end();
        let chunk = e.offset / CHUNK_BYTES;
        assert!(e.len > 0 && (end - 1) / CHUNK_BYTES == chunk, "extent {e:?} is not within one chunk");
        assert!(
            self.extents.first().is_none_or(|first| first.offset / CHUNK_BYTES == chunk),
            "extent {e:?} is not of this chunk"
        );
        let (i, j) = self.overlapped(e.offset, end);
        if !e.block.is_hole() {
            self.share_own(&mut e, i, j, fx);
            if e.shared {
                fx.refs.push((e.block, 1));
            }
            fx.allocated_delta += i64::from(e.len);
        }
        let mut left = None;
        let mut right = None;
        for old in &self.extents[i..j] {
            let mut old = *old;
            let (keeps_left, keeps_right) = (old.offset < e.offset, old.end() > end);
            fx.allocated_delta -= (old.end().min(end) - old.offset.max(e.offset)) as i64;
            match (keeps_left && keeps_right, keeps_left || keeps_right, old.shared) {
                (true, _, true) => fx.refs.push((old.block, 1)),
                (true, _, false) => {
                    fx.became_shared.push((old.block, 2));
                    old.shared = true;
                }
                (false, true, _) => {}
                (false, false, true) => fx.refs.push((old.block, -1)),
                (false, false, false) => fx.dropped.push(old.block),
            }
            if keeps_left {
                left = clip(&old, old.offset, e.offset);
            }
            if keeps_right {
                right = clip(&old, end, old.end());
            }
        }
        // An extent next to `e` that can be joined with it is joined, too.
        let (mut i, mut j) = (i, j);
        let mut middle = (!e.block.is_hole()).then_some(e);
        if let Some(e) = &mut middle {
            let before = left.or_else(|| i.checked_sub(1).map(|before| self.extents[before]));
            if let Some(before) = before.filter(|before| continues(before, e)) {
                *e = joined(&before, e, fx);
                if left.take().is_none() {
                    i -= 1;
                }
            }
            let after = right.or_else(|| self.extents.get(j).copied());
            if let Some(after) = after.filter(|after| continues(e, after)) {
                *e = joined(e, &after, fx);
                if right.take().is_none() {
                    j += 1;
                }
            }
        }
        match (left, middle, right) {
            // A writer that goes from front to back: no splice.
            (None, Some(e), None) if i == j && i == self.extents.len() => self.extents.push(e),
            (None, Some(e), None) if j == i + 1 => self.extents[i] = e,
            (left, middle, right) => {
                self.extents.splice(i..j, [left, middle, right].into_iter().flatten());
            }
        }
    }

    /// If an extent that `e` goes over refers to the very block of `e`, both are shared.
    fn share_own(&mut self, e: &mut Extent, i: usize, j: usize, fx: &mut Effects) {
        for old in self.extents[i..j].iter_mut().filter(|old| old.block == e.block) {
            e.shared = true;
            if !old.shared {
                old.shared = true;
                fx.became_shared.push((old.block, 1));
            }
        }
    }

    /// Drops what is at or past the byte `from` of the file.
    pub fn truncate(&mut self, from: u64, fx: &mut Effects) {
        let keep = self.extents.partition_point(|e| e.offset < from);
        for e in self.extents.drain(keep..) {
            fx.allocated_delta -= i64::from(e.len);
            if e.shared {
                fx.refs.push((e.block, -1));
            } else {
                fx.dropped.push(e.block);
            }
        }
        if let Some(last) = self.extents.last_mut().filter(|last| last.end() > from) {
            let len = (from - last.offset) as u32;
            fx.allocated_delta -= i64::from(last.len - len);
            last.len = len;
        }
    }

    /// Copies of the extents that are mapped in the range, cut to it.
    pub fn slice(&self, start: u64, end: u64) -> Vec<Extent> {
        let (i, j) = self.overlapped(start, end);
        self.extents[i..j].iter().filter_map(|e| clip(e, e.offset.max(start), e.end().min(end))).collect()
    }

    /// Sets `shared` on the extents that overlap the range (whole, not cut to it): they are about to be cloned.
    pub fn share(&mut self, start: u64, end: u64, fx: &mut Effects) {
        let (i, j) = self.overlapped(start, end);
        for e in self.extents[i..j].iter_mut().filter(|e| !e.shared) {
            e.shared = true;
            fx.became_shared.push((e.block, 1));
        }
    }

    /// Appends the row's value: a varint count, then the extents.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.extents.len() as u64);
        for e in &self.extents {
            e.encode(out);
        }
    }

    /// Reads a row's value; the caller checks that the chunk is the one of the row's key.
    ///
    /// # Errors
    /// If the extents are holes, out of order, overlap or are not all in one chunk.
    pub fn decode(from: &mut Take<'_>) -> Result<Chunk, Malformed> {
        let n = from.count(EXTENT_BYTES_MIN)?;
        let mut extents: Vec<Extent> = Vec::with_capacity(n);
        for _ in 0..n {
            let e = Extent::decode(from)?;
            let follows = extents.last().is_none_or(|last| {
                last.end() <= e.offset && last.offset / CHUNK_BYTES == e.offset / CHUNK_BYTES
            });
            if e.block.is_hole() || !follows {
                return Err(Malformed { expected: "the extents of one chunk in order" });
            }
            extents.push(e);
        }
        Ok(Chunk { extents })
    }

    /// Number of the chunk within its file; `None` if nothing is mapped.
    pub fn number(&self) -> Option<u64> {
        self.extents.first().map(|e| e.offset / CHUNK_BYTES)
    }

    /// The extents that overlap the range: from, end (exclusive).
    fn overlapped(&self, start: u64, end: u64) -> (usize, usize) {
        let i = self.extents.partition_point(|e| e.end() <= start);
        // An empty range overlaps nothing, also within an extent.
        let n = if start < end { self.extents[i..].partition_point(|e| e.offset < end) } else { 0 };
        (i, i + n)
    }
}

/// The part of `e` from `start` to `end`, both within it.
fn clip(e: &Extent, start: u64, end: u64) -> Option<Extent> {
    (start < end).then(|| Extent {
        offset: start,
        len: (end - start) as u32,
        block_offset: e.block_offset + (start - e.offset) as u32,
        ..*e
    })
}

/// True if both could be one extent.
fn continues(a: &Extent, b: &Extent) -> bool {
    a.block == b.block
        && a.shared == b.shared
        && a.end() == b.offset
        && u64::from(a.block_offset) + u64::from(a.len) == u64::from(b.block_offset)
}

/// Joins two adjacent extents of one block.
fn joined(a: &Extent, b: &Extent, fx: &mut Effects) -> Extent {
    if a.shared {
        fx.refs.push((a.block, -1));
    }
    Extent { len: a.len + b.len, ..*a }
}

#[cfg(test)]
mod tests;
