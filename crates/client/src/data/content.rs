//! The content of a file as the server answered it.
//!
//! Invariants:
//! - Bytes outside the known chunks are unknown. In a known chunk, bytes without a block are a hole.

use std::collections::BTreeMap;
use std::ops::Range;

use chiton_model::{CHUNK_BYTES, Extent};

use chiton_wire::Content as Stored;

use super::extent_map::ExtentMap;

/// Extents that are remembered of one file: past it, the map is forgotten and asked for again.
const EXTENTS_MAX: usize = 1 << 20;
/// Ranges of known chunks that are remembered of one file; likewise.
const RANGES_MAX: usize = 1 << 20;

/// A file's content, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) enum Content {
    /// The server has not been asked for it.
    #[default]
    Unknown,
    /// All bytes. From their end to the size of the file there are zeros.
    Inline(Vec<u8>),
    /// The map of some chunks.
    Blocks(Chunks),
}

/// The known parts of the map from a file's bytes to blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    extents: ExtentMap,
    /// Ranges of chunks that are known, apart from each other: the first number, and one past the last. A hole is one range, however
    /// large it is.
    known: BTreeMap<u64, u64>,
    /// Every chunk is known, also those past the end.
    all: bool,
}

impl Chunks {
    /// The map of a file that has no blocks yet.
    pub(super) fn empty() -> Chunks {
        Chunks { all: true, ..Chunks::default() }
    }

    fn knows(&self, chunk: u64) -> bool {
        self.all || self.known_from(chunk) > chunk
    }

    /// The first chunk from this one on that is not known.
    fn known_from(&self, chunk: u64) -> u64 {
        self.known.range(..=chunk).next_back().map_or(chunk, |(_, end)| (*end).max(chunk))
    }

    /// Chunks are known from now on.
    fn note_known(&mut self, mut first: u64, mut end: u64) {
        if first >= end {
            return;
        }
        // Ranges that overlap the new one, or touch it, become one with it.
        while let Some((before, until)) = self.known.range(..=end).next_back().map(|(a, b)| (*a, *b))
            && until >= first
        {
            self.known.remove(&before);
            (first, end) = (first.min(before), end.max(until));
        }
        self.known.insert(first, end);
    }

    /// How far the map is known from `offset` on, at most to `end`.
    pub(super) fn known_to(&self, offset: u64, end: u64) -> u64 {
        if self.all {
            return end;
        }
        let unknown = self.known_from(offset / CHUNK_BYTES);
        unknown.saturating_mul(CHUNK_BYTES).clamp(offset, end)
    }

    /// Takes in the map of whole chunks from the server.
    pub(super) fn install(&mut self, covered: Range<u64>, extents: &[Extent]) {
        if self.extents.len() + extents.len() > EXTENTS_MAX || self.known.len() >= RANGES_MAX {
            *self = Chunks::default();
        }
        self.extents.cut(covered.clone());
        for e in extents
            .iter()
            .filter(|e| e.offset >= covered.start && e.end() <= covered.end && !e.block.is_hole())
        {
            self.extents.insert(*e);
        }
        self.note_known(covered.start / CHUNK_BYTES, covered.end / CHUNK_BYTES);
    }

    /// Takes over what an operation has put in the file.
    pub(super) fn apply(&mut self, e: &Extent) {
        if e.block.is_hole() {
            self.extents.cut(e.offset..e.end());
        } else if self.knows(e.offset / CHUNK_BYTES) {
            self.extents.insert(*e);
        }
    }

    /// Forgets what lies at or past `size`.
    pub(super) fn truncate(&mut self, size: u64) {
        self.extents.cut(size..u64::MAX);
    }

    pub(super) fn extents(&self) -> &ExtentMap {
        &self.extents
    }
}

impl Content {
    /// Takes in an answer of the server about the bytes from `at` on. `false`: the answer does not cover them.
    pub(super) fn install(&mut self, stored: Stored, at: u64) -> bool {
        match stored {
            Stored::Inline(bytes) => *self = Content::Inline(bytes),
            Stored::Extents { start, end, extents } => {
                if start > at || end <= at {
                    return false;
                }
                if !matches!(self, Content::Blocks(_)) {
                    *self = Content::Blocks(Chunks::default());
                }
                if let Content::Blocks(chunks) = self {
                    chunks.install(start..end, &extents);
                }
            }
        }
        true
    }

    /// How far the content is known from `offset` on, at most to `end`.
    pub(super) fn known_to(&self, offset: u64, end: u64) -> u64 {
        match self {
            Content::Unknown => offset,
            Content::Inline(_) => end,
            Content::Blocks(chunks) => chunks.known_to(offset, end),
        }
    }

    /// The size of the file becomes `size`.
    pub(super) fn truncate(&mut self, size: u64) {
        match self {
            Content::Unknown => {}
            Content::Inline(bytes) => bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX)),
            Content::Blocks(chunks) => chunks.truncate(size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ranges_join_and_a_hole_is_one() {
        let mut chunks = Chunks::default();
        let bytes = |range: Range<u64>| range.start * CHUNK_BYTES..range.end * CHUNK_BYTES;
        for (covered, ranges) in [
            (4..6, vec![(4, 6)]),
            (8..9, vec![(4, 6), (8, 9)]),
            (5..7, vec![(4, 7), (8, 9)]),
            (7..8, vec![(4, 9)]),
            (5..6, vec![(4, 9)]),
            (0..4, vec![(0, 9)]),
            (20..30, vec![(0, 9), (20, 30)]),
            (0..1 << 32, vec![(0, 1 << 32)]),
        ] {
            chunks.install(bytes(covered.clone()), &[]);
            assert_eq!(chunks.known.clone().into_iter().collect::<Vec<_>>(), ranges, "{covered:?}");
        }
        let mut some = Chunks::default();
        some.install(bytes(2..4), &[]);
        for (from, known) in [(1, 1), (2, 4), (3, 4), (4, 4)] {
            assert_eq!(some.known_to(from * CHUNK_BYTES, u64::MAX), known * CHUNK_BYTES, "{from}");
            assert_eq!(some.knows(from), known > from, "{from}");
        }
        assert_eq!(some.known_to(2 * CHUNK_BYTES + 5, 3 * CHUNK_BYTES), 3 * CHUNK_BYTES);
    }
}
