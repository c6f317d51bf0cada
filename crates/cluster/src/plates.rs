//! The plates of a server: those that the map gives it run, others do not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chiton_metastore::StoreError;
use chiton_monitor::{ChangeError, ClusterMap, Condition, MapChange};
use chiton_runtime::{parallel, thread};
use chiton_server::{PeerServer, Stores};
use chiton_types::PlateId;

use crate::member::Shared;

/// Plates that are started at a time.
const STARTS_MAX: usize = 4;

impl Shared {
    /// Whether a plate runs that another server has taken.
    pub(crate) fn has_fenced_plates(&self) -> bool {
        self.server.running_plates().iter().any(|(_, is_fenced)| *is_fenced)
    }

    /// Starts and stops plates as the map says; false if something is left to be tried again.
    pub(crate) fn settle(&self, map: &ClusterMap) -> bool {
        let owned = |plate: PlateId| {
            map.plates.get(usize::from(plate.0)).is_some_and(|entry| entry.owner == Some(self.id))
        };
        for (plate, is_fenced) in self.server.running_plates() {
            if is_fenced || !owned(plate) {
                // Another server has it, or is about to. Clients keep the operations that are not durable, and send them again.
                self.server.crash_plate(plate);
                (self.log)(&format!("plate {plate} has left"));
            }
        }
        if let Err(error) = self.server.set_servers(&self.identity, &peers(map)) {
            (self.log)(&format!("no thread for a link to another server: {error}"));
            return false;
        }
        let has_gone = |plate: &PlateId| !self.server.running_plates().iter().any(|(here, _)| here == plate);
        let all = (0..self.server.plates().count()).map(PlateId);
        self.server.await_plates(all.filter(|plate| owned(*plate) && has_gone(plate)).collect());
        let leaving = self.leaving_plates(map);
        self.prepared.lock().retain(|plate, _| leaving.iter().any(|(left, _)| left == plate));
        let mut is_done = true;
        for (plate, to) in leaving {
            if !self.is_prepared(plate) {
                is_done = false;
            } else if self.hand_over(plate, to) {
                // The event of that change is next: clients that wait for the plate are sent on then.
                return false;
            } else {
                is_done = false;
            }
        }
        let running: BTreeSet<PlateId> =
            self.server.running_plates().into_iter().map(|(plate, _)| plate).collect();
        let missing: Vec<PlateId> = (0..self.server.plates().count())
            .map(PlateId)
            .filter(|plate| owned(*plate) && !running.contains(plate) && !self.leaves(map, *plate))
            .collect();
        self.start(missing) && is_done
    }

    /// Its plates that are to be handed over, and to which server.
    fn leaving_plates(&self, map: &ClusterMap) -> Vec<(PlateId, u64)> {
        let leaving = (0..).map(PlateId).zip(&map.plates).filter(|(_, entry)| entry.owner == Some(self.id));
        leaving.filter_map(|(plate, entry)| Some((plate, entry.next?))).collect()
    }

    fn leaves(&self, map: &ClusterMap, plate: PlateId) -> bool {
        self.leaving_plates(map).iter().any(|(leaving, _)| *leaving == plate)
    }

    /// Whether a plate can be handed over with a short pause. If not, that is prepared meanwhile, on a thread of its own: the map is
    /// followed on.
    fn is_prepared(&self, plate: PlateId) -> bool {
        let mut prepared = self.prepared.lock();
        if let Some(is_prepared) = prepared.get(&plate) {
            return is_prepared.load(Ordering::SeqCst);
        }
        let is_prepared = Arc::new(AtomicBool::new(false));
        prepared.insert(plate, is_prepared.clone());
        drop(prepared);
        let (server, log) = (self.server.clone(), self.log.clone());
        let body = move || {
            if let Err(error) = server.settle_plate(plate) {
                log(&format!("plate {plate} will take longer to start at its new server: {error}"));
            }
            is_prepared.store(true, Ordering::SeqCst);
        };
        match thread::spawn("chiton-settle", body) {
            Ok(_) => false,
            Err(error) => {
                (self.log)(&format!("plate {plate} is handed over unprepared: no thread: {error}"));
                true
            }
        }
    }

