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
    /// Calls the engine; then appends its frames, resumes requests that no longer need to wait, and delivers its commands.
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
        self.note_wanted(&mut engine);
        if engine.take_background_due() {
            self.waiters.commits.scheduler_wake_up.wake();
        }
        if engine.wants_numbers() {
            self.numbers.wake_up.wake();
        }
        let is_due = self.kind.has_checkpoints()
            && (engine.namespace().dirty_rows() >= self.checkpoints.policy.rows
                || self.is_load_due(engine.position())
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

    /// Notes the position that the engine waits for: when it is durable, a request of this plate or of another plate
    /// resumes. Any thread that used the engine may have left such a request waiting, so each thread asks for the commit.
    #[inline]
    fn note_wanted(&self, engine: &mut Engine) {
        let Some(position) = engine.durable_wanted() else { return };
        self.waiters.commits.engine_waits(position);
        if engine.wants_commit_now() {
            self.journal.request_commit();
        } else if let Some(awaited) = engine.durable_awaited() {
            self.journal.request_commit_upto(awaited);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use chiton_journal::{MemoryPlace, Shape};
    use chiton_metastore::MemoryMetastore;
    use chiton_model::{Make, Op, XattrHow};
    use chiton_objects::MemoryObjects;
    use chiton_runtime::{SeededWorld, SharedWorld, thread};
    use chiton_types::{Cred, Epoch, Ino, Mode, Name, Seq, SessionId};
    use chiton_wire::{Call, Request};

    use crate::builder::Builder;
    use crate::peers::Peers;
    use crate::plate::Plate;
    use crate::role::Role;
    use crate::{FormatOptions, Server, ServerOptions, Stores, io_pool};
    use chiton_engine::Step;

    const LONG: Duration = Duration::from_secs(3_600);

    /// A plate without a scheduler, whose clock stands, and whose journal commits only what it is asked to.
    fn plate() -> Arc<Plate> {
        let (meta, place) = (Arc::new(MemoryMetastore::new()), Arc::new(MemoryPlace::new(Shape::Grows)));
        let world: SharedWorld = Arc::new(SeededWorld::new(1));
        let stores = || {
            let meta = meta.clone();
            Stores {
                objects: Arc::new(MemoryObjects::new()),
                open_meta: Box::new(move || {
                    meta.crash();
                    Ok(meta.clone())
                }),
                place: place.clone(),
                objects_address: String::new(),
            }
        };
        let info = Server::format_with(&[stores()], &FormatOptions::default(), &world).expect("formats");
        let journal = chiton_journal::Options { flush_interval: LONG, ..chiton_journal::Options::default() };
        let options = ServerOptions { journal, log: Arc::new(|_| {}), ..ServerOptions::default() };
        let builder = Builder::new(options, world, io_pool::none(), Peers::new(info.plates()));
        let (parts, _) = Role::serving_plates(&info, vec![stores()]).parts();
        builder.build(parts.into_iter().next().expect("one")).expect("builds")
    }

    fn request(op: Op) -> Request {
        Request {
            id: 1,
            seq: Seq(0),
            settled: Seq(0),
            epoch: Epoch(0),
            again: None,
            cred: Cred::ROOT,
            call: Call::Op { op, open: false },
        }
    }

    /// A request may begin to wait for its commit on any thread: the scheduler carries out those that waited for rows. Nothing but the
    /// flush interval, or the scheduler's next look, made it durable then.
    #[test]
    fn a_commit_that_a_request_waits_for_is_asked_for_on_every_thread() {
        let plate = plate();
        let session = SessionId(1_000);
        let opened = plate.with_engine(|engine, m| engine.open_session(session, 0, "test", true, m));
        assert!(opened.is_ok());
        let ask = |op| {
            let mut step = plate.with_engine(|engine, m| engine.request(session, request(op), m));
            loop {
                match step {
                    Step::Done(reply) => panic!("answered before it was durable: {reply:?}"),
                    Step::Waiting(_) => return,
                    Step::NeedRows(task, needs) => {
                        let generation = plate.engine.lock().namespace().generation();
                        plate.supply(&needs, generation).expect("rows");
                        step = plate.with_engine(|engine, m| engine.retry(task, m));
                    }
                }
            }
        };
        let durable = || {
            let last = plate.journal.last();
            for _ in 0..1_000 {
                if plate.journal.durable() == last {
                    return;
                }
                thread::sleep(Duration::from_millis(10));
            }
            panic!("{} of {last} is durable", plate.journal.durable());
        };
        let policy = b"acknowledge: durable".to_vec();
        ask(Op::SetXattr {
            ino: Ino::ROOT,
            name: b"chiton.policy".to_vec(),
            value: policy,
            how: XattrHow::Set,
        });
        durable();
        plate.with_engine(|engine, m| engine.durable_advanced(m));
        let make = Make::File { content: Vec::new() };
        ask(Op::Make {
            parent: Ino::ROOT,
            name: Name::new(b"file").expect("a name"),
            make,
            mode: Mode(0o644),
        });
        durable();
    }
}
