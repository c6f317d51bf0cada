//! The server's side of the wire: a fixed number of threads serve any number of connections.
//!
//! ```text
//!   thread 0: epoll ─ readable ─▶ read up to 256 KiB ─▶ frames ─▶ decode ─▶ Service::requests(batch)
//!   thread 1: epoll                                                          │
//!     ▲ each connection stays at one thread     one write ◀─ replies gathered ┘
//! ```
//!
//! Invariants:
//! - A connection is worked on by its home thread alone: its requests are handed over in order, and a caller that
//!   asks one at a time costs three system calls a request. New connections are taken in by the first thread;
//!   main channels then go to the thread that has the fewest.
//! - A connection with too much unsent or unanswered is not read until that drains.
//! - A malformed message ends that connection, nothing else. A panic of the service ends the process: its state
//!   cannot be trusted any more.
//! - A client that has not greeted costs a few hundred bytes, and for a limited time. Of clients that have, the answers that
//!   they do not read and the messages that they do not finish are limited, for each and for all together (`sender/burden.rs`).
//! - Idle connections cost a descriptor and a few hundred bytes: read buffers belong to threads. With TLS they cost some kilobytes more,
//!   of rustls.

#![expect(clippy::disallowed_methods, reason = "sockets are real: a simulation has a network of its own")]

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use chiton_types::SessionId;
use chiton_wire::{Channel, Hello, PeerFrame, RecallDone, RefuseReason, Request, Welcome};
use parking_lot::Mutex;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::listener::Listener;
use crate::sender::{ConnId, Gate, Homes, Sender};
use crate::step::{Step, StepEnd};

/// A service, which answers requests.
///
/// Calls come from the threads of the loop, for different connections at the same time. They should not block for
/// long: for a request that must wait, a service keeps a clone of the [`Sender`] and answers later.
pub trait Service: Send + Sync {
    /// The first message of a connection, of the right version. Messages sent through `sender` before this returns go
    /// out after the welcome. After [`Welcome::Refused`] the connection is closed. `None`: the service answers later, by
    /// [`Sender::welcome`]; nothing else of the connection is looked at until then.
    fn open(&self, hello: Hello, sender: &Sender) -> Option<Welcome>;

    /// Requests of a main channel, in order, all that one read brought: take them out of `batch`. Each is to be
    /// answered once, here or later.
    fn requests(&self, session: SessionId, sender: &Sender, batch: &mut Vec<Request>);

    /// An acknowledgement on a recall channel.
    fn recall_done(&self, session: SessionId, sender: &Sender, done: RecallDone);

    /// A message between plates, on a peer channel whose `server` was welcome.
    fn peer(&self, server: SessionId, sender: &Sender, frame: PeerFrame);

    /// A connection is closed; `opened` unless it never got an accepting welcome. For the log, and to drop clones
    /// of its sender.
    fn closed(&self, conn: ConnId, opened: Option<(SessionId, Channel)>, why: &Closed);
}

/// Why a connection was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// By the client, or by [`Sender::close`].
    End,
    /// The welcome was a refusal.
    Refused,
    /// One side does not trust the other, or only one of them speaks TLS; in words.
    Untrusted(String),
    /// The client broke the protocol; in words.
    Malformed(String),
    Failed(io::ErrorKind),
    /// It did not greet in time, or was the oldest of too many that have not greeted.
    Ungreeted,
    /// It did not read its answers, or sent parts of long messages, while the server held too much for its clients.
    Behind,
    Stopped,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::End => f.write_str("end of stream"),
            Closed::Refused => f.write_str("refused"),
            Closed::Untrusted(why) => f.write_str(why),
            Closed::Malformed(what) => f.write_str(what),
            Closed::Failed(kind) => write!(f, "socket failed: {kind}"),
            Closed::Ungreeted => f.write_str("no greeting in time"),
            Closed::Behind => f.write_str(
                "too much was held for it: it does not read its answers, or does not finish its messages",
            ),
            Closed::Stopped => f.write_str("server stops"),
        }
    }
}

