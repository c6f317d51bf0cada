//! Sessions begin, come back, fall silent, end; and the recovery window around a restart.
//!
//! Invariants:
//! - A session's end answers its waiting requests at once. Its opens, leases and locks go at once too if the client
//!   said so, else when the end is durable ([`crate::session_expiry`]).
//! - Orphans are freed only after the recovery window: until then a session may declare them open.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use chiton_model::Event;
use chiton_types::{Ino, Position, SessionId};
use chiton_wire::{Call, Failure, Recall, RefuseReason};

use crate::engine::Engine;
use crate::moment::Moment;
use crate::parts::Clients;
use crate::peers::is_of_ticket;
use crate::sessions::{Slot, clip_identity, event_identity};
use crate::step::{Command, Step};
use crate::wait_queue::{Task, Wait};

/// A session that began or came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub session: SessionId,
    /// With this its client proves that it is the client.
    pub secret: u64,
}

impl Engine {
    /// Whether sessions share the file system, now and later.
    pub fn is_shared(&self) -> Arc<AtomicBool> {
        self.clients.leases.is_shared()
    }

    /// Begins a session under an id that was never used. A volatile one leaves no trace in the journal.
    pub fn open_session(
        &mut self,
        session: SessionId,
        secret: u64,
        identity: &str,
        volatile: bool,
        m: &Moment,
    ) -> Result<Opened, RefuseReason> {
        if self.clients.sessions.len() >= self.settings.sessions_max {
            return Err(RefuseReason::Full);
        }
        let identity = clip_identity(identity);
        if !volatile {
            self.output.commit_own(
                &Event::SessionOpened { session, identity: event_identity(&identity, secret) },
                &mut self.shards,
            );
        }
        let slot = self.clients.sessions.insert(session, secret, identity, volatile, m.mono);
        if volatile {
            self.join_leases(slot);
        }
        Ok(Opened { session, secret })
    }

    /// Notes the greeting of a session's connection: the number by which other plates know its client (0: none), and whether it
    /// decouples subtrees whose policy says so, before it changes something in them.
    pub fn note_greeting(&mut self, session: SessionId, client: u64, decouples: bool) {
        // A decoupled client's engine holds what was decoupled already.
        let is_realm = self.is_realm();
        self.clients.sessions.note_client(session, client);
        if let Some(session) = self.clients.sessions.get_mut(session) {
            session.decouples = decouples && !is_realm;
        }
    }

    /// A session has the server work for it: if it holds every lease because it was alone, it gives all of them up at once. Each inode
    /// that the work touches would cost a recall otherwise.
    pub fn yield_leases(&mut self, session: SessionId, m: &Moment) {
        if let Some(session) = self.clients.sessions.get_mut(session) {
            self.clients.leases.recall_everything_of(session.slot, m.mono);
        }
    }

    /// A session comes back on a new connection and will send `resend_count` operations again.
    pub fn resume_session(
        &mut self,
        session: SessionId,
        secret: u64,
        resend_count: u32,
        m: &Moment,
    ) -> Result<Opened, RefuseReason> {
        let known = self.clients.sessions.get_mut(session).filter(|s| s.secret == secret && !s.volatile);
        let Some(known) = known else {
            // A crash may bring it back: its end is not reported before it is durable.
            let is_ending =
                self.clients.sessions.over(session, secret).is_some_and(|over| over.end > m.durable);
            return Err(if is_ending { RefuseReason::NotReady } else { RefuseReason::SessionGone });
        };
        known.heard = m.mono;
        if let Some(recovery) = &mut self.recovery {
            recovery.resumed(session, resend_count);
            self.recovery_step(m);
        }
        Ok(Opened { session, secret })
    }

    /// A session's recall connection is there: from now on it may be given leases. Returns the recalls that it has
    /// not answered; `None` if it is unknown or over, or the secret is wrong.
    pub fn recalls_connected(&mut self, session: SessionId, secret: u64, m: &Moment) -> Option<Vec<Recall>> {
        let known = self.clients.sessions.get_mut(session).filter(|s| s.secret == secret && !s.volatile)?;
        known.heard = m.mono;
        let slot = known.slot;
        self.join_leases(slot);
        let mut out = self.clients.leases.recalls_out(slot);
        out.extend(self.clients.growths.out_to(slot));
        Some(out)
    }

