//! A store that is away for a while: an object store that does not answer, or refuses for a fault that passes (a clock, a
//! token). Requests that need it wait, as on a hard mount of NFS, and the log and `status` name the store.
//!
//! ```text
//!   a call fails for now ──▶ noted (log: away, since when) ──▶ tried again … ──▶ succeeds ──▶ noted (log: back)
//!                                   │ longer than the limit ──▶ EIO
//! ```
//!
//! Invariants:
//! - Without a limit nobody is refused because a store is away; the end of the server sets one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use chiton_runtime::sync::Mutex;
use chiton_runtime::{SharedWorld, thread};
use serde_json::{Value, json};

use crate::options::Log;

/// Pause between two tries; the stores themselves try a few times, too.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a server that ends waits for a store that is away.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(10);

/// The names of stores, for people.
pub(crate) const JOURNAL: &str = "the journal's store";
pub(crate) const ROWS: &str = "the metadata store";
pub(crate) const BLOCKS: &str = "the object store";

/// Which stores are away.
pub(crate) struct Away {
    world: SharedWorld,
    log: Log,
    limit: Option<Duration>,
    /// Store: since when, why.
    stores: Mutex<BTreeMap<&'static str, (Duration, String)>>,
    is_any: AtomicBool,
    /// Longest wait from now on, in milliseconds.
    ending_ms: AtomicU64,
}

impl Away {
    pub(crate) fn new(world: SharedWorld, log: Log, limit: Option<Duration>) -> Away {
        let (is_any, ending_ms) = (AtomicBool::new(false), AtomicU64::new(u64::MAX));
        Away { world, log, limit, stores: Mutex::default(), is_any, ending_ms }
    }

    /// A store failed for now. True if the caller shall wait and try again.
    pub(crate) fn note(&self, store: &'static str, why: &dyn std::fmt::Display) -> bool {
        let now = self.world.monotonic();
        let mut stores = self.stores.lock();
        let is_new = !stores.contains_key(store);
        let entry = stores.entry(store).or_insert_with(|| (now, String::new()));
        entry.1 = why.to_string();
        let since = entry.0;
        self.is_any.store(true, Relaxed);
        drop(stores);
        if is_new {
            (self.log)(&format!("{store} is away, and programs that need it wait: {why}"));
        }
        let away = now.saturating_sub(since);
        self.limit.is_none_or(|limit| away < limit)
            && (away.as_millis() as u64) < self.ending_ms.load(Relaxed)
    }

    /// Notes that a store answered, so it is no longer away.
    #[inline]
    pub(crate) fn note_back(&self, store: &'static str) {
        if !self.is_any.load(Relaxed) {
            return;
        }
        let mut stores = self.stores.lock();
        let Some((since, _)) = stores.remove(store) else { return };
        self.is_any.store(!stores.is_empty(), Relaxed);
        drop(stores);
        let away = self.world.monotonic().saturating_sub(since);
        (self.log)(&format!("{store} is back after {:.1} s", away.as_secs_f64()));
    }

    /// Whether any store is away.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    /// How long a store has been away.
    pub(crate) fn how_long(&self, store: &'static str) -> Option<Duration> {
        let since = self.stores.lock().get(store)?.0;
        Some(self.world.monotonic().saturating_sub(since))
    }

    /// How long others wait.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Something ends: nothing is waited for longer than this, from now on.
    pub(crate) fn end(&self, patience: Duration) {
        self.ending_ms.fetch_min(patience.as_millis() as u64, Relaxed);
        let now = self.world.monotonic();
        self.stores.lock().values_mut().for_each(|(since, _)| *since = now);
    }

    /// Sleeps between two attempts to reach a store.
    pub(crate) fn pause(&self) {
        thread::sleep(PAUSE);
    }

    pub(crate) fn json(&self) -> Value {
        let now = self.world.monotonic();
        let stores = self.stores.lock();
        let of = |(store, (since, why)): (&&str, &(Duration, String))| json!({ "store": store, "away_ms": now.saturating_sub(*since).as_millis() as u64, "error": why });
        stores.iter().map(of).collect()
    }
}
