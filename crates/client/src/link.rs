//! The threads that keep a session's link: one dials, greets and sends again; one pings and reports closes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chiton_model::Outcome;
use chiton_runtime::thread::{self, JoinHandle};
use chiton_transport::Pending;
use chiton_types::{Cred, Ino, Position, Refusal, Seq, Time};
use chiton_wire::{Answer, Call, Channel, Failure, Hello, LeaseMode, RefuseReason, Request, Welcome};

use crate::connected::{Link, Resolved, hello};
use crate::session::{CarriedOut, Resend, Session, Unanswered, assemble};
use crate::wire::{RecallWire, Wire};

const BACKOFF_FIRST: Duration = Duration::from_millis(2);
const BACKOFF_MAX: Duration = Duration::from_millis(250);
/// Closes wait at most so long.
const TICK: Duration = Duration::from_secs(1);
/// A server that is away for longer than this is named in the log: one that restarts, or is replaced by another, is back sooner.
const LOGGED_AFTER: Duration = Duration::from_secs(5);

/// An attempt to reach the server failed.
struct Lost;

/// How often one that leaves looks whether the server has been silent for too long.
const LOOK: Duration = Duration::from_millis(50);

/// Starts the threads; they end when `shared` stops.
pub(crate) fn spawn(shared: &Arc<Link>) -> Vec<JoinHandle> {
    let start = |name, body: fn(&Arc<Link>)| {
        let shared = shared.clone();
        thread::spawn(name, move || body(&shared)).expect("a thread can be started")
    };
    vec![start("chiton-link", run), start("chiton-keep", keep)]
}

/// Drops a silent server when a leaving client has waited long enough for it.
pub(crate) fn watch_leaving(shared: &Arc<Link>) {
    let shared = Arc::downgrade(shared);
    let body = move || {
        while shared.upgrade().is_some_and(|shared| !shared.left()) {
            thread::sleep(LOOK);
        }
    };
    drop(thread::spawn("chiton-leave", body).expect("a thread can be started"));
}

