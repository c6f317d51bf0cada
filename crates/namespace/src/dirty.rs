//! Which rows must be written, and the image of the state at the beginning of a checkpoint.
//!
//! Two generations: rows changed since the last checkpoint began are on `list`; while a checkpoint is under way
//! the rows that it must still write are on `saving`. A row on `saving` that is about to change is encoded first
//! (copy on write), so the checkpoint writes the state of one position while operations continue.
//!
//! ```text
//!   change ──▶ list ── begin ──▶ saving ── take ──▶ rows for the store
//!                                  └── change: before-image ──▶ saved ──┘
//! ```
//!
//! Invariants:
//! - A row has the bit of a generation exactly if its key is on that generation's list and not yet encoded.
//! - [`FRESH`] only on rows that the store does not hold.
//! - Where there is no checkpoint ever ([`Dirty::unlisted`]) the rows have their bits and the lists are empty.

mod keys;

use std::cell::Cell;

use chiton_types::{BlockId, Ino};

use crate::before_images::BeforeImages;
use crate::namespace::RowChange;
use crate::row::tag;
use keys::Keys;

/// The row was looked at since the clock's hand passed last.
pub(crate) const REFERENCED: u8 = 4;
/// The store holds no row under this key.
pub(crate) const FRESH: u8 = 8;
const GENERATIONS: u8 = 3;

/// Bookkeeping bits of a row in memory.
pub(crate) type Marks = Cell<u8>;

/// True if the row must be written.
pub(crate) fn is_dirty(marks: &Marks) -> bool {
    marks.get() & GENERATIONS != 0
}

/// Key of a changed row. An entry is named by its hash: equal hashes of one directory are written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirtyKey {
    Inode(Ino),
    Entry(Ino, u64),
    Content(Ino),
    Chunk(Ino, u32),
    Xattrs(Ino),
    Block(BlockId),
    Orphan(Ino),
    Garbage(BlockId),
    Policy(Ino),
    History(u64),
    Linked(Ino),
    Decoupling(u32),
}

impl DirtyKey {
    /// The order of the rows' keys in the store (names of one hash apart).
    fn order(&self) -> (u16, u8, u64, u64) {
        let of_inode = |ino: Ino, tag, rest| (ino.shard().0, tag, ino.0, rest);
        let of_plate = |tag, first, rest| (0, tag, first, rest);
        match *self {
            DirtyKey::Block(block) => of_plate(tag::BLOCK, block.writer, block.number),
            DirtyKey::Content(ino) => of_inode(ino, tag::CONTENT, 0),
            DirtyKey::Decoupling(id) => of_plate(tag::DECOUPLING, u64::from(id), 0),
            DirtyKey::Entry(dir, hash) => of_inode(dir, tag::ENTRY, hash),
            DirtyKey::Garbage(block) => of_plate(tag::GARBAGE, block.writer, block.number),
            DirtyKey::History(version) => of_plate(tag::HISTORY, version, 0),
            DirtyKey::Inode(ino) => of_inode(ino, tag::INODE, 0),
            DirtyKey::Linked(ino) => of_inode(ino, tag::LINKED, 0),
            DirtyKey::Chunk(ino, n) => of_inode(ino, tag::CHUNK, u64::from(n)),
            DirtyKey::Orphan(ino) => of_inode(ino, tag::ORPHAN, 0),
            DirtyKey::Policy(ino) => of_inode(ino, tag::POLICY, 0),
            DirtyKey::Xattrs(ino) => of_inode(ino, tag::XATTRS, 0),
        }
    }
}

/// Which rows a checkpoint is to write, for sorting them without any lock on the namespace: see
/// [`crate::Namespace::checkpoint_list`].
pub struct CheckpointList(Keys);

impl CheckpointList {
    /// Brings the rows into the order of their keys. It is the store's, and nearly that of memory.
    pub fn sort(&mut self) {
        self.0 = std::mem::take(&mut self.0).sorted(DirtyKey::order);
    }
}

