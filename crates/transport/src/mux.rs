//! How many callers share one socket without a thread in between.
//!
//! One waiter at a time is the *leader*: it reads the socket, hands replies to whom they belong, and when its own
//! is there lets the next waiter lead. A lone caller writes and reads on its own thread: two system calls and
//! no change of threads.
//!
//! ```text
//!   caller ─ send ─▶ outbox ─ flush ─▶ socket            leader: recv ─▶ replies ─▶ slots ─▶ wakes followers
//! ```
//!
//! Futures have no thread to lead with: the first that is polled starts a background thread, which leads while
//! futures wait.
//!
//! Invariants:
//! - Whenever a thread waits there is a leader, or one that was woken to become it.
//! - A thread that writes never stops others from reading: a flusher that finds the socket full reads replies meanwhile
//!   (else both ends could wait for each other to read).
//! - A reply that nobody asked for is dropped.

#![expect(clippy::disallowed_methods, reason = "sockets are real: a simulation has a network of its own")]

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::thread::{self, Thread};

use chiton_types::{Epoch, Position, Take};
use chiton_wire::{Failure, Reply, Request};
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::connection_lost::ConnectionLost;
use crate::frame::{FrameKind, FrameReader, put_frame};
use crate::stream::Stream;

/// Requests gathered by `send` go out when they are so many bytes, even if nobody waits.
const GATHER_BYTES: usize = 16 << 10;
/// While another thread writes, callers may append up to here; past it they wait.
const OUTBOX_BYTES_MAX: usize = 4 << 20;

pub(crate) struct Mux {
    stream: Stream,
    outbox: Mutex<Outbox>,
    /// Told when the outbox was emptied.
    emptied: Condvar,
    /// Locked by the leader only.
    inbox: Mutex<Inbox>,
    slots: Mutex<Slots>,
    ids: AtomicU64,
}

#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// A thread is writing, and will write what is added meanwhile.
    flushing: bool,
    /// A buffer to swap with.
    spare: Vec<u8>,
}

struct Inbox {
    frames: FrameReader,
    /// Replies of one read; kept for its memory.
    replies: Vec<Reply>,
}

#[derive(Default)]
struct Slots {
    in_flight: HashMap<u64, Slot>,
    /// A thread reads the socket, or is about to.
    led: bool,
    /// Threads that wait for a leader to bring their reply, by request.
    followers: BTreeMap<u64, Thread>,
    /// Slots with a waker.
    wakers: usize,
    /// The thread that leads for futures.
    background: Option<Thread>,
    lost: Option<ConnectionLost>,
}

#[derive(Default)]
struct Slot {
    reply: Option<Reply>,
    waker: Option<Waker>,
}

enum Wake {
    Thread(Thread),
    Waker(Waker),
}

impl Wake {
    fn wake(self) {
        match self {
            Wake::Thread(thread) => thread.unpark(),
            Wake::Waker(waker) => waker.wake(),
        }
    }
}

impl Slots {
    /// Puts a reply where it belongs; returns whom to wake.
    fn deliver(&mut self, reply: Reply) -> Option<Wake> {
        let id = reply.id;
        let slot = self.in_flight.get_mut(&id)?;
        slot.reply = Some(reply);
        if let Some(waker) = slot.waker.take() {
            self.wakers -= 1;
            return Some(Wake::Waker(waker));
        }
        if self.followers.is_empty() {
            return None;
        }
        self.followers.remove(&id).map(Wake::Thread)
    }

    /// Ends a leadership; returns whom to wake so that it leads on.
    fn abdicate(&mut self) -> Option<Wake> {
        self.led = false;
        match (&self.background, self.wakers) {
            (Some(background), 1..) => Some(Wake::Thread(background.clone())),
            _ => self.followers.first_key_value().map(|(_, thread)| Wake::Thread(thread.clone())),
        }
    }

    fn remove(&mut self, id: u64) -> Option<Reply> {
        let slot = self.in_flight.remove(&id)?;
        if slot.waker.is_some() {
            self.wakers -= 1;
        }
        slot.reply
    }
}

/// How long a leader reads.
#[derive(Clone, Copy, PartialEq)]
enum For {
    /// Until the reply to this request is there.
    Request(u64),
    /// Until no future waits.
    Futures,
    /// The stream is read once.
    Once,
}

