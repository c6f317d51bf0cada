//! What a client answered by itself: operations on the names of a directory that it holds exclusively, told afterwards.
//!
//! ```text
//!   client: LeaseNames(dir) ─▶ the lease, numbers for inodes        (nobody else holds anything on the directory)
//!           create a ✓ create b ✓ …  ─ Ahead[a, b, …] ─▶ planned again, in order, with the number and the time that
//!                                                        their callers were told
//!   other:  lookup, create … in dir ─▶ recall ─▶ what was not told yet is, then the lease is given back ─▶ the answer
//! ```
//!
//! Invariants:
//! - An operation is planned like any other: a client that promised what cannot be is refused.
//! - A number is used that was granted to this session and that it has not used; after a restart one that was reserved
//!   before and bears no inode. So no number is used twice.
//! - Its time is one that the client may have told by the clock that it was given: not before it was given the names, nor
//!   in the future. What lies outside is moved to the nearest that does not, and the client is given no lease on it.
//! - While there is no space what was promised is not refused, one by one: the client is told so for all, and asks again.

use std::time::Duration;

use chiton_model::{Body, Make, Op, Outcome};
use chiton_types::{Cred, Ino, Kind, Position, Refusal, Seq, SessionId, Time, access};
use chiton_wire::{Answer, BATCH_OPS_MAX, Call, Failure, Foretold, LeaseMode};

use crate::engine::Engine;
use crate::execute::Asked;
use crate::moment::{Health, Moment};
use crate::parts::Clients;
use crate::sessions::{Session, Slot};
use crate::step::Stop;
use crate::wait_queue::{Task, Wait};

/// Most numbers that are granted at a time.
const NUMBERS_MAX: u32 = 16_384;
/// Most ranges of numbers that a session may have left: who lets more lie is given no more names.
const RANGES_MAX: usize = 1_024;

/// So far may a time that a client has told lie ahead of the server's clock.
pub(crate) const SKEW: Duration = Duration::from_secs(60);
/// The client's clock may gain one part in so many.
const DRIFT_PARTS: u32 = 32;

/// What a session was told of the server's clock: whoever answers by himself goes on from that.
#[derive(Debug, Default)]
pub(crate) struct ToldClock {
    told: Option<Told>,
    /// The latest time of what it answered by itself.
    last: Time,
}

#[derive(Debug)]
struct Told {
    /// The earliest time that a client was given.
    first: Time,
    /// The furthest ahead that the clock was of the time since the server began, and when it was last.
    ahead_ns: i64,
    since: Duration,
}

impl ToldClock {
    fn tell(&mut self, now: Time, mono: Duration) {
        let ahead_ns = now.0.saturating_sub(nanos(mono));
        match &mut self.told {
            None => self.told = Some(Told { first: now, ahead_ns, since: mono }),
            Some(told) => {
                told.first = told.first.min(now);
                if ahead_ns >= told.ahead_ns {
                    (told.ahead_ns, told.since) = (ahead_ns, mono);
                }
            }
        }
    }

    /// What it answered by itself took place at this time.
    pub(crate) fn answered(&mut self, time: Time) {
        self.last = self.last.max(time);
    }

    /// When something takes place that it asks for: its time does not go back behind what it answered by itself, unless our
    /// clock was set.
    fn now(&self, now: Time) -> Time {
        let is_near = self.last.0 <= now.0.saturating_add(nanos(SKEW));
        if is_near { now.max(self.last) } else { now }
    }

    /// What its clock, going on from that, may show by now, from the earliest to the latest.
    fn span(&self, mono: Duration) -> Option<(Time, Time)> {
        let told = self.told.as_ref()?;
        let gain = mono.saturating_sub(told.since) / DRIFT_PARTS;
        let latest = told.ahead_ns.saturating_add(nanos(mono)).saturating_add(nanos(gain + SKEW));
        Some((told.first, Time(latest)))
    }
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// Inode numbers that a session may use by itself.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Vec<(Ino, Ino)>);

impl Numbers {
    fn grant(&mut self, first: Ino, end: Ino) {
        self.0.push((first, end));
    }

