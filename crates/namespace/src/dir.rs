//! The entries of one directory in memory: an extendible hash table in the order of hashes.
//!
//! ```text
//!   index (2^depth, by the top bits of the hash) ──▶ buckets of up to 32 entries, sorted when listed
//! ```
//!
//! Lookup, insert and remove touch one bucket; walking the index walks the directory in the order of
//! [`chiton_types::name_hash`], which is the order of the store's rows and of readdir cookies.
//!
//! Invariants:
//! - A slot with kind 0 says that the name is known to be absent (deleted and not yet checkpointed, or
//!   looked for in the store in vain), one with kind 255 that the store has a row of it that cannot be read.
//! - A bucket of local depth d stands at 2^(depth-d) neighbouring places of the index.

use std::cell::Cell;
use std::hint::black_box;

use chiton_types::{Ino, Kind, Position};

use crate::dirty::{Marks, is_dirty};

const BUCKET_ENTRIES: usize = 32;
/// Room that a half of a bucket is given.
const SPLIT_ENTRIES: usize = 24;
const DEPTH_MAX: u8 = 28;
/// No kind: the name is there, and its inode cannot be read.
const UNREADABLE: u8 = 255;

/// An entry of a directory in memory.
#[derive(Clone, Debug)]
pub struct Slot {
    pub(crate) hash: u64,
    /// The inode that it names.
    pub ino: Ino,
    /// Position of the last change.
    pub position: Position,
    name_at: u32,
    name_len: u8,
    kind: u8,
    pub(crate) marks: Marks,
}

const _: () = assert!(size_of::<Slot>() == 32);

impl Slot {
    /// Type of the inode; `None` if the name is known to be absent, or its row cannot be read.
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_u8(self.kind)
    }

    /// The store has a row of the name that cannot be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.kind == UNREADABLE
    }

    pub(crate) fn set_unreadable(&mut self) {
        (self.ino, self.kind, self.position) = (Ino(0), UNREADABLE, Position(0));
    }

    pub(crate) fn set(&mut self, target: Option<(Ino, Kind)>, position: Position) {
        let (ino, kind) = target.map_or((Ino(0), 0), |(ino, kind)| (ino, kind as u8));
        (self.ino, self.kind, self.position) = (ino, kind, position);
    }
}

/// Ranges of hashes of a directory whose names are all in memory, as listings fetched them.
#[derive(Debug, Default)]
pub(crate) struct KnownRanges(Vec<(u64, u64)>);

/// More listings of one directory than that, each at a place of its own, make each other fetch again.
const RANGES_MAX: usize = 16;

impl KnownRanges {
    /// The last hash up to which all names behind `after` are known.
    pub(crate) fn until(&self, after: u64) -> Option<u64> {
        self.0.iter().find(|(from, to)| *from <= after && after < *to).map(|(_, to)| *to)
    }

    /// All names behind `after` are known up to `last`. A range that they follow grows: if all of its names are removed, a listing that
    /// begins in it must not ask for the same names for ever.
    pub(crate) fn add(&mut self, after: u64, last: u64) {
        if let Some((_, to)) = self.0.iter_mut().find(|(from, to)| *from <= after && after <= *to) {
            *to = last.max(*to);
            return;
        }
        if self.0.len() == RANGES_MAX {
            self.0.remove(0);
        }
        self.0.push((after, last));
    }
}

#[derive(Debug)]
struct Bucket {
    /// Low bits of the hashes of the first slots, side by side: a lookup reads these and one slot.
    tags: [u32; BUCKET_ENTRIES],
    slots: Vec<Slot>,
    names: Vec<u8>,
    names_dead: u32,
    depth: u8,
}

impl Bucket {
    fn new(depth: u8) -> Bucket {
        Bucket { tags: [0; BUCKET_ENTRIES], slots: Vec::new(), names: Vec::new(), names_dead: 0, depth }
    }

    fn name(&self, slot: &Slot) -> &[u8] {
        &self.names[slot.name_at as usize..slot.name_at as usize + usize::from(slot.name_len)]
    }

    #[inline]
    fn search(&self, hash: u64, name: &[u8]) -> Option<usize> {
        let is = |i: usize| self.slots[i].hash == hash && self.name(&self.slots[i]) == name;
        let tagged = self.slots.len().min(BUCKET_ENTRIES);
        // Compared all at once (32 tags are two cache lines), then only those that match are looked at.
        let mut matches = 0u32;
        for (i, &tag) in self.tags.iter().enumerate() {
            matches |= u32::from(tag == hash as u32) << i;
        }
        while matches != 0 {
            let i = matches.trailing_zeros() as usize;
            if i < tagged && is(i) {
                return Some(i);
            }
            matches &= matches - 1;
        }
        (BUCKET_ENTRIES..self.slots.len()).find(|&i| is(i))
    }

