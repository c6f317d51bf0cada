//! How a server joins and leaves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_monitor::{
    ChangeError, ClusterMap, Condition, Event, Liveness, MapChange, Monitor, MonitorError, ServerInfo, Watch,
};
use chiton_runtime::SharedWorld;
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread::{self, JoinHandle};
use chiton_server::{
    DataAddress, PeerIdentity, Role, Server, ServerOptions, ShutdownError, StartError, Trust,
};
use chiton_transport::Address;
use chiton_types::PlateId;

use crate::gate::LeaseGate;
use crate::refusals::Refusals;

/// How often the map thread retries work that failed.
const TICK: Duration = Duration::from_millis(250);
/// How long a new server waits for one with the same address to leave: longer than its lease, if it is dead.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two tries to renew a lease.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a member ended without being asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its lease ended: it was paused, or could not reach the monitor, and others may have its plates. It may join again.
    LeaseLost,
    /// In words: a journal failed for good. Others take its plates over.
    Failed(String),
}

/// Called once when the member ends without being asked to. The caller then calls [`Member::abandon`].
pub type OnEnd = Arc<dyn Fn(Ended) + Send + Sync>;

/// How a server joins a cluster.
#[derive(Clone)]
pub struct MemberOptions {
    /// The addresses at which it listens.
    pub listen: Vec<Address>,
    /// Where others reach it, the best first. The first address identifies the server in the map. Empty: the addresses of `listen`.
    pub advertise: Vec<Address>,
    /// Servers of one failure domain may fail together. Empty: a domain of its own.
    pub domain: String,
    /// Its share of the plates, against [`chiton_monitor::WEIGHT_ORDINARY`]; `None`: as before.
    pub weight: Option<u32>,
    /// It has no plates until it replaces a dead server.
    pub is_standby: bool,
    /// How the server itself runs. Its `gate` and `on_failed` are set here.
    pub server: ServerOptions,
}

/// Why a server cannot join.
#[derive(Debug)]
pub enum MemberError {
    Monitor(MonitorError),
    Start(StartError),
    /// The data and the monitor belong to different file systems.
    Another {
        data: DataAddress,
        monitor: u64,
        found: u64,
    },
    /// Any other failure, in words.
    Failed(String),
}

impl fmt::Display for MemberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberError::Monitor(error) => error.fmt(f),
            MemberError::Start(error) => error.fmt(f),
            MemberError::Another { data, monitor, found } => write!(
                f,
                "{data} holds file system {found:016x}, and the monitor has the map of {monitor:016x}: all servers of a cluster \
                 need the same storage, a bucket or a directory that each of them sees"
            ),
            MemberError::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for MemberError {}

impl From<MonitorError> for MemberError {
    fn from(error: MonitorError) -> MemberError {
        MemberError::Monitor(error)
    }
}

impl From<StartError> for MemberError {
    fn from(error: StartError) -> MemberError {
        MemberError::Start(error)
    }
}

/// A server of a cluster that runs.
pub struct Member {
    shared: Arc<Shared>,
    map_thread: Mutex<Option<JoinHandle>>,
    lease_thread: Mutex<Option<JoinHandle>>,
    lease: Arc<Mutex<Option<Box<dyn Liveness>>>>,
}

pub(crate) struct Shared {
    pub(crate) monitor: Arc<dyn Monitor>,
    pub(crate) server: Arc<Server>,
    pub(crate) data: DataAddress,
    pub(crate) gate: Arc<LeaseGate>,
    pub(crate) world: SharedWorld,
    pub(crate) log: Arc<dyn Fn(&str) + Send + Sync>,
    /// As it is in the map.
    pub(crate) id: u64,
    pub(crate) generation: u64,
    pub(crate) identity: PeerIdentity,
    /// Plates that are about to be handed over, and whether that is prepared.
    pub(crate) prepared: Mutex<BTreeMap<PlateId, Arc<AtomicBool>>>,
    trust: Option<Arc<Trust>>,
    /// No plates are started or stopped any more.
    is_leaving: AtomicBool,
    /// The lease is not renewed any more.
    is_over: AtomicBool,
    on_end: OnEnd,
    has_ended: AtomicBool,
}

impl Shared {
    pub(crate) fn who(&self) -> String {
        format!("server {}", self.id)
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::SeqCst)
    }

    fn end(&self, why: Ended) {
        if !self.has_ended.swap(true, Ordering::SeqCst) {
            (self.on_end)(why);
        }
    }
}