impl Mux {
    pub(crate) fn new(stream: Stream, frames: FrameReader) -> Mux {
        Mux {
            stream,
            outbox: Mutex::default(),
            emptied: Condvar::new(),
            inbox: Mutex::new(Inbox { frames, replies: Vec::new() }),
            slots: Mutex::default(),
            ids: AtomicU64::new(1),
        }
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn lost(&self) -> Option<ConnectionLost> {
        self.slots.lock().lost.clone()
    }

    /// Registers a request and appends it to the outbox.
    pub(crate) fn send(&self, request: &Request) {
        let limits = request.check_limits().map_err(|over| over.to_string());
        {
            let mut slots = self.slots.lock();
            if slots.lost.is_some() {
                return;
            }
            let before = slots.in_flight.insert(request.id, Slot::default());
            assert!(before.is_none(), "request {} is in flight twice", request.id);
        }
        let written = limits.and_then(|()| {
            let mut outbox = self.outbox.lock();
            while outbox.flushing && outbox.bytes.len() > OUTBOX_BYTES_MAX {
                self.emptied.wait(&mut outbox);
            }
            let put = put_frame(&mut outbox.bytes, FrameKind::Request, |out| request.encode(out));
            put.map_err(|e| e.to_string())?;
            if outbox.bytes.len() >= GATHER_BYTES {
                self.flush_locked(outbox);
            }
            Ok(())
        });
        if let Err(text) = written {
            let result = Err(Failure::Malformed(text));
            let reply = Reply { id: request.id, epoch: Epoch(0), durable: Position(0), result };
            self.slots.lock().deliver(reply);
        }
    }

    /// Sends the outbox, unless another thread is at it: then that thread will.
    pub(crate) fn flush(&self) {
        self.flush_locked(self.outbox.lock());
    }

    fn flush_locked<'a>(&'a self, mut outbox: MutexGuard<'a, Outbox>) {
        if outbox.flushing || outbox.bytes.is_empty() {
            return;
        }
        outbox.flushing = true;
        let mut bytes = std::mem::take(&mut outbox.spare);
        loop {
            std::mem::swap(&mut bytes, &mut outbox.bytes);
            drop(outbox);
            self.emptied.notify_all();
            let written = self.write(&bytes);
            bytes.clear();
            if let Err(e) = &written {
                // Without a lock: a waker may come back here.
                self.lose(ConnectionLost::new(format!("cannot send to the server: {e}")));
            }
            outbox = self.outbox.lock();
            if written.is_err() {
                outbox.bytes.clear();
            }
            if outbox.bytes.is_empty() {
                break;
            }
        }
        outbox.flushing = false;
        if bytes.capacity() <= 4 * GATHER_BYTES {
            outbox.spare = bytes;
        }
        drop(outbox);
        self.emptied.notify_all();
    }

    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.send(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_for_room()?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Waits until the socket takes more, and reads replies meanwhile if nobody else does.
    fn wait_for_room(&self) -> io::Result<()> {
        let leads = {
            let mut slots = self.slots.lock();
            let free = !slots.led && slots.lost.is_none();
            slots.led |= free;
            free
        };
        // While another leads, look again now and then whether it still does.
        self.stream.wait_for_room(leads)?;
        if leads && let Err(lost) = self.lead(For::Once) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, lost));
        }
        Ok(())
    }

    pub(crate) fn wait(&self, id: u64) -> Result<Reply, ConnectionLost> {
        // A caller that keeps a window of requests in flight waits for the oldest, which is mostly
        // there: requests that it has sent since continue to gather until it really has to wait.
        let mut slots = self.slots.lock();
        if slots.in_flight.get(&id).is_some_and(|slot| slot.reply.is_some()) {
            return Ok(slots.remove(id).expect("the reply is there"));
        }
        drop(slots);
        self.flush();
        slots = self.slots.lock();
        loop {
            let there = slots.in_flight.get(&id).map(|slot| slot.reply.is_some());
            match (there, &slots.lost) {
                (Some(true), _) => return Ok(slots.remove(id).expect("the reply is there")),
                (_, Some(lost)) => {
                    let lost = lost.clone();
                    slots.remove(id);
                    return Err(lost);
                }
                (None, None) => panic!("request {id} is not in flight"),
                (Some(false), None) => {}
            }
            if !slots.led {
                slots.led = true;
                slots.followers.remove(&id);
                drop(slots);
                return Ok(self.lead(For::Request(id))?.expect("a leader for a request ends with its reply"));
            }
            // It may have been polled before: from now on it is this thread that waits.
            let waker = slots.in_flight.get_mut(&id).and_then(|slot| slot.waker.take());
            slots.wakers -= usize::from(waker.is_some());
            slots.followers.insert(id, thread::current());
            drop(slots);
            thread::park();
            slots = self.slots.lock();
        }
    }

    /// Reads and hands out replies until there is what it is for; the caller has set `led`.
    fn lead(&self, purpose: For) -> Result<Option<Reply>, ConnectionLost> {
        let mut inbox = self.inbox.lock();
        let Inbox { frames, replies } = &mut *inbox;
        loop {
            if let Err(lost) = self.read(frames, replies, purpose != For::Once) {
                self.lose(lost.clone());
                return Err(lost);
            }
            let mut own = None;
            let mut wakes = Wakes::default();
            let mut slots = self.slots.lock();
            for reply in replies.drain(..) {
                if purpose == For::Request(reply.id) {
                    slots.remove(reply.id);
                    own = Some(reply);
                } else {
                    wakes.push(slots.deliver(reply));
                }
            }
            let done = match purpose {
                For::Request(_) => own.is_some(),
                For::Futures => slots.wakers == 0,
                For::Once => true,
            };
            if done {
                wakes.push(slots.abdicate());
            }
            drop(slots);
            wakes.wake();
            if done {
                return Ok(own);
            }
        }
    }

    /// Reads once and decodes all that is complete. Bytes that are still in the buffer count as a read.
    fn read(
        &self,
        frames: &mut FrameReader,
        replies: &mut Vec<Reply>,
        wait: bool,
    ) -> Result<(), ConnectionLost> {
        take_replies(frames, replies)?;
        if !replies.is_empty() {
            return Ok(());
        }
        match frames.fill(&self.stream, wait) {
            Ok(0) => Err(ConnectionLost::new("the server closed the connection")),
            Ok(_) => take_replies(frames, replies),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(e) => Err(ConnectionLost::new(format!("cannot read from the server: {e}"))),
        }
    }

    /// Marks the connection as lost (the first reason stays) and wakes everyone.
    pub(crate) fn lose(&self, lost: ConnectionLost) {
        let mut wakes = Wakes::default();
        {
            let mut slots = self.slots.lock();
            slots.lost.get_or_insert(lost);
            slots.led = false;
            slots.wakers = 0;
            for slot in slots.in_flight.values_mut() {
                wakes.push(slot.waker.take().map(Wake::Waker));
            }
            for thread in std::mem::take(&mut slots.followers).into_values() {
                wakes.push(Some(Wake::Thread(thread)));
            }
            wakes.push(slots.background.take().map(Wake::Thread));
        }
        self.stream.shutdown();
        wakes.wake();
    }

    pub(crate) fn poll(mux: &Arc<Mux>, id: u64, waker: &Waker) -> Poll<Result<Reply, ConnectionLost>> {
        mux.flush();
        let mut slots = mux.slots.lock();
        if let Some(lost) = slots.lost.clone() {
            return Poll::Ready(slots.remove(id).ok_or(lost));
        }
        let slot = slots.in_flight.get_mut(&id).expect("a polled request is in flight");
        if slot.reply.is_some() {
            return Poll::Ready(Ok(slots.remove(id).expect("the reply is there")));
        }
        let first = slot.waker.replace(waker.clone()).is_none();
        slots.wakers += usize::from(first);
        if slots.background.is_none() {
            match Mux::start_background(mux) {
                Ok(thread) => slots.background = Some(thread),
                Err(e) => {
                    drop(slots);
                    mux.lose(ConnectionLost::new(format!("cannot start a thread that reads replies: {e}")));
                    return Mux::poll(mux, id, waker);
                }
            }
        } else if !slots.led {
            let background = slots.background.clone();
            drop(slots);
            if let Some(thread) = background {
                thread.unpark();
            }
        }
        Poll::Pending
    }

    fn start_background(mux: &Arc<Mux>) -> io::Result<Thread> {
        let mux = mux.clone();
        let lead = move || {
            loop {
                let mut slots = mux.slots.lock();
                if slots.lost.is_some() {
                    return;
                }
                if slots.wakers == 0 || slots.led {
                    drop(slots);
                    thread::park();
                    continue;
                }
                slots.led = true;
                drop(slots);
                // Every waiter has been notified of the loss; the next pass of the loop ends the thread.
                let _ = mux.lead(For::Futures);
            }
        };
        Ok(thread::Builder::new().name("chiton-replies".to_owned()).spawn(lead)?.thread().clone())
    }

    /// Nobody will ask for this reply.
    pub(crate) fn forget(&self, id: u64) {
        self.slots.lock().remove(id);
    }
}

fn take_replies(frames: &mut FrameReader, replies: &mut Vec<Reply>) -> Result<(), ConnectionLost> {
    let lost = |e: &dyn fmt::Display| ConnectionLost::new(format!("the server sent {e}"));
    while let Some((kind, body)) = frames.next_frame().map_err(|e| lost(&e))? {
        if kind != FrameKind::Reply {
            return Err(lost(&format_args!("{kind:?} where replies are due")));
        }
        let mut body = Take::new(body);
        replies.push(Reply::decode(&mut body).map_err(|e| lost(&e))?);
        body.finish().map_err(|e| lost(&e))?;
    }
    Ok(())
}

/// Whom to wake once no lock is held. The first needs no allocation: most often there is at most one.
#[derive(Default)]
struct Wakes {
    first: Option<Wake>,
    more: Vec<Wake>,
}

impl Wakes {
    fn push(&mut self, wake: Option<Wake>) {
        if self.first.is_none() {
            self.first = wake;
        } else {
            self.more.extend(wake);
        }
    }

    fn wake(self) {
        self.first.into_iter().chain(self.more).for_each(Wake::wake);
    }
}

impl fmt::Debug for Mux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mux").field("stream", &self.stream).finish_non_exhaustive()
    }
}
