//! The three stores of a server on one simulated disk that keeps a log of every write, so that the disk can be shown as
//! it would be after a crash at any of them.
//!
//! Invariants:
//! - A crash leaves what the stores' traits promise, and of what they do not promise any part: see [`Crash`].
//! - The log is the order in which writes returned. A commit of rows is one write: there whole or not at all.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Bound, Range};
use std::sync::Arc;

use chiton_journal::{Place, PlaceError, SegmentInfo, Shape};
use chiton_metastore::{Batch, Metastore, Row, StoreError, StoreStats};
use chiton_objects::{ObjectError, ObjectInfo, Objects};
use chiton_server::Stores;
use parking_lot::Mutex;

/// One write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Create {
        segment: u64,
        bytes: Arc<[u8]>,
    },
    Append {
        segment: u64,
        offset: usize,
        bytes: Arc<[u8]>,
    },
    SyncSegment {
        segment: u64,
    },
    Remove {
        segment: u64,
    },
    Put {
        key: String,
        bytes: Arc<[u8]>,
    },
    /// A put-if-absent that won.
    PutNew {
        key: String,
        bytes: Arc<[u8]>,
    },
    Delete {
        key: String,
    },
    SyncObjects,
    Commit(Arc<Batch>),
}

impl Write {
    /// In words, for reports.
    pub(crate) fn shown(&self) -> String {
        match self {
            Write::Create { segment, bytes } => format!("create segment {segment} ({} bytes)", bytes.len()),
            Write::Append { segment, offset, bytes } => {
                format!("append {} bytes at {offset} of segment {segment}", bytes.len())
            }
            Write::SyncSegment { segment } => format!("sync segment {segment}"),
            Write::Remove { segment } => format!("remove segment {segment}"),
            Write::Put { key, bytes } => format!("put {key} ({} bytes)", bytes.len()),
            Write::PutNew { key, .. } => format!("put-if-absent {key}"),
            Write::Delete { key } => format!("delete {key}"),
            Write::SyncObjects => "sync objects".to_owned(),
            Write::Commit(batch) => format!("commit {} rows", batch.rows.len()),
        }
    }
}

/// What a crash leaves of that which no store has promised yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// Everything.
    Kept,
    /// Nothing.
    Forgotten,
    /// Of the journal so many bytes, of the rest everything.
    Torn(usize),
    /// All bytes of the journal, but the first half of them are zeros: pages were written out of order.
    Zeroed,
    /// The journal, and no object.
    ObjectsForgotten,
    /// All objects but this one.
    ObjectForgotten(usize),
    /// The objects, and nothing of the journal.
    JournalForgotten,
    /// Everything, and segments that were removed are there again.
    Reappeared,
}

/// A rule that the disk breaks: to see that the oracle notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Syncs of segments do nothing.
    SegmentsNotSynced,
    /// Syncs of objects do nothing.
    ObjectsNotSynced,
    /// Of a commit of rows the second half is missing.
    HalfCommits,
    /// Commits of rows are forgotten.
    CommitsForgotten,
    /// A byte of each object is another one after a crash.
    RottenObjects,
}

impl Canary {
    /// All, with the names by which they are asked for.
    pub const ALL: [(&str, Canary); 5] = [
        ("segments-not-synced", Canary::SegmentsNotSynced),
        ("objects-not-synced", Canary::ObjectsNotSynced),
        ("half-commits", Canary::HalfCommits),
        ("commits-forgotten", Canary::CommitsForgotten),
        ("rotten-objects", Canary::RottenObjects),
    ];
}

#[derive(Clone, Debug)]
struct Segment {
    bytes: Arc<Vec<u8>>,
    /// Bytes that are durable; `None`: the segment may not be there at all.
    synced: Option<usize>,
}

