//! Pending operations: the client has acknowledged them, and the server has not answered them.
//!
//! ```text
//!   enqueue ─▶ unsent: messages that gather ─ send_next ─▶ sent: numbered and kept by the session ─ answered ─▶ forgotten
//! ```
//!
//! Invariants:
//! - Only the last unsent message takes more operations. Messages are sent in order, one after the other, so the server carries the
//!   operations out in the order in which they were acknowledged.
//! - A message has no number before it is sent. A new connection numbers all unsent messages first, and sends them again with the
//!   rest: the lease under which they were acknowledged ended with the connection before.
//! - The queue takes operations only while the link is up, and is bounded in number, age and bytes. Beyond that callers ask the
//!   server, and wait.
//! - The lock of the link's state is taken before that of the queue, never after it. A message moves from unsent to sent, and out of
//!   the queue, under both.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chiton_model::Op;
use chiton_runtime::World;
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_types::{Cred, Ino, Refusal, Seq};
use chiton_wire::{Acknowledged, Call, Request};
use hashbrown::HashMap;

use super::behind::Behind;
use crate::session::call_bytes;

/// Most operations in one message.
const MESSAGE_OPS_MAX: usize = 1_000;
/// A message that has so many bytes takes no more.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Oldest pending operation beside which another may be acknowledged.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Pending operations at which further callers wait for the server.
const PENDING_MAX: usize = 8_192;
/// So long may a pending operation wait for others, if no caller waits for it.
const GATHER: Duration = Duration::from_millis(4);
/// A message with so many operations does not wait for more.
const GATHER_OPS_MAX: usize = 256;

/// The place of a pending operation among all of its client, over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

pub(crate) struct PendingQueue {
    queue: Mutex<Queue>,
    /// Wakes the sender: a message may be due, or the end.
    to_send: Condvar,
    /// Wakes callers that wait for answers.
    answered: Condvar,
    /// Bytes that the session keeps, when it was last noted.
    kept_bytes: AtomicUsize,
    limits: Limits,
}

/// Beyond these callers ask the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most bytes of the session and the unsent messages together.
    pub(crate) bytes: usize,
    /// Age of the oldest pending operation.
    pub(crate) age: Duration,
}

impl Limits {
    /// `bytes`: most bytes of the session and the unsent messages together.
    pub(crate) fn new(bytes: usize) -> Limits {
        Limits { bytes, age: AGE_MAX }
    }
}

#[derive(Default)]
struct Queue {
    unsent: VecDeque<Message>,
    sent: VecDeque<Sent>,
    counts: Counts,
    /// Bytes of the unsent messages.
    bytes: usize,
    /// Ticket of the last operation.
    last: Ticket,
    /// A caller waits for the operations up to this one.
    urgent: Ticket,
    /// Why the server takes no pending operations now.
    stuck: Option<Refusal>,
    /// Answered messages with weaker leases than the client believed to have, until these are given up.
    weakening: usize,
    has_sender: bool,
    is_up: bool,
    is_leaving: bool,
    is_stopped: bool,
}

/// Operations that gather to be sent together.
struct Message {
    first: Ticket,
    /// Monotonic time at which the first was acknowledged.
    since: Duration,
    cred: Cred,
    ops: Vec<Op>,
    acknowledged: Vec<Acknowledged>,
    subjects: Vec<Subject>,
    bytes: usize,
}

/// A message that the session has numbered.
struct Sent {
    seq: Seq,
    first: Ticket,
    since: Duration,
    subjects: Vec<Subject>,
}

/// The directory and the inode of an operation.
struct Subject {
    dir: Ino,
    ino: Ino,
    removes: bool,
}

/// How many pending operations there are.
#[derive(Default)]
struct Counts {
    all: usize,
    /// By the directory that has the name.
    dirs: HashMap<Ino, usize>,
    inodes: HashMap<Ino, usize>,
    /// Those that make or write an inode.
    changed: HashMap<Ino, usize>,
}

impl Counts {
    fn add(&mut self, subject: &Subject) {
        self.all += 1;
        *self.dirs.entry(subject.dir).or_default() += 1;
        *self.inodes.entry(subject.ino).or_default() += 1;
        if !subject.removes {
            *self.changed.entry(subject.ino).or_default() += 1;
        }
    }

