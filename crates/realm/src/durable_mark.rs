//! How far a client's journal was durable, beside the journal: a journal whose end was cut off later looks like one whose
//! last commit a crash tore, and only this tells the two apart.
//!
//! Invariants:
//! - The mark is written after the journal was synced and before the sync is answered. So the journal of a healthy disk
//!   never ends before its mark.
//! - The mark is not synced: after a power cut it may name an older position, never a newer one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use chiton_journal::{Frame, JournalError, Place, ReplayError, replay};
use chiton_types::Position;

/// The file in the directory of a decoupling.
const MARK: &str = "durable";

/// See the module.
pub(crate) struct DurableMark(File);

impl DurableMark {
    /// Opens the mark of a decoupling's directory; a new one says nothing.
    pub(crate) fn open(dir: &Path) -> io::Result<DurableMark> {
        let path = dir.join(MARK);
        Ok(DurableMark(OpenOptions::new().create(true).truncate(false).write(true).open(path)?))
    }

    /// What the mark of a directory says, if it has one. Half a mark is none.
    pub(crate) fn read(dir: &Path) -> Option<Position> {
        let bytes = fs::read(dir.join(MARK)).ok()?;
        let [position, check] = *bytes.as_chunks::<8>().0 else { return None };
        let position = u64::from_le_bytes(position);
        (u64::from_le_bytes(check) == !position).then_some(Position(position))
    }

    /// Everything up to `durable` is on the disk.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write(&self, durable: Position) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&durable.0.to_le_bytes());
        bytes[8..].copy_from_slice(&(!durable.0).to_le_bytes());
        self.0.write_all_at(&bytes, 0)
    }
}

/// Where a journal ends that should reach up to `expected`; only segments from there on are read.
///
/// # Errors
/// The journal's: it is damaged.
pub(crate) fn end_of(
    place: &dyn Place,
    merged: Position,
    expected: Position,
) -> Result<Position, JournalError> {
    let after = merged.max(Position(expected.0.saturating_sub(1)));
    let mut pass = |_: &Frame<'_>| Ok::<(), std::convert::Infallible>(());
    match replay(place, after, &mut pass, &mut |_| {}) {
        Ok(replayed) => Ok(replayed.last),
        Err(ReplayError::Journal(JournalError::Absent)) => Ok(Position(0)),
        Err(ReplayError::Journal(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_a_damaged_one_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(DurableMark::read(dir.path()), None);
        let mark = DurableMark::open(dir.path()).expect("a mark");
        assert_eq!(DurableMark::read(dir.path()), None);
        for position in [7, u64::MAX, 0] {
            mark.write(Position(position)).expect("written");
            assert_eq!(DurableMark::read(dir.path()), Some(Position(position)));
        }
        fs::write(dir.path().join(MARK), [0; 16]).expect("damaged");
        assert_eq!(DurableMark::read(dir.path()), None);
        fs::write(dir.path().join(MARK), [1; 9]).expect("cut off");
        assert_eq!(DurableMark::read(dir.path()), None);
    }
}
