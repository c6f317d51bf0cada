//! From a request to its answer: the steps that all calls share, and the calls that are neither operation nor question.

use chiton_namespace::{Namespace, WARM_OPS};
use chiton_types::{Attr, Ino, Kind, Position, Refusal, Seq, SessionId, access};
use chiton_wire::{Answer, BATCH_OPS_MAX, Call, Failure, Grown, LeaseMode, Lock, Query, Request};

use crate::counters;
use crate::engine::Engine;
use crate::execute::OpCall;
use crate::locks::{Owner, Verdict};
use crate::moment::{Health, Moment};
use crate::parts::{Clients, Shards};
use crate::peers::{is_of_ticket, unnumbered_key};
use crate::sessions::Slot;
use crate::step::{Command, Stop};
use crate::wait_queue::{Task, Ticket, Wait};

impl Engine {
    #[inline]
    pub(crate) fn dispatch(&mut self, task: &mut Task, m: &Moment) -> Result<Answer, Stop> {
        if task.peer.is_some() {
            return self.peer_task(task, m);
        }
        let Some(session) = self.clients.sessions.get_mut(task.session) else {
            // The request was ready to continue when its session ended, so the end did not find it among those that wait.
            if let Some(ticket) = task.ticket {
                self.give_up_crossings(|key| is_of_ticket(*key, ticket.0));
            }
            return Err(Failure::SessionGone.into());
        };
        let slot = session.slot;
        if !task.begun {
            task.begun = true;
            session.heard = m.mono;
            session.request_count += 1;
            if task.request.settled > Seq(0) {
                session.dedup.settle(task.request.settled);
            }
            self.counters.count(counters::kind_of_call(&task.request.call));
        }
        if task.done.is_some() {
            return answer_done(task, m);
        }
        self.stay_in_subtree(task, slot, m)?;
        self.may_call(&task.request.call)?;
        let unnumbered = if self.peers.is_some() {
            self.await_peers(&task.request.call)?;
            task.ticket.get_or_insert_with(|| self.queue.waiting.issue()).0
        } else {
            0
        };
        let request = &task.request;
        match &request.call {
            Call::Op { op, open } => {
                let call = OpCall {
                    session: task.session,
                    slot,
                    seq: request.seq,
                    again: request.again,
                    cred: &request.cred,
                    open: *open,
                    leases: true,
                    acknowledged: None,
                    late: None,
                    unnumbered: unnumbered_key(unnumbered, 0),
                    op,
                };
                let call_key = call.key();
                let growth = self.shards.growth_of(op, slot, &self.clients.opens)?;
                let done = self.execute(&call, m)?;
                let (place, position) = (op.footprint().place, done.position);
                let answer = Answer::Op {
                    position,
                    outcome: done.outcome,
                    lease: done.lease,
                    parent_leased: done.parent_leased,
                };
                if let Some((ino, grown)) = growth {
                    let upto = match self.shards.answers_when_durable(place) {
                        Ok(true) => position,
                        _ => Position(0),
                    };
                    let (done, commands) = ((upto, answer), &mut self.queue.commands);
                    let answer = self.clients.notify_growth(ino, grown, slot, done, task, commands, m)?;
                    return self.shards.when_durable(task, place, position, answer, m);
                }
                // One that was answered before a restart had all plates then. Waiting again, it would hold up the resends behind it, on
                // which the names may rest that clients are to return.
                let is_awaited = request.again.is_none_or(|again| again.position == Position(0));
                if is_awaited && self.peers.as_ref().is_some_and(|peers| peers.is_settling(call_key)) {
                    task.done = Some(Box::new((position, answer)));
                    return Err(Stop::Wait(Wait::PolicySet(call_key)));
                }
                self.shards.when_durable(task, place, position, answer, m)
            }
            Call::Grown { ino, size, last } => {
                let (ino, grown) = (*ino, Grown { size: *size, last: *last });
                self.shards.check_growth(ino, grown, &request.cred, slot, &self.clients.opens)?;
                let (done, commands) = ((Position(0), Answer::Done), &mut self.queue.commands);
                self.clients.notify_growth(ino, grown, slot, done, task, commands, m)
            }
            Call::Batch { .. } => self.batch(task, slot, unnumbered, m),
            Call::WriteBehind { .. } => self.write_behind(task, slot, m),
            Call::Late { .. } => self.late(task, slot, m),
            Call::LeaseNames { dir, numbers } => {
                self.lease_names(*dir, *numbers, (task.session, slot), &request.cred, m)
            }
            Call::Query(Query::Resolve { .. }) => {
                let answer = self.resolve(task, slot, m)?;
                let stayed = self.stayed_in_subtree(task.session, &answer, m);
                // If it has to wait, the path is followed anew.
                task.resolving = None;
                stayed.map(|()| answer)
            }
            Call::Query(Query::StatEach { .. }) => self.stat_each(task, slot, m),
            Call::Query(query) => {
                if let Query::Open { ino, want, .. } = query
                    && want & access::WRITE != 0
                {
                    self.shards.opened_decoupled(*ino, task.session, &request.cred, &self.clients)?;
                }
                self.query(query, &request.cred, slot, m)
            }
            Call::Lease { ino, mode } => self.queries(&request.cred, slot, m).lease(*ino, *mode, task.ticket),
            Call::Closed { inos } => {
                for ino in inos {
                    if self.clients.opens.subtract(*ino, slot) {
                        self.shards.closed(*ino);
                    }
                }
                Ok(Answer::Done)
            }
            Call::Reopen { opens, locks, dirty, names } => {
                let inodes = opens.iter().map(|(ino, _)| *ino).chain(locks.iter().map(|lock| lock.ino));
                let inodes = inodes.chain(dirty.iter().copied()).chain(names.iter().copied());
                let reachable = self.reachable((task.session, slot), inodes, m)?;
                let own = |ino: &Ino| reachable.as_ref().is_none_or(|reachable| reachable.contains(ino));
                let opens: Vec<_> = opens.iter().filter(|(ino, _)| own(ino)).copied().collect();
                let locks: Vec<_> = locks.iter().filter(|lock| own(&lock.ino)).copied().collect();
                let dirty: Vec<_> = dirty.iter().filter(|ino| own(ino)).copied().collect();
                let names: Vec<_> = names.iter().filter(|ino| own(ino)).copied().collect();
                let answer = self.clients.reopen(&opens, &locks, slot, &self.shards.ns)?;
                self.declare(task.session, &dirty, &names, m);
                Ok(answer)
            }
            Call::Ended { session, secret } => {
                let over = self.clients.sessions.over(*session, *secret).filter(|over| over.end <= m.durable);
                let over = over.ok_or(Refusal::NotFound)?;
                Ok(Answer::CarriedOut { runs: over.carried_out.clone(), end: over.end })
            }
            Call::SetLock { lock, wait } => {
                let waiting = &mut self.queue.waiting;
                let ticket = wait.then(|| *task.ticket.get_or_insert_with(|| waiting.issue()));
                self.clients.set_lock(lock, ticket, slot)
            }
            Call::CancelLock { id } => {
                let session = task.session;
                let waiting = self.queue.waiting.select(|task, wait| {
                    *wait == Wait::Lock && task.session == session && task.request.id == *id
                });
                for ticket in waiting {
                    self.clients.locks.cancel(ticket);
                    self.answer_waiting(ticket, Err(Failure::Refused(Refusal::Interrupted)), m);
                }
                Ok(Answer::Done)
            }
            Call::GetLock { lock } => {
                let owner = check_lock(lock, slot)?;
                Ok(Answer::Lock(self.clients.locks.get(owner, lock)))
            }
            Call::Realm(_) => self.realms().answer(task, m),
            Call::Ping => Ok(Answer::Done),
            Call::Bye => {
                self.end_session(task.session, m);
                Ok(Answer::Done)
            }
            // The runtime answers these.
            Call::Commit { .. } | Call::PutBlock { .. } | Call::GetBlock { .. } | Call::Admin { .. } => {
                Ok(Answer::Done)
            }
        }
    }