    /// Stops a plate in order and gives it to the other server; or keeps it, if that one does not live. False to be tried again.
    fn hand_over(&self, plate: PlateId, to: u64) -> bool {
        loop {
            match self.try_to_hand_over(plate, to) {
                Ok(()) => return true,
                // Another server has handed a plate over at the same time.
                Err(ChangeError::Outdated(_)) if !self.is_leaving() => {}
                Err(why) => {
                    (self.log)(&format!("plate {plate} cannot be handed over yet: {why}"));
                    return false;
                }
            }
        }
    }

    fn try_to_hand_over(&self, plate: PlateId, to: u64) -> Result<(), ChangeError> {
        let (map, alive) = (self.monitor.map()?, self.monitor.alive()?);
        let is_as_before = map
            .plates
            .get(usize::from(plate.0))
            .is_some_and(|entry| (entry.owner, entry.next) == (Some(self.id), Some(to)));
        if !is_as_before {
            // The map has changed; its event leads to the next attempt.
            return Ok(());
        }
        let generation = map.servers.get(&to).map(|server| server.generation);
        let lives = generation.filter(|generation| to != self.id && alive.get(&to) == Some(generation));
        let mut requires = vec![Condition::Alive(self.id, self.generation)];
        let (owner, why) = match lives {
            Some(generation) => {
                if let Err(error) = self.server.stop_plate(plate) {
                    // Nothing is lost: the other server replays the journal, and clients send the rest again.
                    (self.log)(&format!("plate {plate}: {error}"));
                }
                requires.push(Condition::Alive(to, generation));
                (to, "hand-over")
            }
            None => (self.id, "the other server of a hand-over does not live"),
        };
        let change = MapChange::SetPlate { plate: u32::from(plate.0), owner: Some(owner), next: None };
        self.monitor.change(map.epoch, &requires, &[change], &self.who(), why).map(drop)
    }

    /// Starts these plates; false if one of them did not start.
    fn start(&self, plates: Vec<PlateId>) -> bool {
        let count = plates.len();
        let (server, data, log) = (self.server.clone(), self.data.clone(), self.log.clone());
        let check = self.check();
        let started = parallel::map("start-plate", STARTS_MAX, count, move |number| {
            let plate = plates[number];
            let start = || {
                let mut stores = Stores::open_shared(&data, plate)?;
                let check = check.clone();
                stores.guard(move || check(plate));
                server.start_plate(plate, stores)
            };
            match start() {
                Ok(()) => log(&format!("plate {plate} runs here")),
                Err(error) => {
                    log(&format!("plate {plate} does not start, and is tried again: {error}"));
                    return false;
                }
            }
            true
        });
        started.into_iter().all(|done| done)
    }

    /// Says whether the stores of a plate may be opened here: the monitor's map names this server, and its lease lasts.
    fn check(&self) -> impl Fn(PlateId) -> Result<(), StoreError> + Clone + Send + Sync + 'static {
        let (monitor, gate) = (self.monitor.clone(), self.gate.clone());
        let (id, generation, data) = (self.id, self.generation, self.data.to_string());
        move |plate| {
            let map = monitor
                .map()
                .map_err(|e| StoreError::Io { path: data.clone().into(), cause: e.to_string() })?;
            let is_owner = map.plates.get(usize::from(plate.0)).is_some_and(|entry| entry.owner == Some(id));
            let is_it = map.servers.get(&id).is_some_and(|server| server.generation == generation);
            match is_owner && is_it && gate.is_open() {
                true => Ok(()),
                false => Err(StoreError::Fenced { path: data.clone().into() }),
            }
        }
    }
}

/// The servers of the map, with the plates that they have.
fn peers(map: &ClusterMap) -> Vec<PeerServer> {
    let plates_of = |id: u64| {
        let owned = (0..).map(PlateId).zip(&map.plates).filter(move |(_, entry)| entry.owner == Some(id));
        owned.map(|(plate, _)| plate).collect()
    };
    map.servers
        .values()
        .map(|server| PeerServer {
            number: server.id,
            addresses: server.addresses.iter().filter_map(|address| address.parse().ok()).collect(),
            plates: plates_of(server.id),
        })
        .collect()
}
