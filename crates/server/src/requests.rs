//! From a request to its answer, for threads of this process and for clients.
//!
//! Invariants:
//! - Rows are fetched without the engine's lock, taken in with the generation that was read with the request.
//! - No thread waits for the durability of a client's commit, and no serving thread for the object store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chiton_namespace::Need;
use chiton_transport::Sender;
use chiton_types::{Cred, Position, Refusal, SessionId};
use chiton_wire::{Answer, Call, Failure, RealmCall, RefuseReason, Reply, Request, Welcome};

use crate::call_kinds::{changes, is_outside, needs_one_plate};
use crate::commits::OnDurable;
use crate::deliver::ReplySlot;
use crate::fatal::Fatal;
use crate::latency::Begun;
use crate::often::Often;
use crate::plate::Plate;
use crate::startup::EPOCH;
use crate::tree_jobs::JOBS;
use crate::waiters::Waiter;
use chiton_engine::{Engine, Health, Moment, Step, Task, name_of};

/// Its numbers: the client logs the same. At the level `debug` a single operation is described, at `trace` each operation has
/// a line with all fields as JSON.
#[inline]
fn log_request(session: SessionId, request: &Request) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        log_operations(session.0, request);
    }
}

fn log_operations(session: u64, Request { id: request, seq, call, .. }: &Request) {
    let name = name_of(call);
    match call.ops() {
        [] => tracing::debug!(session, request, seq = seq.0, call = name, "request of a client"),
        [op] => {
            let operation = op.describe();
            tracing::debug!(session, request, seq = seq.0, call = name, %operation, "request of a client");
        }
        ops => {
            let operations = ops.len();
            tracing::debug!(session, request, seq = seq.0, call = name, operations, "request of a client");
        }
    }
    for (at, op) in call.ops().iter().enumerate() {
        let seq = if seq.0 > 0 { seq.0 + at as u64 } else { 0 };
        tracing::trace!(session, request, seq, operation = %op.json(), "operation of a client");
    }
}

/// A request that waits for rows.
pub(crate) struct NeedsRows {
    id: u64,
    task: Task,
    needs: Vec<Need>,
    generation: u64,
    begun: Option<Begun>,
}

/// The results of requests that are carried out under one hold of the engine's lock.
#[derive(Default)]
struct Results {
    replies: Vec<Reply>,
    /// The requests of `replies` whose time runs.
    done: Vec<Begun>,
    without_rows: Vec<NeedsRows>,
}

impl Plate {
    /// Answers a request of a session in this process; the thread waits.
    #[inline]
    pub(crate) fn call(&self, session: SessionId, request: Request) -> Reply {
        let mut begun = self.latency.as_ref().map(|latency| Begun::new(latency.now(), session, &request));
        let reply = self.call_as_measured(session, request, &mut begun);
        self.end(begun);
        reply
    }

    #[inline]
    fn call_as_measured(&self, session: SessionId, request: Request, begun: &mut Option<Begun>) -> Reply {
        if !self.peers.is_alone() && needs_one_plate(&request.call) {
            return unsupported(request.id, &self.moment());
        }
        if is_outside(&request.call) {
            return self.call_outside(session, request);
        }
        let _fatal = Fatal::guard();
        let id = request.id;
        log_request(session, &request);
        if self.options.read_only && changes(&request.call) {
            return unchanged(id, &self.moment());
        }
        let writer = match self.writer_for(&request.call) {
            Ok(writer) => writer,
            Err(()) => return failed(id, &self.moment()),
        };
        let mut engine = self.engine.lock();
        let m = self.moment();
        if self.is_stopping() {
            return stopped(id, &m);
        }
        if let Some(writer) = writer {
            engine.add_writer(writer);
        }
        let mut step = engine.request(session, request, &m);
        let slot = loop {
            match step {
                Step::Done(reply) => {
                    self.leave(engine, &m);
                    return reply;
                }
                Step::Waiting(ticket) => {
                    let slot = Arc::new(ReplySlot::default());
                    if let Some(begun) = begun {
                        begun.waits(engine.waits_for(ticket));
                    }
                    self.answer_later(&engine, ticket, Waiter::Thread(slot.clone()), None);
                    self.leave(engine, &m);
                    break slot;
                }
                Step::NeedRows(task, needs) => {
                    let generation = engine.namespace().generation();
                    self.leave(engine, &m);
                    begun.iter_mut().for_each(Begun::fetches);
                    let fetched = match self.fetch(&needs) {
                        Ok(fetched) => fetched,
                        Err(_) => return failed(id, &m),
                    };
                    engine = self.engine.lock();
                    if self.is_stopping() {
                        // Those that wait may have been dismissed already: nobody would answer this one.
                        return stopped(id, &m);
                    }
                    if self.install(&mut engine, fetched, generation).is_err() {
                        return failed(id, &m);
                    }
                    step = engine.retry(task, &self.moment());
                }
            }
        };
        Reply { id, ..slot.wait() }
    }