/// What is on the disk, and what of it is durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// Segments are objects, put whole.
    whole: bool,
    segments: BTreeMap<u64, Segment>,
    removed: BTreeMap<u64, Segment>,
    objects: BTreeMap<String, Arc<[u8]>>,
    /// Keys that were changed since the last sync, and what they were before.
    unsynced: BTreeMap<String, Option<Arc<[u8]>>>,
    rows: Arc<BTreeMap<Vec<u8>, Vec<u8>>>,
    commits: u64,
    canary: Option<Canary>,
}

impl Disk {
    /// An empty one, whose journal is made of files that grow, or of objects.
    pub(crate) fn new(shape: Shape) -> Disk {
        Disk { whole: shape == Shape::Whole, ..Disk::default() }
    }

    /// The same disk, but from now on it breaks a rule.
    pub(crate) fn with_canary(mut self, canary: Option<Canary>) -> Disk {
        self.canary = canary;
        self
    }

    /// Carries a write out.
    pub(crate) fn apply(&mut self, write: &Write) {
        match (self.canary, write) {
            (Some(Canary::SegmentsNotSynced), Write::SyncSegment { .. })
            | (Some(Canary::ObjectsNotSynced), Write::SyncObjects)
            | (Some(Canary::CommitsForgotten), Write::Commit(_)) => {}
            (Some(Canary::HalfCommits), Write::Commit(batch)) => {
                let half = batch.rows[..batch.rows.len() / 2].to_vec();
                self.carry_out(&Write::Commit(Arc::new(Batch { rows: half })));
            }
            (Some(Canary::RottenObjects), Write::Put { key, bytes }) => {
                let rotten = bytes.iter().enumerate().map(|(n, byte)| byte ^ u8::from(n == 7)).collect();
                self.carry_out(&Write::Put { key: key.clone(), bytes: rotten });
            }
            _ => self.carry_out(write),
        }
    }

    fn carry_out(&mut self, write: &Write) {
        match write {
            Write::Create { segment, bytes } => {
                let synced = self.whole.then_some(bytes.len());
                let made = Segment { bytes: Arc::new(bytes.to_vec()), synced };
                self.segments.insert(*segment, made);
                self.removed.remove(segment);
            }
            Write::Append { segment, offset, bytes } => {
                let segment = self.segments.get_mut(segment).expect("appended to what is there");
                let content = Arc::make_mut(&mut segment.bytes);
                content.truncate(*offset);
                content.extend_from_slice(bytes);
            }
            Write::SyncSegment { segment } => {
                let segment = self.segments.get_mut(segment).expect("synced what is there");
                segment.synced = Some(segment.bytes.len());
            }
            Write::Remove { segment } => {
                if let Some(gone) = self.segments.remove(segment) {
                    self.removed.insert(*segment, gone);
                }
            }
            Write::Put { key, bytes } => {
                let before = self.objects.insert(key.clone(), bytes.clone());
                self.unsynced.entry(key.clone()).or_insert(before);
            }
            Write::PutNew { key, bytes } => {
                self.objects.insert(key.clone(), bytes.clone());
                self.unsynced.remove(key);
            }
            Write::Delete { key } => {
                if let Some(before) = self.objects.remove(key) {
                    self.unsynced.entry(key.clone()).or_insert(Some(before));
                }
            }
            Write::SyncObjects => self.unsynced.clear(),
            Write::Commit(batch) => {
                let rows = Arc::make_mut(&mut self.rows);
                for (key, value) in &batch.rows {
                    match value {
                        Some(value) => drop(rows.insert(key.clone(), value.clone())),
                        None => drop(rows.remove(key)),
                    }
                }
                self.commits += 1;
            }
        }
    }

    /// The ways in which a crash now can end.
    pub(crate) fn crashes(&self) -> Vec<Crash> {
        let mut crashes = vec![Crash::Kept];
        let torn = self.segments.values().map(|s| s.bytes.len() - s.synced.unwrap_or(0)).max().unwrap_or(0);
        if torn > 0 || !self.unsynced.is_empty() {
            crashes.push(Crash::Forgotten);
        }
        if torn > 0 {
            crashes.push(Crash::Zeroed);
            crashes.extend(self.cuts().into_iter().map(Crash::Torn));
        }
        if !self.unsynced.is_empty() && torn > 0 {
            crashes.extend([Crash::ObjectsForgotten, Crash::JournalForgotten]);
        }
        if self.unsynced.len() > 1 {
            crashes.extend((0..self.unsynced.len()).map(Crash::ObjectForgotten));
        }
        if !self.removed.is_empty() {
            crashes.push(Crash::Reappeared);
        }
        crashes
    }

