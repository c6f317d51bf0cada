//! A service at the other end of a socket.
//!
//! ```text
//!   callers ── RemoteCall ──▶ Wire ─────────▶ server        the calling thread writes and reads
//!                 │lost
//!                 ▼
//!   link thread: dial ─ resume ─ reopen ─ resends ─▶ up      ping, deferred closes
//!   recall threads: Handler::recall ─▶ done
//! ```
//!
//! Invariants:
//! - The state's lock is never held while something is sent or received.
//! - New calls wait until what must be sent again has been answered.
//! - A call does not overtake pending operations that were acknowledged before it and that it may have to do with.
//! - A reply that came over a connection that has been replaced meanwhile is not believed: its operation was
//!   sent again, and that answer counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use chiton_runtime::SharedWorld;
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::thread::JoinHandle;
use chiton_types::{Cred, Ino, PlateId, Plates, Position, Refusal, Seq, SessionId};
use chiton_wire::{Answer, Call, Channel, Failure, Hello, PROTOCOL_VERSION, Request, Welcome};

use crate::first_session::{Begun, begin};
use crate::in_flight::refusal;
use crate::link;
use crate::plate_inodes::PlateInodes;
use crate::recall_pool::RecallPool;
use crate::remote_call::RemoteCall;
use crate::service::{
    self, CallError, Connection, Durability, Interrupted, PlateLookup, Service, Underway, ready,
};
use crate::session::Session;
use crate::wire::{Dialer, Wire};
use crate::write_behind::{Behind, WriteBehind};
use crate::{CancelToken, ConnectError, RecallInbox, Recalls};

/// Closes are reported at once when so many are waiting.
const CLOSES_MAX: usize = 32;

/// How a connection behaves.
#[derive(Clone, Debug)]
pub(crate) struct ConnectedOptions {
    /// Shown in `status` and logs.
    pub(crate) identity: String,
    /// Give up on a server that is away for so long; `None`: never.
    pub(crate) timeout: Option<Duration>,
    /// Memory for operations and blocks that are not durable yet; callers then wait for a commit.
    pub(crate) kept_bytes_max: usize,
    /// This client decouples subtrees whose policy asks for it.
    pub(crate) decouples: bool,
    /// The plate that it speaks with.
    pub(crate) plate: PlateId,
    /// Random, the same for all plates: see [`Hello::client`].
    pub(crate) client: u64,
    /// Until when a plate that does not run yet is asked again for the first session.
    pub(crate) ready_by: Duration,
    /// Identity of the file system; 0 until a server has named it.
    pub(crate) filesystem: u64,
}

pub(crate) struct Connected {
    shared: Arc<Link>,
    threads: Vec<JoinHandle>,
}

/// State that callers, the link thread, the sender and the recall threads share.
pub(crate) struct Link {
    pub(crate) world: SharedWorld,
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) options: ConnectedOptions,
    pub(crate) state: Mutex<State>,
    /// The link went up or down, an answer to a resend arrived, the end.
    pub(crate) changed: Condvar,
    /// For the link thread: it went down, the end.
    pub(crate) wanted: Condvar,
    pub(crate) write_behind: Arc<WriteBehind>,
    /// Shared by the links of all plates.
    pub(crate) inbox: Arc<RecallInbox>,
    /// The inodes that its plate owns.
    pub(crate) inodes: PlateInodes,
    pub(crate) pool: RecallPool,
    /// When the last request that was answered had been sent, in nanoseconds of the monotonic clock.
    heard_ns: AtomicU64,
    session_ms: AtomicU64,
    interrupted: OnceLock<Interrupted>,
}

