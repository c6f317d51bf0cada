//! The content of a file as the server answered it.
//!
//! Invariants:
//! - Bytes outside the known chunks are unknown. In a known chunk, bytes without a block are a hole.

use std::collections::BTreeSet;
use std::ops::Range;

use chiton_model::{CHUNK_BYTES, Extent};

use chiton_wire::Content as Stored;

use super::extent_map::ExtentMap;

/// Extents that are remembered of one file: past it, the map is forgotten and asked for again.
const EXTENTS_MAX: usize = 1 << 20;
/// Chunks that are taken from one answer.
const CHUNKS_MAX: usize = 1 << 16;

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
    /// Numbers of the chunks that are known.
    known: BTreeSet<u64>,
    /// Every chunk is known, also those past the end.
    all: bool,
}

impl Chunks {
    /// The map of a file that has no blocks yet.
    pub(super) fn empty() -> Chunks {
        Chunks { all: true, ..Chunks::default() }
    }

    fn knows(&self, chunk: u64) -> bool {
        self.all || self.known.contains(&chunk)
    }

    /// How far the map is known from `offset` on, at most to `end`.
    pub(super) fn known_to(&self, offset: u64, end: u64) -> u64 {
        if self.all {
            return end;
        }
        let mut chunk = offset / CHUNK_BYTES;
        while chunk * CHUNK_BYTES < end && self.known.contains(&chunk) {
            chunk += 1;
        }
        (chunk * CHUNK_BYTES).clamp(offset, end)
    }

    /// Takes in the map of whole chunks from the server.
    pub(super) fn install(&mut self, covered: Range<u64>, extents: &[Extent]) {
        if self.extents.len() + extents.len() > EXTENTS_MAX {
            *self = Chunks::default();
        }
        self.extents.cut(covered.clone());
        for e in extents
            .iter()
            .filter(|e| e.offset >= covered.start && e.end() <= covered.end && !e.block.is_hole())
        {
            self.extents.insert(*e);
        }
        self.known.extend((covered.start / CHUNK_BYTES..covered.end / CHUNK_BYTES).take(CHUNKS_MAX));
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
