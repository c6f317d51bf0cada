//! How much there is of everything, for reports.

use std::time::Duration;

use chiton_types::{Position, SessionId};
use serde_json::{Value, json};

use crate::engine::{Counters, Engine};

/// Numbers of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) applied: Position,
    pub(crate) sessions: usize,
    pub(crate) open_inodes: usize,
    pub(crate) leases: usize,
    pub(crate) recalls: usize,
    pub(crate) locks: usize,
    pub(crate) parked: usize,
    pub(crate) orphans: usize,
}

impl Engine {
    pub(crate) fn counts(&self) -> Census {
        Census {
            applied: self.position,
            sessions: self.sessions.len(),
            open_inodes: self.opens.len(),
            leases: self.leases.len(),
            recalls: self.leases.recall_count() + self.growths.len(),
            locks: self.locks.len(),
            parked: self.parked.len(),
            orphans: self.orphans.len(),
        }
    }

    /// Counts commits that the runtime answered without the engine.
    pub(crate) fn committed_elsewhere(&mut self, commits: u64) {
        self.counters.count_more(super::counters::COMMIT, commits);
    }

    /// How often what was done.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn disk(&self) -> (u64, u64) {
        self.disk
    }

    /// A line for each session.
    pub(crate) fn session_figures(&self, mono: Duration) -> Vec<(SessionId, Value)> {
        let line = |(id, session): (SessionId, &crate::engine::sessions::Session)| {
            let figures = json!({
                "session": id.0,
                "identity": session.identity,
                "embedded": session.volatile,
                "silent_ms": mono.saturating_sub(session.heard).as_millis() as u64,
                "requests": session.request_count,
                "unsettled": session.window.len(),
            });
            (id, figures)
        };
        self.sessions.iter().map(line).collect()
    }
}
