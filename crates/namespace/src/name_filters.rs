//! Which names a large directory certainly lacks, after some of its entries have left memory.
//!
//! ```text
//!   the first entry leaves ─▶ a filter of all names ─▶ each new name is added ─▶ "is NAME free?" needs no row of the store
//! ```
//!
//! Invariants:
//! - A filter has every name of its directory: it is made while all entries are in memory, and each name that is given a
//!   target is added.
//! - It takes about ten bits for each name that it was given, and is dropped when half of them are gone again.

use chiton_types::Ino;
use fastbloom::BloomFilter;
use hashbrown::HashMap;

/// One name in a hundred that a directory lacks has to be looked for in the store.
const BITS_PER_NAME: usize = 10;

#[derive(Debug, Default)]
pub(crate) struct NameFilters {
    of: HashMap<Ino, NameFilter>,
    bytes: usize,
}

/// Each part but the last is full, and each is twice as large as the one before.
#[derive(Debug)]
struct NameFilter {
    parts: Vec<BloomFilter>,
    /// Number of names that fit into the last part, and that are in it.
    room: u64,
    used: u64,
    /// Number of names in all parts, and of names that were taken away since.
    added: u64,
    removed: u64,
}

impl NameFilters {
    /// Begins a filter with the hashes of all names of a directory.
    pub(crate) fn begin(&mut self, dir: Ino, names: u64, hashes: impl Iterator<Item = u64>) {
        let room = (names * 2).max(64);
        self.drop_of(dir);
        let mut filter = NameFilter { parts: vec![part(room)], room, used: 0, added: 0, removed: 0 };
        hashes.for_each(|hash| filter.add(hash));
        self.bytes += filter.bytes();
        self.of.insert(dir, filter);
    }

    /// Whether the directory certainly has no name with this hash. `false` where nothing is known.
    pub(crate) fn excludes(&self, dir: Ino, hash: u64) -> bool {
        self.of.get(&dir).is_some_and(|filter| !filter.parts.iter().any(|part| part.contains_hash(hash)))
    }

    /// A name gets a target.
    pub(crate) fn add(&mut self, dir: Ino, hash: u64) {
        if let Some(filter) = self.of.get_mut(&dir) {
            let before = filter.parts.len();
            filter.add(hash);
            if filter.parts.len() > before {
                self.bytes += filter.parts.last().map_or(0, |part| part.num_bits() / 8);
            }
        }
    }

    /// A name loses its target.
    pub(crate) fn remove(&mut self, dir: Ino) {
        let Some(filter) = self.of.get_mut(&dir) else { return };
        filter.removed += 1;
        if filter.removed * 2 > filter.added {
            self.drop_of(dir);
        }
    }

    fn drop_of(&mut self, dir: Ino) {
        if let Some(filter) = self.of.remove(&dir) {
            self.bytes -= filter.bytes();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = NameFilters::default();
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

impl NameFilter {
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.num_bits() / 8).sum()
    }

    fn add(&mut self, hash: u64) {
        if self.used == self.room {
            self.room *= 2;
            self.used = 0;
            self.parts.push(part(self.room));
        }
        if let Some(last) = self.parts.last_mut() {
            last.insert_hash(hash);
        }
        self.used += 1;
        self.added += 1;
    }
}

/// A filter for so many names.
fn part(names: u64) -> BloomFilter {
    let names = names as usize;
    // The seed is for hashing, and the names are hashed already.
    BloomFilter::with_num_bits(names * BITS_PER_NAME).seed(&0).expected_items(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(7);

    /// Hashes without order.
    fn hash(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn no_name_that_is_there_is_excluded_and_few_others_are_not() {
        let mut filters = NameFilters::default();
        filters.begin(DIR, 1000, (0..1000).map(hash));
        (1000..50_000).for_each(|n| filters.add(DIR, hash(n)));
        assert!((0..50_000).all(|n| !filters.excludes(DIR, hash(n))));
        let found = (50_000..150_000).filter(|n| !filters.excludes(DIR, hash(*n))).count();
        assert!(found < 6000, "{found} of 100,000 names are looked for in the store");
        assert!(filters.memory_bytes() < 50_000 * 4, "{} bytes", filters.memory_bytes());
        assert!(!filters.excludes(Ino(8), 1), "nothing is known of another directory");
    }

    #[test]
    fn a_filter_ends_when_half_of_its_names_are_gone() {
        let mut filters = NameFilters::default();
        filters.begin(DIR, 100, (0..100).map(hash));
        (0..50).for_each(|_| filters.remove(DIR));
        assert!(filters.excludes(DIR, hash(1000)));
        filters.remove(DIR);
        assert!(!filters.excludes(DIR, hash(1000)));
        assert_eq!(filters.memory_bytes(), 0);
    }
}
