//! Sends pending operations: one message at a time, with all that were acknowledged while the one before was under way, and for a
//! moment more.
//!
//! ```text
//!   create ─ create ─┐                  ┌─ create ─ write ─ create ─┐
//!          ▼         ▼                  ▼                           ▼
//!       [ those two ] ── under way ── answered ── [ those three ] ── under way ── …
//! ```
//!
//! A program that makes files through a mount is no faster than a server on the same machine: without the moment each file would be a
//! message of its own, and a thread woken for it.
//!
//! Invariants:
//! - If the server gives no lease, or a weaker one, with a pending operation, the client drops the lease it believed to have before it
//!   acknowledges a recall of the directory: no other client finds the file earlier.
//! - A caller that waits for a pending operation does not wait for others to be added.
//! - A message that the server does not take now (it has no space) is sent again as it was, until it is taken or the connection ends.

use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_runtime::thread::{self, JoinHandle};
use chiton_types::{Ino, Position};
use chiton_wire::{Acknowledged, Answer, Call, Failure, LeaseMode, Reply, Request};

use super::behind::Behind;
use crate::connected::{Link, State};
use crate::wire::Wire;

/// Time between attempts to send to a server that takes no pending operations now.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Starts the thread; it ends when the queue stops.
pub(super) fn spawn(link: &Arc<Link>) -> JoinHandle {
    let link = link.clone();
    thread::spawn("chiton-sender", move || run(&link)).expect("a thread can be started")
}

fn run(link: &Arc<Link>) {
    while link.write_behind.queue.wait_due(&*link.world) {
        // Unless the link went down meanwhile: then its thread sends the message.
        if let Some(message) = Outgoing::next(link) {
            message.send();
        }
    }
}

/// A message, and the connection to send it over.
struct Outgoing<'a> {
    link: &'a Arc<Link>,
    wire: Arc<dyn Wire>,
    generation: u64,
    request: Arc<Request>,
}

impl Outgoing<'_> {
    fn next(link: &Arc<Link>) -> Option<Outgoing<'_>> {
        let mut state = link.state.lock();
        let wire = state.up.clone()?;
        let request = link.number_next(&mut state)?;
        Some(Outgoing { link, wire, generation: state.generation, request })
    }

    /// Sends it until the server has taken it, or the connection ends.
    fn send(&self) {
        while !self.attempt() && self.link.write_behind.queue.wait_refused(AGAIN_AFTER) {}
    }

    /// Sends it once. False if the server does not take it now.
    fn attempt(&self) -> bool {
        let closes = {
            let mut state = self.link.state.lock();
            if state.generation != self.generation || state.up.is_none() {
                return true;
            }
            // The closes of files that are then removed go first: so the files need not live on as orphans.
            if removes(&self.request) { self.link.take_closes(&mut state) } else { None }
        };
        drop(closes.map(|closes| self.wire.start(&closes)));
        let sent = self.link.world.monotonic();
        let Ok(reply) = self.wire.call(&self.request) else {
            self.link.lost(self.generation);
            return true;
        };
        let mut state = self.link.state.lock();
        if state.generation != self.generation {
            // The link's thread sends it again.
            return true;
        }
        match &reply.result {
            Err(Failure::SessionGone) => {
                drop(state);
                self.link.lost(self.generation);
                return true;
            }
            Err(Failure::Refused(refusal)) => {
                self.link.heard(sent);
                self.link.write_behind.queue.refused(*refusal);
                self.link.wake(&mut state);
                return false;
            }
            Err(failure) => {
                tracing::warn!(
                    "the server refuses operations that this client has acknowledged: {failure:?}; fsync reports the loss"
                );
            }
            Ok(_) => {}
        }
        self.link.heard(sent);
        let weaker = self.record(&mut state, &reply);
        self.link.wake(&mut state);
        drop(state);
        if !weaker.is_empty() {
            // Writes to these files are pushed, behind pending operations that this thread is to send.
            let link = self.link.clone();
            let body = move || give_up_leases(&link, weaker);
            drop(thread::spawn("chiton-weaken", body).expect("a thread can be started"));
        }
        true
    }

    /// Records an answer. Returns inodes on which the lease is weaker than the client believed; a recall is acknowledged only after
    /// these were dealt with.
    fn record(&self, state: &mut State, reply: &Reply) -> Vec<(Ino, LeaseMode)> {
        let weaker =
            reply.result.as_ref().map(|answer| weaker_leases(&self.request, answer)).unwrap_or_default();
        state.session.answered(&self.request, reply);
        let queue = &self.link.write_behind.queue;
        queue.note_kept(state.session.kept_bytes());
        queue.answered(self.request.seq, !weaker.is_empty());
        weaker
    }
}

impl Link {
    /// Numbers the next message, and moves it to the session's kept requests.
    fn number_next(&self, state: &mut State) -> Option<Arc<Request>> {
        let queue = &self.write_behind.queue;
        let request = queue.send_next(|cred, call| state.session.issue(cred, call))?;
        queue.note_kept(state.session.kept_bytes());
        Some(request)
    }

    /// Numbers all unsent messages: they are sent over the next connection, with the requests that are sent again.
    pub(crate) fn number_unsent(&self, state: &mut State) {
        while self.number_next(state).is_some() {}
    }
}

fn removes(request: &Request) -> bool {
    matches!(&request.call, Call::WriteBehind { ops, .. } if ops.iter().any(|op| matches!(op, Op::Unlink { .. })))
}

fn give_up_leases(link: &Arc<Link>, weaker: Vec<(Ino, LeaseMode)>) {
    let queue = &link.write_behind.queue;
    for (ino, keep) in weaker {
        link.inbox.recalls().note(ino);
        if let Some(handler) = link.inbox.handler() {
            handler.stop_write_behind(ino);
            // Of a directory, and of files that were made in it meanwhile.
            queue.wait_answered(Behind::Inode(ino), false);
            handler.weaken(ino, keep);
        }
    }
    queue.weakened();
}

/// Of the operations of an answered message: inodes on which the lease is weaker than the client believes, with the lease that it
/// has; and those of refused operations.
fn weaker_leases(request: &Request, answer: &Answer) -> Vec<(Ino, LeaseMode)> {
    let (Call::WriteBehind { ops, acknowledged }, Answer::WriteBehind(results)) = (&request.call, answer)
    else {
        return Vec::new();
    };
    type Pending<'a> = (&'a Op, &'a Acknowledged);
    let weaker = |((op, one), result): (Pending<'_>, &Result<(Position, LeaseMode), Failure>)| {
        let lease = result.as_ref().map_or(LeaseMode::None, |(_, lease)| *lease);
        (lease < lease_on(op)).then_some((one.ino, lease))
    };
    ops.iter().zip(acknowledged).zip(results).filter_map(weaker).collect()
}

/// The lease on its inode that the client assumes after an operation; of a directory on its names.
pub(super) fn lease_on(op: &Op) -> LeaseMode {
    match matches!(op, Op::Make { make: Make::Symlink { .. }, .. }) {
        true => LeaseMode::Shared,
        false if matches!(op, Op::Unlink { .. }) => LeaseMode::None,
        false => LeaseMode::Exclusive,
    }
}
