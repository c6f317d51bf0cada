//! The plates that a process runs, by their numbers.

use std::sync::Arc;

use chiton_runtime::sync::RwLock;
use chiton_types::PlateId;

use crate::running::RunningPlate;

/// See the module. Of a file system with one plate there is one, always.
pub(crate) struct PlateTable(RwLock<Vec<Option<Arc<RunningPlate>>>>);

impl PlateTable {
    /// Those that run, of `count`.
    pub(crate) fn new(count: u16, running: Vec<Arc<RunningPlate>>) -> PlateTable {
        let mut plates: Vec<Option<Arc<RunningPlate>>> = (0..count).map(|_| None).collect();
        for one in running {
            let number = usize::from(one.plate.plate.0);
            plates[number] = Some(one);
        }
        PlateTable(RwLock::new(plates))
    }

    /// How many there are, with those that do not run.
    pub(crate) fn count(&self) -> usize {
        self.0.read().len()
    }

    /// A plate; `None` if there is no such plate or it does not run.
    pub(crate) fn get(&self, plate: PlateId) -> Option<Arc<RunningPlate>> {
        self.0.read().get(usize::from(plate.0))?.clone()
    }

    /// Those that run, in their order.
    pub(crate) fn all(&self) -> Vec<Arc<RunningPlate>> {
        self.0.read().iter().flatten().cloned().collect()
    }

    /// A plate runs from now on.
    pub(crate) fn put(&self, running: Arc<RunningPlate>) {
        let number = usize::from(running.plate.plate.0);
        self.0.write()[number] = Some(running);
    }

    /// A plate does not run any more.
    pub(crate) fn take(&self, plate: PlateId) -> Option<Arc<RunningPlate>> {
        self.0.write().get_mut(usize::from(plate.0))?.take()
    }
}
