//! The engine's state, and the queues of requests that could not be answered at once.

use std::mem;
use std::time::Duration;

use chiton_model::Event;
use chiton_namespace::Namespace;
use chiton_types::{Ino, Position, Refusal, SessionId};
use chiton_wire::{Answer, Call, Failure, Reply, Request};

use crate::counters::{self, Counters};
use crate::decoupled::Decoupled;
use crate::moment::{Health, Moment};
use crate::parts::{Clients, Output, Queue, Shards};
use crate::peers::Peers;
use crate::recovery::Recovery;
use crate::settings::Settings;
use crate::step::{Command, Progress, Step, Stop};
use crate::subtree::Subtrees;
use crate::wait_queue::{Task, Ticket, Wait};

pub struct Engine {
    pub(crate) settings: Settings,
    pub(crate) clients: Clients,
    pub(crate) shards: Shards,
    pub(crate) output: Output,
    pub(crate) queue: Queue,
    /// Present in a decoupled client only.
    pub(crate) decoupled: Option<Decoupled>,
    /// With several plates only.
    pub(crate) peers: Option<Box<Peers>>,
    /// Sessions of before a restart come back.
    pub(crate) recovery: Option<Recovery>,
    /// When new requests were carried out for the first time, in monotonic time.
    pub(crate) opened: Option<Duration>,
    /// Clients that are limited to subtrees.
    pub(crate) subtrees: Subtrees,
    pub(crate) counters: Counters,
    /// Bytes of the disk: all, free.
    pub(crate) disk: (u64, u64),
    /// Kept to spare allocations.
    pub(crate) events: Vec<Event>,
    pub(crate) touched: Vec<Ino>,
}

/// Requests tried again in one call of [`Engine::run`], so that others get the lock between.
const RUN_TASKS: usize = 64;

impl Engine {
    /// Carries out a request of a session, or lets it wait.
    #[inline]
    pub fn request(&mut self, session: SessionId, request: Request, m: &Moment) -> Step {
        let task = Task::new(session, request);
        if self.recovery.is_some() || !self.clients.resends.tasks.is_empty() {
            return self.request_in_recovery(task, m);
        }
        self.retry(task, m)
    }

    /// A request whose rows were fetched.
    pub fn retry(&mut self, mut task: Task, m: &Moment) -> Step {
        let result = self.dispatch(&mut task, m);
        self.stepped(task, result, m)
    }

    #[inline]
    pub(crate) fn stepped(&mut self, mut task: Task, result: Result<Answer, Stop>, m: &Moment) -> Step {
        if !self.clients.lock_grants.is_empty() {
            self.answer_lock_grants(m);
        }
        match result {
            Ok(mut answer) => {
                if self.subtrees.are_used {
                    self.hide_above(task.session, &mut answer);
                }
                Step::Done(self.reply(task.request.id, Ok(answer), m))
            }
            Err(Stop::Fail(failure)) => {
                self.counters.count(counters::REFUSED);
                Step::Done(self.reply(task.request.id, Err(failure), m))
            }
            Err(Stop::Missing(needs)) => {
                self.counters.count(counters::FETCHED);
                Step::NeedRows(task, needs)
            }
            Err(Stop::Wait(wait)) => Step::Waiting(self.enqueue(task, wait)),
            Err(Stop::Yield) => {
                let ticket = *task.ticket.get_or_insert_with(|| self.queue.waiting.issue());
                self.queue.ready.push_back(task);
                self.queue.has_yielded = true;
                Step::Waiting(ticket)
            }
        }
    }

    /// Puts a request into the wait queue.
    pub(crate) fn enqueue(&mut self, task: Task, wait: Wait) -> Ticket {
        self.counters.count(counters::WAITED);
        self.ask_for(&wait);
        self.queue.enqueue(task, wait, &mut self.clients.leases)
    }

    /// Lets requests try again that wait for such a thing.
    pub(crate) fn wake_where(&mut self, which: impl Fn(&Wait) -> bool) {
        self.queue.wake_where(which, &mut self.clients.leases);
    }

    /// Resumes requests that wait for durability.
    pub fn durable_advanced(&mut self, m: &Moment) {
        self.release_ended(m);
        if self.recovery.is_some() {
            self.recovery_step(m);
        }
        if let Some(peers) = &mut self.peers {
            peers.send_durable(m.durable, &mut self.queue);
            self.return_tokens(m.durable);
        }
        self.wake_where(|wait| matches!(wait, Wait::Durable(position) if *position <= m.durable));
    }

    /// The lowest position whose durability is waited for: by a waiting request, by the end of a session, or by
    /// another plate.
    pub fn durable_wanted(&self) -> Option<Position> {
        let by_peers = self.peers.as_ref().and_then(|peers| peers.durable_wanted());
        let by_requests = self.queue.waiting.durable_wanted();
        by_requests.into_iter().chain(self.clients.expired_wanted()).chain(by_peers).min()
    }

