//! Numbers of sessions, which are never used again: reserved durably in chunks, ahead of use.
//!
//! Invariants:
//! - Below the mark in memory is below the mark in the store.
//! - One reservation at a time: the mark in the store never goes back.
//! - A session waits for the store only if more sessions begin at once than numbers are reserved ahead.
//! - The first 16 bits of an id say which plate gave it: ids and writers of blocks of two plates are never the same.

use chiton_metastore::{Batch, Metastore, StoreError};
use chiton_runtime::sync::Mutex;
use chiton_types::{PlateId, Plates, SessionId};

use crate::plate::Plate;
use chiton_engine::SESSION_MARK_KEY;

/// Ids reserved at once; the next are when half of them are used.
const CHUNK: u64 = 4096;

/// The first id that a plate gives out.
pub(crate) fn first_session_id(plate: PlateId) -> u64 {
    first_writer(plate) + 1
}

/// All writers of blocks of a plate have this number or a higher one, and lower ones than that of the next plate.
pub(crate) fn first_writer(plate: PlateId) -> u64 {
    u64::from(plate.0) << PlateId::SESSION_SHIFT
}

/// The plate that gave an id.
pub(crate) fn plate_of_session_id(id: u64) -> PlateId {
    Plates::of_session(SessionId(id))
}

/// Those that may be given out.
pub(crate) struct SessionIds {
    /// The next, and the mark below which they are reserved.
    ids: Mutex<(u64, u64)>,
    reserving: Mutex<()>,
}

impl SessionIds {
    /// From `next` on; those below `mark` are reserved.
    pub(crate) fn new(next: u64, mark: u64) -> SessionIds {
        SessionIds { ids: Mutex::new((next, mark)), reserving: Mutex::new(()) }
    }

    /// The next, if one is reserved, and whether more should be soon.
    fn take(&self) -> Option<(SessionId, bool)> {
        let mut ids = self.ids.lock();
        let (next, mark) = *ids;
        if next >= mark {
            return None;
        }
        ids.0 = next + 1;
        Some((SessionId(next), mark - next <= CHUNK / 2))
    }
}

impl Plate {
    /// A fresh session id, durably reserved.
    pub(crate) fn new_session_id(&self) -> Result<SessionId, String> {
        loop {
            if let Some((id, few)) = self.session_ids.take() {
                if few {
                    self.checkpoints.wake_up.wake();
                }
                return Ok(id);
            }
            self.reserve_session_ids(1)?;
        }
    }

    /// For the thread that writes to the store anyhow: sees to it that there are enough for a while.
    pub(crate) fn reserve_session_ids_ahead(&self) {
        // The next caller reports the error, if it fails again.
        let _ = self.reserve_session_ids(CHUNK / 2);
    }

    fn reserve_session_ids(&self, least: u64) -> Result<(), String> {
        let _one = self.session_ids.reserving.lock();
        let (next, mark) = *self.session_ids.ids.lock();
        if mark - next < least {
            let mark = reserve(&*self.rows.meta.get(), mark).map_err(|e| self.mend_meta(e).to_string())?;
            self.session_ids.ids.lock().1 = mark;
        }
        Ok(())
    }
}

/// Reserves ids from `mark` on, durably; returns the new mark.
pub(crate) fn reserve(store: &dyn Metastore, mark: u64) -> Result<u64, StoreError> {
    let mut batch = Batch::new();
    batch.put(SESSION_MARK_KEY, (mark + CHUNK).to_le_bytes());
    store.commit(&batch)?;
    Ok(mark + CHUNK)
}
