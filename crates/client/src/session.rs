//! The client's half of exactly-once, pure: numbers, operations to keep, operations to send again. No socket, no clock.
//!
//! ```text
//!   issue ──▶ Asked ── answered ──▶ Answered(positions) ── durable passes ──▶ settled, forgotten
//!               │                        │
//!               └── resume (same boot) ──┤    sent again, in order: requests without answer
//!                   resume (new boot) ───┘    sent again, in order: everything that is not settled
//!   expire: the server says what of it was carried out; the answered rest is sent in the next session (ended.rs)
//! ```
//!
//! Invariants:
//! - Sequence numbers have no gaps; `kept` is in their order.
//! - An operation that was refused is never sent again: the state may have changed so that it would succeed.
//! - A position counts only in the boot that gave it. After a restart nothing settles before the server, which
//!   knows what it has in its journal, has answered again.

mod ended;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chiton_model::{Op, Outcome};
use chiton_types::{Cred, Epoch, Ino, Position, Refusal, Seq, SessionId};
use chiton_wire::{
    Acknowledged, Again, Answer, Call, Failure, LeaseMode, Lock, Query, Reply, Request, StatTarget,
};

use crate::held_locks::HeldLocks;
use crate::kept_blocks::KeptBlocks;
pub(crate) use ended::{CarriedOut, Unanswered};
use ended::{is_late, results_of_late};

/// Sequence numbers, kept operations, opens and locks of one session.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) secret: u64,
    pub(crate) boot: u64,
    epoch: Epoch,
    next_id: u64,
    /// See [`crate::Connection::messages`].
    messages: u64,
    next_seq: u64,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    durable: Position,
    /// Highest position of any answer in this boot.
    answered: Position,
    /// Highest position that an operation has got that was sent again: commits that were asked with a
    /// position of the boot before wait for this one.
    moved_to: Position,
    lost: bool,
    /// Of the late operations, some are lost; until all of them are answered.
    has_lost_late: bool,
    opens: BTreeMap<Ino, u32>,
    locks: HeldLocks,
    closes: Vec<Ino>,
    pub(crate) blocks: KeptBlocks,
}

struct Kept {
    request: Arc<Request>,
    /// The start of the server to which it was sent first.
    boot: u64,
    count: u64,
    bytes: usize,
    /// The answer to each operation; empty while there is no answer. `None`: refused.
    answers: Vec<Option<Again>>,
    /// Highest position in `answers`.
    last: Position,
    /// An answer of this boot is there.
    current: bool,
    /// A caller still waits for the answer.
    waited_for: bool,
}

/// One request of a resend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resend {
    /// The request to send.
    pub(crate) request: Request,
    /// The kept request that it belongs to.
    pub(crate) of: Arc<Request>,
}

impl Session {
    /// A new session without history; `inherit` takes over opens of one that expired.
    pub(crate) fn new(id: SessionId, secret: u64, boot: u64, durable: Position) -> Session {
        Session {
            id,
            secret,
            boot,
            epoch: Epoch(0),
            next_id: 1,
            messages: 0,
            next_seq: 1,
            kept: VecDeque::new(),
            kept_bytes: 0,
            durable,
            answered: Position(0),
            moved_to: Position(0),
            lost: false,
            has_lost_late: false,
            opens: BTreeMap::new(),
            locks: HeldLocks::default(),
            closes: Vec::new(),
            blocks: KeptBlocks::default(),
        }
    }

