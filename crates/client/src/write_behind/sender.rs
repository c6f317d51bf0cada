//! Sends promises: one message at a time, with all that was promised while the one before was under way, and for a moment
//! more.
//!
//! ```text
//!   promise ─ promise ─┐                  ┌─ promise ─ promise ─ promise ─┐
//!            ▼         ▼                  ▼                               ▼
//!         [ those two ] ── under way ── answered ── [ those three ] ── under way ── …
//! ```
//!
//! Who makes files through a mount is no faster than a server on the same machine: without the moment ([`GATHER`]) each would
//! be a message of its own, and a thread woken for it.
//!
//! Invariants:
//! - A lease that the server does not give with what was promised is given up here before a recall of the directory
//!   is acknowledged: nobody else finds the file earlier.
//! - A server that is silent is promised for no longer than [`AGE_MAX`], and not more than [`PROMISES_MAX`]: who asks
//!   for more waits.
//! - Whoever waits for a promise does not wait for others to be made: see [`State::hurry`].

use std::sync::Arc;
use std::time::Duration;

use chiton_model::Op;
use chiton_runtime::thread::{self, JoinHandle};
use chiton_types::{Cred, Ino, Seq};
use chiton_wire::{Call, Failure, Foretold, LeaseMode, Reply, Request};

use super::{Behind, disappointed};
use crate::connected::{Shared, State};

/// Oldest promise beside which another may be made.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Most promises that the server has not answered.
const PROMISES_MAX: usize = 8_192;
/// So long may a promise wait for others, if nobody waits for it.
const GATHER: Duration = Duration::from_millis(4);
/// So many do not wait for more.
const GATHERED: usize = 256;
/// A server that does not take promises now is asked again so often.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Starts the thread; it ends when `shared` stops.
pub(crate) fn spawn(shared: &Arc<Shared>) -> JoinHandle {
    let shared = shared.clone();
    thread::spawn("chiton-ahead", move || run(&shared)).expect("a thread can be started")
}

fn run(shared: &Arc<Shared>) {
    let mut state = shared.state.lock();
    let mut paused = false;
    while !state.stopping {
        if state.session.stuck().is_some() && !std::mem::replace(&mut paused, true) {
            shared.sending.wait_for(&mut state, AGAIN_AFTER);
            continue;
        }
        paused = false;
        let gathering = state.session.gathering().filter(|_| state.up.is_some());
        let moment = gathering.and_then(|next| to_gather(next, state.hurries(), shared.world.monotonic()));
        if let Some(moment) = moment {
            shared.sending.wait_for(&mut state, moment);
            continue;
        }
        let next = state.up.clone().and_then(|wire| Some((wire, state.session.next_promises()?)));
        let Some((wire, request)) = next else {
            shared.sending.wait(&mut state);
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
                        // What is written to these is pushed, behind promises that this thread is to send.
                        let shared = shared.clone();
                        let body = move || give_up(&shared, weaker);
                        drop(thread::spawn("chiton-give-up", body).expect("a thread can be started"));
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

/// For how long more are waited for before the next message is sent: the number of its first promise, when that was made,
/// and how many it has. `hurry`: somebody waits for all up to this number.
fn to_gather(next: (Seq, Duration, usize), hurry: Option<Seq>, now: Duration) -> Option<Duration> {
    let (seq, since, count) = next;
    let is_waited_for = hurry.is_some_and(|upto| seq <= upto);
    let moment = (since + GATHER).saturating_sub(now);
    (!is_waited_for && count < GATHERED && moment > Duration::ZERO).then_some(moment)
}

fn removes(request: &Request) -> bool {
    matches!(&request.call, Call::Ahead { ops, .. } if ops.iter().any(|op| matches!(op, Op::Unlink { .. })))
}

/// Takes note of a reply. Returns inodes on which there is a weaker lease than was believed; who gives leases back waits
/// until that is seen to.
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
    let weaker = reply.result.as_ref().map(|answer| disappointed(request, answer)).unwrap_or_default();
    state.session.answered(request, reply);
    state.giving_up += usize::from(!weaker.is_empty());
    weaker
}

fn give_up(shared: &Arc<Shared>, weaker: Vec<(Ino, LeaseMode)>) {
    for (ino, keep) in weaker {
        shared.inbox.recalls().note(ino);
        if let Some(handler) = shared.inbox.handler() {
            handler.stop_ahead(ino);
            // Of a directory, and what was made in it meanwhile.
            shared.tell(Behind::Inode(ino), false);
            handler.weaken(ino, keep);
        }
    }
    let mut state = shared.state.lock();
    state.giving_up -= 1;
    shared.wake(&mut state);
}

impl State {
    /// The number up to which somebody waits for promises of this session.
    fn hurries(&self) -> Option<Seq> {
        self.hurry.filter(|(session, _)| *session == self.session.id).map(|(_, upto)| upto)
    }
}

impl Shared {
    /// Keeps an operation that is answered here, to be sent. False if it must be asked for as always.
    pub(crate) fn promise(&self, cred: &Cred, op: &Op, told: Foretold, dir: Ino) -> bool {
        let now = self.world.monotonic();
        let mut state = self.state.lock();
        let (count, since) = state.session.promises();
        if state.up.is_none()
            || state.stopping
            || state.leaving.is_some()
            || state.session.stuck().is_some()
            || count >= PROMISES_MAX
            || since.is_some_and(|since| now.saturating_sub(since) >= AGE_MAX)
            || state.session.kept_bytes() > self.options.kept_bytes_max
        {
            return false;
        }
        state.session.promise(cred, op.clone(), told, dir, now);
        // The first of a message, and the last that is waited for.
        let is_news = state.session.gathering().is_none_or(|(.., count)| count == 1 || count >= GATHERED);
        drop(state);
        if is_news {
            self.sending.notify_one();
        }
        true
    }

    /// Returns when the server has answered all promises about names in a directory, or an inode (`None`: all there are), or
    /// the session they were made in is over.
    pub(crate) fn keep_promises(&self, dir: Option<Ino>) {
        self.tell(dir.map_or(Behind::All, Behind::Inode), true);
    }

    /// The same. `given_up`: also until what was believed to be held and is not is given up.
    fn tell(&self, behind: Behind, given_up: bool) {
        let mut state = self.state.lock();
        let (id, upto) = (state.session.id, state.session.last_seq());
        while !state.stopping
            && state.session.id == id
            && (state.session.is_behind(behind, upto) || (given_up && state.giving_up > 0))
        {
            self.hurry(&mut state, upto);
            self.wait(&mut state);
        }
    }

    /// Somebody waits for all promises up to this number.
    pub(crate) fn hurry(&self, state: &mut State, upto: Seq) {
        if state.hurries().is_none_or(|before| before < upto) {
            state.hurry = Some((state.session.id, upto));
            self.sending.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_waits_for_more_but_for_a_moment_and_not_if_somebody_waits_for_it() {
        let (made, now) = (Duration::from_secs(5), Duration::from_secs(5) + GATHER / 4);
        let next = |count| (Seq(7), made, count);
        assert_eq!(to_gather(next(1), None, now), Some(GATHER / 4 * 3));
        assert_eq!(to_gather(next(1), Some(Seq(6)), now), Some(GATHER / 4 * 3), "for those before it");
        assert_eq!(to_gather(next(1), Some(Seq(7)), now), None);
        assert_eq!(to_gather(next(GATHERED), None, now), None);
        assert_eq!(to_gather(next(1), None, made + GATHER), None);
    }
}
