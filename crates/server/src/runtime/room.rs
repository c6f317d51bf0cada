//! The way into a full disk and out of it.
//!
//! ```text
//!   free space below the margin, or something had no space ──▶ tight: what takes space is refused
//!   removals ─ checkpoint soon ─ trim, sweep, reclaim ──▶ reserve taken again, margin free ──▶ no longer tight
//! ```
//!
//! Invariants:
//! - While the disk is tight a checkpoint follows what was removed within a second, for only then its space comes back.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use chiton_metastore::Batch;

use crate::runtime::reserve::{Reserve, Room};
use crate::runtime::shared::Shared;

/// While the disk is tight a checkpoint begins when the last one is so long ago.
const TIGHT_AGE: Duration = Duration::from_millis(300);
/// Free space beside a checkpoint's rows: the tables that it fills, the file system's own blocks.
const CHECKPOINT_EXTRA_BYTES: u64 = 1 << 20;
/// Reclaiming takes no more than this part of the checkpointer's time.
const RECLAIM_PART: u32 = 10;
const RECLAIM_PAUSE_MIN: Duration = Duration::from_secs(1);

impl Shared {
    /// Looks at the disk's free space; returns what of it is for users.
    pub(crate) fn look_at_room(&self, free: u64) -> u64 {
        let Some(reserve) = &self.reserve else { return free };
        if (reserve.was_pressed() || free < reserve.margin()) && !self.tight.swap(true, Relaxed) {
            self.log(
                "the disk of the data directory is full: what takes space is refused until there is some; removing files \
                 gives it back",
            );
            self.with_engine_as_it_is(|engine, m| engine.space_is_short(m));
            self.checkpoint_bell.ring();
        }
        if self.is_tight() { 0 } else { free.saturating_sub(reserve.margin()) }
    }

    pub(crate) fn is_tight(&self) -> bool {
        self.tight.load(Relaxed)
    }

    /// Takes the reserve as far as there is space, at a start and when some came back.
    pub(crate) fn take_reserve(&self) {
        let Some(reserve) = &self.reserve else { return };
        let was_whole = reserve.is_whole();
        let is_whole = reserve.take();
        if !was_whole && let Some(why) = reserve.refused() {
            self.log(&format!("no space can be reserved for the way out of a full disk: {why}"));
        }
        let has_room =
            |reserve: &Reserve| reserve.room().is_none_or(|room| room.free >= 2 * reserve.margin());
        if self.is_tight() && is_whole && has_room(reserve) {
            reserve.was_pressed();
            self.tight.store(false, Relaxed);
            self.log("the disk of the data directory has space again");
            self.with_engine_as_it_is(|engine, _| engine.room_changed());
        }
    }

    /// Whether what was removed is to give back its space now.
    pub(crate) fn is_due_for_room(&self) -> bool {
        self.is_tight() && self.checkpoint_age() >= TIGHT_AGE
    }

    /// Makes room for the rows of a checkpoint: the metadata store is to be opened anew after one that had none.
    pub(crate) fn make_room_for(&self, rows: &Batch) {
        let Some(reserve) = &self.reserve else { return };
        let bytes = rows.rows().map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len)).sum::<usize>();
        let total = reserve.room().map_or(0, |room| room.total);
        let unsettled = crate::runtime::reserve::unsettled_bytes(total) as u64;
        reserve.make_room(2 * bytes as u64 + 2 * unsettled + CHECKPOINT_EXTRA_BYTES);
    }

    /// Has the metadata store give back the space of rows that were removed, if the disk is tight still. True if it did.
    pub(crate) fn reclaim_meta(&self) -> bool {
        let Some(reserve) = self.reserve.as_ref().filter(|_| self.is_tight()) else { return false };
        let now = self.world.monotonic();
        if now < *self.reclaim_at.lock() {
            return false;
        }
        reserve.make_room(CHECKPOINT_EXTRA_BYTES);
        let free = reserve.room().map_or(0, |Room { free, .. }| free);
        let reclaimed = self.meta.get().reclaim(free);
        let is_done = reclaimed.is_ok();
        if let Err(error) = reclaimed {
            let error = self.mend_meta(error);
            self.note_error(&format!("the metadata store cannot give back space: {error}"));
        }
        let ended = self.world.monotonic();
        *self.reclaim_at.lock() = ended + RECLAIM_PAUSE_MIN.max((ended - now) * RECLAIM_PART);
        is_done
    }
}
