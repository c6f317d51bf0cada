//! The network of a run: connections between clients and whoever serves at present.
//!
//! ```text
//!   client: Wire ── request, encoded ──(delay)──▶ inbox of a server's loop thread ─▶ Service ─▶ Outlet ──(delay)──▶
//! ```
//!
//! What a stream socket promises holds: within a connection and a direction, messages keep their order and come once.
//! What it does not promise happens: a connection breaks at any moment, what was under way is lost or arrives late,
//! also after the client has come back on another connection and said it all again; ends notice it at different times.
//!
//! Invariants:
//! - Every message is encoded and decoded, as on a wire.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chiton_client::{Dialer, RecallWire, Wire};
use chiton_proto::{
    Channel, Closed, ConnId, ConnectionLost, Hello, Outlet, Pending, Promise, Recall, RecallDone, Reply,
    Request, Sender, Service, Welcome,
};
use chiton_types::{SessionId, Take};
use chiton_world::sync::{Condvar, Mutex};
use chiton_world::thread;

use crate::canary::Canary;
use crate::history::{ClientId, ServerId};
use crate::random::Random;
use crate::record::Recorder;
use crate::turns::{Party, turns};

/// Threads of a server that take what connections bring.
const LOOPS: u64 = 2;
const CONNECT: Duration = Duration::from_secs(2);

/// How the network behaves at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Least and most microseconds that a message takes.
    pub delay_us: (u64, u64),
    /// Of 10,000 messages, so many are the last of their connection.
    pub cuts: u32,
}

impl Weather {
    /// A local network on a good day.
    pub const GOOD: Weather = Weather { delay_us: (30, 120), cuts: 0 };
}

/// The network.
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
    /// Clients that reach nobody.
    isolated: BTreeSet<ClientId>,
    /// Lives of clients that are over.
    dead: BTreeSet<(ClientId, u32)>,
}

/// A server as the network knows it.
pub struct Host {
    /// Which.
    pub server: ServerId,
    /// Its machine.
    pub party: Party,
    /// Epoch of its journal.
    pub epoch: u64,
    door: Arc<dyn Service>,
    inboxes: Vec<Inbox>,
}

#[derive(Default)]
struct Inbox {
    work: Mutex<(VecDeque<Work>, bool)>,
    more: Condvar,
}

enum Work {
    Open(Arc<Conn>, Hello, Arc<Greeting>),
    Request(Arc<Conn>, Request),
    RecallDone(Arc<Conn>, RecallDone),
    Closed(Arc<Conn>),
}

#[derive(Default)]
struct Greeting {
    welcome: Mutex<Option<Result<Welcome, String>>>,
    here: Condvar,
}

struct Conn {
    number: u64,
    client: ClientId,
    channel: Channel,
    host: Arc<Host>,
    ends: Mutex<Ends>,
    recall_here: Condvar,
}

