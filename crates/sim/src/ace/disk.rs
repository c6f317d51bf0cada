//! The content of a disk, the durable part of it, and the result of a crash.
//!
//! Invariants:
//! - A crash leaves everything that the stores' traits promise, and any part of the rest: see [`Crash`].
//! - A commit of rows is one write: there whole or not at all.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chiton_journal::Shape;
use chiton_metastore::Batch;

/// The unit that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

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
    /// A put-if-absent that succeeded.
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
    /// The write for reports.
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
            Write::Commit(batch) => format!("commit {} rows", batch.len()),
        }
    }
}

/// The part of unpromised writes that a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    Kept,
    Forgotten,
    /// This many bytes of the journal, and everything else.
    Torn(usize),
    /// All bytes of the journal, but the sectors of the first half of them are zeros: written out of order.
    Zeroed,
    /// The journal, and no object.
    ObjectsForgotten,
    /// All objects except this one.
    ObjectForgotten(usize),
    /// The objects, and nothing of the journal.
    JournalForgotten,
    /// Everything, and removed segments exist again.
    Reappeared,
}

/// A rule that the disk breaks: to see that the oracle notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    SegmentsNotSynced,
    ObjectsNotSynced,
    /// Of a commit of rows the second half is missing.
    HalfCommits,
    CommitsForgotten,
    /// A byte of each object is another one after a crash.
    RottenObjects,
}

impl Canary {
    /// All canaries with their names.
    pub const ALL: [(&str, Canary); 5] = [
        ("segments-not-synced", Canary::SegmentsNotSynced),
        ("objects-not-synced", Canary::ObjectsNotSynced),
        ("half-commits", Canary::HalfCommits),
        ("commits-forgotten", Canary::CommitsForgotten),
        ("rotten-objects", Canary::RottenObjects),
    ];
}

#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) bytes: Arc<Vec<u8>>,
    /// Bytes that are durable; `None`: the segment may not be there at all.
    synced: Option<usize>,
}

/// A disk's content, and the durable part of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// Segments are objects that are put whole.
    pub(super) whole: bool,
    pub(super) segments: BTreeMap<u64, Segment>,
    removed: BTreeMap<u64, Segment>,
    pub(super) objects: BTreeMap<String, Arc<[u8]>>,
    /// Keys that changed since the last sync, with their former content.
    unsynced: BTreeMap<String, Option<Arc<[u8]>>>,
    pub(super) rows: Arc<BTreeMap<Vec<u8>, Vec<u8>>>,
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

    pub(crate) fn apply(&mut self, write: &Write) {
        match (self.canary, write) {
            (Some(Canary::SegmentsNotSynced), Write::SyncSegment { .. })
            | (Some(Canary::ObjectsNotSynced), Write::SyncObjects)
            | (Some(Canary::CommitsForgotten), Write::Commit(_)) => {}
            (Some(Canary::HalfCommits), Write::Commit(batch)) => {
                let half = batch.rows().take(batch.len() / 2).collect();
                self.carry_out(&Write::Commit(Arc::new(half)));
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
                for (key, value) in batch.rows() {
                    match value {
                        Some(value) => drop(rows.insert(key.to_vec(), value.to_vec())),
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
                let half = (synced + (kept - synced) / 2).next_multiple_of(SECTOR_BYTES).min(kept);
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

    /// A hash of the disk's state, unique within one log.
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
