//! The checkpointer: a thread that moves changed rows to the metadata store, then trims the journal, drops clean rows
//! above the cache's size, and sweeps garbage.
//!
//! ```text
//!   begin ─ take, a slice at a time ─ journal durable up to the position? ─ commit ─ done ─ trim ─ evict ─ sweep
//! ```
//!
//! Invariants:
//! - One atomic batch: the rows, the position, inode marks, sessions.
//! - A batch is committed only when the journal is durable up to its position.
//! - A batch that was taken is tried again until it is committed: no other batch holds its rows.
//! - The namespace's rows come first and in order: so all but a few need no sorting ([`Batch`]).

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use chiton_metastore::{Batch, StoreError};
use chiton_types::Position;

use crate::plate::Plate;
use crate::realm_objects::Seen;
use crate::replay_budget::{ReplayLoad, Situation};

/// Rows that are encoded in one hold of the engine's lock.
const SLICE_ROWS: usize = 2_000;
/// How often it is looked whether a checkpoint is due by age.
const LOOK: Duration = Duration::from_millis(200);
/// Events between two such looks that are a burst.
const BURST_EVENTS: u64 = 20_000;
/// Bytes that leave the cache in one hold of the engine's lock.
const EVICT_BYTES: usize = 4 << 20;

/// About what a dirty row takes in the cache.
const DIRTY_ROW_BYTES: usize = 128;

/// A start replays so many events in a few milliseconds: not worth a checkpoint while clients wait.
const TAIL_EVENTS_MAX: u64 = 2_000;
/// Checkpoints of [`Plate::settle`], each of which is shorter than the one before.
const SETTLE_ROUNDS: usize = 4;

/// Why there is a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It is time for one.
    Due,
    /// Somebody asks for it, or the server ends.
    Requested,
}

impl Plate {
    /// Runs until the server stops.
    pub(crate) fn checkpointer(&self) {
        let mut realms = Seen::default();
        while !self.is_stopping() {
            self.checkpoints.wake_up.wait(LOOK);
            if self.is_stopping() {
                return;
            }
            if self.rows.meta.is_closed() {
                // The next caller reports the error, if it fails again.
                let _ = self.reopen_meta();
            }
            if self.owes_space() && self.reclaim_meta() {
                self.trim();
            }
            self.take_reserve();
            self.reserve_session_ids_ahead();
            if self.is_due() || self.checkpoints.store_full.load(Relaxed) {
                let before = self.checkpoints.failure.lock().clone();
                match self.checkpoint_now(Reason::Due) {
                    // Said once, however often it is tried.
                    Err(line) if before.as_deref() != Some(&line) => self.log(&line),
                    _ => {}
                }
                // Before another program takes the space that it gave back.
                self.take_reserve();
            }
            self.evict_read();
            self.sweep_writers();
            self.sweep_realm_objects(&mut realms);
            self.compact();
        }
    }

    fn is_due(&self) -> bool {
        let last = self.journal.last();
        let load = self.charged_load(last);
        let is_burst = last.0 - self.checkpoints.looked.swap(last.0, Relaxed) >= BURST_EVENTS;
        let age = self.checkpoint_age();
        let (dirty_rows, has_volatile, wanted) = {
            let mut engine = self.engine.lock();
            (engine.namespace().dirty_rows(), engine.has_volatile(), engine.wants_checkpoint())
        };
        if self.replay_load(last).events == 0 && !has_volatile {
            // One whose commit failed is tried again, even if nothing changes any more.
            return self.checkpoints.begun.lock().is_some();
        }
        // Changes that no journal holds are checkpointed by age, too.
        // In a burst the load decides: by age alone there would be one more checkpoint, in the busiest moment.
        let age = if is_burst && !has_volatile && age < self.checkpoints.policy.age * 4 {
            Duration::ZERO
        } else {
            age
        };
        wanted
            || age >= self.checkpoints.policy.age
            || self.is_due_for_room()
            || self.is_due_before_full(load)
            || self.checkpoints.policy.nears_reserve(self.replay_load(last))
            || self.checkpoints.policy.is_due(&Situation { load, dirty_rows, age })
    }

    /// Time since the last checkpoint ended.
    pub(crate) fn checkpoint_age(&self) -> Duration {
        let ended = Duration::from_millis(self.checkpoints.ended_ms.load(Relaxed));
        self.world.monotonic().saturating_sub(ended)
    }

