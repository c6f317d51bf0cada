//! What all threads of a server share, and the one way to the engine.
//!
//! Invariants:
//! - Lock order: engine, then waiters, commits or channels; none of these is held while another of them is taken.
//! - Frames are appended to the journal before the engine's lock is given up, commands are delivered after.
//! - Who waits for an answer is noted before the engine's lock is given up: no answer comes too early.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use std::time::Duration;

use chiton_journal::{Journal, JournalError};
use chiton_metastore::StoreError;
use chiton_namespace::{Fetched, Namespace, Need};
use chiton_objects::{Metered, Objects};
use chiton_runtime::SharedWorld;
use chiton_runtime::sync::{Mutex, MutexGuard};
use chiton_types::{Position, SessionId};
use chiton_wire::{Reply, Sender};
use hashbrown::HashMap;

use crate::away::{Away, JOURNAL, ROWS};
use crate::checkpointer::Begun;
use crate::commits::Commits;
use crate::decoupled::Base;
use crate::deliver::{Channels, Parking};
use crate::engine_lock::EngineLock;
use crate::fatal::Fatal;
use crate::format::FilesystemInfo;
use crate::io_pool::IoPool;
use crate::often::{LogLimit, Often};
use crate::options::ServerOptions;
use crate::replay_budget::{CheckpointPolicy, CreateCost, ReplayLoad, ReplayRate};
use crate::reserve::Reserve;
use crate::room::{Reclaiming, TightSince};
use crate::session_ids::SessionIds;
use crate::severable::Severable;
use crate::stores::{Meta, Source};
use crate::sweeper::Listing;
use crate::user_objects::UserObjects;
use crate::wake_up::WakeUp;
use chiton_engine::{Command, Engine, Health, Moment, Progress, Ticket};

/// While the journal's store is away, changes wait once so much of them is not durable.
const PENDING_BYTES_MAX: usize = 64 << 20;

/// Who is told an answer that comes later.
pub(crate) enum Waiter {
    /// A thread of this process.
    Thread(Arc<Parking>),
    /// A client.
    Client(Sender),
}

pub(crate) struct Shared {
    pub(crate) engine: EngineLock,
    pub(crate) journal: Journal,
    pub(crate) place: Arc<Severable>,
    pub(crate) meta: Meta,
    /// Where rows come from in the server of a decoupled client.
    pub(crate) base: Option<Arc<dyn Base>>,
    /// What is kept free on the disk of a data directory.
    pub(crate) reserve: Option<Arc<Reserve>>,
    /// The stores that are away.
    pub(crate) away: Arc<Away>,
    /// Somebody keeps others from the stores, so that the metadata store may be opened again although it says that another
    /// has it.
    pub(crate) is_held: bool,
    /// That disk is full: nothing is created or written, and what is removed lives on the reserve.
    pub(crate) tight: Arc<AtomicBool>,
    pub(crate) tight_since: Mutex<TightSince>,
    pub(crate) reclaiming: Mutex<Reclaiming>,
    pub(crate) objects: Arc<dyn Objects>,
    /// The same, with its counters.
    pub(crate) metered: Arc<Metered>,
    pub(crate) objects_address: String,
    /// Where the journal ended when the server started.
    pub(crate) begun_at: Position,
    pub(crate) world: SharedWorld,
    pub(crate) options: ServerOptions,
    pub(crate) info: FilesystemInfo,
    /// When checkpoints begin.
    pub(crate) policy: CheckpointPolicy,
    /// Drawn at each start.
    pub(crate) boot: u64,
    /// The server's own session of this boot: writer of its blocks.
    pub(crate) own_session: SessionId,
    /// Blocks that it wrote.
    pub(crate) own_blocks: AtomicU64,
    pub(crate) session_ids: SessionIds,