    /// Answers requests of a client, now or later.
    pub(crate) fn serve_requests(
        self: &Arc<Self>,
        session: SessionId,
        sender: &Sender,
        batch: &mut Vec<Request>,
    ) {
        let at = self.latency.as_ref().map(|latency| latency.now());
        let mut results = Results { replies: Vec::with_capacity(batch.len()), ..Results::default() };
        let mut outside = Vec::new();
        let mut writers = Vec::new();
        batch.retain(|request| match self.writer_for(&request.call) {
            Ok(writer) => {
                writers.extend(writer);
                true
            }
            Err(()) => {
                results.replies.push(failed(request.id, &self.moment()));
                false
            }
        });
        let mut engine = self.engine.lock();
        let m = self.moment();
        for writer in writers {
            engine.add_writer(writer);
        }
        for request in batch.drain(..) {
            log_request(session, &request);
            if self.is_stopping() {
                // Its connection closes, and the client asks the next server. A refusal would reach programs, and a push of buffered
                // content would count as lost.
                continue;
            }
            if self.options.read_only && changes(&request.call) {
                results.replies.push(unchanged(request.id, &m));
            } else if !self.peers.is_alone() && needs_one_plate(&request.call) {
                results.replies.push(unsupported(request.id, &m));
            } else {
                let begun = at.map(|at| Begun::new(at, session, &request));
                if is_outside(&request.call) {
                    outside.push((request, begun));
                } else {
                    let id = request.id;
                    let step = engine.request(session, request, &m);
                    self.take_step(&mut engine, (id, begun), step, sender, &mut results);
                }
            }
        }
        self.leave(engine, &m);
        let Results { replies, done, without_rows } = results;
        self.send_all(sender, replies);
        self.end_all(&done);
        for (request, begun) in outside {
            self.serve_outside(session, sender, request, begun);
        }
        if !without_rows.is_empty() {
            let sender = sender.clone();
            self.submit_io(0, move |plate| plate.fetch_and_retry(&sender, without_rows));
        }
    }

    /// An id for the writer of a decoupling, if the call asks for one.
    #[inline]
    fn writer_for(&self, call: &Call) -> Result<Option<SessionId>, ()> {
        match call {
            Call::Realm(call) if matches!(**call, RealmCall::Decouple { .. }) => {
                match self.new_session_id() {
                    Ok(id) => Ok(Some(id)),
                    Err(line) => {
                        self.note_often(Often::Rows, &line);
                        Err(())
                    }
                }
            }
            _ => Ok(None),
        }
    }

    fn take_step(
        &self,
        engine: &mut Engine,
        (id, mut begun): (u64, Option<Begun>),
        step: Step,
        sender: &Sender,
        results: &mut Results,
    ) {
        match step {
            Step::Done(reply) => {
                results.replies.push(reply);
                results.done.extend(begun);
            }
            Step::Waiting(ticket) => {
                self.answer_later(engine, ticket, Waiter::Client(sender.clone()), begun);
            }
            Step::NeedRows(task, needs) => {
                let generation = engine.namespace().generation();
                begun.iter_mut().for_each(Begun::fetches);
                results.without_rows.push(NeedsRows { id, task, needs, generation, begun });
            }
        }
    }

    /// These requests were answered together.
    #[inline]
    fn end_all(&self, done: &[Begun]) {
        if let Some(latency) = &self.latency {
            latency.end_all(done);
        }
    }

