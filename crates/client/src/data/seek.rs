//! SEEK_DATA and SEEK_HOLE: exact to the extent, dirty data included.

use chiton_model::CHUNK_BYTES;
use chiton_types::Refusal;

use super::content::Content;
use super::files::{Files, OpenFile};
use super::read::Source;

/// The kind of range to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The next byte that is data (SEEK_DATA).
    Data,
    /// The next byte in a hole; the end of the file counts as one (SEEK_HOLE).
    Hole,
}

impl Files {
    /// The first byte at or after `offset` that is data, or in a hole.
    ///
    /// # Errors
    /// [`Refusal::NoData`] at or past the end of the file, or if there is no data any more; those of a read.
    pub fn seek(&self, fh: u64, offset: u64, whence: Whence) -> Result<u64, Refusal> {
        let open = self.handle(fh)?;
        self.seek_open(&open, offset, whence)
    }

    pub(super) fn seek_open(&self, open: &OpenFile, offset: u64, whence: Whence) -> Result<u64, Refusal> {
        let mut at = offset;
        // The window grows: a seek that ends soon asks for little, and one over a large hole takes few steps.
        let mut window = CHUNK_BYTES;
        loop {
            let to = at.saturating_add(window);
            let (mut inner, keep) = self.with_content(&open.file, &open.cred, at..to, false)?;
            let size = inner.size;
            if at >= size {
                return if whence == Whence::Hole && offset < size { Ok(size) } else { Err(Refusal::NoData) };
            }
            let known = inner.content.known_to(at, to.min(size));
            let mut found: Option<u64> = None;
            inner.pieces(at..known, &mut |range, source| {
                if matches!(source, Source::Hole) == (whence == Whence::Hole) {
                    found = Some(found.map_or(range.start, |found| found.min(range.start)));
                }
            });
            if !keep {
                inner.content = Content::Unknown;
            }
            if let Some(found) = found {
                return Ok(found);
            }
            if known == size {
                return if whence == Whence::Hole { Ok(size) } else { Err(Refusal::NoData) };
            }
            at = known;
            window = window.saturating_mul(2);
        }
    }
}
