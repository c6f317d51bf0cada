//! The parties of a run: servers and clients, their lives and deaths.
//!
//! Invariants:
//! - Each life of a party is a separate machine: actions of its threads after its death have no effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_journal::{Place, SegmentHeader};
use chiton_runtime::SharedWorld;
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread;
use chiton_server::{FilesystemInfo, FormatOptions, Role, Server, ServerOptions, Stores};
use chiton_types::PlateId;

use crate::clock::PartyWorld;
use crate::disk::{Disk, DiskHandle};
use crate::history::{ClientId, Happened, ServerId};
use crate::net::{Host, Net};
use crate::record::Recorder;
use crate::scheduler::{Party, scheduler};

const FIRST_SERVER: u32 = 1_000;
const FIRST_CLIENT: u32 = 1_000_000;
/// Shards of each plate.
const SHARDS_EACH: u16 = 4;

pub struct LiveServer {
    pub id: ServerId,
    pub party: Party,
    pub server: Arc<Server>,
    /// The access of each plate to storage.
    disk_handles: Mutex<Vec<Arc<DiskHandle>>>,
    /// Its place in the network.
    pub host: Arc<Host>,
    pub world: Arc<PartyWorld>,
}

#[derive(Clone)]
pub struct ServerRig {
    pub disk: Arc<Disk>,
    pub net: Net,
    pub recorder: Recorder,
    pub options: ServerOptions,
    /// The drift of its clock.
    pub drift_ppm: i64,
    pub seed: u64,
}

fn stores(disk_handle: &Arc<DiskHandle>) -> Stores {
    let opener = disk_handle.clone();
    Stores {
        objects: disk_handle.clone(),
        open_meta: Box::new(move || opener.open_rows()),
        place: disk_handle.clone(),
        objects_address: String::new(),
    }
}

/// Makes a file system on empty storage.
///
/// # Panics
/// If that fails: nothing goes wrong yet.
pub fn format(rig: &ServerRig) -> FilesystemInfo {
    let world: SharedWorld = scheduler().add_party(Party(FIRST_SERVER - 1), 0, rig.seed);
    let handles: Vec<_> = rig.disk.plates().map(|plate| rig.disk.handle_of(plate)).collect();
    let plates = handles.len() as u16;
    let options = FormatOptions { shards: SHARDS_EACH * plates, plates, ..FormatOptions::default() };
    let stores: Vec<_> = handles.iter().map(stores).collect();
    let info = Server::format_with(&stores, &options, &world).expect("empty storage can be formatted");
    rig.recorder.serves(info.plates());
    info
}

/// Starts a server, in its life number `life` of all servers. To be called by a thread of [`Party::OUTSIDE`].
///
/// # Errors
/// Why it does not start, in words.
pub fn start_server(
    rig: &ServerRig,
    info: &FilesystemInfo,
    id: ServerId,
    life: u32,
) -> Result<LiveServer, String> {
    let party = Party(FIRST_SERVER + life);
    let world = scheduler().add_party(party, rig.drift_ppm, rig.seed ^ u64::from(life) << 32);
    let disk_handles: Vec<_> = rig.disk.plates().map(|plate| rig.disk.handle_of(plate)).collect();
    let (shared_world, options, info) = (world.clone() as SharedWorld, rig.options.clone(), info.clone());
    let their_stores = disk_handles.iter().map(stores).collect();
    let server = run_in(party, "start", move || {
        Server::start_as(Role::serving_plates(&info, their_stores), options, shared_world)
            .map_err(|error| error.to_string())
    });
    let server = match server {
        Ok(server) => server,
        Err(why) => {
            disk_handles.iter().for_each(|disk_handle| disk_handle.cut());
            return Err(why);
        }
    };
    let epochs: Vec<_> =
        rig.disk.plates().map(|plate| first_of_epoch(&*rig.disk.remains_place(plate))).collect();
    let host = rig.net.serve(id, party, epochs.iter().map(|(epoch, _)| *epoch).collect(), server.service());
    for (plate, (epoch, found)) in rig.disk.plates().zip(epochs) {
        rig.recorder.push(Happened::ServerStarted { server: id, plate, epoch, found });
    }
    Ok(LiveServer { id, party, server, disk_handles: Mutex::new(disk_handles), host, world })
}

/// The newest epoch of a journal, and the last position before it.
fn first_of_epoch(place: &dyn Place) -> (u64, u64) {
    let mut newest = (0, 0);
    for segment in place.list().unwrap_or_default() {
        let bytes = place.read(segment.number, 4096).unwrap_or_default();
        if let Ok(header) = SegmentHeader::decode(&bytes)
            && header.epoch.0 > newest.0
        {
            newest = (header.epoch.0, header.first.0 - 1);
        }
    }
    newest
}

/// Runs `body` on a thread of a party and waits for it.
pub fn run_in<T: Send + 'static>(party: Party, name: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let result = Arc::new(Mutex::new(None));
    let put = result.clone();
    let number = scheduler().spawn_in(party, name, move || {
        let value = body();
        *put.lock() = Some(value);
    });
    chiton_runtime::schedule::Schedule::join(&*scheduler(), number);
    result.lock().take().expect("the thread has ended")
}

