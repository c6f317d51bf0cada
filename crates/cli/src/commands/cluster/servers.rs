//! Questions to all servers of a cluster at once.
//!
//! ```text
//!   monitor ─ map, alive ─▶ each server that lives ─ "status" ─▶ its report, about its plates
//!                             └ silent until the time limit: named, and the figures lack its plates
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use chiton_client::Client;
use chiton_etcd::{EtcdAddress, EtcdMonitor};
use chiton_monitor::{ClusterMap, Monitor, ServerInfo};
use chiton_runtime::{RealWorld, World};
use chiton_server::{DataAddress, Server, merge_reports};
use chiton_transport::Address;
use chiton_types::PlateId;
use serde_json::{Value, json};

use super::ask::Asked;
use super::failed;
use crate::failure::{Class, Failure, Outcome};
use crate::reach::mount_around;
use crate::{identity, target};

/// A server without an answer in this time is reported as silent.
const LIMIT: Duration = Duration::from_secs(3);
/// How long a command waits for the end of its sessions. A session that is not ended ends by its time.
const END_LIMIT: Duration = Duration::from_millis(500);

/// The servers behind the target of a command.
pub(crate) enum Watched {
    /// All servers of a cluster.
    Cluster(Servers),
    /// A server that belongs to no cluster.
    Server(Client),
}

/// The cluster that a target belongs to, or its server. `monitor` counts if no target is named.
pub(crate) fn watched(target: Option<&str>, monitor: Option<&EtcdAddress>) -> Outcome<Watched> {
    let Some(target) = target else {
        let monitor = monitor.ok_or_else(|| {
            Failure::absent("name a mount point, a server's address or --monitor etcd://HOST")
        })?;
        return Ok(Watched::Cluster(Servers::of(monitor)?));
    };
    if let Some(monitor) = monitor_of(target) {
        let monitor: EtcdAddress = monitor.parse().map_err(|e| Failure::absent(format!("{monitor}: {e}")))?;
        return Ok(Watched::Cluster(Servers::of(&monitor)?));
    }
    let client = target::client(target)?;
    // Its file system says so. The monitor may have another address by now, or none that is reached from here.
    let said = target::admin(&client, "cluster").unwrap_or_default();
    let Some(monitor) = said["monitor"].as_str() else { return Ok(Watched::Server(client)) };
    let servers =
        monitor.parse::<EtcdAddress>().map_err(Failure::failed).and_then(|monitor| Servers::of(&monitor));
    match servers {
        Ok(servers) => Ok(Watched::Cluster(servers)),
        Err(failure) => {
            chiton_runtime::log_line!(
                "chiton: this is the report of one server, since its cluster cannot be asked: {failure}; name the cluster with \
                 --monitor"
            );
            Ok(Watched::Server(client))
        }
    }
}

/// The monitor that a target names: its own address, the source of a mount, or the one for which data were made.
pub(crate) fn monitor_of(target: &str) -> Option<String> {
    if target.starts_with(EtcdAddress::SCHEME) {
        return Some(target.to_owned());
    }
    if let Some(mount) = mount_around(Path::new(target)).ok().flatten() {
        return target::monitor_of_source(&mount.source);
    }
    let is_data = target.starts_with("s3://") || Path::new(target).join(target::FORMAT_FILE).is_file();
    let data: DataAddress = is_data.then(|| target.parse().ok()).flatten()?;
    Server::info_of_any(&data).ok()?.monitor
}

pub(crate) struct Servers {
    monitor: EtcdMonitor,
    pub(crate) address: EtcdAddress,
    /// Sessions that may answer the next question, by the numbers of their servers.
    sessions: BTreeMap<u64, Asked>,
}

/// The result of a question to all servers.
pub(crate) struct Round {
    pub(crate) map: ClusterMap,
    pub(crate) servers: Vec<Seen>,
}