/// Limits on threads, connections and unsent bytes of [`serve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Threads, whatever the number of connections.
    pub threads: usize,
    /// A connection with more unsent bytes than this is not read.
    pub out_bytes_max: usize,
    /// A connection with this many unanswered requests is not read.
    pub in_flight_max: usize,
    /// Further connections are refused with [`RefuseReason::Full`].
    pub connections_max: usize,
    /// Connections that have not greeted; beyond it the oldest of them is closed.
    pub half_open_max: usize,
    /// A connection that has not greeted for so long is closed.
    pub greet_within: Duration,
    /// A connection whose peer reads nothing for so long, while replies are unsent, is closed.
    pub unread_within: Duration,
    /// Bytes that are unsent, of all connections together. While there are more, connections of which more than their
    /// share is unsent are closed.
    pub unread_bytes_max: usize,
    /// The same of bytes that are received and no complete message.
    pub unfinished_bytes_max: usize,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            threads: 2,
            out_bytes_max: 32 << 20,
            in_flight_max: 8192,
            connections_max: 65_536,
            half_open_max: 256,
            greet_within: Duration::from_secs(10),
            unread_within: Duration::from_secs(60),
            unread_bytes_max: 256 << 20,
            unfinished_bytes_max: 256 << 20,
        }
    }
}

/// Numbers connections of this process. Below are the indices of listeners.
static NEXT_CONN: AtomicU64 = AtomicU64::new(1 << 16);
/// Key of the event that stops the loop.
const STOP: u64 = u64::MAX;
/// Key of the timer.
const TICK: u64 = u64::MAX - 1;
/// Ticks of the timer in the shortest time that is waited for.
const TICKS: u32 = 4;
/// Connections taken from a listener before others get their turn.
const ACCEPTS_MAX: usize = 64;
/// How long a listener rests that found no free descriptor.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

struct Loop {
    homes: Arc<Homes>,
    stop: OwnedFd,
    timer: OwnedFd,
    tick: Duration,
    stopping: AtomicBool,
    listeners: Vec<Listener>,
    /// A listener is not armed because there was no free descriptor.
    resting: AtomicBool,
    peers: Mutex<BTreeMap<ConnId, Sender>>,
    service: Arc<dyn Service>,
    options: ServeOptions,
}

/// A running server. Dropped or stopped, it closes all connections and ends its threads.
pub struct Serving {
    shared: Arc<Loop>,
    threads: Vec<JoinHandle<()>>,
}

/// Serves connections of `listeners` until stopped. Before `gate` opens nothing goes out, and threads wait there.
///
/// # Errors
/// If epoll or threads cannot be had.
///
/// # Panics
/// If a limit of `options` is 0.
pub fn serve(
    listeners: Vec<Listener>,
    service: Arc<dyn Service>,
    options: ServeOptions,
    gate: Option<Arc<dyn Gate>>,
) -> io::Result<Serving> {
    assert!(options.threads > 0 && options.in_flight_max > 0 && options.connections_max > 0);
    assert!(options.half_open_max > 0, "somebody has to be greeted");
    let tick = (options.greet_within.min(options.unread_within) / TICKS).max(Duration::from_millis(1));
    let homes = Arc::new(Homes::new(options.threads, gate)?);
    let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
    for home in 0..options.threads {
        epoll::add(homes.epoll(home), &stop, EventData::new_u64(STOP), EventFlags::IN)?;
    }
    let timer = ticking(tick)?;
    epoll::add(homes.epoll(0), &timer, EventData::new_u64(TICK), EventFlags::IN)?;
    for (i, listener) in listeners.iter().enumerate() {
        epoll::add(homes.epoll(0), listener, EventData::new_u64(i as u64), EventFlags::IN)?;
    }
    let shared = Arc::new(Loop {
        homes,
        stop,
        timer,
        tick,
        stopping: AtomicBool::new(false),
        listeners,
        resting: AtomicBool::new(false),
        peers: Mutex::default(),
        service,
        options,
    });
    let mut serving = Serving { shared, threads: Vec::new() };
    for i in 0..options.threads {
        let shared = serving.shared.clone();
        let work = move || shared.run(i);
        serving.threads.push(thread::Builder::new().name(format!("chiton-serve-{i}")).spawn(work)?);
    }
    Ok(serving)
}

/// A timer that counts every `tick`.
fn ticking(tick: Duration) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let every = Timespec { tv_sec: tick.as_secs() as i64, tv_nsec: i64::from(tick.subsec_nanos()) };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: every, it_value: every })?;
    Ok(timer)
}

impl Serving {
    /// Bytes that are unsent, and bytes of buffers with parts of messages, of all connections.
    pub fn held_bytes(&self) -> (usize, usize) {
        self.shared.homes.held()
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.shared.peers.lock().len()
    }

