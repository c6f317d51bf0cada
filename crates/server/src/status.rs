//! Reports for administrators: `status`, `df`, `top`, `metrics`, as JSON.

use std::sync::atomic::Ordering::Relaxed;

use chiton_engine::Health;
use chiton_types::Refusal;
use chiton_wire::{Answer, Failure};
use serde_json::{Value, json};

use crate::plate::Plate;

impl Plate {
    pub(crate) fn admin(&self, what: &str) -> Result<Answer, Failure> {
        match self.report_of_all(what) {
            Some(text) => Ok(Answer::Bytes(text.into_bytes())),
            None => Err(Failure::Refused(Refusal::Invalid)),
        }
    }

    /// The answer of this plate to a word; `None` if it is not one of ours.
    pub(crate) fn report(&self, what: &str) -> Option<Value> {
        Some(match what {
            "status" => self.status(),
            "metrics" => self.metrics(),
            "df" => self.df(),
            "top" => self.top(),
            "cluster" => json!({ "monitor": self.info.monitor }),
            "policies" => self.policies()?,
            _ => return None,
        })
    }

    fn status(&self) -> Value {
        let mut value = self.metrics();
        value["filesystem"] = json!(format!("{:016x}", self.info.filesystem));
        value["monitor"] = json!(self.info.monitor);
        value["shards"] = json!(self.info.shards);
        value["boot"] = json!(format!("{:016x}", self.boot));
        value["objects"] = json!(self.blocks.address);
        value["decoupled"] = self.engine.lock().realms_json();
        let now = self.world.now();
        for one in value["decoupled"].as_array_mut().into_iter().flatten() {
            let age = one["since_ns"].as_i64().map(|since| now.0.saturating_sub(since).max(0) / 1_000_000);
            one["age_ms"] = json!(age);
        }
        value["clients"] = self.top()["sessions"].take();
        value["disk"] = self.df();
        value
    }

    fn metrics(&self) -> Value {
        let meta = self.rows.meta.get().stats().ok();
        let journal = self.place_bytes();
        let (durable, last) = (self.journal.durable(), self.journal.last());
        let health = match (self.health(), self.checkpoints.store_full.load(Relaxed)) {
            (Health::Failed, _) => "failed",
            (Health::Full, _) | (_, true) => "full",
            (Health::Good, false) if self.is_tight() => "full",
            (Health::Good, false) if self.condition.away.is_any() => "waiting",
            (Health::Good, false) => "good",
        };
        let commits = self.waiters.commits.len();
        let mut engine = self.engine.lock();
        engine.committed_elsewhere(self.waiters.commits.here.swap(0, Relaxed));
        let mut value = engine.figures();
        drop(engine);
        value["health"] = json!(health);
        value["durable"] = json!(durable.0);
        value["lag_events"] = json!(last.0.saturating_sub(durable.0));
        value["uptime_errors"] = json!(self.condition.errors.load(Relaxed));
        value["waiting_commits"] = json!(commits);
        value["journal"] = json!({
            "segments": journal.0,
            "bytes": journal.1,
            "first": self.journal.first().0,
            "appended_bytes": self.checkpoints.appended_bytes.load(Relaxed),
            "segments_created": self.place.metered().created.load(Relaxed),
            "segments_removed": self.place.metered().removed.load(Relaxed),
            "appends": self.place.metered().appends.load(Relaxed),
            "syncs": self.place.metered().syncs.load(Relaxed),
            "written_bytes": self.place.metered().written_bytes.load(Relaxed),
        });
        value["object_store"] = self.object_store();
        value["away"] = self.condition.away.json();
        value["reserve"] = match &self.space.reserve {
            Some(reserve) => json!({
                "wanted_bytes": reserve.wanted(),
                "held_bytes": reserve.held(),
                "refused": reserve.refused(),
            }),
            None => Value::Null,
        };
        value["checkpoint"] = json!({
            "position": self.checkpoints.position.load(Relaxed),
            "age_ms": self.checkpoint_age().as_millis() as u64,
            "count": self.checkpoints.count.load(Relaxed),
        });
        value["metadata_store"] = json!({
            "disk_bytes": meta.map(|stats| stats.disk_bytes),
            "rows": meta.map(|stats| stats.rows_approx),
        });
        value["journals"] = json!([self.journal_status(journal)]);
        value["ended_sessions_to_sweep"] = json!(self.blocks.dead_writers.lock().len());
        value["monotonic_ms"] = json!(self.world.monotonic().as_millis() as u64);
        value
    }