    fn subtract(&mut self, subject: &Subject) {
        self.all -= 1;
        one_less(&mut self.dirs, subject.dir);
        one_less(&mut self.inodes, subject.ino);
        if !subject.removes {
            one_less(&mut self.changed, subject.ino);
        }
    }
}

fn one_less(counts: &mut HashMap<Ino, usize>, ino: Ino) {
    if let Some(count) = counts.get_mut(&ino) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&ino);
        }
    }
}

impl Message {
    /// Whether an operation of this caller, too, may travel in the message. Credentials that carry more decide alike.
    fn takes(&self, cred: &Cred) -> bool {
        self.ops.len() < MESSAGE_OPS_MAX
            && self.bytes < MESSAGE_BYTES_MAX
            && (self.cred.covers(cred) || cred.covers(&self.cred))
    }
}

impl Queue {
    /// The first pending operation, and when it was acknowledged.
    fn first(&self) -> Option<(Ticket, Duration)> {
        let sent = self.sent.iter().map(|sent| (sent.first, sent.since));
        sent.chain(self.unsent.iter().map(|message| (message.first, message.since))).next()
    }

    fn is_behind(&self, behind: Behind, upto: Ticket) -> bool {
        let concerns = match behind {
            Behind::Nothing => false,
            Behind::All => true,
            Behind::Inode(ino) => {
                self.counts.dirs.contains_key(&ino) || self.counts.inodes.contains_key(&ino)
            }
        };
        concerns && self.first().is_some_and(|(first, _)| first <= upto)
    }

    /// After how long the next message is due, if there is one.
    fn due(&self, now: Duration) -> Option<Duration> {
        let next = self.unsent.front().filter(|_| self.is_up && self.stuck.is_none())?;
        let gathers = self.unsent.len() == 1 && next.ops.len() < GATHER_OPS_MAX && self.urgent < next.first;
        Some(if gathers { (next.since + GATHER).saturating_sub(now) } else { Duration::ZERO })
    }
}

impl PendingQueue {
    /// The link is not up yet.
    pub(crate) fn new(limits: Limits) -> PendingQueue {
        PendingQueue {
            queue: Mutex::default(),
            to_send: Condvar::new(),
            answered: Condvar::new(),
            kept_bytes: AtomicUsize::new(0),
            limits,
        }
    }

    // ---- callers ------------------------------------------------------------------------------------

    /// Queues an operation that the client acknowledges now. It is about a name in `dir`, or an inode that has one there. False if
    /// the caller must ask the server.
    pub(crate) fn enqueue(
        &self,
        cred: &Cred,
        op: &Op,
        acknowledged: Acknowledged,
        dir: Ino,
        now: Duration,
    ) -> bool {
        let mut queue = self.queue.lock();
        let is_old = queue.first().is_some_and(|(_, since)| now.saturating_sub(since) >= self.limits.age);
        if !queue.is_up
            || queue.is_leaving
            || queue.is_stopped
            || queue.stuck.is_some()
            || queue.counts.all >= PENDING_MAX
            || is_old
            || queue.bytes + self.kept_bytes.load(Ordering::Relaxed) > self.limits.bytes
        {
            return false;
        }
        queue.last.0 += 1;
        let (last, bytes) = (queue.last, call_bytes(std::slice::from_ref(op)));
        let subject = Subject { dir, ino: acknowledged.ino, removes: matches!(op, Op::Unlink { .. }) };
        tracing::debug!(
            ticket = last.0,
            inode = acknowledged.ino.0,
            operation = %op.describe(),
            "acknowledged by write-behind"
        );
        queue.counts.add(&subject);
        queue.bytes += bytes;
        if !queue.unsent.back().is_some_and(|message| message.takes(cred)) {
            queue.unsent.push_back(Message {
                first: last,
                since: now,
                cred: cred.clone(),
                ops: Vec::new(),
                acknowledged: Vec::new(),
                subjects: Vec::new(),
                bytes: 0,
            });
        }
        let message = queue.unsent.back_mut().expect("there is one now");
        if !message.cred.covers(cred) {
            message.cred = cred.clone();
        }
        message.ops.push(op.clone());
        message.acknowledged.push(acknowledged);
        message.subjects.push(subject);
        message.bytes += bytes;
        // The sender need not hear of an operation that only joins a message that gathers.
        let count = message.ops.len();
        let is_news = queue.unsent.len() > 1 || count == 1 || count >= GATHER_OPS_MAX;
        drop(queue);
        if is_news {
            self.to_send.notify_one();
        }
        true
    }

