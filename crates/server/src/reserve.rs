//! Space on the disk of a data directory that is kept for the way out of a full disk.
//!
//! ```text
//!   DIR/reserve    a file of allocated blocks, at most `wanted` bytes long
//!
//!   room ──▶ taken whole        creations and writes are refused before it is touched
//!   full ──▶ released in steps  the journal's commits and checkpoints of removals, and starts, live on it
//!   room again ──▶ taken again, then creations are allowed again
//! ```
//!
//! Invariants:
//! - Its blocks are real: another program that fills the disk cannot take them.
//! - It is released in small steps, each when something that must be written has no space, so that others who fill the disk
//!   at the same time get little of it.
//! - Its last part ([`start_bytes`]) is released for a start only.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use chiton_journal::{Place, PlaceError, SegmentInfo, Shape};
use chiton_runtime::sync::Mutex;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::address::DataAddress;

/// The name of its file in the data directory.
pub(crate) const RESERVE_FILE: &str = "reserve";
/// Taken and released in steps of this many bytes.
const STEP_BYTES: u64 = 256 << 10;
/// Kept for a start while the server runs, at least.
const START_BYTES_MIN: u64 = 1 << 20;
/// The reserve of a large disk: a segment of the journal, and a checkpoint at the largest backlog.
const BYTES_MAX: u64 = 180 << 20;
const BYTES_MIN: u64 = 16 << 20;
/// Beside the reserve, so much free space is wanted before anything is created.
const MARGIN_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    wanted: u64,
    /// Bytes of `wanted` that are kept for the next start.
    for_start: u64,
    file: Mutex<Option<File>>,
    held: AtomicU64,
    /// Something had no space since this was last asked.
    pressed: AtomicBool,
    /// Why it cannot be taken, where that is not a lack of space.
    refused: Mutex<Option<String>>,
}

/// How full a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Size of the file system.
    pub(crate) total: u64,
    /// Bytes that programs may still allocate there.
    pub(crate) free: u64,
}

/// How full the disk is that `path` lies on.
pub(crate) fn room(path: &Path) -> Option<Room> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Some(Room { total: bytes(stat.f_blocks), free: bytes(stat.f_bavail) })
}

/// The reserve on a disk of this size, if nobody has chosen one.
fn default_bytes(total: u64) -> u64 {
    (total / 64).clamp(BYTES_MIN, BYTES_MAX).min(total / 4) / STEP_BYTES * STEP_BYTES
}

/// Kept of a reserve for a start; a start, or a tool, wants as much free.
fn start_bytes(reserved: u64) -> u64 {
    (reserved / 8).max(START_BYTES_MIN)
}

/// Rows that the metadata store may hold in its own journal and in memory, on a disk of this size: on a full disk the reserve has
/// to hold them once more, as tables.
pub(crate) fn unsettled_bytes(total: u64) -> usize {
    (total / 64).clamp(512 << 10, 8 << 20) as usize
}

/// A table of the metadata store on a disk of this size: the reserve has to hold one step of its compaction.
pub(crate) fn table_bytes(total: u64) -> u64 {
    (default_bytes(total) / 8).max(512 << 10)
}

/// A segment of the journal where so much is reserved: a trim gives back whole segments only.
pub(crate) fn segment_bytes(reserved: u64, wanted: usize) -> usize {
    match usize::try_from(reserved / 16) {
        Ok(0) | Err(_) => wanted,
        Ok(bytes) => wanted.min(bytes.max(256 << 10)),
    }
}

/// Makes room for a start, or for a tool that opens the stores, from the space that a server has reserved. If it cannot,
/// the caller runs out of space, and says so.
pub(crate) fn ease(dir: &Path) {
    let Some(Room { free, total }) = room(dir) else { return };
    let wanted = start_bytes(default_bytes(total));
    if free >= wanted {
        return;
    }
    let Ok(file) = OpenOptions::new().write(true).open(dir.join(RESERVE_FILE)) else { return };
    let Ok(held) = file.metadata().map(|meta| meta.len()) else { return };
    let _ = shrink(&file, held.saturating_sub(wanted - free));
}

