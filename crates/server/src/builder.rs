//! From what a caller has to a plate that can serve: rows, then the journal after them, then reservations.
//!
//! ```text
//!   role ──▶ engine over its rows ──▶ journal opened ──▶ events past the rows replayed ──▶ begun ──▶ plate
//! ```

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chiton_engine::{Engine, Moment, Settings};
use chiton_journal::{
    Frame, Identity, Journal, JournalError, MemoryPlace, ReplayError, Shape, replay, reset,
};
use chiton_metastore::{MemoryMetastore, Metastore};
use chiton_namespace::{Fetched, Namespace, Need};
use chiton_objects::MemoryObjects;
use chiton_runtime::SharedWorld;
use chiton_runtime::pool::Pool;
use chiton_runtime::sync::Mutex;
use chiton_types::{Ino, PlateId, Plates, Position, SessionId};

use crate::away::Away;
use crate::blocks::Blocks;
use crate::checkpoints::Checkpoints;
use crate::condition::Condition;
use crate::decoupled::{DecoupledSubtree, GrantedNumbers};
use crate::engine_lock::EngineLock;
use crate::error::StartError;
use crate::format::FilesystemInfo;
use crate::latency::Latency;
use crate::options::ServerOptions;
use crate::peers::Peers;
use crate::phases::Phases;
use crate::plate::{Kind, Plate};
use crate::replay_budget::{CheckpointPolicy, ReplayLoad, ReplayRate};
use crate::replaying::Replaying;
use crate::reserve::{self, Reserve};
use crate::role::Part;
use crate::room::Space;
use crate::rows::Rows;
use crate::session_ids::{self, SessionIds};
use crate::severable::Severable;
use crate::startup::{EPOCH, journal_error, namespace_of, session_mark, store_error};
use crate::stores::{Meta, Source, Stores};
use crate::tree_jobs::TreeJobs;
use crate::waiters::Waiters;

/// Sessions of a preview have higher ids than any that the rows know.
const SESSIONS_FROM: u64 = 1 << 62;
/// About what a frame takes beside its payload.
const FRAME_OVERHEAD_BYTES: usize = 16;

/// The same for all plates of a process.
#[derive(Clone)]
pub(crate) struct Builder {
    options: ServerOptions,
    world: SharedWorld,
    pool: Arc<Pool>,
    peers: Arc<Peers>,
    reserve: Option<Arc<Reserve>>,
    is_held: bool,
}

/// An engine over its rows, and the parts of the plate that depend on the role.
struct Prepared {
    kind: Kind,
    plate: PlateId,
    info: FilesystemInfo,
    stores: Stores,
    meta: Meta,
    engine: Engine,
    /// The rows hold all events up to here.
    stored: Position,
    /// Identity of the journal.
    journal: u64,
    /// The plate's own session: writer of its blocks.
    writer: SessionId,
}

impl Builder {
    /// `options`: as they are for each plate.
    pub(crate) fn new(
        options: ServerOptions,
        world: SharedWorld,
        pool: Arc<Pool>,
        peers: Arc<Peers>,
    ) -> Builder {
        Builder { options, world, pool, peers, reserve: None, is_held: false }
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.options
    }

    pub(crate) fn world(&self) -> &SharedWorld {
        &self.world
    }

    /// The work on whole trees that this process does for clients, if it does.
    pub(crate) fn tree_jobs(&self) -> Option<&Arc<dyn TreeJobs>> {
        self.options.tree_jobs.as_ref()
    }

    /// The ways between the plates.
    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// The space that is kept free on the disk of a data directory.
    pub(crate) fn reserve(self, reserve: Option<Arc<Reserve>>) -> Builder {
        Builder { reserve, ..self }
    }

    /// Whether the caller keeps others from the stores.
    pub(crate) fn held(self, is_held: bool) -> Builder {
        Builder { is_held, ..self }
    }