    /// The last operation that was acknowledged.
    pub(crate) fn last(&self) -> Ticket {
        self.queue.lock().last
    }

    /// Whether any operation is pending.
    pub(crate) fn has_any(&self) -> bool {
        self.queue.lock().counts.all > 0
    }

    /// Whether operations up to `upto` are pending that a call must not overtake.
    pub(crate) fn is_behind(&self, behind: Behind, upto: Ticket) -> bool {
        behind != Behind::Nothing && self.queue.lock().is_behind(behind, upto)
    }

    /// Why the server takes no pending operations now.
    pub(crate) fn stuck(&self) -> Option<Refusal> {
        self.queue.lock().stuck
    }

    /// A caller waits for all operations up to this one: they do not wait for others.
    pub(crate) fn hurry(&self, upto: Ticket) {
        self.hurry_in(&mut self.queue.lock(), upto);
    }

    fn hurry_in(&self, queue: &mut Queue, upto: Ticket) {
        if queue.urgent < upto {
            queue.urgent = upto;
            self.to_send.notify_one();
        }
    }

    /// Returns when no operation that was acknowledged so far and that `behind` names is pending, or the sender has ended.
    /// `weakened`: and when leases that turned out weaker are given up.
    pub(super) fn wait_answered(&self, behind: Behind, weakened: bool) {
        let mut queue = self.queue.lock();
        let upto = queue.last;
        while queue.has_sender
            && !queue.is_stopped
            && (queue.is_behind(behind, upto) || (weakened && queue.weakening > 0))
        {
            self.hurry_in(&mut queue, upto);
            self.answered.wait(&mut queue);
        }
    }

    // ---- the session --------------------------------------------------------------------------------

    /// Moves the next message to the sent ones. `number` makes it a request of the session.
    pub(crate) fn send_next(&self, number: impl FnOnce(&Cred, Call) -> Arc<Request>) -> Option<Arc<Request>> {
        let mut queue = self.queue.lock();
        let message = queue.unsent.pop_front()?;
        let Message { first, since, cred, ops, acknowledged, subjects, bytes } = message;
        queue.bytes -= bytes;
        let request = number(&cred, Call::WriteBehind { ops, acknowledged });
        queue.sent.push_back(Sent { seq: request.seq, first, since, subjects });
        Some(request)
    }

    /// The server has answered a message. `weakens`: with weaker leases than the client believed to have, which are now given up.
    pub(crate) fn answered(&self, seq: Seq, weakens: bool) {
        let mut queue = self.queue.lock();
        let Some(at) = queue.sent.iter().position(|sent| sent.seq == seq) else { return };
        let sent = queue.sent.remove(at).expect("it was found there");
        sent.subjects.iter().for_each(|subject| queue.counts.subtract(subject));
        queue.stuck = None;
        queue.weakening += usize::from(weakens);
        self.answered.notify_all();
    }

    /// The leases of an answered message are given up.
    pub(super) fn weakened(&self) {
        self.queue.lock().weakening -= 1;
        self.answered.notify_all();
    }

    /// The session is over, and all that is pending with it.
    pub(crate) fn clear(&self) {
        let mut queue = self.queue.lock();
        (queue.unsent, queue.sent, queue.counts) = Default::default();
        (queue.bytes, queue.stuck) = (0, None);
        self.answered.notify_all();
    }

    /// Directories with pending operations, in order.
    pub(crate) fn dirs(&self) -> Vec<Ino> {
        let mut dirs: Vec<Ino> = self.queue.lock().counts.dirs.keys().copied().collect();
        dirs.sort_unstable();
        dirs
    }

    /// Parts inodes into those that a pending operation makes or writes, and the others.
    pub(crate) fn part(&self, inos: Vec<Ino>) -> (Vec<Ino>, Vec<Ino>) {
        let queue = self.queue.lock();
        inos.into_iter().partition(|ino| queue.counts.changed.contains_key(ino))
    }

