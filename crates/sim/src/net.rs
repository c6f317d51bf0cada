//! The network of a run: connections between clients and the present server.
//!
//! ```text
//!   client: Wire ── request, encoded ──(delay)──▶ inbox of a server's loop thread ─▶ Service ─▶ Outlet ──(delay)──▶
//! ```
//!
//! It keeps the promises of a stream socket: within a connection and a direction, messages keep their order and
//! arrive once. Everything else happens: a connection breaks at any moment; messages in flight are lost or arrive
//! late, even after the client has sent them again on another connection; the two ends notice the break at
//! different times.
//!
//! Invariants:
//! - Every message is encoded and decoded, as on a wire.

mod ends;
mod host;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chiton_client::Dialer;
use chiton_model::Op;
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::thread;
use chiton_transport::{ConnId, ConnectionLost, Promise, Sender, Service};
use chiton_types::{Ino, Name, PlateId, SessionId, Take};
use chiton_wire::{Call, Channel, Hello, Query, Recall, Request, Welcome};
use ends::{Exit, SimDialer};
use host::{Greeting, Inbox, LOOPS, Work};

use crate::canary::Canary;
use crate::history::{ClientId, ServerId};
use crate::random::Random;
use crate::record::Recorder;
use crate::scheduler::{Party, scheduler};

pub use host::Host;

/// How long a client waits for a greeting.
const CONNECT: Duration = Duration::from_secs(2);

/// How the network behaves at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Least and most microseconds that a message takes.
    pub delay_us: (u64, u64),
    /// Of 10,000 messages, how many break their connection.
    pub cuts: u32,
}

impl Weather {
    /// A local network on a good day.
    pub const GOOD: Weather = Weather { delay_us: (30, 120), cuts: 0 };
}

#[derive(Clone)]
pub struct Net(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    recorder: Recorder,
    canary: Option<Canary>,
}

struct State {
    random: Random,
    weather: Weather,
    host: Option<Arc<Host>>,
    conns: BTreeMap<u64, Arc<Conn>>,
    next_conn: u64,
    /// Clients without a network.
    isolated: BTreeSet<ClientId>,
    /// Directories whose names were leased, if that matters.
    names: BTreeSet<Ino>,
    /// Lives of clients that are over.
    dead: BTreeSet<(ClientId, u32)>,
}

struct Conn {
    number: u64,
    client: ClientId,
    channel: Channel,
    plate: PlateId,
    host: Arc<Host>,
    ends: Mutex<Ends>,
    recall_here: Condvar,
}

#[derive(Default)]
struct Ends {
    client_down: bool,
    server_down: bool,
    /// Broken: accepts no more messages. Messages in flight arrive at the server if `late`.
    broken: bool,
    late: bool,
    /// The client's machine has died: it sends nothing more, also before the connection is known to be broken.
    client_dead: bool,
    /// Receives the answer to the hello.
    greeting: Option<Arc<Greeting>>,
    session: Option<SessionId>,
    pending: BTreeMap<u64, Promise>,
    recalls: VecDeque<Recall>,
    /// Recalls that were handed to the client.
    asked: BTreeMap<u64, Recall>,
    /// Requests without an answer.
    questions: BTreeMap<u64, Question>,
    /// How long the client trusts its cache after a message of the server.
    belief: Duration,
    /// When the last message of each direction arrives.
    up_at: Duration,
    down_at: Duration,
}

/// The content of an unanswered request, for judging the answer.
#[derive(Default)]
struct Question {
    begun: Duration,
    is_commit: bool,
    /// It comes again: it may have been carried out long ago.
    is_again: bool,
    /// The directory whose names it asks about.
    names_of: Option<Ino>,
    /// The directories whose names it changes, or their parts.
    changes: Vec<Ino>,
    /// The names that it is about, if it is one operation.
    names: Vec<Name>,
    /// Inodes that the client created by write-behind.
    made_early: Vec<Ino>,
}

/// The directory in which an operation makes or removes something.
fn changed_in(op: &Op) -> Option<Ino> {
    if let Op::Make { parent, .. } | Op::Unlink { parent, .. } = op { Some(*parent) } else { None }
}

