//! The state of checkpoints: the last one, when the next one begins, how much a start would replay.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chiton_engine::{Engine, Moment};
use chiton_runtime::sync::Mutex;
use chiton_types::Position;

use crate::checkpointer::Begun;
use crate::plate::Plate;
use crate::replay_budget::{CheckpointPolicy, CreateCost, ReplayLoad};
use crate::wake_up::WakeUp;

pub(crate) struct Checkpoints {
    pub(crate) policy: CheckpointPolicy,
    /// Wakes the thread that writes them.
    pub(crate) wake_up: WakeUp,
    /// One is due or under way: no need to wake it again.
    pub(crate) rung: AtomicBool,
    /// Position of the last one.
    pub(crate) position: AtomicU64,
    /// Monotonic milliseconds of the last one's end.
    pub(crate) ended_ms: AtomicU64,
    pub(crate) count: AtomicU64,
    /// Bytes of the journal since the start.
    pub(crate) appended_bytes: AtomicU64,
    /// Value of `appended_bytes` when the last one began that is done.
    pub(crate) done_bytes: AtomicU64,
    /// The cost of creates on this machine, and the part of the journal that is spared because of it.
    create_cost: CreateCost,
    pub(crate) spared: Mutex<ReplayLoad>,
    /// Value of `spared` when the last one began that is done.
    pub(crate) done_spared: Mutex<ReplayLoad>,
    /// Inodes that there were when the engine's lock was last given up.
    inode_count: AtomicU64,
    /// A start would take as long as it may: changes wait for a checkpoint.
    pub(crate) budget_spent: AtomicBool,
    /// The changes since the last checkpoint take as much of the reserve as they may: others wait for a checkpoint.
    pub(crate) reserve_spent: AtomicBool,
    /// Position when it was last looked whether one is due.
    pub(crate) looked: AtomicU64,
    /// Held during a checkpoint; one whose commit failed.
    pub(crate) begun: Mutex<Option<Begun>>,
    /// One is under way.
    pub(crate) running: AtomicBool,
    /// Why the last try failed, if it did.
    pub(crate) failure: Mutex<Option<String>>,
    pub(crate) failing: AtomicBool,
    /// The metadata store has no space.
    pub(crate) store_full: AtomicBool,
    /// Held while segments of the journal are removed, and while a reader reads all of them.
    pub(crate) trimming: Mutex<()>,
}

impl Checkpoints {
    /// After a start from the rows of `stored`, behind which so much was replayed. `ended_ms`: the time now.
    pub(crate) fn new(
        policy: CheckpointPolicy,
        stored: Position,
        replayed: ReplayLoad,
        ended_ms: u64,
    ) -> Checkpoints {
        Checkpoints {
            policy,
            wake_up: WakeUp::default(),
            rung: AtomicBool::new(false),
            position: AtomicU64::new(stored.0),
            ended_ms: AtomicU64::new(ended_ms),
            count: AtomicU64::new(0),
            // The next start replays the same events again, until they are checkpointed.
            appended_bytes: AtomicU64::new(replayed.bytes),
            done_bytes: AtomicU64::new(0),
            create_cost: CreateCost::default(),
            spared: Mutex::default(),
            done_spared: Mutex::default(),
            inode_count: AtomicU64::new(0),
            budget_spent: AtomicBool::new(false),
            reserve_spent: AtomicBool::new(false),
            looked: AtomicU64::new(0),
            begun: Mutex::new(None),
            running: AtomicBool::new(false),
            failure: Mutex::new(None),
            failing: AtomicBool::new(false),
            store_full: AtomicBool::new(false),
            trimming: Mutex::default(),
        }
    }
}

impl Plate {
    /// Looks how long a batch of creates took.
    #[inline]
    pub(crate) fn observe(&self, engine: &mut Engine, some: ReplayLoad, m: &Moment) {
        let count = engine.namespace().inode_count();
        let before = self.checkpoints.inode_count.swap(count, Ordering::Relaxed);
        if CreateCost::is_conclusive(some.events, count.saturating_sub(before)) {
            let spent = self.world.monotonic().saturating_sub(m.mono);
            let spared = self.checkpoints.create_cost.observe(some, spent, self.checkpoints.policy.rate);
            let mut all = self.checkpoints.spared.lock();
            *all = *all + spared;
        }
    }

    /// The load of a start if the journal ended with `last`.
    #[inline]
    pub(crate) fn replay_load(&self, last: Position) -> ReplayLoad {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReplayLoad {
            events: last.0.saturating_sub(of(&self.checkpoints.position)),
            bytes: of(&self.checkpoints.appended_bytes).saturating_sub(of(&self.checkpoints.done_bytes)),
        }
    }

    /// The same, in events of the assumed rate.
    #[inline]
    pub(crate) fn charged_load(&self, last: Position) -> ReplayLoad {
        let spared = *self.checkpoints.spared.lock();
        self.replay_load(last).less(spared.less(*self.checkpoints.done_spared.lock()))
    }

    /// Whether so much has changed that a checkpoint begins.
    #[inline]
    pub(crate) fn is_load_due(&self, last: Position) -> bool {
        let policy = &self.checkpoints.policy;
        self.charged_load(last).reaches(policy.begin_at()) || policy.nears_reserve(self.replay_load(last))
    }

    /// Whether changes wait for a checkpoint.
    pub(crate) fn is_budget_spent(&self) -> bool {
        self.checkpoints.budget_spent.load(Ordering::Relaxed)
    }

    /// Notes whether changes must wait for a checkpoint.
    #[inline]
    pub(crate) fn note_replay_load(&self, last: Position) {
        let policy = &self.checkpoints.policy;
        let full = self.charged_load(last).reaches(policy.wait_at());
        self.checkpoints.budget_spent.store(full, Ordering::Relaxed);
        let full = policy.fills_reserve(self.replay_load(last), self.is_tight());
        self.checkpoints.reserve_spent.store(full, Ordering::Relaxed);
    }
}
