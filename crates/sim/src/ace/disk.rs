//! The content of a disk, the durable part of it, and the result of a crash. Each plate has a journal and rows; all share the objects.
//!
//! Invariants:
//! - A crash leaves everything that the stores' traits promise, and any part of the rest: see [`Crash`].
//! - A commit of rows is one write: there whole or not at all.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chiton_engine::PeerState;
use chiton_journal::Shape;
use chiton_metastore::Batch;
use chiton_types::PlateId;

use crate::part_steps::frames_in;

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
                let events = frames_in(bytes).flatten().flatten();
                let events: Vec<String> = events.map(|(_, event)| event.describe()).collect();
                format!(
                    "append {} bytes at {offset} of segment {segment}: {}",
                    bytes.len(),
                    events.join("; ")
                )
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

/// The part that a crash leaves of the bytes of a journal that are not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    Kept,
    Forgotten,
    /// Only the first so many bytes reached the disk.
    Torn(usize),
    /// All bytes, but the sectors of the first half of them are zeros: written out of order.
    Zeroed,
}

/// The changes of objects that a crash loses, of those that are not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Nothing,
    All,
    /// That of one object.
    One(usize),
}

/// The part of unpromised writes that a crash leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crash {
    /// The tail of each plate's journal.
    pub(crate) tails: Vec<Tail>,
    pub(crate) objects: Lost,
    /// Removed segments exist again.
    pub(crate) reappeared: bool,
}

impl Crash {
    /// The same for the journals of all plates.
    pub(crate) fn of_all(plates: usize, tail: Tail, objects: Lost) -> Crash {
        Crash { tails: vec![tail; plates], objects, reappeared: false }
    }

    /// Everything that was written is there.
    pub(crate) fn kept(plates: usize) -> Crash {
        Crash::of_all(plates, Tail::Kept, Lost::Nothing)
    }

    /// Nothing is there but what was promised.
    pub(crate) fn forgotten(plates: usize) -> Crash {
        Crash::of_all(plates, Tail::Forgotten, Lost::All)
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forgotten = |tail: &Tail| *tail == Tail::Forgotten;
        match (&self.tails[..], self.objects) {
            (tails, Lost::All) if tails.iter().all(forgotten) => f.write_str("Forgotten"),
            ([Tail::Forgotten], Lost::Nothing) => f.write_str("JournalForgotten"),
            ([tail], Lost::Nothing) => write!(f, "{tail:?}"),
            (tails, objects) => {
                if let Some(first) = tails.first().filter(|first| tails.iter().all(|tail| tail == *first)) {
                    write!(f, "{first:?}")?;
                } else {
                    write!(f, "{tails:?}")?;
                }
                match objects {
                    Lost::Nothing => Ok(()),
                    Lost::All => f.write_str(", ObjectsForgotten"),
                    Lost::One(which) => write!(f, ", ObjectForgotten({which})"),
                }
            }
        }?;
        if self.reappeared { f.write_str(", Reappeared") } else { Ok(()) }
    }
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
    /// The segments of the first plate are not synced. Then the other carries out effects of decisions that are not durable, and
    /// decides by guards that are not.
    FirstPlateNotSynced,
    /// The same of the second plate.
    SecondPlateNotSynced,
    /// The rows that say which effects of other plates were carried out are not committed: these are carried out again.
    EffectsForgotten,
}

impl Canary {
    /// All canaries with their names.
    pub const ALL: [(&str, Canary); 8] = [
        ("segments-not-synced", Canary::SegmentsNotSynced),
        ("objects-not-synced", Canary::ObjectsNotSynced),
        ("half-commits", Canary::HalfCommits),
        ("commits-forgotten", Canary::CommitsForgotten),
        ("rotten-objects", Canary::RottenObjects),
        ("first-plate-not-synced", Canary::FirstPlateNotSynced),
        ("second-plate-not-synced", Canary::SecondPlateNotSynced),
        ("effects-forgotten", Canary::EffectsForgotten),
    ];
}

impl Canary {
    /// The plate whose journal is shorter than it believes.
    fn unsynced_plate(self) -> Option<PlateId> {
        match self {
            Canary::FirstPlateNotSynced => Some(PlateId(0)),
            Canary::SecondPlateNotSynced => Some(PlateId(1)),
            Canary::SegmentsNotSynced
            | Canary::ObjectsNotSynced
            | Canary::HalfCommits
            | Canary::CommitsForgotten
            | Canary::RottenObjects
            | Canary::EffectsForgotten => None,
        }
    }

    /// The oracle would notice the loss of durable changes, before it notices that the plates disagree.
    pub(crate) fn breaks_promises(self) -> bool {
        self.unsynced_plate().is_some()
    }