    fn has(&self, ino: Ino) -> bool {
        self.0.iter().any(|(next, end)| (*next..*end).contains(&ino))
    }

    /// A number is used: it, and those before it in its range, cannot be used again.
    fn take(&mut self, ino: Ino) {
        for (next, end) in &mut self.0 {
            if (*next..*end).contains(&ino) {
                *next = Ino(ino.0 + 1);
            }
        }
        self.0.retain(|(next, end)| next < end);
    }
}

impl Engine {
    /// The names of a directory for one session, with numbers, if nothing is in the way; nobody is asked to give anything
    /// up for it.
    pub(crate) fn lease_names(
        &mut self,
        dir: Ino,
        numbers: u32,
        (session, slot): (SessionId, Slot),
        cred: &Cred,
        m: &Moment,
    ) -> Result<Answer, Stop> {
        let attr = self.shards.ns.attr(dir)?;
        if attr.kind != Kind::Dir {
            return Err(Refusal::NotDir.into());
        }
        self.shards.ns.access(cred, dir, access::WRITE | access::EXEC)?;
        let none = (Ino(0), Ino(0));
        if !self.may_work_ahead(dir, session, cred, m)? {
            return Ok(Answer::Names { leased: false, attr, numbers: none, now: m.now });
        }
        let count = u64::from(numbers.min(NUMBERS_MAX));
        // Looked at first, and taken when all is decided.
        if let Err(position) = self.shards.inodes.offer(dir.shard(), m.durable) {
            return Err(Stop::Wait(Wait::Durable(position)));
        }
        if !self.clients.leases.grant_names(dir, slot, (m.now, m.mono)) {
            return Ok(Answer::Names { leased: false, attr, numbers: none, now: m.now });
        }
        let (first, end) = self
            .shards
            .inodes
            .take_usable(dir.shard(), count, m.durable)
            .expect("there was one a moment ago");
        if let Some(counter_end) = self.shards.inodes.wanted(dir.shard()) {
            self.reserve(dir.shard(), counter_end);
        }
        if let Some(session) = self.clients.sessions.get_mut(session) {
            if first < end {
                session.numbers.grant(first, end);
            }
            session.clock.tell(m.now, m.mono);
        }
        self.clients.leases.limit(m.mono);
        Ok(Answer::Names { leased: true, attr, numbers: (first, end), now: m.now })
    }

    /// Whether what a client does in a directory may be answered before the server knows of it.
    fn may_work_ahead(
        &mut self,
        dir: Ino,
        session: SessionId,
        cred: &Cred,
        m: &Moment,
    ) -> Result<bool, Stop> {
        // Who dies with the server needs no numbers.
        let may_live = |session: &Session| !session.volatile && session.numbers.0.len() < RANGES_MAX;
        let lives_on = self.clients.sessions.get(session).is_some_and(may_live);
        if !lives_on || self.is_realm() || self.is_resending() || m.health != Health::Good || m.tight {
            return Ok(false);
        }
        if usize::from(dir.shard().0) >= self.shards.inodes.shard_count() {
            return Err(Refusal::Stale.into());
        }
        if self.shards.ns.attr(dir)?.nlink == 0
            || self.shards.root_of(dir)?.is_some()
            || self.shards.answers_when_durable(dir)?
            || (self.shards.ns.policy_version() > 0 && self.shards.is_volatile_inode(dir)?)
        {
            return Ok(false);
        }
        Ok(!self.must_decouple(dir, session, cred)?)
    }

