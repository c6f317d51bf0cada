//! The way into a full disk and out of it.
//!
//! ```text
//!   free space below the margin, or something had no space ──▶ tight: operations that need space are refused
//!   removals ─ checkpoint soon ─ trim, sweep, reclaim ──▶ reserve taken again, margin free ──▶ no longer tight
//! ```
//!
//! Invariants:
//! - While the disk is tight a checkpoint follows what was removed within a second, for only then its space comes back.
//! - In the first seconds, before anything was removed, no checkpoint lives on the reserve unless asked for: others who are just
//!   filling the disk would take what is released for it.
//! - The space of rows that were removed while the disk was tight is reclaimed, also if the disk has space again before that is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use chiton_metastore::Batch;
use chiton_runtime::sync::Mutex;
use chiton_types::Position;

use crate::checkpointer::Reason;
use crate::plate::Plate;
use crate::replay_budget::ReplayLoad;
use crate::reserve::{Reserve, Room, unsettled_bytes};

/// While the disk is tight a checkpoint begins when the last one is so long ago.
const TIGHT_AGE: Duration = Duration::from_millis(300);
/// So long others may continue to fill a disk that is full.
const FILLING: Duration = Duration::from_secs(5);
/// A smaller load does not matter on a disk that is nearly full.
const REPLAY_BYTES_MIN: u64 = 64 << 10;
/// Free space beside a checkpoint's rows: the tables that it fills, the file system's own blocks.
const CHECKPOINT_EXTRA_BYTES: u64 = 1 << 20;
/// Of a disk that is not full the metadata store reclaims when so many rows were removed, and it has not more than so many bytes.
const REMOVED_MIN: u64 = 1_000;
/// On a full disk also if one of so many rows was removed.
const REMOVED_PART: u64 = 64;
const SMALL_STORE_BYTES: u64 = 256 << 20;
/// Reclaiming takes no more than this part of the checkpointer's time.
const RECLAIM_PART: u32 = 10;
const RECLAIM_PAUSE_MIN: Duration = Duration::from_secs(1);
/// After so many failures in a row the pauses do not become longer.
const RECLAIM_FAILURES_MAX: u32 = 6;

/// The disk of a plate's data directory.
pub(crate) struct Space {
    /// The space that is kept free on it; `None` where there is no such disk.
    pub(crate) reserve: Option<Arc<Reserve>>,
    /// It is full: nothing is created or written, and removals live on the reserve.
    pub(crate) tight: Arc<AtomicBool>,
    tight_since: Mutex<TightSince>,
    reclaiming: Mutex<Reclaiming>,
}

impl Space {
    pub(crate) fn new(reserve: Option<Arc<Reserve>>) -> Space {
        Space { reserve, tight: Arc::default(), tight_since: Mutex::default(), reclaiming: Mutex::default() }
    }
}

/// The time at which the disk became tight.
#[derive(Debug, Default)]
struct TightSince {
    at: Duration,
    /// The journal's last position then.
    position: Position,
}

/// How the metadata store is asked to give back the space of rows that were removed.
#[derive(Debug, Default)]
struct Reclaiming {
    /// Monotonic time before which the store is not asked again.
    not_before: Duration,
    /// Rows removed since it last gained something.
    removed: u64,
    /// It was put off or failed.
    owed: bool,
    /// How often in a row it failed: the pause after it is twice as long each time.
    failures: u32,
}

/// Free space that a checkpoint of rows of so many bytes wants: they stand in the store's journal and in tables for a while.
fn wanted_for(bytes: u64, room: &Room) -> u64 {
    2 * bytes + 2 * unsettled_bytes(room.total) as u64 + CHECKPOINT_EXTRA_BYTES
}

impl Plate {
    /// Looks at the disk's free space; returns what of it is for users.
    pub(crate) fn look_at_room(&self, free: u64) -> u64 {
        let Some(reserve) = &self.space.reserve else { return free };
        if (reserve.was_pressed() || free < reserve.margin()) && !self.space.tight.swap(true, Relaxed) {
            self.log(
                "the disk of the data directory is full: operations that need space are refused until there is some; removing files \
                 gives it back",
            );
            *self.space.tight_since.lock() =
                TightSince { at: self.world.monotonic(), position: self.journal.last() };
            self.note_replay_load(self.journal.last());
            self.space.reclaiming.lock().owed = true;
            self.with_engine_as_it_is(|engine, m| engine.space_is_short(m));
            self.checkpoints.wake_up.wake();
        }
        if self.is_tight() { 0 } else { free.saturating_sub(reserve.margin()) }
    }

    pub(crate) fn is_tight(&self) -> bool {
        self.space.tight.load(Relaxed)
    }

    /// Takes the reserve as far as there is space, at a start and when some came back.
    pub(crate) fn take_reserve(&self) {
        let Some(reserve) = &self.space.reserve else { return };
        let was_whole = reserve.is_whole();
        let is_whole = reserve.take();
        if !was_whole && let Some(why) = reserve.refused() {
            self.log(&format!("no space can be reserved for the way out of a full disk: {why}"));
        }
        let has_room =
            |reserve: &Reserve| reserve.room().is_none_or(|room| room.free >= 2 * reserve.margin());
        if self.is_tight() && is_whole && has_room(reserve) {
            reserve.was_pressed();
            self.space.tight.store(false, Relaxed);
            self.note_replay_load(self.journal.last());
            self.log("the disk of the data directory has space again");
            self.with_engine_as_it_is(|engine, _| engine.room_changed());
        }
    }