    /// It is about operations over plates, and breaks its rule in the last step only.
    pub(crate) fn is_of_plates(self) -> bool {
        self.unsynced_plate().is_some() || self == Canary::EffectsForgotten
    }
}

#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) bytes: Arc<Vec<u8>>,
    /// Bytes that are durable; `None`: the segment may not be there at all.
    synced: Option<usize>,
}

/// The journal and the rows of a plate.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlateDisk {
    pub(super) segments: BTreeMap<u64, Segment>,
    removed: BTreeMap<u64, Segment>,
    pub(super) rows: Arc<BTreeMap<Vec<u8>, Vec<u8>>>,
    commits: u64,
}

/// A disk's content, and the durable part of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// Segments are objects that are put whole.
    pub(super) whole: bool,
    pub(super) plates: Vec<PlateDisk>,
    pub(super) objects: BTreeMap<String, Arc<[u8]>>,
    /// Keys that changed since the last sync, with their former content.
    unsynced: BTreeMap<String, Option<Arc<[u8]>>>,
    canary: Option<Canary>,
}

impl Disk {
    /// An empty one for so many plates, whose journals are made of files that grow, or of objects.
    pub(crate) fn new(shape: Shape, plates: u16) -> Disk {
        let plates = vec![PlateDisk::default(); usize::from(plates)];
        Disk { whole: shape == Shape::Whole, plates, ..Disk::default() }
    }

    /// The same disk, but from now on it breaks a rule.
    pub(crate) fn with_canary(mut self, canary: Option<Canary>) -> Disk {
        self.canary = canary;
        self
    }

    /// Carries out a write of a plate.
    pub(crate) fn apply(&mut self, plate: PlateId, write: &Write) {
        match (self.canary, write) {
            (Some(Canary::SegmentsNotSynced), Write::SyncSegment { .. })
            | (Some(Canary::ObjectsNotSynced), Write::SyncObjects)
            | (Some(Canary::CommitsForgotten), Write::Commit(_)) => {}
            (Some(canary), Write::SyncSegment { .. }) if canary.unsynced_plate() == Some(plate) => {}
            (Some(Canary::EffectsForgotten), Write::Commit(batch)) => {
                let is_count = |key: &[u8], value: Option<&[u8]>| {
                    let state = value.map(|value| PeerState::decode(key, value));
                    matches!(state, Some(Ok(Some(PeerState::CarriedOut { .. }))))
                };
                let rows = batch.rows().filter(|(key, value)| !is_count(key, *value)).collect();
                self.carry_out(plate, &Write::Commit(Arc::new(rows)));
            }
            (Some(Canary::HalfCommits), Write::Commit(batch)) => {
                let half = batch.rows().take(batch.len() / 2).collect();
                self.carry_out(plate, &Write::Commit(Arc::new(half)));
            }
            (Some(Canary::RottenObjects), Write::Put { key, bytes }) => {
                let rotten = bytes.iter().enumerate().map(|(n, byte)| byte ^ u8::from(n == 7)).collect();
                self.carry_out(plate, &Write::Put { key: key.clone(), bytes: rotten });
            }
            _ => self.carry_out(plate, write),
        }
    }

