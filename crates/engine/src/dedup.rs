//! The dedup of a session: the outcomes of its latest operations.
//!
//! ```text
//!   seq:    settled … base │ 7 ✓ │ 8 – │ 9 ✓ │ …       – refused, or not seen yet
//! ```
//!
//! Invariants:
//! - An operation that was carried out stays known until the client has settled it; a repeated one is answered from
//!   here and never carried out again.
//! - A refused operation leaves no trace: a client that sends it again never saw an answer, so a later one is as good. The
//!   exception is one that was answered before a crash and is refused after it: other clients may have seen what it would undo.
//! - The dedup is rebuilt from journal frames, so it says no more than they do.

use std::collections::VecDeque;

use chiton_model::Gone;
use chiton_types::{Ino, Malformed, Position, Put, Seq, Take, Time};

/// Most operations that a session may have unsettled.
pub(crate) const UNSETTLED_OPS_MAX: u64 = 1 << 22;

/// A flag after the numbers of an operation in a session row: the inode that lost its name became an orphan; a time follows.
const ORPHAN: u8 = 1;
const BORN: u8 = 2;

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    carried_out: bool,
    /// Position of its last event; 0: the journal holds nothing of it, because it changed nothing, or nothing that is
    /// journalled.
    pub(crate) position: Position,
    /// The inode it was about; 0: none.
    pub(crate) subject: Ino,
    /// The inode that lost its last name; 0: none.
    gone: Ino,
    gone_orphan: bool,
    /// When the subject was born, if that is a directory on another plate, which knows it; 0: it is not.
    pub(crate) born: Time,
    /// It was answered before a crash, and refused after it.
    is_refused: bool,
    /// The open that came with it is counted in this life of the server.
    pub(crate) open_counted: bool,
}

impl Done {
    pub(crate) fn new(
        position: Position,
        subject: Option<Ino>,
        gone: Option<Gone>,
        open_counted: bool,
    ) -> Done {
        Done {
            carried_out: true,
            position,
            subject: subject.unwrap_or_default(),
            gone: gone.map(|g| g.ino).unwrap_or_default(),
            gone_orphan: gone.is_some_and(|g| g.orphan),
            born: Time(0),
            is_refused: false,
            open_counted,
        }
    }

    /// It made a directory on another plate, at this time.
    pub(crate) fn born_at(self, born: Option<Time>) -> Done {
        Done { born: born.unwrap_or_default(), ..self }
    }

    /// Refused after a crash.
    pub(crate) const REFUSED: Done = Done {
        carried_out: false,
        position: Position(0),
        subject: Ino(0),
        gone: Ino(0),
        gone_orphan: false,
        born: Time(0),
        is_refused: true,
        open_counted: false,
    };

    pub(crate) fn gone(&self) -> Option<Gone> {
        (self.gone != Ino(0)).then_some(Gone { ino: self.gone, orphan: self.gone_orphan })
    }
}

/// The state of the operation with a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The operation is yet to be carried out.
    New,
    /// The operation was carried out; its result is sent again.
    Done(Done),
    /// The operation was refused, and stays refused.
    Refused,
    /// The client said before that it knows the outcome, or it is absurdly far ahead: a breach of the protocol.
    Absurd,
}

/// The results of the latest operations of a session, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dedup {
    /// Everything below is settled.
    base: u64,
    done: VecDeque<Done>,
}

impl Dedup {
    /// Whether the operation with this number is new, done or refused.
    pub(crate) fn standing(&self, seq: Seq) -> Standing {
        match seq.0.checked_sub(self.base) {
            None => Standing::Absurd,
            Some(n) if n >= UNSETTLED_OPS_MAX => Standing::Absurd,
            Some(n) => match self.done.get(n as usize) {
                Some(done) if done.carried_out => Standing::Done(*done),
                Some(done) if done.is_refused => Standing::Refused,
                _ => Standing::New,
            },
        }
    }

    /// `seq` was carried out. Settled or absurd ones are passed over (a replay may meet them).
    pub(crate) fn record(&mut self, seq: Seq, done: Done) {
        if self.standing(seq) == Standing::Absurd {
            return;
        }
        let n = (seq.0 - self.base) as usize;
        if n >= self.done.len() {
            self.done.resize(n, Done::default());
            self.done.push_back(done);
        } else {
            self.done[n] = done;
        }
    }

    /// The open that came with `seq` is counted now.
    pub(crate) fn open_counted(&mut self, seq: Seq) {
        if let Some(done) = seq.0.checked_sub(self.base).and_then(|n| self.done.get_mut(n as usize)) {
            done.open_counted = true;
        }
    }

    /// The client knows the outcome of everything below `seq`.
    pub(crate) fn settle(&mut self, seq: Seq) {
        let Some(n) = seq.0.checked_sub(self.base).filter(|&n| n > 0) else { return };
        if n >= self.done.len() as u64 {
            self.done.clear();
        } else {
            self.done.drain(..n as usize);
        }
        self.base = seq.0;
        if self.done.capacity() > 64 && self.done.len() < self.done.capacity() / 8 {
            self.done.shrink_to(self.done.len() * 2);
        }
    }

