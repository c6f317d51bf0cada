//! A running server.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chiton_objects::Objects;
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread::{self, JoinHandle};
use chiton_runtime::{SharedWorld, World};
use chiton_types::Position;
use chiton_wire::{Address, Listener, Recall, Serving};

use crate::address::DataAddress;
use crate::away::END_PATIENCE;
use crate::bucket::{Bucket, bucket_info, format_bucket};
use crate::checkpointer::Reason;
use crate::embed::EmbeddedSession;
use crate::error::{FormatError, ShutdownError, StartError};
use crate::format::{FilesystemInfo, FormatOptions, format_dir, format_stores, read_info};
use crate::io_pool;
use crate::listen::Door;
use crate::options::ServerOptions;
use crate::ownership::{Lost, Ownership};
use crate::realm_objects::Seen;
use crate::reserve::{self, Reserve};
use crate::shared::Shared;
use crate::startup::recover;
use crate::stores::Stores;

/// What a thread of a server does until it stops.
pub(super) type Body = fn(&Shared);

/// The one kind of daemon. Dropped without [`Server::shutdown`], it ends as a crash would, but for the journal, which
/// is written out.
pub struct Server {
    pub(super) shared: Arc<Shared>,
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
        Server::run(info, (stores, reserve), options, world, Some(ownership))
    }

    /// Starts on stores that are handed in (tests, simulation).
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_with(
        info: &FilesystemInfo,
        stores: Stores,
        options: ServerOptions,
        world: SharedWorld,
    ) -> Result<Arc<Server>, StartError> {
        Server::run(info.clone(), (stores, None), options, world, None)
    }

    /// The same, of a file system that the caller holds; the server keeps the hold until it ends.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_held(
        info: &FilesystemInfo,
        stores: Stores,
        options: ServerOptions,
        world: SharedWorld,
        ownership: Ownership,
    ) -> Result<Arc<Server>, StartError> {
        Server::run(info.clone(), (stores, None), options, world, Some(ownership))
    }

    fn run(
        info: FilesystemInfo,
        (stores, reserve): (Stores, Option<Arc<Reserve>>),
        options: ServerOptions,
        world: SharedWorld,
        ownership: Option<Ownership>,
    ) -> Result<Arc<Server>, StartError> {
        let shared = recover(info, (stores, reserve, ownership.is_some()), options, world)?;
        if let Some(ownership) = &ownership {
            let shared = Arc::downgrade(&shared);
            ownership.on_lost(Box::new(move |how| {
                let Some(shared) = shared.upgrade() else { return };
                match how {
                    Lost::To(holder) => shared.fenced(holder),
                    Lost::Gone(why) => shared.store_gone(why),
                }
            }));
        }
        let mut bodies: Vec<(&str, Body)> =
            vec![("chiton-sched", Shared::schedule), ("chiton-checkpoint", Shared::checkpointer)];
        bodies.extend(iter::repeat_n(("chiton-io", Shared::io_thread as Body), io_pool::THREADS));
        Server::running(shared, ownership, &bodies)
    }

    /// The server with its threads.
    pub(super) fn running(
        shared: Arc<Shared>,
        ownership: Option<Ownership>,
        bodies: &[(&str, Body)],
    ) -> Result<Arc<Server>, StartError> {
        let server = Server {
            shared: shared.clone(),
            threads: Mutex::new(Vec::new()),
            serving: Mutex::new(Vec::new()),
            ownership: Mutex::new(ownership),
        };
        for &(name, body) in bodies {
            let shared = shared.clone();
            let thread = thread::spawn(name, move || body(&shared));
            let thread = thread.map_err(|e| StartError::Failed(format!("a thread: {e}")))?;
            server.threads.lock().push(thread);
        }
        Ok(Arc::new(server))
    }

    /// Begins a session of a client in this process. Recalls are told to `on_recall` on a thread of the session's
    /// own, one at a time; when it returns, the lease is given back. It may call the session.
    ///
    /// # Errors
    /// In words: too many sessions, the server stops, no id can be reserved.
    pub fn session_embedded(
        &self,
        identity: &str,
        on_recall: Box<dyn Fn(Recall) + Send + Sync>,
    ) -> Result<EmbeddedSession, String> {
        EmbeddedSession::begin(self.shared.clone(), identity, on_recall)
    }

    /// Lets clients connect. Returns the addresses, with the ports that were given for port 0.
    ///
    /// # Errors
    /// If an address cannot be listened at.
    pub fn serve(&self, addresses: &[Address]) -> std::io::Result<Vec<Address>> {
        let listeners = addresses.iter().map(Listener::bind).collect::<std::io::Result<Vec<_>>>()?;
        let bound = listeners.iter().map(|listener| listener.address().clone()).collect();
        let door = Arc::new(Door(self.shared.clone()));
        let serving = chiton_wire::serve(listeners, door, self.shared.options.serve)?;
        self.serving.lock().push(serving);
        Ok(bound)
    }

    /// What answers the messages of clients, for a network of another kind (simulation).
    pub fn door(&self) -> Arc<dyn chiton_wire::Service> {
        Arc::new(Door(self.shared.clone()))
    }

    /// What is served.
    pub fn filesystem(&self) -> &FilesystemInfo {
        &self.shared.info
    }

    /// Where file data are.
    pub fn objects(&self) -> Arc<dyn Objects> {
        Arc::new(self.shared.user_objects())
    }

    /// Everything up to here is durable.
    pub fn durable(&self) -> Position {
        self.shared.journal.durable()
    }

    /// JSON about the server: `status`, `df`, `top` or `metrics`; `None` for other words.
    pub fn report(&self, what: &str) -> Option<String> {
        self.shared.report(what)
    }

    /// Writes a checkpoint now and waits for it.
    ///
    /// # Errors
    /// In words.
    pub fn checkpoint(&self) -> Result<(), String> {
        self.shared.checkpoint_now(Reason::Asked)
    }

    /// Does at once what is else done by and by: frees what has no name and is not open any more, writes a checkpoint,
    /// deletes blocks that nothing names. For tests and simulation, in which nothing happens by itself.
    ///
    /// # Errors
    /// In words.
    pub fn tidy(&self) -> Result<(), String> {
        // Whoever takes the lock finds nothing deferred after it.
        drop(self.shared.engine.lock());
        while self.shared.schedule_once() {}
        self.shared.checkpoint_now(Reason::Asked)?;
        self.shared.sweep_writers();
        self.shared.sweep_realm_objects(&mut Seen::default());
        Ok(())
    }

    /// Ends in order: closes connections, makes everything durable, writes a checkpoint, closes the stores.
    /// Sessions of clients go on after the next start.
    ///
    /// # Errors
    /// See [`ShutdownError`].
    pub fn shutdown(&self) -> Result<(), ShutdownError> {
        // Who ends in order waits a little for a store that is away; from a crash the next start recovers.
        self.shared.away.end(END_PATIENCE);
        self.stop_threads();
        let _ = self.shared.wait_journal(self.shared.journal.last());
        // What a decoupled client has is in its journal only.
        let checkpoint =
            if self.shared.base.is_some() { Ok(()) } else { self.shared.checkpoint_now(Reason::Asked) };
        let journal = self.shared.journal.close();
        let meta = self.shared.meta.close();
        // The part of the reserve that the last checkpoint did not use is kept for the next start.
        self.shared.take_reserve();
        self.ownership.lock().take();
        journal.map_err(|e| ShutdownError::NotDurable(e.to_string()))?;
        checkpoint.map_err(ShutdownError::NoCheckpoint)?;
        meta.map_err(|e| ShutdownError::NoCheckpoint(e.to_string()))
    }

    /// Ends as a crash would: nothing more reaches the disk. For tests.
    pub fn abandon(&self) {
        self.shared.away.end(std::time::Duration::ZERO);
        // Who is dead does not say that the journal failed.
        self.answer_no_more();
        self.shared.place.sever();
        self.stop_threads();
        // It cannot write any more, which is the point.
        let _ = self.shared.journal.close();
        let is_bucket = self.shared.is_held && self.shared.objects_address.is_empty();
        let listed = is_bucket.then(|| self.shared.objects.list("", None, 1));
        match listed {
            Some(Err(error)) if error.is_gone() => self.shared.meta.leave(),
            _ => drop(self.shared.meta.close()),
        }
        self.ownership.lock().take();
    }

    fn answer_no_more(&self) {
        self.serving.lock().clear();
        // Under the engine's lock: a request is answered whole or finds the server stopping.
        let _engine = self.shared.engine.lock_as_it_is();
        self.shared.stopping.store(true, Ordering::Release);
    }

    fn stop_threads(&self) {
        self.answer_no_more();
        self.shared.commits.scheduler_wake_up.wake();
        self.shared.checkpoint_wake_up.wake();
        self.shared.numbers_wake_up.wake();
        self.shared.io_pool.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                self.shared.log("a thread of the server panicked");
            }
        }
        self.shared.dismiss_waiters();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_threads();
        // Before the lock on the directory goes. Whoever wants to know how it ended calls shutdown.
        let _ = self.shared.journal.close();
        let _ = self.shared.meta.close();
    }
}