    /// Traffic from this process to the object store since the server started: blocks of files, and objects of decoupled
    /// clients. (The journal has figures of its own; a client that reaches the store directly is not counted.)
    fn object_store(&self) -> Value {
        let counters = self.blocks.metered.counters();
        let gets = counters.gets.load(Relaxed);
        let events = self.journal.last().0.saturating_sub(self.begun_at.0);
        json!({
            "gets": gets,
            "puts": counters.puts.load(Relaxed) + counters.puts_if_absent.load(Relaxed),
            "sizes": counters.sizes.load(Relaxed),
            "deletes": counters.deletes.load(Relaxed),
            "lists": counters.lists.load(Relaxed),
            "syncs": counters.syncs.load(Relaxed),
            "errors": counters.errors.load(Relaxed),
            "read_bytes": counters.read_bytes.load(Relaxed),
            "written_bytes": counters.written_bytes.load(Relaxed),
            "events": events,
            "gets_per_1000_events": gets.saturating_mul(1_000).checked_div(events),
        })
    }

    /// How much of the journal is durable, and how far behind durability and checkpoints are.
    fn journal_status(&self, (segments, bytes): (usize, u64)) -> Value {
        let (durable, last) = (self.journal.durable(), self.journal.last());
        let load = self.replay_load(last);
        let (rate, target) = (self.checkpoints.policy.rate, self.checkpoints.policy.target);
        let replay = rate.time(self.charged_load(last));
        let failure = self.checkpoints.failure.lock().clone();
        let state = match (
            self.checkpoints.store_full.load(Relaxed),
            &failure,
            self.checkpoints.running.load(Relaxed),
        ) {
            (true, ..) => "failing: no space",
            (false, Some(_), _) => "failing",
            (false, None, true) => "running",
            (false, None, false) => "idle",
        };
        let stored = self.checkpoints.position.load(Relaxed);
        json!({
            "name": "server",
            "plate": self.plate.0,
            "written": last.0,
            "durable": durable.0,
            "not_durable": {
                "events": last.0.saturating_sub(durable.0),
                "bytes": self.journal.pending_bytes(),
                "oldest_ms": self.oldest_not_durable().as_millis() as u64,
            },
            "checkpointed": stored,
            "not_checkpointed": { "events": load.events, "bytes": load.bytes },
            "checkpoints": {
                "state": state,
                "failure": failure,
                "done": self.checkpoints.count.load(Relaxed),
                "last_ms_ago": self.checkpoint_age().as_millis() as u64,
            },
            "replay": {
                "estimate_ms": replay.as_millis() as u64,
                "target_ms": target.as_millis() as u64,
                "within_target": replay <= target,
                "events_per_second": rate.events_per_second as u64,
                "measured": rate.measured,
            },
            "first": self.journal.first().0,
            "segments": segments,
            "bytes": bytes,
        })
    }

    fn df(&self) -> Value {
        let (disk, inodes) = {
            let mut engine = self.engine.lock();
            (engine.disk(), engine.namespace().inode_count())
        };
        json!({ "bytes_total": disk.0, "bytes_free": disk.1, "inodes_used": inodes })
    }

    /// `None` if rows cannot be read.
    fn policies(&self) -> Option<Value> {
        loop {
            let (result, generation) = {
                let mut engine = self.engine.lock();
                let generation = engine.namespace().generation();
                (engine.policies_json(), generation)
            };
            match result {
                Ok(value) => return Some(value),
                Err(chiton_namespace::Fault::Missing(needs)) => self.supply(&needs, generation).ok()?,
                Err(_) => return None,
            }
        }
    }

    fn top(&self) -> Value {
        let mono = self.world.monotonic();
        let (sessions, operations) = {
            let mut engine = self.engine.lock();
            engine.committed_elsewhere(self.waiters.commits.here.swap(0, Relaxed));
            (engine.session_figures(mono), engine.operations())
        };
        let rows = sessions.into_iter().map(|(session, mut figures)| {
            figures["connected"] = json!(self.waiters.channels.is_connected(session));
            figures
        });
        json!({
            "sessions": rows.collect::<Vec<_>>(),
            "operations": operations,
            "monotonic_ms": mono.as_millis() as u64,
        })
    }

    /// Segments and bytes of the journal; zeros if its place cannot be asked.
    fn place_bytes(&self) -> (usize, u64) {
        use chiton_journal::Place;
        let segments = self.place.list().unwrap_or_default();
        (segments.len(), segments.iter().map(|segment| segment.bytes).sum())
    }
}