impl Question {
    fn new(request: &Request) -> Question {
        let names_of = match &request.call {
            Call::Query(Query::Lookup { parent, .. }) => Some(*parent),
            Call::Query(Query::ReadDir { dir, .. }) => Some(*dir),
            _ => None,
        };
        let changes = match &request.call {
            Call::Op { op, .. } => {
                let names: Vec<_> =
                    op.footprint().names().map(|touch| (touch.dir, touch.name.clone())).collect();
                // To where it is already changes nothing.
                let changes_nothing = names.len() == 2 && names[0] == names[1];
                if changes_nothing { Vec::new() } else { names.into_iter().map(|(dir, _)| dir).collect() }
            }
            Call::WriteBehind { ops, .. } | Call::Late { ops, .. } => {
                let mut dirs: Vec<Ino> = ops.iter().filter_map(changed_in).collect();
                dirs.dedup();
                dirs
            }
            _ => Vec::new(),
        };
        let names = match &request.call {
            Call::Op { op, .. } => op.footprint().names().map(|touch| touch.name.clone()).collect(),
            _ => Vec::new(),
        };
        let made_early = match &request.call {
            Call::WriteBehind { acknowledged, .. } => acknowledged.iter().map(|one| one.ino).collect(),
            _ => Vec::new(),
        };
        Question {
            made_early,
            begun: scheduler().now(),
            is_commit: matches!(request.call, Call::Commit { .. }),
            is_again: request.again.is_some(),
            names_of,
            changes,
            names,
        }
    }
}

impl Net {
    /// A network without servers.
    pub fn new(seed: u64, recorder: Recorder, canary: Option<Canary>) -> Net {
        let state = State {
            random: Random::new(seed, 3),
            weather: Weather::GOOD,
            host: None,
            conns: BTreeMap::new(),
            next_conn: 1,
            isolated: BTreeSet::new(),
            names: BTreeSet::new(),
            dead: BTreeSet::new(),
        };
        Net(Arc::new(Inner { state: Mutex::new(state), recorder, canary }))
    }

