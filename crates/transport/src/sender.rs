//! The server's way to one client: replies and recalls, from any thread, at any time.
//!
//! ```text
//!   loop thread, within Service::requests ─ append ─┐
//!                                                   ├─▶ output ─ one write when the batch is done ─▶ socket
//!   other threads (answers to waiting requests) ─────┘           or at once
//!                                                        what the socket does not take, the loop sends later
//! ```
//!
//! Invariants:
//! - Bytes go out in the order in which they were appended; nothing before the [`Welcome`].
//! - Only the connection's home thread reads it; the events that epoll reports change with the output, under its lock.
//! - No lock is held while the service is called; the output's lock is the innermost.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chiton_types::{Epoch, Position};
use chiton_wire::{Channel, Failure, Recall, Reply, Welcome};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::connection_lost::ConnectionLost;
use crate::frame::{FrameKind, FrameReader, put_frame};
use crate::serve::ServeOptions;
use crate::stream::Stream;

mod burden;
mod greeting;
mod other_side;

use burden::Burden;
pub(crate) use burden::{BEHIND, UNGREETED};

/// Output that is gathered in a batch before it is sent ahead of the batch's end.
const GATHER_BYTES: usize = 256 << 10;
/// An output buffer larger than this is given back once it is empty.
const KEEP_BYTES: usize = 128 << 10;

/// A connection, as the server names it: never used twice within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

thread_local! {
    /// The connection whose requests this thread is handing to the service: its output waits for the end.
    static HANDING_OVER: Cell<u64> = const { Cell::new(0) };
}

/// The way to one client. Clone it to answer a waiting request later.
#[derive(Clone)]
pub struct Sender(Way);

#[derive(Clone)]
enum Way {
    Socket(Arc<Peer>),
    Outlet(ConnId, Arc<dyn Outlet>),
}

/// Takes what is sent to a client to it, where there is no socket.
pub trait Outlet: Send + Sync {
    /// The answer to a hello that was left for later.
    ///
    /// # Errors
    /// If the client is gone.
    fn welcome(&self, welcome: Welcome) -> Result<(), ConnectionLost>;
    /// An answer.
    ///
    /// # Errors
    /// If the client is gone.
    fn reply(&self, reply: &Reply) -> Result<(), ConnectionLost>;
    /// A lease is asked back.
    ///
    /// # Errors
    /// If the client is gone.
    fn recall(&self, recall: &Recall) -> Result<(), ConnectionLost>;
    fn close(&self);
}

struct Peer {
    id: ConnId,
    homes: Arc<Homes>,
    options: ServeOptions,
    output: Mutex<Output>,
    input: Mutex<Input>,
}

/// The threads of a loop: each has an epoll of its own, in which its connections stay. (One epoll for all threads
/// costs a fifth of the rate of a single caller: every arming wakes a thread that sleeps while the one that is
/// about to look is awake.)
pub(crate) struct Homes {
    threads: Vec<Home>,
    /// Bytes that the connections hold.
    burden: Burden,
    /// Nothing goes out but through it.
    gate: Option<Arc<dyn Gate>>,
}

/// Decides whether a server may answer. One that may have lost its right must not, even if it does not know yet.
pub trait Gate: Send + Sync {
    /// Waits until answers may go out; false if they never may again.
    fn pass(&self) -> bool;
}

struct Home {
    epoll: OwnedFd,
    /// Main channels that live here.
    mains: AtomicUsize,
}

impl Homes {
    pub(crate) fn new(threads: usize, gate: Option<Arc<dyn Gate>>) -> io::Result<Homes> {
        let home = |_| -> io::Result<Home> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            Ok(Home { epoll, mains: AtomicUsize::new(0) })
        };
        let threads = (0..threads).map(home).collect::<io::Result<_>>()?;
        Ok(Homes { threads, burden: Burden::default(), gate })
    }

    pub(crate) fn epoll(&self, home: usize) -> &OwnedFd {
        &self.threads[home].epoll
    }

    /// The home with the fewest main channels, which gets one more.
    fn settle(&self) -> usize {
        let least =
            self.threads.iter().enumerate().min_by_key(|(_, home)| home.mains.load(Ordering::Relaxed));
        let (home, found) = least.expect("a loop has threads");
        found.mains.fetch_add(1, Ordering::Relaxed);
        home
    }
}

