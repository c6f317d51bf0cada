//! The faults of a check: servers and members of the etcd are killed or paused, and plates are handed over.

use std::time::{Duration, Instant};

use chiton_runtime::{SeededWorld, World};
use rustix::process::Signal;

use crate::Result;
use crate::cluster::Cluster;
use crate::network::Cut;

/// Between the end of one fault and the next.
const REST: Duration = Duration::from_secs(3);
/// Longer than a lease.
const LONG: Duration = Duration::from_secs(5);
/// Shorter than a lease, and longer than a server answers without one.
const SHORT: Duration = Duration::from_millis(1_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Kill,
    Pause,
    Blink,
    Rebalance,
    Etcd,
    Majority,
    Cut,
    CutShort,
    CutEtcd,
    CutServers,
}

impl Kind {
    pub(crate) const ALL: [Kind; 10] = [
        Kind::Kill,
        Kind::Pause,
        Kind::Blink,
        Kind::Rebalance,
        Kind::Etcd,
        Kind::Majority,
        Kind::Cut,
        Kind::CutShort,
        Kind::CutEtcd,
        Kind::CutServers,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill -9 of a server",
            Kind::Pause => "pause of a server beyond its lease",
            Kind::Blink => "pause of a server within its lease",
            Kind::Rebalance => "plates handed over",
            Kind::Etcd => "kill -9 of an etcd member",
            Kind::Majority => "kill -9 of most of the etcd",
            Kind::Cut => "a server cut off beyond its lease",
            Kind::CutShort => "a server cut off within its lease",
            Kind::CutEtcd => "a server cut off from the etcd",
            Kind::CutServers => "a server cut off from the others",
        }
    }
}

/// A fault that was injected.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// Time since the load began.
    pub(crate) began: Duration,
    /// Time at which everything ran again, since the load began.
    pub(crate) ended: Duration,
}

/// A number below `n` that the seed decides.
fn below(random: &SeededWorld, n: usize) -> usize {
    (random.random() % n.max(1) as u64) as usize
}

/// How many, for how long, and which.
pub(crate) struct Plan {
    pub(crate) time: Duration,
    pub(crate) most: usize,
    pub(crate) seed: u64,
    pub(crate) load_began: Instant,
}

/// Faults until the time is over, or a signal interrupts; each after the one before has passed.
pub(crate) fn run(
    cluster: &mut Cluster,
    plan: &Plan,
    mut is_interrupted: impl FnMut() -> bool,
) -> Result<Vec<Fault>> {
    let random = SeededWorld::new(plan.seed);
    let mut faults = Vec::new();
    let started = Instant::now();
    std::thread::sleep(REST);
    while started.elapsed() < plan.time && !is_interrupted() {
        if faults.len() == plan.most {
            std::thread::sleep(REST);
            continue;
        }
        let kind = match faults.len() {
            // The one that counts the most comes first, whatever the seed.
            0 => Kind::Kill,
            _ => Kind::ALL[below(&random, Kind::ALL.len())],
        };
        // With one server, or one member, there is nobody to take over.
        let is_possible = match kind {
            Kind::Etcd => cluster.etcd.members() >= 3,
            Kind::Majority => true,
            Kind::Cut | Kind::CutShort | Kind::CutEtcd | Kind::CutServers => {
                cluster.network.is_some() && cluster.running().len() >= 2
            }
            _ => cluster.running().len() >= 2,
        };
        if !is_possible {
            continue;
        }
        let began = plan.load_began.elapsed();
        println!("{:7.2} s: {}", started.elapsed().as_secs_f64(), kind.name());
        one(cluster, kind, &random)?;
        cluster.await_health()?;
        faults.push(Fault { kind, began, ended: plan.load_began.elapsed() });
        std::thread::sleep(REST);
    }
    Ok(faults)
}

/// A server that has plates.
fn victim(cluster: &Cluster, random: &SeededWorld) -> Result<usize> {
    let plates = cluster.plates()?;
    let busy: Vec<usize> = cluster.running().into_iter().filter(|number| plates[*number] > 0).collect();
    busy.get(below(random, busy.len())).copied().ok_or_else(|| "no server has plates".to_owned())
}

fn one(cluster: &mut Cluster, kind: Kind, random: &SeededWorld) -> Result<()> {
    match kind {
        Kind::Kill => {
            let server = victim(cluster, random)?;
            cluster.kill_server(server);
            std::thread::sleep(LONG);
            cluster.start_server(server)?;
        }
        Kind::Pause | Kind::Blink => {
            let server = victim(cluster, random)?;
            cluster.signal_server(server, Signal::STOP);
            std::thread::sleep(if kind == Kind::Pause { LONG } else { SHORT });
            cluster.signal_server(server, Signal::CONT);
        }
        Kind::Rebalance => {
            // Another change of the map may come first.
            let tries = (0..5).map(|_| cluster.chiton(&["cluster", "rebalance"]));
            let mut failures = tries.take_while(Result::is_err).filter_map(Result::err);
            if let Some(why) = failures.nth(4) {
                return Err(why);
            }
        }
        Kind::Cut | Kind::CutShort | Kind::CutEtcd | Kind::CutServers => {
            let server = victim(cluster, random)?;
            let network = cluster.network.as_ref().ok_or("the servers have no networks of their own")?;
            let from = match kind {
                Kind::CutEtcd => Cut::Etcd,
                Kind::CutServers => Cut::Servers,
                _ => Cut::Everybody,
            };
            network.cut(server, from)?;
            std::thread::sleep(if kind == Kind::CutShort { SHORT } else { LONG });
            network.mend(server, from)?;
        }
        Kind::Etcd => {
            let member = below(random, cluster.etcd.members());
            cluster.etcd.kill(member);
            std::thread::sleep(LONG);
            cluster.etcd.restart(member)?;
        }
        Kind::Majority => {
            let most: Vec<usize> = (0..=cluster.etcd.members() / 2).collect();
            let epoch = cluster.epoch()?;
            most.iter().for_each(|member| cluster.etcd.kill(*member));
            std::thread::sleep(LONG);
            cluster.etcd.restart_all(&most)?;
            // Servers that could not renew their leases keep them, because etcd counts anew when it is back.
            cluster.await_health()?;
            let after = cluster.epoch()?;
            if after != epoch {
                return Err(format!(
                    "the map went from epoch {epoch} to {after} although no server was gone"
                ));
            }
        }
    }
    Ok(())
}