    /// Fetches what requests of a client need until none needs more, in the order in which they came.
    fn fetch_and_retry(&self, sender: &Sender, mut without_rows: Vec<NeedsRows>) {
        // The last of the list is the next: one that needs more after its fetch resumes before those behind it.
        without_rows.reverse();
        let mut results = Results { without_rows, ..Results::default() };
        while let Some(NeedsRows { id, task, needs, generation, begun }) = results.without_rows.pop() {
            let fetched = self.fetch(&needs);
            let mut engine = self.engine.lock();
            let m = self.moment();
            let installed = fetched.and_then(|fetched| self.install(&mut engine, fetched, generation));
            match installed {
                Ok(()) => {
                    let step = engine.retry(task, &m);
                    self.take_step(&mut engine, (id, begun), step, sender, &mut results);
                }
                Err(_) => results.replies.push(failed(id, &m)),
            }
            self.leave(engine, &m);
            self.send_all(sender, std::mem::take(&mut results.replies));
            self.end_all(&std::mem::take(&mut results.done));
        }
    }

    /// Answers a call in which the engine has no part, for a thread of this process.
    fn call_outside(&self, session: SessionId, request: Request) -> Reply {
        if let Call::Commit { upto } = request.call
            && self.health() == Health::Good
            && !self.is_stopping()
        {
            return self.commit_here(request.id, upto);
        }
        let (alive, position, m) = self.touch(session, &request);
        match alive {
            Err(failure) => Reply { result: Err(failure), ..empty_reply(request.id, &m) },
            Ok(()) => {
                let result = match request.call {
                    Call::Commit { .. } => self.sync_blocks().and_then(|()| self.wait_durable(position)),
                    call => self.outside(session, &request.cred, call),
                };
                Reply { result, ..empty_reply(request.id, &self.moment()) }
            }
        }
    }

    /// A commit of a thread of this process, without the engine, which the others that wait are about to use: everything
    /// answered while the journal was good is in it.
    fn commit_here(&self, id: u64, upto: Position) -> Reply {
        self.waiters.commits.here.fetch_add(1, Ordering::Relaxed);
        let last = self.journal.last();
        let position = if upto == Position(0) { last } else { upto.min(last) };
        let result = self.sync_blocks().and_then(|()| self.wait_durable(position));
        Reply { id, epoch: EPOCH, durable: self.journal.durable(), result }
    }

    fn serve_outside(
        self: &Arc<Self>,
        session: SessionId,
        sender: &Sender,
        request: Request,
        begun: Option<Begun>,
    ) {
        let (alive, position, m) = self.touch(session, &request);
        let reply = empty_reply(request.id, &m);
        if let Err(failure) = alive {
            return self.send_all(sender, vec![Reply { result: Err(failure), ..reply }]);
        }
        if !matches!(request.call, Call::Commit { .. }) {
            let bytes = match &request.call {
                Call::PutBlock { bytes, .. } => bytes.len(),
                _ => 0,
            };
            let sender = sender.clone();
            return self.submit_io(bytes, move |plate| {
                let Request { id, cred, call, .. } = request;
                let result = plate.outside(session, &cred, call);
                plate.send_all(&sender, vec![Reply { result, ..empty_reply(id, &plate.moment()) }]);
                plate.end(begun);
            });
        }
        if self.blocks_are_safe() {
            return self.send_when_durable(position, sender, OnDurable::Reply(reply, begun));
        }
        let sender = sender.clone();
        self.submit_io(0, move |plate| match plate.sync_blocks() {
            Ok(()) => plate.send_when_durable(position, &sender, OnDurable::Reply(reply, begun)),
            Err(failure) => plate.send_all(&sender, vec![Reply { result: Err(failure), ..reply }]),
        });
    }

    /// A sign of life; where a commit ends.
    fn touch(&self, session: SessionId, request: &Request) -> (Result<(), Failure>, Position, Moment) {
        let upto = match request.call {
            Call::Commit { upto } => upto,
            _ => Position(0),
        };
        self.with_engine(|engine, m| {
            let alive = engine.outside(session, request, m);
            (alive, engine.commit_position(upto), *m)
        })
    }