    fn join_leases(&mut self, slot: Slot) {
        if self.recovery.is_some() || !self.clients.resends.tasks.is_empty() {
            self.clients.leases.rejoin(slot);
        } else {
            self.clients.leases.join(slot);
        }
    }

    /// Ends a session whose client says so, or is in this process: all that is its is free at once.
    pub fn end_session(&mut self, session: SessionId, m: &Moment) {
        if let Some(slot) = self.close_session(session, m) {
            self.release(slot, m);
        }
    }

    /// Forgets the session and answers its requests. Returns the slot whose opens, leases and
    /// locks are to be released.
    pub(crate) fn close_session(&mut self, session: SessionId, m: &Moment) -> Option<Slot> {
        if !self.clients.sessions.get(session)?.volatile {
            self.output.commit_own(&Event::SessionClosed { session }, &mut self.shards);
        }
        let ended = self.clients.sessions.remove(session, self.output.position)?;
        for ticket in self.queue.waiting.select(|task, _| task.session == session) {
            self.clients.locks.cancel(ticket);
            self.give_up_crossings(|key| is_of_ticket(*key, ticket.0));
            self.answer_waiting(ticket, Err(Failure::SessionGone), m);
        }
        self.give_up_crossings(|key| key.session == session);
        self.realms().end_fleeting(session, m);
        self.queue.commands.push(Command::DropSession(session, self.output.position));
        for task in self.recovery.as_mut().map(|recovery| recovery.gone(session)).unwrap_or_default() {
            let ticket = task.ticket.expect("what is collected has a ticket");
            let reply = self.reply(task.request.id, Err(Failure::SessionGone), m);
            self.queue.commands.push(Command::Reply(ticket, reply));
        }
        Some(ended.slot)
    }

    /// Lets others have what an ended session held.
    pub(crate) fn release(&mut self, slot: Slot, m: &Moment) {
        let freed = self.clients.leases.leave(slot);
        self.queue.wake_inos(freed, &mut self.clients.leases);
        for round in self.clients.growths.leave(slot) {
            self.wake_where(|wait| *wait == Wait::Growth(round));
        }
        for ino in self.clients.opens.drop_slot(slot) {
            self.shards.closed(ino);
        }
        self.clients.locks.drop_slot(slot, &mut self.clients.lock_grants);
        self.answer_lock_grants(m);
    }

    /// Time passes: silent sessions and the recovery window end. To be called about every 100 ms.
    pub fn tick(&mut self, m: &Moment) {
        self.release_ended(m);
        self.refuse_hopeless(m);
        self.shards.end_lingering(m);
        if self.recovery.is_some() {
            self.recovery_step(m);
            return;
        }
        let limit = Duration::from_millis(u64::from(self.settings.session_ms));
        let since = m.mono.saturating_sub(limit);
        let mut over = self.clients.sessions.silent_since(since);
        if !over.is_empty() {
            // A session whose resent operation waits for room sends nothing else before: it is not silent, it waits.
            let waiting = self.queue.waiting.sessions(|wait| *wait == Wait::Room);
            over.retain(|session| !waiting.contains(session));
        }
        let overdue =
            self.clients.leases.overdue(since, m.mono).into_iter().chain(self.clients.growths.overdue(since));
        over.extend(overdue.filter_map(|slot| self.clients.sessions.of_slot(slot)));
        for session in over {
            self.expire_session(session, m);
        }
    }

    /// Says which clients have a connection to this server, by their identities, while sessions are coming back.
    pub fn note_present(&mut self, is_present: impl Fn(&str) -> bool) {
        let sessions = &self.clients.sessions;
        let is_gone = |id| sessions.get(id).is_some_and(|session| !is_present(&session.identity));
        if let Some(recovery) = &mut self.recovery {
            recovery.note_gone(is_gone);
        }
    }

    /// Says which clients cannot come back, by their identities.
    pub fn note_ended(&mut self, has_ended: impl Fn(&str) -> bool) {
        let sessions = &self.clients.sessions;
        let has_ended = |id| sessions.get(id).is_some_and(|session| has_ended(&session.identity));
        if let Some(recovery) = &mut self.recovery {
            recovery.note_ended(has_ended);
        }
    }