    /// Carries out what was promised, from where it stopped.
    pub(crate) fn ahead(&mut self, task: &mut Task, slot: Slot, m: &Moment) -> Result<Answer, Stop> {
        let request = &task.request;
        let Call::Ahead { ops, told } = &request.call else { unreachable!("called for these only") };
        if ops.len() > BATCH_OPS_MAX {
            return Err(Failure::Malformed(format!("a batch has at most {BATCH_OPS_MAX} operations")).into());
        }
        if request.seq == Seq(0) {
            return Err(Failure::Malformed("what was promised has numbers".into()).into());
        }
        if request.again.is_none() {
            // The client asks once more, and tells its callers meanwhile.
            self.may_change(m)?;
        }
        while let Some(op) = ops.get(task.results.len()) {
            let at = task.results.len();
            let told = told[at];
            let asked = Asked {
                session: task.session,
                slot,
                seq: Seq(request.seq.0.saturating_add(at as u64)),
                again: request.again,
                cred: &request.cred,
                open: told.open,
                leases: true,
                told: Some(told),
                op,
            };
            if !may_be_told(op) {
                task.results.push(Err(Failure::Refused(Refusal::NotPermitted)));
                continue;
            }
            match self.execute(&asked, m) {
                Ok(done) => {
                    if let (Op::Make { .. }, Some(session)) =
                        (op, self.clients.sessions.get_mut(task.session))
                    {
                        session.numbers.take(told.ino);
                    }
                    self.counters.count(op.counter());
                    task.results.push(Ok((done.position, done.outcome)));
                }
                // It was answered before a crash: it waits until there is space.
                Err(Stop::Fail(Failure::Refused(Refusal::NoSpace))) => return Err(Stop::Wait(Wait::Room)),
                Err(Stop::Fail(failure)) => task.results.push(Err(failure)),
                Err(stop) => return Err(stop),
            }
        }
        let results = std::mem::take(&mut task.results).into_iter();
        let Call::Ahead { ops, told } = &task.request.call else { unreachable!("as above") };
        type Told<'a> = ((Result<(Position, Outcome), Failure>, &'a Foretold), &'a Op);
        let with_lease = |((result, told), op): Told<'_>| {
            let (position, outcome) = result?;
            // Of one whose times are not what it was told the client must not believe what it knows.
            let is_made = matches!(op, Op::Make { .. });
            let is_other = is_made && outcome.attr.is_some_and(|attr| attr.btime != told.time);
            let lease = if is_other { LeaseMode::None } else { self.clients.lease_told(op, told.ino, slot) };
            Ok((position, lease))
        };
        Ok(Answer::Ahead(results.zip(told).zip(ops).map(with_lease).collect()))
    }

    /// The number that the caller of an operation was told, if it may be used.
    pub(crate) fn offer_told(&mut self, asked: &Asked<'_>, told: Foretold) -> Result<Ino, Stop> {
        let Op::Make { parent, .. } = asked.op else { return Err(Refusal::NotPermitted.into()) };
        // What comes again was told under a lease that ended with the connection.
        let may = asked.again.is_some() || self.clients.leases.holds_names(*parent, asked.slot);
        if !may || parent.shard() != told.ino.shard() {
            return Err(Refusal::NotPermitted.into());
        }
        if self.clients.sessions.get(asked.session).is_some_and(|session| session.numbers.has(told.ino)) {
            return Ok(told.ino);
        }
        match self.shards.offer_former(told.ino)? {
            Some(ino) if asked.again.is_some() => Ok(ino),
            _ => Err(Refusal::NotPermitted.into()),
        }
    }
}