    /// Where the bytes of the journal that are not durable may be cut: after each frame, and within frames.
    fn cuts(&self) -> Vec<usize> {
        let Some(segment) = self.segments.values().find(|s| s.synced != Some(s.bytes.len())) else {
            return Vec::new();
        };
        let tail = &segment.bytes[segment.synced.unwrap_or(0)..];
        let mut cuts = vec![1, tail.len() / 2, tail.len() - 1];
        // A frame begins with its length, in front of 4 bytes of checksum. (A mark looks like a frame of no length: its
        // end is found by the next length that fits. Any cut is a good cut.)
        let mut at = 0;
        while let Some(length) = tail.get(at..at + 4) {
            let length = u32::from_le_bytes(length.try_into().expect("4 bytes")) as usize;
            at += if length == 0 { 4 } else { 8 + length };
            if length > 0 && at < tail.len() {
                cuts.push(at);
            }
        }
        cuts.retain(|cut| (1..tail.len()).contains(cut));
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// The disk after a crash: everything on it is durable.
    pub(crate) fn after(&self, crash: Crash) -> Disk {
        let mut disk = self.clone();
        let journal = match crash {
            Crash::Kept | Crash::ObjectsForgotten | Crash::ObjectForgotten(_) | Crash::Reappeared => {
                usize::MAX
            }
            Crash::Zeroed => usize::MAX,
            Crash::Forgotten | Crash::JournalForgotten => 0,
            Crash::Torn(bytes) => bytes,
        };
        disk.segments.retain(|_, segment| {
            let synced = segment.synced.unwrap_or(0);
            let kept = synced.saturating_add(journal).min(segment.bytes.len());
            if segment.synced.is_none() && kept == 0 {
                return false;
            }
            if kept < segment.bytes.len() {
                Arc::make_mut(&mut segment.bytes).truncate(kept);
            }
            if crash == Crash::Zeroed {
                let half = synced + (kept - synced) / 2;
                Arc::make_mut(&mut segment.bytes)[synced..half].fill(0);
            }
            segment.synced = Some(kept);
            true
        });
        if crash == Crash::Reappeared {
            for (number, segment) in &self.removed {
                let segment = Segment { synced: Some(segment.bytes.len()), ..segment.clone() };
                disk.segments.entry(*number).or_insert(segment);
            }
        }
        let is_forgotten = |n: usize| match crash {
            Crash::Forgotten | Crash::ObjectsForgotten => true,
            Crash::ObjectForgotten(which) => n == which,
            _ => false,
        };
        for (n, (key, before)) in self.unsynced.iter().enumerate() {
            match before {
                _ if !is_forgotten(n) => {}
                Some(before) => drop(disk.objects.insert(key.clone(), before.clone())),
                None => drop(disk.objects.remove(key)),
            }
        }
        disk.unsynced.clear();
        disk.removed.clear();
        disk
    }

    /// Tells disks of one log apart.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (number, segment) in &self.segments {
            (number, segment.bytes.as_slice()).hash(&mut hasher);
        }
        for (key, bytes) in &self.objects {
            (key, bytes.as_ptr()).hash(&mut hasher);
        }
        self.commits.hash(&mut hasher);
        hasher.finish()
    }
}

/// A write, and how much had begun when it was made.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) write: Write,
    pub(crate) begun: usize,
}

#[derive(Debug, Default)]
struct State {
    disk: Disk,
    log: Vec<Logged>,
    begun: usize,
}

/// The disk of a running server.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveDisk(Arc<Mutex<State>>);