    /// Turns a call into a request and keeps it if it changes something.
    pub(crate) fn issue(&mut self, cred: &Cred, call: Call) -> Arc<Request> {
        let count = match &call {
            Call::Op { .. } => 1,
            Call::Batch { ops, .. } | Call::WriteBehind { ops, .. } | Call::Late { ops, .. } => {
                ops.len() as u64
            }
            _ => 0,
        };
        // Callers of write-behind have their answer, and those of late operations.
        let waited_for = !matches!(call, Call::WriteBehind { .. } | Call::Late { .. });
        if let Call::WriteBehind { acknowledged, .. } = &call {
            for one in acknowledged.iter().filter(|one| one.open) {
                *self.opens.entry(one.ino).or_default() += 1;
            }
        }
        if !matches!(call, Call::Ping | Call::Closed { .. } | Call::Reopen { .. } | Call::Bye) {
            self.messages += 1;
        }
        let id = self.next_id;
        self.next_id += 1;
        let seq = if count > 0 { Seq(self.next_seq) } else { Seq(0) };
        // Of what was before: this one is not settled.
        let settled = self.settled();
        self.next_seq += count;
        let call = match call {
            // A commit from before a restart must cover what was carried out again since.
            Call::Commit { upto } if upto.0 != 0 => Call::Commit { upto: upto.max(self.moved_to) },
            call => call,
        };
        let request =
            Arc::new(Request { id, seq, settled, epoch: self.epoch, again: None, cred: cred.clone(), call });
        tracing::debug!(session = self.id.0, request = id, seq = seq.0, "request to the server");
        if count > 0 {
            let bytes = call_bytes(request.call.ops());
            self.kept_bytes += bytes;
            for (at, op) in request.call.ops().iter().enumerate() {
                self.blocks.asked(op, Seq(request.seq.0 + at as u64));
            }
            self.kept.push_back(Kept {
                boot: self.boot,
                request: request.clone(),
                count,
                bytes,
                answers: Vec::new(),
                last: Position(0),
                current: false,
                waited_for,
            });
        }
        request
    }

    /// Everything below is durable or was refused.
    pub(crate) fn settled(&self) -> Seq {
        self.kept.front().map_or(Seq(self.next_seq), |kept| kept.request.seq)
    }

