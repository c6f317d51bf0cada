//! The engine: everything that a server decides, pure and synchronous.
//!
//! ```text
//!   request ──▶ session, duplicates ──▶ plan ──▶ leases in the way? ──▶ journal frame + apply ──▶ reply
//!                                        │ rows missing   │ parked, recalls sent
//!                                        ▼                ▼
//!                                   runtime fetches   run() tries again when they are given back
//! ```
//!
//! Invariants:
//! - No clock, no socket, no random number, no thread: they come in with [`Moment`] and go out as [`Command`]s.
//! - The order in which events are applied is the order of their frames in [`Engine::take_frames`].
//! - Each request is answered exactly once, or its session is gone.
//! - What takes a change in is refused only before its first event is applied.

mod ahead;
mod answer;
mod census;
mod counters;
mod decoupled;
mod deferred;
mod driver;
mod ending;
#[cfg(test)]
mod formatted;
mod granted;
mod growth;
mod inodes;
mod leases;
mod lifecycle;
mod lingering;
mod locks;
mod opens;
mod parked;
mod path;
mod policies;
mod query;
mod realms;
mod recovery;
mod replay;
mod rows;
mod sessions;
mod spread;
mod volatile;
mod window;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;

use chiton_model::Event;
use chiton_namespace::{Namespace, Need};
use chiton_types::{Epoch, Ino, Malformed, Position, Refusal, SessionId, Time};
use chiton_wire::{Answer, Call, Failure, Recall, Reply, Request};

pub(crate) use counters::{Counters, name_of};
pub(crate) use deferred::Creates;
pub(crate) use lifecycle::Opened;
pub use parked::{Task, Ticket};
pub(crate) use replay::ReplayFault;
pub use rows::OwnRow;
pub(crate) use rows::{OwnRows, POSITION_KEY, SESSION_MARK_KEY, mark_key, position_value, swept_key};

use deferred::Deferred;
use granted::Granted;
use growth::Growths;
use inodes::Inodes;
use leases::Leases;
use lingering::Lingering;
use locks::Locks;
use opens::Opens;
use parked::{Parked, Wait};
use recovery::Recovery;
use sessions::Sessions;

/// What does not change while a server runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A session not heard of for so long is over.
    pub session_ms: u32,
    /// How long a restarted server waits for sessions to come back.
    pub grace_ms: u32,
    /// About how many leases are kept before the oldest are recalled.
    pub lease_entries_max: usize,
    /// How long after a recall for a change nobody is given a lease on the inode unasked.
    pub lease_rest_ms: u32,
    /// Most sessions at a time.
    pub sessions_max: usize,
    /// Changed rows in memory above which changes wait for a checkpoint.
    pub dirty_rows_max: usize,
    /// The maps' epoch.
    pub epoch: Epoch,
    /// Weight of each shard for the birth of directories.
    pub shard_weights: Vec<u32>,
    /// Where absolute paths begin.
    pub root: Ino,
}

/// Whether changes can be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Health {
    /// Yes.
    #[default]
    Good,
    /// Not now: there is no space.
    Full,
    /// No more: the journal failed. The state is read-only until a restart.
    Failed,
}

/// What the outside looks like at the time of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Wall-clock time.
    pub now: Time,
    /// Monotonic time.
    pub mono: Duration,
    /// Everything up to here is durable.
    pub durable: Position,
    /// Whether changes can be made durable.
    pub health: Health,
    /// Checkpoints fail for want of space: changes go on until too much is dirty, then they are refused.
    pub store_full: bool,
    /// A start would take as long as it may: changes wait for a checkpoint.
    pub backlog_full: bool,
    /// The disk is full but for what is kept for the way out: operations that need space are refused, what gives space back is not.
    pub tight: bool,
}

/// How a request got on.
#[derive(Debug)]
pub enum Step {
    /// Answered.
    Done(Reply),
    /// A [`Command::Reply`] with this ticket follows.
    Parked(Ticket),
    /// Install these rows, then call [`Engine::go_on`].
    NeedRows(Task, Vec<Need>),
}

/// How the engine's own queues got on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is nothing to do.
    Idle,
    /// Call again.
    More,
    /// Install these rows and call again.
    NeedRows(Vec<Need>),
}

/// What the runtime shall do.
#[derive(Debug)]
pub enum Command {
    /// Answer a parked request.
    Reply(Ticket, Reply),
    /// Ask a session for a lease.
    Recall(SessionId, Recall),
    /// The session is over: close its connections, look after its blocks. Everything that it did lies at or before
    /// the position.
    DropSession(SessionId, Position),
}

/// Why an answer is not there yet.
#[derive(Debug)]
enum Stop {
    Fail(Failure),
    Missing(Vec<Need>),
    Wait(Wait),
    /// It has done its part for now: others first.
    Turn,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Fail(failure)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Fail(Failure::Refused(refusal))
    }
}

impl From<chiton_namespace::Fault> for Stop {
    fn from(fault: chiton_namespace::Fault) -> Stop {
        match fault {
            chiton_namespace::Fault::Refused(refusal) => refusal.into(),
            chiton_namespace::Fault::Missing(needs) => Stop::Missing(needs),
            chiton_namespace::Fault::NeedGroups => Stop::Fail(Failure::NeedGroups),
        }
    }
}

/// The engine.
pub struct Engine {
    ns: Namespace,
    settings: Settings,
    /// Position of the last event applied.
    position: Position,
    frames: Vec<u8>,
    frame_events: u64,
    blocks_named: bool,
    /// Kept to spare allocations.
    events: Vec<Event>,
    touched: Vec<Ino>,

