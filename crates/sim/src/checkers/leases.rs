//! Leases: what a client believes from its cache is true at that moment (S2, S4).
//!
//! Two views of it. [`Holders`] follows who holds what: never an exclusive lease beside another one, no read from a
//! cache without a lease. [`Values`] knows nothing of leases and looks at what callers saw: a read that begins after a
//! write was answered sees that write or a later one, whoever asks, cached or not.

use std::collections::BTreeMap;

use chiton_proto::LeaseMode;
use chiton_types::{Ino, SessionId};

use crate::checkers::violation;
use crate::history::Violation;

const CHECKER: &str = "leases";

/// Who may believe what, from the server's grants to the clients' giving back (or the end of their sessions).
#[derive(Clone, Debug, Default)]
pub struct Holders {
    held: BTreeMap<(Ino, SessionId), LeaseMode>,
}

impl Holders {
    /// The server grants a lease (or leaves one as it is).
    ///
    /// # Errors
    /// If another client holds one that excludes it.
    pub fn granted(&mut self, session: SessionId, ino: Ino, mode: LeaseMode) -> Result<(), Violation> {
        if mode == LeaseMode::None {
            return Ok(());
        }
        let others = self.held.range((ino, SessionId(0))..=(ino, SessionId(u64::MAX)));
        for ((_, other), theirs) in others.filter(|((_, other), _)| *other != session) {
            if mode == LeaseMode::Exclusive || *theirs == LeaseMode::Exclusive {
                return Err(violation(
                    CHECKER,
                    format!(
                        "session {session} is granted a lease {mode:?} on inode {ino}, session {other} still holds one \
                     {theirs:?}"
                    ),
                ));
            }
        }
        let held = self.held.entry((ino, session)).or_insert(mode);
        *held = mode.max(*held);
        Ok(())
    }

    /// A client gave a lease back but for `keep`.
    pub fn gave_back(&mut self, session: SessionId, ino: Ino, keep: LeaseMode) {
        if keep == LeaseMode::None {
            self.held.remove(&(ino, session));
        } else if let Some(held) = self.held.get_mut(&(ino, session)) {
            *held = keep.min(*held);
        }
    }

    /// A session is over, or all that it cached is void.
    pub fn ended(&mut self, session: SessionId) {
        self.held.retain(|(_, other), _| *other != session);
    }

    /// A client answers a read from its cache, or (`writes`) buffers a change.
    ///
    /// # Errors
    /// If it holds no lease that allows it.
    pub fn believed(&self, session: SessionId, ino: Ino, writes: bool) -> Result<(), Violation> {
        let held = self.held.get(&(ino, session)).copied().unwrap_or(LeaseMode::None);
        let wanted = if writes { LeaseMode::Exclusive } else { LeaseMode::Shared };
        if held >= wanted {
            return Ok(());
        }
        let what = if writes { "buffers a change of" } else { "answers from its cache about" };
        Err(violation(CHECKER, format!("session {session} {what} inode {ino} under a lease {held:?}")))
    }
}

/// A moment in the order of a simulation: grows, unique.
pub type Moment = u64;

/// What callers saw of things that are written as a whole: files, names, attributes.
#[derive(Clone, Debug, Default)]
pub struct Values {
    writes: BTreeMap<(String, u64), (Moment, Option<Moment>)>,
}

impl Values {
    /// A write of version `value` (unique for this thing) to a thing begins.
    pub fn write_begins(&mut self, thing: &str, value: u64, at: Moment) {
        self.writes.insert((thing.to_owned(), value), (at, None));
    }

    /// It was answered.
    pub fn write_ends(&mut self, thing: &str, value: u64, at: Moment) {
        if let Some((_, end)) = self.writes.get_mut(&(thing.to_owned(), value)) {
            *end = Some(at);
        }
    }

