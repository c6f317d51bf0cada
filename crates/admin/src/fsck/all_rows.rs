//! The rows of all plates of a file system, as a check reads them: each plate's own, and all as those of one file system.
//!
//! Invariants:
//! - A row of an inode counts where the plate of the inode has it. Copies of it on other plates are looked at only where a start of
//!   such a plate depends on them.

use chiton_metastore::Metastore;
use chiton_types::{PlateId, Plates, SessionId};

use crate::RowsOfPlates;
use crate::plates::home_of;

#[derive(Clone)]
pub(crate) struct AllRows<'a> {
    /// All as those of one file system.
    pub(crate) joint: &'a dyn Metastore,
    /// The store of each plate.
    pub(crate) parts: Vec<(PlateId, &'a dyn Metastore)>,
    /// `None` for a file system with one plate.
    plates: Option<Plates>,
}

impl<'a> AllRows<'a> {
    /// The rows of a file system with one plate.
    pub(crate) fn of_one(store: &'a dyn Metastore) -> AllRows<'a> {
        AllRows { joint: store, parts: vec![(PlateId(0), store)], plates: None }
    }

    pub(crate) fn of_plates(rows: &'a RowsOfPlates) -> AllRows<'a> {
        let plates = Some(rows.plates()).filter(|plates| plates.count() > 1);
        AllRows { joint: rows, parts: rows.stores().collect(), plates }
    }

    pub(crate) fn is_one(&self) -> bool {
        self.plates.is_none()
    }

    pub(crate) fn store(&self, plate: PlateId) -> &'a dyn Metastore {
        self.parts[usize::from(plate.0)].1
    }

    /// The plate where a row of an inode or of a shard counts; `None` for rows that each plate has of its own.
    pub(crate) fn home(&self, key: &[u8]) -> Option<PlateId> {
        home_of(self.plates, key)
    }

    /// Whether this row of a plate is a copy of one that counts elsewhere.
    pub(crate) fn is_copy(&self, plate: PlateId, key: &[u8]) -> bool {
        self.home(key).is_some_and(|home| home != plate)
    }

    /// The plate whose server gave a number to a session, or to a writer of blocks; `None` if there is no such plate.
    pub(crate) fn of_session(&self, id: u64) -> Option<PlateId> {
        match self.plates {
            None => Some(PlateId(0)),
            Some(plates) => Some(Plates::of_session(SessionId(id))).filter(|plate| plate.0 < plates.count()),
        }
    }

    /// The first number that a plate gives to a session.
    pub(crate) fn first_session(&self, plate: PlateId) -> u64 {
        (u64::from(plate.0) << PlateId::SESSION_SHIFT) + 1
    }
}
