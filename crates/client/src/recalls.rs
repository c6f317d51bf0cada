//! Which leases were recalled lately, so that an answer that was under way meanwhile grants nothing.
//!
//! ```text
//!   thread:  mark = now()   ask ─────────────── answer "Shared"   recalled_since(mark, ino)? then do not cache
//!   recall:                      note(ino), acknowledge
//! ```
//! Answers and recalls travel on two connections: without this, a lease that was granted first and recalled
//! at once could be believed for ever.
//!
//! Invariants:
//! - `recalled_since` never says no wrongly: a lease that is no longer remembered counts as recalled.

use std::sync::atomic::{AtomicU64, Ordering};

use chiton_runtime::sync::Mutex;
use chiton_types::Ino;
use chiton_wire::Recall;
use hashbrown::HashMap;

/// Inodes remembered, at least. A call that meets more while it is under way caches nothing.
const REMEMBERED: usize = 4096;

/// A point in the history of recalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The recalls of one session, in order.
#[derive(Debug, Default)]
pub struct Recalls {
    /// Number of the last one. Also read without the lock: mostly nothing was recalled.
    last: AtomicU64,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    /// Number of the last recall of each inode: the younger ones, and those before.
    young: HashMap<Ino, u64>,
    old: HashMap<Ino, u64>,
    /// Number of the last one that may be forgotten.
    forgotten: u64,
    /// The number at which `young` began.
    began: u64,
}

impl Recalls {
    /// To be taken before a call that may grant a lease.
    pub fn now(&self) -> Mark {
        Mark(self.last.load(Ordering::SeqCst))
    }

    /// A lease on `ino` is given up, or all are (before anything cached under it is dropped).
    pub fn note(&self, ino: Ino) {
        if ino == Recall::EVERYTHING {
            return self.note_all();
        }
        let mut history = self.history.lock();
        let number = self.last.load(Ordering::SeqCst) + 1;
        if history.young.len() >= REMEMBERED {
            history.old = std::mem::take(&mut history.young);
            history.forgotten = history.began;
            history.began = number - 1;
        }
        history.young.insert(ino, number);
        self.last.store(number, Ordering::SeqCst);
    }

    /// All leases are void.
    pub fn note_all(&self) {
        let mut history = self.history.lock();
        let number = self.last.load(Ordering::SeqCst) + 1;
        *history = History { forgotten: number, began: number, ..History::default() };
        self.last.store(number, Ordering::SeqCst);
    }

    /// Whether a lease on `ino` may have been recalled since `mark`.
    pub fn recalled_since(&self, mark: Mark, ino: Ino) -> bool {
        if self.last.load(Ordering::SeqCst) == mark.0 {
            return false;
        }
        let history = self.history.lock();
        let last = history.young.get(&ino).or_else(|| history.old.get(&ino));
        mark.0 < history.forgotten || last.is_some_and(|&number| number > mark.0)
    }

    /// Whether all leases may have become void since `mark`, as by a restart of the server.
    pub fn voided_since(&self, mark: Mark) -> bool {
        self.last.load(Ordering::SeqCst) != mark.0 && mark.0 < self.history.lock().forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recall_after_the_mark_is_seen_and_forgotten_ones_count() {
        let recalls = Recalls::default();
        recalls.note(Ino(7));
        let mark = recalls.now();
        assert!(!recalls.recalled_since(mark, Ino(7)));
        recalls.note(Ino(7));
        assert!(recalls.recalled_since(mark, Ino(7)));
        assert!(!recalls.recalled_since(mark, Ino(8)));
        for n in 0..=2 * REMEMBERED as u64 {
            recalls.note(Ino(100 + n));
        }
        assert!(recalls.recalled_since(mark, Ino(8)), "forgotten counts as recalled");
        assert!(recalls.voided_since(mark), "and as void");
        let mark = recalls.now();
        recalls.note(Ino(7));
        assert!(!recalls.voided_since(mark));
        recalls.note_all();
        assert!(recalls.voided_since(mark) && !recalls.voided_since(recalls.now()));
        assert!(recalls.recalled_since(mark, Ino(8)));
        assert!(!recalls.recalled_since(recalls.now(), Ino(8)));
        let mark = recalls.now();
        recalls.note(Recall::EVERYTHING);
        assert!(recalls.recalled_since(mark, Ino(8)));
    }
}