    /// A read that took from `begun` to `ended` saw version `value` (0: as it was before the first write).
    ///
    /// # Errors
    /// If that was overwritten before the read began, or nobody had begun to write it.
    pub fn read(&self, thing: &str, value: u64, begun: Moment, ended: Moment) -> Result<(), Violation> {
        let of_thing = self.writes.range((thing.to_owned(), 0)..=(thing.to_owned(), u64::MAX));
        let seen_ended = match value {
            0 => Some(0),
            _ => {
                let written = self.writes.get(&(thing.to_owned(), value)).filter(|(from, _)| *from < ended);
                let unwritten = || {
                    violation(
                        CHECKER,
                        format!("{thing} was read as version {value}, which nobody had written"),
                    )
                };
                written.ok_or_else(unwritten)?.1
            }
        };
        // Written wholly after the version that was seen, and answered before the read began.
        let newer = of_thing.filter(|(_, (from, to))| {
            seen_ended.is_some_and(|seen| *from > seen) && to.is_some_and(|to| to < begun)
        });
        match newer.map(|((_, newer), times)| (*newer, *times)).next() {
            Some((newer, (_, answered))) => Err(violation(
                CHECKER,
                format!(
                    "{thing} was read as version {value} from {begun} to {ended}: stale, version {newer} was answered at {}",
                    answered.unwrap_or_default()
                ),
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const I: Ino = Ino(7);

    #[test]
    fn leases_that_exclude_each_other_are_seen() {
        let mut h = Holders::default();
        assert_eq!(h.granted(A, I, LeaseMode::Shared), Ok(()));
        assert_eq!(h.granted(B, I, LeaseMode::Shared), Ok(()));
        assert!(h.granted(A, I, LeaseMode::Exclusive).is_err(), "B still reads");
        h.gave_back(B, I, LeaseMode::None);
        assert_eq!(h.granted(A, I, LeaseMode::Exclusive), Ok(()));
        assert!(h.granted(B, I, LeaseMode::Shared).is_err(), "A still writes");
        h.gave_back(A, I, LeaseMode::Shared);
        assert_eq!(h.granted(B, I, LeaseMode::Shared), Ok(()));
        assert_eq!(h.granted(A, Ino(8), LeaseMode::Exclusive), Ok(()), "another inode");
        h.ended(A);
        assert_eq!(h.granted(B, I, LeaseMode::Exclusive), Ok(()));
    }

    #[test]
    fn beliefs_without_a_lease_are_seen() {
        let mut h = Holders::default();
        assert!(h.believed(A, I, false).is_err(), "never granted");
        h.granted(A, I, LeaseMode::Shared).unwrap();
        assert_eq!(h.believed(A, I, false), Ok(()));
        assert!(h.believed(A, I, true).is_err(), "a shared lease buffers nothing");
        assert!(h.believed(B, I, false).is_err(), "another's lease");
        h.gave_back(A, I, LeaseMode::None);
        assert!(h.believed(A, I, false).is_err(), "after a recall");
    }

    #[test]
    fn stale_reads_are_seen() {
        let mut v = Values::default();
        v.write_begins("f", 1, 10);
        v.write_ends("f", 1, 20);
        v.write_begins("f", 2, 30);
        // While the second write runs, both may be seen; from its answer on only it.
        for value in [1, 2] {
            assert_eq!(v.read("f", value, 35, 36), Ok(()));
        }
        v.write_ends("f", 2, 40);
        assert_eq!(v.read("f", 1, 39, 45), Ok(()), "it began before the answer");
        assert_eq!(v.read("f", 2, 41, 45), Ok(()));
        assert!(v.read("f", 1, 41, 45).unwrap_err().what.contains("stale, version 2 was answered at 40"));
        assert!(v.read("f", 0, 41, 45).is_err(), "as it was before all writes");
        assert!(v.read("f", 3, 41, 45).unwrap_err().what.contains("nobody had written"));
        assert_eq!(v.read("g", 0, 41, 45), Ok(()), "another thing");
        // Two that were written side by side: either may have been the last.
        v.write_begins("f", 4, 50);
        v.write_begins("f", 5, 51);
        v.write_ends("f", 5, 52);
        v.write_ends("f", 4, 53);
        for value in [4, 5] {
            assert_eq!(v.read("f", value, 60, 61), Ok(()));
        }
        assert!(v.read("f", 2, 60, 61).is_err());
    }
}