    /// A plate. Its threads are not started, and its peers do not know of it.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn build(self, part: Part) -> Result<Arc<Plate>, StartError> {
        let Builder { options, world, pool, peers, reserve, is_held } = self;
        let m = Moment { now: world.now(), mono: world.monotonic(), ..Moment::default() };
        let mut phases = Phases::begin(&*world);
        let mut prepared = match part {
            Part::Serving { info, plate, stores } => {
                serving((info, plate, stores), &options, &m, &mut |step| phases.done(step, &*world))?
            }
            Part::Decoupled(subtree) => decoupled(subtree, &options, &m)?,
            Part::Preview { info, rows } => preview(info, rows, &options, &m)?,
        };
        // A checkpoint of each plate fits the reserve, and so do their segments.
        let reserved = reserve
            .as_ref()
            .map(|reserve| reserve.usable() / u64::from(prepared.info.plates))
            .filter(|bytes| *bytes > 0);
        let mut journal_options = options.journal;
        if let Some(reserved) = reserved {
            journal_options.segment_bytes = reserve::segment_bytes(reserved, journal_options.segment_bytes);
        }
        let place = Arc::new(Severable::new(prepared.stores.place.clone()));
        let identity = Identity { journal: prepared.journal, epoch: EPOCH, nonce: world.random() };
        let journal = open_journal(&prepared, &place, identity, journal_options, &options)?;
        phases.done("journal", &*world);

        let began = world.monotonic();
        let replayed = prepared.replay(&place, &options, &m)?;
        let spent = world.monotonic().saturating_sub(began);
        phases.done("replay", &*world);
        let rate = match prepared.kind {
            Kind::Serving => ReplayRate::measured(replayed, spent),
            Kind::Decoupled(_) | Kind::Preview => ReplayRate::ASSUMED,
        };
        if rate.measured {
            let (events, seconds) = (replayed.events, spent.as_secs_f64());
            let whose = prepared.journal_name();
            (options.log)(&format!("replayed {events} events of {whose} in {seconds:.1} s"));
        }
        let opened = Moment { now: world.now(), mono: world.monotonic(), ..m };
        let session_ids = prepared.begin(&journal, m.mono, &opened)?;
        phases.done("reserve", &*world);

        let policy = CheckpointPolicy {
            // At the latest when changes wait for room.
            rows: options.checkpoint_rows.min(options.dirty_rows_max()),
            bytes: options.checkpoint_journal_bytes,
            age: options.checkpoint_age,
            target: options.recovery_target,
            rate,
            reserved,
        };
        let ended_ms = world.monotonic().as_millis() as u64;
        let replayed_events = replayed.events;
        let replayed = if prepared.kind.has_checkpoints() { replayed } else { ReplayLoad::default() };
        let Prepared { kind, plate, info, stores, meta, engine, stored, writer, .. } = prepared;
        let engine = EngineLock::new(engine, &kind);
        let latency = Latency::new(&options, plate, &world);
        let plate = Arc::new(Plate {
            kind,
            plate,
            info,
            pool,
            peers,
            table: OnceLock::new(),
            boot: writer.0,
            begun_at: journal.last(),
            replayed_events,
            start: Mutex::new(phases),
            has_opened: AtomicBool::new(false),
            session_ids,
            engine,
            journal,
            place,
            rows: Rows { meta, is_held, unsettled: Default::default() },
            blocks: Blocks::new(stores.objects, stores.objects_address, writer),
            waiters: Waiters::new(latency.clone()),
            latency,
            checkpoints: Checkpoints::new(policy, stored, replayed, ended_ms),
            numbers: GrantedNumbers::default(),
            space: Space::new(reserve),
            condition: Condition::new(Away::new(world.clone(), options.log.clone(), options.store_timeout)),
            options,
            world,
        });
        plate.install_hooks();
        plate.take_reserve();
        Ok(plate)
    }
}

/// The namespace in a metadata store, with the server's own rows.
fn engine_over(
    store: &Arc<dyn Metastore>,
    info: &FilesystemInfo,
    settings: Settings,
    m: &Moment,
) -> Result<(Engine, Position), StartError> {
    let (ns, rows) = namespace_of(store, info.shards)?;
    let stored = rows.position;
    Ok((Engine::from_rows(settings, ns, rows, m), stored))
}

