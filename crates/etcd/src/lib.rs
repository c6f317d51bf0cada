//! The cluster's map in etcd.
//!
//! ```text
//!   caller's thread ──▶ EtcdMonitor ──▶ one member at a time; the next one after a failure
//!
//!   PREFIX/map                        the map
//!   PREFIX/events/increments/EPOCH    the last changes, for watches
//!   PREFIX/events/alive/SERVER        a living server's generation, with its lease
//!   PREFIX/audit/EPOCH                the history
//! ```
//!
//! Invariants:
//! - A change of the map is one transaction: map, increment and audit line together, if the map is unchanged and all conditions hold.
//! - A call whose answer was lost is repeated, and finds out whether it has happened already. So one member that fails, or a change
//!   of etcd's leader, fails no call.
//! - A watch never skips an epoch: after each new connection it reads what it has missed.

mod address;
mod calls;
mod liveness;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_monitor::{
    AUDIT_LINES_KEPT, Alive, AuditLine, ChangeError, ClusterMap, Condition, INCREMENTS_KEPT, Liveness,
    MapChange, MapIncrement, Monitor, MonitorError, Prepared, Watch,
};
use chiton_runtime::{RealWorld, SharedWorld};
use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
};
use serde::{Deserialize, Serialize};

pub use address::EtcdAddress;
use calls::{Calls, PATIENCE};
use liveness::EtcdLiveness;
use watch::EtcdWatch;

/// Clones share their connections.
#[derive(Clone)]
pub struct EtcdMonitor(Arc<Shared>);

struct Shared {
    calls: Calls,
    keys: Keys,
    world: SharedWorld,
}

/// The names of the keys.
struct Keys {
    prefix: String,
}

impl Keys {
    fn map(&self) -> String {
        format!("{}/map", self.prefix)
    }

    /// The prefix of all keys that watches follow.
    fn events(&self) -> String {
        format!("{}/events/", self.prefix)
    }

    fn increments(&self) -> String {
        format!("{}/events/increments/", self.prefix)
    }

    /// Numbers have leading zeros, so that the order of keys is theirs.
    fn increment(&self, to: u64) -> String {
        format!("{}{to:020}", self.increments())
    }

    fn living(&self) -> String {
        format!("{}/events/alive/", self.prefix)
    }

    fn alive(&self, server: u64) -> String {
        format!("{}{server:020}", self.living())
    }

    fn audits(&self) -> String {
        format!("{}/audit/", self.prefix)
    }

    fn audit(&self, epoch: u64) -> String {
        format!("{}{epoch:020}", self.audits())
    }
}

/// An increment, and the mark by which its author knows it again.
#[derive(Serialize, Deserialize)]
struct StoredIncrement {
    nonce: u64,
    increment: MapIncrement,
}

impl StoredIncrement {
    fn to_json(&self) -> Result<Vec<u8>, MonitorError> {
        serde_json::to_vec(self).map_err(|e| MonitorError::Corrupt(e.to_string()))
    }

    fn from_json(bytes: &[u8]) -> Result<StoredIncrement, MonitorError> {
        serde_json::from_slice(bytes).map_err(|e| MonitorError::Corrupt(format!("an increment: {e}")))
    }
}

impl EtcdMonitor {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// [`MonitorError::Unavailable`] if an address makes no sense.
    pub fn open(address: &EtcdAddress) -> Result<EtcdMonitor, MonitorError> {
        let keys = Keys { prefix: address.prefix.clone() };
        let calls = Calls::open(address)?;
        Ok(EtcdMonitor(Arc::new(Shared { calls, keys, world: Arc::new(RealWorld) })))
    }
}

impl Shared {
    /// The map, and the revision of its key; `None` if there is none.
    fn find_map(&self) -> Result<Option<(ClusterMap, i64)>, MonitorError> {
        let key = self.keys.map();
        let found = self.calls.call(PATIENCE, async |client| client.get(key.as_str(), None).await)?;
        found.kvs().first().map(|kv| Ok((map_of(kv.value())?, kv.mod_revision()))).transpose()
    }

    fn need_map(&self) -> Result<(ClusterMap, i64), MonitorError> {
        self.find_map()?.ok_or(MonitorError::Uninitialized)
    }