impl LiveServer {
    fn cut(&self) {
        self.disk_handles.lock().iter().for_each(|disk_handle| disk_handle.cut());
    }

    /// One plate dies, while the others live. To be called by a thread of [`Party::OUTSIDE`].
    pub fn crash_plate(&self, rig: &ServerRig, plate: PlateId) {
        self.disk_handles.lock()[usize::from(plate.0)].cut();
        rig.recorder.push(Happened::ServerCrashed { server: self.id });
        let server = self.server.clone();
        run_in(self.party, "plate-dies", move || server.crash_plate(plate));
        rig.disk.crash_plate(plate);
    }

    /// A plate that died starts again. To be called by a thread of [`Party::OUTSIDE`].
    ///
    /// # Errors
    /// Why it does not start, in words.
    pub fn start_plate(&self, rig: &ServerRig, plate: PlateId) -> Result<(), String> {
        let disk_handle = rig.disk.handle_of(plate);
        let (server, their_stores) = (self.server.clone(), stores(&disk_handle));
        let started = run_in(self.party, "plate-starts", move || server.start_plate(plate, their_stores));
        if let Err(error) = started {
            disk_handle.cut();
            return Err(error.to_string());
        }
        self.disk_handles.lock()[usize::from(plate.0)] = disk_handle;
        let (epoch, found) = first_of_epoch(&*rig.disk.remains_place(plate));
        self.host.set_epoch(plate, epoch);
        rig.recorder.push(Happened::ServerStarted { server: self.id, plate, epoch, found });
        Ok(())
    }

    pub fn crash(self, rig: &ServerRig) {
        self.cut();
        rig.net.withdraw(&self.host);
        rig.recorder.push(Happened::ServerCrashed { server: self.id });
        scheduler().pause(self.party, false);
        let server = self.server;
        scheduler().spawn_in(self.party, "grave", move || {
            server.abandon();
            drop(server);
        });
    }

    /// Ends the server in order.
    ///
    /// # Errors
    /// The error of the server.
    pub fn shutdown(self, rig: &ServerRig) -> Result<(), String> {
        let server = self.server.clone();
        let result = run_in(self.party, "shutdown", move || {
            let result = server.shutdown().map_err(|error| error.to_string());
            drop(server);
            result
        });
        rig.net.withdraw(&self.host);
        self.cut();
        rig.recorder.push(Happened::ServerCrashed { server: self.id });
        result
    }
}

/// One life of a client.
pub struct LiveClient {
    pub id: ClientId,
    /// Number of the life.
    pub life: u32,
    pub party: Party,
    pub world: Arc<PartyWorld>,
    over: AtomicBool,
    client: Mutex<Option<Arc<Client>>>,
    dying: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl LiveClient {
    /// A machine for a client.
    pub fn new(id: ClientId, life: u32, drift_ppm: i64, seed: u64) -> Arc<LiveClient> {
        let party = Party(FIRST_CLIENT + id.0 * 10_000 + life);
        let world = scheduler().add_party(party, drift_ppm, seed ^ u64::from(party.0) << 20);
        Arc::new(LiveClient {
            id,
            life,
            party,
            world,
            over: AtomicBool::new(false),
            client: Mutex::new(None),
            dying: Mutex::default(),
        })
    }

    /// Client settings for this life.
    pub fn options(&self, options: &ClientOptions) -> ClientOptions {
        ClientOptions {
            identity: format!("client {} life {}", self.id.0, self.life),
            user: Some((0, 0, Vec::new())),
            world: self.world.clone(),
            ..options.clone()
        }
    }

    /// `body` is called at once when the machine dies.
    pub fn when_it_dies(&self, body: impl FnOnce() + Send + 'static) {
        self.dying.lock().push(Box::new(body));
    }

    /// Connects; tries until it succeeds or the life is over. To be called by a thread of its party.
    pub fn connect(&self, net: &Net, options: &ClientOptions) -> Option<Arc<Client>> {
        while !self.is_over() {
            let options = self.options(options);
            match Client::connect_by(net.dialer(self.id, self.life), |_| None, options) {
                Ok(client) => {
                    let client = Arc::new(client);
                    *self.client.lock() = Some(client.clone());
                    if self.is_over() {
                        client.abandon();
                        return None;
                    }
                    return Some(client);
                }
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
        None
    }

    /// Whether it has died.
    pub fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// The machine dies. `late`: its last messages still arrive.
    pub fn crash(&self, net: &Net, recorder: &Recorder, late: bool) {
        if self.over.swap(true, SeqCst) {
            return;
        }
        recorder.push(Happened::ClientCrashed { client: self.id });
        net.bury(self.id, self.life, late);
        scheduler().pause(self.party, false);
        let dying = std::mem::take(&mut *self.dying.lock());
        dying.into_iter().for_each(|body| body());
        let client = self.client.lock().take();
        if let Some(client) = client {
            scheduler().spawn_in(self.party, "grave", move || {
                client.abandon();
                drop(client);
            });
        }
    }

    /// Ends in order. To be called by a thread of its party.
    pub fn end(&self) {
        self.over.store(true, SeqCst);
        let client = self.client.lock().take();
        drop(client);
    }
}