fn serving(
    (info, plate, stores): (FilesystemInfo, PlateId, Stores),
    options: &ServerOptions,
    m: &Moment,
    done: &mut dyn FnMut(&'static str),
) -> Result<Prepared, StartError> {
    let Stores { objects, open_meta, place, objects_address } = stores;
    let meta = Meta::open(open_meta).map_err(|e| store_error(&e))?;
    done("store");
    let store = meta.get();
    let (engine, stored) =
        engine_over(&store, &info, options.engine_settings((plate, info.plates()), Ino::ROOT), m)?;
    let writer = SessionId(session_mark(&*store, plate)?);
    done("rows");
    let journal = info.journal_of(plate);
    let stores = Stores { objects, open_meta: nothing_to_open(), place, objects_address };
    Ok(Prepared { kind: Kind::Serving, plate, info, stores, meta, engine, stored, journal, writer })
}

fn decoupled(subtree: DecoupledSubtree, options: &ServerOptions, m: &Moment) -> Result<Prepared, StartError> {
    let settings = options.engine_settings((PlateId(0), Plates::one(subtree.shards)), subtree.root);
    let mut ns = Namespace::of_subtree(subtree.root, subtree.inode_count);
    ns.keep_to(subtree.own_shards);
    let numbers = (&subtree.ranges[..], &subtree.used[..]);
    let engine = Engine::of_realm(settings, ns, subtree.merged, numbers, &subtree.borders, subtree.policy, m);
    let info = FilesystemInfo {
        version: 1,
        filesystem: subtree.filesystem,
        shards: subtree.shards,
        plates: 1,
        created: m.now.secs(),
        monitor: None,
    };
    let no_rows: Arc<dyn Metastore> = Arc::new(MemoryMetastore::new());
    Ok(Prepared {
        kind: Kind::Decoupled(subtree.base),
        plate: PlateId(0),
        info,
        meta: Meta::open(Box::new(move || Ok(no_rows.clone()))).map_err(|e| store_error(&e))?,
        stores: in_memory(subtree.place),
        engine,
        stored: subtree.merged,
        journal: subtree.journal,
        writer: subtree.writer,
    })
}

fn preview(
    info: FilesystemInfo,
    rows: Arc<dyn Metastore>,
    options: &ServerOptions,
    m: &Moment,
) -> Result<Prepared, StartError> {
    let settings = Settings {
        sessions_max: usize::MAX,
        ..options.engine_settings((PlateId(0), Plates::one(info.shards)), Ino::ROOT)
    };
    let (engine, stored) = engine_over(&rows, &info, settings, m)?;
    Ok(Prepared {
        kind: Kind::Preview,
        plate: PlateId(0),
        meta: Meta::open(Box::new(move || Ok(rows.clone()))).map_err(|e| store_error(&e))?,
        stores: in_memory(Arc::new(MemoryPlace::new(Shape::Grows))),
        engine,
        stored,
        journal: info.filesystem,
        writer: SessionId(SESSIONS_FROM),
        info,
    })
}

/// Stores whose only place is that of the journal: clients of such a plate put and read blocks elsewhere.
fn in_memory(place: Arc<dyn chiton_journal::Place>) -> Stores {
    Stores {
        objects: Arc::new(MemoryObjects::new()),
        open_meta: nothing_to_open(),
        place,
        objects_address: String::new(),
    }
}

/// The metadata store is open already.
fn nothing_to_open() -> crate::stores::OpenMeta {
    Box::new(|| unreachable!("the metadata store was opened before"))
}

fn open_journal(
    prepared: &Prepared,
    place: &Arc<Severable>,
    identity: Identity,
    journal_options: chiton_journal::Options,
    options: &ServerOptions,
) -> Result<Journal, StartError> {
    let stored = prepared.stored;
    let failed = |e: &dyn std::fmt::Display| StartError::Failed(e.to_string());
    if matches!(prepared.kind, Kind::Preview) {
        reset(&**place, identity, stored.next()).map_err(|e| failed(&e))?;
    }
    let opened = Journal::open(place.clone(), identity, journal_options);
    let (journal, recovered) = match (opened, &prepared.kind) {
        (Ok(opened), _) => opened,
        (Err(JournalError::Absent), Kind::Decoupled(_)) if stored == Position(0) => {
            return Journal::create(place.clone(), identity, journal_options).map_err(|e| failed(&e));
        }
        (Err(error), Kind::Decoupled(_)) => return Err(StartError::Corrupt(error.to_string())),
        (Err(error), Kind::Serving | Kind::Preview) => return Err(journal_error(&error, stored)),
    };
    if let (Some(torn), Kind::Serving) = (&recovered.torn, &prepared.kind) {
        (options.log)(&format!(
            "the last commit of {} was cut off by the crash, which is harmless: {torn}",
            prepared.journal_name()
        ));
    }
    let last = recovered.last_position;
    if last < stored {
        return Err(StartError::Corrupt(match prepared.kind {
            Kind::Decoupled(_) => {
                format!("the journal ends at {last}, and the server has it up to {stored}")
            }
            Kind::Serving | Kind::Preview => format!(
                "the journal ends at position {last}, the metadata store holds all up to {stored}: is it the right \
                 journal, or was it cut off? `chiton journal reset` continues with the content of the metadata store: \
                 all events after {stored} are lost, and none before"
            ),
        }));
    }
    Ok(journal)
}

impl Prepared {
    /// The journal, for the log.
    fn journal_name(&self) -> String {
        match self.info.plates {
            1 => "the journal".to_owned(),
            _ => format!("the journal of plate {}", self.plate),
        }
    }

    /// Replays what the journal holds past the rows; returns how much that was.
    fn replay(
        &mut self,
        place: &Severable,
        options: &ServerOptions,
        m: &Moment,
    ) -> Result<ReplayLoad, StartError> {
        let Prepared { kind, meta, engine, stored, .. } = self;
        let store = meta.get();
        let fetch = |needs: &[Need]| -> Result<Vec<Fetched>, StartError> {
            match kind.base() {
                Some(base) => base.fetch(needs).map_err(StartError::Failed),
                None => Namespace::fetch_all(&Source(&*store), needs).map_err(|e| store_error(&e)),
            }
        };
        // Others may have changed merged content, and nothing is left of a file that was removed while it was open.
        let base_changes = kind.base().is_some() && *stored > Position(0);
        let mut replayed = ReplayLoad::default();
        let mut replaying = Replaying::new(engine, &fetch, base_changes, m);
        let mut visit = |frame: &Frame<'_>| {
            replayed.events += u64::from(frame.header.event_count);
            replayed.bytes += (frame.payload.len() + FRAME_OVERHEAD_BYTES) as u64;
            replaying.take(frame)
        };
        let mut progress = |p| {
            if let Some(tell) = &options.progress {
                tell(p);
            }
        };
        match replay(place, *stored, &mut visit, &mut progress) {
            Ok(_) => replaying.finish().map(|()| replayed),
            Err(ReplayError::Visitor(error)) => Err(error),
            Err(ReplayError::Journal(error)) => Err(match kind {
                Kind::Decoupled(_) => StartError::Corrupt(error.to_string()),
                Kind::Serving | Kind::Preview => journal_error(&error, *stored),
            }),
        }
    }

    /// Reserves the ids of sessions, and has the engine begin. `claimed`: when the start began.
    fn begin(&mut self, journal: &Journal, claimed: Duration, m: &Moment) -> Result<SessionIds, StartError> {
        match self.kind {
            Kind::Serving => {
                let mark = self.writer.0;
                let reserved_to =
                    session_ids::reserve(&*self.meta.get(), mark).map_err(|e| store_error(&e))?;
                self.engine.set_filesystem(self.info.filesystem);
                self.engine.begin(claimed, m);
                let failed = |e: JournalError| StartError::Failed(e.to_string());
                let (frames, events) = self.engine.frames();
                let last = journal.append(frames, events).map_err(failed)?;
                self.engine.frames_taken();
                journal.wait_durable(last).map_err(failed)?;
                Ok(SessionIds::new(mark + 1, reserved_to))
            }
            // Its first session bears the id that the server gave for the blocks.
            Kind::Decoupled(_) => {
                self.engine.begin_realm();
                Ok(SessionIds::new(self.writer.0, u64::MAX))
            }
            Kind::Preview => {
                self.engine.set_filesystem(self.info.filesystem);
                self.engine.begin_preview();
                Ok(SessionIds::new(self.writer.0 + 1, u64::MAX))
            }
        }
    }
}

impl Plate {
    /// Says what happens before and after each commit of the journal.
    fn install_hooks(&self) {
        let (objects, unsynced) = (self.blocks.objects.clone(), self.blocks.unsynced.clone());
        let (log, base) = (self.options.log.clone(), self.kind.base().cloned());
        self.journal.before_commit(Box::new(move |_| {
            if !unsynced.swap(false, SeqCst) {
                return Ok(());
            }
            if let Some(base) = &base {
                return base.sync_blocks();
            }
            for _ in 0..3 {
                match objects.sync() {
                    Err(e) if e.is_transient() => log(&e.to_string()),
                    result => return result.map_err(|e| e.to_string()),
                }
            }
            objects.sync().map_err(|e| e.to_string())
        }));
        let commits = self.waiters.commits.clone();
        self.journal.on_durable(Box::new(move |durable| {
            commits.answer(durable);
            if commits.engine_is_due(durable) {
                commits.scheduler_wake_up.wake();
            }
        }));
    }
}
