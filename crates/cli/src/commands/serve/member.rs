//! `chiton serve --monitor`: a server of a cluster.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use chiton_cluster::{Ended, Member, MemberError, MemberOptions};
use chiton_etcd::{EtcdAddress, EtcdMonitor};
use chiton_monitor::{Monitor, MonitorError};
use chiton_runtime::RealWorld;
use chiton_server::{DataAddress, ServerOptions, Trust};
use chiton_transport::Address;
use chiton_tree_jobs::Jobs;
use signal_hook::iterator::Signals;

use super::Metrics;
use crate::args::Serve;
use crate::failure::{Class, Failure, Outcome};

/// How long clients believe what they have cached when their server is silent; after that they look for the next one.
const BELIEF_MS: u32 = 700;
/// How long the clients of a plate have to come back after a take-over, as after the restart of a single server. When all are back it
/// ends at once, and a client that is gone is waited for only as long as it may believe its cache.
const WINDOW_MS: u32 = 10_000;
/// How long a plate's journal may be replayed, about.
const RECOVERY_TARGET: Duration = Duration::from_millis(500);

pub(super) fn run(
    args: &Serve,
    monitor: &EtcdAddress,
    data: &DataAddress,
    metrics: &Metrics,
    mut signals: Signals,
) -> Outcome {
    let trust = trust(args)?;
    let monitor: Arc<dyn Monitor> =
        Arc::new(EtcdMonitor::open(monitor).map_err(|e| failure(&MemberError::Monitor(e)))?);
    let advertise = advertised(args)?;
    let jobs = jobs(&advertise, trust.as_deref());
    let options = MemberOptions {
        listen: args.listen.clone(),
        advertise,
        domain: args.domain.clone(),
        weight: args.weight,
        is_standby: args.standby,
        server: ServerOptions {
            grace_ms: WINDOW_MS,
            belief_ms_max: BELIEF_MS,
            gone_ms: 0,
            recovery_target: args.server.recovery_target.unwrap_or(RECOVERY_TARGET),
            log: Arc::new(|line| chiton_runtime::log_line!("{line}")),
            trust,
            tree_jobs: Some(jobs.clone()),
            ..super::options(&args.server)
        },
    };
    let (report_end, ends) = mpsc::channel::<Option<Ended>>();
    let on_signal = report_end.clone();
    std::thread::spawn(move || {
        signals.forever().next();
        // The receiver lives as long as the process.
        let _ = on_signal.send(None);
    });
    let report_end = Mutex::new(report_end);
    let on_end: chiton_cluster::OnEnd = Arc::new(move |why| {
        let report_end = report_end.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = report_end.send(Some(why));
    });
    loop {
        let joined =
            Member::join(monitor.clone(), data, options.clone(), Arc::new(RealWorld), on_end.clone());
        let member = joined.map_err(|e| failure(&e))?;
        metrics.show(member.server());
        let at: Vec<String> = options.listen.iter().map(ToString::to_string).collect();
        chiton_runtime::log_line!("server {} serves {data} on {}", member.id(), at.join(", "));
        match ends.recv() {
            Ok(Some(Ended::LeaseLost)) => {
                member.abandon();
                chiton_runtime::log_line!(
                    "the lease has ended, and other servers may have the plates: joining the cluster again"
                );
            }
            Ok(Some(Ended::Failed(why))) => {
                member.abandon();
                return Err(Failure::new(Class::Restart, why));
            }
            Ok(None) | Err(_) => {
                chiton_runtime::log_line!("leaving: everything is made durable first");
                jobs.end();
                return member.leave().map_err(Failure::failed);
            }
        }
    }
}

/// Jobs ask the cluster as other clients do, from this server on: others may have parts of a tree, and plates move.
fn jobs(advertised: &[Address], trust: Option<&Trust>) -> Arc<Jobs> {
    let jobs = Arc::new(Jobs::new(Arc::new(RealWorld)));
    if let Some(address) = advertised.first() {
        jobs.serve(address.clone(), trust.map(|trust| trust.credentials().clone()));
    }
    jobs
}

/// A cluster has TLS, unless the administrator says that it has not.
fn trust(args: &Serve) -> Outcome<Option<Arc<Trust>>> {
    let is_over_tcp = args.listen.iter().any(|address| matches!(address, Address::Tcp(_)));
    match super::trust(&args.listen)? {
        None if is_over_tcp && !args.insecure => Err(Failure::failed(
            "a server of a cluster needs an identity: make one (chiton auth create NAME --server) and name it with --identity FILE, \
             or give up TLS with --insecure where only trusted machines reach the network",
        )),
        trust => Ok(trust),
    }
}

/// The addresses at which others reach the server.
fn advertised(args: &Serve) -> Outcome<Vec<Address>> {
    if !args.advertise.is_empty() {
        return Ok(args.advertise.clone());
    }
    let is_open = |address: &&Address| match address {
        Address::Tcp(host_port) => ["0.0.0.0:", "[::]:"].iter().any(|any| host_port.starts_with(any)),
        Address::Unix(_) => false,
    };
    match args.listen.iter().find(is_open) {
        None => Ok(args.listen.clone()),
        Some(address) => Err(Failure::failed(format!(
            "{address} stands for all addresses of this machine, and others need one by which they reach it: add --advertise \
             tcp:HOST:PORT"
        ))),
    }
}

fn failure(error: &MemberError) -> Failure {
    let class = match error {
        MemberError::Monitor(MonitorError::Uninitialized | MonitorError::Unavailable(_)) => Class::Absent,
        MemberError::Monitor(_) | MemberError::Another { .. } | MemberError::Failed(_) => Class::Failed,
        MemberError::Start(_) => Class::Failed,
    };
    Failure::new(class, error.to_string())
}