/// Dials whenever the link is down, and says that it is when the server has been silent for a session's time.
fn run(shared: &Arc<Link>) {
    let mut backoff = BACKOFF_FIRST;
    loop {
        let mut state = shared.state.lock();
        if state.stopping {
            return;
        }
        if state.up.is_some() {
            let (_, session_time) = shared.last_heard();
            shared.wanted.wait_for(&mut state, TICK.min(session_time / 4));
            let (heard, session_time) = shared.last_heard();
            let silent =
                state.asked_since.map(|since| shared.world.monotonic().saturating_sub(since.max(heard)));
            let generation = state.generation;
            drop(state);
            if silent.is_some_and(|silent| silent >= session_time) {
                // It is over there anyway; and a waiting caller can be interrupted.
                shared.dialer.was_silent(shared.options.plate);
                shared.lost(generation);
            }
            backoff = BACKOFF_FIRST;
            continue;
        }
        drop(state);
        if reconnect(shared).is_err() {
            let mut state = shared.state.lock();
            if let Some(wire) = state.arriving.take() {
                wire.close();
            }
            // Callers that do not wait for ever look at the clock.
            shared.wake(&mut state);
            if !state.stopping {
                shared.wanted.wait_for(&mut state, backoff);
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }
}

/// Reports closes, and asks for a sign of life, while the link is up.
fn keep(shared: &Arc<Link>) {
    let mut state = shared.state.lock();
    while !state.stopping {
        let (_, session_time) = shared.last_heard();
        let leave = state.leaving.map_or(TICK, |(_, limit)| limit / 4);
        shared.wanted.wait_for(&mut state, TICK.min(session_time / 4).min(leave));
        let Some(wire) = state.up.clone().filter(|_| !state.stopping) else { continue };
        let (generation, closes) = (state.generation, shared.take_closes(&mut state));
        state.asked_since = Some(shared.world.monotonic());
        let leave = state.leaving.map(|(_, limit)| limit / 4);
        drop(state);
        upkeep(shared, &*wire, generation, closes, leave);
        state = shared.state.lock();
        state.asked_since = None;
    }
}

/// A connection is there over which things are sent again before it is up: a stopping client can close it.
fn arrive(shared: &Link, wire: &Arc<dyn Wire>) -> Result<(), Lost> {
    let mut state = shared.state.lock();
    if state.stopping {
        wire.close();
        return Err(Lost);
    }
    state.arriving = Some(wire.clone());
    Ok(())
}

/// Deferred closes, or a ping if nothing was said for a third of the session's time (or for as long as one that leaves
/// wants to know).
fn upkeep(
    shared: &Link,
    wire: &dyn Wire,
    generation: u64,
    closes: Option<Arc<Request>>,
    leave: Option<Duration>,
) {
    let sent = shared.world.monotonic();
    let (heard, session_time) = shared.last_heard();
    let request = match closes {
        Some(closes) => closes,
        None if sent.saturating_sub(heard) >= leave.unwrap_or(Duration::MAX).min(session_time / 3) => {
            shared.state.lock().session.issue(&Cred::ROOT, Call::Ping)
        }
        None => return,
    };
    match wire.call(&request) {
        Ok(reply) if reply.result == Err(Failure::SessionGone) => shared.lost(generation),
        Ok(reply) => {
            let mut state = shared.state.lock();
            if state.generation == generation {
                state.session.answered(&request, &reply);
                shared.heard(sent);
            }
        }
        Err(_) => shared.lost(generation),
    }
}

/// One attempt. On success the link is up and everything has been sent again.
fn reconnect(shared: &Arc<Link>) -> Result<(), Lost> {
    let sent = shared.world.monotonic();
    let (resume, resend_count) = {
        let mut state = shared.state.lock();
        shared.number_unsent(&mut state);
        ((state.session.id, state.session.secret), state.session.resend_count())
    };
    let greeting = Hello { resend_count, ..hello(&shared.options, Channel::Main, Some(resume)) };
    let (welcome, wire) = dial(shared, &greeting)?;
    match welcome {
        Welcome::Accepted { boot, session_ms, durable, .. } => {
            let wire = wire.ok_or(Lost)?;
            arrive(shared, &wire)?;
            shared.set_session_ms(session_ms);
            let greeting = hello(&shared.options, Channel::Recall, Some(resume));
            let recall = recall_wire(shared, &greeting)?;
            let (generation, resends) = {
                let mut state = shared.state.lock();
                state.generation += 1;
                (state.generation, state.session.resume(boot, durable))
            };
            // From here on nothing is answered under a lease of before, so nothing becomes dirty that is not declared.
            leases_are_void(shared, None);
            let dirty =
                shared.inbox.handler().map(|handler| handler.dirty(&shared.inodes)).unwrap_or_default();
            let reopen = shared.reopen(dirty);
            shared.pool.listen(shared, recall);
            let unanswered = resume_session(shared, &wire, &reopen, resends)?;
            send_late(shared, &*wire)?;
            go_up(shared, wire.clone(), sent)?;
            wait_for(shared, wire, generation, unanswered);
            Ok(())
        }
        Welcome::Refused { reason: RefuseReason::SessionGone, .. } => begin_anew(shared, sent),
        Welcome::Refused { .. } | Welcome::Elsewhere { .. } => Err(Lost),
    }
}

fn dial(shared: &Link, greeting: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), Lost> {
    let dialed = shared.dialer.dial(greeting);
    let why = match &dialed {
        Err(why) | Ok((Welcome::Refused { reason: RefuseReason::NotReady, message: why }, _)) => Some(why),
        Ok(_) => None,
    };
    if let Some(why) = why {
        let mut state = shared.state.lock();
        let away = shared.world.monotonic().saturating_sub(state.down_since);
        if away >= LOGGED_AFTER && !state.is_outage_logged {
            state.is_outage_logged = true;
            tracing::warn!("{why}; the client tries again, and operations wait");
        }
    }
    dialed.map_err(|_| Lost)
}

fn recall_wire(shared: &Link, greeting: &Hello) -> Result<Arc<dyn RecallWire>, Lost> {
    match shared.dialer.dial_recall(greeting) {
        Ok((Welcome::Accepted { .. }, Some(recall))) => Ok(recall),
        Ok(_) | Err(_) => Err(Lost),
    }
}

/// The session is over: a new one begins. Operations of the one before that the server did not carry out are sent to it as late ones.
fn begin_anew(shared: &Arc<Link>, sent: Duration) -> Result<(), Lost> {
    let greeting = hello(&shared.options, Channel::Main, None);
    let (welcome, wire) = dial(shared, &greeting)?;
    let Welcome::Accepted { session, secret, boot, session_ms, durable, .. } = welcome else {
        return Err(Lost);
    };
    let wire = wire.ok_or(Lost)?;
    arrive(shared, &wire)?;
    let recall = recall_wire(shared, &hello(&shared.options, Channel::Recall, Some((session, secret))))?;
    shared.set_session_ms(session_ms);
    let mut next = Session::new(session, secret, boot, durable);
    let carried_out = ask_for_end(shared, &*wire, &mut next)?;
    // While the old session is still that which calls are for: operations that are reported as lost now are not sent in the new one.
    let landed = shared.state.lock().session.landed(&carried_out);
    leases_are_void(shared, Some(&landed));
    let reopen = {
        let mut state = shared.state.lock();
        let before = state.session.id;
        state.generation += 1;
        shared.write_behind.queue.clear();
        for (seq, became) in state.session.expire(next, &carried_out) {
            let resolved = match became {
                Unanswered::Pushed => Resolved::Answer(Ok(pushed())),
                Unanswered::NotCarriedOut => Resolved::Undecided,
                Unanswered::Lost => Resolved::Answer(Err(Failure::Refused(Refusal::Io))),
            };
            state.resolved.insert((before, seq), resolved);
        }
        shared.wake(&mut state);
        state.session.reopen(Vec::new(), Vec::new())
    };
    leases_are_void(shared, None);
    shared.pool.listen(shared, recall);
    resume_session(shared, &wire, &reopen, Vec::new())?;
    send_late(shared, &*wire)?;
    go_up(shared, wire, sent)
}

/// Sends the late operations, one message after the other. Then it is known whether those rest on a lost one that had no answer when
/// their session ended.
fn send_late(shared: &Link, wire: &dyn Wire) -> Result<(), Lost> {
    let mut are_opens_new = false;
    loop {
        let next = shared.state.lock().session.next_late();
        let Some(request) = next else { break };
        let sent = shared.world.monotonic();
        let reply = wire.call(&request).map_err(|_| Lost)?;
        if let Err(Failure::SessionGone | Failure::Refused(Refusal::NotConnected)) = reply.result {
            return Err(Lost);
        }
        are_opens_new = true;
        shared.heard(sent);
        shared.state.lock().session.answered(&request, &reply);
    }
    if are_opens_new {
        wire.call(&shared.reopen(Vec::new())).map_err(|_| Lost)?;
    }
    let mut state = shared.state.lock();
    let is_any_lost = state.session.take_lost_late();
    for fate in state.resolved.values_mut().filter(|fate| matches!(fate, Resolved::Undecided)) {
        *fate = match is_any_lost {
            true => Resolved::Answer(Err(Failure::Refused(Refusal::Io))),
            false => Resolved::AskAnew,
        };
    }
    shared.wake(&mut state);
    Ok(())
}

/// Asks what the server carried out in the session that is over.
fn ask_for_end(shared: &Link, wire: &dyn Wire, next: &mut Session) -> Result<CarriedOut, Lost> {
    let (session, secret) = {
        let session = &shared.state.lock().session;
        (session.id, session.secret)
    };
    let request = next.issue(&Cred::ROOT, Call::Ended { session, secret });
    match wire.call(&request).map_err(|_| Lost)?.result {
        Ok(Answer::CarriedOut { runs, end }) => {
            Ok(CarriedOut { runs: Some(runs), end: (end > Position(0)).then_some(end) })
        }
        // It is not remembered any more: all may be lost.
        _ => Ok(CarriedOut::default()),
    }
}

/// The answer to a push that was carried out, from a server that knows no more of it.
fn pushed() -> Answer {
    let outcome = Outcome { attr: None, other: None, gone: None, time: Time(0) };
    Answer::Op { position: Position(0), outcome, lease: LeaseMode::None, parent_leased: false }
}

/// Those on the inodes of the link's plate. `landed`: the session is over, and
/// of the unanswered operations the pushes of these files were carried out.
fn leases_are_void(shared: &Link, landed: Option<&BTreeSet<Ino>>) {
    shared.inbox.recalls().note_all();
    if let Some(handler) = shared.inbox.handler() {
        handler.void(&shared.inodes, landed);
    }
}

impl Link {
    /// The request that declares what the session holds, with the `dirty` files.
    fn reopen(&self, dirty: Vec<Ino>) -> Arc<Request> {
        self.state.lock().session.reopen(dirty, self.write_behind.queue.dirs())
    }
}

/// An operation that was sent again, and its answer when it comes.
type SentAgain = (Resend, Pending);

/// Declares what the session holds, sends again, and hands the answers to those who wait. Returns the operations that no
/// server has answered yet and that a caller waits for: each may wait until another client has given a lease back, and that
/// client for one of ours.
fn resume_session(
    shared: &Link,
    wire: &Arc<dyn Wire>,
    reopen: &Request,
    resends: Vec<Resend>,
) -> Result<Vec<SentAgain>, Lost> {
    let declared = wire.start(reopen);
    put_again(shared, &**wire)?;
    // All at once: after a restart the server answers none before it has them all.
    let pending: Vec<SentAgain> =
        resends.into_iter().map(|resend| (resend.clone(), wire.start(&resend.request))).collect();
    declared.wait().map_err(|_| Lost)?;
    let (known, unanswered) = pending.into_iter().partition(|(resend, _)| {
        let was_answered = resend.request.again.is_some_and(|again| again.position > Position(0));
        was_answered || matches!(resend.request.call, Call::WriteBehind { .. })
    });
    answers(shared, wire, None, known)?;
    Ok(unanswered)
}

/// Takes the answers to the operations that were sent again, in order. `generation`: only while this connection is the one that is up.
fn answers(
    shared: &Link,
    wire: &Arc<dyn Wire>,
    generation: Option<u64>,
    pending: Vec<SentAgain>,
) -> Result<(), Lost> {
    let mut replies: Vec<(Seq, Result<Answer, Failure>)> = Vec::new();
    let mut counts_are_new = false;
    let mut pending = pending.into_iter().peekable();
    while let Some((resend, ongoing)) = pending.next() {
        let reply = ongoing.wait().map_err(|_| Lost)?;
        match reply.result {
            // The server stops. The client asks the next one.
            Err(Failure::Refused(Refusal::NotConnected)) => return Err(Lost),
            // Nothing is decided by that about the operation: at the greeting it says what it knows for certain.
            Err(Failure::SessionGone) => return Err(Lost),
            _ => {}
        }
        replies.push((resend.request.seq, reply.result));
        counts_are_new |= match &resend.request.call {
            Call::Op { open, .. } => *open,
            Call::WriteBehind { acknowledged, .. } => acknowledged.iter().any(|one| one.open),
            _ => false,
        };
        if pending.peek().is_none_or(|(next, _)| next.of.seq != resend.of.seq) {
            resolve(shared, generation, &resend.of, std::mem::take(&mut replies), reply.durable)?;
        }
    }
    if counts_are_new {
        // Whether an operation that was answered from the server's memory counted its open once more is not
        // for us to know: say what is.
        let reopen = shared.reopen(Vec::new());
        wire.call(&reopen).map_err(|_| Lost)?;
    }
    Ok(())
}

/// Takes the answers to these on a thread of its own.
fn wait_for(shared: &Arc<Link>, wire: Arc<dyn Wire>, generation: u64, unanswered: Vec<SentAgain>) {
    if unanswered.is_empty() {
        return;
    }
    let shared = shared.clone();
    let body = move || {
        if answers(&shared, &wire, Some(generation), unanswered).is_err() {
            shared.lost(generation);
        }
    };
    drop(thread::spawn("chiton-resent", body).expect("a thread can be started"));
}

/// Puts the blocks again that the server may have lost with its last boot; operations that name
/// them follow. One that cannot be put makes this attempt fail: the block is nowhere else.
fn put_again(shared: &Link, wire: &dyn Wire) -> Result<(), Lost> {
    let (boot, puts) = {
        let session = &shared.state.lock().session;
        (session.boot(), session.blocks.missing_in(session.boot()))
    };
    for put in puts {
        let reply = wire.call(&put).map_err(|_| Lost)?;
        if reply.result == Err(Failure::Refused(Refusal::NotPermitted)) {
            // Of a decoupling that the server has forgotten, or whose end it knows of: operations that name it are refused too.
            shared.state.lock().session.blocks.forget(&put);
            continue;
        }
        if let Err(failure) = reply.result {
            tracing::warn!(
                "the server was restarted and does not accept a block again: {failure:?}; the client retries"
            );
            return Err(Lost);
        }
        shared.state.lock().session.blocks.has(&put, boot);
    }
    Ok(())
}

fn resolve(
    shared: &Link,
    generation: Option<u64>,
    of: &Request,
    replies: Vec<(Seq, Result<Answer, Failure>)>,
    durable: Position,
) -> Result<(), Lost> {
    let (results, answer) = assemble(of, replies);
    let mut state = shared.state.lock();
    if generation.is_some_and(|generation| generation != state.generation) {
        return Err(Lost);
    }
    if matches!(of.call, Call::WriteBehind { .. }) {
        shared.write_behind.queue.answered(of.seq, false);
    }
    if state.session.resent(of.seq, &results, durable) {
        let id = state.session.id;
        state.resolved.insert((id, of.seq), Resolved::Answer(answer));
        shared.wake(&mut state);
    }
    Ok(())
}

fn go_up(shared: &Link, wire: Arc<dyn Wire>, sent: Duration) -> Result<(), Lost> {
    shared.heard(sent);
    let mut state = shared.state.lock();
    state.arriving = None;
    if state.stopping || shared.pool.is_broken() {
        wire.close();
        return Err(Lost);
    }
    state.up = Some(wire);
    if std::mem::take(&mut state.is_outage_logged) {
        tracing::info!("the server answers again");
    }
    shared.write_behind.queue.note_kept(state.session.kept_bytes());
    shared.write_behind.queue.set_up(true);
    shared.wake(&mut state);
    Ok(())
}
