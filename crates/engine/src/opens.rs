//! Counts of the opens of each inode, by session.
//!
//! Invariants:
//! - Counts are never 0: a closed inode has none.
//! - Opens are not journalled. After a restart sessions declare theirs again; until then nobody's orphan is freed.

use chiton_types::Ino;
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::sessions::Slot;

/// Opens of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    by_ino: HashMap<Ino, SmallVec<[(Slot, u32); 2]>>,
}

impl Opens {
    /// True if any session has `ino` open.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.by_ino.contains_key(&ino)
    }

    /// True if this session has `ino` open.
    pub(crate) fn has(&self, ino: Ino, slot: Slot) -> bool {
        self.by_ino.get(&ino).is_some_and(|holders| holders.iter().any(|(s, _)| *s == slot))
    }

    /// Sessions but `slot` that have `ino` open.
    pub(crate) fn others(&self, ino: Ino, slot: Slot) -> impl Iterator<Item = Slot> {
        let holders = self.by_ino.get(&ino).into_iter().flatten();
        holders.map(|(holder, _)| *holder).filter(move |holder| *holder != slot)
    }

    /// Counts a further open of the file by this session.
    pub(crate) fn add(&mut self, ino: Ino, slot: Slot) {
        let holders = self.by_ino.entry(ino).or_default();
        match holders.iter_mut().find(|(s, _)| *s == slot) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => holders.push((slot, 1)),
        }
    }

    /// The session says that it has `count` opens.
    pub(crate) fn declare(&mut self, ino: Ino, slot: Slot, count: u32) {
        if count == 0 {
            return;
        }
        let holders = self.by_ino.entry(ino).or_default();
        match holders.iter_mut().find(|(s, _)| *s == slot) {
            Some((_, known)) => *known = count.max(*known),
            None => holders.push((slot, count)),
        }
    }

    /// One open less; true if that was the last one of all sessions.
    pub(crate) fn subtract(&mut self, ino: Ino, slot: Slot) -> bool {
        let Some(holders) = self.by_ino.get_mut(&ino) else { return false };
        let Some(n) = holders.iter().position(|(s, _)| *s == slot) else { return false };
        holders[n].1 -= 1;
        if holders[n].1 == 0 {
            holders.swap_remove(n);
        }
        let last = holders.is_empty();
        if last {
            self.by_ino.remove(&ino);
        }
        last
    }

    /// The session is gone; returns what nobody has open any more, in order.
    pub(crate) fn drop_slot(&mut self, slot: Slot) -> Vec<Ino> {
        let mut closed = Vec::new();
        self.by_ino.retain(|&ino, holders| {
            holders.retain(|(s, _)| *s != slot);
            if holders.is_empty() {
                closed.push(ino);
            }
            !holders.is_empty()
        });
        closed.sort_unstable();
        closed
    }

    /// Inodes that are open.
    pub(crate) fn len(&self) -> usize {
        self.by_ino.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_close_is_noticed_once() {
        let mut opens = Opens::default();
        let (ino, other) = (Ino(7), Ino(8));
        opens.add(ino, Slot(1));
        opens.add(ino, Slot(1));
        opens.add(ino, Slot(2));
        opens.add(other, Slot(2));
        assert!(opens.is_open(ino) && !opens.is_open(Ino(9)));
        assert!(!opens.subtract(ino, Slot(1)));
        assert!(!opens.subtract(ino, Slot(3)), "a stranger closes nothing");
        assert!(!opens.subtract(ino, Slot(1)));
        assert!(!opens.subtract(ino, Slot(1)), "closed too often");
        assert_eq!(opens.drop_slot(Slot(2)), [ino, other]);
        assert!(!opens.is_open(ino));
        opens.declare(ino, Slot(1), 2);
        opens.declare(ino, Slot(1), 2);
        opens.declare(other, Slot(1), 0);
        assert!(!opens.subtract(ino, Slot(1)) && opens.subtract(ino, Slot(1)));
        assert_eq!(opens.len(), 0);
    }
}