    /// How it behaves from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.0.state.lock().weather = weather;
    }

    /// New connections go to this server from now on. Its loop threads belong to `party`.
    pub fn serve(
        &self,
        server: ServerId,
        party: Party,
        epochs: Vec<u64>,
        service: Arc<dyn Service>,
    ) -> Arc<Host> {
        let inboxes = (0..LOOPS).map(|_| Inbox::default()).collect();
        let host = Arc::new(Host { server, party, epochs: Mutex::new(epochs), service, inboxes });
        for n in 0..LOOPS as usize {
            let host = host.clone();
            scheduler().spawn_in(party, "loop", move || host.run(n));
        }
        self.0.state.lock().host = Some(host.clone());
        host
    }

    /// A server is gone: its loop threads end, its connections break.
    pub fn withdraw(&self, host: &Arc<Host>) {
        let conns: Vec<Arc<Conn>> = {
            let mut state = self.0.state.lock();
            if state.host.as_ref().is_some_and(|now| Arc::ptr_eq(now, host)) {
                state.host = None;
            }
            state.conns.values().filter(|conn| Arc::ptr_eq(&conn.host, host)).cloned().collect()
        };
        for inbox in &host.inboxes {
            let mut work = inbox.work.lock();
            work.1 = true;
            work.0.clear();
            inbox.more.notify_all();
        }
        for conn in conns {
            self.cut(&conn, false);
        }
    }

    /// New connections fail; existing ones stay.
    pub fn hide(&self) {
        self.0.state.lock().host = None;
    }

    /// Breaks the connections of a client. `late`: messages in flight to the server still arrive.
    pub fn cut_client(&self, client: ClientId, late: bool) {
        for conn in self.conns_of(client) {
            self.cut(&conn, late);
        }
    }

    fn conns_of(&self, client: ClientId) -> Vec<Arc<Conn>> {
        let state = self.0.state.lock();
        state.conns.values().filter(|conn| conn.client == client).cloned().collect()
    }

    /// Sets whether a client has a network.
    pub fn set_isolated(&self, client: ClientId, isolated: bool) {
        let mut state = self.0.state.lock();
        if isolated {
            state.isolated.insert(client);
        } else {
            state.isolated.remove(&client);
        }
        drop(state);
        if isolated {
            self.cut_client(client, false);
        }
    }

    /// A life of a client is over: it sends nothing more.
    pub fn bury(&self, client: ClientId, life: u32, late: bool) {
        self.0.state.lock().dead.insert((client, life));
        self.0.recorder.died(client, life);
        for conn in self.conns_of(client) {
            conn.ends.lock().client_dead = true;
            self.cut(&conn, late);
        }
    }

    /// A way for one life of a client.
    pub fn dialer(&self, client: ClientId, life: u32) -> Box<dyn Dialer> {
        Box::new(SimDialer { net: self.clone(), client, life })
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.0.state.lock().conns.len()
    }

    /// True if no other server has taken the place of this one.
    fn is_current(&self, host: &Arc<Host>) -> bool {
        self.0.state.lock().host.as_ref().is_some_and(|now| Arc::ptr_eq(now, host))
    }

    fn cut(&self, conn: &Arc<Conn>, late: bool) {
        {
            let mut ends = conn.ends.lock();
            if ends.broken {
                return;
            }
            ends.broken = true;
            ends.late = late;
        }
        let (client_after, server_after) = {
            let random = &mut self.0.state.lock().random;
            (random.below(20_000), random.below(200_000))
        };
        let (net, c) = (self.clone(), conn.clone());
        scheduler().after(Duration::from_micros(client_after), move || net.client_notices(&c));
        let (net, c) = (self.clone(), conn.clone());
        scheduler().after(Duration::from_micros(server_after), move || net.server_notices(&c));
    }

    fn client_notices(&self, conn: &Arc<Conn>) {
        let pending = {
            let mut ends = conn.ends.lock();
            ends.client_down = true;
            ends.broken = true;
            std::mem::take(&mut ends.pending)
        };
        for promise in pending.into_values() {
            promise.fulfil(Err(ConnectionLost::new("the connection broke")));
        }
        conn.recall_here.notify_all();
        self.forget(conn);
    }

    fn server_notices(&self, conn: &Arc<Conn>) {
        let first = !std::mem::replace(&mut conn.ends.lock().server_down, true);
        if first {
            conn.host.push(conn.number, Work::Closed(conn.clone()));
        }
        self.forget(conn);
    }

    fn forget(&self, conn: &Conn) {
        let both = {
            let ends = conn.ends.lock();
            ends.client_down && ends.server_down
        };
        if both {
            self.0.state.lock().conns.remove(&conn.number);
        }
    }

    /// When a message that is sent now arrives; `None`: it breaks its connection.
    fn delay(&self) -> Option<Duration> {
        let state = &mut *self.0.state.lock();
        let (least, most) = state.weather.delay_us;
        let delay = Duration::from_micros(state.random.between(least, most));
        let cut = state.weather.cuts > 0 && state.random.chance(state.weather.cuts.into(), 10_000);
        (!cut).then_some(delay)
    }

    /// Sends a message up or down a connection: `arrive` is called in order, unless it is lost.
    fn send(&self, conn: &Arc<Conn>, up: bool, arrive: impl FnOnce() + 'static) {
        let Some(delay) = self.delay() else {
            // The message is lost, and earlier ones may be.
            let late = self.0.state.lock().random.chance(1, 2);
            return self.cut(conn, late);
        };
        let scheduler = scheduler();
        let at = {
            let mut ends = conn.ends.lock();
            let last = if up { &mut ends.up_at } else { &mut ends.down_at };
            *last = (*last + Duration::from_nanos(1)).max(scheduler.now() + delay);
            *last
        };
        let conn = conn.clone();
        scheduler.after(at - scheduler.now(), move || {
            let lost = {
                let ends = conn.ends.lock();
                if up { ends.broken && !ends.late } else { ends.broken }
            };
            if !lost {
                arrive();
            }
        });
    }

    fn connect(
        &self,
        client: ClientId,
        life: u32,
        hello: &Hello,
    ) -> Result<(Welcome, Option<Arc<Conn>>), String> {
        let nobody = || "no connection: is the server running?".to_owned();
        let begun = scheduler().now();
        let delay = self.delay().unwrap_or(Duration::from_micros(100));
        thread::sleep(delay);
        let (host, number) = {
            let mut state = self.0.state.lock();
            if state.isolated.contains(&client) || state.dead.contains(&(client, life)) {
                return Err(nobody());
            }
            let host = state.host.clone().ok_or_else(nobody)?;
            state.next_conn += 1;
            (host, state.next_conn)
        };
        let conn = Arc::new(Conn {
            number,
            client,
            channel: hello.channel,
            plate: hello.plate,
            host: host.clone(),
            ends: Mutex::default(),
            recall_here: Condvar::new(),
        });
        self.0.state.lock().conns.insert(number, conn.clone());
        let greeting = Arc::new(Greeting::default());
        host.push(number, Work::Open(conn.clone(), reread_hello(hello), greeting.clone()));
        let mut welcome = greeting.welcome.lock();
        let answer = loop {
            if let Some(answer) = welcome.take() {
                break answer;
            }
            if conn.ends.lock().client_down || greeting.here.wait_for(&mut welcome, CONNECT).timed_out() {
                break Err("the server did not greet".to_owned());
            }
        };
        drop(welcome);
        thread::sleep(delay);
        match answer {
            Ok(accepted @ Welcome::Accepted { session, session_ms, .. }) => {
                let belief = scheduler().true_span(Duration::from_millis(session_ms.into()));
                let mut ends = conn.ends.lock();
                ends.session = Some(session);
                ends.belief = belief;
                if ends.broken {
                    drop(ends);
                    return Err("the connection broke".to_owned());
                }
                drop(ends);
                let session = conn.recorded(session);
                self.0.recorder.session((client, life), conn.plate, session);
                if hello.channel == Channel::Main {
                    self.0.recorder.leases_void(session);
                    self.0.recorder.heard(session, begun + belief);
                }
                Ok((accepted, Some(conn)))
            }
            Ok(refused) => {
                self.end(&conn);
                Ok((refused, None))
            }
            Err(what) => {
                self.end(&conn);
                Err(what)
            }
        }
    }

    /// The client ends a connection: the server hears of it in time.
    fn end(&self, conn: &Arc<Conn>) {
        self.client_notices(conn);
        let (net, c) = (self.clone(), conn.clone());
        scheduler().after(Duration::from_micros(200), move || net.server_notices(&c));
    }
}