    /// Runs of operations that were carried out and are not settled: of each the first, and the first past it.
    pub(crate) fn carried_out(&self) -> Vec<(Seq, Seq)> {
        let mut runs: Vec<(Seq, Seq)> = Vec::new();
        for (seq, _) in (self.base..).zip(&self.done).filter(|(_, done)| done.carried_out) {
            match runs.last_mut() {
                Some((_, end)) if end.0 == seq => end.0 += 1,
                _ => runs.push((Seq(seq), Seq(seq + 1))),
            }
        }
        runs
    }

    /// Operations in the dedup.
    pub(crate) fn len(&self) -> usize {
        self.done.len()
    }

    /// Appends the encoding for a session row.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.base);
        out.put_varint(self.done.len() as u64);
        for done in &self.done {
            out.put_varint(if done.carried_out { done.position.0 + 2 } else { u64::from(done.is_refused) });
            if done.carried_out {
                out.put_varint(done.subject.0);
                out.put_varint(done.gone.0);
                let is_born = done.born != Time(0);
                out.put_u8(u8::from(done.gone_orphan) | if is_born { BORN } else { 0 });
                if is_born {
                    out.put_i64(done.born.0);
                }
            }
        }
    }

    /// Reads what [`Dedup::encode`] wrote.
    pub(crate) fn decode(from: &mut Take<'_>) -> Result<Dedup, Malformed> {
        let base = from.varint()?;
        let n = from.count(1)?;
        let mut dedup = Dedup { base, done: VecDeque::new() };
        for _ in 0..n {
            let mut done = Done::default();
            let tag = from.varint()?;
            done.is_refused = tag == 1;
            if let Some(position) = tag.checked_sub(2) {
                done.carried_out = true;
                done.position = Position(position);
                done.subject = Ino(from.varint()?);
                done.gone = Ino(from.varint()?);
                let flags = from.u8()?;
                done.gone_orphan = flags & ORPHAN != 0;
                if flags & BORN != 0 {
                    done.born = Time(from.i64()?);
                }
            }
            dedup.done.push_back(done);
        }
        Ok(dedup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(position: u64) -> Done {
        Done::new(Position(position), Some(Ino(position + 100)), None, false)
    }

    #[test]
    fn outcomes_are_kept_until_settled() {
        let mut w = Dedup::default();
        for (seq, position) in [(1, 10), (4, 12), (2, 11)] {
            w.record(Seq(seq), done(position));
        }
        let check =
            |w: &Dedup, seq: u64, expect: Standing| assert_eq!(w.standing(Seq(seq)), expect, "seq {seq}");
        check(&w, 1, Standing::Done(done(10)));
        check(&w, 2, Standing::Done(done(11)));
        check(&w, 3, Standing::New);
        check(&w, 4, Standing::Done(done(12)));
        check(&w, 5, Standing::New);
        assert_eq!(w.carried_out(), [(Seq(1), Seq(3)), (Seq(4), Seq(5))]);
        check(&w, UNSETTLED_OPS_MAX, Standing::Absurd);
        w.settle(Seq(3));
        check(&w, 2, Standing::Absurd);
        check(&w, 3, Standing::New);
        check(&w, 4, Standing::Done(done(12)));
        w.settle(Seq(2));
        check(&w, 4, Standing::Done(done(12)));
        w.settle(Seq(1000));
        check(&w, 1000, Standing::New);
        w.record(Seq(1000), done(20));
        check(&w, 1000, Standing::Done(done(20)));
        w.record(Seq(1), done(1));
        assert_eq!(w.len(), 1);
    }

    #[test]
    fn rows_round_trip() {
        let mut w = Dedup::default();
        w.settle(Seq(9));
        // Without a trace in the journal, and known all the same.
        w.record(Seq(10), Done::new(Position(0), Some(Ino(4)), None, false));
        w.record(
            Seq(12),
            Done::new(Position(3), Some(Ino(4)), Some(Gone { ino: Ino(4), orphan: true }), false),
        );
        w.record(Seq(14), Done::REFUSED);
        let mut bytes = Vec::new();
        w.encode(&mut bytes);
        let mut take = Take::new(&bytes);
        let back = Dedup::decode(&mut take).expect("decodes");
        assert!(take.is_empty());
        assert_eq!((back.base, &back.done), (w.base, &w.done));
        assert_eq!(back.standing(Seq(9)), Standing::New);
        assert_eq!(back.standing(Seq(14)), Standing::Refused);
        assert_eq!(back.carried_out(), [(Seq(10), Seq(11)), (Seq(12), Seq(13))]);
        assert!(matches!(back.standing(Seq(10)), Standing::Done(done) if done.position == Position(0)));
        for cut in 0..bytes.len() {
            assert!(Dedup::decode(&mut Take::new(&bytes[..cut])).is_err());
        }
    }
}
