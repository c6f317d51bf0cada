//! Promises: operations that were answered here before the server knew of them. They are numbered and kept like all
//! others, so that whatever happens to the server they come to it in order and once.
//!
//! ```text
//!   promise ─▶ kept (a message that grows) ─ next_promises ─▶ sent ─ answered ─▶ as any answered operation
//!                    └───────────── a new connection: sent again with all that has no answer ─────────┘
//! ```
//!
//! Invariants:
//! - Messages of promises are sent one after the other: they are answered in their order.
//! - A promise that the server refuses, or that goes with its session, is lost work: the next commit says so.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_types::{Cred, Ino, Position, Refusal, Seq};
use chiton_wire::{Again, Answer, Call, Failure, Foretold, LeaseMode, Query, Request};
use hashbrown::HashMap;

use crate::session::{Kept, Session, call_bytes, journalled};

/// Most promises in one message.
const MESSAGE_PROMISES: usize = 1_000;
/// A message that has so many bytes takes no more.
const MESSAGE_BYTES: usize = 1 << 20;

/// Promises that the server has not answered.
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
    /// Of these those that they make or write: the server is not told before that they are closed.
    unclosed: HashMap<Ino, usize>,
    count: usize,
    /// Why the server does not take them now.
    stuck: Option<Refusal>,
}

/// A message of promises.
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

/// Which promises a call must not overtake.
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
            // What changes something, and what promises something of all that was answered.
            Call::Op { .. } | Call::Batch { .. } | Call::Commit { .. } | Call::Realm(_) => Behind::All,
            // What they find may be a directory with promises.
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
            // Closes of what is promised are held back: see `Session::take_closes`.
            Call::Closed { .. } | Call::Reopen { .. } | Call::Ahead { .. } | Call::LeaseNames { .. } => {
                Behind::Nothing
            }
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
    /// Keeps an operation whose caller is answered now. It is about a name in `dir`, or what has one there.
    pub(crate) fn promise(&mut self, cred: &Cred, op: Op, told: Foretold, dir: Ino, now: Duration) {
        if told.open {
            *self.opens.entry(told.ino).or_default() += 1;
        }
        let promises = &mut self.promises;
        let about = (dir, told.ino, matches!(op, Op::Unlink { .. }));
        *promises.dirs.entry(dir).or_default() += 1;
        *promises.inodes.entry(told.ino).or_default() += 1;
        if !about.2 {
            *promises.unclosed.entry(told.ino).or_default() += 1;
        }
        promises.count += 1;
        let is_open = self.kept.back().is_some_and(|kept| {
            promises.open == Some(kept.request.seq)
                && kept.count < MESSAGE_PROMISES as u64
                && kept.bytes < MESSAGE_BYTES
                && (kept.request.cred.covers(cred) || cred.covers(&kept.request.cred))
        });
        if !is_open {
            self.begin_message(cred, now);
        }
        self.promises.waiting.back_mut().expect("that of the open message").about.push(about);
        let kept = self.kept.back_mut().expect("there is one now");
        let bytes = call_bytes(std::slice::from_ref(&op));
        let request = Arc::get_mut(&mut kept.request).expect("what is not sent is nobody else's");
        let Call::Ahead { ops, told: all } = &mut request.call else {
            unreachable!("what waits to be sent are promises")
        };
        ops.push(op);
        all.push(told);
        // What was decided with less is decided alike with more.
        if !request.cred.covers(cred) {
            request.cred = cred.clone();
        }
        kept.count += 1;
        kept.bytes += bytes;
        self.kept_bytes += bytes;
        tracing::debug!(
            session = self.id.0,
            request = kept.request.id,
            seq = self.next_seq,
            "acknowledged, to be sent"
        );
        self.next_seq += 1;
    }

    fn begin_message(&mut self, cred: &Cred, now: Duration) {
        let seq = Seq(self.next_seq);
        let settled = self.settled();
        let call = Call::Ahead { ops: Vec::new(), told: Vec::new() };
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
        self.promises.waiting.push_back(Waiting { seq, since: now, about: Vec::new() });
        self.promises.unsent.push_back(seq);
        self.promises.open = Some(seq);
    }

    /// The message to be sent next, while more can be added to it: its first number, when that was made, and how many there
    /// are.
    pub(crate) fn gathering(&self) -> Option<(Seq, Duration, usize)> {
        let seq = *self.promises.unsent.front()?;
        let message = self.promises.waiting.back().filter(|message| message.seq == seq)?;
        (self.promises.open == Some(seq)).then_some((seq, message.since, message.about.len()))
    }

    /// The next message of promises to be sent. It is closed.
    pub(crate) fn next_promises(&mut self) -> Option<Arc<Request>> {
        let seq = self.promises.unsent.pop_front()?;
        if self.promises.open == Some(seq) {
            self.promises.open = None;
        }
        if self.promises.stuck.is_none() {
            self.close_unsent(seq);
        }
        self.find(seq).map(|kept| kept.request.clone())
    }

    /// What was closed before the server hears that it was made is not opened there at all.
    fn close_unsent(&mut self, seq: Seq) {
        let (opens, mut closes) = (std::mem::take(&mut self.opens), std::mem::take(&mut self.closes));
        let request = self.find(seq).and_then(|kept| Arc::get_mut(&mut kept.request));
        if let Some(Request { call: Call::Ahead { told, .. }, .. }) = request {
            let is_closed = |told: &&mut Foretold| told.open && !opens.contains_key(&told.ino);
            let mut closed: HashMap<Ino, &mut Foretold> =
                told.iter_mut().filter(is_closed).map(|told| (told.ino, told)).collect();
            if !closed.is_empty() {
                closes.retain(|ino| match closed.remove(ino) {
                    Some(told) => {
                        told.open = false;
                        false
                    }
                    None => true,
                });
            }
        }
        (self.opens, self.closes) = (opens, closes);
    }

    /// The server does not take a message of promises now: it is to be sent once more, the same.
    pub(crate) fn put_back(&mut self, request: &Request, why: Refusal) {
        if self.promises.waiting.iter().any(|waiting| waiting.seq == request.seq) {
            self.promises.stuck = Some(why);
            self.promises.unsent.push_front(request.seq);
        }
    }

    /// Why the server does not take promises now.
    pub(crate) fn stuck(&self) -> Option<Refusal> {
        self.promises.stuck
    }

    /// How many promises the server has not answered, and when the oldest was made.
    pub(crate) fn promises(&self) -> (usize, Option<Duration>) {
        (self.promises.count, self.promises.waiting.front().map(|waiting| waiting.since))
    }

    /// The last number that is used.
    pub(crate) fn last_seq(&self) -> Seq {
        Seq(self.next_seq - 1)
    }

    /// Whether promises with numbers up to `upto` are not answered that a call must not overtake.
    pub(crate) fn is_behind(&self, behind: Behind, upto: Seq) -> bool {
        let promises = &self.promises;
        let concerns = match behind {
            Behind::Nothing => false,
            Behind::All => true,
            Behind::Inode(ino) => promises.dirs.contains_key(&ino) || promises.inodes.contains_key(&ino),
        };
        concerns && promises.waiting.front().is_some_and(|waiting| waiting.seq <= upto)
    }

    /// A message of promises is answered, or answered again.
    pub(crate) fn kept_promises(&mut self, request: &Request) {
        let promises = &mut self.promises;
        let Some(at) = promises.waiting.iter().position(|waiting| waiting.seq == request.seq) else { return };
        let about = promises.waiting.remove(at).map_or(Vec::new(), |waiting| waiting.about);
        promises.unsent.retain(|seq| *seq != request.seq);
        promises.stuck = None;
        promises.forget(&about);
    }

    /// Directories in which promises are not answered, in order.
    pub(crate) fn promised_dirs(&self) -> Vec<Ino> {
        let mut dirs: Vec<Ino> = self.promises.dirs.keys().copied().collect();
        dirs.sort_unstable();
        dirs
    }

    /// A new connection: what was not sent is sent again with the rest.
    pub(crate) fn promises_resent(&mut self) {
        self.promises.unsent.clear();
        self.promises.open = None;
        self.promises.stuck = None;
    }

    /// Whether the making or writing of an inode is promised, and not answered.
    pub(crate) fn is_promised(&self, ino: Ino) -> bool {
        self.promises.unclosed.contains_key(&ino)
    }

    /// What is kept of the results of promises. A refused one is lost.
    pub(crate) fn promises_answered(
        &mut self,
        ops: &[Op],
        told: &[Foretold],
        results: &[Result<(Position, LeaseMode), Failure>],
    ) -> Vec<Option<Again>> {
        let mut answers = Vec::with_capacity(told.len());
        for (at, (op, told)) in ops.iter().zip(told).enumerate() {
            let position =
                results.get(at).and_then(|result| result.as_ref().ok()).map(|(position, _)| *position);
            self.lost |= position.is_none();
            answers.push(position.and_then(|position| journalled(foretold(self.boot, op, told, position))));
        }
        answers
    }
}

