//! Write-behind at the server: pending operations, which a client has acknowledged under an exclusive lease on the names of their
//! directory.
//!
//! ```text
//!   client: LeaseNames(dir) ─▶ the lease, numbers for inodes        (no other client holds anything on the directory)
//!           create a ✓ create b ✓ …  ─ WriteBehind[a, b, …] ─▶ planned again, in order, with the inode numbers and times
//!                                                              that their callers got
//!   other:  lookup, create … in dir ─▶ recall ─▶ the client sends the rest and gives the lease back ─▶ the answer
//! ```
//!
//! Invariants:
//! - An operation is planned like any other, so the server refuses what a client acknowledged wrongly.
//! - Its inode number was granted to this session, and the session has not used it. After a restart it is one that was reserved
//!   before and bears no inode. So no number is used twice.
//! - Its time is one that the client can have read from the clock that it was granted: not before the client got the names, and not
//!   in the future. The server moves other times to the nearest such time, and then grants no lease on the inode.
//! - While there is no space, the server does not refuse pending operations one by one. It refuses the whole message, and the
//!   client sends it again.

use std::time::Duration;

use chiton_model::{Body, Make, Op, Outcome};
use chiton_types::{Cred, Ino, Kind, Position, Refusal, Seq, SessionId, Time, access};
use chiton_wire::{Acknowledged, Answer, BATCH_OPS_MAX, Call, Failure, LeaseMode};

use crate::engine::Engine;
use crate::execute::OpCall;
use crate::moment::{Health, Moment};
use crate::parts::Clients;
use crate::peers::unnumbered_key;
use crate::sessions::{Session, Slot};
use crate::step::Stop;
use crate::wait_queue::{Task, Wait};

/// Most numbers that are granted at a time.
const NUMBERS_MAX: u32 = 16_384;
/// Most ranges of numbers that a session may have left: beyond that it gets no more names.
const RANGES_MAX: usize = 1_024;

/// How far the time of a pending operation may lie in the future of the server's clock.
pub(crate) const SKEW: Duration = Duration::from_secs(60);
/// The client's clock may gain one part in so many.
const DRIFT_PARTS: u32 = 32;

/// The server's clock as a session was granted it, with the names of directories. The client extrapolates from that by its own
/// clock.
#[derive(Debug, Default)]
pub(crate) struct GrantedClock {
    granted: Option<Granted>,
    /// The latest time of the session's pending operations.
    last: Time,
}

#[derive(Debug)]
struct Granted {
    /// The earliest time that the client got.
    first: Time,
    /// The largest difference between the clock and the time since the server began, in nanoseconds, and when it was last so.
    offset_ns: i64,
    since: Duration,
}

impl GrantedClock {
    fn grant(&mut self, now: Time, mono: Duration) {
        let offset_ns = now.0.saturating_sub(nanos(mono));
        match &mut self.granted {
            None => self.granted = Some(Granted { first: now, offset_ns, since: mono }),
            Some(granted) => {
                granted.first = granted.first.min(now);
                if offset_ns >= granted.offset_ns {
                    (granted.offset_ns, granted.since) = (offset_ns, mono);
                }
            }
        }
    }

    /// A pending operation took place at this time.
    pub(crate) fn acknowledged(&mut self, time: Time) {
        self.last = self.last.max(time);
    }

    /// The time of an operation that the client asks for: not before its earlier pending operations, unless the server's clock was
    /// set.
    fn now(&self, now: Time) -> Time {
        let is_near = self.last.0 <= now.0.saturating_add(nanos(SKEW));
        if is_near { now.max(self.last) } else { now }
    }

