//! A server is killed under load: from the end of its lease to the first answer of each of its plates, alone and together with a client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chiton_client::Client;
use chiton_monitor::Monitor;
use chiton_types::PlateId;

use super::probe::{Calls, Probes};
use super::{Figure, Share, monitor};
use crate::Result;
use crate::cluster::Cluster;

/// The load before a fault.
const BEFORE: Duration = Duration::from_millis(500);
/// The load after it, at least.
const AFTER: Duration = Duration::from_secs(1);
/// A lease that does not end by then is a failure.
const LEASE_MAX: Duration = Duration::from_secs(30);
const GOAL_MS: f64 = 1000.0;

/// Observations of one kill.
struct Kill {
    killed: Instant,
    lease_ended: Instant,
    victims: Vec<PlateId>,
    calls: Calls,
}

/// Every second kill takes a mount, too.
pub(crate) fn run(
    cluster: &mut Cluster,
    client: &Client,
    probes: &Probes,
    kills: u16,
) -> Result<Vec<Figure>> {
    let (mut alone, mut with_client, mut pauses) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..kills {
        let is_with_client = number % 2 == 1;
        let kill = one(cluster, client, probes, usize::from(number), is_with_client)?;
        for plate in &kill.victims {
            let calls = &kill.calls[plate];
            let first = calls.iter().find(|call| call.ended > kill.lease_ended);
            let first = first.ok_or_else(|| format!("plate {plate} has not answered"))?;
            let times = if is_with_client { &mut with_client } else { &mut alone };
            times.push(first.ended - kill.lease_ended);
            pauses.push(first.ended.saturating_duration_since(first.began.max(kill.killed)));
        }
    }
    Ok(vec![
        Figure::of_times("take-over, lease's end to a plate's first answer", &alone)
            .goal(GOAL_MS, Share::All),
        Figure::of_times("the same, a client killed with the server", &with_client).goal(GOAL_MS, Share::All),
        Figure::of_times("longest pause of a caller, lease included", &pauses),
    ])
}

fn one(
    cluster: &mut Cluster,
    client: &Client,
    probes: &Probes,
    number: usize,
    is_with_client: bool,
) -> Result<Kill> {
    if is_with_client {
        let mount = cluster.mount_another()?;
        let file = mount.join(format!("of-the-client-{number}"));
        std::fs::write(&file, b"content").map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let plates = cluster.plates()?;
    let running = cluster.running();
    let busy: Vec<usize> = running.into_iter().filter(|server| plates[*server] > 0).collect();
    let server = *busy.get(number % busy.len().max(1)).ok_or("no server has plates")?;
    let (id, source) = (cluster.id_of(server)?, monitor(cluster)?);
    let map = source.map().map_err(|e| e.to_string())?;
    let owned = (0..).map(PlateId).zip(&map.plates).filter(|(_, entry)| entry.owner == Some(id));
    let victims: Vec<PlateId> = owned.map(|(plate, _)| plate).collect();
    let all: Vec<PlateId> = probes.dirs.keys().copied().collect();
    let ((killed, lease_ended), calls) = probes.watch(client, &all, || {
        std::thread::sleep(BEFORE);
        let is_watching = AtomicBool::new(false);
        let ends = std::thread::scope(|scope| {
            let end = scope.spawn(|| await_end(&source, id, &is_watching));
            while !is_watching.load(Ordering::SeqCst) && !end.is_finished() {
                std::thread::yield_now();
            }
            let killed = Instant::now();
            cluster.kill_server(server);
            if is_with_client {
                cluster.kill_mount();
            }
            let ended = end.join().map_err(|_| "the watch panicked".to_owned())?;
            Ok::<_, String>((killed, ended?))
        })?;
        cluster.await_health()?;
        std::thread::sleep(AFTER);
        Ok(ends)
    })?;
    cluster.start_server(server)?;
    cluster.balance_after_restart(server)?;
    Ok(Kill { killed, lease_ended, victims, calls })
}

/// When the etcd says that the server does not live any more.
fn await_end(monitor: &dyn Monitor, id: u64, is_watching: &AtomicBool) -> Result<Instant> {
    let began = Instant::now();
    let mut watch = monitor.watch(0);
    while began.elapsed() < LEASE_MAX {
        // The first event says that the watch follows.
        let event = watch.next(Duration::from_secs(1));
        let at = Instant::now();
        let alive = monitor.alive().map_err(|e| e.to_string())?;
        if event.is_some() && !alive.contains_key(&id) {
            return Ok(at);
        }
        is_watching.store(true, Ordering::SeqCst);
    }
    Err(format!("the lease of server {id} does not end"))
}