/// Makes room on a full disk for a tool that opens the stores of a file system that nobody serves.
pub fn make_room_for_tools(data: &DataAddress) {
    if let Some(dir) = data.dir() {
        ease(dir);
    }
}

/// The blocks are free when this returns: a file system may keep them until its journal is written.
fn shrink(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    file.sync_all()
}

impl Reserve {
    /// The reserve in the data directory `dir`, as it was left. `wanted`: how large it is to be; none: a size that fits the disk.
    pub(crate) fn open(dir: &Path, wanted: Option<u64>) -> Reserve {
        let wanted = wanted.or_else(|| Some(default_bytes(room(dir)?.total))).unwrap_or(0);
        let path = dir.join(RESERVE_FILE);
        let file = OpenOptions::new().write(true).open(&path).ok();
        let held = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        Reserve {
            path,
            wanted,
            for_start: start_bytes(wanted).min(wanted),
            file: Mutex::new(file),
            held: AtomicU64::new(held),
            pressed: AtomicBool::new(false),
            refused: Mutex::default(),
        }
    }

    /// Bytes that it holds.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Bytes that it is to hold.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Bytes of them that a server which runs may release.
    pub(crate) fn usable(&self) -> u64 {
        self.wanted - self.for_start
    }

    /// Why it holds less although there is space.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.lock().clone()
    }

    /// Free space that is wanted beside it before anything is created.
    pub(crate) fn margin(&self) -> u64 {
        (self.wanted / 4).min(MARGIN_BYTES_MAX)
    }

    /// How full the disk is.
    pub(crate) fn room(&self) -> Option<Room> {
        room(self.path.parent().unwrap_or(Path::new(".")))
    }

    /// Whether something had no space since this was last asked.
    pub(crate) fn was_pressed(&self) -> bool {
        self.pressed.swap(false, Relaxed)
    }

    /// Something that must be written had no space.
    pub(crate) fn press(&self) {
        self.pressed.store(true, Relaxed);
    }

    /// Whether it is whole, or can never be for a reason that is not a lack of space.
    pub(crate) fn is_whole(&self) -> bool {
        self.held() >= self.wanted || self.refused.lock().is_some()
    }

    /// Gives back about so many bytes, as far as it has them; returns how many.
    pub(crate) fn release(&self, bytes: u64) -> u64 {
        self.press();
        let file = self.file.lock();
        let Some(file) = &*file else { return 0 };
        let held = self.held();
        let left = held.saturating_sub(bytes.max(STEP_BYTES)).max(self.for_start.min(held));
        if left == held || shrink(file, left).is_err() {
            return 0;
        }
        self.held.store(left, Relaxed);
        held - left
    }

    /// Gives back as much as is missing to `bytes` of free space, for the next writes.
    pub(crate) fn make_room(&self, bytes: u64) {
        if let Some(Room { free, .. }) = self.room().filter(|room| room.free < bytes) {
            self.release(bytes - free);
        }
    }

    /// Takes what is missing, as far as there is space beside the margin; true if it is whole then.
    pub(crate) fn take(&self) -> bool {
        let mut file = self.file.lock();
        if self.held() > self.wanted
            && let Some(file) = &*file
            && shrink(file, self.wanted).is_ok()
        {
            self.held.store(self.wanted, Relaxed);
        }
        while self.held() < self.wanted {
            let step = STEP_BYTES.max((self.wanted - self.held()) / 8).min(self.wanted - self.held());
            if self.room().is_none_or(|room| room.free < step + self.margin()) {
                return false;
            }
            if let Err(error) = self.grow(&mut file, step) {
                if !matches!(error, Errno::NOSPC | Errno::DQUOT) {
                    *self.refused.lock() = Some(format!("{}: {error}", self.path.display()));
                }
                return self.is_whole();
            }
        }
        true
    }

    fn grow(&self, file: &mut Option<File>, bytes: u64) -> Result<(), Errno> {
        let io = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        if file.is_none() {
            let new = OpenOptions::new().write(true).create(true).truncate(false).open(&self.path);
            *file = Some(new.map_err(io)?);
        }
        let file = file.as_ref().expect("just opened");
        let held = self.held();
        let grown = rustix::fs::fallocate(file, FallocateFlags::empty(), held, bytes)
            .and_then(|()| file.sync_all().map_err(io));
        if let Err(error) = grown {
            // Of what was allocated before it failed nothing is counted.
            let _ = file.set_len(held);
            return Err(error);
        }
        self.held.store(held + bytes, Relaxed);
        Ok(())
    }
}

