//! The engine's state, and the queues of requests that could not be answered at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;

use chiton_model::Event;
use chiton_namespace::Namespace;
use chiton_types::{Ino, Position, Refusal, SessionId};
use chiton_wire::{Answer, Call, Failure, Reply, Request};

use crate::counters::{self, Counters};
use crate::granted::Granted;
use crate::growth::Growths;
use crate::inodes::Inodes;
use crate::lazy_apply::LazyApply;
use crate::leases::Leases;
use crate::lingering::Lingering;
use crate::locks::Locks;
use crate::moment::{Health, Moment};
use crate::opens::Opens;
use crate::recovery::Recovery;
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::step::{Command, Progress, Step, Stop};
use crate::wait_queue::{Task, Ticket, Wait, WaitQueue};
use crate::{policies, realms, session_expiry, volatile};

/// The engine.
pub struct Engine {
    pub(crate) ns: Namespace,
    pub(crate) settings: Settings,
    /// Position of the last event applied.
    pub(crate) position: Position,
    pub(crate) frames: Vec<u8>,
    pub(crate) frame_events: u64,
    pub(crate) blocks_named: bool,
    /// Kept to spare allocations.
    pub(crate) events: Vec<Event>,
    pub(crate) touched: Vec<Ino>,

    pub(crate) sessions: Sessions,
    /// In the order of their ends.
    pub(crate) ending: VecDeque<session_expiry::Ending>,
    pub(crate) opens: Opens,
    pub(crate) leases: Leases,
    pub(crate) growths: Growths,
    pub(crate) locks: Locks,
    pub(crate) inodes: Inodes,
    /// Of a decoupled client: then no number comes from `inodes`.
    pub(crate) granted: Option<Granted>,
    /// Of a decoupled client: where its subtree ends.
    pub(crate) borders: hashbrown::HashSet<Ino>,
    pub(crate) lazy: LazyApply,
    /// Changes wait.
    pub(crate) frozen: bool,
    pub(crate) marks_at_start: Vec<u64>,
    pub(crate) recovery: Option<Recovery>,

    pub(crate) waiting: WaitQueue,
    pub(crate) ready: VecDeque<Task>,
    /// Operations sent again in the recovery window: they go before all else.
    pub(crate) resends: VecDeque<Task>,
    /// One of them is being carried out.
    pub(crate) resending: bool,
    /// Sessions of which one that was answered ahead waits for a lease: those that follow it wait behind it.
    pub(crate) held_up: BTreeMap<SessionId, Wait>,
    pub(crate) orphans: BTreeSet<Ino>,
    pub(crate) reclaims: VecDeque<Ino>,
    pub(crate) lingering: Lingering,
    /// Files with many small extents.
    pub(crate) crumbled: VecDeque<Ino>,
    pub(crate) crumbs: hashbrown::HashMap<Ino, u32>,
    /// Waiters whose locks were granted.
    pub(crate) lock_grants: Vec<Ticket>,
    pub(crate) policies: policies::Policies,
    pub(crate) volatile: volatile::Volatile,
    pub(crate) realms: realms::Realms,
    /// A task has done its part for now.
    pub(crate) turn_over: bool,
    pub(crate) commands: Vec<Command>,
    pub(crate) counters: Counters,
    /// Bytes of the disk: all, free.
    pub(crate) disk: (u64, u64),
}

/// Requests tried again in one call of [`Engine::run`], so that others get the lock between.
const RUN_TASKS: usize = 64;