    /// The earliest and the latest time that the client may read by now from its granted clock.
    fn span(&self, mono: Duration) -> Option<(Time, Time)> {
        let granted = self.granted.as_ref()?;
        let gain = mono.saturating_sub(granted.since) / DRIFT_PARTS;
        let latest = granted.offset_ns.saturating_add(nanos(mono)).saturating_add(nanos(gain + SKEW));
        Some((granted.first, Time(latest)))
    }
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// Inode numbers that a session may use for pending operations.
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
    /// Grants the names of a directory to one session, with numbers, if nothing is in the way. The server recalls no lease for
    /// it.
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
        if !self.may_write_behind(dir, session, cred, m)? {
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
            self.output.reserve(dir.shard(), counter_end, &mut self.shards);
        }
        if let Some(session) = self.clients.sessions.get_mut(session) {
            if first < end {
                session.numbers.grant(first, end);
            }
            session.clock.grant(m.now, m.mono);
        }
        self.clients.leases.limit(m.mono);
        Ok(Answer::Names { leased: true, attr, numbers: (first, end), now: m.now })
    }

    /// Whether a client may acknowledge operations in a directory before the server knows of them.
    fn may_write_behind(
        &mut self,
        dir: Ino,
        session: SessionId,
        cred: &Cred,
        m: &Moment,
    ) -> Result<bool, Stop> {
        // A session that ends with the server needs no numbers.
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
        // The names of one with parts are not all here, and the server draws the parts of those that are made in it.
        if self.shards.ns.is_parted(dir) || self.shards.gives_parts(dir)? {
            return Ok(false);
        }
        Ok(!self.shards.must_decouple(dir, session, cred, &self.clients)?)
    }

    /// Carries out pending operations, from where it stopped.
    pub(crate) fn write_behind(&mut self, task: &mut Task, slot: Slot, m: &Moment) -> Result<Answer, Stop> {
        let request = &task.request;
        let Call::WriteBehind { ops, acknowledged } = &request.call else {
            unreachable!("called for these only")
        };
        if ops.len() > BATCH_OPS_MAX {
            return Err(Failure::Malformed(format!("a batch has at most {BATCH_OPS_MAX} operations")).into());
        }
        if request.seq == Seq(0) {
            return Err(Failure::Malformed("pending operations have numbers".into()).into());
        }
        if request.again.is_none() {
            // On a refusal the client sends the message once more, and refuses its callers' other changes meanwhile.
            self.may_change(m)?;
        }
        while let Some(op) = ops.get(task.results.len()) {
            let at = task.results.len();
            let one = acknowledged[at];
            let call = OpCall {
                session: task.session,
                slot,
                seq: Seq(request.seq.0.saturating_add(at as u64)),
                again: request.again,
                cred: &request.cred,
                open: one.open,
                leases: true,
                acknowledged: Some(one),
                late: None,
                unnumbered: unnumbered_key(0, 0),
                op,
            };
            if !may_be_acknowledged(op) {
                task.results.push(Err(Failure::Refused(Refusal::NotPermitted)));
                continue;
            }
            match self.execute(&call, m) {
                Ok(done) => {
                    if let (Op::Make { .. }, Some(session)) =
                        (op, self.clients.sessions.get_mut(task.session))
                    {
                        session.numbers.take(one.ino);
                    }
                    self.counters.count(op.counter());
                    task.results.push(Ok((done.position, done.outcome)));
                }
                // It was answered before a crash: it waits until there is space.
                Err(Stop::Fail(Failure::Refused(Refusal::NoSpace))) => return Err(Stop::Wait(Wait::Room)),
                Err(Stop::Fail(failure)) => task.results.push(Err(failure)),
                Err(Stop::Missing(mut needs)) => {
                    self.shards.look_ahead(&ops[at + 1..], &request.cred, m.now, &mut needs);
                    return Err(Stop::Missing(needs));
                }
                Err(stop) => return Err(stop),
            }
        }
        let results = std::mem::take(&mut task.results).into_iter();
        let Call::WriteBehind { ops, acknowledged } = &task.request.call else { unreachable!("as above") };
        type Executed<'a> = ((Result<(Position, Outcome), Failure>, &'a Acknowledged), &'a Op);
        let with_lease = |((result, one), op): Executed<'_>| {
            let (position, outcome) = result?;
            // The inode's times differ from those that the client has: it must not cache them.
            let is_made = matches!(op, Op::Make { .. });
            let is_other = is_made && outcome.attr.is_some_and(|attr| attr.btime != one.time);
            let lease = if is_other { LeaseMode::None } else { self.clients.lease_after(op, one.ino, slot) };
            Ok((position, lease))
        };
        Ok(Answer::WriteBehind(results.zip(acknowledged).zip(ops).map(with_lease).collect()))
    }

    /// The inode number that the caller of a pending operation got, if it may be used.
    pub(crate) fn offer_acknowledged(
        &mut self,
        call: &OpCall<'_>,
        acknowledged: Acknowledged,
    ) -> Result<Ino, Stop> {
        let ino = acknowledged.ino;
        let Op::Make { parent, .. } = call.op else { return Err(Refusal::NotPermitted.into()) };
        // An operation that is sent again was acknowledged under a lease that ended with the connection.
        let may = call.again.is_some() || self.clients.leases.holds_names(*parent, call.slot);
        if !may || parent.shard() != ino.shard() {
            return Err(Refusal::NotPermitted.into());
        }
        if self.clients.sessions.get(call.session).is_some_and(|session| session.numbers.has(ino)) {
            return Ok(ino);
        }
        match self.shards.offer_former(ino)? {
            Some(ino) if call.again.is_some() => Ok(ino),
            _ => Err(Refusal::NotPermitted.into()),
        }
    }
}

