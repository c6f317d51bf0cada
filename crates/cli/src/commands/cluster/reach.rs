//! The way from a monitor to the servers.

use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_etcd::{EtcdAddress, EtcdMonitor};
use chiton_monitor::{Monitor, MonitorError};
use chiton_runtime::{RealWorld, World};
use chiton_transport::Address;

use super::failed;
use crate::failure::{Class, Failure, Outcome};
use crate::{identity, reach};

/// How long servers that take plates over, or start, are waited for, and the etcd behind a mount.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// The addresses of the servers: those that live first, in the order of their numbers.
fn addresses(monitor: &EtcdMonitor) -> Result<Vec<Address>, MonitorError> {
    let (map, alive) = (monitor.map()?, monitor.alive()?);
    let (living, others): (Vec<_>, Vec<_>) =
        map.servers.values().partition(|server| alive.contains_key(&server.id));
    let all = living.into_iter().chain(others).flat_map(|server| &server.addresses);
    Ok(all.filter_map(|address| address.parse().ok()).collect())
}

/// A client of the cluster, which finds its servers in the monitor whenever it needs them.
pub(crate) fn client(monitor: &EtcdAddress, options: &ClientOptions) -> Outcome<Client> {
    let options = identity::with(options.clone())?;
    let found = EtcdMonitor::open(monitor).map_err(|e| failed(&e))?;
    let began = RealWorld.monotonic();
    loop {
        let known = addresses(&found).map_err(|e| failed(&e))?;
        let is_near = !known.is_empty() && known.iter().all(|address| matches!(address, Address::Unix(_)));
        let source = found.clone();
        let ask = Box::new(move || addresses(&source).unwrap_or_default());
        let error = match Client::connect_to_any(ask, is_near, options.clone()) {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        if RealWorld.monotonic() - began >= PATIENCE {
            return Err(Failure::absent(format!(
                "the servers of {monitor} do not answer: {error}; chiton cluster status --monitor {monitor} shows them"
            )));
        }
        std::thread::sleep(PAUSE);
    }
}

/// As [`server_that_answers`], of a cluster that has a mount: like the mount, it waits while the etcd or the servers are away.
pub(crate) fn server_behind_mount(monitor: &str) -> Outcome<Address> {
    while_absent(|| server_that_answers(monitor))
}

/// Tries again for a while where the etcd, or a server, is not there: others take the place of a dead one.
pub(crate) fn while_absent<T>(mut attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    let began = RealWorld.monotonic();
    loop {
        match attempt() {
            Err(failure) if failure.class == Class::Absent && RealWorld.monotonic() - began < PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            found => return found,
        }
    }
}

/// A server of the cluster that answers.
pub(crate) fn server_that_answers(monitor: &str) -> Outcome<Address> {
    let address: EtcdAddress = monitor.parse().map_err(|e| Failure::absent(format!("{monitor}: {e}")))?;
    let found = EtcdMonitor::open(&address).map_err(|e| failed(&e))?;
    let known = addresses(&found).map_err(|e| failed(&e))?;
    let mut failure = Failure::absent(format!(
        "the cluster of {address} has no servers: start one (chiton serve --monitor {address} …)"
    ));
    for server in known {
        match reach::probe(&server, monitor) {
            Ok(()) => return Ok(server),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