    fn carry_out(&mut self, plate: PlateId, write: &Write) {
        let whole = self.whole;
        let of_plate = &mut self.plates[usize::from(plate.0)];
        match write {
            Write::Create { segment, bytes } => {
                let synced = whole.then_some(bytes.len());
                let made = Segment { bytes: Arc::new(bytes.to_vec()), synced };
                of_plate.segments.insert(*segment, made);
                of_plate.removed.remove(segment);
            }
            Write::Append { segment, offset, bytes } => {
                let segment = of_plate.segments.get_mut(segment).expect("appended to what is there");
                let content = Arc::make_mut(&mut segment.bytes);
                content.truncate(*offset);
                content.extend_from_slice(bytes);
            }
            Write::SyncSegment { segment } => {
                let segment = of_plate.segments.get_mut(segment).expect("synced what is there");
                segment.synced = Some(segment.bytes.len());
            }
            Write::Remove { segment } => {
                if let Some(gone) = of_plate.segments.remove(segment) {
                    of_plate.removed.insert(*segment, gone);
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
                let rows = Arc::make_mut(&mut of_plate.rows);
                for (key, value) in batch.rows() {
                    match value {
                        Some(value) => drop(rows.insert(key.to_vec(), value.to_vec())),
                        None => drop(rows.remove(key)),
                    }
                }
                of_plate.commits += 1;
            }
        }
    }

    /// The ways in which a crash of all plates can end now.
    pub(crate) fn crashes(&self) -> Vec<Crash> {
        let count = self.plates.len();
        let mut tails: Vec<Vec<Tail>> = vec![Vec::new()];
        let unsynced = self.canary.and_then(Canary::unsynced_plate).map(|plate| usize::from(plate.0));
        for (n, plate) in self.plates.iter().enumerate() {
            let mut of_plate = plate.tails();
            if unsynced == Some(n) {
                // A journal that lacks only a part of several segments is damaged, and reports it.
                of_plate.retain(|tail| matches!(tail, Tail::Kept | Tail::Forgotten));
            }
            let with = |before: &Vec<Tail>| {
                let before = before.clone();
                let add = move |tail| before.iter().copied().chain([tail]).collect::<Vec<_>>();
                of_plate.clone().into_iter().map(add)
            };
            tails = tails.iter().flat_map(with).collect();
        }
        let has_objects = !self.unsynced.is_empty();
        // The journals all alike, and then the objects with them, before all combinations.
        let mut crashes = vec![Crash::kept(count)];
        let is_torn = tails.len() > 1;
        if is_torn || has_objects {
            crashes.push(Crash::forgotten(count));
        }
        let all_forgotten = vec![Tail::Forgotten; count];
        for tails in tails {
            let is_known = tails.iter().all(|tail| *tail == Tail::Kept) || tails == all_forgotten;
            // One that has nothing to lose is forgotten, too.
            if !is_known {
                crashes.push(Crash { tails, objects: Lost::Nothing, reappeared: false });
            }
        }
        if has_objects && is_torn {
            crashes.push(Crash::of_all(count, Tail::Kept, Lost::All));
            crashes.push(Crash::of_all(count, Tail::Forgotten, Lost::Nothing));
        }
        if self.unsynced.len() > 1 {
            let one = |n| Crash::of_all(count, Tail::Kept, Lost::One(n));
            crashes.extend((0..self.unsynced.len()).map(one));
        }
        if self.plates.iter().any(|plate| !plate.removed.is_empty()) {
            crashes.push(Crash { reappeared: true, ..Crash::kept(count) });
        }
        crashes
    }

    /// The disk after a crash of all plates: everything on it is durable.
    pub(crate) fn after(&self, crash: &Crash) -> Disk {
        let mut disk = self.clone();
        for (plate, tail) in disk.plates.iter_mut().zip(&crash.tails) {
            plate.crash(*tail, crash.reappeared);
        }
        let is_forgotten = |n: usize| match crash.objects {
            Lost::Nothing => false,
            Lost::All => true,
            Lost::One(which) => n == which,
        };
        for (n, (key, before)) in self.unsynced.iter().enumerate() {
            match before {
                _ if !is_forgotten(n) => {}
                Some(before) => drop(disk.objects.insert(key.clone(), before.clone())),
                None => drop(disk.objects.remove(key)),
            }
        }
        disk.unsynced.clear();
        disk
    }

    /// A hash of the disk's state, unique within one log.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for plate in &self.plates {
            plate.segments.len().hash(&mut hasher);
            for (number, segment) in &plate.segments {
                (number, segment.bytes.as_slice()).hash(&mut hasher);
            }
            plate.commits.hash(&mut hasher);
        }
        for (key, bytes) in &self.objects {
            (key, bytes.as_ptr()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl PlateDisk {
    /// The ways in which a crash can leave the journal.
    pub(crate) fn tails(&self) -> Vec<Tail> {
        let mut tails = vec![Tail::Kept];
        let torn = self.segments.values().map(|s| s.bytes.len() - s.synced.unwrap_or(0)).max().unwrap_or(0);
        if torn > 0 {
            tails.extend([Tail::Forgotten, Tail::Zeroed]);
            tails.extend(self.cuts().into_iter().map(Tail::Torn));
        }
        tails
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

    /// A crash: everything that is there now is durable.
    pub(crate) fn crash(&mut self, tail: Tail, reappeared: bool) {
        let journal = match tail {
            Tail::Kept | Tail::Zeroed => usize::MAX,
            Tail::Forgotten => 0,
            Tail::Torn(bytes) => bytes,
        };
        self.segments.retain(|_, segment| {
            let synced = segment.synced.unwrap_or(0);
            let kept = synced.saturating_add(journal).min(segment.bytes.len());
            if segment.synced.is_none() && kept == 0 {
                return false;
            }
            if kept < segment.bytes.len() {
                Arc::make_mut(&mut segment.bytes).truncate(kept);
            }
            if tail == Tail::Zeroed {
                let half = (synced + (kept - synced) / 2).next_multiple_of(SECTOR_BYTES).min(kept);
                Arc::make_mut(&mut segment.bytes)[synced..half].fill(0);
            }
            segment.synced = Some(kept);
            true
        });
        for (number, segment) in std::mem::take(&mut self.removed) {
            if reappeared {
                let segment = Segment { synced: Some(segment.bytes.len()), ..segment };
                self.segments.entry(number).or_insert(segment);
            }
        }
    }
}
