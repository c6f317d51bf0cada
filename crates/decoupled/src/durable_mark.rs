//! Records beside a client's journal how far the journal was durable. A journal that was cut off
//! later looks like one whose last commit a crash tore; only this record distinguishes them.
//!
//! ```text
//!   file `durable`:  0      sequence u64, position u64, the complements of both        the two slots are written in turn
//!                    4096   the same
//! ```
//!
//! Invariants:
//! - The mark is written after the journal was synced and before the commit is acknowledged. So the journal of a healthy
//!   disk never ends before its mark, and a mark is never older than the last acknowledged event, also after a power cut.
//! - A write that a power cut tears leaves the other slot.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use chiton_journal::{Frame, JournalError, Place, PlaceError, ReplayError, replay};
use chiton_runtime::sync::Mutex;
use chiton_types::Position;

/// The file in the directory of a decoupling.
const MARK: &str = "durable";
/// Bytes of a slot's content.
const SLOT_BYTES: usize = 32;
/// Where each slot begins: in blocks of their own.
const SLOTS: [usize; 2] = [0, 4096];

/// Storage of the mark's two slots.
pub(crate) trait Slots: Send + Sync {
    /// Writes these bytes at this offset; they are durable on return.
    ///
    /// # Errors
    /// That of the system.
    fn write(&self, offset: usize, bytes: &[u8]) -> io::Result<()>;
}

impl Slots for File {
    fn write(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset as u64)
    }
}

/// The record of how far a journal is durable.
pub(crate) struct DurableMark {
    slots: Box<dyn Slots>,
    /// Sequence number of the slot that was written last.
    sequence: Mutex<u64>,
}

impl DurableMark {
    /// Opens the mark in the folder of a decoupling. A new mark holds no position.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn open(dir: &Path) -> io::Result<DurableMark> {
        let path = dir.join(MARK);
        let newest = fs::read(&path).map_or(None, |bytes| newest(&bytes));
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        // Each write is durable when it returns.
        let file = options.custom_flags(rustix::fs::OFlags::DSYNC.bits().cast_signed()).open(&path)?;
        let mark = DurableMark {
            slots: Box::new(file),
            sequence: Mutex::new(newest.map_or(0, |(sequence, _)| sequence)),
        };
        if newest.is_none() {
            // Both have their blocks from here on, and the file its name.
            mark.slots.write(0, &[0; SLOTS[1] + SLOT_BYTES])?;
            File::open(dir)?.sync_all()?;
        }
        Ok(mark)
    }

    /// The position in the mark of a directory, if it has one.
    pub(crate) fn read(dir: &Path) -> Option<Position> {
        newest(&fs::read(dir.join(MARK)).ok()?).map(|(_, position)| position)
    }

    /// Records, durably, that everything up to `durable` is on the disk.
    ///
    /// # Errors
    /// That of the system. The mark then holds this position or the one before.
    pub(crate) fn write(&self, durable: Position) -> Result<(), PlaceError> {
        let mut last = self.sequence.lock();
        let sequence = *last + 1;
        let offset = SLOTS[(sequence % 2) as usize];
        self.slots.write(offset, &slot(sequence, durable)).map_err(|error| {
            let what = format!("cannot record how far the journal is durable (file {MARK:?}): {error}");
            match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => PlaceError::NoSpace(what),
                _ => PlaceError::Failed(what),
            }
        })?;
        *last = sequence;
        Ok(())
    }
}