impl Clients {
    /// When an operation takes place. The server believes the time that its caller got as far as it is possible.
    pub(crate) fn time_of(&self, call: &OpCall<'_>, m: &Moment) -> Time {
        let session = self.sessions.get(call.session);
        let Some(claimed) = call.former_time().or(call.acknowledged.map(|one| one.time)) else {
            return session.map_or(m.now, |session| session.clock.now(m.now));
        };
        let known = session.and_then(|session| session.clock.span(m.mono));
        let latest = Time(m.now.0.saturating_add(nanos(SKEW)));
        let latest = known.map_or(latest, |(_, may_show)| latest.max(may_show));
        let mut earliest = None;
        if let (Some(_), Op::Make { parent, .. } | Op::Unlink { parent, .. }) = (call.acknowledged, call.op) {
            // The lease of an operation that is sent again ended with the connection, and a restarted server does not know it.
            let leased = self.leases.names_since(*parent, call.slot).filter(|_| call.again.is_none());
            earliest = leased.or(known.map(|(first, _)| first));
        }
        claimed.max(earliest.unwrap_or(claimed)).min(latest)
    }

    /// The lease on the inode of a pending operation that was carried out; of a new directory on its names.
    fn lease_after(&self, op: &Op, ino: Ino, slot: Slot) -> LeaseMode {
        let mode = self.leases.mode(ino, slot);
        match matches!(op, Op::Make { make: Make::Dir, .. }) {
            true if self.leases.holds_names(ino, slot) => LeaseMode::Exclusive,
            true => mode.min(LeaseMode::Shared),
            false => mode,
        }
    }
}

/// Whether a client may acknowledge an operation before the server knows of it: one that makes or removes a name, writes the
/// content of a small file, or sets attributes.
fn may_be_acknowledged(op: &Op) -> bool {
    let is_sized = matches!(op, Op::SetAttr { change, .. } if change.size.is_some());
    let is_node = matches!(op, Op::Make { make: Make::Node { .. }, .. });
    let is_of_kind = matches!(
        op,
        Op::Make { .. } | Op::Unlink { .. } | Op::Write { body: Body::Inline(_), .. } | Op::SetAttr { .. }
    );
    is_of_kind && !is_sized && !is_node
}

#[cfg(test)]
mod tests {
    use chiton_types::ShardId;

    use super::*;

    #[test]
    fn granted_clock_bounds_the_times_of_its_client() {
        let at = |secs: i64| Time(secs * 1_000_000_000);
        let mono = Duration::from_secs;
        let mut clock = GrantedClock::default();
        assert_eq!(clock.span(mono(5)), None);
        clock.grant(at(1_000), mono(10));
        assert_eq!(clock.span(mono(10)), Some((at(1_000), at(1_060))));
        assert_eq!(clock.span(mono(330)), Some((at(1_000), at(1_390))), "ten seconds gained in 320");
        // The clock was set back: a client that got it before continues from there. Then forward.
        clock.grant(at(500), mono(330));
        assert_eq!(clock.span(mono(330)), Some((at(500), at(1_390))));
        clock.grant(at(5_000), mono(330));
        assert_eq!(clock.span(mono(330)), Some((at(500), at(5_060))));
        // An operation that the client asks for comes after its pending operations, unless the clock was set.
        assert_eq!(clock.now(at(1_000)), at(1_000));
        clock.acknowledged(at(1_040));
        clock.acknowledged(at(1_030));
        assert_eq!((clock.now(at(1_000)), clock.now(at(1_050))), (at(1_040), at(1_050)));
        assert_eq!(clock.now(at(900)), at(900));
        // Nothing overflows.
        clock.grant(Time(i64::MAX), mono(331));
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
