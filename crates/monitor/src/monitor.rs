//! The traits: a store of the map, a server's liveness in it, and a watch over both.

use std::collections::BTreeMap;
use std::time::Duration;

use chiton_types::Time;
use serde::{Deserialize, Serialize};

use crate::map::limit;
use crate::{ChangeError, ClusterMap, MapChange, MapError, MapIncrement, MonitorError, TEXT_BYTES_MAX};

/// Audit lines that a store keeps.
pub const AUDIT_LINES_KEPT: u64 = 10_000;
/// Increments that a store keeps. A watch that is further behind gets the whole map.
pub const INCREMENTS_KEPT: u64 = 128;
/// Conditions of one change.
pub const CONDITIONS_MAX: usize = 64;
/// Changes that an audit line names; it counts the rest.
const AUDITED_CHANGES: usize = 8;

/// The living servers and their generations.
pub type Alive = BTreeMap<u64, u64>;

/// A condition on a server's liveness, which must hold when a change happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No server with this id lives.
    Gone(u64),
    /// The server with this id lives, with this generation.
    Alive(u64, u64),
}

impl Condition {
    /// Whether it is true. `alive`: the generation of a server that lives.
    pub fn holds(self, alive: impl Fn(u64) -> Option<u64>) -> bool {
        match self {
            Condition::Gone(id) => alive(id).is_none(),
            Condition::Alive(id, generation) => alive(id) == Some(generation),
        }
    }
}

/// The record of one change for administrators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// The epoch that the change led to.
    pub epoch: u64,
    /// Wall-clock time of its author, in milliseconds since 1970.
    pub at_ms: i64,
    pub who: String,
    pub why: String,
    /// The changes, in words.
    pub changes: String,
}

/// A change before it is stored: the new map, the increment that leads to it, and its audit line. All stores prepare changes with this.
pub struct Prepared {
    pub map: ClusterMap,
    pub increment: MapIncrement,
    pub line: AuditLine,
}

impl Prepared {
    /// A change of this map. `at`: the wall-clock time of its author.
    ///
    /// # Errors
    /// [`MapError`] if the map refuses the changes, or something is too long to be stored.
    pub fn new(
        map: &ClusterMap,
        requires: &[Condition],
        changes: &[MapChange],
        at: Time,
        who: &str,
        why: &str,
    ) -> Result<Prepared, MapError> {
        limit("conditions", requires.len(), CONDITIONS_MAX)?;
        limit("bytes in the name of a change's author", who.len(), TEXT_BYTES_MAX)?;
        limit("bytes in the reason of a change", why.len(), TEXT_BYTES_MAX)?;
        let (map, increment) = map.changed(changes)?;
        // A map or increment that is too long could not be read again.
        map.to_json()?;
        increment.to_json()?;
        let mut named: Vec<String> = changes.iter().take(AUDITED_CHANGES).map(MapChange::to_string).collect();
        let more = changes.len() - named.len();
        if more > 0 {
            named.push(format!("{more} more"));
        }
        let line = AuditLine {
            epoch: increment.to,
            at_ms: at.0.div_euclid(1_000_000),
            who: who.into(),
            why: why.into(),
            changes: named.join("; "),
        };
        Ok(Prepared { map, increment, line })
    }
}

/// The store of a cluster's map. Its calls wait for the store; all threads may share one.
pub trait Monitor: Send + Sync {
    /// Stores the first map, of epoch 1.
    ///
    /// # Errors
    /// [`MonitorError::Initialized`] if there is one.
    fn init(&self, filesystem: u64, plates: u32, lease_ms: u32) -> Result<(), MonitorError>;

    /// The map, with every change that returned before this call.
    fn map(&self) -> Result<ClusterMap, MonitorError>;

    /// Changes the map atomically, if it is of `expected_epoch` and every condition of `requires` holds at that
    /// moment. Returns the new epoch. `who` and `why` are for the [`Monitor::history`].
    fn change(
        &self,
        expected_epoch: u64,
        requires: &[Condition],
        changes: &[MapChange],
        who: &str,
        why: &str,
    ) -> Result<u64, ChangeError>;

    /// The last `count` changes, the newest first. A store keeps [`AUDIT_LINES_KEPT`].
    fn history(&self, count: usize) -> Result<Vec<AuditLine>, MonitorError>;

    /// Makes the server live for the lease of the map.
    ///
    /// # Errors
    /// [`MonitorError::Registered`] while a server with this id lives, whatever its generation.
    fn register(&self, id: u64, generation: u64) -> Result<Box<dyn Liveness>, MonitorError>;

    /// The servers that live now.
    fn alive(&self) -> Result<Alive, MonitorError>;

    /// Everything that happens after epoch `since_epoch`; with 0 the whole map comes first. A new watch begins with
    /// [`Event::Servers`], so its reader needs no start of its own.
    fn watch(&self, since_epoch: u64) -> Box<dyn Watch>;
}

/// A server's registration. Dropped without [`Liveness::leave`], it ends when its lease does.
pub trait Liveness: Send {
    /// Begins the lease anew. The caller counts it from before this call, by its own clock, and calls again well
    /// before it ends.
    ///
    /// # Errors
    /// [`MonitorError::Expired`] if it has ended.
    fn renew(&mut self) -> Result<(), MonitorError>;

    /// The granted lease. A store may grant more than the map asks for.
    fn valid_for(&self) -> Duration;

    /// Ends the lease now.
    fn leave(self: Box<Self>) -> Result<(), MonitorError>;
}

/// A stream of [`Event`]s. It survives lost connections, and misses no epoch.
pub trait Watch: Send {
    /// The next event, or none within `timeout`.
    fn next(&mut self, timeout: Duration) -> Option<Event>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The increment from the last epoch that the watch delivered.
    Map(MapIncrement),
    /// The whole map, because increments up to it are missing. Its epoch may be lower than the last one, if the
    /// store was restored from a backup.
    Whole(ClusterMap),
    /// The living servers may have changed: ask [`Monitor::alive`].
    Servers,
}
