//! The table of inodes in memory: pages of records and an index of slots.
//!
//! Invariants:
//! - A slot never moves; a freed slot is used again before a page is added.
//! - `dead` remembers inodes that are known not to exist: deleted and not yet checkpointed, or asked for and absent.

use std::cell::Cell;
use std::collections::BTreeMap;

use chiton_types::Ino;
use hashbrown::HashTable;

use crate::dirty::Marks;
use crate::inode::Inode;

const PAGE_SLOTS: usize = 512;

#[derive(Default)]
pub(crate) struct Inodes {
    pages: Vec<Vec<Option<Inode>>>,
    free: Vec<u32>,
    /// Hash and slot; with the hash at hand, growing the index touches no record.
    index: HashTable<(u32, u32)>,
    pub(crate) dead: BTreeMap<Ino, Marks>,
}

/// Sixteen neighbours, which are mostly made one after the other, share a group of the index: its two cache lines serve
/// them all. The groups are anywhere: of the number above the low four bits all bits are mixed.
fn hash(ino: Ino) -> u32 {
    let group = ino.0 >> 4;
    let x = (group ^ (group >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x >> 32) as u32) << 4 | (ino.0 & 15) as u32
}

/// The hash table takes its place from the low bits and its tag from the high bits, which must differ within a group.
fn spread(hash: u32) -> u64 {
    u64::from(hash.wrapping_mul(0x9e37_79b9)) << 32 | u64::from(hash)
}

impl Inodes {
    #[inline]
    pub(crate) fn slot(&self, ino: Ino) -> Option<u32> {
        let h = hash(ino);
        self.index.find(spread(h), |&(sh, s)| sh == h && self.at(s).ino == ino).map(|&(_, s)| s)
    }

    #[inline]
    fn at(&self, slot: u32) -> &Inode {
        let slot = slot as usize;
        self.pages[slot / PAGE_SLOTS][slot % PAGE_SLOTS].as_ref().expect("indexed slots are in use")
    }

    #[inline]
    pub(crate) fn get(&self, ino: Ino) -> Option<&Inode> {
        self.slot(ino).map(|s| self.at(s))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        let slot = self.slot(ino)? as usize;
        self.pages[slot / PAGE_SLOTS][slot % PAGE_SLOTS].as_mut()
    }

    /// Adds an inode that is not there.
    pub(crate) fn insert(&mut self, inode: Inode) {
        let h = hash(inode.ino);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.pages[slot as usize / PAGE_SLOTS][slot as usize % PAGE_SLOTS] = Some(inode);
                slot
            }
            None => {
                if self.pages.last().is_none_or(|p| p.len() == PAGE_SLOTS) {
                    self.pages.push(Vec::with_capacity(PAGE_SLOTS));
                }
                let page = self.pages.len() - 1;
                self.pages[page].push(Some(inode));
                (page * PAGE_SLOTS + self.pages[page].len() - 1) as u32
            }
        };
        self.index.insert_unique(spread(h), (h, slot), |&(h, _)| spread(h));
    }

    /// Takes an inode out; `None` if it was not there.
    pub(crate) fn remove(&mut self, ino: Ino) -> Option<Inode> {
        let (pages, h) = (&self.pages, hash(ino));
        let found = self.index.find_entry(spread(h), |&(sh, s)| {
            let s = s as usize;
            sh == h && pages[s / PAGE_SLOTS][s % PAGE_SLOTS].as_ref().is_some_and(|i| i.ino == ino)
        });
        let ((_, slot), _) = found.ok()?.remove();
        self.free.push(slot);
        self.pages[slot as usize / PAGE_SLOTS][slot as usize % PAGE_SLOTS].take()
    }

    /// Slots ever used, for the clock's hand.
    pub(crate) fn slots(&self) -> usize {
        self.pages.last().map_or(0, |p| (self.pages.len() - 1) * PAGE_SLOTS + p.len())
    }

    /// The inode in a slot, if it is in use.
    pub(crate) fn in_slot(&self, slot: usize) -> Option<&Inode> {
        self.pages.get(slot / PAGE_SLOTS)?.get(slot % PAGE_SLOTS)?.as_ref()
    }

    pub(crate) fn note_dead(&mut self, ino: Ino) -> &Marks {
        self.dead.entry(ino).or_insert_with(|| Cell::new(0))
    }

    /// Freed slots do not count: pages stay to be used again, and eviction could never reach a target below them.
    pub(crate) fn memory_bytes(&self) -> usize {
        let used = self.slots() - self.free.len();
        used * (size_of::<Option<Inode>>() + 16) + self.dead.len() * 48
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Inode> {
        self.pages.iter().flatten().flatten()
    }
}