impl LiveDisk {
    /// A server's disk that holds this.
    pub(crate) fn new(disk: Disk) -> LiveDisk {
        LiveDisk(Arc::new(Mutex::new(State { disk, ..State::default() })))
    }

    /// From now on writes are noted with this.
    pub(crate) fn set_begun(&self, begun: usize) {
        self.0.lock().begun = begun;
    }

    /// Writes so far.
    pub(crate) fn log_len(&self) -> usize {
        self.0.lock().log.len()
    }

    /// What was written so far.
    pub(crate) fn log(&self) -> Vec<Logged> {
        self.0.lock().log.clone()
    }

    /// What is on it now.
    pub(crate) fn disk(&self) -> Disk {
        self.0.lock().disk.clone()
    }

    /// The stores that a server starts on.
    pub(crate) fn stores(&self) -> Stores {
        let meta: Arc<dyn Metastore> = Arc::new(self.clone());
        Stores {
            objects: Arc::new(self.clone()),
            open_meta: Box::new(move || Ok(meta.clone())),
            place: Arc::new(self.clone()),
            objects_address: String::new(),
        }
    }

    fn write(&self, write: Write) {
        let mut state = self.0.lock();
        state.disk.apply(&write);
        let begun = state.begun;
        state.log.push(Logged { write, begun });
    }

    fn read<T>(&self, f: impl FnOnce(&Disk) -> T) -> T {
        f(&self.0.lock().disk)
    }
}

impl Place for LiveDisk {
    fn shape(&self) -> Shape {
        if self.read(|disk| disk.whole) { Shape::Whole } else { Shape::Grows }
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        let info = |(number, segment): (&u64, &Segment)| SegmentInfo {
            number: *number,
            bytes: segment.bytes.len() as u64,
        };
        Ok(self.read(|disk| disk.segments.iter().map(info).collect()))
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.read(|disk| {
            let bytes = &disk.segments.get(&number).ok_or(PlaceError::Missing)?.bytes;
            Ok(bytes[..bytes.len().min(usize::try_from(bytes_max).unwrap_or(usize::MAX))].to_vec())
        })
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let there = self.read(|disk| Some((disk.whole, disk.segments.get(&number)?.bytes.clone())));
        match there {
            // Of a put whose answer was lost, as the trait has it.
            Some((true, there)) if there.as_slice() == bytes => return Ok(()),
            Some(_) => return Err(PlaceError::Exists),
            None => {}
        }
        self.write(Write::Create { segment: number, bytes: bytes.into() });
        Ok(())
    }

    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let offset = usize::try_from(offset).expect("a small segment");
        let fits = self.read(|disk| disk.segments.get(&number).map(|s| offset <= s.bytes.len()));
        assert!(fits.ok_or(PlaceError::Missing)?, "append past the end of segment {number}");
        self.write(Write::Append { segment: number, offset, bytes: bytes.into() });
        Ok(())
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        if !self.read(|disk| disk.segments.contains_key(&number)) {
            return Err(PlaceError::Missing);
        }
        self.write(Write::SyncSegment { segment: number });
        Ok(())
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.write(Write::Remove { segment: number });
        Ok(())
    }
}

