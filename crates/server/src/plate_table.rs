//! The plates that a process runs, by their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chiton_runtime::sync::RwLock;
use chiton_transport::ConnId;
use chiton_types::PlateId;

use crate::running::RunningPlate;
use crate::waiting_greetings::WaitingGreetings;

/// A file system with one plate always has that plate here.
pub(crate) struct PlateTable {
    plates: RwLock<Vec<Option<Arc<RunningPlate>>>>,
    /// Plates that were started, and of them those whose journal was replayed.
    starts: AtomicU64,
    recoveries: AtomicU64,
    /// Greetings for plates that are about to come or to go.
    waiting_greetings: WaitingGreetings,
    /// The identities of the clients at the other ends of connections.
    present: RwLock<BTreeMap<ConnId, String>>,
}

impl PlateTable {
    /// Those that run, of `count`.
    pub(crate) fn new(count: u16, running: Vec<Arc<RunningPlate>>) -> PlateTable {
        let plates = (0..count).map(|_| None).collect();
        let table = PlateTable {
            plates: RwLock::new(plates),
            starts: AtomicU64::new(0),
            recoveries: AtomicU64::new(0),
            waiting_greetings: WaitingGreetings::default(),
            present: RwLock::default(),
        };
        running.into_iter().for_each(|one| table.put(one));
        table
    }

    /// Greetings for plates that are about to come or to go.
    pub(crate) fn waiting_greetings(&self) -> &WaitingGreetings {
        &self.waiting_greetings
    }

    /// How many there are, with those that do not run.
    pub(crate) fn count(&self) -> usize {
        self.plates.read().len()
    }

    /// A plate; `None` if there is no such plate or it does not run.
    pub(crate) fn get(&self, plate: PlateId) -> Option<Arc<RunningPlate>> {
        self.plates.read().get(usize::from(plate.0))?.clone()
    }

    /// Those that run, in their order.
    pub(crate) fn all(&self) -> Vec<Arc<RunningPlate>> {
        self.plates.read().iter().flatten().cloned().collect()
    }

    /// A plate runs from now on.
    pub(crate) fn put(&self, running: Arc<RunningPlate>) {
        self.starts.fetch_add(1, Relaxed);
        self.recoveries.fetch_add(u64::from(running.plate.replayed_events > 0), Relaxed);
        let number = usize::from(running.plate.plate.0);
        self.plates.write()[number] = Some(running);
    }

    /// A client has a connection, to whichever plate.
    pub(crate) fn connected(&self, conn: ConnId, identity: &str) {
        self.present.write().insert(conn, identity.to_owned());
    }

    pub(crate) fn disconnected(&self, conn: ConnId) {
        self.present.write().remove(&conn);
    }

    /// The clients that have a connection.
    pub(crate) fn present(&self) -> BTreeSet<String> {
        self.present.read().values().cloned().collect()
    }

    /// Plates that were started so far.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Relaxed)
    }

    /// Of these, plates whose journal was replayed: their server had not ended in order.
    pub(crate) fn recoveries(&self) -> u64 {
        self.recoveries.load(Relaxed)
    }

    /// A plate does not run any more.
    pub(crate) fn take(&self, plate: PlateId) -> Option<Arc<RunningPlate>> {
        self.plates.write().get_mut(usize::from(plate.0))?.take()
    }
}
