//! Inodes that a rename replaced: for a while they can still be asked for by number.
//!
//! ```text
//!   reader:  look up v ─▶ 10 ─────────────────▶ open 10, stat 10, chmod 10
//!   writer:              rename tmp over v (10 has no name any more)
//! ```
//!
//! A kernel resolves a path to a number first and asks for the number then. If that is gone it resolves the path once more, and a
//! writer that replaces the file again and again meets the second attempt as well: a path that always exists would answer
//! ESTALE. So what was replaced lives on as an orphan, longer than any call that has resolved the path before.
//!
//! Invariants:
//! - Every inode here is an orphan, and is freed like any other when its time is over.
//! - Nobody lingers while there is no space.

use std::collections::VecDeque;
use std::time::Duration;

use chiton_model::Op;
use chiton_types::Ino;

use crate::moment::{Health, Moment};
use crate::parts::Shards;
use crate::sessions::Slot;

/// How long an inode lingers.
const LINGER: Duration = Duration::from_secs(10);
/// How many at most; then the oldest goes early.
const LINGERING_MAX: usize = 65_536;

/// In the order in which they were replaced, each with the time (monotonic) at which it goes.
#[derive(Debug, Default)]
pub(crate) struct Lingering(VecDeque<(Duration, Ino)>);

impl Lingering {
    /// Adds one; returns the oldest if there are too many.
    fn add(&mut self, ino: Ino, mono: Duration) -> Option<Ino> {
        self.0.push_back((mono + LINGER, ino));
        if self.0.len() > LINGERING_MAX { self.0.pop_front().map(|(_, ino)| ino) } else { None }
    }

    /// Takes out one whose time is over; with `all` any.
    fn take(&mut self, mono: Duration, all: bool) -> Option<Ino> {
        let (until, ino) = *self.0.front()?;
        if until > mono && !all {
            return None;
        }
        self.0.pop_front();
        Some(ino)
    }
}

/// Whether what an operation replaces lingers.
pub(crate) fn lets_linger(op: &Op, slot: Slot, m: &Moment) -> bool {
    matches!(op, Op::Rename { .. }) && slot != Slot::SERVER && m.health == Health::Good && !m.store_full
}

impl Shards {
    /// An orphan was replaced by a rename.
    pub(crate) fn linger(&mut self, ino: Ino, m: &Moment) {
        let oldest = self.lingering.add(ino, m.mono);
        self.reclaims.extend(oldest);
    }

    /// Lets those go whose time is over.
    pub(crate) fn end_lingering(&mut self, m: &Moment) {
        let all = m.health != Health::Good || m.store_full;
        while let Some(ino) = self.lingering.take(m.mono, all) {
            self.reclaims.push_back(ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_all_go_without_space() {
        let secs = Duration::from_secs;
        let mut lingering = Lingering::default();
        assert_eq!(lingering.add(Ino(1), secs(5)), None);
        assert_eq!(lingering.add(Ino(2), secs(6)), None);
        assert_eq!(lingering.take(secs(5) + LINGER - Duration::from_nanos(1), false), None);
        assert_eq!(lingering.take(secs(5) + LINGER, false), Some(Ino(1)));
        assert_eq!(lingering.take(secs(5) + LINGER, false), None);
        assert_eq!(lingering.take(secs(5) + LINGER, true), Some(Ino(2)));
        for n in 0..LINGERING_MAX as u64 {
            assert_eq!(lingering.add(Ino(10 + n), secs(7)), None);
        }
        assert_eq!(lingering.add(Ino(9), secs(7)), Some(Ino(10)));
    }
}