/// State that only the home thread uses.
pub(crate) struct Input {
    /// `None` once closed, so that the descriptor does not outlive the connection while senders are kept.
    pub(crate) stream: Option<Arc<Stream>>,
    pub(crate) frames: FrameReader,
    /// The channel of a hello that is not answered yet.
    pub(crate) greeting: Option<Channel>,
    pub(crate) opened: Option<(chiton_types::SessionId, Channel)>,
    /// Bytes of `frames` as they are counted in the burden.
    weight: usize,
}

struct Output {
    stream: Option<Arc<Stream>>,
    bytes: Vec<u8>,
    /// So many of them are sent.
    sent: usize,
    /// Frames from before the welcome.
    early: Option<Vec<u8>>,
    /// A hello is with the service, which has not answered it.
    greeting: bool,
    /// The answer, where it came later, until the home thread says it.
    late: Option<Welcome>,
    /// The thread in whose epoll it is; connections begin at the first.
    home: usize,
    /// Where it belongs since its hello, if it is a main channel.
    settled: Option<usize>,
    /// Events that epoll reports.
    armed: EventFlags,
    /// Requests handed over and not answered.
    in_flight: usize,
    /// Why sending failed, once it has.
    broken: Option<io::ErrorKind>,
    /// Unsent bytes as they are counted in the burden.
    weight: usize,
    /// Bytes that were ever sent, now and at the last tick that saw some sent.
    sent_ever: (u64, u64),
    /// Ticks since something was sent, or since it began.
    ticks: u32,
}

impl Output {
    /// A connection that epoll cannot take care of is over.
    fn fail_unless(&mut self, done: rustix::io::Result<()>) {
        if let Err(e) = done {
            self.broken.get_or_insert(io::Error::from(e).kind());
            if let Some(stream) = &self.stream {
                stream.shutdown();
            }
        }
    }

    fn waiting(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Sends what the socket takes, if the gate lets it.
    fn flush(&mut self, homes: &Homes) {
        let Some(stream) = &self.stream else { return };
        while self.sent < self.bytes.len() {
            // Before each part of a long output: this thread may have been paused since the last.
            if homes.gate.as_ref().is_some_and(|gate| !gate.pass()) {
                self.broken.get_or_insert(io::ErrorKind::ConnectionAborted);
                stream.shutdown();
                self.sent = self.bytes.len();
                break;
            }
            match stream.send(&self.bytes[self.sent..]) {
                Ok(n) => {
                    self.sent += n;
                    self.sent_ever.0 += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.sent > self.bytes.len() / 2 {
                        self.bytes.drain(..self.sent);
                        self.sent = 0;
                    }
                    return;
                }
                Err(e) => {
                    self.broken.get_or_insert(e.kind());
                    stream.shutdown();
                    self.sent = self.bytes.len();
                }
            }
        }
        self.sent = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEEP_BYTES {
            self.bytes = Vec::new();
        }
    }
}

impl Sender {
    pub(crate) fn new(id: ConnId, stream: Stream, homes: Arc<Homes>, options: ServeOptions) -> Sender {
        let stream = Arc::new(stream);
        homes.burden.begin();
        Sender(Way::Socket(Arc::new(Peer {
            id,
            homes,
            options,
            input: Mutex::new(Input {
                stream: Some(stream.clone()),
                frames: FrameReader::for_greeting(),
                greeting: None,
                opened: None,
                weight: 0,
            }),
            output: Mutex::new(Output {
                stream: Some(stream),
                bytes: Vec::new(),
                sent: 0,
                early: Some(Vec::new()),
                greeting: false,
                late: None,
                home: 0,
                settled: None,
                armed: EventFlags::IN,
                in_flight: 0,
                broken: None,
                weight: 0,
                sent_ever: (0, 0),
                ticks: 0,
            }),
        })))
    }