    pub(crate) fn wait_durable(&self, position: Position) -> Result<Answer, Failure> {
        match self.wait_journal(position) {
            Ok(()) => Ok(Answer::Done),
            Err(error) => {
                self.set_health(Err(&error));
                let is_full = error.may_heal() && !error.is_away();
                Err(Failure::Refused(if is_full { Refusal::NoSpace } else { Refusal::Io }))
            }
        }
    }

    /// Sends an answer to a client as soon as a position is durable. No thread waits for that.
    pub(crate) fn send_when_durable(&self, position: Position, sender: &Sender, notice: OnDurable) {
        self.waiters.commits.wait(position, sender.clone(), notice);
        self.journal.request_commit();
        // It may have become durable before it was noted.
        self.waiters.commits.answer(self.journal.durable());
        if self.health() != Health::Good {
            self.refuse_commits();
        }
    }

    /// Answers the waiters for positions that cannot become durable now.
    pub(crate) fn refuse_commits(&self) {
        let (refusal, why) = match self.health() {
            Health::Failed => (Refusal::Io, "the server's journal failed"),
            Health::Good if self.condition.away.is_any() => (
                Refusal::Io,
                "the server's journal cannot be reached: the server continues when its store is back",
            ),
            Health::Good | Health::Full => (
                Refusal::NoSpace,
                "the server's journal has no space: make some where its data lie, then the server continues automatically",
            ),
        };
        for (sender, notice) in self.waiters.commits.due(Position(u64::MAX - 1)) {
            match notice {
                OnDurable::Reply(reply, _) => {
                    self.send_all(&sender, vec![Reply { result: Err(Failure::Refused(refusal)), ..reply }]);
                }
                OnDurable::Welcome(welcome) => {
                    if let Welcome::Accepted { session, .. } = *welcome {
                        self.with_engine(|engine, m| engine.end_session(session, m));
                    }
                    let message = why.to_owned();
                    // A client that is gone connects again.
                    let _ = sender.welcome(Welcome::Refused { reason: RefuseReason::NotReady, message });
                }
            }
        }
    }

    /// Sends replies; none once another server has the file system, since the client sends its requests to that one.
    fn send_all(&self, sender: &Sender, replies: Vec<Reply>) {
        for reply in replies {
            if self.is_fenced() || sender.send(&reply).is_err() {
                // The client is gone; it asks again when it comes back.
                return;
            }
        }
    }

    fn outside(&self, session: SessionId, cred: &Cred, call: Call) -> Result<Answer, Failure> {
        match call {
            Call::PutBlock { block, bytes } => self.put_block(session, block, &bytes),
            Call::GetBlock { block, offset, len } => self.get_block(block, offset, len),
            Call::Admin { what } => match (what.strip_prefix("view "), what.strip_prefix(JOBS)) {
                (Some(words), _) => self.view(cred, words),
                (None, Some(words)) => self.jobs(session, cred, words),
                (None, None) => self.admin(&what),
            },
            Call::Realm(call) => match *call {
                RealmCall::Object { claim, name, action } => self.realm_object(session, claim, &name, action),
                _ => unreachable!("the engine answers all other calls about realms"),
            },
            _ => unreachable!("the engine answers all other calls"),
        }
    }
}

fn empty_reply(id: u64, m: &Moment) -> Reply {
    Reply { id, epoch: EPOCH, durable: m.durable, result: Ok(Answer::Done) }
}

fn failed(id: u64, m: &Moment) -> Reply {
    Reply { result: Err(Failure::Refused(Refusal::Io)), ..empty_reply(id, m) }
}

/// The answer to a call that does not work with several plates.
fn unsupported(id: u64, m: &Moment) -> Reply {
    Reply { result: Err(Failure::Refused(Refusal::Unsupported)), ..empty_reply(id, m) }
}

/// The answer to a change of a file system that is served read-only.
fn unchanged(id: u64, m: &Moment) -> Reply {
    Reply { result: Err(Failure::Refused(Refusal::ReadOnly)), ..empty_reply(id, m) }
}

/// The answer of a server that stops.
pub(crate) fn stopped(id: u64, m: &Moment) -> Reply {
    Reply { result: Err(Failure::Refused(Refusal::NotConnected)), ..empty_reply(id, m) }
}