    fn push(&mut self, hash: u64, name: &[u8], slot: Slot) -> &mut Slot {
        let name_at = self.names.len() as u32;
        self.names.extend_from_slice(name);
        let slot = Slot { hash, name_at, name_len: name.len() as u8, ..slot };
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(if self.slots.len() < 8 { 4 } else { 8 });
        }
        if let Some(tag) = self.tags.get_mut(self.slots.len()) {
            *tag = hash as u32;
        }
        self.slots.push(slot);
        self.slots.last_mut().expect("just pushed")
    }

    fn remove(&mut self, at: usize) {
        let slot = self.slots.swap_remove(at);
        if let (Some(tag), Some(moved)) = (self.tags.get_mut(at), self.slots.get(at)) {
            *tag = moved.hash as u32;
        }
        self.names_dead += u32::from(slot.name_len);
        if self.names_dead as usize > self.names.len() / 2 {
            let mut names = Vec::with_capacity(self.names.len() - self.names_dead as usize);
            for i in 0..self.slots.len() {
                let at = names.len() as u32;
                names.extend_from_slice(self.name(&self.slots[i]));
                self.slots[i].name_at = at;
            }
            self.names = names;
            self.names_dead = 0;
        }
    }

    /// Numbers of the slots in the order of (hash, name).
    fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.slots.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| {
            let (a, b) = (&self.slots[a as usize], &self.slots[b as usize]);
            a.hash.cmp(&b.hash).then_with(|| self.name(a).cmp(self.name(b)))
        });
        order
    }
}

#[derive(Debug)]
pub(crate) struct Dir {
    index: Vec<u32>,
    buckets: Vec<Bucket>,
    depth: u8,
    /// All entries with a hash above the first and up to the second are in memory.
    pub(crate) known: KnownRanges,
    len: usize,
}

impl Default for Dir {
    fn default() -> Dir {
        Dir { index: vec![0], buckets: vec![Bucket::new(0)], depth: 0, known: KnownRanges::default(), len: 0 }
    }
}

impl Dir {
    #[inline]
    fn bucket_of(&self, hash: u64) -> usize {
        self.index[(hash >> (63 - self.depth)) as usize] as usize
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, name: &[u8]) -> Option<&Slot> {
        let bucket = &self.buckets[self.bucket_of(hash)];
        bucket.search(hash, name).map(|i| &bucket.slots[i])
    }

    /// Touches the memory that a search for one of these hashes, or an insert, will read: independent reads,
    /// which the processor has under way side by side, where one search after another would wait for each.
    pub(crate) fn warm(&self, hashes: &[u64]) {
        let mut seen = 0;
        for &hash in hashes {
            seen ^= self.buckets[self.bucket_of(hash)].slots.len();
        }
        for &hash in hashes {
            let bucket = &self.buckets[self.bucket_of(hash)];
            seen ^= (bucket.tags[0] ^ bucket.tags[BUCKET_ENTRIES - 1]) as usize;
            seen ^= bucket.slots.last().map_or(0, |slot| slot.ino.0 as usize);
            seen ^= bucket.names.last().map_or(0, |&byte| usize::from(byte));
        }
        black_box(seen);
    }

    /// The slot of a name; a new one, absent so far and with `marks`, if there is none (then `true`).
    #[inline]
    pub(crate) fn slot(&mut self, hash: u64, name: &[u8], marks: u8) -> (&mut Slot, bool) {
        let b = self.bucket_of(hash);
        match self.buckets[b].search(hash, name) {
            Some(i) => (&mut self.buckets[b].slots[i], false),
            None => (self.insert(hash, name, marks), true),
        }
    }

    /// Adds a slot for a name that has none; its target is then set.
    pub(crate) fn insert(&mut self, hash: u64, name: &[u8], marks: u8) -> &mut Slot {
        self.len += 1;
        loop {
            let b = self.bucket_of(hash);
            if self.buckets[b].slots.len() < BUCKET_ENTRIES || !self.split(b) {
                let empty = Slot {
                    hash,
                    ino: Ino(0),
                    position: Position(0),
                    name_at: 0,
                    name_len: 0,
                    kind: 0,
                    marks: Cell::new(marks),
                };
                return self.buckets[b].push(hash, name, empty);
            }
        }
    }

    pub(crate) fn remove(&mut self, hash: u64, name: &[u8]) {
        let b = self.bucket_of(hash);
        if let Some(at) = self.buckets[b].search(hash, name) {
            self.buckets[b].remove(at);
            self.len -= 1;
        }
    }