    fn alive(&self) -> Result<Alive, MonitorError> {
        let prefix = self.keys.living();
        let all = || Some(GetOptions::new().with_prefix());
        let found = self.calls.call(PATIENCE, async |client| client.get(prefix.as_str(), all()).await)?;
        found.kvs().iter().map(|kv| self.living(kv)).collect()
    }

    /// The server and its generation that a key of a living server has.
    fn living(&self, kv: &KeyValue) -> Result<(u64, u64), MonitorError> {
        let corrupt = || MonitorError::Corrupt(format!("the key {}", String::from_utf8_lossy(kv.key())));
        let number = |text: &[u8]| str::from_utf8(text).ok()?.parse::<u64>().ok();
        let server = kv.key().strip_prefix(self.keys.living().as_bytes()).and_then(number);
        Ok((server.ok_or_else(corrupt)?, number(kv.value()).ok_or_else(corrupt)?))
    }

    /// Whether this author has made the change to this epoch.
    fn has_made(&self, epoch: u64, nonce: u64) -> Result<bool, MonitorError> {
        let key = self.keys.increment(epoch);
        let found = self.calls.call(PATIENCE, async |client| client.get(key.as_str(), None).await)?;
        let stored = found.kvs().first().map(|kv| StoredIncrement::from_json(kv.value())).transpose()?;
        Ok(stored.is_some_and(|stored| stored.nonce == nonce))
    }

    fn condition(&self, condition: &Condition) -> Compare {
        match condition {
            Condition::Gone(id) => Compare::version(self.keys.alive(*id), CompareOp::Equal, 0),
            Condition::Alive(id, generation) => {
                Compare::value(self.keys.alive(*id), CompareOp::Equal, generation.to_string())
            }
        }
    }

    /// The transaction of a prepared change of the map that has this revision.
    fn transaction(
        &self,
        prepared: &Prepared,
        revision: i64,
        requires: &[Condition],
        nonce: u64,
    ) -> Result<Txn, MonitorError> {
        let Prepared { map, increment, line } = prepared;
        let keys = &self.keys;
        let mut when = vec![Compare::mod_revision(keys.map(), CompareOp::Equal, revision)];
        when.extend(requires.iter().map(|condition| self.condition(condition)));
        let stored = StoredIncrement { nonce, increment: increment.clone() };
        let line = serde_json::to_vec(line).map_err(|e| MonitorError::Corrupt(e.to_string()))?;
        let mut then = vec![
            TxnOp::put(keys.map(), map.to_json()?, None),
            TxnOp::put(keys.increment(map.epoch), stored.to_json()?, None),
            TxnOp::put(keys.audit(map.epoch), line, None),
        ];
        let old = map.epoch.checked_sub(INCREMENTS_KEPT);
        then.extend(old.map(|epoch| TxnOp::delete(keys.increment(epoch), None)));
        let old = map.epoch.checked_sub(AUDIT_LINES_KEPT);
        then.extend(old.map(|epoch| TxnOp::delete(keys.audit(epoch), None)));
        Ok(Txn::new().when(when).and_then(then))
    }
}

fn map_of(json: &[u8]) -> Result<ClusterMap, MonitorError> {
    ClusterMap::from_json(json).map_err(|e| MonitorError::Corrupt(format!("the map: {e}")))
}

impl Monitor for EtcdMonitor {
    fn init(&self, filesystem: u64, plates: u32, lease_ms: u32) -> Result<(), MonitorError> {
        let Shared { calls, keys, world } = &*self.0;
        let map = ClusterMap::new(filesystem, plates, lease_ms)?;
        let nonce = world.random();
        // Watches follow increments, so this one announces the first map.
        let increment = MapIncrement { from: 0, to: map.epoch, changes: Vec::new() };
        let stored = StoredIncrement { nonce, increment }.to_json()?;
        let json = map.to_json()?;
        let txn = Txn::new().when([Compare::version(keys.map(), CompareOp::Equal, 0)]).and_then([
            TxnOp::put(keys.map(), json, None),
            TxnOp::put(keys.increment(map.epoch), stored, None),
        ]);
        let done = calls.call(PATIENCE, async |client| client.txn(txn.clone()).await)?;
        if done.succeeded() || self.0.has_made(map.epoch, nonce)? {
            return Ok(());
        }
        let (found, _) = self.0.need_map()?;
        Err(MonitorError::Initialized { filesystem: found.filesystem })
    }

