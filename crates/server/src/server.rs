//! A running server.

mod plates;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_engine::Health;
use chiton_objects::Objects;
use chiton_runtime::pool::Pool;
use chiton_runtime::sync::Mutex;
use chiton_runtime::{SharedWorld, World, parallel, thread};
use chiton_transport::{Address, Listener, Service, Serving};
use chiton_types::{PlateId, Plates, Position};
use chiton_wire::Recall;

use crate::address::DataAddress;
use crate::at_rest::AtRest;
use crate::away::END_PATIENCE;
use crate::bucket::{Bucket, bucket_info, format_bucket};
use crate::builder::Builder;
use crate::checkpointer::Reason;
use crate::embed::EmbeddedSession;
use crate::error::{FormatError, ShutdownError, StartError};
use crate::format::{FilesystemInfo, FormatOptions, format_dir, format_stores, read_info};
use crate::growth::Became;
use crate::io_pool;
use crate::listen::{PlateService, PlatesService};
use crate::options::{Log, ServerOptions};
use crate::ownership::{Lost, Ownership};
use crate::peers::{PeerIdentity, PeerServer, Peers};
use crate::plate::Plate;
use crate::plate_table::PlateTable;
use crate::realm_objects::Seen;
use crate::reserve::{self, Reserve};
use crate::role::{Part, Role};
use crate::running::RunningPlate;
use crate::stores::Stores;
use crate::trust::Guard;

/// How often a server that ends looks whether plates have carried out what others have decided, and the time between two looks.
const EFFECTS_LOOKS: usize = 1_000;
const EFFECTS_PAUSE: Duration = Duration::from_millis(2);
/// Plates that are built at a time.
const BUILDS_MAX: usize = 16;

/// The one kind of daemon. It runs all plates of a file system, or in a cluster those that the map gives to it. Dropped without [`Server::shutdown`], it ends as a crash
/// would, but for the journals, which are written out.
pub struct Server {
    info: FilesystemInfo,
    table: Arc<PlateTable>,
    /// How its plates are built.
    builder: Builder,
    /// Runs work that waits for a store.
    pool: Arc<Pool>,
    serving: Mutex<Vec<Serving>>,
    ownership: Mutex<Option<Ownership>>,
}