#[derive(Default)]
struct Ends {
    client_down: bool,
    server_down: bool,
    /// Broken: nothing more is taken in. What is under way arrives at the server if `late`.
    broken: bool,
    late: bool,
    session: Option<SessionId>,
    pending: BTreeMap<u64, Promise>,
    recalls: VecDeque<Recall>,
    /// Recalls that were handed to the client.
    asked: BTreeMap<u64, Recall>,
    commits: BTreeSet<u64>,
    /// When the last message of each direction arrives.
    up_at: Duration,
    down_at: Duration,
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
            dead: BTreeSet::new(),
        };
        Net(Arc::new(Inner { state: Mutex::new(state), recorder, canary }))
    }

    /// How it behaves from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.0.state.lock().weather = weather;
    }

    /// New connections go to this server from now on. Its loop threads belong to `party`.
    pub fn serve(&self, server: ServerId, party: Party, epoch: u64, door: Arc<dyn Service>) -> Arc<Host> {
        let inboxes = (0..LOOPS).map(|_| Inbox::default()).collect();
        let host = Arc::new(Host { server, party, epoch, door, inboxes });
        for n in 0..LOOPS as usize {
            let host = host.clone();
            turns().spawn_in(party, "loop", move || host.run(n));
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

    /// New connections reach nobody, those that are stay.
    pub fn hide(&self) {
        self.0.state.lock().host = None;
    }

    /// Breaks the connections of a client. `late`: what is under way to the server arrives nevertheless.
    pub fn cut_client(&self, client: ClientId, late: bool) {
        let conns: Vec<Arc<Conn>> = {
            let state = self.0.state.lock();
            state.conns.values().filter(|conn| conn.client == client).cloned().collect()
        };
        for conn in conns {
            self.cut(&conn, late);
        }
    }

    /// Whether a client reaches anybody.
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
        self.cut_client(client, late);
    }

    /// A way for one life of a client.
    pub fn dialer(&self, client: ClientId, life: u32) -> Box<dyn Dialer> {
        Box::new(SimDialer { net: self.clone(), client, life })
    }

    /// Connections that are up.
    pub fn connections(&self) -> usize {
        self.0.state.lock().conns.len()
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
        turns().after(Duration::from_micros(client_after), move || net.client_notices(&c));
        let (net, c) = (self.clone(), conn.clone());
        turns().after(Duration::from_micros(server_after), move || net.server_notices(&c));
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
            // The message is lost, and what was sent before it may be.
            let late = self.0.state.lock().random.chance(1, 2);
            return self.cut(conn, late);
        };
        let turns = turns();
        let at = {
            let mut ends = conn.ends.lock();
            let last = if up { &mut ends.up_at } else { &mut ends.down_at };
            *last = (*last + Duration::from_nanos(1)).max(turns.now() + delay);
            *last
        };
        let conn = conn.clone();
        turns.after(at - turns.now(), move || {
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
            Ok(accepted @ Welcome::Accepted { session, .. }) => {
                let mut ends = conn.ends.lock();
                ends.session = Some(session);
                if ends.broken {
                    drop(ends);
                    return Err("the connection broke".to_owned());
                }
                drop(ends);
                self.0.recorder.session(client, life, session);
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
        turns().after(Duration::from_micros(200), move || net.server_notices(&c));
    }
}

fn reread_hello(hello: &Hello) -> Hello {
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    Hello::decode(&mut Take::new(&bytes)).expect("what was encoded decodes")
}

impl Host {
    fn push(&self, conn: u64, work: Work) {
        let inbox = &self.inboxes[(conn % LOOPS) as usize];
        let mut queue = inbox.work.lock();
        if queue.1 {
            return;
        }
        queue.0.push_back(work);
        inbox.more.notify_one();
    }

    fn run(&self, n: usize) {
        let inbox = &self.inboxes[n];
        loop {
            let work = {
                let mut queue = inbox.work.lock();
                loop {
                    if queue.1 {
                        return;
                    }
                    if let Some(work) = queue.0.pop_front() {
                        break self.gather(work, &mut queue.0);
                    }
                    inbox.more.wait(&mut queue);
                }
            };
            self.work(work);
        }
    }

    /// Requests of one connection that lie there are handed over together, as one read brings them.
    fn gather(&self, first: Work, queue: &mut VecDeque<Work>) -> (Work, Vec<Request>) {
        let mut more = Vec::new();
        if let Work::Request(conn, _) = &first {
            while let Some(Work::Request(other, _)) = queue.front() {
                if other.number != conn.number {
                    break;
                }
                if let Some(Work::Request(_, request)) = queue.pop_front() {
                    more.push(request);
                }
            }
        }
        (first, more)
    }

    fn work(&self, (work, more): (Work, Vec<Request>)) {
        match work {
            Work::Open(conn, hello, greeting) => {
                let sender = conn.sender();
                let welcome = self.door.open(hello, &sender);
                if let Welcome::Accepted { session, .. } = &welcome {
                    conn.ends.lock().session = Some(*session);
                }
                *greeting.welcome.lock() = Some(Ok(welcome));
                greeting.here.notify_all();
            }
            Work::Request(conn, request) => {
                let session = conn.ends.lock().session;
                if let Some(session) = session {
                    let mut batch = vec![request];
                    batch.extend(more);
                    self.door.requests(session, &conn.sender(), &mut batch);
                }
            }
            Work::RecallDone(conn, done) => {
                let session = conn.ends.lock().session;
                if let Some(session) = session {
                    self.door.recall_done(session, &conn.sender(), done);
                }
            }
            Work::Closed(conn) => {
                let opened = conn.ends.lock().session.map(|session| (session, conn.channel));
                self.door.closed(ConnId(conn.number), opened, &Closed::End);
            }
        }
    }
}

impl Conn {
    fn sender(self: &Arc<Conn>) -> Sender {
        Sender::to(ConnId(self.number), Arc::new(Exit(self.clone())))
    }
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

/// The server's end of a connection.
struct Exit(Arc<Conn>);

impl Outlet for Exit {
    fn reply(&self, reply: &Reply) -> Result<(), ConnectionLost> {
        let conn = &self.0;
        let (commit, session) = {
            let mut ends = conn.ends.lock();
            if ends.server_down {
                return Err(ConnectionLost::new("the client is gone"));
            }
            (ends.commits.remove(&reply.id), ends.session)
        };
        let net = net();
        net.0.recorder.replied(conn.host.server, conn.host.epoch, session, commit, reply);
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        turns().mix(bytes.len() as u64);
        let c = conn.clone();
        net.send(conn, false, move || {
            let reply = Reply::decode(&mut Take::new(&bytes)).expect("what was encoded decodes");
            let promise = c.ends.lock().pending.remove(&reply.id);
            if let Some(promise) = promise {
                promise.fulfil(Ok(reply));
            }
        });
        Ok(())
    }

    fn recall(&self, recall: &Recall) -> Result<(), ConnectionLost> {
        let conn = &self.0;
        if conn.ends.lock().server_down {
            return Err(ConnectionLost::new("the client is gone"));
        }
        let net = net();
        if net.0.canary == Some(Canary::LeaseNotRecalled) {
            // The holder never hears of it.
            let done = RecallDone { id: recall.id };
            let c = conn.clone();
            net.send(conn, true, move || c.host.push(c.number, Work::RecallDone(c.clone(), done)));
            return Ok(());
        }
        let (c, recall) = (conn.clone(), *recall);
        net.send(conn, false, move || {
            c.ends.lock().recalls.push_back(recall);
            c.recall_here.notify_all();
        });
        Ok(())
    }

    fn close(&self) {
        net().cut(&self.0, false);
    }
}

struct SimDialer {
    net: Net,
    client: ClientId,
    life: u32,
}

impl Dialer for SimDialer {
    fn dial(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), String> {
        let (welcome, conn) = self.net.connect(self.client, self.life, hello)?;
        let wire = |conn| Arc::new(ClientEnd { net: self.net.clone(), conn }) as Arc<dyn Wire>;
        Ok((welcome, conn.map(wire)))
    }

    fn dial_recall(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn RecallWire>>), String> {
        let (welcome, conn) = self.net.connect(self.client, self.life, hello)?;
        let wire = |conn| Arc::new(ClientEnd { net: self.net.clone(), conn }) as Arc<dyn RecallWire>;
        Ok((welcome, conn.map(wire)))
    }
}

/// The client's end of a connection.
struct ClientEnd {
    net: Net,
    conn: Arc<Conn>,
}

impl Wire for ClientEnd {
    fn call(&self, request: &Request) -> Result<Reply, ConnectionLost> {
        self.start(request).wait()
    }

    fn start(&self, request: &Request) -> Pending {
        let (promise, pending) = Pending::promise();
        {
            let mut ends = self.conn.ends.lock();
            if ends.client_down {
                return Pending::ready(Err(ConnectionLost::new("the connection is closed")));
            }
            if matches!(request.call, chiton_proto::Call::Commit { .. }) {
                ends.commits.insert(request.id);
            }
            ends.pending.insert(request.id, promise);
        }
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        turns().mix(bytes.len() as u64);
        let conn = self.conn.clone();
        let forgets = self.net.0.canary == Some(Canary::WindowForgets);
        self.net.send(&self.conn, true, move || {
            let mut request = Request::decode(&mut Take::new(&bytes)).expect("what was encoded decodes");
            if forgets && request.again.is_some() {
                request.seq = chiton_types::Seq(request.seq.0 + 1_000_000);
            }
            conn.host.push(conn.number, Work::Request(conn.clone(), request));
        });
        pending
    }

    fn close(&self) {
        self.net.end(&self.conn);
    }
}

impl RecallWire for ClientEnd {
    fn next(&self) -> Result<Recall, ConnectionLost> {
        let mut ends = self.conn.ends.lock();
        loop {
            if ends.client_down {
                return Err(ConnectionLost::new("the connection is closed"));
            }
            if let Some(recall) = ends.recalls.pop_front() {
                ends.asked.insert(recall.id, recall);
                return Ok(recall);
            }
            self.conn.recall_here.wait(&mut ends);
        }
    }

    fn done(&self, done: RecallDone) {
        let (recall, session) = {
            let mut ends = self.conn.ends.lock();
            if ends.client_down {
                return;
            }
            (ends.asked.remove(&done.id), ends.session)
        };
        if let (Some(recall), Some(session)) = (recall, session) {
            self.net.0.recorder.gave_back(session, recall.ino, recall.keep);
        }
        let conn = self.conn.clone();
        self.net.send(&self.conn, true, move || {
            conn.host.push(conn.number, Work::RecallDone(conn.clone(), done));
        });
    }

    fn close(&self) {
        self.net.end(&self.conn);
    }
}