#[derive(Default)]
pub(crate) struct Dirty {
    generation: u8,
    list: Keys,
    saving: Keys,
    saved: Vec<RowChange>,
    active: bool,
    /// `saving` is being sorted elsewhere.
    lent: bool,
    /// There are no checkpoints: nobody asks which rows changed.
    unlisted: bool,
    /// Rows as decoupled clients saw them.
    pub(crate) before_images: BeforeImages,
}

impl Dirty {
    /// Of rows that are never written: a key for each change would be memory for nothing.
    pub(crate) fn unlisted() -> Dirty {
        Dirty { unlisted: true, ..Dirty::default() }
    }

    /// To be called before any change of a row. `image` encodes the row as it is.
    #[inline]
    pub(crate) fn before_change(&mut self, marks: &Marks, key: DirtyKey, image: impl FnOnce() -> RowChange) {
        let (now, before) = (1 << self.generation, 2 >> self.generation);
        let mut m = marks.get();
        if self.before_images.is_keeping() {
            let row = image();
            self.before_images.keep(&row);
            if m & before != 0 {
                self.saved.push(row);
                m &= !(before | FRESH);
            }
        } else if m & before != 0 {
            self.saved.push(image());
            m &= !(before | FRESH);
        }
        if m & now == 0 {
            m |= now;
            if !self.unlisted {
                self.list.push(key);
            }
        }
        marks.set(m);
    }

    /// True if `marks` say that the running checkpoint must still write the row; clears that.
    pub(crate) fn take_mark(&self, marks: &Marks) -> bool {
        let before = 2 >> self.generation;
        let m = marks.get();
        if m & before == 0 {
            return false;
        }
        marks.set(m & !(before | FRESH));
        true
    }

    /// True if the row can vanish without a trace: the store has none and the running checkpoint wants none.
    pub(crate) fn is_traceless(&self, marks: &Marks) -> bool {
        marks.get() & FRESH != 0 && marks.get() & (2 >> self.generation) == 0
    }

    pub(crate) fn begin(&mut self) {
        assert!(!self.unlisted, "rows that are never written have no checkpoints");
        assert!(!self.active, "a checkpoint is under way already");
        assert!(self.saving.len() == 0 && self.saved.is_empty());
        self.active = true;
        self.saving = std::mem::take(&mut self.list);
        self.generation ^= 1;
    }

    /// Changes meanwhile need no list, only the marks.
    pub(crate) fn lend(&mut self) -> CheckpointList {
        assert!(self.active && !self.lent, "a list is there for the checkpoint that is under way, once");
        self.lent = true;
        CheckpointList(std::mem::take(&mut self.saving))
    }

    pub(crate) fn give_back(&mut self, list: CheckpointList) {
        assert!(self.lent, "only what was lent is given back");
        self.lent = false;
        self.saving = list.0;
    }

    pub(crate) fn next_saving(&mut self) -> Option<DirtyKey> {
        assert!(!self.lent, "the list of rows to write is elsewhere");
        self.saving.pop()
    }

    pub(crate) fn saved(&mut self) -> &mut Vec<RowChange> {
        &mut self.saved
    }

    pub(crate) fn done(&mut self) {
        assert!(
            self.active && self.saving.len() == 0 && self.saved.is_empty(),
            "the checkpoint is not finished"
        );
        self.active = false;
        self.saving = Keys::default();
    }

    pub(crate) fn active(&self) -> bool {
        self.active
    }

    /// Rows changed since the last checkpoint began; none where there are no checkpoints.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_never_written_are_marked_and_not_listed() {
        let check = |mut dirty: Dirty, listed: usize| {
            let marks = Cell::new(0);
            for _ in 0..2 {
                dirty
                    .before_change(&marks, DirtyKey::Inode(Ino(7)), || unreachable!("nobody wants an image"));
                assert!(is_dirty(&marks));
                assert_eq!(dirty.len(), listed);
            }
        };
        check(Dirty::default(), 1);
        check(Dirty::unlisted(), 0);
    }
}