    /// The open ended with which a file was made. If the file's message is not sent yet, the server need not count that open at
    /// all: true.
    pub(crate) fn close_unsent(&self, ino: Ino) -> bool {
        let mut queue = self.queue.lock();
        if !queue.counts.changed.contains_key(&ino) {
            return false;
        }
        let unsent = queue.unsent.iter_mut().rev().flat_map(|message| message.acknowledged.iter_mut().rev());
        let opened = unsent.into_iter().find(|one| one.ino == ino && one.open);
        opened.map(|one| one.open = false).is_some()
    }

    /// How many bytes the session keeps.
    pub(crate) fn note_kept(&self, bytes: usize) {
        self.kept_bytes.store(bytes, Ordering::Relaxed);
    }

    // ---- the link -----------------------------------------------------------------------------------

    /// The link went up or down.
    pub(crate) fn set_up(&self, is_up: bool) {
        let mut queue = self.queue.lock();
        queue.is_up = is_up;
        if is_up {
            self.to_send.notify_one();
        } else {
            // A message that the server did not take is sent again over the next connection.
            queue.stuck = None;
        }
    }

    /// The client is about to end: it acknowledges nothing more, and sends its pending operations.
    pub(crate) fn leave(&self) {
        self.queue.lock().is_leaving = true;
    }

    #[cfg(test)]
    pub(crate) fn is_leaving(&self) -> bool {
        self.queue.lock().is_leaving
    }

    /// Nothing more is sent.
    pub(crate) fn stop(&self) {
        self.queue.lock().is_stopped = true;
        self.to_send.notify_all();
        self.answered.notify_all();
    }

    // ---- the sender ---------------------------------------------------------------------------------

    /// From now on a thread sends messages.
    pub(super) fn has_sender(&self) {
        self.queue.lock().has_sender = true;
    }

    /// Waits until a message is due. False at the end.
    pub(super) fn wait_due(&self, world: &dyn World) -> bool {
        let mut queue = self.queue.lock();
        while !queue.is_stopped {
            match queue.due(world.monotonic()) {
                Some(Duration::ZERO) => return true,
                Some(moment) => _ = self.to_send.wait_for(&mut queue, moment),
                None => self.to_send.wait(&mut queue),
            }
        }
        false
    }

    /// The server does not take a message now.
    pub(crate) fn refused(&self, why: Refusal) {
        self.queue.lock().stuck = Some(why);
    }

    /// Waits for `moment`, or until a caller is in a hurry. False if the refused message is not to be sent over this connection any
    /// more.
    pub(super) fn wait_refused(&self, moment: Duration) -> bool {
        let mut queue = self.queue.lock();
        if queue.stuck.is_some() && !queue.is_stopped {
            let _ = self.to_send.wait_for(&mut queue, moment);
        }
        queue.stuck.is_some() && !queue.is_stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_gathers_for_a_moment_unless_a_caller_waits() {
        let queue = PendingQueue::new(Limits::new(usize::MAX));
        queue.set_up(true);
        let made = Duration::from_secs(5);
        let now = made + GATHER / 4;
        let due = || queue.queue.lock().due(now);
        let enqueue = |uid: u32| {
            let op = Op::Reclaim { ino: Ino(3) };
            assert!(queue.enqueue(&Cred::new(uid, 0, &[]), &op, Acknowledged::default(), Ino(9), made));
        };
        assert_eq!(due(), None);
        enqueue(0);
        assert_eq!(due(), Some(GATHER / 4 * 3));
        assert_eq!(queue.queue.lock().due(made + GATHER), Some(Duration::ZERO));
        queue.hurry(Ticket(0));
        assert_eq!(due(), Some(GATHER / 4 * 3), "a caller waits for those before it");
        queue.hurry(queue.last());
        assert_eq!(due(), Some(Duration::ZERO));
        queue.clear();
        enqueue(0);
        assert_eq!(due(), Some(GATHER / 4 * 3));
        enqueue(1);
        assert_eq!(due(), Some(Duration::ZERO), "the first message takes no more");
        queue.clear();
        (0..GATHER_OPS_MAX).for_each(|_| enqueue(0));
        assert_eq!(due(), Some(Duration::ZERO), "it is large");
        queue.refused(Refusal::NoSpace);
        assert_eq!(due(), None, "the server takes none now");
        queue.set_up(false);
        assert_eq!(due(), None, "the link is down");
        queue.set_up(true);
        assert_eq!(due(), Some(Duration::ZERO));
    }
}
