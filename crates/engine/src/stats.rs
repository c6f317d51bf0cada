//! How much there is of everything, for reports.

use std::time::Duration;

use chiton_types::SessionId;
use serde_json::{Value, json};

use crate::engine::Engine;

impl Engine {
    /// Sizes of tables that are known without counting, and how often each kind of request came.
    pub fn sizes(&mut self) -> Value {
        let recovery = self.recovery_state();
        let ns = &self.shards.ns;
        json!({
            "cache_bytes": ns.memory_bytes(),
            "dirty_rows": ns.dirty_rows(),
            "inodes": ns.inode_count(),
            "applied": self.output.position.0,
            "sessions": self.clients.sessions.len(),
            "open_inodes": self.clients.opens.len(),
            "leases": self.clients.leases.len(),
            "recalls": self.clients.leases.recall_count() + self.clients.growths.len(),
            "locks": self.clients.locks.len(),
            "waiting": self.queue.waiting.len(),
            "orphans": self.shards.orphans.len(),
            "recovery": recovery.map(|(waited_for, resends)| json!({ "sessions": waited_for, "resends": resends })),
            "operations": self.operations(),
        })
    }

    /// The same, and the figures that must be counted.
    pub fn figures(&mut self) -> Value {
        let mut figures = self.sizes();
        let ns = &self.shards.ns;
        let (reserved, used) =
            ns.decouplings().map(|d| d.map.numbers()).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        figures["garbage_blocks"] = json!(ns.garbage(usize::MAX).len());
        figures["decouplings"] = json!(ns.decouplings().count());
        figures["inode_numbers"] = json!({ "reserved_by_decouplings": reserved, "of_these_merged": used });
        figures
    }

    /// How often each kind of request came.
    pub fn operations(&self) -> Value {
        self.counters.iter().map(|(name, count)| (name.to_owned(), json!(count))).collect()
    }

    /// Counts commits that the runtime answered without the engine.
    pub fn committed_elsewhere(&mut self, commits: u64) {
        self.counters.count_more(crate::counters::COMMIT, commits);
    }

    /// Bytes of the disk, all and free, as [`Engine::set_disk`] last set them.
    pub fn disk(&self) -> (u64, u64) {
        self.disk
    }

    /// A line for each session.
    pub fn session_figures(&self, mono: Duration) -> Vec<(SessionId, Value)> {
        let line = |(id, session): (SessionId, &crate::sessions::Session)| {
            let figures = json!({
                "session": id.0,
                "identity": session.identity,
                "embedded": session.volatile,
                "silent_ms": mono.saturating_sub(session.heard).as_millis() as u64,
                "requests": session.request_count,
                "unsettled": session.dedup.len(),
            });
            (id, figures)
        };
        self.clients.sessions.iter().map(line).collect()
    }
}
