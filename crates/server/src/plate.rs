//! A plate: one engine with its journal, its rows and those who wait for its answers.
//!
//! ```text
//!   request ──▶ engine ──▶ journal ──▶ place (a directory, objects, memory)
//!                 │  ▲        └─ durable ──▶ waiters ──▶ clients, threads of this process
//!                 ▼  └── rows: a metadata store, or the server that a subtree was taken from
//!               blocks (an object store)
//! ```
//!
//! Invariants:
//! - Lock order: engine, then waiters, commits or channels; none of these is held while another of them is taken.
//! - Frames are appended to the journal before the engine's lock is given up, commands are delivered after.
//! - A waiter is noted before the engine's lock is given up: no answer comes too early.
//! - Each plate has its own threads, positions and sessions. Plates speak with each other by messages only ([`crate::peers`]), and
//!   no thread holds the locks of two of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use chiton_engine::Moment;
use chiton_journal::{Journal, JournalError};
use chiton_runtime::SharedWorld;
use chiton_runtime::pool::Pool;
use chiton_runtime::sync::Mutex;
use chiton_types::{PlateId, Position};

use crate::away::JOURNAL;
use crate::blocks::Blocks;
use crate::checkpoints::Checkpoints;
use crate::condition::Condition;
use crate::decoupled::{Base, GrantedNumbers};
use crate::engine_lock::EngineLock;
use crate::format::FilesystemInfo;
use crate::latency::Latency;
use crate::options::ServerOptions;
use crate::peers::Peers;
use crate::phases::Phases;
use crate::plate_table::PlateTable;
use crate::room::Space;
use crate::rows::Rows;
use crate::session_ids::SessionIds;
use crate::severable::Severable;
use crate::user_objects::UserObjects;
use crate::waiters::Waiters;

/// While the journal's store is away, changes wait once so much of them is not durable.
const PENDING_BYTES_MAX: usize = 64 << 20;

/// The purpose of a plate.
pub(crate) enum Kind {
    /// Serves a file system: changed rows are checkpointed into its metadata store.
    Serving,
    /// Serves a subtree to the client that decoupled it. Rows and inode numbers come from
    /// the server of the subtree, and changed rows stay in memory until they are merged.
    Decoupled(Arc<dyn Base>),
    /// Shows what a merge would make of the rows of one moment. Nothing reaches a store.
    Preview,
}

/// The work of a thread of a plate until the plate stops.
pub(crate) type Body = fn(&Plate);

pub(crate) struct Plate {
    pub(crate) kind: Kind,
    /// Which one it is; 0 in other roles than serving.
    pub(crate) plate: PlateId,
    pub(crate) info: FilesystemInfo,
    pub(crate) options: ServerOptions,
    pub(crate) world: SharedWorld,
    /// For fetches and for requests that need the object store. Its owner gives it to all plates of a process.
    pub(crate) pool: Arc<Pool>,
    /// The way to the other plates, and all of them, once they run.
    pub(crate) peers: Arc<Peers>,
    pub(crate) table: OnceLock<Weak<PlateTable>>,
    /// Drawn at each start.
    pub(crate) boot: u64,
    /// Where the journal ended when the plate started.
    pub(crate) begun_at: Position,
    /// Events that were replayed then.
    pub(crate) replayed_events: u64,
    /// How long the steps of its start took; the last one when its clients are back.
    pub(crate) start: Mutex<Phases>,
    pub(crate) has_opened: AtomicBool,
    pub(crate) session_ids: SessionIds,

    pub(crate) engine: EngineLock,
    pub(crate) journal: Journal,
    pub(crate) place: Arc<Severable>,
    pub(crate) rows: Rows,
    pub(crate) blocks: Blocks,
    pub(crate) waiters: Waiters,
    /// Set only if metrics or the log of slow operations are on.
    pub(crate) latency: Option<Arc<Latency>>,

    pub(crate) checkpoints: Checkpoints,
    pub(crate) numbers: GrantedNumbers,
    pub(crate) space: Space,
    pub(crate) condition: Condition,
}

impl Kind {
    /// Whether what changes is moved to a metadata store.
    #[inline]
    pub(crate) fn has_checkpoints(&self) -> bool {
        matches!(self, Kind::Serving)
    }

    /// The server that a decoupled subtree was taken from.
    #[inline]
    pub(crate) fn base(&self) -> Option<&Arc<dyn Base>> {
        match self {
            Kind::Decoupled(base) => Some(base),
            Kind::Serving | Kind::Preview => None,
        }
    }

    /// Its threads beside the journal's: at most two.
    pub(crate) fn threads(&self) -> &'static [(&'static str, Body)] {
        match self {
            Kind::Serving => &[("chiton-sched", Plate::schedule), ("chiton-checkpoint", Plate::checkpointer)],
            Kind::Decoupled(_) => {
                &[("chiton-sched", Plate::schedule), ("chiton-numbers", Plate::number_keeper)]
            }
            Kind::Preview => &[("chiton-sched", Plate::schedule)],
        }
    }
}

impl Plate {
    /// Has the threads end soon.
    pub(crate) fn wake_all(&self) {
        self.waiters.commits.scheduler_wake_up.wake();
        self.checkpoints.wake_up.wake();
        self.numbers.wake_up.wake();
    }

    /// How the outside looks now.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        let reserve_spent = self.checkpoints.reserve_spent.load(Ordering::Relaxed);
        Moment {
            now: self.world.now(),
            mono: self.world.monotonic(),
            durable: self.journal.durable(),
            health: self.health(),
            store_full: self.checkpoints.store_full.load(Ordering::Relaxed),
            // Names are lent to nobody who could not change them.
            tight: self.space.tight.load(Ordering::Relaxed) || self.options.read_only,
            budget_spent: ((self.checkpoints.budget_spent.load(Ordering::Relaxed) || reserve_spent)
                && !self.checkpoints.failing.load(Ordering::Relaxed))
                || (self.condition.away.is_any() && self.journal.pending_bytes() >= PENDING_BYTES_MAX),
            reserve_spent,
        }
    }

    /// The object store as clients meet it.
    pub(crate) fn user_objects(&self) -> UserObjects {
        UserObjects {
            objects: self.blocks.objects.clone(),
            tight: self.space.tight.clone(),
            away: self.condition.away.clone(),
            is_remote: self.blocks.address.is_empty(),
        }
    }

    /// Waits until a position is durable, also while the journal's store is away.
    pub(crate) fn wait_journal(&self, position: Position) -> Result<(), JournalError> {
        let waited =
            self.journal.wait_through(position, &|trouble| self.condition.away.note(JOURNAL, trouble));
        if waited.is_ok() {
            self.condition.away.note_back(JOURNAL);
        }
        waited
    }
}