    /// A request that the runtime answers: keeps its session alive.
    pub fn outside(&mut self, session: SessionId, request: &Request, m: &Moment) -> Result<(), Failure> {
        let Some(known) = self.clients.sessions.get_mut(session) else { return Err(Failure::SessionGone) };
        known.heard = m.mono;
        known.request_count += 1;
        known.dedup.settle(request.settled);
        self.counters.count(counters::kind_of_call(&request.call));
        self.may_ask_outside(session, &request.call)
    }

    /// The operations of a batch from where it stopped.
    fn batch(&mut self, task: &mut Task, slot: Slot, unnumbered: u64, m: &Moment) -> Result<Answer, Stop> {
        let request = &task.request;
        let Call::Batch { ops, stop_on_failure } = &request.call else {
            unreachable!("called for batches only")
        };
        if ops.len() > BATCH_OPS_MAX {
            return Err(Failure::Malformed(format!("a batch has at most {BATCH_OPS_MAX} operations")).into());
        }
        task.results.reserve_exact(ops.len() - task.results.len());
        while let Some(op) = ops.get(task.results.len()) {
            if task.results.len().is_multiple_of(WARM_OPS) {
                self.shards.ns.warm(&ops[task.results.len()..]);
            }
            let seq = match request.seq {
                Seq(0) => Seq(0),
                Seq(first) => Seq(first.saturating_add(task.results.len() as u64)),
            };
            let cred = &request.cred;
            let call = OpCall {
                session: task.session,
                slot,
                seq,
                again: request.again,
                cred,
                open: false,
                leases: false,
                acknowledged: None,
                late: None,
                unnumbered: unnumbered_key(unnumbered, task.results.len()),
                op,
            };
            match self.execute(&call, m) {
                Ok(done) => task.results.push(Ok((done.position, done.outcome))),
                Err(Stop::Fail(Failure::NeedGroups)) if task.results.is_empty() => {
                    return Err(Failure::NeedGroups.into());
                }
                Err(Stop::Fail(failure)) => task.results.push(Err(failure)),
                Err(Stop::Missing(mut needs)) => {
                    self.shards.look_ahead(&ops[task.results.len() + 1..], cred, m.now, &mut needs);
                    return Err(Stop::Missing(needs));
                }
                Err(stop) => return Err(stop),
            }
            self.counters.count(op.counter());
            if *stop_on_failure && matches!(task.results.last(), Some(Err(_))) {
                break;
            }
        }
        let done = task.results.iter().zip(ops);
        let last =
            done.filter_map(|(result, op)| Some((result.as_ref().ok()?.0, op.footprint().place))).max();
        let answer = Answer::Batch(std::mem::take(&mut task.results));
        match last {
            None => Ok(answer),
            Some((position, place)) => self.shards.when_durable(task, place, position, answer, m),
        }
    }

