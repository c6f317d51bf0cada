//! The lock of the engine.
//!
//! Invariants:
//! - Its holder finds everything in memory that was answered, unless it says that it does not look
//!   ([`EngineLock::lock_as_it_is`]).
//! - Only a decoupled client's plate has anything that is journalled and not in memory ([`LazyApply`]).

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use chiton_engine::{Creates, Engine, LazyApply, Moment, Progress};
use chiton_runtime::sync::{Mutex, MutexGuard};
use chiton_types::Attr;

use crate::fatal::Fatal;
use crate::plate::{Kind, Plate};
use crate::replay_budget::ReplayLoad;

/// See the module.
pub(crate) struct EngineLock(Mutex<Locked>);

struct Locked {
    engine: Engine,
    /// In the decoupled role only.
    lazy: Option<LazyApply>,
}

/// The engine while its lock is held.
pub(crate) struct EngineGuard<'a>(MutexGuard<'a, Locked>);

impl EngineLock {
    pub(crate) fn new(engine: Engine, kind: &Kind) -> EngineLock {
        let lazy = match kind {
            Kind::Decoupled(_) => Some(LazyApply::default()),
            Kind::Serving | Kind::Preview => None,
        };
        EngineLock(Mutex::new(Locked { engine, lazy }))
    }

    /// The lock, for callers that look at files and directories.
    #[inline]
    pub(crate) fn lock(&self) -> EngineGuard<'_> {
        let mut engine = self.lock_as_it_is();
        engine.apply_pending();
        engine
    }

    /// For what does not look at files and directories: some may be in the journal only.
    #[inline]
    pub(crate) fn lock_as_it_is(&self) -> EngineGuard<'_> {
        EngineGuard(self.0.lock())
    }
}

impl EngineGuard<'_> {
    /// Whether files are in the journal and not in memory.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.0.lazy.as_ref().is_some_and(LazyApply::has_pending)
    }

    /// Brings them into memory.
    #[inline]
    fn apply_pending(&mut self) {
        let Locked { engine, lazy } = &mut *self.0;
        if let Some(lazy) = lazy {
            lazy.apply_to(engine);
        }
    }

    /// Of a decoupled client: makes files in the journal only, as [`LazyApply::create`] does; none in other roles.
    pub(crate) fn create_lazily(&mut self, creates: &Creates<'_>, m: &Moment, made: &mut Vec<Attr>) {
        let Locked { engine, lazy } = &mut *self.0;
        if let Some(lazy) = lazy {
            lazy.create(engine, creates, m, made);
        }
    }
}

impl Deref for EngineGuard<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.0.engine
    }
}

impl DerefMut for EngineGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.0.engine
    }
}

impl Plate {
    /// Calls the engine; then appends its frames, lets what can go on go on, and delivers its commands.
    #[inline]
    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(&mut Engine, &Moment) -> R) -> R {
        let _fatal = Fatal::guard();
        self.use_engine(self.engine.lock(), f)
    }

    /// The lock, for callers that do not look at files and directories.
    #[inline]
    pub(crate) fn with_engine_as_it_is<R>(&self, f: impl FnOnce(&mut Engine, &Moment) -> R) -> R {
        let _fatal = Fatal::guard();
        self.use_engine(self.engine.lock_as_it_is(), f)
    }

    /// The same as [`Plate::with_engine`] if the engine is as `wanted` says, which looks at it as it is.
    pub(crate) fn with_engine_if<R>(
        &self,
        wanted: impl FnOnce(&EngineGuard<'_>) -> bool,
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
    fn use_engine<R>(&self, mut engine: EngineGuard<'_>, f: impl FnOnce(&mut Engine, &Moment) -> R) -> R {
        let m = self.moment();
        let result = f(&mut engine, &m);
        self.leave(engine, &m);
        result
    }

    /// The end of every use of the engine.
    #[inline]
    pub(crate) fn leave(&self, mut engine: EngineGuard<'_>, m: &Moment) {
        if engine.is_ready() {
            engine.apply_pending();
            if engine.run(m) != Progress::Idle {
                self.waiters.commits.scheduler_wake_up.wake();
            }
            if let Some(position) = engine.durable_wanted() {
                self.waiters.commits.engine_waits(position);
            }
        }
        self.append(&mut engine, m);
        if !self.peers.is_alone() {
            self.note_wanted(&mut engine);
        }
        if engine.take_background_due() {
            self.waiters.commits.scheduler_wake_up.wake();
        }
        if engine.wants_numbers() {
            self.numbers.wake_up.wake();
        }
        let is_due = self.kind.has_checkpoints()
            && (engine.namespace().dirty_rows() >= self.checkpoints.policy.rows
                || self.charged_load(engine.position()).reaches(self.checkpoints.policy.begin_at())
                || engine.wants_checkpoint());
        if is_due && !self.checkpoints.rung.swap(true, Ordering::Relaxed) {
            self.checkpoints.wake_up.wake();
        }
        if engine.has_commands() {
            let mut commands = engine.take_commands();
            self.send_to_peers(&mut commands);
            drop(engine);
            self.deliver(commands);
        }
    }

    /// Notes the position that the engine waits for: a request of this plate, or another plate, goes on when it is durable.
    fn note_wanted(&self, engine: &mut Engine) {
        let Some(position) = engine.durable_wanted() else { return };
        self.waiters.commits.engine_waits(position);
        if engine.wants_commit_now() {
            self.journal.request_commit();
        }
        if self.waiters.commits.engine_is_due(self.journal.durable()) {
            // It became durable before it was noted.
            self.waiters.commits.scheduler_wake_up.wake();
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
            self.blocks.unsynced.store(true, Ordering::SeqCst);
        }
        if self.kind.has_checkpoints() {
            self.observe(engine, ReplayLoad { events, bytes }, m);
        }
        let (frames, _) = engine.frames();
        match self.journal.append(frames, events) {
            Ok(position) => {
                assert_eq!(position, expected, "the journal and the engine disagree about positions");
                engine.frames_taken();
                self.checkpoints.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
                if self.kind.has_checkpoints() {
                    self.note_replay_load(position);
                }
                if self.waiters.commits.engine_waits_for(position) {
                    // Requests that wait asked for a commit before these frames were there.
                    self.journal.request_commit();
                }
                if self.condition.oldest.0.load(Ordering::Relaxed) <= m.durable.0 {
                    self.condition.oldest.0.store(position.0, Ordering::Relaxed);
                    self.condition.oldest.1.store(m.mono.as_millis() as u64, Ordering::Relaxed);
                }
            }
            // The frames stay and are tried again with the next ones; until then nothing is changed any more.
            Err(error) => self.set_health(Err(&error)),
        }
    }
}
