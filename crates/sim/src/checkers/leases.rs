//! Leases: a client's cache is true whenever the client trusts it (S2, S4).
//!
//! Two views of it. [`Holders`] follows the holders of leases: never an exclusive lease beside another one, no
//! change under another session's lease, no read from a cache without one. A holder that has not heard of the
//! server for too long no longer trusts its cache (S5), and does not count. [`Values`] knows nothing of leases and
//! compares what callers saw: a read that begins after a write was acknowledged sees that write or a later one, on
//! any client, cached or not.

use std::collections::BTreeMap;

use chiton_types::{Ino, SessionId};
use chiton_wire::{LeaseMode, Recall};

use crate::checkers::violation;
use crate::history::Violation;

const CHECKER: &str = "leases";

/// The holders of leases, from the server's grants to the clients' releases (or the end of their sessions).
#[derive(Clone, Debug, Default)]
pub struct Holders {
    held: BTreeMap<(Ino, SessionId), Hold>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    mode: LeaseMode,
    since: Moment,
}

impl Holders {
    /// The server grants a lease (or leaves one as it is). `believers`: sessions that have heard of the server lately.
    ///
    /// # Errors
    /// If another of them holds one that excludes it.
    pub fn granted(
        &mut self,
        (session, ino, mode): (SessionId, Ino, LeaseMode),
        at: Moment,
        believers: &[SessionId],
    ) -> Result<(), Violation> {
        if mode == LeaseMode::None {
            return Ok(());
        }
        for (other, theirs) in self.others(session, ino, believers) {
            if mode == LeaseMode::Exclusive || theirs.mode == LeaseMode::Exclusive {
                let theirs = theirs.mode;
                return Err(violation(
                    CHECKER,
                    format!(
                        "session {session} is granted a lease {mode:?} on inode {ino}, session {other} still holds one \
                     {theirs:?}"
                    ),
                ));
            }
        }
        let held = self.held.entry((ino, session)).or_insert(Hold { mode, since: at });
        held.mode = mode.max(held.mode);
        Ok(())
    }

    /// A change that another session had requested at `asked` is answered now.
    ///
    /// # Errors
    /// If another session has held a lease on it all that time.
    pub fn changed(
        &self,
        session: SessionId,
        ino: Ino,
        asked: Moment,
        believers: &[SessionId],
    ) -> Result<(), Violation> {
        match self.others(session, ino, believers).find(|(_, theirs)| theirs.since < asked) {
            Some((other, theirs)) => Err(violation(
                CHECKER,
                format!(
                    "session {session} changed inode {ino}, on which session {other} held a lease {:?} all the time",
                    theirs.mode
                ),
            )),
            None => Ok(()),
        }
    }

    fn others(
        &self,
        session: SessionId,
        ino: Ino,
        believers: &[SessionId],
    ) -> impl Iterator<Item = (SessionId, Hold)> {
        let holds = self.held.range((ino, SessionId(0))..=(ino, SessionId(u64::MAX)));
        let others = holds.map(|((_, other), hold)| (*other, *hold));
        others.filter(move |(other, _)| *other != session && believers.contains(other))
    }

    /// A client gave a lease back but for `keep` ([`Recall::EVERYTHING`]: all that it has).
    pub fn gave_back(&mut self, session: SessionId, ino: Ino, keep: LeaseMode) {
        if ino == Recall::EVERYTHING && keep != LeaseMode::None {
            let theirs = self.held.iter_mut().filter(|((_, other), _)| *other == session);
            return theirs.for_each(|(_, held)| held.mode = keep.min(held.mode));
        }
        if keep == LeaseMode::None {
            self.held.remove(&(ino, session));
        } else if let Some(held) = self.held.get_mut(&(ino, session)) {
            held.mode = keep.min(held.mode);
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
        let held = self.held.get(&(ino, session)).map_or(LeaseMode::None, |hold| hold.mode);
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

/// Observations of things that are written as a whole: files, names, attributes.
#[derive(Clone, Debug, Default)]
pub struct Values {
    writes: BTreeMap<(String, u64), (Moment, Option<Moment>)>,
}

impl Values {
    /// A write of version `value` (unique for this thing) to a thing begins.
    pub fn write_begins(&mut self, thing: &str, value: u64, at: Moment) {
        self.writes.insert((thing.to_owned(), value), (at, None));
    }

    pub fn write_ends(&mut self, thing: &str, value: u64, at: Moment) {
        if let Some((_, end)) = self.writes.get_mut(&(thing.to_owned(), value)) {
            *end = Some(at);
        }
    }

    /// A read that took from `begun` to `ended` saw version `value` (0: as it was before the first write).
    ///
    /// # Errors
    /// If that value was overwritten before the read began, or no write of it had begun.
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

    const BOTH: [SessionId; 2] = [A, B];

    #[test]
    fn leases_that_exclude_each_other_are_seen() {
        let mut h = Holders::default();
        let grant = |h: &mut Holders, who, ino, mode| h.granted((who, ino, mode), 1, &BOTH);
        assert_eq!(grant(&mut h, A, I, LeaseMode::Shared), Ok(()));
        assert_eq!(grant(&mut h, B, I, LeaseMode::Shared), Ok(()));
        assert!(grant(&mut h, A, I, LeaseMode::Exclusive).is_err(), "B still reads");
        h.gave_back(B, I, LeaseMode::None);
        assert_eq!(grant(&mut h, A, I, LeaseMode::Exclusive), Ok(()));
        assert!(grant(&mut h, B, I, LeaseMode::Shared).is_err(), "A still writes");
        assert_eq!(h.granted((B, I, LeaseMode::Shared), 1, &[B]), Ok(()), "A believes nothing any more");
        h.gave_back(B, I, LeaseMode::None);
        h.gave_back(A, I, LeaseMode::Shared);
        assert_eq!(grant(&mut h, B, I, LeaseMode::Shared), Ok(()));
        assert_eq!(grant(&mut h, A, Ino(8), LeaseMode::Exclusive), Ok(()), "another inode");
        h.ended(A);
        assert_eq!(grant(&mut h, B, I, LeaseMode::Exclusive), Ok(()));
    }

    #[test]
    fn a_change_under_anothers_lease_is_seen() {
        let mut h = Holders::default();
        h.granted((A, I, LeaseMode::Shared), 10, &BOTH).unwrap();
        assert!(h.changed(B, I, 11, &BOTH).is_err(), "A holds it all the time");
        assert_eq!(h.changed(A, I, 11, &BOTH), Ok(()), "its own");
        assert_eq!(h.changed(B, Ino(8), 11, &BOTH), Ok(()), "another inode");
        assert_eq!(h.changed(B, I, 9, &BOTH), Ok(()), "it may have been granted afterwards");
        assert_eq!(h.changed(B, I, 11, &[B]), Ok(()), "A believes nothing any more");
        h.granted((A, I, LeaseMode::Shared), 12, &BOTH).unwrap();
        assert!(h.changed(B, I, 11, &BOTH).is_err(), "granted again what was never given back");
        h.gave_back(A, I, LeaseMode::None);
        assert_eq!(h.changed(B, I, 13, &BOTH), Ok(()));
    }

    #[test]
    fn beliefs_without_a_lease_are_seen() {
        let mut h = Holders::default();
        assert!(h.believed(A, I, false).is_err(), "never granted");
        h.granted((A, I, LeaseMode::Shared), 1, &BOTH).unwrap();
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
