//! Many operations on any directories, on their way at once: up to a thousand in a message, several messages ahead for each plate.
//!
//! ```text
//!   push ─▶ the lane of the plate that decides ── full, or `flush` ─▶ message under way ─▶ `next`: the results, oldest message first
//! ```
//!
//! Invariants:
//! - Operations that one plate decides are carried out in the order in which they were pushed, unless one waits for rows or recalls:
//!   an operation that needs the result of another is pushed after that result, or into the same message.
//! - Every operation that was pushed has a result.

use std::collections::{BTreeMap, VecDeque};

use chiton_model::{Batched, Op, Outcome};
use chiton_types::{Attr, Cred, Position, Refusal, SessionId};
use chiton_wire::{Answer, Call, Failure};

use crate::client::Client;
use crate::in_flight::refusal;
use crate::service::{Caller, Underway};

/// Operations in one message.
const MESSAGE_OPS: usize = 1_000;
/// Content in one message, about.
const MESSAGE_BYTES: usize = 1 << 20;
/// Messages of a lane under way at once: a server works on one while another is written or read here.
const MESSAGES_AHEAD: usize = 4;
/// Operations that went alone under way at once.
const ALONE_AHEAD: usize = 64;

/// The outcome of the rest of a batch when one of its operations is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefusal {
    /// All are carried out, those of different plates at the same time: in their order only as far as one plate decides them.
    PerformAll,
    /// They are carried out in their order. After the first that is refused, none is, and none has a result.
    StopOnFailure,
}

/// The result of an operation: the attributes of its inode, if it has one.
pub type Performed = Result<Option<Attr>, Refusal>;

/// The number of a message, in the order in which they were begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageNumber(u64);

/// The operations of one user on their way. `T` is a value that the caller attaches to an operation and gets back with its result.
pub struct Pipeline<'a, T> {
    client: &'a Client,
    cred: Cred,
    lanes: BTreeMap<SessionId, Lane<T>>,
    under_way: VecDeque<UnderWay<T>>,
    ready: VecDeque<(T, Performed)>,
    messages: u64,
    alone: usize,
}

/// The operations for one plate that are not sent yet.
struct Lane<T> {
    number: MessageNumber,
    tags: Vec<T>,
    ops: Vec<Op>,
    bytes: usize,
    under_way: usize,
}

struct UnderWay<T> {
    /// None of an operation that went alone.
    lane: Option<SessionId>,
    tags: Vec<T>,
    answer: Box<dyn Underway>,
}

impl<'a, T> Pipeline<'a, T> {
    /// Nothing is under way yet.
    pub fn new(client: &'a Client, caller: &Caller<'_>) -> Pipeline<'a, T> {
        Pipeline {
            client,
            cred: caller.full_cred(),
            lanes: BTreeMap::new(),
            under_way: VecDeque::new(),
            ready: VecDeque::new(),
            messages: 0,
            alone: 0,
        }
    }

    /// Adds an operation, and says in which message it goes. If that is full, it is sent: then this may wait for earlier ones.
    ///
    /// Content that others read through handles does not change in a pipeline: writes and truncations are refused with
    /// [`Refusal::Invalid`], and a clone into a file that is open here with [`Refusal::Busy`].
    pub fn push(&mut self, tag: T, op: Op) -> MessageNumber {
        if let Err(refusal) = self.client.may_be_batched(&op) {
            self.ready.push_back((tag, Err(refusal)));
            return MessageNumber(self.messages);
        }
        let id = self.lane_of(&op);
        let next = &mut self.messages;
        let lane = self.lanes.entry(id).or_insert_with(|| Lane::begin(next, 0));
        lane.bytes += op.heap_bytes();
        lane.tags.push(tag);
        lane.ops.push(op);
        let number = lane.number;
        if lane.ops.len() >= MESSAGE_OPS || lane.bytes >= MESSAGE_BYTES {
            self.send(id);
        }
        number
    }

    /// Sends an operation now, in a message of its own: for one that may wait for other plates, so that many wait at the same time.
    /// Operations that were pushed before it may be carried out after it.
    pub fn push_alone(&mut self, tag: T, op: Op) {
        if let Err(refusal) = self.client.may_be_batched(&op) {
            return self.ready.push_back((tag, Err(refusal)));
        }
        while self.alone >= ALONE_AHEAD && self.take_oldest().is_some() {}
        self.alone += 1;
        self.start(None, vec![tag], vec![op]);
    }

    /// Whether an operation that is pushed now goes in this message, behind those that are in it.
    pub fn goes_in(&self, op: &Op, message: MessageNumber) -> bool {
        self.lanes.get(&self.lane_of(op)).is_some_and(|lane| lane.number == message && !lane.ops.is_empty())
    }

    /// Sends the operations that were pushed.
    pub fn flush(&mut self) {
        let ids: Vec<SessionId> = self.lanes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.send(id));
    }

    /// How many operations were pushed whose results were not taken yet.
    pub fn pending(&self) -> usize {
        let unsent: usize = self.lanes.values().map(|lane| lane.ops.len()).sum();
        let sent: usize = self.under_way.iter().map(|message| message.tags.len()).sum();
        unsent + sent + self.ready.len()
    }

    /// A result that is there already.
    pub fn ready(&mut self) -> Option<(T, Performed)> {
        self.ready.pop_front()
    }

    /// A result, if there is one already or a message under way, for which this waits. Operations that are not sent are not waited for.
    #[allow(clippy::should_implement_trait, reason = "more may be pushed after the last result")]
    pub fn next(&mut self) -> Option<(T, Performed)> {
        while self.ready.is_empty() {
            self.take_oldest()?;
        }
        self.ready.pop_front()
    }

    fn lane_of(&self, op: &Op) -> SessionId {
        self.client.service.session(op.footprint().place)
    }

    fn send(&mut self, id: SessionId) {
        while self.lanes.get(&id).is_some_and(|lane| lane.under_way >= MESSAGES_AHEAD) {
            if self.take_oldest().is_none() {
                break;
            }
        }
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| !lane.ops.is_empty()) else { return };
        let under_way = lane.under_way + 1;
        let Lane { tags, ops, .. } = std::mem::replace(lane, Lane::begin(&mut self.messages, under_way));
        self.start(Some(id), tags, ops);
    }

    fn start(&mut self, lane: Option<SessionId>, tags: Vec<T>, ops: Vec<Op>) {
        let answer = match self.client.service.make_room() {
            Ok(()) => self.client.service.start(&self.cred, Call::Batch { ops, stop_on_failure: false }),
            Err(error) => crate::service::ready(Err(error)),
        };
        self.under_way.push_back(UnderWay { lane, tags, answer });
    }

    fn take_oldest(&mut self) -> Option<()> {
        let UnderWay { lane, tags, answer } = self.under_way.pop_front()?;
        let results = answered(answer.wait(), tags.len());
        match lane.map(|lane| self.lanes.get_mut(&lane)) {
            Some(Some(lane)) => lane.under_way -= 1,
            Some(None) => {}
            None => self.alone -= 1,
        }
        self.ready.extend(tags.into_iter().zip(results));
        Some(())
    }
}