    /// The lowest position whose durability a waiting request waits for.
    #[inline]
    pub fn durable_awaited(&self) -> Option<Position> {
        self.queue.waiting.durable_wanted()
    }

    /// There may be room again (a checkpoint ended, or health changed).
    pub fn room_changed(&mut self) {
        self.wake_where(|wait| *wait == Wait::Room);
    }

    /// The disk is full: the server recalls the names of all directories, so clients send their pending operations and end
    /// write-behind.
    pub fn space_is_short(&mut self, m: &Moment) {
        self.clients.leases.any_names_conflict(m.mono);
    }

    /// A session gave a lease back.
    pub fn recall_done(&mut self, session: SessionId, id: u64, m: &Moment) {
        let Some(s) = self.clients.sessions.get_mut(session) else { return };
        s.heard = m.mono;
        let slot = s.slot;
        if let Some(ino) = self.clients.leases.acknowledge(slot, id) {
            self.queue.wake_inos([ino], &mut self.clients.leases);
            self.shards.emptying.acknowledged(ino);
            self.shards.splits.acknowledged(ino);
        } else if let Some(round) = self.clients.growths.acknowledge(slot, id) {
            self.wake_where(|wait| *wait == Wait::Growth(round));
        }
    }

    /// Tries requests again that have reason to hope. To be called, with the rows that it needs, until it is idle.
    pub fn run(&mut self, m: &Moment) -> Progress {
        if let Some(progress) = self.run_peers(m) {
            return progress;
        }
        for _ in 0..RUN_TASKS {
            let resend = match m.health {
                Health::Good => self.clients.resends.tasks.pop_front(),
                // Operations that were answered before a crash are not lost because there is no space just now: all wait.
                _ if !self.clients.resends.tasks.is_empty() => return Progress::Idle,
                _ => None,
            };
            let (task, resend) = match resend {
                Some(task) => (task, true),
                None => match self.queue.ready.pop_front() {
                    Some(task) => (task, false),
                    None => return Progress::Idle,
                },
            };
            let ticket = task.ticket.expect("what is tried again has waited");
            let is_merge = task.merging.is_some();
            let step = match resend {
                true => match self.send_again(task, m) {
                    Ok(step) => step,
                    Err(progress) => return progress,
                },
                false => self.retry(task, m),
            };
            match step {
                Step::Done(reply) => {
                    self.queue.commands.push(Command::Reply(ticket, reply));
                    if is_merge {
                        // The last piece of one is a turn, too.
                        return Progress::More;
                    }
                }
                // Work that is done in turns is much for one turn.
                Step::Waiting(_) if mem::take(&mut self.queue.has_yielded) => return Progress::More,
                Step::Waiting(_) => {}
                Step::NeedRows(task, needs) => {
                    if resend {
                        self.clients.resends.tasks.push_front(task);
                    } else {
                        self.queue.ready.push_front(task);
                    }
                    return Progress::NeedRows(needs);
                }
            }
            if resend && self.clients.resends.tasks.is_empty() {
                self.recovery_ended(m);
            }
        }
        Progress::More
    }

    #[inline]
    pub(crate) fn is_resending(&self) -> bool {
        self.clients.resends.are_left()
    }

    /// Carries out an operation of the recovery window. One that was never answered and meets a declared lease waits, as a
    /// new one would. Only later pending operations of the same client wait for it.
    ///
    /// # Errors
    /// It was put back: there is no room for it, or another goes first.
    pub(crate) fn send_again(&mut self, mut task: Task, m: &Moment) -> Result<Step, Progress> {
        let session = task.session;
        let is_pending = matches!(task.request.call, Call::WriteBehind { .. });
        if let Some(wait) = self.clients.resends.held_up.get(&session).filter(|_| is_pending) {
            let wait = wait.clone();
            return Ok(Step::Waiting(self.enqueue(task, wait)));
        }
        let was_answered = task.request.again.is_some_and(|again| again.position > Position(0));
        if let Some(peers) = self.peers.as_mut().filter(|_| !was_answered) {
            // Those that were answered are carried out.
            peers.open(self.output.position, m.durable, &mut self.queue);
        }
        self.clients.resends.is_running = true;
        let result = self.dispatch(&mut task, m);
        self.clients.resends.is_running = false;
        if let (Err(Stop::Fail(Failure::Refused(_))), true, None) = (&result, was_answered, &self.peers)
            && let Some(first) = self.explaining(&task)
        {
            self.clients.resends.tasks.push_front(task);
            self.clients.resends.tasks.push_front(first);
            return Err(Progress::More);
        }
        if let Err(Stop::Wait(wait)) = &result {
            self.ask_for(wait);
        }
        match &result {
            Err(Stop::Wait(Wait::Room)) => {
                self.clients.resends.tasks.push_front(task);
                return Err(Progress::Idle);
            }
            // Another plate answers soon, and those behind it may rest on it.
            Err(Stop::Wait(
                Wait::Numbers
                | Wait::Guard(_)
                | Wait::Guarded(_)
                | Wait::Unborn(_)
                | Wait::Birth(_)
                | Wait::Realm(_)
                | Wait::Subtree(_),
            )) if was_answered => {
                self.clients.resends.tasks.push_front(task);
                return Err(Progress::Idle);
            }
            Err(Stop::Wait(
                wait @ (Wait::Leases(_)
                | Wait::Guarded(_)
                | Wait::Birth(_)
                | Wait::Realm(_)
                | Wait::Subtree(_)),
            )) if is_pending => {
                self.clients.resends.held_up.insert(session, wait.clone());
            }
            _ => {}
        }
        Ok(self.stepped(task, result, m))
    }

