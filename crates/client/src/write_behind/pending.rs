//! Pending operations: the client has acknowledged them, and the server has not answered. They are numbered and kept like all
//! others, so that whatever happens to the server they come to it in order and once.
//!
//! ```text
//!   acknowledge ─▶ kept (a message that grows) ─ next_message ─▶ sent ─ answered ─▶ as any answered operation
//!                    └───────────── a new connection: sent again with all that has no answer ─────────┘
//! ```
//!
//! Invariants:
//! - Their messages are sent one after the other: they are answered in their order.
//! - One that the server refuses, or that goes with its session, is lost work: the next commit reports it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_types::{Cred, Ino, Position, Refusal, Seq};
use chiton_wire::{Acknowledged, Again, Answer, Call, Failure, LeaseMode, Query, Request};
use hashbrown::HashMap;

use crate::session::{Kept, Session, call_bytes, journalled};

/// Most operations in one message.
const MESSAGE_OPS_MAX: usize = 1_000;
/// A message that has so many bytes takes no more.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Default)]
pub(crate) struct PendingOps {
    /// Their messages.
    waiting: VecDeque<Waiting>,
    /// The last of these messages, which are to be sent.
    unsent: VecDeque<Seq>,
    /// Of these the one that more can be added to.
    open: Option<Seq>,
    /// Directories whose names those are that they are about, and how many each.
    dirs: HashMap<Ino, usize>,
    /// Inodes that they are about, and how many each.
    inodes: HashMap<Ino, usize>,
    /// Of these the inodes that they make or write: their closes are not reported before.
    unclosed: HashMap<Ino, usize>,
    count: usize,
    /// Why the server does not take them now.
    stuck: Option<Refusal>,
}

/// A message of pending operations.
struct Waiting {
    /// Number of the first.
    seq: Seq,
    /// When that was made.
    since: Duration,
    /// Of each the directory, the inode, and whether it is removed.
    about: Vec<(Ino, Ino, bool)>,
}