impl Engine {
    /// A request of a session.
    #[inline]
    pub fn request(&mut self, session: SessionId, request: Request, m: &Moment) -> Step {
        let task = Task {
            session,
            request,
            results: Vec::new(),
            ticket: None,
            begun: false,
            done: None,
            merging: None,
        };
        if self.recovery.is_some() || !self.resends.is_empty() {
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
        if !self.lock_grants.is_empty() {
            self.answer_lock_grants(m);
        }
        match result {
            Ok(answer) => Step::Done(self.reply(task.request.id, Ok(answer), m)),
            Err(Stop::Fail(failure)) => {
                self.counters.count(counters::REFUSED);
                Step::Done(self.reply(task.request.id, Err(failure), m))
            }
            Err(Stop::Missing(needs)) => {
                self.counters.count(counters::FETCHED);
                Step::NeedRows(task, needs)
            }
            Err(Stop::Wait(wait)) => Step::Parked(self.park(task, wait)),
            Err(Stop::Turn) => {
                let ticket = *task.ticket.get_or_insert_with(|| self.waiting.issue());
                self.ready.push_back(task);
                self.turn_over = true;
                Step::Parked(ticket)
            }
        }
    }

    pub(crate) fn park(&mut self, task: Task, wait: Wait) -> Ticket {
        self.counters.count(counters::PARKED);
        if let Wait::Leases(inos) = &wait {
            for ino in inos {
                self.leases.wait(*ino);
            }
        }
        self.waiting.park(task, wait)
    }

    pub(crate) fn unpark(&mut self, ticket: Ticket) -> Option<Task> {
        let (task, wait) = self.waiting.remove(ticket)?;
        if let Wait::Leases(inos) = &wait {
            for ino in inos {
                self.leases.wait_ended(*ino);
            }
        }
        Some(task)
    }

    /// Lets those who wait for these inodes try again.
    pub(crate) fn wake_inos(&mut self, inos: impl IntoIterator<Item = Ino>) {
        for ino in inos {
            for ticket in self.waiting.on_ino(ino) {
                let task = self.unpark(ticket).expect("it was listed as parked");
                self.ready.push_back(task);
            }
        }
    }

    pub(crate) fn wake_where(&mut self, which: impl Fn(&Wait) -> bool) {
        for ticket in self.waiting.select(|_, wait| which(wait)) {
            let task = self.unpark(ticket).expect("it was listed as parked");
            self.ready.push_back(task);
        }
    }

    /// Lets requests that wait for durability go on.
    pub fn durable_advanced(&mut self, m: &Moment) {
        self.release_ended(m);
        if self.recovery.is_some() {
            self.recovery_step(m);
        }
        self.wake_where(|wait| matches!(wait, Wait::Durable(position) if *position <= m.durable));
    }

    /// The lowest position whose durability is waited for: by a parked request, or by the end of a session.
    pub fn durable_wanted(&self) -> Option<Position> {
        self.waiting.durable_wanted().into_iter().chain(self.ending_wanted()).min()
    }

    /// There may be room again (a checkpoint ended, or health changed).
    pub fn room_changed(&mut self) {
        self.wake_where(|wait| *wait == Wait::Room);
    }

    /// The disk is full: who creates ahead of the server is asked to tell what it did, and to create no more.
    pub fn space_is_short(&mut self, m: &Moment) {
        self.leases.any_names_conflict(m.mono);
    }

    /// A session gave a lease back.
    pub fn recall_done(&mut self, session: SessionId, id: u64, m: &Moment) {
        let Some(s) = self.sessions.get_mut(session) else { return };
        s.heard = m.mono;
        let slot = s.slot;
        if let Some(ino) = self.leases.acknowledge(slot, id) {
            self.wake_inos([ino]);
        } else if let Some(round) = self.growths.acknowledge(slot, id) {
            self.wake_where(|wait| *wait == Wait::Growth(round));
        }
    }

    /// Tries requests again that have reason to hope. To be called, with what it needs, until it is idle.
    pub fn run(&mut self, m: &Moment) -> Progress {
        for _ in 0..RUN_TASKS {
            let resend = match m.health {
                Health::Good => self.resends.pop_front(),
                // What was answered before a crash is not lost because there is no space just now: all wait.
                _ if !self.resends.is_empty() => return Progress::Idle,
                _ => None,
            };
            let (task, resend) = match resend {
                Some(task) => (task, true),
                None => match self.ready.pop_front() {
                    Some(task) => (task, false),
                    None => return Progress::Idle,
                },
            };
            let ticket = task.ticket.expect("what is tried again was parked");
            let is_merge = task.merging.is_some();
            let step = match resend {
                true => match self.send_again(task, m) {
                    Some(step) => step,
                    None => return Progress::Idle,
                },
                false => self.retry(task, m),
            };
            match step {
                Step::Done(reply) => {
                    self.commands.push(Command::Reply(ticket, reply));
                    if is_merge {
                        // The last piece of one is a turn, too.
                        return Progress::More;
                    }
                }
                // What is done in turns is much for one turn.
                Step::Parked(_) if mem::take(&mut self.turn_over) => return Progress::More,
                Step::Parked(_) => {}
                Step::NeedRows(task, needs) => {
                    if resend {
                        self.resends.push_front(task);
                    } else {
                        self.ready.push_front(task);
                    }
                    return Progress::NeedRows(needs);
                }
            }
            if resend && self.resends.is_empty() {
                self.recovery_ended();
            }
        }
        Progress::More
    }

    /// Operations of the recovery window are being carried out: leases are granted when the last of them is.
    #[inline]
    pub(crate) fn is_resending(&self) -> bool {
        self.resending || !self.resends.is_empty()
    }

    /// Carries out an operation of the recovery window. One that was never answered and meets a declared lease waits, as a
    /// new one would; the others do not wait for it, but for those that its client answered ahead after it.
    /// `None`: there is no room for it, and it stays the next.
    pub(crate) fn send_again(&mut self, mut task: Task, m: &Moment) -> Option<Step> {
        let session = task.session;
        let is_ahead = matches!(task.request.call, Call::Ahead { .. });
        if let Some(wait) = self.held_up.get(&session).filter(|_| is_ahead) {
            let wait = wait.clone();
            return Some(Step::Parked(self.park(task, wait)));
        }
        self.resending = true;
        let result = self.dispatch(&mut task, m);
        self.resending = false;
        match &result {
            Err(Stop::Wait(Wait::Room)) => {
                self.resends.push_front(task);
                return None;
            }
            Err(Stop::Wait(wait @ Wait::Leases(_))) if is_ahead => {
                self.held_up.insert(session, wait.clone());
            }
            _ => {}
        }
        Some(self.stepped(task, result, m))
    }

    /// True if [`Engine::run`] has something to do.
    #[inline]
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty() || !self.resends.is_empty()
    }