    /// A way without a socket, for networks of another kind.
    pub fn to(id: ConnId, outlet: Arc<dyn Outlet>) -> Sender {
        Sender(Way::Outlet(id, outlet))
    }

    /// The connection of the loop, which makes only such senders.
    fn peer(&self) -> &Peer {
        match &self.0 {
            Way::Socket(peer) => peer,
            Way::Outlet(..) => unreachable!("the loop works on its own connections"),
        }
    }

    /// Puts the connection into the first thread's epoll, once it can be found by its id.
    pub(crate) fn enter(&self) -> Result<(), io::ErrorKind> {
        let output = self.peer().output.lock();
        let Some(stream) = &output.stream else { return Ok(()) };
        let key = EventData::new_u64(self.peer().id.0);
        epoll::add(self.peer().homes.epoll(output.home), &**stream, key, output.armed)
            .map_err(|e| io::Error::from(e).kind())
    }

    /// Chooses a home for a main channel; it moves there at the end of the step.
    pub(crate) fn settle(&self) {
        let mut output = self.peer().output.lock();
        assert!(output.settled.is_none(), "a connection says hello once");
        output.settled = Some(self.peer().homes.settle());
    }

    pub fn id(&self) -> ConnId {
        match &self.0 {
            Way::Socket(peer) => peer.id,
            Way::Outlet(id, _) => *id,
        }
    }

    /// Answers a request; once for each. A reply too long for a frame becomes [`Failure::Malformed`].
    ///
    /// # Errors
    /// If the client is gone. The caller need not report it: [`crate::Service::closed`] is or was called.
    pub fn send(&self, reply: &Reply) -> Result<(), ConnectionLost> {
        if let Way::Outlet(_, outlet) = &self.0 {
            return outlet.reply(reply);
        }
        self.push(FrameKind::Reply, |out| {
            put_frame(out, FrameKind::Reply, |out| reply.encode(out)).unwrap_or_else(|e| {
                let result = Err(Failure::Malformed(e.to_string()));
                let short = Reply { id: reply.id, epoch: Epoch(0), durable: Position(0), result };
                put_frame(out, FrameKind::Reply, |out| short.encode(out)).expect("a short reply fits");
            });
        })
    }

    /// Asks for a lease back (recall channel).
    ///
    /// # Errors
    /// If the client is gone.
    pub fn recall(&self, recall: &Recall) -> Result<(), ConnectionLost> {
        if let Way::Outlet(_, outlet) = &self.0 {
            return outlet.recall(recall);
        }
        self.push(FrameKind::Recall, |out| {
            put_frame(out, FrameKind::Recall, |out| recall.encode(out)).expect("a recall fits a frame");
        })
    }

    /// Ends the connection, as soon as the loop gets to it.
    pub fn close(&self) {
        if let Way::Outlet(_, outlet) = &self.0 {
            return outlet.close();
        }
        if let Some(stream) = &self.peer().output.lock().stream {
            stream.shutdown();
        }
    }

    fn push(&self, kind: FrameKind, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), ConnectionLost> {
        let mut output = self.peer().output.lock();
        if output.stream.is_none() || output.broken.is_some() {
            return Err(ConnectionLost::new("the client is gone"));
        }
        if kind == FrameKind::Reply {
            output.in_flight = output.in_flight.saturating_sub(1);
        }
        if let Some(early) = &mut output.early {
            put(early);
            return Ok(());
        }
        put(&mut output.bytes);
        if HANDING_OVER.get() == self.peer().id.0 && output.waiting() < GATHER_BYTES {
            return Ok(());
        }
        output.flush(&self.peer().homes);
        self.weigh_output(&mut output);
        let paused = !output.armed.contains(EventFlags::IN);
        self.arm(&mut output, paused);
        Ok(())
    }