impl<T> Lane<T> {
    fn begin(messages: &mut u64, under_way: usize) -> Lane<T> {
        *messages += 1;
        Lane { number: MessageNumber(*messages), tags: Vec::new(), ops: Vec::new(), bytes: 0, under_way }
    }
}

impl Client {
    /// Carries out operations on any directories, and returns the result of each in the order asked. `PerformAll` sends each plate its
    /// operations at the same time; `StopOnFailure` keeps the order, and may return fewer results.
    ///
    /// Content that others read through handles is not changed here: see [`Pipeline::push`].
    pub fn perform(&self, caller: &Caller<'_>, ops: Vec<Op>, how: OnRefusal) -> Vec<Performed> {
        match how {
            OnRefusal::PerformAll => {
                let mut results: Vec<Performed> = ops.iter().map(|_| Err(Refusal::Io)).collect();
                let mut pipeline = Pipeline::new(self, caller);
                for (at, op) in ops.into_iter().enumerate() {
                    pipeline.push(at, op);
                }
                pipeline.flush();
                while let Some((at, result)) = pipeline.next() {
                    results[at] = result;
                }
                results
            }
            OnRefusal::StopOnFailure => self.perform_in_order(caller, ops),
        }
    }

    fn perform_in_order(&self, caller: &Caller<'_>, ops: Vec<Op>) -> Vec<Performed> {
        let (mut results, cred) = (Vec::with_capacity(ops.len()), caller.full_cred());
        let mut ops = ops.into_iter().peekable();
        while ops.peek().is_some() && !results.last().is_some_and(Result::is_err) {
            let (mut message, mut bytes, mut refused) = (Vec::new(), 0, None);
            while message.len() < MESSAGE_OPS && bytes < MESSAGE_BYTES && refused.is_none() {
                let Some(op) = ops.next() else { break };
                refused = self.may_be_batched(&op).err();
                if refused.is_none() {
                    bytes += op.heap_bytes();
                    message.push(op);
                }
            }
            let asked = message.len();
            if asked > 0 {
                let call = Call::Batch { ops: message, stop_on_failure: true };
                let room = self.service.make_room();
                let answer = room.and_then(|()| self.service.start(&cred, call).wait());
                let mut all = answered(answer, asked);
                let failed = all.iter().position(Result::is_err);
                all.truncate(failed.map_or(asked, |at| at + 1));
                results.append(&mut all);
            }
            if let Some(refusal) = refused.filter(|_| !results.last().is_some_and(Result::is_err)) {
                results.push(Err(refusal));
            }
        }
        results
    }

    /// Whether an operation may go to the server past the layer of open files. Content that this layer has to send first is sent.
    fn may_be_batched(&self, op: &Op) -> Result<(), Refusal> {
        match op.batched() {
            Batched::AtOnce => Ok(()),
            Batched::Never => Err(Refusal::Invalid),
            Batched::Pushed => {
                if let Op::Clone { to, .. } = op
                    && self.files.is_open(*to)
                {
                    return Err(Refusal::Busy);
                }
                // Earlier writes must not set the times afterwards. All are pushed, also behind one that failed.
                let footprint = op.footprint();
                let pushed = footprint.inodes().iter().map(|touch| self.files.push_inode(touch.ino));
                pushed.fold(Ok(()), Result::and)
            }
        }
    }
}

/// The results of a message of so many operations. If it failed as a whole, each failed.
fn answered(answer: Result<Answer, crate::CallError>, count: usize) -> Vec<Performed> {
    let failed = |refusal| vec![Err(refusal); count];
    let mut results: Vec<Performed> = match answer {
        Ok(Answer::Batch(results)) => results.into_iter().map(performed).collect(),
        Ok(_) => failed(Refusal::Io),
        Err(error) => failed(refusal(error)),
    };
    results.resize(count, Err(Refusal::Io));
    results
}

/// One result of a message, in the caller's words.
pub(crate) fn performed(result: Result<(Position, Outcome), Failure>) -> Performed {
    match result {
        Ok((_, outcome)) => Ok(outcome.attr),
        Err(Failure::Refused(refusal)) => Err(refusal),
        Err(Failure::NeedGroups) => Err(Refusal::Access),
        Err(_) => Err(Refusal::Io),
    }
}
