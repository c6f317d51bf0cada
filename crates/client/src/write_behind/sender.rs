//! Sends pending operations: one message at a time, with all that were acknowledged while the one before was under way, and for a
//! moment more.
//!
//! ```text
//!   create ─ create ─┐                  ┌─ create ─ write ─ create ─┐
//!          ▼         ▼                  ▼                           ▼
//!       [ those two ] ── under way ── answered ── [ those three ] ── under way ── …
//! ```
//!
//! A program that makes files through a mount is no faster than a server on the same machine: without the moment ([`GATHER`])
//! each file would be a message of its own, and a thread woken for it.
//!
//! Invariants:
//! - A lease that the server does not give with a pending operation is given up here before a recall of the directory is
//!   acknowledged: no other client finds the file earlier.
//! - While a server is silent, operations are acknowledged for no longer than [`AGE_MAX`], and not more than [`PENDING_MAX`]: then
//!   callers ask the server, and wait.
//! - A caller that waits for a pending operation does not wait for others to be added: see [`State::urgent`].

use std::sync::Arc;
use std::time::Duration;

use chiton_model::Op;
use chiton_runtime::thread::{self, JoinHandle};
use chiton_types::{Cred, Ino, Seq};
use chiton_wire::{Acknowledged, Call, Failure, LeaseMode, Reply, Request};

use super::{Behind, weaker_leases};
use crate::connected::{Link, State};

/// Oldest pending operation beside which another may be acknowledged.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Most pending operations.
const PENDING_MAX: usize = 8_192;
/// So long may a pending operation wait for others, if no caller waits for it.
const GATHER: Duration = Duration::from_millis(4);
/// A message with so many operations does not wait for more.
const GATHER_OPS_MAX: usize = 256;
/// Time between attempts to send to a server that takes no pending operations now.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Starts the thread; it ends when `shared` stops.
pub(crate) fn spawn(shared: &Arc<Link>) -> JoinHandle {
    let shared = shared.clone();
    thread::spawn("chiton-sender", move || run(&shared)).expect("a thread can be started")
}

fn run(shared: &Arc<Link>) {
    let mut state = shared.state.lock();
    let mut paused = false;
    while !state.stopping {
        if state.session.stuck().is_some() && !std::mem::replace(&mut paused, true) {
            shared.to_send.wait_for(&mut state, AGAIN_AFTER);
            continue;
        }
        paused = false;
        let gathering = state.session.gathering().filter(|_| state.up.is_some());
        let moment =
            gathering.and_then(|next| to_gather(next, state.urgent_upto(), shared.world.monotonic()));
        if let Some(moment) = moment {
            shared.to_send.wait_for(&mut state, moment);
            continue;
        }
        let next = state.up.clone().and_then(|wire| Some((wire, state.session.next_message()?)));
        let Some((wire, request)) = next else {
            shared.to_send.wait(&mut state);
            continue;
        };
        let generation = state.generation;
        // What is closed and then removed need not live on as an orphan.
        let closes = if removes(&request) { state.session.take_closes() } else { None };
        drop(state);
        drop(closes.map(|closes| wire.start(&closes)));
        let sent = shared.world.monotonic();
        let reply = wire.call(&request);
        state = shared.state.lock();
        match reply {
            Ok(reply) if state.generation == generation => {
                if reply.result == Err(Failure::SessionGone) {
                    drop(state);
                    shared.lost(generation);
                } else {
                    shared.heard(sent);
                    let weaker = take(&mut state, &request, &reply);
                    shared.wake(&mut state);
                    drop(state);
                    if !weaker.is_empty() {
                        // Writes to these files are pushed, behind pending operations that this thread is to send.
                        let shared = shared.clone();
                        let body = move || give_up_leases(&shared, weaker);
                        drop(thread::spawn("chiton-weaken", body).expect("a thread can be started"));
                    }
                }
            }
            // It is sent again by the link thread.
            Ok(_) => drop(state),
            Err(_) => {
                drop(state);
                shared.lost(generation);
            }
        }
        state = shared.state.lock();
    }
}

/// How long the next message still waits for more operations. `next`: the number of its first operation, when that was
/// acknowledged, and how many it has. `urgent`: a caller waits for all up to this number.
fn to_gather(next: (Seq, Duration, usize), urgent: Option<Seq>, now: Duration) -> Option<Duration> {
    let (seq, since, count) = next;
    let is_waited_for = urgent.is_some_and(|upto| seq <= upto);
    let moment = (since + GATHER).saturating_sub(now);
    (!is_waited_for && count < GATHER_OPS_MAX && moment > Duration::ZERO).then_some(moment)
}