/// The state of the link.
pub(crate) struct State {
    pub(crate) session: Session,
    /// The main connection while it may be used for new calls.
    pub(crate) up: Option<Arc<dyn Wire>>,
    /// Counts connections, from 1 on. A reply of an earlier one is not believed.
    pub(crate) generation: u64,
    /// Monotonic time since which the link is down.
    pub(crate) down_since: Duration,
    /// That it is down stands in the log.
    pub(crate) is_outage_logged: bool,
    /// The outcome of calls that a caller waits for and whose first connection was lost.
    pub(crate) resolved: BTreeMap<(SessionId, Seq), Resolved>,
    /// Futures that wait for a change.
    pub(crate) wakers: Vec<Waker>,
    pub(crate) stopping: bool,
    /// A connection over which things are being sent again: not yet up.
    pub(crate) arriving: Option<Arc<dyn Wire>>,
    /// Since when the link's keeper waits for an answer.
    pub(crate) asked_since: Option<Duration>,
    /// The client ends: since when, and how long a silent server is waited for.
    pub(crate) leaving: Option<(Duration, Duration)>,
}

/// The outcome of a call whose first connection was lost.
pub(crate) enum Resolved {
    /// It was sent again and answered, or its session is over.
    Answer(Result<Answer, Failure>),
    /// Its session is over, and it was not carried out: its caller sends it in the next session.
    AskAnew,
    /// The same, if no late operation is lost.
    Undecided,
}

/// A numbered call, and the connection to send it over.
pub(crate) struct Issued {
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) request: Arc<Request>,
    /// Number of the connection over which the request was sent.
    pub(crate) generation: u64,
    pub(crate) session: SessionId,
    /// Blocks put before: a commit makes them durable.
    pub(crate) blocks_mark: u64,
}

/// The plates that a welcome names, if they are several.
///
/// # Errors
/// If these cannot be.
pub(crate) fn plates_of(welcome: &Welcome) -> Result<Option<Plates>, ConnectError> {
    match *welcome {
        Welcome::Accepted { shards, plates, .. } if plates > 1 => match Plates::new(shards, plates) {
            Some(plates) => Ok(Some(plates)),
            None => Err(ConnectError(format!("the server names {plates} plates for {shards} shards"))),
        },
        Welcome::Accepted { .. } | Welcome::Refused { .. } | Welcome::Elsewhere { .. } => Ok(None),
    }
}

/// The greeting of a connection.
pub(crate) fn hello(options: &ConnectedOptions, channel: Channel, resume: Option<(SessionId, u64)>) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        channel,
        resume,
        identity: options.identity.clone(),
        resend_count: 0,
        decouples: options.decouples,
        plate: options.plate,
        client: options.client,
        filesystem: options.filesystem,
    }
}

impl Connected {
    /// Connects. Pending operations of `write_behind` are sent over the connection, and `inbox` takes its recalls.
    pub(crate) fn connect(
        dialer: Arc<dyn Dialer>,
        mut options: ConnectedOptions,
        write_behind: Arc<WriteBehind>,
        inbox: Arc<RecallInbox>,
        world: SharedWorld,
    ) -> Result<(Connected, Welcome), ConnectError> {
        let Begun { welcome, wire, recall, sent } = begin(&*dialer, &options, &*world)?;
        let Welcome::Accepted { session, secret, filesystem, boot, session_ms, durable, .. } = welcome else {
            return Err(ConnectError("the server refuses the session".into()));
        };
        options.filesystem = filesystem;
        let inodes = match plates_of(&welcome)? {
            Some(plates) => PlateInodes::of(plates, options.plate),
            None => PlateInodes::all(),
        };
        let shared = Arc::new(Link {
            dialer,
            options,
            state: Mutex::new(State {
                session: Session::new(session, secret, boot, durable),
                up: Some(wire),
                generation: 1,
                down_since: sent,
                is_outage_logged: false,
                resolved: BTreeMap::new(),
                wakers: Vec::new(),
                stopping: false,
                arriving: None,
                asked_since: None,
                leaving: None,
            }),
            changed: Condvar::new(),
            wanted: Condvar::new(),
            write_behind,
            inbox,
            inodes,
            pool: RecallPool::default(),
            heard_ns: AtomicU64::new(0),
            session_ms: AtomicU64::new(u64::from(session_ms)),
            interrupted: OnceLock::new(),
            world,
        });
        shared.heard(sent);
        shared.pool.listen(&shared, recall);
        let threads = link::spawn(&shared);
        shared.write_behind.start(&shared);
        Ok((Connected { shared, threads }, welcome))
    }