    pub(crate) waiters: Mutex<HashMap<Ticket, Waiter>>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) io_pool: IoPool,
    /// Of the lines that clients cause.
    pub(crate) log_limit: LogLimit,
    pub(crate) channels: Channels,
    pub(crate) dead_writers: Mutex<Vec<(SessionId, Position)>>,
    pub(crate) dead_writers_listing: Mutex<Listing>,

    /// [`Health`] of the journal.
    health: AtomicU8,
    pub(crate) store_full: AtomicBool,
    /// Events since the last commit named new blocks, or deleted some: sync before the next.
    pub(crate) blocks_unsynced: Arc<AtomicBool>,
    /// Blocks that clients have put, and of them those that were synced.
    pub(crate) blocks_put: AtomicU64,
    pub(crate) blocks_synced: Mutex<u64>,
    /// The latter, to be looked at without the lock.
    pub(crate) blocks_safe: AtomicU64,
    pub(crate) appended_bytes: AtomicU64,
    /// What creates cost here, and what of all that was appended is spared because of that.
    create_cost: CreateCost,
    pub(crate) spared: Mutex<ReplayLoad>,
    /// Inodes that there were when the engine's lock was last given up.
    inode_count: AtomicU64,
    /// A start would take as long as it may: changes wait for a checkpoint.
    budget_spent: AtomicBool,
    /// A position that was not durable when it was appended, and when that was, in monotonic milliseconds.
    oldest: (AtomicU64, AtomicU64),
    pub(crate) error_count: AtomicU64,
    pub(crate) checkpoint: CheckpointState,
    /// Held during a checkpoint; one whose commit failed.
    pub(crate) checkpointing: Mutex<Option<Begun>>,
    pub(crate) stopping: AtomicBool,
    /// Another server has taken over.
    pub(crate) fenced: AtomicBool,
    /// Checkpoints that the metadata store may hold in a journal of its own only: its count of commits, and the position.
    pub(crate) unsettled: Mutex<VecDeque<(u64, Position)>>,
    pub(crate) checkpoint_wake_up: WakeUp,
    /// Inode numbers run short.
    pub(crate) numbers_wake_up: WakeUp,
    /// Why the server of a decoupled client has no more inode numbers for it, if it was asked last and had none.
    pub(crate) numbers_refused: Mutex<Option<String>>,
}

/// For `status`.
#[derive(Default)]
pub(crate) struct CheckpointState {
    /// One is due or under way: no need to ring again.
    pub(crate) rung: AtomicBool,
    pub(crate) position: AtomicU64,
    /// Monotonic milliseconds of the last one's end.
    pub(crate) ended_ms: AtomicU64,
    pub(crate) count: AtomicU64,
    /// Value of `appended_bytes` when the last one began that is done.
    pub(crate) done_bytes: AtomicU64,
    /// And of `spared`.
    pub(crate) done_spared: Mutex<ReplayLoad>,
    /// Position when it was last looked whether one is due.
    pub(crate) looked: AtomicU64,
    /// One is under way.
    pub(crate) running: AtomicBool,
    /// Why the last try failed, if it did.
    pub(crate) failure: Mutex<Option<String>>,
    pub(crate) failing: AtomicBool,
}