impl PendingOps {
    fn forget(&mut self, about: &[(Ino, Ino, bool)]) {
        self.count -= about.len();
        for (dir, ino, removes) in about {
            one_less(&mut self.dirs, *dir);
            one_less(&mut self.inodes, *ino);
            if !removes {
                one_less(&mut self.unclosed, *ino);
            }
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

/// The pending operations that a call must not overtake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// None.
    Nothing,
    /// Those about an inode, or about names in it.
    Inode(Ino),
    /// All that were made before.
    All,
}

impl Behind {
    /// Of a call.
    pub(crate) fn of(call: &Call) -> Behind {
        match call {
            // Changes, and calls that say something about all answered operations.
            Call::Op { .. } | Call::Batch { .. } | Call::Commit { .. } | Call::Realm(_) => Behind::All,
            // They may find a directory with pending operations.
            Call::Query(Query::Lookup { .. } | Query::Resolve { .. } | Query::ReadDir { .. }) => Behind::All,
            Call::Query(
                Query::GetAttr { ino }
                | Query::Open { ino, .. }
                | Query::Access { ino, .. }
                | Query::ReadLink { ino }
                | Query::GetXattr { ino, .. }
                | Query::ListXattr { ino }
                | Query::Map { ino, .. },
            )
            | Call::Lease { ino, .. } => Behind::Inode(*ino),
            Call::SetLock { lock, .. } | Call::GetLock { lock } => Behind::Inode(lock.ino),
            Call::Grown { ino, .. } => Behind::Inode(*ino),
            // Closes of pending files are held back: see `Session::take_closes`.
            Call::Closed { .. }
            | Call::Reopen { .. }
            | Call::WriteBehind { .. }
            | Call::LeaseNames { .. } => Behind::Nothing,
            Call::Query(Query::StatFs)
            | Call::CancelLock { .. }
            | Call::Ended { .. }
            | Call::PutBlock { .. }
            | Call::GetBlock { .. }
            | Call::Admin { .. }
            | Call::Ping
            | Call::Bye => Behind::Nothing,
        }
    }
}

impl Session {
    /// Keeps an operation whose caller is answered now. It is about a name in `dir`, or an inode that has one there.
    pub(crate) fn acknowledge(
        &mut self,
        cred: &Cred,
        op: Op,
        acknowledged: Acknowledged,
        dir: Ino,
        now: Duration,
    ) {
        if acknowledged.open {
            *self.opens.entry(acknowledged.ino).or_default() += 1;
        }
        let pending = &mut self.pending;
        let about = (dir, acknowledged.ino, matches!(op, Op::Unlink { .. }));
        *pending.dirs.entry(dir).or_default() += 1;
        *pending.inodes.entry(acknowledged.ino).or_default() += 1;
        if !about.2 {
            *pending.unclosed.entry(acknowledged.ino).or_default() += 1;
        }
        pending.count += 1;
        let is_open = self.kept.back().is_some_and(|kept| {
            pending.open == Some(kept.request.seq)
                && kept.count < MESSAGE_OPS_MAX as u64
                && kept.bytes < MESSAGE_BYTES_MAX
                && (kept.request.cred.covers(cred) || cred.covers(&kept.request.cred))
        });
        if !is_open {
            self.begin_message(cred, now);
        }
        self.pending.waiting.back_mut().expect("that of the open message").about.push(about);
        let kept = self.kept.back_mut().expect("there is one now");
        let bytes = call_bytes(std::slice::from_ref(&op));
        let request = Arc::get_mut(&mut kept.request).expect("what is not sent is nobody else's");
        let Call::WriteBehind { ops, acknowledged: all } = &mut request.call else {
            unreachable!("messages to be sent are of pending operations")
        };
        tracing::debug!(
            session = self.id.0,
            request = request.id,
            seq = self.next_seq,
            operation = %op.describe(),
            "acknowledged, to be sent"
        );
        ops.push(op);
        all.push(acknowledged);
        // Credentials that carry more decide alike.
        if !request.cred.covers(cred) {
            request.cred = cred.clone();
        }
        kept.count += 1;
        kept.bytes += bytes;
        self.kept_bytes += bytes;
        self.next_seq += 1;
    }

    fn begin_message(&mut self, cred: &Cred, now: Duration) {
        let seq = Seq(self.next_seq);
        let settled = self.settled();
        let call = Call::WriteBehind { ops: Vec::new(), acknowledged: Vec::new() };
        let request = Request {
            id: self.next_id,
            seq,
            settled,
            epoch: self.epoch,
            again: None,
            cred: cred.clone(),
            call,
        };
        self.next_id += 1;
        self.kept.push_back(Kept {
            request: Arc::new(request),
            count: 0,
            bytes: 0,
            answers: Vec::new(),
            last: Position(0),
            current: false,
            waited_for: false,
        });
        self.pending.waiting.push_back(Waiting { seq, since: now, about: Vec::new() });
        self.pending.unsent.push_back(seq);
        self.pending.open = Some(seq);
    }

    /// The message to be sent next, while more can be added to it: its first number, when that was made, and how many there
    /// are.
    pub(crate) fn gathering(&self) -> Option<(Seq, Duration, usize)> {
        let seq = *self.pending.unsent.front()?;
        let message = self.pending.waiting.back().filter(|message| message.seq == seq)?;
        (self.pending.open == Some(seq)).then_some((seq, message.since, message.about.len()))
    }

    /// The next message to be sent. It takes no more operations.
    pub(crate) fn next_message(&mut self) -> Option<Arc<Request>> {
        let seq = self.pending.unsent.pop_front()?;
        if self.pending.open == Some(seq) {
            self.pending.open = None;
        }
        if self.pending.stuck.is_none() {
            self.close_unsent(seq);
        }
        self.find(seq).map(|kept| kept.request.clone())
    }

    /// A file that was closed before the server hears of it is not opened there at all.
    fn close_unsent(&mut self, seq: Seq) {
        let (opens, mut closes) = (std::mem::take(&mut self.opens), std::mem::take(&mut self.closes));
        let request = self.find(seq).and_then(|kept| Arc::get_mut(&mut kept.request));
        if let Some(Request { call: Call::WriteBehind { acknowledged, .. }, .. }) = request {
            let is_closed = |one: &&mut Acknowledged| one.open && !opens.contains_key(&one.ino);
            let mut closed: HashMap<Ino, &mut Acknowledged> =
                acknowledged.iter_mut().filter(is_closed).map(|one| (one.ino, one)).collect();
            if !closed.is_empty() {
                closes.retain(|ino| match closed.remove(ino) {
                    Some(one) => {
                        one.open = false;
                        false
                    }
                    None => true,
                });
            }
        }
        (self.opens, self.closes) = (opens, closes);
    }

    /// The server does not take a message now: it is to be sent once more, the same.
    pub(crate) fn put_back(&mut self, request: &Request, why: Refusal) {
        if self.pending.waiting.iter().any(|waiting| waiting.seq == request.seq) {
            self.pending.stuck = Some(why);
            self.pending.unsent.push_front(request.seq);
        }
    }

    /// Why the server takes no pending operations now.
    pub(crate) fn stuck(&self) -> Option<Refusal> {
        self.pending.stuck
    }

    /// The number of pending operations, and when the oldest was acknowledged.
    pub(crate) fn pending_ops(&self) -> (usize, Option<Duration>) {
        (self.pending.count, self.pending.waiting.front().map(|waiting| waiting.since))
    }

    /// The last number that is used.
    pub(crate) fn last_seq(&self) -> Seq {
        Seq(self.next_seq - 1)
    }

    /// Whether operations with numbers up to `upto` are pending that a call must not overtake.
    pub(crate) fn is_behind(&self, behind: Behind, upto: Seq) -> bool {
        let pending = &self.pending;
        let concerns = match behind {
            Behind::Nothing => false,
            Behind::All => true,
            Behind::Inode(ino) => pending.dirs.contains_key(&ino) || pending.inodes.contains_key(&ino),
        };
        concerns && pending.waiting.front().is_some_and(|waiting| waiting.seq <= upto)
    }

    /// A message is answered, or answered again.
    pub(crate) fn message_answered(&mut self, request: &Request) {
        let pending = &mut self.pending;
        let Some(at) = pending.waiting.iter().position(|waiting| waiting.seq == request.seq) else { return };
        let about = pending.waiting.remove(at).map_or(Vec::new(), |waiting| waiting.about);
        pending.unsent.retain(|seq| *seq != request.seq);
        pending.stuck = None;
        pending.forget(&about);
    }

    /// Directories with pending operations, in order.
    pub(crate) fn pending_dirs(&self) -> Vec<Ino> {
        let mut dirs: Vec<Ino> = self.pending.dirs.keys().copied().collect();
        dirs.sort_unstable();
        dirs
    }

    /// A new connection: unsent messages are sent again with the rest.
    pub(crate) fn resend_pending(&mut self) {
        self.pending.unsent.clear();
        self.pending.open = None;
        self.pending.stuck = None;
    }

    /// Whether an operation that makes or writes an inode is pending.
    pub(crate) fn is_pending(&self, ino: Ino) -> bool {
        self.pending.unclosed.contains_key(&ino)
    }

    /// The results of pending operations, as they are kept. A refused operation is lost.
    pub(crate) fn answers_of_pending(
        &mut self,
        ops: &[Op],
        acknowledged: &[Acknowledged],
        results: &[Result<(Position, LeaseMode), Failure>],
    ) -> Vec<Option<Again>> {
        let mut answers = Vec::with_capacity(acknowledged.len());
        for (at, (op, one)) in ops.iter().zip(acknowledged).enumerate() {
            let position =
                results.get(at).and_then(|result| result.as_ref().ok()).map(|(position, _)| *position);
            self.lost |= position.is_none();
            answers.push(position.and_then(|position| journalled(again_of(self.boot, op, one, position))));
        }
        answers
    }
}

/// Where and how a pending operation took effect.
pub(crate) fn again_of(boot: u64, op: &Op, acknowledged: &Acknowledged, position: Position) -> Again {
    let ino = if makes(op) { acknowledged.ino } else { Ino(0) };
    Again { boot, position, ino, time: acknowledged.time }
}

/// Whether an operation makes an inode, which can be open from its first moment on.
pub(crate) fn makes(op: &Op) -> bool {
    matches!(op, Op::Make { .. })
}

/// Of the operations of an answered message: inodes on which the lease is weaker than the client believes, with the lease that it
/// has; and those of refused operations.
pub(crate) fn weaker_leases(request: &Request, answer: &Answer) -> Vec<(Ino, LeaseMode)> {
    let (Call::WriteBehind { ops, acknowledged }, Answer::WriteBehind(results)) = (&request.call, answer)
    else {
        return Vec::new();
    };
    type Pending<'a> = (&'a Op, &'a Acknowledged);
    let weaker = |((op, one), result): (Pending<'_>, &Result<(Position, LeaseMode), Failure>)| {
        let lease = result.as_ref().map_or(LeaseMode::None, |(_, lease)| *lease);
        (lease < lease_on(op)).then_some((one.ino, lease))
    };
    ops.iter().zip(acknowledged).zip(results).filter_map(weaker).collect()
}

/// The lease on its inode that the client assumes after an operation; of a directory on its names.
pub(crate) fn lease_on(op: &Op) -> LeaseMode {
    match matches!(op, Op::Make { make: Make::Symlink { .. }, .. }) {
        true => LeaseMode::Shared,
        false if matches!(op, Op::Unlink { .. }) => LeaseMode::None,
        false => LeaseMode::Exclusive,
    }
}