    fn remote_call(&self, cred: &Cred, call: Call) -> Result<RemoteCall, Refusal> {
        RemoteCall::begin(&self.shared, cred, call, None)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // A server that is stuck must not keep us.
        let (_, session_time) = self.shared.last_heard();
        self.leave(self.shared.options.timeout.map_or(session_time, |timeout| timeout.min(session_time)));
        self.shared.write_behind.flush(None);
        let farewell = {
            let state = &mut *self.shared.state.lock();
            // The server closes the recall channel at the end of the session: the link thread must not come back.
            state.stopping = true;
            let closes = self.shared.take_closes(state);
            state.up.clone().map(|wire| (wire, closes, state.session.issue(&Cred::ROOT, Call::Bye)))
        };
        if let Some((wire, closes, bye)) = farewell {
            // Acknowledged operations stay with the server when the session ends in order.
            drop(closes.map(|closes| wire.start(&closes)));
            drop(wire.call(&bye));
        }
        self.shared.stop();
        self.shared.write_behind.stop();
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

impl Link {
    /// The server has answered a request that was sent at `sent`.
    pub(crate) fn heard(&self, sent: Duration) {
        self.heard_ns.fetch_max(sent.as_nanos() as u64, Ordering::Relaxed);
    }

    /// When the server has last been heard, and how long it remembers a session.
    pub(crate) fn last_heard(&self) -> (Duration, Duration) {
        let session = Duration::from_millis(self.session_ms.load(Ordering::Relaxed));
        (Duration::from_nanos(self.heard_ns.load(Ordering::Relaxed)), session)
    }

    pub(crate) fn set_session_ms(&self, session_ms: u32) {
        self.session_ms.store(u64::from(session_ms), Ordering::Relaxed);
    }

    /// A connection broke: the first who notices says so.
    pub(crate) fn lost(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation == generation && state.up.is_some() {
            state.up.take().expect("checked above").close();
            self.write_behind.queue.set_up(false);
            state.down_since = self.world.monotonic();
            self.wanted.notify_all();
        }
    }

    /// Wakes all callers that wait for the link.
    pub(crate) fn wake(&self, state: &mut State) {
        self.changed.notify_all();
        for waker in state.wakers.drain(..) {
            waker.wake();
        }
    }

    /// Whether a server that is away has been waited for long enough.
    pub(crate) fn gave_up(&self, state: &State) -> bool {
        let away = || self.world.monotonic().saturating_sub(state.down_since);
        state.stopping
            || (state.up.is_none() && self.options.timeout.is_some_and(|timeout| away() >= timeout))
    }

    fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        for wire in [state.up.take(), state.arriving.take()].into_iter().flatten() {
            wire.close();
        }
        self.wake(&mut state);
        self.wanted.notify_all();
        self.write_behind.queue.stop();
        drop(state);
        self.pool.stop();
    }

    /// Gives the server up for good if it has been silent for as long as one that leaves waits; true if it has, or
    /// nobody leaves.
    pub(crate) fn left(&self) -> bool {
        let leaving = {
            let state = self.state.lock();
            // One that says farewell has stopped, and still waits for the answer.
            state.leaving.filter(|_| !state.stopping || state.up.is_some())
        };
        let Some((since, limit)) = leaving else { return true };
        let (heard, _) = self.last_heard();
        let silent = self.world.monotonic().saturating_sub(since.max(heard));
        if silent >= limit {
            self.stop();
        }
        silent >= limit
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.get().is_some_and(|interrupted| interrupted())
    }

    /// Why a wait for the link is to end.
    pub(crate) fn wait_is_over(&self, state: &State) -> Option<Refusal> {
        if self.gave_up(state) {
            return Some(Refusal::NotConnected);
        }
        (state.up.is_none() && self.is_interrupted()).then_some(Refusal::Interrupted)
    }

    /// The wire and the request for a call, when the link is up. `only_in`: in this session or not at all.
    pub(crate) fn issue(
        &self,
        cred: &Cred,
        call: Call,
        only_in: Option<SessionId>,
    ) -> Result<Issued, Refusal> {
        let behind = Behind::of(&call);
        let queue = &self.write_behind.queue;
        let upto = queue.last();
        let mut state = self.state.lock();
        loop {
            if let Some(refusal) = self.wait_is_over(&state) {
                return Err(refusal);
            }
            if only_in.is_some_and(|only| only != state.session.id) {
                return Err(Refusal::Io);
            }
            let is_behind = queue.is_behind(behind, upto);
            if is_behind
                && let Call::Op { .. } | Call::Batch { .. } | Call::Commit { .. } = &call
                && let Some(refusal) = queue.stuck()
            {
                // Questions wait: they would not find what pending operations made.
                return Err(refusal);
            }
            if let (false, Some(wire)) = (is_behind, state.up.clone()) {
                let closes = match closes_go_first(&call, state.session.closes_waiting()) {
                    true => self.take_closes(&mut state),
                    false => None,
                };
                let session = &mut state.session;
                let request = session.issue(cred, call);
                let blocks_mark = session.blocks.mark();
                let (generation, id) = (state.generation, state.session.id);
                drop(state);
                // Nobody waits for this answer: should it be lost, opens are declared anew.
                drop(closes.map(|closes| wire.start(&closes)));
                return Ok(Issued { wire, request, generation, session: id, blocks_mark });
            }
            if is_behind {
                queue.hurry(upto);
            }
            self.wait(&mut state);
        }
    }

    /// Waits until no operation is pending that write-behind has acknowledged so far.
    fn settle(&self) -> Result<(), Refusal> {
        let queue = &self.write_behind.queue;
        if !queue.has_any() {
            return Ok(());
        }
        let upto = queue.last();
        let mut state = self.state.lock();
        while queue.is_behind(Behind::All, upto) {
            if let Some(refusal) = self.wait_is_over(&state).or_else(|| queue.stuck()) {
                return Err(refusal);
            }
            queue.hurry(upto);
            self.wait(&mut state);
        }
        Ok(())
    }

    /// The request that reports the closes so far, but for those of files that the server does not have yet.
    pub(crate) fn take_closes(&self, state: &mut State) -> Option<Arc<Request>> {
        state.session.take_closes(|inos| self.write_behind.queue.part(inos))
    }

    /// Waits for a change of the link (or for a while, to look at the clock).
    pub(crate) fn wait(&self, state: &mut chiton_runtime::sync::MutexGuard<'_, State>) {
        match (self.options.timeout, self.interrupted.get()) {
            (None, None) => self.changed.wait(state),
            _ => drop(self.changed.wait_for(state, Duration::from_millis(100))),
        }
    }
}

/// Whether the deferred closes travel before this call: when there are many, and before
/// names go, so that a file that is closed and then removed need not live on as an orphan.
fn closes_go_first(call: &Call, waiting: usize) -> bool {
    use chiton_model::Op;
    waiting >= CLOSES_MAX
        || (waiting > 0
            && (matches!(call, Call::Op { op: Op::Unlink { .. } | Op::Rename { .. }, .. })
                || matches!(call, Call::Bye | Call::Batch { .. } | Call::Commit { .. })))
}

impl Service for Connected {
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.make_room()?;
        self.remote_call(cred, call)?.finish()
    }