    /// Answers waiters whose locks were granted. Their requests are done and are not tried again.
    pub(crate) fn answer_lock_grants(&mut self, m: &Moment) {
        for ticket in std::mem::take(&mut self.clients.lock_grants) {
            self.answer_waiting(ticket, Ok(Answer::Done), m);
        }
    }

    /// Answers a waiting request.
    pub(crate) fn answer_waiting(&mut self, ticket: Ticket, result: Result<Answer, Failure>, m: &Moment) {
        if let Some(task) = self.queue.dequeue(ticket, &mut self.clients.leases) {
            let reply = self.reply(task.request.id, result, m);
            self.queue.commands.push(Command::Reply(ticket, reply));
        }
    }
}

/// The answer of an operation that was carried out already.
pub(crate) fn answer_done(task: &mut Task, m: &Moment) -> Result<Answer, Stop> {
    let done = task.done.take().expect("asked for what is done only");
    match m.health {
        _ if done.0 <= m.durable => Ok(done.1),
        Health::Good => {
            let position = done.0;
            task.done = Some(done);
            Err(Stop::Wait(Wait::Durable(position)))
        }
        Health::Full => Err(Refusal::NoSpace.into()),
        Health::Failed => Err(Refusal::Io.into()),
    }
}

impl Clients {
    /// A session of before a restart says what it has open and locked.
    fn reopen(
        &mut self,
        opens: &[(Ino, u32)],
        locks: &[Lock],
        slot: Slot,
        ns: &Namespace,
    ) -> Result<Answer, Stop> {
        let mut needs = Vec::new();
        for (ino, _) in opens {
            if let Err(chiton_namespace::Fault::Missing(more)) = ns.attr(*ino) {
                needs.extend(more);
            }
        }
        if !needs.is_empty() {
            return Err(Stop::Missing(needs));
        }
        for (ino, count) in opens {
            // Its user finds out whether it is gone.
            if ns.attr(*ino).is_ok() {
                self.opens.declare(*ino, slot, *count);
            }
        }
        for lock in locks {
            let owner = check_lock(lock, slot)?;
            // Nobody can have taken it meanwhile: new requests wait until all clients have declared theirs.
            self.locks.set(owner, lock, None, &mut self.lock_grants);
        }
        Ok(Answer::Done)
    }