/// Everything that a server is made of beside what starts empty.
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) journal: Journal,
    pub(crate) place: Arc<Severable>,
    pub(crate) meta: Meta,
    /// Where rows come from in the server of a decoupled client.
    pub(crate) base: Option<Arc<dyn Base>>,
    pub(crate) reserve: Option<Arc<Reserve>>,
    pub(crate) is_held: bool,
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) objects_address: String,
    pub(crate) world: SharedWorld,
    pub(crate) options: ServerOptions,
    pub(crate) info: FilesystemInfo,
    pub(crate) own_session: SessionId,
    /// How fast the journal was replayed, and how much of it.
    pub(crate) rate: ReplayRate,
    pub(crate) replayed: ReplayLoad,
    /// Position up to which the metadata store holds everything; what was replayed is past it.
    pub(crate) stored: Position,
    /// The next session id, and the mark below which ids are reserved.
    pub(crate) session_ids: (u64, u64),
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Shared {
        // A checkpoint fits the reserve.
        let reserved = parts.reserve.as_ref().map_or(0, |reserve| reserve.wanted());
        let bytes_max = if reserved == 0 { u64::MAX } else { reserved / 4 * 3 };
        let policy = CheckpointPolicy {
            // At the latest when changes wait for room.
            rows: parts.options.checkpoint_rows.min(parts.options.dirty_rows_max()),
            bytes: parts.options.checkpoint_journal_bytes.min(bytes_max),
            age: parts.options.checkpoint_age,
            target: parts.options.recovery_target,
            rate: parts.rate,
        };
        let metered = Arc::new(Metered::new(parts.objects));
        let checkpoint = CheckpointState::default();
        checkpoint.position.store(parts.stored.0, Ordering::Relaxed);
        checkpoint.ended_ms.store(parts.world.monotonic().as_millis() as u64, Ordering::Relaxed);
        Shared {
            boot: parts.own_session.0,
            begun_at: parts.journal.last(),
            engine: EngineLock::new(parts.engine),
            journal: parts.journal,
            place: parts.place,
            policy,
            meta: parts.meta,
            base: parts.base,
            reserve: parts.reserve,
            away: {
                let (world, log) = (parts.world.clone(), parts.options.log.clone());
                Arc::new(Away::new(world, log, parts.options.store_timeout))
            },
            is_held: parts.is_held,
            tight: Arc::default(),
            tight_since: Mutex::default(),
            reclaiming: Mutex::default(),
            objects: metered.clone(),
            metered,
            objects_address: parts.objects_address,
            world: parts.world,
            options: parts.options,
            info: parts.info,
            own_session: parts.own_session,
            own_blocks: AtomicU64::new(0),
            session_ids: SessionIds::new(parts.session_ids.0, parts.session_ids.1),
            waiters: Mutex::new(HashMap::new()),
            commits: Arc::default(),
            io_pool: IoPool::default(),
            log_limit: LogLimit::default(),
            channels: Channels::default(),
            dead_writers: Mutex::new(Vec::new()),
            dead_writers_listing: Mutex::new(Listing::Due),
            health: AtomicU8::new(0),
            store_full: AtomicBool::new(false),
            blocks_unsynced: Arc::new(AtomicBool::new(false)),
            blocks_put: AtomicU64::new(0),
            blocks_synced: Mutex::new(0),
            blocks_safe: AtomicU64::new(0),
            // What was replayed is to be replayed again, until it is checkpointed.
            appended_bytes: AtomicU64::new(parts.replayed.bytes),
            create_cost: CreateCost::default(),
            spared: Mutex::default(),
            inode_count: AtomicU64::new(0),
            budget_spent: AtomicBool::new(false),
            oldest: (AtomicU64::new(0), AtomicU64::new(0)),
            error_count: AtomicU64::new(0),
            checkpoint,
            checkpointing: Mutex::new(None),
            stopping: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            unsettled: Mutex::default(),
            checkpoint_wake_up: WakeUp::default(),
            numbers_wake_up: WakeUp::default(),
            numbers_refused: Mutex::default(),
        }
    }

    /// How the outside looks now.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            now: self.world.now(),
            mono: self.world.monotonic(),
            durable: self.journal.durable(),
            health: self.health(),
            store_full: self.store_full.load(Ordering::Relaxed),
            // Names are lent to nobody who could not change them.
            tight: self.tight.load(Ordering::Relaxed) || self.options.read_only,
            budget_spent: (self.budget_spent.load(Ordering::Relaxed)
                && !self.checkpoint.failing.load(Ordering::Relaxed))
                || (self.away.is_any() && self.journal.pending_bytes() >= PENDING_BYTES_MAX),
        }
    }

    pub(crate) fn health(&self) -> Health {
        match self.health.load(Ordering::Relaxed) {
            0 => Health::Good,
            1 => Health::Full,
            _ => Health::Failed,
        }
    }

    /// Notes how the journal does. A failed one stays failed.
    pub(crate) fn set_health(&self, outcome: Result<(), &JournalError>) {
        let now = match outcome {
            Ok(()) => 0,
            Err(error) if error.is_away() => {
                self.away.note(JOURNAL, error);
                return;
            }
            Err(JournalError::Fenced { by }) => {
                // First: nobody is to be told that the journal failed.
                self.fenced(&format!("the server of epoch {by}"));
                return;
            }
            Err(error) if error.may_heal() => 1,
            Err(_) => 2,
        };
        if now == 0 {
            self.away.note_back(JOURNAL);
        }
        let before = self.health.fetch_max(now, Ordering::Relaxed);
        if before == 1 && now == 0 {
            self.health.store(0, Ordering::Relaxed);
            self.log("the journal has space again");
        }
        if before < now
            && let Err(error) = outcome
        {
            self.log(&error.to_string());
            self.error_count.fetch_add(1, Ordering::Relaxed);
            if now == 2
                && !self.is_stopping()
                && let Some(told) = &self.options.on_failed
            {
                told(&format!("{error}: this server ends, and the next one recovers what was durable"));
            }
        }
    }

    /// The object store is gone, which no waiting mends: this server ends.
    pub(crate) fn store_gone(&self, why: &str) {
        self.set_health(Err(&JournalError::Failed(why.to_owned())));
    }

    /// Another server has the file system: nothing is answered or confirmed from here on.
    pub(crate) fn fenced(&self, by: &str) {
        if self.fenced.swap(true, Ordering::SeqCst) {
            return;
        }
        // Not a word more to clients: what they were not answered, they ask the new one again. Who comes between finds a
        // server that stops.
        self.channels.close_connections();
        self.stopping.store(true, Ordering::Release);
        self.channels.close_connections();
        // Not a word more to the store, and the journal's next attempt fails for good.
        self.place.sever();
        self.away.end(Duration::ZERO);
        self.health.fetch_max(2, Ordering::Relaxed);
        let why = format!(
            "{by} has taken over this file system: this server ends; what it confirmed is kept, its clients go on with \
             the new one"
        );
        self.log(&why);
        if let Some(told) = &self.options.on_fenced {
            told(&why);
        }
    }

    /// The object store as clients meet it.
    pub(crate) fn user_objects(&self) -> UserObjects {
        UserObjects {
            objects: self.objects.clone(),
            tight: self.tight.clone(),
            away: self.away.clone(),
            is_remote: self.objects_address.is_empty(),
        }
    }

    /// Waits until a position is durable, also while the journal's store is away.
    pub(crate) fn wait_journal(&self, position: Position) -> Result<(), JournalError> {
        let waited = self.journal.wait_through(position, &|trouble| self.away.note(JOURNAL, trouble));
        if waited.is_ok() {
            self.away.note_back(JOURNAL);
        }
        waited
    }

    /// True once another server has the file system: not a word more to clients, who ask that one.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::SeqCst)
    }

    pub(crate) fn log(&self, line: &str) {
        (self.options.log)(line);
    }

    /// Logs a line that a client caused, unless there are too many of its kind.
    pub(crate) fn log_often(&self, kind: Often, line: &str) {
        let (summary, is_written) = self.log_limit.note(kind, self.world.monotonic());
        if let Some(summary) = summary {
            self.log(&summary);
        }
        if is_written {
            self.log(line);
        }
    }

    /// As [`Shared::log_often`], of something that `status` counts as an error.
    pub(crate) fn note_often(&self, kind: Often, line: &str) {
        self.error_count.fetch_add(1, Ordering::Relaxed);
        self.log_often(kind, line);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Calls the engine; then appends its frames, lets what can go on go on, and delivers its commands.
    #[inline]
    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(&mut Engine, &Moment) -> R) -> R {
        let _fatal = Fatal::guard();
        self.use_engine(self.engine.lock(), f)
    }

    /// The same for what does not look at files and directories.
    #[inline]
    pub(crate) fn with_engine_as_it_is<R>(&self, f: impl FnOnce(&mut Engine, &Moment) -> R) -> R {
        let _fatal = Fatal::guard();
        self.use_engine(self.engine.lock_as_it_is(), f)
    }

    /// The same as [`Shared::with_engine`] if the engine is as `wanted` says, which looks at it as it is.
    pub(crate) fn with_engine_if<R>(
        &self,
        wanted: impl FnOnce(&Engine) -> bool,
        f: impl FnOnce(&mut Engine, &Moment) -> R,
    ) -> Option<R> {
        let _fatal = Fatal::guard();
        let mut engine = self.engine.lock_as_it_is();
        wanted(&engine).then(|| {
            engine.apply_pending();
            self.use_engine(engine, f)
        })
    }

    #[inline]
    fn use_engine<R>(
        &self,
        mut engine: MutexGuard<'_, Engine>,
        f: impl FnOnce(&mut Engine, &Moment) -> R,
    ) -> R {
        let m = self.moment();
        let result = f(&mut engine, &m);
        self.leave(engine, &m);
        result
    }

    /// The end of every use of the engine.
    #[inline]
    pub(crate) fn leave(&self, mut engine: MutexGuard<'_, Engine>, m: &Moment) {
        if engine.is_ready() {
            engine.apply_pending();
            if engine.run(m) != Progress::Idle {
                self.commits.scheduler_wake_up.wake();
            }
            if let Some(position) = engine.durable_wanted() {
                self.commits.engine_waits(position);
            }
        }
        self.append(&mut engine, m);
        if engine.wants_numbers() {
            self.numbers_wake_up.wake();
        }
        // A decoupled client has no checkpoints.
        let is_due = self.base.is_none()
            && (engine.namespace().dirty_rows() >= self.policy.rows
                || self.charged_load(engine.position()).reaches(self.policy.begin_at())
                || engine.wants_checkpoint());
        if is_due && !self.checkpoint.rung.swap(true, Ordering::Relaxed) {
            self.checkpoint_wake_up.wake();
        }
        if engine.has_commands() {
            let commands = engine.take_commands();
            drop(engine);
            self.deliver(commands);
        }
    }

    #[inline]
    fn append(&self, engine: &mut Engine, m: &Moment) {
        let (frames, events) = engine.frames();
        if events == 0 {
            return;
        }
        let bytes = frames.len() as u64;
        let expected = engine.journalled();
        if engine.take_blocks_named() {
            self.blocks_unsynced.store(true, Ordering::SeqCst);
        }
        if self.base.is_none() {
            self.observe(engine, ReplayLoad { events, bytes }, m);
        }
        let (frames, _) = engine.frames();
        match self.journal.append(frames, events) {
            Ok(position) => {
                assert_eq!(position, expected, "the journal and the engine disagree about positions");
                engine.frames_taken();
                self.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
                if self.base.is_none() {
                    self.note_replay_load(position);
                }
                if self.commits.engine_waits_for(position) {
                    // Who parked asked for a commit before these frames were there.
                    self.journal.request_commit();
                }
                if self.oldest.0.load(Ordering::Relaxed) <= m.durable.0 {
                    self.oldest.0.store(position.0, Ordering::Relaxed);
                    self.oldest.1.store(m.mono.as_millis() as u64, Ordering::Relaxed);
                }
            }
            // The frames stay and are tried again with the next ones; until then nothing is changed any more.
            Err(error) => self.set_health(Err(&error)),
        }
    }

    /// Looks how long a batch of creates took.
    #[inline]
    fn observe(&self, engine: &mut Engine, some: ReplayLoad, m: &Moment) {
        let count = engine.namespace().inode_count();
        let before = self.inode_count.swap(count, Ordering::Relaxed);
        if CreateCost::is_telling(some.events, count.saturating_sub(before)) {
            let spent = self.world.monotonic().saturating_sub(m.mono);
            let spared = self.create_cost.observe(some, spent, self.policy.rate);
            let mut all = self.spared.lock();
            *all = *all + spared;
        }
    }

    /// What a start would replay if the journal ended with `last`.
    #[inline]
    pub(crate) fn replay_load(&self, last: Position) -> ReplayLoad {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReplayLoad {
            events: last.0.saturating_sub(of(&self.checkpoint.position)),
            bytes: of(&self.appended_bytes).saturating_sub(of(&self.checkpoint.done_bytes)),
        }
    }

    /// The same, in events of the assumed rate.
    #[inline]
    pub(crate) fn charged_load(&self, last: Position) -> ReplayLoad {
        let spared = *self.spared.lock();
        self.replay_load(last).less(spared.less(*self.checkpoint.done_spared.lock()))
    }

    /// Whether changes wait for a checkpoint.
    pub(crate) fn is_budget_spent(&self) -> bool {
        self.budget_spent.load(Ordering::Relaxed)
    }

    /// Notes whether changes must wait for a checkpoint.
    #[inline]
    pub(crate) fn note_replay_load(&self, last: Position) {
        let full = self.charged_load(last).reaches(self.policy.wait_at());
        self.budget_spent.store(full, Ordering::Relaxed);
    }

    /// How long, at most, something has been waiting to become durable.
    pub(crate) fn oldest_not_durable(&self) -> Duration {
        if self.journal.durable() >= self.journal.last() {
            return Duration::ZERO;
        }
        let since = Duration::from_millis(self.oldest.1.load(Ordering::Relaxed));
        self.world.monotonic().saturating_sub(since)
    }

    /// Rows from the metadata store; to be called without the engine's lock.
    pub(crate) fn fetch(&self, needs: &[Need]) -> Result<Vec<Fetched>, String> {
        if let Some(base) = &self.base {
            return base.fetch(needs).inspect_err(|line| {
                self.error_count.fetch_add(1, Ordering::Relaxed);
                self.log_often(
                    Often::Rows,
                    &format!("cannot read metadata of the decoupled subtree: {line}"),
                );
            });
        }
        loop {
            match self.fetch_rows(needs) {
                Err(error @ StoreError::Away { .. }) if self.away.note(ROWS, &error) && !self.is_fenced() => {
                    self.away.pause();
                    // It may be closed for good. What fails here is tried again.
                    let _ = self.mend_meta(error);
                }
                Err(error @ StoreError::Fenced { .. }) => return Err(self.mend_meta(error).to_string()),
                Err(error) => return Err(format!("cannot read metadata: {error}")),
                Ok(fetched) => {
                    self.away.note_back(ROWS);
                    return Ok(fetched);
                }
            }
        }
    }

    fn fetch_rows(&self, needs: &[Need]) -> Result<Vec<Fetched>, StoreError> {
        let meta = self.meta.get();
        let source = Source(&*meta);
        let fetch = |need| {
            Namespace::fetch(&source, need).or_else(|error: StoreError| {
                if !matches!(error, StoreError::Away { .. } | StoreError::Fenced { .. }) {
                    self.note_often(Often::Rows, &format!("cannot read metadata: {error}"));
                }
                // What is damaged may be one of many rows.
                let damaged = matches!(error, StoreError::Corrupt { .. });
                damaged.then(|| Fetched::unreadable(need)).flatten().ok_or(error)
            })
        };
        needs.iter().map(fetch).collect()
    }

    /// Fetches rows that the engine's own queue needs, and installs them.
    pub(crate) fn supply(&self, needs: &[Need], generation: u64) -> Result<(), String> {
        let fetched = self.fetch(needs)?;
        self.install(&mut self.engine.lock(), fetched, generation)
    }

    /// Takes fetched rows in; what cannot be decoded is noted, and an error where there is no way around it.
    pub(crate) fn install(
        &self,
        engine: &mut Engine,
        fetched: Vec<Fetched>,
        generation: u64,
    ) -> Result<(), String> {
        let result =
            install(engine, fetched, generation).inspect_err(|line| self.note_often(Often::Rows, line));
        for row in engine.namespace().take_torn_rows() {
            self.note_often(Often::Rows, &row.to_string());
        }
        result
    }

    /// Notes who waits for a ticket. To be called with the engine's lock held.
    pub(crate) fn park(&self, engine: &Engine, ticket: Ticket, waiter: Waiter) {
        self.waiters.lock().insert(ticket, waiter);
        if let Some(position) = engine.durable_wanted() {
            self.commits.engine_waits(position);
            self.journal.request_commit();
        }
    }

    fn deliver(&self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Reply(ticket, reply) => self.answer_waiter(ticket, reply),
                Command::Recall(session, recall) => self.channels.recall(session, recall),
                Command::DropSession(session, ended) => {
                    self.channels.drop_session(session);
                    self.dead_writers.lock().push((session, ended));
                }
            }
        }
    }

    fn answer_waiter(&self, ticket: Ticket, reply: Reply) {
        match self.waiters.lock().remove(&ticket) {
            Some(Waiter::Thread(parking)) => parking.answer(reply),
            // A client that is gone asks again when it comes back.
            Some(Waiter::Client(sender)) if !self.is_fenced() => drop(sender.send(&reply)),
            Some(Waiter::Client(_)) => {}
            None => {}
        }
    }

    /// Tells threads that wait for answers that there will be none.
    pub(crate) fn dismiss_waiters(&self) {
        let m = self.moment();
        for (_, waiter) in self.waiters.lock().drain() {
            if let Waiter::Thread(parking) = waiter {
                parking.answer(crate::requests::stopped(0, &m));
            }
        }
    }
}

/// Takes fetched rows in.
pub(crate) fn install(engine: &mut Engine, fetched: Vec<Fetched>, generation: u64) -> Result<(), String> {
    for rows in fetched {
        engine.namespace().install(rows, generation).map_err(|e| e.to_string())?;
    }
    Ok(())
}