    fn call_in(&self, session: SessionId, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.make_room()?;
        RemoteCall::begin(&self.shared, cred, call, Some(session))?.finish()
    }

    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        match self.remote_call(cred, call) {
            Ok(asked) => Box::new(asked.started()),
            Err(refusal) => ready(Err(refusal.into())),
        }
    }

    fn call_cancellable(&self, cred: &Cred, call: Call, token: &CancelToken) -> Result<Answer, CallError> {
        let answer = self
            .remote_call(cred, call)
            .map_err(CallError::from)
            .and_then(|asked| asked.finish_unless(token));
        token.over();
        answer
    }
}

impl service::Session for Connected {
    fn session(&self, _ino: Ino) -> SessionId {
        self.shared.state.lock().session.id
    }

    fn settle(&self) -> Result<(), CallError> {
        Ok(self.shared.settle()?)
    }

    fn closed(&self, ino: Ino) {
        // The link thread looks for them each second.
        let mut state = self.shared.state.lock();
        if !self.shared.write_behind.queue.close_unsent(ino) {
            state.session.closed(ino);
        }
    }

    fn valid_until(&self, _ino: Ino) -> Duration {
        let (heard, session) = self.shared.last_heard();
        heard + session
    }

    fn recalls(&self) -> &Recalls {
        self.shared.inbox.recalls()
    }
}