impl Conn {
    /// A session as the history has it: plates count their sessions from the same number on.
    fn recorded(&self, session: SessionId) -> SessionId {
        SessionId(u64::from(self.plate.0) << 48 | session.0)
    }

    fn sender(self: &Arc<Conn>) -> Sender {
        Sender::to(ConnId(self.number), Arc::new(Exit(self.clone())))
    }

    fn greet(&self, welcome: Welcome) {
        let greeting = {
            let mut ends = self.ends.lock();
            if let Welcome::Accepted { session, .. } = &welcome {
                ends.session = Some(*session);
            }
            ends.greeting.take().expect("a hello is answered once")
        };
        *greeting.welcome.lock() = Some(Ok(welcome));
        greeting.here.notify_all();
    }
}

fn reread_hello(hello: &Hello) -> Hello {
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    Hello::decode(&mut Take::new(&bytes)).expect("what was encoded decodes")
}

thread_local! {
    /// The network of the run on this thread: senders are made far from it.
    static NET: std::cell::RefCell<Option<Net>> = const { std::cell::RefCell::new(None) };
}

/// Makes `net` the one that senders of this thread use.
pub fn enter(net: Option<Net>) {
    NET.with_borrow_mut(|now| *now = net);
}

fn net() -> Net {
    NET.with_borrow(|net| net.clone().expect("within a run"))
}