impl Member {
    /// Joins: listens, registers, and takes the plates that the map gives to it. Returns when it is in the map; the plates follow.
    /// While a server with its address lives, of a former start perhaps, it waits for a while for the end of that one's lease.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub fn join(
        monitor: Arc<dyn Monitor>,
        data: &DataAddress,
        options: MemberOptions,
        world: SharedWorld,
        on_end: OnEnd,
    ) -> Result<Member, MemberError> {
        let map = monitor.map()?;
        let info = Server::info_of_any(data)?;
        if map.filesystem != info.filesystem {
            let (monitor, found) = (map.filesystem, info.filesystem);
            return Err(MemberError::Another { data: data.clone(), monitor, found });
        }
        if info.monitor.is_none() || map.plates.len() != usize::from(info.plates) {
            let why = format!("{data} was not made for a cluster: chiton cluster init makes one");
            return Err(MemberError::Failed(why));
        }
        let gate = Arc::new(LeaseGate::new(world.clone()));
        let log = options.server.log.clone();
        let failed: Arc<Mutex<Option<String>>> = Arc::default();
        let server_options = ServerOptions {
            gate: Some(gate.clone()),
            on_failed: Some({
                let failed = failed.clone();
                Arc::new(move |why: &str| drop(failed.lock().replace(why.to_owned())))
            }),
            ..options.server.clone()
        };
        if let Some(trust) = &server_options.trust {
            trust.set_revoked(map.revoked.keys().map(String::as_str));
        }
        let trust = server_options.trust.clone();
        let role = Role::Serving { info, plates: Vec::new(), ownership: None };
        let server = Server::start_as(role, server_options, world.clone())?;
        let joined = join_with(&monitor, &server, &options, &gate, &world, &log);
        let (own, lease) = joined.inspect_err(|_| {
            gate.end();
            server.abandon();
        })?;
        let identity =
            PeerIdentity { number: own.id, filesystem: map.filesystem, name: format!("server {}", own.id) };
        let shared = Arc::new(Shared {
            monitor,
            server,
            data: data.clone(),
            gate,
            world,
            log,
            id: own.id,
            generation: own.generation,
            identity,
            prepared: Mutex::default(),
            trust,
            is_leaving: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            on_end,
            has_ended: AtomicBool::new(false),
        });
        let lease = Arc::new(Mutex::new(Some(lease)));
        let no_thread = |e: std::io::Error| MemberError::Failed(format!("a thread: {e}"));
        let (renewing, renewed) = (shared.clone(), lease.clone());
        let lease_thread = thread::spawn("chiton-lease", move || keep_lease(&renewing, &renewed, &failed))
            .map_err(no_thread)?;
        let following = shared.clone();
        let map_thread = thread::spawn("chiton-map", move || follow_map(&following)).map_err(no_thread)?;
        Ok(Member {
            shared,
            map_thread: Mutex::new(Some(map_thread)),
            lease_thread: Mutex::new(Some(lease_thread)),
            lease,
        })
    }

    /// Its number in the map.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// The server that runs its plates.
    pub fn server(&self) -> &Arc<Server> {
        &self.shared.server
    }

    /// Leaves in order: everything of its plates is durable, and others get them at once.
    ///
    /// # Errors
    /// As [`Server::shutdown`]; it has left all the same.
    pub fn leave(&self) -> Result<(), ShutdownError> {
        self.shared.is_leaving.store(true, Ordering::SeqCst);
        join(&self.map_thread);
        let result = self.shared.server.shutdown();
        self.shared.is_over.store(true, Ordering::SeqCst);
        join(&self.lease_thread);
        self.shared.gate.end();
        if let Some(lease) = self.lease.lock().take()
            && let Err(error) = lease.leave()
        {
            (self.shared.log)(&format!("the monitor learns of the end when the lease ends: {error}"));
        }
        result
    }

    /// Ends as a crash would.
    pub fn abandon(&self) {
        self.shared.is_leaving.store(true, Ordering::SeqCst);
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.gate.end();
        join(&self.map_thread);
        self.shared.server.abandon();
        join(&self.lease_thread);
    }
}

fn join(thread: &Mutex<Option<JoinHandle>>) {
    let thread = thread.lock().take();
    // Its panic has been reported where it happened.
    let _ = thread.map(JoinHandle::join);
}

