//! The number of the last acknowledged commit, in a separate file.
//!
//! ```text
//!   two slots of 4096 bytes, written in turn: number u64 LE ‖ its complement u64 LE
//! ```
//!
//! Invariants: the larger of the readable slots counts; a torn write spoils only the slot that was older.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::fault::sort_error;
use crate::StoreError;

const SLOT_BYTES: u64 = 4096;

/// Whether the store in directory `path` may have acknowledged a commit, by its file. Creates nothing.
pub(super) fn has_commits(path: &Path) -> io::Result<bool> {
    let file = match File::open(path.join("acked")) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    Ok(match last(&file) {
        Some(last) => last > 0,
        None => file.metadata()?.len() > 0,
    })
}

/// The larger of the readable slots.
fn last(file: &File) -> Option<u64> {
    let read = |number: u64| {
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, number * SLOT_BYTES).ok().and_then(|()| slot(&bytes))
    };
    read(0).max(read(1))
}

pub(super) struct Acked {
    path: PathBuf,
    file: File,
    last: u64,
}

impl Acked {
    /// Opens the file in the store's directory `path`. It is made anew if it is not there, or (a crash in the midst
    /// of making it) unreadable in a store without `commits`.
    pub(super) fn open(path: &Path, commits: bool) -> Result<Acked, StoreError> {
        Acked::read_or_make(path, commits).map_err(|e| sort_error(path, e.into()))
    }

    fn read_or_make(path: &Path, commits: bool) -> io::Result<Acked> {
        let name = path.join("acked");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&name)?;
        let last = match last(&file) {
            Some(last) => last,
            None if commits && file.metadata()?.len() > 0 => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "no slot of \"acked\" is readable"));
            }
            None => 0,
        };
        let mut acked = Acked { path: path.to_owned(), file, last };
        if last == 0 {
            acked.write(0)?;
            File::open(path)?.sync_all()?;
        }
        Ok(acked)
    }

    fn write(&mut self, number: u64) -> io::Result<()> {
        let bytes = [number.to_le_bytes(), (!number).to_le_bytes()].concat();
        self.file.write_all_at(&bytes, number % 2 * SLOT_BYTES)?;
        self.file.sync_data()
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Sets the number durably.
    pub(super) fn set(&mut self, number: u64) -> Result<(), StoreError> {
        self.write(number).map_err(|e| sort_error(&self.path, e.into()))?;
        self.last = number;
        Ok(())
    }
}

fn slot(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    let complement = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
    (number == !complement).then_some(number)
}