    /// One checkpoint, or the one that failed the last time. On an error its rows are kept for the next try.
    pub(crate) fn checkpoint_now(&self, reason: Reason) -> Result<(), String> {
        let mut pending = self.checkpoints.begun.lock();
        self.checkpoints.running.store(true, Relaxed);
        let outcome = self.checkpoint(&mut pending, reason);
        self.checkpoints.running.store(false, Relaxed);
        self.checkpoints.failing.store(outcome.is_err(), Relaxed);
        *self.checkpoints.failure.lock() = outcome.as_ref().err().cloned();
        if outcome.is_err() {
            // Nobody waits for a checkpoint that does not come.
            self.with_engine(|engine, _| engine.room_changed());
        }
        outcome
    }

    /// Whether a checkpoint failed, whose rows are kept for the next try.
    pub(crate) fn has_begun_checkpoint(&self) -> bool {
        self.checkpoints.begun.lock().is_some()
    }

    /// Writes checkpoints until little is left for the next, and has the store rest on no log of its own.
    pub(crate) fn settle(&self) -> Result<(), String> {
        for _ in 0..SETTLE_ROUNDS {
            self.checkpoint_now(Reason::Requested)?;
            self.rows.meta.get().shorten_log().map_err(|e| e.to_string())?;
            if !self.needs_checkpoint() {
                break;
            }
        }
        Ok(())
    }