    /// Sets or frees a lock; `waiter` waits for it if others are in the way.
    fn set_lock(&mut self, lock: &Lock, waiter: Option<Ticket>, slot: Slot) -> Result<Answer, Stop> {
        let owner = check_lock(lock, slot)?;
        match self.locks.set(owner, lock, waiter, &mut self.lock_grants) {
            Verdict::Granted => Ok(Answer::Done),
            Verdict::Conflict => Err(Refusal::WouldBlock.into()),
            Verdict::Deadlock => Err(Refusal::Deadlock.into()),
            Verdict::Exhausted => Err(Refusal::NoLocks.into()),
            Verdict::Waits => Err(Stop::Wait(Wait::Lock)),
        }
    }

    /// The lease that is given in passing with an inode's attributes. Nobody gets one with those of a directory with parts, or of a part: the
    /// attributes of the directory change at several plates.
    #[inline]
    pub(crate) fn lease_in_passing(&mut self, attr: &Attr, slot: Slot, m: &Moment) -> LeaseMode {
        if self.resends.are_left() || attr.is_parted() {
            return LeaseMode::None;
        }
        let mode = self.leases.grant(attr.ino, slot, LeaseMode::Shared, false, m.mono);
        clamp(mode, attr)
    }

    /// The same, with content.
    pub(crate) fn lease_read(&mut self, attr: &Attr, slot: Slot, m: &Moment) -> LeaseMode {
        if self.resends.are_left() || attr.is_parted() {
            return LeaseMode::None;
        }
        let mode = self.leases.grant_read(attr.ino, slot, m.mono);
        clamp(mode, attr)
    }

    /// The same, for one who may look again: a holder that does not use it is asked to share it.
    pub(crate) fn lease_looked_at(&mut self, attr: &Attr, slot: Slot, m: &Moment) -> LeaseMode {
        if self.resends.are_left() || attr.is_parted() {
            return LeaseMode::None;
        }
        let mode = self.grant_looked_at(attr.ino, slot, m);
        clamp(mode, attr)
    }

    /// True if the session has, or is given in passing, a lease on a directory.
    #[inline]
    pub(crate) fn parent_leased(&mut self, parent: Ino, slot: Slot, m: &Moment) -> bool {
        !self.resends.are_left() && self.grant_looked_at(parent, slot, m) >= LeaseMode::Shared
    }

    /// The lease on a directory's names, or on those that a part has, for one who may look again.
    pub(crate) fn lease_names_looked_at(&mut self, dir: &Attr, slot: Slot, m: &Moment) -> LeaseMode {
        let is_leased = self.parent_leased(dir.ino, slot, m);
        if is_leased { LeaseMode::Shared } else { LeaseMode::None }
    }

    fn grant_looked_at(&mut self, ino: Ino, slot: Slot, m: &Moment) -> LeaseMode {
        let mode = self.leases.grant(ino, slot, LeaseMode::Shared, false, m.mono);
        if mode == LeaseMode::None {
            self.share_idle(ino, slot, m);
        }
        mode
    }

    /// Asks exclusive holders of an inode that do not use it to share it.
    pub(crate) fn share_idle(&mut self, ino: Ino, slot: Slot, m: &Moment) {
        let opens = &self.opens;
        self.leases.downgrade_idle(ino, slot, m.mono, |holder| opens.has(ino, holder));
    }
}

/// Whole-inode exclusivity is for files: of others, a client may cache what it read.
pub(crate) fn clamp(mode: LeaseMode, attr: &Attr) -> LeaseMode {
    if attr.kind == Kind::File { mode } else { mode.min(LeaseMode::Shared) }
}

fn check_lock(lock: &Lock, slot: Slot) -> Result<Owner, Stop> {
    if lock.start > lock.end {
        return Err(Refusal::Invalid.into());
    }
    Ok(Owner { slot, owner: lock.owner })
}

impl Shards {
    /// The answer, or a wait until it is durable where the policy has operations answered only then.
    pub(crate) fn when_durable(
        &mut self,
        task: &mut Task,
        place: Ino,
        position: Position,
        answer: Answer,
        m: &Moment,
    ) -> Result<Answer, Stop> {
        // The policy was found before the operation was carried out. If it cannot be found now, nothing waits for it.
        if position <= m.durable || !matches!(self.answers_when_durable(place), Ok(true)) {
            return Ok(answer);
        }
        task.done = Some(Box::new((position, answer)));
        answer_done(task, m)
    }
}