impl Server {
    /// Makes a new file system: in a directory, which is made if it is missing, or below a prefix of a bucket.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub fn format(
        data: impl Into<DataAddress>,
        options: &FormatOptions,
        world: &SharedWorld,
    ) -> Result<FilesystemInfo, FormatError> {
        match data.into() {
            DataAddress::Dir(dir) => format_dir(&dir, options, None, &**world),
            DataAddress::S3(location) => format_bucket(&location, options, None, &**world),
        }
    }

    /// Makes a new file system for a cluster whose map `monitor` has: in a directory that all its servers share, or in a bucket.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub fn format_for_cluster(
        data: &DataAddress,
        options: &FormatOptions,
        monitor: &str,
        world: &SharedWorld,
    ) -> Result<FilesystemInfo, FormatError> {
        match data {
            DataAddress::Dir(dir) => format_dir(dir, options, Some(monitor), &**world),
            DataAddress::S3(location) => format_bucket(location, options, Some(monitor), &**world),
        }
    }

    /// Makes a new file system in empty stores, those of each plate.
    ///
    /// # Errors
    /// [`FormatError::Failed`], [`FormatError::Shards`], [`FormatError::Plates`].
    ///
    /// # Panics
    /// If there are not as many stores as `options` says plates.
    pub fn format_with(
        stores: &[Stores],
        options: &FormatOptions,
        world: &SharedWorld,
    ) -> Result<FilesystemInfo, FormatError> {
        format_stores(stores, options, &**world)
    }

    /// The properties of a file system that one server serves at a time.
    ///
    /// # Errors
    /// As [`Server::start`] for places that are not formatted, foreign, newer, a cluster's, or have become one.
    pub fn info(data: impl Into<DataAddress>) -> Result<FilesystemInfo, StartError> {
        let data = data.into();
        let info = Server::info_of_any(&data)?;
        info.check_alone(&data)?;
        match Became::read(&data)? {
            Some(cluster) => Err(StartError::Became { data, cluster }),
            None => Ok(info),
        }
    }

    /// The same, also of a cluster's.
    ///
    /// # Errors
    /// As [`Server::info`].
    pub fn info_of_any(data: &DataAddress) -> Result<FilesystemInfo, StartError> {
        match data {
            DataAddress::Dir(dir) => read_info(dir),
            DataAddress::S3(location) => {
                bucket_info(&Bucket::open(location).map_err(StartError::Failed)?, data)
            }
        }
    }

    /// Checks whether the place can be used by a caller that changes something there.
    pub(crate) fn probe(data: &DataAddress, world: &dyn World) -> Result<(), StartError> {
        let DataAddress::S3(location) = data else { return Ok(()) };
        let bucket = Bucket::open(location).map_err(StartError::Failed)?;
        bucket.s3.probe(world.random()).map_err(StartError::Failed)
    }

    /// Starts on a file system: takes hold of it, recovers, and is ready for sessions.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(
        data: impl Into<DataAddress>,
        options: ServerOptions,
        world: SharedWorld,
    ) -> Result<Arc<Server>, StartError> {
        let data = data.into();
        Server::probe(&data, &*world)?;
        let info = Server::info(&data)?;
        if let Some(dir) = data.dir() {
            reserve::ease(dir);
        }
        let ownership = Ownership::take(&data, options.take_over, &*world)?;
        let metastore = options.clone().for_plates(info.plates).metastore;
        let mut plates = Stores::open_all(&data, info.plates, metastore)?;
        let reserve = data.dir().map(|dir| Arc::new(Reserve::open(dir, options.reserve_bytes)));
        for stores in &mut plates {
            if let Some(reserve) = &reserve {
                stores.live_on(reserve);
            }
            ownership.guard(stores);
        }
        let plates = info.plates().all().zip(plates).collect();
        Server::run(Role::Serving { info, plates, ownership: Some(ownership) }, reserve, options, world)
    }

    /// Starts all plates of a cluster that is at rest in this process, for a tool.
    ///
    /// # Errors
    /// See [`StartError`], and as [`AtRest::check`].
    pub fn start_at_rest(
        data: &DataAddress,
        at_rest: &AtRest,
        options: ServerOptions,
        world: SharedWorld,
    ) -> Result<Arc<Server>, StartError> {
        Server::probe(data, &*world)?;
        let info = Server::info_at_rest(data, Some(at_rest))?;
        let ownership = Ownership::take(data, false, &*world)?;
        let mut plates = Vec::new();
        for plate in info.plates().all() {
            let mut stores = Stores::open_at_rest(data, plate, Some(at_rest))?;
            ownership.guard(&mut stores);
            plates.push((plate, stores));
        }
        Server::run(Role::Serving { info, plates, ownership: Some(ownership) }, None, options, world)
    }

    /// Starts in a role, on stores or rows that are handed in.
    ///
    /// # Errors
    /// See [`StartError`]. [`StartError::Corrupt`] also if a journal does not fit the rows.
    pub fn start_as(
        role: Role,
        options: ServerOptions,
        world: SharedWorld,
    ) -> Result<Arc<Server>, StartError> {
        Server::run(role, None, options, world)
    }

    fn run(
        role: Role,
        reserve: Option<Arc<Reserve>>,
        options: ServerOptions,
        world: SharedWorld,
    ) -> Result<Arc<Server>, StartError> {
        let no_thread = |e: std::io::Error| StartError::Failed(format!("a thread: {e}"));
        let served = role.served().cloned();
        let (parts, ownership) = role.parts();
        let (pool, plates) = match &served {
            Some(info) => (io_pool::start(options.io_threads).map_err(no_thread)?, info.plates()),
            None => (io_pool::none(), parts[0].plates()),
        };
        let peers = Peers::new(plates);
        // A server whose plates run elsewhere has none.
        let options = parts.first().map_or(options.clone(), |part| part.options(options));
        let options = options.for_plates(plates.count());
        let options = ServerOptions {
            on_fenced: options.on_fenced.map(told_once),
            on_failed: options.on_failed.map(told_once),
            ..options
        };
        let is_clustered = options.gate.is_some();
        let builder = Builder::new(options, world, pool.clone(), peers)
            .reserve(reserve)
            .held(ownership.is_some() || is_clustered);
        let built = build_all(&builder, parts).inspect_err(|_| pool.stop())?;
        let server = Server {
            info: served.unwrap_or_else(|| built[0].plate.info.clone()),
            table: Arc::new(PlateTable::new(plates.count(), built)),
            builder,
            pool,
            serving: Mutex::new(Vec::new()),
            ownership: Mutex::default(),
        };
        if let Some(ownership) = &ownership {
            let table = Arc::downgrade(&server.table);
            ownership.on_lost(Box::new(move |how| {
                for running in table.upgrade().iter().flat_map(|table| table.all()) {
                    match how {
                        Lost::To(holder) => running.plate.fenced(holder),
                        Lost::Gone(why) => running.plate.store_gone(why),
                    }
                }
            }));
        }
        *server.ownership.lock() = ownership;
        let plates = server.table.all();
        for running in &plates {
            server.introduce(&running.plate);
        }
        for running in &plates {
            running.start_threads().map_err(no_thread)?;
            running.plate.with_engine(|engine, _| engine.greet_peers(running.plate.boot));
        }
        Ok(Arc::new(server))
    }

    /// Lets a plate and the others know of each other.
    fn introduce(&self, plate: &Plate) {
        plate.table.get_or_init(|| Arc::downgrade(&self.table));
        self.builder.peers().join(plate);
    }

    /// Takes over the list of other servers and their plates. Messages go there from now on, and clients
    /// that look for these plates here are sent there. To be called again whenever that changes.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn set_servers(&self, own: &PeerIdentity, servers: &[PeerServer]) -> std::io::Result<()> {
        let trust = self.builder.options().trust.as_ref();
        let credentials = trust.map(|trust| trust.credentials());
        self.builder.peers().set_servers(own, credentials, servers, &self.table)
    }

    pub(crate) fn table(&self) -> &PlateTable {
        &self.table
    }

    /// Which plates there are.
    pub fn plates(&self) -> Plates {
        self.builder.peers().plates()
    }

    /// Plate 0, the only one of a server in another role than [`Role::Serving`].
    ///
    /// # Panics
    /// If it was stopped by [`Server::crash_plate`].
    pub(crate) fn first(&self) -> Arc<Plate> {
        self.plate(PlateId(0)).expect("plate 0 runs")
    }

    fn plate(&self, plate: PlateId) -> Option<Arc<Plate>> {
        Some(self.table.get(plate)?.plate.clone())
    }

    /// Begins a session of a client in this process with plate 0. Recalls are passed to `on_recall` on a thread of the session's
    /// own, one at a time; when it returns, the lease is given back. It may call the session.
    ///
    /// # Errors
    /// In words: too many sessions, the server stops, no id can be reserved.
    pub fn session_embedded(
        &self,
        identity: &str,
        on_recall: Box<dyn Fn(Recall) + Send + Sync>,
    ) -> Result<EmbeddedSession, String> {
        self.session_embedded_at(PlateId(0), identity, on_recall)
    }

    /// The same with any plate. A client has a session with each plate that it uses.
    ///
    /// # Errors
    /// The same; and if there is no such plate, or it does not run.
    pub fn session_embedded_at(
        &self,
        plate: PlateId,
        identity: &str,
        on_recall: Box<dyn Fn(Recall) + Send + Sync>,
    ) -> Result<EmbeddedSession, String> {
        let found = self.plate(plate).ok_or_else(|| match plate.0 < self.plates().count() {
            true => format!("plate {plate} does not run"),
            false => format!("there is no plate {plate}"),
        })?;
        EmbeddedSession::begin(found, identity, on_recall)
    }

    /// Lets clients connect. Returns the addresses, with the ports that were given for port 0.
    ///
    /// # Errors
    /// If an address cannot be listened at.
    pub fn serve(&self, addresses: &[Address]) -> std::io::Result<Vec<Address>> {
        let listeners = addresses.iter().map(Listener::bind).collect::<std::io::Result<Vec<_>>>()?;
        let bound = listeners.iter().map(|listener| listener.address().clone()).collect();
        let options = self.builder.options();
        let mut service = self.service();
        let mut credentials = None;
        if let Some(trust) = options.trust.clone() {
            credentials = Some(trust.credentials().clone());
            service = Arc::new(Guard { trust, service });
        }
        let secured = |listener: Listener| listener.with_credentials(credentials.clone());
        let listeners = listeners.into_iter().map(secured).collect();
        let serving = chiton_transport::serve(listeners, service, options.serve, options.gate.clone())?;
        self.serving.lock().push(serving);
        Ok(bound)
    }

    /// The service that answers the messages of clients, for a network of another kind (simulation).
    pub fn service(&self) -> Arc<dyn Service> {
        match self.plates().count() {
            // In a cluster it may run elsewhere.
            1 if self.builder.options().gate.is_none() => Arc::new(PlateService(self.first())),
            _ => {
                let (peers, world) = (self.builder.peers().clone(), self.builder.world().clone());
                Arc::new(PlatesService::new(self.table.clone(), peers, self.info.clone(), world))
            }
        }
    }

    /// The file system that this server serves.
    pub fn filesystem(&self) -> &FilesystemInfo {
        &self.info
    }

    /// Where file data are.
    ///
    /// # Panics
    /// If plate 0 was stopped by [`Server::crash_plate`].
    pub fn objects(&self) -> Arc<dyn Objects> {
        Arc::new(self.first().user_objects())
    }

    /// Everything up to here is durable, in the journal of plate 0.
    ///
    /// # Panics
    /// If plate 0 was stopped by [`Server::crash_plate`].
    pub fn durable(&self) -> Position {
        self.first().journal.durable()
    }

    /// The same of any plate; `None` if it does not run.
    pub fn durable_at(&self, plate: PlateId) -> Option<Position> {
        Some(self.plate(plate)?.journal.durable())
    }

    /// JSON about the server: `status`, `df`, `top` or `metrics`; `None` for other words, or if no plate runs here.
    pub fn report(&self, what: &str) -> Option<String> {
        self.table.all().first()?.plate.report_of_all(what)
    }

    /// Writes a checkpoint of each plate now and waits for it.
    ///
    /// # Errors
    /// In words.
    pub fn checkpoint(&self) -> Result<(), String> {
        self.table.all().iter().try_for_each(|running| running.plate.checkpoint_now(Reason::Requested))
    }

    /// Does at once what is else done by and by: frees what has no name and is not open any more, writes a checkpoint,
    /// deletes blocks that nothing names. For tests and simulation, in which nothing happens automatically.
    ///
    /// # Errors
    /// In words.
    pub fn tidy(&self) -> Result<(), String> {
        let plates = self.table.all();
        for running in &plates {
            // A thread that takes the lock finds everything applied.
            drop(running.plate.engine.lock());
        }
        // The work of one plate may give another something to do.
        while plates.iter().fold(false, |any, running| running.plate.schedule_once() | any) {}
        for running in &plates {
            running.plate.checkpoint_now(Reason::Requested)?;
            running.plate.sweep_writers();
            running.plate.sweep_realm_objects(&mut Seen::default());
        }
        Ok(())
    }

    /// Ends in order: closes connections, makes everything durable, writes a checkpoint, closes the stores.
    /// Sessions of clients resume after the next start.
    ///
    /// # Errors
    /// See [`ShutdownError`]. Of several plates that fail, the first whose loss is the worst.
    pub fn shutdown(&self) -> Result<(), ShutdownError> {
        let plates = self.table.all();
        self.serving.lock().clear();
        self.finish_effects();
        self.builder.peers().stop();
        // A server that ends in order waits a little for a store that is away; from a crash the next start recovers.
        plates.iter().for_each(|running| running.end_waiting(END_PATIENCE));
        self.stop_threads();
        let closed: Vec<_> = plates.iter().map(|running| running.close(true, &mut |_| {})).collect();
        // The part of the reserve that the last checkpoint did not use is kept for the next start.
        if let Some(running) = plates.first() {
            running.plate.take_reserve();
        }
        self.ownership.lock().take();
        let mut errors: Vec<_> = closed.into_iter().filter_map(Result::err).collect();
        errors.sort_by_key(|error| !matches!(error, ShutdownError::NotDurable(_)));
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Ends as a crash would: nothing more reaches the disk. For tests.
    pub fn abandon(&self) {
        let plates = self.table.all();
        plates.iter().for_each(|running| running.end_waiting(Duration::ZERO));
        self.serving.lock().clear();
        self.builder.peers().stop();
        plates.iter().for_each(|running| running.sever());
        self.stop_threads();
        plates.iter().for_each(|running| running.leave_stores());
        self.ownership.lock().take();
    }

    /// Waits a little until each plate has carried out the decisions of others: then the stores of all plates fit each other. The next
    /// start carries out the rest.
    fn finish_effects(&self) {
        let plates = self.table.all();
        if self.plates().count() == 1 || plates.len() != self.table.count() {
            return;
        }
        let owes = |running: &Arc<RunningPlate>| running.plate.engine.lock().owes_effects();
        for _ in 0..EFFECTS_LOOKS {
            let is_well = plates.iter().all(|running| running.plate.health() == Health::Good);
            if !is_well || !plates.iter().any(owes) {
                return;
            }
            plates.iter().for_each(|running| running.plate.journal.request_commit());
            thread::sleep(EFFECTS_PAUSE);
        }
    }

    fn stop_threads(&self) {
        self.serving.lock().clear();
        self.table.waiting_greetings().clear();
        self.builder.peers().stop();
        let plates = self.table.all();
        for running in &plates {
            running.answer_no_more();
            running.plate.wake_all();
        }
        self.pool.stop();
        plates.iter().for_each(|running| running.join_threads());
    }
}