    /// The operation that goes before a refused one, if there is one that may explain its former answer.
    fn explaining(&mut self, refused: &Task) -> Option<Task> {
        let again = refused.request.again?;
        let resends = &mut self.clients.resends;
        let ops = refused.request.call.ops();
        let at = ops.iter().find_map(|op| resends.explaining(op, refused.session, again))?;
        resends.tasks.remove(at)
    }

    /// True if [`Engine::run`] has something to do.
    #[inline]
    pub fn is_ready(&self) -> bool {
        !self.queue.ready.is_empty()
            || !self.clients.resends.tasks.is_empty()
            || self.peers.as_ref().is_some_and(|peers| peers.has_tasks())
    }

    #[inline]
    pub(crate) fn reply(&self, id: u64, result: Result<Answer, Failure>, m: &Moment) -> Reply {
        Reply { id, epoch: self.epoch(), durable: m.durable, result }
    }

    /// The commands for the runtime, in order.
    pub fn take_commands(&mut self) -> Vec<Command> {
        let sessions = &self.clients.sessions;
        let recalls = self.clients.leases.take_recalls();
        self.queue.commands.extend(
            recalls.filter_map(|(slot, recall)| Some(Command::Recall(sessions.of_slot(slot)?, recall))),
        );
        std::mem::take(&mut self.queue.commands)
    }

    /// True if [`Engine::take_commands`] has something.
    #[inline]
    pub fn has_commands(&self) -> bool {
        !self.queue.commands.is_empty() || self.clients.leases.has_recalls()
    }

    /// Journal frames since they were cleared, and how many events they hold.
    #[inline]
    pub fn frames(&self) -> (&[u8], u64) {
        (&self.output.frames, self.output.frame_events)
    }

    /// The frames are in the journal.
    #[inline]
    pub fn frames_taken(&mut self) {
        self.output.frames.clear();
        if self.output.frames.capacity() > 4 << 20 {
            self.output.frames = Vec::new();
        }
        self.output.frame_events = 0;
    }

    /// True, once, if an event since the last call named new blocks.
    #[inline]
    pub fn take_blocks_named(&mut self) -> bool {
        std::mem::take(&mut self.output.blocks_named)
    }

    /// Position of the last event applied.
    #[inline]
    pub fn position(&self) -> Position {
        self.output.position
    }

    /// The namespace, for fetches and checkpoints.
    pub fn namespace(&mut self) -> &mut Namespace {
        &mut self.shards.ns
    }

    /// Inodes that have no name and are open.
    pub fn open_orphans(&self) -> Vec<Ino> {
        self.shards.orphans.iter().copied().filter(|ino| self.clients.opens.is_open(*ino)).collect()
    }

    /// The space of the disk, for `statfs`.
    pub fn set_disk(&mut self, bytes_total: u64, bytes_free: u64) {
        self.disk = (bytes_total, bytes_free);
    }

    /// A file whose map fell into small extents, if there is one.
    pub fn take_fragmented(&mut self) -> Option<Ino> {
        self.shards.fragmented.pop_front()
    }

    /// The rows that [`Engine::run`] asked for cannot be read: fails the request that needs them.
    pub fn fail_first(&mut self, m: &Moment) {
        if self.fail_first_peer() {
            return;
        }
        let task = self.clients.resends.tasks.pop_front().or_else(|| self.queue.ready.pop_front());
        let Some(Task { ticket: Some(ticket), request, .. }) = task else { return };
        let reply = self.reply(request.id, Err(Failure::Refused(Refusal::Io)), m);
        self.queue.commands.push(Command::Reply(ticket, reply));
        if self.recovery.is_none() && self.clients.resends.tasks.is_empty() {
            self.recovery_ended(m);
        }
    }

    /// The rows of the first orphan cannot be read: it stays until the next start.
    pub fn leave_orphan(&mut self) {
        self.shards.reclaims.pop_front();
    }
}
