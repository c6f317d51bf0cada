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
//! - `recalled_since` never says no wrongly: what is no longer remembered counts as recalled.

use std::collections::VecDeque;

use chiton_types::Ino;
use parking_lot::Mutex;

/// Recalls remembered. A call that meets more of them while it is under way caches nothing.
const REMEMBERED: usize = 4096;

/// A point in the history of recalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The recalls of one session, in order.
#[derive(Debug, Default)]
pub struct Recalls(Mutex<History>);

#[derive(Debug, Default)]
struct History {
    /// Number of the first one still in `last`.
    first: u64,
    last: VecDeque<Ino>,
}

impl Recalls {
    /// To be taken before a call that may grant a lease.
    pub fn now(&self) -> Mark {
        let history = self.0.lock();
        Mark(history.first + history.last.len() as u64)
    }

    /// A lease on `ino` is given up (before anything cached under it is dropped).
    pub fn note(&self, ino: Ino) {
        let mut history = self.0.lock();
        history.last.push_back(ino);
        if history.last.len() > REMEMBERED {
            history.last.pop_front();
            history.first += 1;
        }
    }

    /// All leases are void.
    pub fn note_all(&self) {
        let mut history = self.0.lock();
        history.first += history.last.len() as u64 + 1;
        history.last.clear();
    }

    /// Whether a lease on `ino` may have been recalled since `mark`.
    pub fn recalled_since(&self, mark: Mark, ino: Ino) -> bool {
        let history = self.0.lock();
        if mark.0 < history.first {
            return true;
        }
        let skip = (mark.0 - history.first) as usize;
        history.last.iter().skip(skip).any(|&recalled| recalled == ino)
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
        for _ in 0..=REMEMBERED {
            recalls.note(Ino(9));
        }
        assert!(recalls.recalled_since(mark, Ino(8)), "forgotten counts as recalled");
        let mark = recalls.now();
        recalls.note_all();
        assert!(recalls.recalled_since(mark, Ino(8)));
        assert!(!recalls.recalled_since(recalls.now(), Ino(8)));
    }
}