/// A server of the map.
pub(crate) struct Seen {
    pub(crate) info: ServerInfo,
    /// Its plates, by the map.
    pub(crate) plates: Vec<PlateId>,
    pub(crate) said: Said,
}

/// The answer of a server.
pub(crate) enum Said {
    Report(Value),
    /// It answers, and has no plates to report of.
    Nothing,
    /// It lives, and does not answer, for this reason.
    Silent(String),
    /// Its lease has ended.
    Down,
}

impl Servers {
    fn of(monitor: &EtcdAddress) -> Outcome<Servers> {
        let found = EtcdMonitor::open(monitor).map_err(|e| failed(&e))?;
        let servers = Servers { monitor: found, address: monitor.clone(), sessions: BTreeMap::new() };
        // A wrong address is refused before anything is printed.
        servers.monitor.map().map_err(|e| failed(&e))?;
        Ok(servers)
    }

    /// Asks every server that lives for its report, in parallel.
    ///
    /// # Errors
    /// If the monitor does not answer. A server that does not is part of the result.
    pub(crate) fn ask(&mut self, what: &'static str) -> Outcome<Round> {
        let map = self.monitor.map().map_err(|e| failed(&e))?;
        let alive = self.monitor.alive().map_err(|e| failed(&e))?;
        let mut seen: Vec<Seen> =
            map.servers.values().map(|info| Seen::new(info, &map, alive.get(&info.id))).collect();
        let (sender, receiver) = mpsc::channel();
        let mut waiting = BTreeSet::new();
        for (n, server) in seen.iter().enumerate().filter(|(_, server)| !matches!(server.said, Said::Down)) {
            let sender = sender.clone();
            let (addresses, plates) = (server.info.addresses.clone(), server.plates.clone());
            let session = self.sessions.remove(&server.info.id);
            waiting.insert(n);
            // A server may keep the thread for ever; the process ends without it.
            std::thread::spawn(move || {
                // The receiver may have gone: the time limit is over.
                let _ = sender.send((n, ask(session, &addresses, &plates, what)));
            });
        }
        let began = RealWorld.monotonic();
        while !waiting.is_empty() {
            let left = LIMIT.saturating_sub(RealWorld.monotonic() - began);
            let Ok((n, answer)) = receiver.recv_timeout(left) else { break };
            waiting.remove(&n);
            let server = &mut seen[n];
            server.said = match answer {
                Ok((Some(session), report)) => {
                    self.sessions.insert(server.info.id, session);
                    Said::Report(report)
                }
                Ok((None, _)) => Said::Nothing,
                Err(why) => Said::Silent(why),
            };
        }
        Ok(Round { map, servers: seen })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let (sender, receiver) = mpsc::channel();
        let sessions = std::mem::take(&mut self.sessions);
        let count = sessions.len();
        for session in sessions.into_values() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                session.end();
                let _ = sender.send(());
            });
        }
        let began = RealWorld.monotonic();
        for _ in 0..count {
            let left = END_LIMIT.saturating_sub(RealWorld.monotonic() - began);
            if receiver.recv_timeout(left).is_err() {
                break;
            }
        }
    }
}

/// The report of a server with plates, and the session for the next question; nothing of one without.
fn ask(
    session: Option<Asked>,
    addresses: &[String],
    plates: &[PlateId],
    what: &str,
) -> Result<(Option<Asked>, Value), String> {
    // The plate of a session may have moved since: a new session finds another plate.
    if let Some(session) = session
        && let Ok(report) = session.report(what)
    {
        return Ok((Some(session), report));
    }
    if plates.is_empty() {
        let mut failure = "it has no address that this version understands".to_owned();
        let credentials = identity::credentials().map_err(|failure| failure.to_string())?;
        for address in addresses.iter().filter_map(|address| address.parse::<Address>().ok()) {
            match chiton_transport::probe(&address, credentials.as_ref(), LIMIT) {
                Ok(()) => return Ok((None, Value::Null)),
                Err(error) => failure = format!("{address}: {error}"),
            }
        }
        return Err(failure);
    }
    let session = Asked::open(addresses, plates, LIMIT)?;
    let report = session.report(what)?;
    Ok((Some(session), report))
}