    /// Whether what was removed is to give back its space now.
    pub(crate) fn is_due_for_room(&self) -> bool {
        self.is_tight()
            && (self.checkpoint_age() >= TIGHT_AGE || self.checkpoints.reserve_spent.load(Relaxed))
    }

    /// Whether a checkpoint of a load is to begin while there is space for it: later it would need the reserve.
    pub(crate) fn is_due_before_full(&self, load: ReplayLoad) -> bool {
        let Some(reserve) = self.space.reserve.as_ref().filter(|_| !self.is_tight()) else { return false };
        let room = reserve.room();
        load.bytes >= REPLAY_BYTES_MIN
            && room.is_some_and(|room| room.free < wanted_for(load.bytes, &room) + reserve.margin())
    }

    /// Makes room for the rows of a checkpoint: the metadata store is to be opened anew after one that had none. `false`: there is
    /// none but the reserve, which is kept for removals.
    pub(crate) fn make_room_for(&self, rows: &Batch, reason: Reason) -> bool {
        let Some(reserve) = self.space.reserve.as_ref().filter(|_| !rows.is_empty()) else { return true };
        let bytes = rows.rows().map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len)).sum::<usize>();
        let Some(room) = reserve.room() else { return true };
        let wanted = wanted_for(bytes as u64, &room);
        if room.free < wanted && reason == Reason::Due && self.is_being_filled() {
            return false;
        }
        reserve.make_room(wanted);
        true
    }

    /// Has the reserve give back another part for a checkpoint that had no space; `false`: it has nothing left to give.
    pub(crate) fn release_more(&self) -> bool {
        self.space.reserve.as_ref().is_some_and(|reserve| reserve.release(CHECKPOINT_EXTRA_BYTES) > 0)
    }

    /// Whether the disk became tight just now, nothing was changed since, and nobody waits.
    pub(crate) fn is_being_filled(&self) -> bool {
        let since = self.space.tight_since.lock();
        self.is_tight()
            && !self.is_budget_spent()
            && self.journal.last() == since.position
            && self.world.monotonic() < since.at + FILLING
    }

    /// A checkpoint has written these rows.
    pub(crate) fn note_removed(&self, rows: &Batch) {
        self.space.reclaiming.lock().removed +=
            rows.rows().filter(|(_, value)| value.is_none()).count() as u64;
    }

    /// Whether a small part of the metadata store's rows was removed, at least.
    fn would_gain_some(&self, removed: u64) -> bool {
        let rows = || self.rows.meta.get().stats().map_or(0, |stats| stats.rows_approx);
        removed >= REMOVED_MIN || removed > 0 && removed.saturating_mul(REMOVED_PART) >= rows()
    }

    /// Whether the metadata store is small and holds mostly removed rows, whose space is large beside the free space of the disk.
    fn would_gain_much(&self, removed: u64, reserve: &Reserve) -> bool {
        if removed < REMOVED_MIN {
            return false;
        }
        let (Ok(stats), Some(room)) = (self.rows.meta.get().stats(), reserve.room()) else { return false };
        removed.saturating_mul(4) >= stats.rows_approx
            && stats.disk_bytes <= SMALL_STORE_BYTES
            && stats.disk_bytes.saturating_mul(2) > room.free
    }

    /// Whether the metadata store was to give back space and has not.
    pub(crate) fn owes_space(&self) -> bool {
        self.space.reclaiming.lock().owed
    }

    /// Has the metadata store give back the space of rows that were removed, if the disk is tight or nearly so, or this was put off
    /// while it was. True if it was asked and did not fail.
    pub(crate) fn reclaim_meta(&self) -> bool {
        let Some(reserve) = &self.space.reserve else { return false };
        let now = self.world.monotonic();
        let removed = {
            let mut reclaiming = self.space.reclaiming.lock();
            reclaiming.owed |= self.is_tight() && self.would_gain_some(reclaiming.removed)
                || self.would_gain_much(reclaiming.removed, reserve);
            if !reclaiming.owed || now < reclaiming.not_before {
                return false;
            }
            reclaiming.removed
        };
        if let Some(room) = reserve.room() {
            reserve.make_room(wanted_for(0, &room));
        }
        let free = reserve.room().map_or(0, |Room { free, .. }| free);
        let reclaimed = self.rows.meta.get().reclaim(free, removed);
        let ended = self.world.monotonic();
        let mut reclaiming = self.space.reclaiming.lock();
        let pause = RECLAIM_PAUSE_MIN.max((ended - now) * RECLAIM_PART);
        reclaiming.failures =
            if reclaimed.is_ok() { 0 } else { (reclaiming.failures + 1).min(RECLAIM_FAILURES_MAX) };
        reclaiming.not_before = ended + pause * (1 << reclaiming.failures);
        match reclaimed {
            Ok(is_done) => {
                if is_done {
                    reclaiming.removed -= removed;
                }
                reclaiming.owed = !is_done;
                true
            }
            Err(error) => {
                drop(reclaiming);
                let error = self.mend_meta(error);
                self.log(&format!("the metadata store cannot give back space: {error}"));
                false
            }
        }
    }
}