/// A journal's place whose writes live on the reserve where the disk has no space.
pub(crate) struct ReservedPlace {
    pub(crate) place: Arc<dyn Place>,
    pub(crate) reserve: Arc<Reserve>,
}

impl ReservedPlace {
    fn write(
        &self,
        bytes: usize,
        write: impl Fn(&dyn Place) -> Result<(), PlaceError>,
    ) -> Result<(), PlaceError> {
        loop {
            match write(&*self.place) {
                // A segment may need as much again for the file system's own blocks.
                Err(PlaceError::NoSpace(_)) if self.reserve.release(2 * bytes as u64) > 0 => {}
                result => return result,
            }
        }
    }
}

impl Place for ReservedPlace {
    fn shape(&self) -> Shape {
        self.place.shape()
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        self.place.list()
    }

    fn holds(&self, number: u64) -> Result<bool, PlaceError> {
        self.place.holds(number)
    }

    fn read_each(&self, segments: &[SegmentInfo], bytes_max: u64) -> Vec<Result<Vec<u8>, PlaceError>> {
        self.place.read_each(segments, bytes_max)
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.place.read(number, bytes_max)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.write(bytes.len(), |place| place.create(number, bytes))
    }

    fn publish(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.write(bytes.len(), |place| place.publish(number, bytes))
    }

    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.write(bytes.len(), |place| place.append(number, offset, bytes))
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        // The next sync does not write the pages that a failed sync dropped: the journal writes them again.
        self.place.sync(number).inspect_err(|error| {
            if matches!(error, PlaceError::NoSpace(_)) {
                self.reserve.release(0);
            }
        })
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.place.remove(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_fits_the_disk() {
        let check = |total: u64, expect: u64| assert_eq!(default_bytes(total), expect, "{total}");
        check(0, 0);
        check(16 << 20, 4 << 20);
        check(64 << 20, 16 << 20);
        check(1 << 30, 16 << 20);
        check(1 << 40, 180 << 20);
    }

    #[test]
    fn its_blocks_are_real_and_it_is_released_down_to_what_a_start_needs() {
        let tmp = tempfile::tempdir().expect("a directory");
        let reserve = Reserve::open(tmp.path(), Some(4 << 20));
        assert_eq!((reserve.held(), reserve.is_whole()), (0, false));
        assert!(reserve.take() && reserve.is_whole());
        let blocks = || {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(tmp.path().join(RESERVE_FILE)).expect("it is there").blocks() * 512
        };
        assert!(blocks() >= 4 << 20, "{}", blocks());
        assert!(!reserve.was_pressed());
        assert_eq!(reserve.release(1), STEP_BYTES);
        assert!(reserve.was_pressed() && !reserve.was_pressed());
        assert_eq!(reserve.release(100 << 20), (3 << 20) - STEP_BYTES);
        assert_eq!((reserve.release(1), reserve.held()), (0, START_BYTES_MIN));
        assert!(blocks() < 2 << 20, "{}", blocks());
        // The next start finds it as it was left, and one that wants less lets go.
        let reserve = Reserve::open(tmp.path(), Some(START_BYTES_MIN / 2));
        assert_eq!(reserve.held(), START_BYTES_MIN);
        assert!(reserve.take());
        assert_eq!(reserve.held(), START_BYTES_MIN / 2);
    }
}