    /// Bytes that kept operations and blocks take.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes + self.blocks.bytes()
    }

    /// The boot of the server that is known.
    pub(crate) fn boot(&self) -> u64 {
        self.boot
    }

    pub(crate) fn durable(&self) -> Position {
        self.durable
    }

    /// Operations that are kept.
    pub(crate) fn kept_count(&self) -> usize {
        self.kept.iter().map(|kept| kept.count as usize).sum()
    }

    /// See [`crate::Connection::messages`].
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Highest position of an answer.
    pub(crate) fn answered_upto(&self) -> Position {
        self.answered
    }

    /// Takes note of a reply to `request`, of the link that is up now.
    pub(crate) fn answered(&mut self, request: &Request, reply: &Reply) {
        self.epoch = self.epoch.max(reply.epoch);
        match (&request.call, &reply.result) {
            (Call::Op { op, open }, Ok(Answer::Op { position, outcome, .. })) => {
                if *open && let Some(attr) = &outcome.attr {
                    *self.opens.entry(attr.ino).or_default() += 1;
                }
                self.note(request.seq, vec![journalled(again(self.boot, op, *position, outcome))]);
            }
            (Call::Batch { ops, .. }, Ok(Answer::Batch(results))) => {
                let mut answers: Vec<Option<Again>> = ops
                    .iter()
                    .zip(results)
                    .map(|(op, result)| {
                        result.as_ref().ok().and_then(|(position, outcome)| {
                            journalled(again(self.boot, op, *position, outcome))
                        })
                    })
                    .collect();
                answers.resize(ops.len(), None);
                self.note(request.seq, answers);
            }
            (Call::WriteBehind { ops, acknowledged }, result) => {
                let results = match result {
                    Ok(Answer::WriteBehind(results)) => &results[..],
                    _ => &[],
                };
                let answers = self.answers_of_pending(ops, acknowledged, results);
                self.note(request.seq, answers);
            }
            (Call::Late { ops, acknowledged, .. }, _) => {
                let answers = self.answers_of_late(ops, acknowledged, results_of_late(reply));
                self.note(request.seq, answers);
            }
            (Call::Op { .. }, _) => self.note(request.seq, vec![None]),
            (Call::Batch { ops, .. }, _) => self.note(request.seq, vec![None; ops.len()]),
            (Call::Query(Query::Open { ino, .. }), Ok(_)) => *self.opens.entry(*ino).or_default() += 1,
            (Call::Query(Query::StatEach { targets, .. }), Ok(Answer::Stats(stats))) => {
                for (target, stat) in targets.iter().zip(stats) {
                    if let (StatTarget::Open { ino, .. }, Ok(_)) = (target, stat) {
                        *self.opens.entry(*ino).or_default() += 1;
                    }
                }
            }
            (Call::SetLock { lock, .. }, Ok(_)) => self.locks.set(*lock),
            _ => {}
        }
        self.durable = self.durable.max(reply.durable);
        self.settle();
    }

    /// The part of the results of a write-behind message that the session keeps. A refused operation is lost.
    fn answers_of_pending(
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

    fn find(&mut self, seq: Seq) -> Option<&mut Kept> {
        let first = self.kept.front()?.request.seq;
        // Without batches before it, its place is known.
        let guess = seq.0.checked_sub(first.0)? as usize;
        let guessed = self.kept.get(guess).is_some_and(|kept| kept.request.seq == seq);
        let at = match guessed {
            true => guess,
            false => self.kept.partition_point(|kept| kept.request.seq.0 + kept.count <= seq.0),
        };
        self.kept.get_mut(at).filter(|kept| kept.request.seq <= seq)
    }

    fn note(&mut self, seq: Seq, answers: Vec<Option<Again>>) {
        let last = answers.iter().flatten().map(|again| again.position).max().unwrap_or(Position(0));
        self.answered = self.answered.max(last);
        if let Some(kept) = self.find(seq) {
            kept.waited_for = false;
            kept.current = true;
            kept.last = last;
            kept.answers = answers;
        }
    }

    fn settle(&mut self) {
        while let Some(front) = self.kept.front() {
            if !front.current || front.last > self.durable {
                break;
            }
            for (at, op) in front.request.call.ops().iter().enumerate() {
                // Of one that is not journalled nothing is durable.
                if front.answers.get(at).is_some_and(Option::is_some) {
                    self.blocks.durable(op, Seq(front.request.seq.0 + at as u64));
                }
            }
            self.kept_bytes -= front.bytes;
            self.kept.pop_front();
        }
    }

    // ---- opens, closes, locks ----------------------------------------------------------------------

    /// An open ended. The request of the next [`Session::take_closes`] reports it.
    pub(crate) fn closed(&mut self, ino: Ino) {
        if let Some(opens) = self.opens.get_mut(&ino) {
            *opens -= 1;
            if *opens == 0 {
                self.opens.remove(&ino);
            }
            self.closes.push(ino);
        }
    }

    /// Closes not yet reported.
    pub(crate) fn closes_waiting(&self) -> usize {
        self.closes.len()
    }

    /// The request that reports the closes so far. `part` parts off those that wait: the server cannot close what it has not made
    /// yet.
    pub(crate) fn take_closes(
        &mut self,
        part: impl FnOnce(Vec<Ino>) -> (Vec<Ino>, Vec<Ino>),
    ) -> Option<Arc<Request>> {
        if self.closes.is_empty() {
            return None;
        }
        let (later, inos) = part(std::mem::take(&mut self.closes));
        self.closes = later;
        if inos.is_empty() {
            return None;
        }
        Some(self.issue(&Cred::ROOT, Call::Closed { inos }))
    }

    /// A request that declares what this session has open, locked, and not handed over: `dirty` files, and the directories (`names`) in
    /// which operations are pending. Counts are absolute, so closes that may or may not have arrived need not be reported again.
    pub(crate) fn reopen(&mut self, dirty: Vec<Ino>, names: Vec<Ino>) -> Arc<Request> {
        self.closes.clear();
        let opens = self.opens.iter().map(|(&ino, &count)| (ino, count)).collect();
        let locks: Vec<Lock> = self.locks.all();
        self.issue(&Cred::ROOT, Call::Reopen { opens, locks, dirty, names })
    }

    // ---- losing the connection, the server, the session ---------------------------------------------

    /// Operations that are sent again should the server turn out to have been restarted (for the greeting).
    pub(crate) fn resend_count(&self) -> u32 {
        let operations = |kept: &Kept| match kept.answers.is_empty() {
            // They are new to the server, and wait until its window is over.
            true if is_late(kept) => 0,
            true => kept.count,
            false => kept.answers.iter().flatten().count() as u64,
        };
        u32::try_from(self.kept.iter().map(operations).sum::<u64>()).unwrap_or(u32::MAX)
    }

    /// Resumes the session over a new connection: returns the requests to send again, in order, before anything new.
    pub(crate) fn resume(&mut self, boot: u64, durable: Position) -> Vec<Resend> {
        let restarted = boot != self.boot;
        self.boot = boot;
        if restarted {
            self.lose_rest_of_late();
            for kept in &mut self.kept {
                // All of it was refused: nothing is to be sent again.
                kept.current = !kept.answers.is_empty() && kept.answers.iter().all(Option::is_none);
            }
            self.durable = durable;
            self.answered = Position(0);
        } else {
            self.durable = self.durable.max(durable);
        }
        let mut resends = Vec::new();
        let mut next_id = self.next_id;
        let settled = self.settled();
        for kept in self.kept.iter().filter(|kept| !kept.current && !is_late(kept)) {
            resend(kept, settled, &self.opens, &mut next_id, &mut resends);
        }
        self.next_id = next_id;
        resends
    }

    /// Takes note of the replies to the resends of one kept request (those refused are `None`, as those that
    /// were not sent). True if a caller waits for the answer.
    pub(crate) fn resent(
        &mut self,
        of: Seq,
        results: &[Option<(Position, Outcome)>],
        durable: Position,
    ) -> bool {
        let mut moved_to = self.moved_to;
        let mut lost = false;
        let mut waited_for = false;
        let mut opened = None;
        let boot = self.boot;
        if let Some(kept) = self.find(of) {
            let before = std::mem::take(&mut kept.answers);
            let acknowledged = match &kept.request.call {
                Call::WriteBehind { acknowledged, .. } | Call::Late { acknowledged, .. } => &acknowledged[..],
                _ => &[],
            };
            let ops = kept.request.call.ops();
            let mut answers = Vec::with_capacity(ops.len());
            for (at, op) in ops.iter().enumerate() {
                let result = results.get(at).and_then(Option::as_ref);
                let first = before.get(at).copied().flatten();
                // Answered with success before, refused now: acknowledged work is lost.
                lost |= (first.is_some() || !acknowledged.is_empty()) && result.is_none();
                // The first answer says where it belongs among the operations of all sessions, for ever.
                answers.push(result.and_then(|(position, outcome)| {
                    first.or_else(|| {
                        journalled(match acknowledged.get(at) {
                            Some(one) => again_of(boot, op, one, *position),
                            None => again(boot, op, *position, outcome),
                        })
                    })
                }));
            }
            let positions = results.iter().flatten().map(|(position, _)| *position);
            kept.last = positions.max().unwrap_or(Position(0));
            if let (Call::Op { open: true, .. }, true) = (&kept.request.call, before.is_empty()) {
                opened = results
                    .first()
                    .and_then(Option::as_ref)
                    .and_then(|(_, o)| o.attr.as_ref())
                    .map(|a| a.ino);
            }
            moved_to = moved_to.max(kept.last);
            kept.answers = answers;
            kept.current = true;
            waited_for = std::mem::take(&mut kept.waited_for);
        }
        if let Some(ino) = opened {
            *self.opens.entry(ino).or_default() += 1;
        }
        self.moved_to = moved_to;
        self.answered = self.answered.max(moved_to);
        self.lost |= lost;
        self.durable = self.durable.max(durable);
        self.settle();
        waited_for
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn abandon(&mut self, seq: Seq) {
        if let Some(kept) = self.find(seq) {
            kept.waited_for = false;
        }
    }
}

/// The file whose content a call writes.
fn written(call: &Call) -> Option<Ino> {
    if let Call::Op { op: Op::Write { ino, .. }, .. } = call { Some(*ino) } else { None }
}

/// The part of an answer that is kept: nothing if the server has not journalled the operation (position 0), because its policy
/// guarantees nothing, or because it changed nothing; then it is not sent again.
fn journalled(again: Again) -> Option<Again> {
    (again.position > Position(0)).then_some(again)
}

fn again(boot: u64, op: &Op, position: Position, outcome: &Outcome) -> Again {
    let attr = outcome.attr.as_ref();
    let is_born = op.makes_inode();
    Again {
        boot,
        position,
        ino: attr.filter(|_| is_born).map_or(Ino(0), |attr| attr.ino),
        time: outcome.time,
    }
}

/// Where and how a pending operation took effect.
fn again_of(boot: u64, op: &Op, acknowledged: &Acknowledged, position: Position) -> Again {
    let ino = if makes(op) { acknowledged.ino } else { Ino(0) };
    Again { boot, position, ino, time: acknowledged.time }
}

/// Whether an operation makes an inode, which can be open from its first moment on.
fn makes(op: &Op) -> bool {
    matches!(op, Op::Make { .. })
}

fn resend(kept: &Kept, settled: Seq, opens: &BTreeMap<Ino, u32>, next_id: &mut u64, out: &mut Vec<Resend>) {
    let original = &kept.request;
    let mut push = |seq: Seq, again: Again, call: Call| {
        let id = *next_id;
        *next_id += 1;
        let request = Request { id, seq, settled, again: Some(again), call, ..header(original) };
        out.push(Resend { request, of: original.clone() });
    };
    if kept.answers.is_empty() {
        let call = match original.call.clone() {
            Call::WriteBehind { ops, mut acknowledged } => {
                for (op, one) in ops.iter().zip(&mut acknowledged) {
                    one.open = makes(op) && opens.contains_key(&one.ino);
                }
                Call::WriteBehind { ops, acknowledged }
            }
            call => call,
        };
        push(original.seq, Again { boot: kept.boot, ..Again::default() }, call);
        return;
    }
    for (at, (op, answer)) in original.call.ops().iter().zip(&kept.answers).enumerate() {
        if let Some(again) = answer {
            // A file that has been closed since is not opened once more. One that is still open is, should it have to be made
            // again: it could not be declared as open before.
            let open = opens.contains_key(&again.ino);
            push(Seq(original.seq.0 + at as u64), *again, Call::Op { op: op.clone(), open });
        }
    }
}

/// A copy of a request without its call.
fn header(of: &Request) -> Request {
    Request {
        id: of.id,
        seq: of.seq,
        settled: of.settled,
        epoch: of.epoch,
        again: None,
        cred: of.cred.clone(),
        call: Call::Ping,
    }
}

/// About what a kept call takes in memory.
pub(crate) fn call_bytes(ops: &[Op]) -> usize {
    const FIXED: usize = 192;
    ops.iter().map(|op| FIXED + op.heap_bytes()).sum()
}

/// Of each operation of a request, where and how it took effect; `None`: it was refused.
pub(crate) type Effects = Vec<Option<(Position, Outcome)>>;

/// The effects of the operations of `request`, from the replies to its resends (number and result): positions
/// and outcomes in order, and the answer for its caller, should he still wait.
pub(crate) fn assemble(
    request: &Request,
    replies: Vec<(Seq, Result<Answer, Failure>)>,
) -> (Effects, Result<Answer, Failure>) {
    let mut results = vec![None; request.call.ops().len()];
    let mut answer = Err(Failure::Refused(Refusal::Io));
    for (seq, result) in replies {
        match &result {
            Ok(Answer::Op { position, outcome, .. }) => {
                results[(seq.0 - request.seq.0) as usize] = Some((*position, outcome.clone()));
            }
            Ok(Answer::WriteBehind(each)) => {
                for (slot, one) in results.iter_mut().zip(each) {
                    *slot = one.as_ref().ok().map(|(position, _)| (*position, Outcome::default()));
                }
            }
            Ok(Answer::Batch(each)) => {
                for (slot, one) in results.iter_mut().zip(each) {
                    *slot = one.as_ref().ok().cloned();
                }
            }
            _ => {}
        }
        answer = result;
    }
    (results, answer)
}
