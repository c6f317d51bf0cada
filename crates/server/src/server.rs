//! A running server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chiton_objects::Objects;
use chiton_runtime::pool::Pool;
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread::{self, JoinHandle};
use chiton_runtime::{SharedWorld, World};
use chiton_transport::{Address, Listener, Serving};
use chiton_types::Position;
use chiton_wire::Recall;

use crate::address::DataAddress;
use crate::away::END_PATIENCE;
use crate::bucket::{Bucket, bucket_info, format_bucket};
use crate::builder::Builder;
use crate::checkpointer::Reason;
use crate::embed::EmbeddedSession;
use crate::error::{FormatError, ShutdownError, StartError};
use crate::format::{FilesystemInfo, FormatOptions, format_dir, format_stores, read_info};
use crate::io_pool;
use crate::listen::PlateService;
use crate::options::ServerOptions;
use crate::ownership::{Lost, Ownership};
use crate::plate::Plate;
use crate::realm_objects::Seen;
use crate::reserve::{self, Reserve};
use crate::role::Role;
use crate::stores::Stores;

/// The one kind of daemon. Dropped without [`Server::shutdown`], it ends as a crash would, but for the journal, which
/// is written out.
pub struct Server {
    pub(super) plate: Arc<Plate>,
    /// For what waits on a store.
    pool: Arc<Pool>,
    threads: Mutex<Vec<JoinHandle>>,
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
            DataAddress::Dir(dir) => format_dir(&dir, options, &**world),
            DataAddress::S3(location) => format_bucket(&location, options, &**world),
        }
    }

    /// Makes a new file system in empty stores.
    ///
    /// # Errors
    /// [`FormatError::Failed`], [`FormatError::Shards`].
    pub fn format_with(
        stores: &Stores,
        options: &FormatOptions,
        world: &SharedWorld,
    ) -> Result<FilesystemInfo, FormatError> {
        format_stores(stores, options, &**world)
    }

    /// What a file system says about itself.
    ///
    /// # Errors
    /// As [`Server::start`] for places that are not formatted, foreign or newer.
    pub fn info(data: impl Into<DataAddress>) -> Result<FilesystemInfo, StartError> {
        let data = data.into();
        match &data {
            DataAddress::Dir(dir) => read_info(dir),
            DataAddress::S3(location) => {
                bucket_info(&Bucket::open(location).map_err(StartError::Failed)?, &data)
            }
        }
    }

    /// Finds out whether the place can be used by whoever changes something there.
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
        let mut stores = Stores::open_with(&data, options.metastore)?;
        let reserve = data.dir().map(|dir| Arc::new(Reserve::open(dir, options.reserve_bytes)));
        if let Some(reserve) = &reserve {
            stores.live_on(reserve);
        }
        ownership.guard(&mut stores);
        Server::run(Role::Serving { info, stores, ownership: Some(ownership) }, reserve, options, world)
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
        mut role: Role,
        reserve: Option<Arc<Reserve>>,
        options: ServerOptions,
        world: SharedWorld,
    ) -> Result<Arc<Server>, StartError> {
        let no_thread = |e: std::io::Error| StartError::Failed(format!("a thread: {e}"));
        let (ownership, pool) = match &mut role {
            Role::Serving { ownership, .. } => (ownership.take(), io_pool::start().map_err(no_thread)?),
            Role::Decoupled(_) | Role::Preview { .. } => (None, io_pool::none()),
        };
        let built =
            Builder::new(options, world, pool.clone()).reserve(reserve).held(ownership.is_some()).build(role);
        let plate = built.inspect_err(|_| pool.stop())?;
        if let Some(ownership) = &ownership {
            let plate = Arc::downgrade(&plate);
            ownership.on_lost(Box::new(move |how| {
                let Some(plate) = plate.upgrade() else { return };
                match how {
                    Lost::To(holder) => plate.fenced(holder),
                    Lost::Gone(why) => plate.store_gone(why),
                }
            }));
        }
        let server = Server {
            plate: plate.clone(),
            pool,
            threads: Mutex::new(Vec::new()),
            serving: Mutex::new(Vec::new()),
            ownership: Mutex::new(ownership),
        };
        for &(name, body) in plate.kind.threads() {
            let plate = plate.clone();
            let thread = thread::spawn(name, move || body(&plate)).map_err(no_thread)?;
            server.threads.lock().push(thread);
        }
        Ok(Arc::new(server))
    }

    /// Begins a session of a client in this process. Recalls are passed to `on_recall` on a thread of the session's
    /// own, one at a time; when it returns, the lease is given back. It may call the session.
    ///
    /// # Errors
    /// In words: too many sessions, the server stops, no id can be reserved.
    pub fn session_embedded(
        &self,
        identity: &str,
        on_recall: Box<dyn Fn(Recall) + Send + Sync>,
    ) -> Result<EmbeddedSession, String> {
        EmbeddedSession::begin(self.plate.clone(), identity, on_recall)
    }

    /// Lets clients connect. Returns the addresses, with the ports that were given for port 0.
    ///
    /// # Errors
    /// If an address cannot be listened at.
    pub fn serve(&self, addresses: &[Address]) -> std::io::Result<Vec<Address>> {
        let listeners = addresses.iter().map(Listener::bind).collect::<std::io::Result<Vec<_>>>()?;
        let bound = listeners.iter().map(|listener| listener.address().clone()).collect();
        let service = Arc::new(PlateService(self.plate.clone()));
        let serving = chiton_transport::serve(listeners, service, self.plate.options.serve)?;
        self.serving.lock().push(serving);
        Ok(bound)
    }

    /// What answers the messages of clients, for a network of another kind (simulation).
    pub fn service(&self) -> Arc<dyn chiton_transport::Service> {
        Arc::new(PlateService(self.plate.clone()))
    }

    /// What is served.
    pub fn filesystem(&self) -> &FilesystemInfo {
        &self.plate.info
    }

    /// Where file data are.
    pub fn objects(&self) -> Arc<dyn Objects> {
        Arc::new(self.plate.user_objects())
    }

    /// Everything up to here is durable.
    pub fn durable(&self) -> Position {
        self.plate.journal.durable()
    }

    /// JSON about the server: `status`, `df`, `top` or `metrics`; `None` for other words.
    pub fn report(&self, what: &str) -> Option<String> {
        self.plate.report(what)
    }

    /// Writes a checkpoint now and waits for it.
    ///
    /// # Errors
    /// In words.
    pub fn checkpoint(&self) -> Result<(), String> {
        self.plate.checkpoint_now(Reason::Requested)
    }

    /// Does at once what is else done by and by: frees what has no name and is not open any more, writes a checkpoint,
    /// deletes blocks that nothing names. For tests and simulation, in which nothing happens by itself.
    ///
    /// # Errors
    /// In words.
    pub fn tidy(&self) -> Result<(), String> {
        // Whoever takes the lock finds everything applied.
        drop(self.plate.engine.lock());
        while self.plate.schedule_once() {}
        self.plate.checkpoint_now(Reason::Requested)?;
        self.plate.sweep_writers();
        self.plate.sweep_realm_objects(&mut Seen::default());
        Ok(())
    }

    /// Ends in order: closes connections, makes everything durable, writes a checkpoint, closes the stores.
    /// Sessions of clients go on after the next start.
    ///
    /// # Errors
    /// See [`ShutdownError`].
    pub fn shutdown(&self) -> Result<(), ShutdownError> {
        // Who ends in order waits a little for a store that is away; from a crash the next start recovers.
        self.plate.condition.away.end(END_PATIENCE);
        self.stop_threads();
        let _ = self.plate.wait_journal(self.plate.journal.last());
        // What a decoupled client has is in its journal only, and what a preview has is gone.
        let has_checkpoints = self.plate.kind.has_checkpoints();
        let checkpoint = if has_checkpoints { self.plate.checkpoint_now(Reason::Requested) } else { Ok(()) };
        let journal = self.plate.journal.close();
        let meta = self.plate.rows.meta.close();
        // The part of the reserve that the last checkpoint did not use is kept for the next start.
        self.plate.take_reserve();
        self.ownership.lock().take();
        journal.map_err(|e| ShutdownError::NotDurable(e.to_string()))?;
        checkpoint.map_err(ShutdownError::NoCheckpoint)?;
        meta.map_err(|e| ShutdownError::NoCheckpoint(e.to_string()))
    }

    /// Ends as a crash would: nothing more reaches the disk. For tests.
    pub fn abandon(&self) {
        self.plate.condition.away.end(std::time::Duration::ZERO);
        // Who is dead does not say that the journal failed.
        self.answer_no_more();
        self.plate.place.sever();
        self.stop_threads();
        // It cannot write any more, which is the point.
        let _ = self.plate.journal.close();
        let is_bucket = self.plate.rows.is_held && self.plate.blocks.address.is_empty();
        let listed = is_bucket.then(|| self.plate.blocks.objects.list("", None, 1));
        match listed {
            Some(Err(error)) if error.is_gone() => self.plate.rows.meta.leave(),
            _ => drop(self.plate.rows.meta.close()),
        }
        self.ownership.lock().take();
    }

    fn answer_no_more(&self) {
        self.serving.lock().clear();
        // Under the engine's lock: a request is answered whole or finds the server stopping.
        let _engine = self.plate.engine.lock_as_it_is();
        self.plate.condition.stopping.store(true, Ordering::Release);
    }

    fn stop_threads(&self) {
        self.answer_no_more();
        self.plate.wake_all();
        self.pool.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                self.plate.log("a thread of the server panicked");
            }
        }
        self.plate.dismiss_waiters();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_threads();
        // Before the lock on the directory goes. Whoever wants to know how it ended calls shutdown.
        let _ = self.plate.journal.close();
        let _ = self.plate.rows.meta.close();
    }
}