impl Durability for Connected {
    fn make_room(&self) -> Result<(), CallError> {
        let too_much = {
            let session = &self.shared.state.lock().session;
            (session.kept_bytes() > self.shared.options.kept_bytes_max).then(|| session.answered_upto())
        };
        if let Some(upto) = too_much {
            self.remote_call(&Cred::ROOT, Call::Commit { upto })?.finish()?;
            self.shared.write_behind.queue.note_kept(self.shared.state.lock().session.kept_bytes());
        }
        Ok(())
    }

    fn durable(&self) -> Position {
        self.shared.state.lock().session.durable()
    }

    fn commit(&self, upto: Position) -> Result<(), Refusal> {
        let answer = self.remote_call(&Cred::ROOT, Call::Commit { upto })?.finish();
        if self.take_lost() {
            return Err(Refusal::Io);
        }
        answer.map(drop).map_err(refusal)
    }

    fn needs_commit(&self) -> bool {
        // In this order: an operation that is not pending any more is kept until it is durable.
        self.shared.write_behind.queue.has_any() || self.shared.state.lock().session.kept_bytes() > 0
    }

    fn take_lost(&self) -> bool {
        self.shared.state.lock().session.take_lost()
    }
}

impl PlateLookup for Connected {}

impl Connection for Connected {
    fn leave(&self, limit: Duration) {
        let mut state = self.shared.state.lock();
        if state.leaving.is_some() || state.stopping {
            return;
        }
        state.leaving = Some((self.shared.world.monotonic(), limit));
        self.shared.write_behind.queue.leave();
        // The server is asked for a sign of life more often now.
        self.shared.wanted.notify_all();
        drop(state);
        link::watch_leaving(&self.shared);
    }

    fn messages(&self) -> u64 {
        self.shared.state.lock().session.messages()
    }

    fn set_interrupted(&self, interrupted: Interrupted) {
        // The first who mounts; there is no second.
        let _ = self.shared.interrupted.set(interrupted);
    }

    fn is_away(&self) -> bool {
        self.shared.state.lock().up.is_none()
    }

    fn probe(&self) -> Result<(), String> {
        // A recall channel of no session is refused at once, whatever else the server does.
        self.shared.dialer.dial_recall(&hello(&self.shared.options, Channel::Recall, None)).map(drop)
    }

    fn unsettled(&self) -> usize {
        self.shared.state.lock().session.kept_count()
    }

    fn is_embedded(&self) -> bool {
        false
    }

    fn abandon(&self) {
        self.shared.stop();
    }
}