impl Seen {
    fn new(info: &ServerInfo, map: &ClusterMap, alive: Option<&u64>) -> Seen {
        let is_its = |id: Option<u64>| id == Some(info.id);
        let plates = (0..).map(PlateId).zip(&map.plates).filter(|(_, entry)| is_its(entry.owner));
        let said = match alive == Some(&info.generation) {
            true => Said::Silent(format!("no answer within {} s", LIMIT.as_secs())),
            false => Said::Down,
        };
        Seen { info: info.clone(), plates: plates.map(|(plate, _)| plate).collect(), said }
    }

    pub(crate) fn report(&self) -> Option<&Value> {
        match &self.said {
            Said::Report(report) => Some(report),
            Said::Nothing | Said::Silent(_) | Said::Down => None,
        }
    }

    /// One word, for tables.
    pub(crate) fn state(&self) -> &'static str {
        match &self.said {
            Said::Report(_) => "up",
            Said::Nothing if self.info.is_standby => "standby",
            Said::Nothing => "no plates",
            Said::Silent(_) => "SILENT",
            Said::Down => "down",
        }
    }
}

impl Round {
    /// The reports of all servers that answered, as one; `None` if none did.
    pub(crate) fn merged(&self) -> Option<Value> {
        merge_reports(self.servers.iter().filter_map(Seen::report).cloned().collect())
    }

    /// The servers that live and do not answer, and why.
    pub(crate) fn silent(&self) -> impl Iterator<Item = (&ServerInfo, &str)> {
        self.servers.iter().filter_map(|server| match &server.said {
            Said::Silent(why) => Some((&server.info, why.as_str())),
            _ => None,
        })
    }

    /// Plates whose server does not live.
    pub(crate) fn orphans(&self) -> Vec<PlateId> {
        let is_down = |id: u64| {
            let server = self.servers.iter().find(|server| server.info.id == id);
            server.is_none_or(|server| matches!(server.said, Said::Down))
        };
        let plates = (0..).map(PlateId).zip(&self.map.plates);
        plates.filter(|(_, entry)| entry.owner.is_none_or(is_down)).map(|(plate, _)| plate).collect()
    }

    /// A line for each server, as JSON.
    pub(crate) fn servers_json(&self) -> Value {
        let line = |server: &Seen| {
            let why = match &server.said {
                Said::Silent(why) => Some(why),
                _ => None,
            };
            json!({
                "id": server.info.id,
                "addresses": server.info.addresses,
                "state": server.state(),
                "standby": server.info.is_standby,
                "why": why,
                "plates": server.plates.iter().map(|plate| plate.0).collect::<Vec<_>>(),
            })
        };
        self.servers.iter().map(line).collect()
    }

    /// Fails if the figures of a plate are missing, and names the servers.
    pub(crate) fn complete(&self, monitor: &EtcdAddress) -> Outcome {
        let silent: Vec<String> = self
            .silent()
            .map(|(info, why)| format!("server {} does not answer ({why})", info.id))
            .chain(match self.orphans().as_slice() {
                [] => None,
                orphans => Some(format!("{} have no server that lives", numbers(orphans))),
            })
            .collect();
        match silent.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(
                Class::Failed,
                format!(
                    "{}: the figures lack these plates; chiton cluster status --monitor {monitor} shows whether others take them over",
                    silent.join("; ")
                ),
            )),
        }
    }
}

/// `plate 3`, or `plates 3, 4`.
fn numbers(plates: &[PlateId]) -> String {
    let all: Vec<String> = plates.iter().map(ToString::to_string).collect();
    format!("{} {}", if all.len() == 1 { "plate" } else { "plates" }, all.join(", "))
}
