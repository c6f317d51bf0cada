//! The scheduler: a thread that resumes requests which wait for rows, durability or time, and frees orphans.

use std::path::Path;
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use chiton_journal::JournalError;
use chiton_types::Position;
use chiton_wire::TOOL_IDENTITY;

use crate::away::JOURNAL;
use crate::plate::Plate;
use crate::reserve::{self, Room};
use crate::tree_jobs::JOB_IDENTITY;
use chiton_engine::{Engine, Health, Moment, Progress};

/// How often sessions and the recovery window are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How large a bucket is said to be, and how much of it free: nobody knows, and programs refuse to write where nothing is.
const BUCKET_BYTES: u64 = 1 << 50;
/// Steps of freeing orphans between two looks at everything else.
const BACKGROUND_STEPS: usize = 64;

/// Progress of requests, or of freeing orphans.
enum Work {
    Requests(Progress),
    Orphans(Progress),
}

/// A few steps of freeing orphans.
fn free_orphans(engine: &mut Engine, m: &Moment) -> Progress {
    for _ in 0..BACKGROUND_STEPS {
        match engine.run_background(m) {
            Progress::More => {}
            progress => return progress,
        }
    }
    Progress::More
}

impl Plate {
    /// Runs until the server stops.
    pub(crate) fn schedule(&self) {
        let mut next_tick = Duration::ZERO;
        let mut durable_before = Position(0);
        while !self.is_stopping() {
            let mono = self.world.monotonic();
            let is_tick = mono >= next_tick;
            if is_tick {
                next_tick = mono + TICK;
                self.note_opened();
                self.probe(&mut durable_before);
                self.condition.log_limit.summaries(mono).iter().for_each(|line| self.log(line));
            }
            if is_tick {
                self.refresh_disk();
                self.note_present();
                self.note_ended();
                let wanted = self.unless_only_lazy(|engine, m| {
                    engine.tick(m);
                    engine.durable_wanted()
                });
                if let Some(position) = wanted.flatten() {
                    self.waiters.commits.engine_waits(position);
                    self.journal.request_commit();
                }
            }
            if self.waiters.commits.engine_is_due(self.journal.durable()) {
                self.unless_only_lazy(|engine, m| {
                    engine.durable_advanced(m);
                    self.waiters.commits.engine_waits_only(engine.durable_wanted());
                });
            }
            if !self.schedule_once() {
                self.waiters.commits.scheduler_wake_up.wait(TICK);
            }
        }
    }

    /// Reports how long the start took, once new requests are carried out.
    fn note_opened(&self) {
        if self.has_opened.load(Relaxed) {
            return;
        }
        let Some(opened) = self.engine.lock_as_it_is().opened() else { return };
        self.has_opened.store(true, Relaxed);
        let phases = {
            let mut phases = self.start.lock();
            phases.done_at("clients", opened);
            phases.clone()
        };
        if self.kind.has_checkpoints() && !self.peers.is_alone() {
            self.log(&format!("plate {} was ready for new requests after {phases}", self.plate));
        }
    }

    /// While sessions come back: which clients have a connection to this server. Only a server that clients had a reason
    /// to connect to before can recognise that one is gone: one that served another plate already. A standby cannot.
    fn note_present(&self) {
        let Some(table) = self.table.get().and_then(Weak::upgrade) else { return };
        let recovers = |plate: &Plate| plate.engine.lock_as_it_is().recovery_state().is_some();
        if !recovers(self) || table.all().iter().all(|other| recovers(&other.plate)) {
            return;
        }
        let present = table.present();
        self.with_engine_as_it_is(|engine, _| engine.note_present(|identity| present.contains(identity)));
    }

    /// While sessions come back: which of them cannot. The client of a job ends with its server; in a cluster that may be another one, which
    /// runs on.
    fn note_ended(&self) {
        if self.engine.lock_as_it_is().recovery_state().is_none() {
            return;
        }
        let is_alone = self.info.monitor.is_none();
        let has_ended =
            |who: &str| who.starts_with(TOOL_IDENTITY) || is_alone && who.starts_with(JOB_IDENTITY);
        self.with_engine_as_it_is(|engine, _| engine.note_ended(has_ended));
    }

    /// Calls the engine, but not while the only session makes files and nobody waits for anything: then nothing is
    /// brought into memory for the scheduler's sake.
    fn unless_only_lazy<R>(&self, f: impl FnOnce(&mut Engine, &Moment) -> R) -> Option<R> {
        self.with_engine_if(
            |engine| !engine.has_pending() || engine.is_ready() || engine.durable_wanted().is_some(),
            f,
        )
    }

    /// Takes what other plates have sent, and advances the engine's queues a little; false if there was nothing to do.
    pub(crate) fn schedule_once(&self) -> bool {
        self.hear_peers() | self.run_queues()
    }

    fn run_queues(&self) -> bool {
        let turn = self.unless_only_lazy(|engine, m| {
            let work = match engine.run(m) {
                Progress::Idle => Work::Orphans(free_orphans(engine, m)),
                progress => Work::Requests(progress),
            };
            (work, engine.namespace().generation())
        });
        let Some((work, generation)) = turn else { return false };
        match work {
            Work::Requests(Progress::Idle) | Work::Orphans(Progress::Idle) => false,
            Work::Requests(Progress::More) | Work::Orphans(Progress::More) => true,
            Work::Requests(Progress::NeedRows(needs)) => {
                if self.supply(&needs, generation).is_err() {
                    self.with_engine(|engine, m| engine.fail_first(m));
                }
                true
            }
            Work::Orphans(Progress::NeedRows(needs)) => {
                if self.supply(&needs, generation).is_err() {
                    self.with_engine(|engine, _| engine.leave_orphan());
                }
                true
            }
        }
    }

    /// Asks the journal how it does when it has not got on since the last time.
    fn probe(&self, durable_before: &mut Position) {
        let (last, durable) = (self.journal.last(), self.journal.durable());
        let stuck = last > durable && durable == *durable_before;
        *durable_before = durable;
        if stuck || self.health() != Health::Good || self.condition.away.is_any() {
            self.journal.request_commit();
            let trouble = self.journal.trouble();
            self.set_health(trouble.as_ref().map_or(Ok(()), Err));
            if trouble.as_ref().is_some_and(JournalError::is_away) {
                let away = self.condition.away.how_long(JOURNAL).unwrap_or_default();
                if self.condition.away.limit().is_some_and(|limit| away >= limit) {
                    self.refuse_commits();
                }
            } else if trouble.is_some() {
                self.refuse_commits();
            } else {
                // Frames for which there was no room may go now.
                self.with_engine_as_it_is(|engine, _| engine.room_changed());
            }
        }
    }

    fn refresh_disk(&self) {
        let Some(path) = self.blocks.address.strip_prefix("local:") else {
            return self.engine.lock_as_it_is().set_disk(BUCKET_BYTES, BUCKET_BYTES);
        };
        if let Some(Room { total, free }) = reserve::room(Path::new(path)) {
            let free = self.look_at_room(free);
            self.engine.lock_as_it_is().set_disk(total, free);
        }
    }
}