    /// Runs `hand_over`, during which what this thread sends to this client is gathered; then sends it. True if
    /// more requests may be handed over.
    pub(crate) fn gather(&self, requests: usize, hand_over: impl FnOnce()) -> bool {
        self.peer().output.lock().in_flight += requests;
        let outer = HANDING_OVER.replace(self.peer().id.0);
        hand_over();
        HANDING_OVER.set(outer);
        let mut output = self.peer().output.lock();
        output.flush(&self.peer().homes);
        self.weigh_output(&mut output);
        !self.congested(&output)
    }

    /// Begins a step of the home thread. The flag says whether requests may be handed over.
    pub(crate) fn begin(&self) -> (MutexGuard<'_, Input>, bool) {
        let input = self.peer().input.lock();
        let mut output = self.peer().output.lock();
        if output.waiting() > 0 {
            output.flush(&self.peer().homes);
            self.weigh_output(&mut output);
        }
        let free = !self.congested(&output);
        drop(output);
        (input, free)
    }

    /// Ends a step. `backlog`: requests were left in the buffer because too much was unanswered.
    ///
    /// # Errors
    /// If the connection broke: no event may report it.
    pub(crate) fn end(&self, backlog: bool) -> Result<(), io::ErrorKind> {
        let mut output = self.peer().output.lock();
        match output.settled {
            Some(home) if home != output.home => self.move_home(&mut output, home, backlog),
            _ => self.arm(&mut output, backlog),
        }
        output.broken.map_or(Ok(()), Err)
    }

    fn move_home(&self, output: &mut Output, home: usize, backlog: bool) {
        let Some(stream) = &output.stream else { return };
        let wanted = self.wanted(output, backlog);
        let homes = &self.peer().homes;
        let key = EventData::new_u64(self.peer().id.0);
        let moved = epoll::delete(homes.epoll(output.home), &**stream)
            .and_then(|()| epoll::add(homes.epoll(home), &**stream, key, wanted));
        output.home = home;
        output.armed = wanted;
        output.fail_unless(moved);
    }

    /// Why sending failed, if it did.
    pub(crate) fn broken(&self) -> Option<io::ErrorKind> {
        self.peer().output.lock().broken
    }

    /// Closes the descriptor. False if that was done before.
    pub(crate) fn hang_up(&self) -> bool {
        let mut input = self.peer().input.lock();
        input.frames = FrameReader::new();
        self.weigh_input(&mut input);
        let mut output = self.peer().output.lock();
        output.flush(&self.peer().homes);
        output.bytes = Vec::new();
        output.sent = 0;
        self.weigh_output(&mut output);
        output.stream = None;
        if let Some(home) = output.settled.take() {
            self.peer().homes.threads[home].mains.fetch_sub(1, Ordering::Relaxed);
        }
        match input.stream.take() {
            Some(stream) => {
                self.peer().homes.burden.end(output.early.is_some());
                stream.shutdown();
                // The last reference is dropped here; closing takes it out of epoll.
                drop(stream);
                true
            }
            None => false,
        }
    }

    fn congested(&self, output: &Output) -> bool {
        let options = &self.peer().options;
        output.greeting
            || output.waiting() > options.out_bytes_max
            || output.in_flight >= options.in_flight_max
    }

    /// Events that epoll shall report next. No new byte announces requests in the buffer (`backlog`) or a late welcome:
    /// room to send wakes a thread for them.
    fn wanted(&self, output: &Output, backlog: bool) -> EventFlags {
        let mut wanted = EventFlags::empty();
        if !self.congested(output) {
            wanted |= EventFlags::IN;
            wanted.set(EventFlags::OUT, backlog || output.late.is_some());
        }
        if output.waiting() > 0 {
            wanted |= EventFlags::OUT;
        }
        wanted
    }

    /// Tells epoll what to report, if that changed.
    fn arm(&self, output: &mut Output, backlog: bool) {
        let wanted = self.wanted(output, backlog);
        let Some(stream) = &output.stream else { return };
        if wanted == output.armed {
            return;
        }
        let key = EventData::new_u64(self.peer().id.0);
        let armed = epoll::modify(self.peer().homes.epoll(output.home), &**stream, key, wanted);
        output.armed = wanted;
        output.fail_unless(armed);
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.id()).finish()
    }
}