    /// A request while sessions are coming back.
    pub(crate) fn request_in_recovery(&mut self, mut task: Task, m: &Moment) -> Step {
        if self.clients.sessions.get(task.session).is_none() {
            return self.retry(task, m);
        }
        let is_new = match &task.request.call {
            Call::Op { .. } | Call::Batch { .. } | Call::WriteBehind { .. } | Call::LeaseNames { .. } => true,
            // It comes after all that is sent again.
            Call::Late { .. } => true,
            Call::Realm(_)
            | Call::Query(_)
            | Call::Lease { .. }
            | Call::SetLock { .. }
            | Call::GetLock { .. }
            | Call::Grown { .. } => true,
            Call::Commit { .. }
            | Call::Closed { .. }
            | Call::Reopen { .. }
            | Call::Ended { .. }
            | Call::CancelLock { .. } => false,
            Call::PutBlock { .. } | Call::GetBlock { .. } | Call::Admin { .. } | Call::Ping | Call::Bye => {
                false
            }
        };
        if !is_new {
            return self.retry(task, m);
        }
        self.clients.heard(task.session, m);
        match &mut self.recovery {
            Some(recovery) if task.request.again.is_some() => {
                let ticket = self.queue.waiting.issue();
                task.ticket = Some(ticket);
                recovery.collect(task);
                self.recovery_step(m);
                Step::Waiting(ticket)
            }
            _ => Step::Waiting(self.enqueue(task, Wait::Recovery)),
        }
    }

    /// A session of before the restart says what it holds. Outside of the window that changes nothing: the leases of this
    /// start of the server count.
    pub(crate) fn declare(&mut self, session: SessionId, dirty: &[Ino], names: &[Ino], m: &Moment) {
        let Some(slot) = self.clients.sessions.get(session).map(|session| session.slot) else { return };
        let Some(recovery) = &mut self.recovery else { return };
        if recovery.declared(session) {
            self.clients.leases.rejoin(slot);
            self.clients.leases.declare(slot, dirty, names, m.now);
        }
        self.recovery_step(m);
    }

    /// Ends the window if there is nothing more to wait for. Sessions that did not come back
    /// end first, and for good: their leases are free only when no crash can bring them back.
    pub(crate) fn recovery_step(&mut self, m: &Moment) {
        let heard = |id| self.clients.sessions.get(id).map_or(Duration::ZERO, |session| session.heard);
        let Some(recovery) = self.recovery.as_ref().filter(|recovery| recovery.is_over(m.mono, heard)) else {
            return;
        };
        for session in recovery.missing() {
            self.expire_session(session, m);
        }
        if !self.clients.expired.is_empty() {
            return;
        }
        let Some(recovery) = self.recovery.take() else { return };
        self.clients.resends.tasks = recovery.finish().into();
        if let Some(peers) = &mut self.peers {
            peers.collected(self.clients.resends.tasks.iter(), &mut self.queue);
        }
        if self.clients.resends.tasks.is_empty() {
            self.recovery_ended(m);
        }
    }

    /// The last resend is carried out: all other requests resume.
    pub(crate) fn recovery_ended(&mut self, m: &Moment) {
        self.opened.get_or_insert(m.mono);
        self.clients.resends.held_up.clear();
        self.clients.leases.all_back();
        self.wake_where(|wait| *wait == Wait::Recovery);
        if let Some(peers) = &mut self.peers {
            peers.open(self.output.position, m.durable, &mut self.queue);
        }
        // A removed directory is emptied also if a client has it open.
        self.shards.reclaims.extend(&self.shards.orphans);
    }

    /// Sessions that are waited for and resends that are here, while the recovery window is open.
    pub fn recovery_state(&self) -> Option<(usize, usize)> {
        self.recovery.as_ref().map(|recovery| recovery.state())
    }

    /// When the clients of before were back, and new requests were carried out for the first time.
    pub fn opened(&self) -> Option<Duration> {
        self.opened
    }

    /// Everything answered so far ends here.
    pub fn commit_position(&self, upto: Position) -> Position {
        let last = self.journalled();
        if upto == Position(0) { last } else { upto.min(last) }
    }
}

impl Clients {
    /// A sign of life.
    pub(crate) fn heard(&mut self, session: SessionId, m: &Moment) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.heard = m.mono;
        }
    }
}
