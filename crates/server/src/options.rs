//! The options of a server.

use std::sync::Arc;
use std::time::Duration;

use chiton_engine::Settings;
use chiton_metastore::FjallOptions;
use chiton_transport::{Gate, ServeOptions};
use chiton_types::{Ino, PlateId, Plates};

use crate::startup::EPOCH;
use crate::tree_jobs::TreeJobs;
use crate::trust::Trust;

/// Told how far a replay is.
pub(crate) type Tell = Arc<dyn Fn(chiton_journal::Progress) + Send + Sync>;

/// Receives the lines for the log.
pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Settings of a running server.
#[derive(Clone)]
pub struct ServerOptions {
    /// Memory for the namespace: clean rows above it leave after a checkpoint, or when reading alone has filled it.
    pub cache_bytes: usize,
    /// A checkpoint begins at so many changed rows …
    pub checkpoint_rows: usize,
    /// … or so many bytes of journal since the last …
    pub checkpoint_journal_bytes: u64,
    /// … or when changes are this old.
    pub checkpoint_age: Duration,
    /// A start after a crash replays at most about so long: checkpoints begin, and changes wait, early enough.
    pub recovery_target: Duration,
    /// Memory for changed rows: above it changes wait.
    pub dirty_bytes_max: usize,
    /// A session not heard of for so long is over. A lease not given back for so long ends the session, too.
    pub session_ms: u32,
    /// How long a restarted server waits for its sessions, at most `session_ms`; and up to three times as long as those
    /// that are back send what they have.
    pub grace_ms: u32,
    /// Clients believe what they have cached for at most so long after the last word from their server, also if it waits longer for
    /// its sessions after a restart.
    pub belief_ms_max: u32,
    /// How long a restarted server waits for sessions of clients that have no connection to it, at most `grace_ms`, counted from the time
    /// when it claimed the plate. Short in a cluster, where clients connect to all plates; `u32::MAX`: as for all others.
    pub gone_ms: u32,
    /// About how many leases are kept.
    pub lease_entries_max: usize,
    /// How long an inode rests after others had to give back leases for a change: nobody is given one unasked. An inode
    /// that several clients change all the time would else cost a recall for each change.
    pub lease_rest_ms: u32,
    pub sessions_max: usize,
    /// The journal's tunables.
    pub journal: chiton_journal::Options,
    /// The metadata store's tunables.
    pub metastore: FjallOptions,
    /// Limits on connections and messages, for each listener.
    pub serve: ServeOptions,
    /// Threads that wait for stores: they fetch rows and blocks. `docs/decisions/2026-11-28-worker-counts.md` has figures.
    pub io_threads: usize,
    /// How long programs wait for an object store that is away, before they are answered EIO; none: for ever.
    pub store_timeout: Option<Duration>,
    /// Told once, with the reason, when the journal has failed for good: nothing can be changed any more, and the process
    /// should abandon the server and end, so that the next one recovers. On a thread of the server's.
    pub on_failed: Option<Log>,
    /// Space kept free on the disk of a data directory, for the way out when it is full; none: a size that fits the disk.
    pub reserve_bytes: Option<u64>,
    /// Refuse every change of the file system.
    pub read_only: bool,
    /// End a process that holds the data directory.
    pub take_over: bool,
    /// Told how far the journal is replayed.
    pub progress: Option<Tell>,
    /// Measure how long requests take, for [`crate::Server::metrics`].
    pub metrics: bool,
    /// Write a line for each request that takes so long or longer.
    pub slow_after: Option<Duration>,
    /// In a cluster: answers go out only through it.
    pub gate: Option<Arc<dyn Gate>>,
    /// Connections over TCP have TLS, and need a certificate. `None`: they have none.
    pub trust: Option<Arc<Trust>>,
    /// Carries out jobs on whole trees for clients. `None`: clients do such work themselves.
    pub tree_jobs: Option<Arc<dyn TreeJobs>>,
    /// Told once, with the reason, when another server has taken over: changes that were not confirmed by then never will be. The
    /// process should abandon the server and end. On a thread of the server's.
    pub on_fenced: Option<Log>,
    /// Told what an administrator should know, a line each. Standard error by default.
    pub log: Log,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            cache_bytes: 1 << 30,
            checkpoint_rows: 4_000_000,
            checkpoint_journal_bytes: 256 << 20,
            checkpoint_age: Duration::from_secs(5),
            recovery_target: Duration::from_secs(5),
            dirty_bytes_max: 2 << 30,
            session_ms: 30_000,
            grace_ms: 10_000,
            belief_ms_max: u32::MAX,
            gone_ms: u32::MAX,
            lease_entries_max: 1 << 20,
            lease_rest_ms: 250,
            sessions_max: 65_536,
            journal: chiton_journal::Options::default(),
            metastore: FjallOptions::default(),
            serve: ServeOptions::default(),
            io_threads: 8,
            store_timeout: None,
            on_failed: None,
            reserve_bytes: None,
            read_only: false,
            take_over: false,
            progress: None,
            metrics: false,
            slow_after: None,
            gate: None,
            trust: None,
            tree_jobs: None,
            on_fenced: None,
            log: Arc::new(|line| tracing::warn!("{line}")),
        }
    }
}

/// Memory that a changed row takes, about: itself, its place on the list, its copy in a checkpoint.
const DIRTY_ROW_BYTES: usize = 200;

impl ServerOptions {
    /// The settings of one of so many plates in a process, which share its memory.
    pub(crate) fn for_plates(self, plates: u16) -> ServerOptions {
        let n = usize::from(plates);
        let metastore =
            FjallOptions { cache_bytes: self.metastore.cache_bytes / u64::from(plates), ..self.metastore };
        ServerOptions {
            cache_bytes: self.cache_bytes / n,
            dirty_bytes_max: self.dirty_bytes_max / n,
            lease_entries_max: self.lease_entries_max.div_ceil(n),
            metastore,
            ..self
        }
    }

    /// The settings of a plate's engine, which is seen from `root`.
    pub(crate) fn engine_settings(&self, (plate, plates): (PlateId, Plates), root: Ino) -> Settings {
        Settings {
            session_ms: self.session_ms,
            grace_ms: self.grace_ms.min(self.session_ms),
            gone_ms: self.gone_ms_allowed(),
            lease_entries_max: self.lease_entries_max,
            lease_rest_ms: self.lease_rest_ms,
            sessions_max: self.sessions_max,
            dirty_rows_max: self.dirty_rows_max(),
            epoch: EPOCH,
            shard_weights: vec![100; usize::from(plates.shards())],
            plate,
            plates,
            root,
        }
    }

    /// How long after the last word from a server its clients may believe what they have cached, in milliseconds: until
    /// others may have it, here or, after a restart, from the server that comes next. A 32nd less, since clocks do not run
    /// alike.
    pub(crate) fn belief_ms(&self) -> u32 {
        let shortest = self.session_ms.min(self.grace_ms);
        (shortest - shortest / 32).min(self.belief_ms_max)
    }

    /// [`ServerOptions::gone_ms`], and not shorter than the clients' belief, with a 32nd for their clocks.
    fn gone_ms_allowed(&self) -> u32 {
        let belief = self.belief_ms();
        self.gone_ms.max(belief.saturating_add(belief / 31 + 1)).min(self.grace_ms.min(self.session_ms))
    }

    /// [`ServerOptions::dirty_bytes_max`] in rows.
    pub(crate) fn dirty_rows_max(&self) -> usize {
        self.dirty_bytes_max / DIRTY_ROW_BYTES
    }
}