    /// Whether the plate should not end without a checkpoint: a start would have much to replay, or something is in no journal.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        self.replay_load(self.journal.last()).events > TAIL_EVENTS_MAX || self.engine.lock().has_volatile()
    }

    fn checkpoint(&self, pending: &mut Option<Begun>, reason: Reason) -> Result<(), String> {
        let begun = pending.take().unwrap_or_else(|| self.take_rows());
        if let Err(line) = self.commit_rows(&begun, reason) {
            *pending = Some(begun);
            return Err(line);
        }
        self.checkpoints.position.store(begun.position.0, Relaxed);
        self.checkpoints.done_bytes.store(begun.appended_bytes, Relaxed);
        *self.checkpoints.done_spared.lock() = begun.spared;
        self.checkpoints.failing.store(false, Relaxed);
        self.note_replay_load(self.journal.last());
        self.checkpoints.ended_ms.store(self.world.monotonic().as_millis() as u64, Relaxed);
        self.checkpoints.count.fetch_add(1, Relaxed);
        if self.checkpoints.store_full.swap(false, Relaxed) {
            self.log("the metadata store has space again");
        }
        self.with_engine(|engine, _| {
            engine.namespace().checkpoint_done();
            engine.checkpointed(begun.position);
            engine.room_changed();
        });
        self.rows.unsettled.lock().push_back((self.rows.meta.get().settled().0, begun.position));
        self.trim();
        self.evict();
        self.sweep_garbage();
        if self.reclaim_meta() {
            self.trim();
        }
        Ok(())
    }

    /// Trims the journal up to the position that the metadata store holds without its own journal.
    fn trim(&self) {
        // A reader needs the segments that it has begun with. The next checkpoint trims more.
        let Some(_trimming) = self.checkpoints.trimming.try_lock() else { return };
        let (_, settled) = self.rows.meta.get().settled();
        let position = {
            let mut unsettled = self.rows.unsettled.lock();
            let mut last = None;
            while let Some((_, position)) =
                unsettled.front().copied().filter(|(commit, _)| *commit <= settled)
            {
                last = Some(position);
                unsettled.pop_front();
            }
            last
        };
        if let Some(position) = position
            && let Err(error) = self.journal.trim(position)
        {
            self.note_error(&format!("cannot trim the journal: {error}"));
        }
    }

    fn take_rows(&self) -> Begun {
        let appended_bytes = self.checkpoints.appended_bytes.load(Relaxed);
        let spared = *self.checkpoints.spared.lock();
        let (position, own, mut list) = self.with_engine(|engine, _| {
            self.checkpoints.rung.store(false, Relaxed);
            engine.write_skipped();
            engine.namespace().checkpoint_begin();
            (engine.position(), engine.own_rows(), engine.namespace().checkpoint_list())
        });
        list.sort();
        self.engine.lock().namespace().checkpoint_listed(list);
        let (mut slice, mut rows, mut is_last) = (Vec::new(), Batch::new(), false);
        while !is_last {
            is_last =
                self.with_engine(|engine, _| engine.namespace().checkpoint_take(SLICE_ROWS, &mut slice));
            rows.extend(slice.drain(..));
        }
        rows.extend(own);
        Begun { position, appended_bytes, spared, rows }
    }

    fn commit_rows(&self, begun: &Begun, reason: Reason) -> Result<(), String> {
        if self.place.is_severed() {
            return Err("the server was abandoned".to_owned());
        }
        let why =
            |what: &dyn std::fmt::Display| format!("no checkpoint at position {}: {what}", begun.position);
        if let Err(error) = self.wait_journal(begun.position) {
            self.set_health(Err(&error));
            return Err(why(&error));
        }
        let mut is_first = true;
        loop {
            if !self.make_room_for(&begun.rows, reason) {
                return Err(why(&"the disk is full; there is one as soon as files are removed"));
            }
            let Err(error) = self.rows.meta.get().commit(&begun.rows) else {
                self.note_removed(&begun.rows);
                return Ok(());
            };
            // A store that has failed in its background work says so now: opened anew, it may be well.
            let was_io = matches!(error, StoreError::Io { .. });
            let was_full = matches!(error, StoreError::NoSpace { .. });
            // Whether it landed is not known; committing the same rows again does no harm.
            let error = self.mend_meta(error);
            // The store's own work beside a commit needs space too, and its amount is unknown.
            let may_release = |is_first: &mut bool| {
                reason == Reason::Requested || !self.is_being_filled() && std::mem::take(is_first)
            };
            let gave_space = was_full && may_release(&mut is_first) && self.release_more();
            let may_retry = gave_space || was_io && std::mem::take(&mut is_first);
            if !may_retry || self.rows.meta.is_closed() {
                // A full disk is no error that stays: it is reported as long as it is full.
                self.condition.errors.fetch_add(u64::from(!was_full), Relaxed);
                return Err(why(&error));
            }
        }
    }

    /// To be called by whoever the metadata store failed, without the engine's lock: after a commit that failed it
    /// refuses all that follow, until it is opened anew. Returns what to say.
    pub(crate) fn mend_meta(&self, error: StoreError) -> StoreError {
        if matches!(error, StoreError::NoSpace { .. }) && !self.checkpoints.store_full.swap(true, Relaxed) {
            // Those that wait for room are refused.
            self.with_engine(|engine, _| engine.room_changed());
        }
        if matches!(error, StoreError::Fenced { .. }) && !self.rows.is_held {
            // Another server has opened the store: opening it again would take it away from that one.
            self.fenced("another server");
            return error;
        }
        // (Whoever holds the file system asks the records of holders before it opens the store: the library also says so when it
        // has met a write of its own whose reply was lost.)
        self.reopen_meta().err().unwrap_or(error)
    }

    fn reopen_meta(&self) -> Result<(), StoreError> {
        // Commits are counted anew: those before rest on the store's journal until the next one does not.
        self.rows.unsettled.lock().iter_mut().for_each(|(commit, _)| *commit = 1);
        self.rows.meta.reopen().inspect_err(|error| {
            if matches!(error, StoreError::Fenced { .. }) {
                self.fenced("another server");
            }
        })
    }

    /// Takes clean rows out of a cache that grew by reading alone: then no checkpoint comes to do it.
    fn evict_read(&self) {
        let target = self.options.cache_bytes;
        let is_due = self.with_engine(|engine, _| {
            let ns = engine.namespace();
            let bytes = ns.memory_bytes();
            // Rows that are fetched while rows leave have to be fetched again, so they leave by many. Dirty rows stay: a cache
            // full of them would be searched for nothing.
            bytes > target + target / 8 && ns.dirty_rows() * DIRTY_ROW_BYTES < bytes / 2
        });
        if is_due {
            self.evict();
        }
    }

    fn evict(&self) {
        let target = self.options.cache_bytes;
        loop {
            let more = self.with_engine(|engine, _| {
                let ns = engine.namespace();
                let before = ns.memory_bytes();
                if before <= target {
                    return false;
                }
                ns.evict(target.max(before.saturating_sub(EVICT_BYTES)));
                ns.memory_bytes() < before
            });
            if !more {
                return;
            }
        }
    }

    /// Counts and logs what failed in the background.
    pub(crate) fn note_error(&self, line: &str) {
        self.condition.errors.fetch_add(1, Relaxed);
        self.log(line);
    }
}

/// A checkpoint that is not committed.
pub(crate) struct Begun {
    position: Position,
    /// Bytes that had been appended when it began.
    appended_bytes: u64,
    /// The part of them that is spared.
    spared: ReplayLoad,
    rows: Batch,
}
