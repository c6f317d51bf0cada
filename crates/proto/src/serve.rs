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
//! - What is malformed ends that connection, nothing else. A panic of the service ends the process: its state
//!   cannot be trusted any more.
//! - Idle connections cost a descriptor and a few hundred bytes: read buffers belong to threads.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use chiton_types::SessionId;
use parking_lot::Mutex;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::listener::Listener;
use crate::message::{Channel, Hello, RecallDone, RefuseReason, Request, Welcome};
use crate::sender::{ConnId, Homes, Sender};
use crate::turn::{Turn, TurnEnd};

/// What serves requests.
///
/// Calls come from the threads of the loop, for different connections at the same time. They should not block for
/// long: what must wait keeps a clone of the [`Sender`] and answers later.
pub trait Service: Send + Sync {
    /// The first message of a connection, of the right version. What is sent through `sender` before this returns goes
    /// out after the welcome. After [`Welcome::Refused`] the connection is closed. `None`: whoever has a clone of the
    /// sender answers later, by [`Sender::welcome`]; nothing else of the connection is looked at until then.
    fn open(&self, hello: Hello, sender: &Sender) -> Option<Welcome>;

    /// Requests of a main channel, in order, all that one read brought: take them out of `batch`. Each is to be
    /// answered once, here or later.
    fn requests(&self, session: SessionId, sender: &Sender, batch: &mut Vec<Request>);

    /// An acknowledgement on a recall channel.
    fn recall_done(&self, session: SessionId, sender: &Sender, done: RecallDone);

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
    /// The client broke the protocol; in words.
    Malformed(String),
    /// The socket failed.
    Failed(io::ErrorKind),
    /// The server stops.
    Stopped,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::End => f.write_str("end of stream"),
            Closed::Refused => f.write_str("refused"),
            Closed::Malformed(what) => f.write_str(what),
            Closed::Failed(kind) => write!(f, "socket failed: {kind}"),
            Closed::Stopped => f.write_str("server stops"),
        }
    }
}

/// Limits of [`serve`].
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
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions { threads: 2, out_bytes_max: 32 << 20, in_flight_max: 8192, connections_max: 65_536 }
    }
}

/// Numbers connections of this process. Below are the indices of listeners.
static NEXT_CONN: AtomicU64 = AtomicU64::new(1 << 16);
/// Key of the event that stops the loop.
const STOP: u64 = u64::MAX;
/// Connections taken from a listener before others get their turn.
const ACCEPTS_MAX: usize = 64;
/// How long a listener rests that found no free descriptor.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

struct Loop {
    homes: Arc<Homes>,
    stop: OwnedFd,
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

/// Serves connections of `listeners` until stopped.
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
) -> io::Result<Serving> {
    assert!(options.threads > 0 && options.in_flight_max > 0 && options.connections_max > 0);
    let homes = Arc::new(Homes::new(options.threads)?);
    let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
    for home in 0..options.threads {
        epoll::add(homes.epoll(home), &stop, EventData::new_u64(STOP), EventFlags::IN)?;
    }
    for (i, listener) in listeners.iter().enumerate() {
        epoll::add(homes.epoll(0), listener, EventData::new_u64(i as u64), EventFlags::IN)?;
    }
    let shared = Arc::new(Loop {
        homes,
        stop,
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

impl Serving {
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
        let mut turn = Turn::default();
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
                    i if (i as usize) < self.listeners.len() => self.accept(i as usize),
                    id => {
                        let peer = self.peers.lock().get(&ConnId(id)).cloned();
                        if let Some(peer) = peer {
                            self.work(&peer, event.flags, &mut turn);
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

    fn work(&self, peer: &Sender, flags: EventFlags, turn: &mut Turn) {
        let why = match turn.run(peer, flags, &*self.service) {
            TurnEnd::Idle => peer.end(false).err().map(Closed::Failed),
            TurnEnd::Backlog => peer.end(true).err().map(Closed::Failed),
            TurnEnd::Close(why) => Some(why),
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
                // No descriptor or memory: those who wait stay in the queue for a while.
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