    /// Ends the threads, sends what sockets take without waiting, closes all connections, and removes socket files.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes()).expect("an event can be counted");
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended the process.
            let _ = thread.join();
        }
        let peers = std::mem::take(&mut *self.shared.peers.lock());
        for peer in peers.into_values() {
            self.shared.close(&peer, &Closed::Stopped);
        }
    }
}

/// Ends the process when a thread of the loop panics: a dead thread would leave its connection's clients waiting
/// for ever, and the service's state half-changed.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

impl Loop {
    fn run(&self, home: usize) {
        let _guard = AbortOnPanic;
        let mut step = Step::default();
        let mut events = Vec::with_capacity(64);
        while !self.stopping.load(Ordering::Acquire) {
            events.clear();
            let resting = home == 0 && self.resting.load(Ordering::Relaxed);
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(self.homes.epoll(home), room, resting.then_some(&REST)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => panic!("epoll_wait fails: {e}"),
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return,
                    TICK => self.tick(),
                    i if (i as usize) < self.listeners.len() => self.accept(i as usize),
                    id => {
                        let peer = self.peers.lock().get(&ConnId(id)).cloned();
                        if let Some(peer) = peer {
                            self.work(&peer, event.flags, &mut step);
                        }
                    }
                }
            }
            if resting {
                self.resting.store(false, Ordering::Relaxed);
                (0..self.listeners.len()).for_each(|i| self.arm_listener(i, EventFlags::IN));
            }
        }
    }

    /// Ends connections that have kept the server waiting for too long.
    fn tick(&self) {
        let mut count = [0; 8];
        if rustix::io::read(&self.timer, &mut count).is_err() {
            return;
        }
        let ticks = |limit: Duration| limit.as_nanos().div_ceil(self.tick.as_nanos()) as u32;
        let (greet, unread) = (ticks(self.options.greet_within), ticks(self.options.unread_within));
        for peer in self.peers.lock().values() {
            peer.tick(greet, unread);
        }
    }

    /// Ends the oldest connection that has not greeted.
    fn make_room(&self, peers: &BTreeMap<ConnId, Sender>) {
        if let Some(oldest) = peers.values().find(|peer| peer.is_silent()) {
            oldest.end_ungreeted();
        }
    }

    fn work(&self, peer: &Sender, flags: EventFlags, step: &mut Step) {
        let why = match step.run(peer, flags, &*self.service) {
            StepEnd::Idle => peer.end(false).err().map(Closed::Failed),
            StepEnd::Backlog => peer.end(true).err().map(Closed::Failed),
            StepEnd::Close(why) => Some(why),
        };
        if let Some(why) = why {
            self.peers.lock().remove(&peer.id());
            self.close(peer, &why);
        }
    }

    fn close(&self, peer: &Sender, why: &Closed) {
        if peer.hang_up() {
            self.service.closed(peer.id(), peer.opened(), why);
        }
    }

    fn arm_listener(&self, i: usize, flags: EventFlags) {
        epoll::modify(self.homes.epoll(0), &self.listeners[i], EventData::new_u64(i as u64), flags)
            .expect("a listener stays in epoll");
    }

    fn accept(&self, i: usize) {
        for _ in 0..ACCEPTS_MAX {
            match self.listeners[i].accept() {
                Ok(stream) => self.admit(stream),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The client gave up while it waited.
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
                // No descriptor or memory: waiting connections stay in the queue for a while.
                Err(_) => {
                    self.resting.store(true, Ordering::Relaxed);
                    self.arm_listener(i, EventFlags::empty());
                    return;
                }
            }
        }
    }

    fn admit(&self, stream: crate::stream::Stream) {
        let id = ConnId(NEXT_CONN.fetch_add(1, Ordering::Relaxed));
        let peer = Sender::new(id, stream, self.homes.clone(), self.options);
        let full = {
            let mut peers = self.peers.lock();
            let full = peers.len() >= self.options.connections_max;
            if self.homes.half_open() > self.options.half_open_max {
                self.make_room(&peers);
            }
            if !full {
                peers.insert(id, peer.clone());
            }
            full
        };
        if full {
            let message = "too many connections; close some mounts or raise the server's limit".to_owned();
            peer.say(&Welcome::Refused { reason: RefuseReason::Full, message });
            self.close(&peer, &Closed::Refused);
        } else if let Err(kind) = peer.enter() {
            self.peers.lock().remove(&id);
            self.close(&peer, &Closed::Failed(kind));
        }
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("listeners", &self.shared.listeners).finish_non_exhaustive()
    }
}