    /// Parts a full bucket by the next bit of the hash; false if that cannot help (all hashes equal, or the
    /// index is as deep as it may be), in which case the bucket grows past its size.
    fn split(&mut self, b: usize) -> bool {
        let depth = self.buckets[b].depth;
        let slots = &self.buckets[b].slots;
        if depth == DEPTH_MAX || slots.iter().all(|s| s.hash == slots[0].hash) {
            return false;
        }
        if depth == self.depth {
            self.index = self.index.iter().flat_map(|&i| [i, i]).collect();
            self.depth += 1;
        }
        let span = 1usize << (self.depth - depth);
        let first = (self.buckets[b].slots[0].hash >> (63 - depth)) as usize * span;
        let upper = self.buckets.len() as u32;
        for place in &mut self.index[first + span / 2..first + span] {
            *place = upper;
        }
        let bit = 1u64 << (62 - depth);
        let old = std::mem::replace(&mut self.buckets[b], Bucket::new(depth + 1));
        let mut halves = [Bucket::new(depth + 1), Bucket::new(depth + 1)];
        for half in &mut halves {
            // Half and some more: both are about to grow again.
            half.slots.reserve_exact(SPLIT_ENTRIES);
            half.names.reserve_exact(old.names.len() * SPLIT_ENTRIES / BUCKET_ENTRIES);
        }
        for slot in &old.slots {
            halves[usize::from(slot.hash & bit != 0)].push(slot.hash, old.name(slot), slot.clone());
        }
        let [low, high] = halves;
        self.buckets[b] = low;
        self.buckets.push(high);
        true
    }

    /// Slots with a hash above `after`, in order, as (name, slot); absent ones too.
    pub(crate) fn iter_after(&self, after: u64) -> impl Iterator<Item = (&[u8], &Slot)> {
        let start = (after >> (63 - self.depth)) as usize;
        let mut last = None;
        self.index[start..]
            .iter()
            .filter(move |&&b| last.replace(b) != Some(b))
            .flat_map(|&b| {
                let bucket = &self.buckets[b as usize];
                bucket.in_order().into_iter().map(move |i| {
                    let slot = &bucket.slots[i as usize];
                    (bucket.name(slot), slot)
                })
            })
            .filter(move |(_, s)| s.hash > after)
    }

    /// The hashes of all slots, in no order.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.buckets.iter().flat_map(|bucket| bucket.slots.iter().map(|slot| slot.hash))
    }

    /// Slots with exactly this hash.
    pub(crate) fn with_hash(&self, hash: u64) -> impl Iterator<Item = (&[u8], &Slot)> {
        let bucket = &self.buckets[self.bucket_of(hash)];
        bucket.slots.iter().filter(move |s| s.hash == hash).map(move |s| (bucket.name(s), s))
    }

    /// Keeps only dirty slots.
    pub(crate) fn drop_clean(&mut self) {
        let mut kept = Dir::default();
        for bucket in &self.buckets {
            for slot in bucket.slots.iter().filter(|s| is_dirty(&s.marks)) {
                let new = kept.insert(slot.hash, bucket.name(slot), slot.marks.get());
                new.set(slot.kind().map(|k| (slot.ino, k)), slot.position);
            }
        }
        *self = kept;
    }

    /// Bytes of the names of all slots.
    pub(crate) fn name_bytes(&self) -> usize {
        self.buckets.iter().map(|b| b.names.len() - b.names_dead as usize).sum()
    }

    /// Slots, absent ones too.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_order(dir: &Dir, expect: usize) {
        let all: Vec<_> = dir.iter_after(0).map(|(n, s)| (s.hash, n.to_vec())).collect();
        assert_eq!(all.len(), expect);
        assert!(all.windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn many_names_are_found_listed_and_removed() {
        let mut dir = Dir::default();
        let name = |i: u64| format!("file-{i}").into_bytes();
        let hash = |n: &[u8]| chiton_types::name_hash(n);
        for i in 0..10_000 {
            dir.insert(hash(&name(i)), &name(i), 0).set(Some((Ino(i + 2), Kind::File)), Position(i));
        }
        check_order(&dir, 10_000);
        for i in 0..10_000 {
            assert_eq!(dir.find(hash(&name(i)), &name(i)).map(|s| s.ino), Some(Ino(i + 2)));
        }
        for i in (0..10_000).filter(|i| i % 3 != 0) {
            dir.remove(hash(&name(i)), &name(i));
        }
        check_order(&dir, 3_334);
        assert!(dir.find(hash(&name(1)), &name(1)).is_none());
        assert_eq!(dir.find(hash(&name(9)), &name(9)).map(|s| s.ino), Some(Ino(11)));
        // Resuming after any cookie continues with the next.
        let cookies: Vec<u64> = dir.iter_after(0).map(|(_, s)| s.hash).collect();
        for w in cookies.windows(2) {
            assert_eq!(dir.iter_after(w[0]).next().map(|(_, s)| s.hash), Some(w[1]));
        }
        dir.drop_clean();
        assert_eq!(dir.len(), 0);
    }

    #[test]
    fn equal_hashes_overflow_their_bucket() {
        let mut dir = Dir::default();
        for i in 0..100u32 {
            dir.insert(77, &i.to_be_bytes(), 0);
        }
        dir.insert(78, b"x", 0);
        dir.insert(u64::MAX >> 1, b"y", 0);
        assert_eq!((dir.len(), dir.with_hash(77).count()), (102, 100));
        check_order(&dir, 102);
    }
}