/// Where and how a promise took effect.
pub(crate) fn foretold(boot: u64, op: &Op, told: &Foretold, position: Position) -> Again {
    let ino = if makes(op) { told.ino } else { Ino(0) };
    Again { boot, position, ino, time: told.time }
}

/// Whether a promise is one of a new inode, which can be open from its first moment on.
pub(crate) fn makes(op: &Op) -> bool {
    matches!(op, Op::Make { .. })
}

/// Of the promises in a message that was answered: inodes on which the lease is not what the client believes to have, with
/// what it has, and those that were refused.
pub(crate) fn disappointed(request: &Request, answer: &Answer) -> Vec<(Ino, LeaseMode)> {
    let (Call::Ahead { ops, told }, Answer::Ahead(results)) = (&request.call, answer) else {
        return Vec::new();
    };
    type Told<'a> = (&'a Op, &'a Foretold);
    let weaker = |((op, told), result): (Told<'_>, &Result<(Position, LeaseMode), Failure>)| {
        let lease = result.as_ref().map_or(LeaseMode::None, |(_, lease)| *lease);
        (lease < lease_on(op)).then_some((told.ino, lease))
    };
    ops.iter().zip(told).zip(results).filter_map(weaker).collect()
}

/// The lease on its inode with which an operation is promised; of a directory on its names.
pub(crate) fn lease_on(op: &Op) -> LeaseMode {
    match matches!(op, Op::Make { make: Make::Symlink { .. }, .. }) {
        true => LeaseMode::Shared,
        false if matches!(op, Op::Unlink { .. }) => LeaseMode::None,
        false => LeaseMode::Exclusive,
    }
}