fn removes(request: &Request) -> bool {
    matches!(&request.call, Call::WriteBehind { ops, .. } if ops.iter().any(|op| matches!(op, Op::Unlink { .. })))
}

/// Records a reply. Returns inodes on which the lease is weaker than the client believed; a recall is acknowledged only after
/// these were dealt with.
fn take(state: &mut State, request: &Arc<Request>, reply: &Reply) -> Vec<(Ino, LeaseMode)> {
    match &reply.result {
        Err(Failure::Refused(refusal)) => {
            state.session.put_back(request, *refusal);
            return Vec::new();
        }
        Err(failure) => {
            tracing::warn!(
                "the server refuses operations that this client has acknowledged: {failure:?}; fsync reports what is lost"
            )
        }
        Ok(_) => {}
    }
    let weaker = reply.result.as_ref().map(|answer| weaker_leases(request, answer)).unwrap_or_default();
    state.session.answered(request, reply);
    state.weakening += usize::from(!weaker.is_empty());
    weaker
}

fn give_up_leases(shared: &Arc<Link>, weaker: Vec<(Ino, LeaseMode)>) {
    for (ino, keep) in weaker {
        shared.inbox.recalls().note(ino);
        if let Some(handler) = shared.inbox.handler() {
            handler.stop_write_behind(ino);
            // Of a directory, and what was made in it meanwhile.
            shared.wait_answered(Behind::Inode(ino), false);
            handler.weaken(ino, keep);
        }
    }
    let mut state = shared.state.lock();
    state.weakening -= 1;
    shared.wake(&mut state);
}

impl State {
    /// The number up to which a caller waits for pending operations of this session.
    fn urgent_upto(&self) -> Option<Seq> {
        self.urgent.filter(|(session, _)| *session == self.session.id).map(|(_, upto)| upto)
    }
}

impl Link {
    /// Queues an operation that the client acknowledges. False if the caller must ask the server.
    pub(crate) fn enqueue(&self, cred: &Cred, op: &Op, acknowledged: Acknowledged, dir: Ino) -> bool {
        let now = self.world.monotonic();
        let mut state = self.state.lock();
        let (count, since) = state.session.pending_ops();
        if state.up.is_none()
            || state.stopping
            || state.leaving.is_some()
            || state.session.stuck().is_some()
            || count >= PENDING_MAX
            || since.is_some_and(|since| now.saturating_sub(since) >= AGE_MAX)
            || state.session.kept_bytes() > self.options.kept_bytes_max
        {
            return false;
        }
        state.session.acknowledge(cred, op.clone(), acknowledged, dir, now);
        // The first of a message, and the last that is waited for.
        let is_news =
            state.session.gathering().is_none_or(|(.., count)| count == 1 || count >= GATHER_OPS_MAX);
        drop(state);
        if is_news {
            self.to_send.notify_one();
        }
        true
    }

    /// Returns when the server has answered all pending operations on names in a directory, or on an inode (`None`: all), or
    /// their session is over.
    pub(crate) fn flush_pending(&self, dir: Option<Ino>) {
        self.wait_answered(dir.map_or(Behind::All, Behind::Inode), true);
    }

    /// The same. `weakened`: also until leases that turned out weaker are given up.
    fn wait_answered(&self, behind: Behind, weakened: bool) {
        let mut state = self.state.lock();
        let (id, upto) = (state.session.id, state.session.last_seq());
        while !state.stopping
            && state.session.id == id
            && (state.session.is_behind(behind, upto) || (weakened && state.weakening > 0))
        {
            self.make_urgent(&mut state, upto);
            self.wait(&mut state);
        }
    }

    /// A caller waits for all pending operations up to this number.
    pub(crate) fn make_urgent(&self, state: &mut State, upto: Seq) {
        if state.urgent_upto().is_none_or(|before| before < upto) {
            state.urgent = Some((state.session.id, upto));
            self.to_send.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_gathers_for_a_moment_unless_a_caller_waits() {
        let (made, now) = (Duration::from_secs(5), Duration::from_secs(5) + GATHER / 4);
        let next = |count| (Seq(7), made, count);
        assert_eq!(to_gather(next(1), None, now), Some(GATHER / 4 * 3));
        assert_eq!(to_gather(next(1), Some(Seq(6)), now), Some(GATHER / 4 * 3), "for those before it");
        assert_eq!(to_gather(next(1), Some(Seq(7)), now), None);
        assert_eq!(to_gather(next(GATHER_OPS_MAX), None, now), None);
        assert_eq!(to_gather(next(1), None, made + GATHER), None);
    }
}