    sessions: Sessions,
    /// In the order of their ends.
    ending: VecDeque<ending::Ending>,
    opens: Opens,
    leases: Leases,
    growths: Growths,
    locks: Locks,
    inodes: Inodes,
    /// Of a decoupled client: then no number comes from `inodes`.
    granted: Option<Granted>,
    /// Of a decoupled client: where its subtree ends.
    borders: hashbrown::HashSet<Ino>,
    deferred: Deferred,
    /// Changes wait.
    frozen: bool,
    marks_at_start: Vec<u64>,
    recovery: Option<Recovery>,

    parked: Parked,
    ready: VecDeque<Task>,
    /// Operations sent again in the recovery window: they go before all else.
    resends: VecDeque<Task>,
    /// One of them is being carried out.
    resending: bool,
    /// Sessions of which one that was answered ahead waits for a lease: those that follow it wait behind it.
    held_up: BTreeMap<SessionId, Wait>,
    orphans: BTreeSet<Ino>,
    reclaims: VecDeque<Ino>,
    lingering: Lingering,
    /// Files with many small extents.
    crumbled: VecDeque<Ino>,
    crumbs: hashbrown::HashMap<Ino, u32>,
    /// Waiters whose locks were granted.
    lock_grants: Vec<Ticket>,
    policies: policies::Policies,
    volatile: volatile::Volatile,
    realms: realms::Realms,
    /// A task has done its part for now.
    turn_over: bool,
    commands: Vec<Command>,
    counters: Counters,
    /// Bytes of the disk: all, free.
    disk: (u64, u64),
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
        self.go_on(task, m)
    }

    /// A request whose rows were fetched.
    pub fn go_on(&mut self, mut task: Task, m: &Moment) -> Step {
        let result = self.answer(&mut task, m);
        self.stepped(task, result, m)
    }

    #[inline]
    fn stepped(&mut self, mut task: Task, result: Result<Answer, Stop>, m: &Moment) -> Step {
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
                let ticket = *task.ticket.get_or_insert_with(|| self.parked.issue());
                self.ready.push_back(task);
                self.turn_over = true;
                Step::Parked(ticket)
            }
        }
    }

    fn park(&mut self, task: Task, wait: Wait) -> Ticket {
        self.counters.count(counters::PARKED);
        if let Wait::Leases(inos) = &wait {
            for ino in inos {
                self.leases.wait(*ino);
            }
        }
        self.parked.park(task, wait)
    }

    fn unpark(&mut self, ticket: Ticket) -> Option<Task> {
        let (task, wait) = self.parked.remove(ticket)?;
        if let Wait::Leases(inos) = &wait {
            for ino in inos {
                self.leases.wait_ended(*ino);
            }
        }
        Some(task)
    }

    /// Lets those who wait for these inodes try again.
    fn wake_inos(&mut self, inos: impl IntoIterator<Item = Ino>) {
        for ino in inos {
            for ticket in self.parked.on_ino(ino) {
                let task = self.unpark(ticket).expect("it was listed as parked");
                self.ready.push_back(task);
            }
        }
    }

    fn wake_where(&mut self, which: impl Fn(&Wait) -> bool) {
        for ticket in self.parked.select(|_, wait| which(wait)) {
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
        self.parked.durable_wanted().into_iter().chain(self.ending_wanted()).min()
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
                false => self.go_on(task, m),
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
    fn is_resending(&self) -> bool {
        self.resending || !self.resends.is_empty()
    }

    /// Carries out an operation of the recovery window. One that was never answered and meets a declared lease waits, as a
    /// new one would; the others do not wait for it, but for those that its client answered ahead after it.
    /// `None`: there is no room for it, and it stays the next.
    fn send_again(&mut self, mut task: Task, m: &Moment) -> Option<Step> {
        let session = task.session;
        let is_ahead = matches!(task.request.call, Call::Ahead { .. });
        if let Some(wait) = self.held_up.get(&session).filter(|_| is_ahead) {
            let wait = wait.clone();
            return Some(Step::Parked(self.park(task, wait)));
        }
        self.resending = true;
        let result = self.answer(&mut task, m);
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
    fn reply(&self, id: u64, result: Result<Answer, Failure>, m: &Moment) -> Reply {
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
    pub(crate) fn open_orphans(&self) -> Vec<Ino> {
        self.orphans.iter().copied().filter(|ino| self.opens.is_open(*ino)).collect()
    }

    /// What the disk has, for `statfs`.
    pub fn set_disk(&mut self, bytes_total: u64, bytes_free: u64) {
        self.disk = (bytes_total, bytes_free);
    }

    /// A file whose map crumbled into small extents, if there is one.
    pub(crate) fn take_crumbled(&mut self) -> Option<Ino> {
        self.crumbled.pop_front()
    }

    /// The rows that [`Engine::run`] asked for cannot be read: fails the request that needs them.
    pub(crate) fn fail_first(&mut self, m: &Moment) {
        let task = self.resends.pop_front().or_else(|| self.ready.pop_front());
        let Some(Task { ticket: Some(ticket), request, .. }) = task else { return };
        let reply = self.reply(request.id, Err(Failure::Refused(Refusal::Io)), m);
        self.commands.push(Command::Reply(ticket, reply));
        if self.recovery.is_none() && self.resends.is_empty() {
            self.recovery_ended();
        }
    }

    /// The rows of the first orphan cannot be read: it stays until the next start.
    pub(crate) fn leave_orphan(&mut self) {
        self.reclaims.pop_front();
    }
}

/// What is not as the format says.
pub(crate) fn malformed(expected: &'static str) -> Malformed {
    Malformed { expected }
}