fn slot(sequence: u64, position: Position) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    for (at, number) in [sequence, position.0, !sequence, !position.0].into_iter().enumerate() {
        bytes[at * 8..][..8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Sequence and position of the slot that was written last. Half a slot is none.
fn newest(bytes: &[u8]) -> Option<(u64, Position)> {
    let read = |offset: &usize| {
        let (numbers, _) = bytes.get(*offset..offset + SLOT_BYTES)?.as_chunks::<8>();
        let number = |at: usize| u64::from_le_bytes(numbers[at]);
        let is_whole = number(2) == !number(0) && number(3) == !number(1);
        is_whole.then(|| (number(0), Position(number(1))))
    };
    SLOTS.iter().filter_map(read).max()
}

/// Where a journal ends that should reach up to `expected`; only segments from there on are read.
///
/// # Errors
/// The journal is damaged.
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
    use std::sync::Arc;

    use chiton_journal::{Identity, Journal, MemoryPlace, Options, Shape};
    use chiton_types::frame::{FrameHeader, encode_frame};
    use chiton_types::{Epoch, Seq, SessionId, ShardId};

    use super::*;

    #[test]
    fn a_mark_is_read_back_and_a_damaged_one_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(DurableMark::read(dir.path()), None);
        let mark = DurableMark::open(dir.path()).expect("a mark");
        assert_eq!(DurableMark::read(dir.path()), None);
        // Not the largest counts, but the last: a truncation that was accepted begins at a smaller one.
        for position in [7, u64::MAX, 0, 5] {
            mark.write(Position(position)).expect("written");
            assert_eq!(DurableMark::read(dir.path()), Some(Position(position)));
        }
        drop(mark);
        let mark = DurableMark::open(dir.path()).expect("opened again");
        assert_eq!(DurableMark::read(dir.path()), Some(Position(5)));
        mark.write(Position(3)).expect("written");
        assert_eq!(DurableMark::read(dir.path()), Some(Position(3)));
        fs::write(dir.path().join(MARK), [0; 4128]).expect("damaged");
        assert_eq!(DurableMark::read(dir.path()), None);
        fs::write(dir.path().join(MARK), [1; 9]).expect("cut off");
        assert_eq!(DurableMark::read(dir.path()), None);
    }

    #[test]
    fn writes_of_the_file_are_durable_when_they_return() {
        let dir = tempfile::tempdir().expect("a directory");
        let _mark = DurableMark::open(dir.path()).expect("a mark");
        let path = dir.path().join(MARK);
        let flags = fs::read_dir("/proc/self/fd").expect("listed").flatten().find_map(|entry| {
            (fs::read_link(entry.path()).ok()? == path).then(|| {
                let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
                let info = fs::read_to_string(info).expect("it is open");
                let line = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
                u32::from_str_radix(line.trim(), 8).expect("octal")
            })
        });
        let dsync = rustix::fs::OFlags::DSYNC.bits();
        assert_eq!(flags.expect("it is open") & dsync, dsync);
    }

    /// A disk that loses its power in the midst of one write, of which `kept` bytes arrive.
    struct Disk {
        bytes: Mutex<Vec<u8>>,
        writes_left: Mutex<u32>,
        kept: usize,
    }

    impl Slots for Arc<Disk> {
        fn write(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
            let mut left = self.writes_left.lock();
            let count = if *left == 0 { self.kept } else { bytes.len() };
            self.bytes.lock()[offset..offset + count].copy_from_slice(&bytes[..count]);
            match left.checked_sub(1) {
                Some(rest) => *left = rest,
                None => return Err(io::Error::other("no power")),
            }
            Ok(())
        }
    }

    #[test]
    fn a_power_cut_leaves_the_mark_between_acknowledged_and_written() {
        const COMMITS: u64 = 5;
        for cut_at in 0..=COMMITS as u32 {
            for kept in [0, 7, 16, 31, SLOT_BYTES] {
                let bytes = Mutex::new(vec![0; SLOTS[1] + SLOT_BYTES]);
                let disk = Arc::new(Disk { bytes, writes_left: Mutex::new(cut_at), kept });
                let mark = DurableMark { slots: Box::new(disk.clone()), sequence: Mutex::new(0) };
                let place = Arc::new(MemoryPlace::new(Shape::Grows));
                let identity = Identity { journal: 1, nonce: 2, epoch: Epoch(1) };
                let journal = Journal::create(place.clone(), identity, Options::default()).expect("made");
                journal.witness_durable(Box::new(move |durable| mark.write(durable)));
                let mut acknowledged = Position(0);
                for _ in 0..COMMITS {
                    let (shard, session, seq) = (ShardId(1), SessionId(2), Seq(3));
                    let mut frame = Vec::new();
                    encode_frame(&mut frame, &FrameHeader { event_count: 1, shard, session, seq }, b"event");
                    let Ok(last) = journal.append(&frame, 1) else { break };
                    if journal.wait_durable(last).is_err() {
                        break;
                    }
                    acknowledged = last;
                }
                // Nothing that was not synced is left of the journal.
                let left = place.crash(&mut |_, _| 0);
                let said = newest(&disk.bytes.lock()).map_or(Position(0), |(_, position)| position);
                let end = end_of(&left, Position(0), said).expect("whole");
                let at = format!("cut at write {cut_at} after {kept} bytes");
                assert!(acknowledged <= said && said <= end, "{at}: {acknowledged} {said} {end}");
                assert_eq!(acknowledged.0, u64::from(cut_at).min(COMMITS), "{at}");
            }
        }
    }
}