    fn map(&self) -> Result<ClusterMap, MonitorError> {
        Ok(self.0.need_map()?.0)
    }

    fn change(
        &self,
        expected_epoch: u64,
        requires: &[Condition],
        changes: &[MapChange],
        who: &str,
        why: &str,
    ) -> Result<u64, ChangeError> {
        let shared = &*self.0;
        let nonce = shared.world.random();
        loop {
            let (map, revision) = shared.need_map()?;
            if map.epoch != expected_epoch {
                return match shared.has_made(expected_epoch + 1, nonce)? {
                    true => Ok(expected_epoch + 1),
                    false => Err(ChangeError::Outdated(map.epoch)),
                };
            }
            let prepared = Prepared::new(&map, requires, changes, shared.world.now(), who, why)?;
            let txn = shared.transaction(&prepared, revision, requires, nonce)?;
            let done = shared.calls.call(PATIENCE, async |client| client.txn(txn.clone()).await)?;
            if done.succeeded() {
                return Ok(prepared.map.epoch);
            }
            // Either the map is another one, which the next round sees, or a condition is broken.
            let alive = shared.alive()?;
            let is_broken = |condition: &&Condition| !condition.holds(|id| alive.get(&id).copied());
            let broken = requires.iter().find(is_broken).copied();
            if let Some(broken) =
                broken.filter(|_| shared.find_map().is_ok_and(|now| now == Some((map, revision))))
            {
                return Err(ChangeError::Condition(broken));
            }
        }
    }

    fn history(&self, count: usize) -> Result<Vec<AuditLine>, MonitorError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let prefix = self.0.keys.audits();
        let newest = || {
            let count = count.min(AUDIT_LINES_KEPT as usize) as i64;
            let options = GetOptions::new().with_prefix().with_limit(count);
            Some(options.with_sort(SortTarget::Key, SortOrder::Descend))
        };
        let found =
            self.0.calls.call(PATIENCE, async |client| client.get(prefix.as_str(), newest()).await)?;
        let line = |kv: &KeyValue| {
            serde_json::from_slice(kv.value())
                .map_err(|e| MonitorError::Corrupt(format!("an audit line: {e}")))
        };
        found.kvs().iter().map(line).collect()
    }

    fn register(&self, id: u64, generation: u64) -> Result<Box<dyn Liveness>, MonitorError> {
        let shared = &self.0;
        let (map, _) = shared.need_map()?;
        // etcd counts in seconds, and grants more than that if its own elections take longer.
        let seconds = i64::from(map.lease_ms.div_ceil(1000));
        let grant = shared.calls.call(PATIENCE, async |client| client.lease_grant(seconds, None).await)?;
        let lease = grant.id();
        let liveness = EtcdLiveness::new(shared.clone(), id, lease, grant.ttl());
        let key = shared.keys.alive(id);
        let txn = Txn::new()
            .when([Compare::version(key.as_str(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(
                key.as_str(),
                generation.to_string(),
                Some(PutOptions::new().with_lease(lease)),
            )])
            .or_else([TxnOp::get(key.as_str(), None)]);
        let done = shared.calls.call(PATIENCE, async |client| client.txn(txn.clone()).await)?;
        let holder = done.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(got) => got.kvs().first().cloned(),
            _ => None,
        });
        match holder {
            // The answer to an earlier try was lost.
            Some(kv) if kv.lease() == lease => Ok(Box::new(liveness)),
            Some(kv) => {
                let (id, generation) = shared.living(&kv)?;
                // If that fails, the lease ends after its time.
                let _ = Box::new(liveness).leave();
                Err(MonitorError::Registered { id, generation })
            }
            None => Ok(Box::new(liveness)),
        }
    }

    fn alive(&self) -> Result<Alive, MonitorError> {
        self.0.alive()
    }

    fn watch(&self, since_epoch: u64) -> Box<dyn Watch> {
        Box::new(EtcdWatch::new(self.0.clone(), since_epoch))
    }
}

/// The increments that are kept, by the epoch that they lead to.
type Increments = BTreeMap<u64, MapIncrement>;