/// Listens, registers, and puts the server into the map.
fn join_with(
    monitor: &Arc<dyn Monitor>,
    server: &Arc<Server>,
    options: &MemberOptions,
    gate: &LeaseGate,
    world: &SharedWorld,
    log: &Arc<dyn Fn(&str) + Send + Sync>,
) -> Result<(ServerInfo, Box<dyn Liveness>), MemberError> {
    // The error says that it cannot listen, and at which address.
    let bound = server.serve(&options.listen).map_err(|e| {
        let next = match e.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another server may listen there: stop it, or choose another address"
            }
            _ => "name an address of this machine (--listen)",
        };
        MemberError::Failed(format!("{e}; {next}"))
    })?;
    let addresses = if options.advertise.is_empty() { bound } else { options.advertise.clone() };
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let first =
        addresses.first().ok_or_else(|| MemberError::Failed("a server needs an address".to_owned()))?;
    let mut has_waited = false;
    let began = world.monotonic();
    loop {
        let map = monitor.map()?;
        let before = map.servers.values().find(|server| server.addresses.first() == Some(first));
        let last = map.servers.keys().next_back().copied().unwrap_or(0);
        let own = ServerInfo {
            id: before.map_or(last + 1, |server| server.id),
            addresses: addresses.clone(),
            domain: options.domain.clone(),
            weight: options
                .weight
                .or(before.map(|server| server.weight))
                .unwrap_or(chiton_monitor::WEIGHT_ORDINARY),
            is_in: before.is_none_or(|server| server.is_in),
            is_standby: options.is_standby,
            generation: before.map_or(0, |server| server.generation) + 1,
        };
        let since = world.monotonic();
        let lease = match monitor.register(own.id, own.generation) {
            Ok(lease) => lease,
            Err(MonitorError::Registered { id, generation })
                if world.monotonic().saturating_sub(began)
                    < PATIENCE + Duration::from_millis(u64::from(map.lease_ms) * 2) =>
            {
                if before.is_some() && !std::mem::replace(&mut has_waited, true) {
                    log(&format!(
                        "server {id} at {first} lives already, or has died a moment ago (generation {generation}): waiting until its \
                         lease has ended"
                    ));
                }
                thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let put = [MapChange::PutServer(own.clone())];
        let alive = [Condition::Alive(own.id, own.generation)];
        match monitor.change(map.epoch, &alive, &put, &format!("server {}", own.id), "it joins") {
            Ok(_) => {
                gate.renewed(since, lease.valid_for());
                return Ok((own, lease));
            }
            // Another server has changed the map, and perhaps taken the number.
            Err(ChangeError::Outdated(_) | ChangeError::Condition(_)) => drop(lease.leave()),
            Err(ChangeError::Failed(error)) => return Err(error.into()),
        }
    }
}

/// Renews the lease until the member ends.
fn keep_lease(shared: &Shared, lease: &Mutex<Option<Box<dyn Liveness>>>, failed: &Mutex<Option<String>>) {
    let mut is_well = true;
    let mut last: Option<Duration> = None;
    while !shared.is_over.load(Ordering::SeqCst) {
        if let Some(why) = failed.lock().take() {
            shared.end(Ended::Failed(why));
        }
        shared.server.refuse_late();
        let since = shared.world.monotonic();
        let mut lease = lease.lock();
        let Some(lease) = lease.as_mut() else { return };
        let third = lease.valid_for() / 3;
        if last.is_some_and(|last| since.saturating_sub(last) < third) {
            thread::sleep(PAUSE.min(third / 4));
            continue;
        }
        match lease.renew() {
            Ok(()) => {
                last = Some(since);
                shared.gate.renewed(since, lease.valid_for());
                if !std::mem::replace(&mut is_well, true) {
                    (shared.log)("the monitor answers again: this server continues");
                }
            }
            Err(MonitorError::Expired { .. }) => {
                shared.gate.end();
                return shared.end(Ended::LeaseLost);
            }
            Err(error) => {
                if shared.is_leaving() {
                    // Nobody waits for answers of a server that ends, and the end waits for those that are held back.
                    shared.gate.end();
                }
                if std::mem::replace(&mut is_well, false) {
                    (shared.log)(&format!("the lease cannot be renewed, and answers wait: {error}"));
                }
                thread::sleep(PAUSE.min(third / 4));
            }
        }
    }
}

/// Follows the map until the member leaves.
fn follow_map(shared: &Shared) {
    let mut watch = shared.monitor.watch(0);
    let mut map: Option<ClusterMap> = None;
    let (mut is_settled, mut is_led) = (false, false);
    let mut refusals = Refusals::default();
    while !shared.is_leaving() {
        if let Some(event) = watch.next(TICK) {
            (is_settled, is_led) = (false, false);
            take(shared, &mut map, event);
            drain(shared, &mut map, &mut *watch);
        }
        let Some(map) = &map else { continue };
        if let Some(trust) = &shared.trust {
            trust.set_revoked(map.revoked.keys().map(String::as_str));
            refusals.report(shared, trust, map);
        }
        // A plate that another server has taken shows itself without an event.
        if !is_settled || shared.has_fenced_plates() {
            is_settled = shared.settle(map);
        }
        if !is_led {
            is_led = shared.lead(map);
        }
    }
}

/// Takes the events that have arrived already.
fn drain(shared: &Shared, map: &mut Option<ClusterMap>, watch: &mut dyn Watch) {
    while let Some(event) = watch.next(Duration::ZERO) {
        take(shared, map, event);
    }
}

fn take(shared: &Shared, map: &mut Option<ClusterMap>, event: Event) {
    match event {
        Event::Whole(whole) => *map = Some(whole),
        Event::Map(increment) => {
            let applied = map.as_mut().map(|map| map.apply(&increment));
            if !matches!(applied, Some(Ok(()))) {
                // An increment that does not fit is the monitor's mistake; the whole map mends it.
                match shared.monitor.map() {
                    Ok(whole) => *map = Some(whole),
                    Err(error) => (shared.log)(&format!("the map is out of date: {error}")),
                }
            }
        }
        Event::Servers => {}
    }
}