    #[inline]
    pub(crate) fn reply(&self, id: u64, result: Result<Answer, Failure>, m: &Moment) -> Reply {
        Reply { id, epoch: self.epoch(), durable: m.durable, result }
    }

    /// What the runtime shall do, in order.
    pub fn take_commands(&mut self) -> Vec<Command> {
        let sessions = &self.sessions;
        let recalls = self.leases.outbox.drain(..);
        self.commands.extend(
            recalls.filter_map(|(slot, recall)| Some(Command::Recall(sessions.of_slot(slot)?, recall))),
        );
        std::mem::take(&mut self.commands)
    }

    /// True if [`Engine::take_commands`] has something.
    #[inline]
    pub fn has_commands(&self) -> bool {
        !self.commands.is_empty() || !self.leases.outbox.is_empty()
    }

    /// Journal frames since they were cleared, and how many events they hold.
    #[inline]
    pub fn frames(&self) -> (&[u8], u64) {
        (&self.frames, self.frame_events)
    }

    /// The frames are in the journal.
    #[inline]
    pub fn frames_taken(&mut self) {
        self.frames.clear();
        if self.frames.capacity() > 4 << 20 {
            self.frames = Vec::new();
        }
        self.frame_events = 0;
    }

    /// True, once, if an event since the last call named new blocks.
    #[inline]
    pub fn take_blocks_named(&mut self) -> bool {
        std::mem::take(&mut self.blocks_named)
    }

    /// Position of the last event applied.
    #[inline]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The namespace, for fetches and checkpoints.
    pub fn namespace(&mut self) -> &mut Namespace {
        &mut self.ns
    }

    /// What has no name and is open.
    pub fn open_orphans(&self) -> Vec<Ino> {
        self.orphans.iter().copied().filter(|ino| self.opens.is_open(*ino)).collect()
    }

    /// What the disk has, for `statfs`.
    pub fn set_disk(&mut self, bytes_total: u64, bytes_free: u64) {
        self.disk = (bytes_total, bytes_free);
    }

    /// A file whose map crumbled into small extents, if there is one.
    pub fn take_crumbled(&mut self) -> Option<Ino> {
        self.crumbled.pop_front()
    }

    /// The rows that [`Engine::run`] asked for cannot be read: fails the request that needs them.
    pub fn fail_first(&mut self, m: &Moment) {
        let task = self.resends.pop_front().or_else(|| self.ready.pop_front());
        let Some(Task { ticket: Some(ticket), request, .. }) = task else { return };
        let reply = self.reply(request.id, Err(Failure::Refused(Refusal::Io)), m);
        self.commands.push(Command::Reply(ticket, reply));
        if self.recovery.is_none() && self.resends.is_empty() {
            self.recovery_ended();
        }
    }

    /// The rows of the first orphan cannot be read: it stays until the next start.
    pub fn leave_orphan(&mut self) {
        self.reclaims.pop_front();
    }
}
