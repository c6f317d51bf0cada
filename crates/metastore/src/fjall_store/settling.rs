//! The commits that are in tables, and those that only the library's journal holds.

use std::collections::VecDeque;

/// Which commits are in tables, by their count since the store was opened. One damaged byte loses commits that are
/// only in the library's journal, so the file system's own journal keeps these.
#[derive(Clone, Debug, Default)]
pub(super) struct Settling {
    pub(super) commits: u64,
    /// Committed since a memtable was frozen last.
    pub(super) bytes: usize,
    /// For each memtable that was frozen, to become a table, the last commit in it. They become tables in this order.
    pub(super) frozen: VecDeque<u64>,
    /// All up to this one are in tables.
    pub(super) settled: u64,
}

impl Settling {
    /// So many frozen memtables are no tables yet.
    pub(super) fn note_frozen(&mut self, left: usize) {
        while self.frozen.len() > left {
            self.settled = self.frozen.pop_front().unwrap_or(self.settled);
        }
    }

    /// All is in tables.
    pub(super) fn note_all(&mut self) {
        // Commits from before the store was opened are in tables now, too, and count with the first.
        self.commits = self.commits.max(1);
        (self.bytes, self.settled) = (0, self.commits);
        self.frozen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_settled_with_their_memtables_in_order() {
        let mut settling = Settling { commits: 9, frozen: [2, 5, 9].into(), ..Settling::default() };
        for (left, settled) in [(4, 0), (3, 0), (2, 2), (2, 2), (0, 9)] {
            settling.note_frozen(left);
            assert_eq!(settling.settled, settled, "{left} frozen memtables are left");
        }
    }
}