impl Clients {
    /// When an operation takes place. What its caller was told is believed as far as it can be so.
    pub(crate) fn time_of(&self, asked: &Asked<'_>, m: &Moment) -> Time {
        let session = self.sessions.get(asked.session);
        let Some(claimed) = asked.former_time().or(asked.told.map(|told| told.time)) else {
            return session.map_or(m.now, |session| session.clock.now(m.now));
        };
        let known = session.and_then(|session| session.clock.span(m.mono));
        let latest = Time(m.now.0.saturating_add(nanos(SKEW)));
        let latest = known.map_or(latest, |(_, may_show)| latest.max(may_show));
        let mut earliest = None;
        if let (Some(_), Op::Make { parent, .. } | Op::Unlink { parent, .. }) = (asked.told, asked.op) {
            // The lease of what is said again ended with the connection; after a restart nobody knows of it.
            let leased = self.leases.names_since(*parent, asked.slot).filter(|_| asked.again.is_none());
            earliest = leased.or(known.map(|(first, _)| first));
        }
        claimed.max(earliest.unwrap_or(claimed)).min(latest)
    }

    /// The lease on what an operation was about; of a new directory on its names.
    fn lease_told(&self, op: &Op, ino: Ino, slot: Slot) -> LeaseMode {
        let mode = self.leases.mode(ino, slot);
        match matches!(op, Op::Make { make: Make::Dir, .. }) {
            true if self.leases.holds_names(ino, slot) => LeaseMode::Exclusive,
            true => mode.min(LeaseMode::Shared),
            false => mode,
        }
    }
}

/// What may be told afterwards: names that come and go, the content of small files, and attributes.
fn may_be_told(op: &Op) -> bool {
    let is_sized = matches!(op, Op::SetAttr { change, .. } if change.size.is_some());
    let is_node = matches!(op, Op::Make { make: Make::Node { .. }, .. });
    let is_told = matches!(
        op,
        Op::Make { .. } | Op::Unlink { .. } | Op::Write { body: Body::Inline(_), .. } | Op::SetAttr { .. }
    );
    is_told && !is_sized && !is_node
}

#[cfg(test)]
mod tests {
    use chiton_types::ShardId;

    use super::*;

    #[test]
    fn a_told_clock_bounds_what_its_client_may_show() {
        let at = |secs: i64| Time(secs * 1_000_000_000);
        let mono = Duration::from_secs;
        let mut clock = ToldClock::default();
        assert_eq!(clock.span(mono(5)), None);
        clock.tell(at(1_000), mono(10));
        assert_eq!(clock.span(mono(10)), Some((at(1_000), at(1_060))));
        assert_eq!(clock.span(mono(330)), Some((at(1_000), at(1_390))), "ten seconds gained in 320");
        // The clock was set back: who was told before goes on from there. Then forward.
        clock.tell(at(500), mono(330));
        assert_eq!(clock.span(mono(330)), Some((at(500), at(1_390))));
        clock.tell(at(5_000), mono(330));
        assert_eq!(clock.span(mono(330)), Some((at(500), at(5_060))));
        // What is asked for comes after what was answered, unless the clock was set.
        assert_eq!(clock.now(at(1_000)), at(1_000));
        clock.answered(at(1_040));
        clock.answered(at(1_030));
        assert_eq!((clock.now(at(1_000)), clock.now(at(1_050))), (at(1_040), at(1_050)));
        assert_eq!(clock.now(at(900)), at(900));
        // Nothing overflows.
        clock.tell(Time(i64::MAX), mono(331));
        assert_eq!(clock.span(mono(400)).map(|(_, latest)| latest), Some(Time(i64::MAX)));
    }

    #[test]
    fn a_number_is_used_once_and_in_order() {
        let ino = |counter| Ino::new(ShardId(3), counter);
        let mut numbers = Numbers::default();
        numbers.grant(ino(10), ino(20));
        numbers.grant(ino(40), ino(41));
        assert!(numbers.has(ino(10)) && numbers.has(ino(19)) && !numbers.has(ino(20)));
        numbers.take(ino(12));
        assert!(!numbers.has(ino(10)) && !numbers.has(ino(12)) && numbers.has(ino(13)));
        numbers.take(ino(40));
        assert!(!numbers.has(ino(40)) && numbers.has(ino(13)));
    }
}