impl Objects for LiveDisk {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        let not_found = || ObjectError::NotFound { key: key.to_owned() };
        let bytes = self.read(|disk| disk.objects.get(key).cloned()).ok_or_else(not_found)?;
        let Some(range) = range else { return Ok(bytes.to_vec()) };
        let part = bytes.get(range.start as usize..range.end as usize);
        part.map(<[u8]>::to_vec).ok_or_else(|| ObjectError::Corrupt {
            key: key.to_owned(),
            cause: format!("bytes {}..{} asked of {}", range.start, range.end, bytes.len()),
        })
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        into.copy_from_slice(&Objects::get(self, key, Some(offset..offset + into.len() as u64))?);
        Ok(())
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        Ok(Objects::get(self, key, None)?.len() as u64)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        self.write(Write::Put { key: key.to_owned(), bytes: bytes.into() });
        Ok(())
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        let is_new = self.read(|disk| !disk.objects.contains_key(key));
        if is_new {
            self.write(Write::PutNew { key: key.to_owned(), bytes: bytes.into() });
        }
        Ok(is_new)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.write(Write::Delete { key: key.to_owned() });
        Ok(())
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        Ok(self.read(|disk| {
            let all = disk.objects.range::<str, _>((start, Bound::Unbounded));
            all.take_while(|(key, _)| key.starts_with(prefix))
                .take(max)
                .map(|(key, bytes)| ObjectInfo { key: key.clone(), bytes: bytes.len() as u64 })
                .collect()
        }))
    }

    fn sync(&self) -> Result<(), ObjectError> {
        self.write(Write::SyncObjects);
        Ok(())
    }
}

impl Metastore for LiveDisk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.read(|disk| disk.rows.get(key).cloned()))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        Ok(self.read(|disk| keys.iter().map(|key| disk.rows.get(*key).cloned()).collect()))
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        let is_in = |key: &[u8]| end.is_none_or(|end| key < end);
        Ok(self.read(|disk| {
            let rows = disk.rows.range::<[u8], _>((start, Bound::Unbounded));
            let rows = rows.take_while(|(key, _)| is_in(key)).take(limit);
            rows.map(|(key, value)| (key.clone(), value.clone())).collect()
        }))
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.write(Write::Commit(Arc::new(batch)));
        Ok(())
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        Ok(self.read(|disk| StoreStats { disk_bytes: 0, rows_approx: disk.rows.len() as u64 }))
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_leaves_what_was_promised_and_any_part_of_the_rest() {
        let live = LiveDisk::default();
        live.create(1, b"head").unwrap();
        Place::sync(&live, 1).unwrap();
        live.append(1, 4, b"abcdef").unwrap();
        live.put("blocks/x", b"1").unwrap();
        live.put("blocks/y", b"2").unwrap();
        assert!(live.put_if_absent("blocks/z", b"3").unwrap());
        live.create(2, b"next").unwrap();
        let disk = live.disk();
        let of = |crash| {
            let live = LiveDisk::new(disk.after(crash));
            let segment = |n| Place::read(&live, n, 99).map(|bytes| String::from_utf8(bytes).unwrap()).ok();
            let keys: Vec<_> =
                Objects::list(&live, "", None, 9).unwrap().into_iter().map(|info| info.key).collect();
            (segment(1), segment(2), keys.join(" "))
        };
        let some = |text: &str| Some(text.to_owned());
        let all = "blocks/x blocks/y blocks/z".to_owned();
        assert_eq!(of(Crash::Kept), (some("headabcdef"), some("next"), all.clone()));
        assert_eq!(of(Crash::Forgotten), (some("head"), None, "blocks/z".to_owned()));
        assert_eq!(of(Crash::Torn(2)), (some("headab"), some("ne"), all.clone()));
        assert_eq!(of(Crash::Zeroed).0, some("head\0\0\0def"));
        assert_eq!(of(Crash::ObjectForgotten(0)).2, "blocks/y blocks/z");
        assert_eq!(of(Crash::JournalForgotten), (some("head"), None, all.clone()));
        assert_eq!(of(Crash::ObjectsForgotten), (some("headabcdef"), some("next"), "blocks/z".to_owned()));
        // Deleted and not synced: it may be there again.
        Objects::sync(&live).unwrap();
        live.delete("blocks/x").unwrap();
        live.remove(1).unwrap();
        let disk = live.disk();
        assert!(disk.crashes().contains(&Crash::Reappeared));
        let back = LiveDisk::new(disk.after(Crash::Forgotten));
        assert!(Objects::get(&back, "blocks/x", None).is_ok());
        let back = LiveDisk::new(disk.after(Crash::Reappeared));
        assert!(Place::read(&back, 1, 9).is_ok() && Objects::get(&back, "blocks/x", None).is_err());
    }
}