/// The plates of these parts, in their order.
fn build_all(builder: &Builder, parts: Vec<Part>) -> Result<Vec<Arc<RunningPlate>>, StartError> {
    let count = parts.len();
    let parts = Mutex::new(parts.into_iter().map(Some).collect::<Vec<_>>());
    let builder = builder.clone();
    let built = parallel::map("start-plate", BUILDS_MAX, count, move |number| {
        let part = parts.lock()[number].take().expect("built once");
        builder.clone().build(part)
    });
    let (mut running, mut failure) = (Vec::new(), None);
    for plate in built {
        match plate {
            Ok(plate) => running.push(Arc::new(RunningPlate::new(plate))),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let Some(error) = failure else { return Ok(running) };
    for running in running {
        // They have answered nobody.
        let _ = running.close_stores();
    }
    Err(error)
}

/// Calls `notify` the first time only, whichever plate calls it.
fn told_once(notify: Log) -> Log {
    let was_told = AtomicBool::new(false);
    Arc::new(move |line| {
        if !was_told.swap(true, Ordering::SeqCst) {
            notify(line);
        }
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_threads();
        for running in self.table.all() {
            // Before the lock on the directory goes. A caller that wants to know how it ended calls shutdown.
            let _ = running.close_stores();
        }
    }
}
