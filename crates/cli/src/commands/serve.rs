//! `chiton serve`.

mod member;
mod metrics;

use std::sync::{Arc, Mutex, mpsc};

use chiton_etcd::EtcdAddress;
use chiton_journal::Progress;
use chiton_runtime::RealWorld;
use chiton_server::{DataAddress, Server, ServerOptions, Trust};
use chiton_transport::{Address, Listener};
use chiton_tree_jobs::Jobs;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Serve, ServerArgs};
use crate::failure::{Class, Failure, Outcome};
use crate::progress::Work;
use crate::{identity, monitor, target};

pub(crate) use metrics::Metrics;

/// Called with the reason why this server must end: [`Class::Busy`], another has taken over; [`Class::Restart`],
/// its journal failed.
pub(crate) type Ending = Arc<dyn Fn(Class, &str) + Send + Sync>;

pub(crate) fn run(args: &Serve) -> Outcome {
    // Listened for from the start: a signal during recovery ends the process in order, too.
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")))?;
    let data = target::absolute(&args.data)?;
    let metrics = Metrics::start(args.server.metrics)?;
    if let Some(monitor) = cluster(args, &data)? {
        return member::run(args, &monitor, &data, &metrics, signals);
    }
    let (end, ended) = mpsc::channel();
    let fenced = Mutex::new(end.clone());
    let report =
        move |class: Class, why: &str| drop(fenced.lock().map(|end| end.send(Some((class, why.to_owned())))));
    let trust = trust(&args.listen)?;
    let work = Work::begin("replaying the journal");
    let jobs = Arc::new(Jobs::new(Arc::new(RealWorld)));
    let of_clients = OfClients { trust, jobs: Some(jobs.clone()) };
    let server =
        start_with(&data, &args.server, of_clients, Arc::new(report), move |progress| work.report(progress))?;
    metrics.show(&server);
    let mut addresses = vec![Address::Unix(target::socket(&data)?)];
    addresses.extend(args.listen.iter().cloned());
    if args.server.take_over {
        // Its former server may be there still, paused perhaps, and has lost its right.
        Listener::displace(&addresses[0])
            .map_err(|e| Failure::failed(format!("cannot take over the socket {}: {e}", addresses[0])))?;
    }
    server.serve(&addresses).map_err(|e| Failure::new(Class::Busy, format!("cannot serve: {e}")))?;
    jobs.serve(addresses[0].clone(), None);
    for address in &addresses {
        chiton_runtime::log_line!("serving {data} on {address}");
    }
    std::thread::spawn(move || {
        signals.forever().next();
        // The receiver lives as long as the process.
        let _ = end.send(None);
    });
    if let Ok(Some((class, why))) = ended.recv() {
        server.abandon();
        return Err(Failure::new(class, why));
    }
    chiton_runtime::log_line!("shutting down: everything is made durable first");
    jobs.end();
    server.shutdown().map_err(Failure::failed)
}

/// The etcd of the cluster that the server joins, if it joins one. That of the environment counts for the storage of a cluster only: a
/// machine may serve other file systems, too.
fn cluster(args: &Serve, data: &DataAddress) -> Outcome<Option<EtcdAddress>> {
    if let Some(monitor) = &args.monitor {
        return Ok(Some(monitor.clone()));
    }
    let is_of_cluster = || Server::info_of_any(data).is_ok_and(|info| info.monitor.is_some());
    let monitor = monitor::of_environment()?.filter(|_| is_of_cluster());
    let of_cluster = [
        (args.insecure, "--insecure"),
        (!args.advertise.is_empty(), "--advertise"),
        (!args.domain.is_empty(), "--domain"),
        (args.weight.is_some(), "--weight"),
        (args.standby, "--standby"),
    ];
    let given =
        |options: &[(bool, &'static str)]| options.iter().find(|(given, _)| *given).map(|(_, name)| *name);
    match &monitor {
        None => match given(&of_cluster) {
            None => Ok(None),
            Some(option) => Err(Failure::failed(format!(
                "{option} is for a server of a cluster: name the cluster with --monitor etcd://HOST:PORT"
            ))),
        },
        Some(_) if args.listen.is_empty() => Err(Failure::failed(format!(
            "{data} is the storage of a cluster: say where this server listens (--listen tcp:HOST:7117)"
        ))),
        Some(_) => match given(&[(args.server.take_over, "--take-over"), (args.server.salvage, "--salvage")])
        {
            None => Ok(monitor),
            Some(option) => Err(Failure::failed(format!(
                "{data} is the storage of a cluster, whose servers do not take {option}: leave it out"
            ))),
        },
    }
}

/// The options as given.
fn options(args: &ServerArgs) -> ServerOptions {
    let usual = ServerOptions::default();
    ServerOptions {
        cache_bytes: usize::try_from(args.cache).unwrap_or(usize::MAX),
        session_ms: args.session_time.saturating_mul(1000),
        reserve_bytes: args.reserve,
        take_over: args.take_over,
        store_timeout: args.store_timeout.map(std::time::Duration::from_secs),
        recovery_target: args.recovery_target.unwrap_or(usual.recovery_target),
        metrics: args.metrics.is_some(),
        slow_after: args.slow_ms.map(std::time::Duration::from_millis),
        ..usual
    }
}

/// The certificates for TLS; `None` if the server does not listen over TCP, or this process has no identity.
fn trust(listen: &[Address]) -> Outcome<Option<Arc<Trust>>> {
    if !listen.iter().any(|address| matches!(address, Address::Tcp(_))) {
        return Ok(None);
    }
    let Some(credentials) = identity::credentials()? else { return Ok(None) };
    credentials.check_server().map_err(Failure::failed)?;
    Ok(Some(Arc::new(Trust::new(credentials))))
}

/// Starts the server of a file system. `progress` gets the progress of replaying its journal. `ending` is called on
/// another thread if the server must end.
pub(crate) fn start(
    data: &DataAddress,
    args: &ServerArgs,
    ending: Ending,
    progress: impl Fn(Progress) + Send + Sync + 'static,
) -> Outcome<Arc<Server>> {
    start_with(data, args, OfClients::default(), ending, progress)
}

/// The parts of a server that only clients of other processes use.
#[derive(Default)]
struct OfClients {
    trust: Option<Arc<Trust>>,
    jobs: Option<Arc<Jobs>>,
}

fn start_with(
    data: &DataAddress,
    args: &ServerArgs,
    OfClients { trust, jobs }: OfClients,
    ending: Ending,
    progress: impl Fn(Progress) + Send + Sync + 'static,
) -> Outcome<Arc<Server>> {
    let (fenced, failed) = (ending.clone(), ending);
    let options = ServerOptions {
        on_fenced: Some(Arc::new(move |why| fenced(Class::Busy, why))),
        on_failed: Some(Arc::new(move |why| failed(Class::Restart, why))),
        progress: Some(Arc::new(progress)),
        trust,
        tree_jobs: jobs.map(|jobs| jobs as _),
        ..options(args)
    };
    let started = match args.salvage {
        true => chiton_admin::salvage::serve(data, options, Arc::new(RealWorld)),
        false => Server::start(data, options, Arc::new(RealWorld)),
    };
    started.map_err(Failure::from)
}

/// The same, with a bar or lines on standard error.
pub(crate) fn start_visibly(data: &DataAddress, args: &ServerArgs, ending: Ending) -> Outcome<Arc<Server>> {
    let work = Work::begin("replaying the journal");
    start(data, args, ending, move |progress| work.report(progress))
}
