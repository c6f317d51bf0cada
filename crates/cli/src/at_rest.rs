//! Whether a cluster is at rest, so that a tool may open its data.

use std::sync::Arc;

use chiton_etcd::{EtcdAddress, EtcdMonitor};
use chiton_monitor::{Monitor, MonitorError};
use chiton_server::{AtRest, DataAddress, Server, StartError};

use crate::failure::{Failure, Outcome};

/// The check for these data; `None` if they are not those of a cluster. `monitor`: where the map is, if that is not where it was when
/// the cluster was made.
pub(crate) fn of(data: &DataAddress, monitor: Option<&EtcdAddress>) -> Outcome<Option<AtRest>> {
    // A place that cannot be read is refused where it is opened.
    let Ok(info) = Server::info_of_any(data) else { return Ok(None) };
    let Some(recorded) = info.monitor else { return Ok(None) };
    let address = match monitor {
        Some(monitor) => monitor.clone(),
        None => recorded.parse().map_err(|e| Failure::absent(format!("{recorded}: {e}")))?,
    };
    let (data, filesystem) = (data.clone(), info.filesystem);
    Ok(Some(AtRest::new(move || check(&data, filesystem, &address))))
}

fn check(data: &DataAddress, filesystem: u64, address: &EtcdAddress) -> Result<(), StartError> {
    let unknown = |error: MonitorError| {
        StartError::Failed(format!(
            "whether a server of the cluster lives cannot be found out: {error}; start the etcd, or name it with --monitor"
        ))
    };
    let monitor: Arc<dyn Monitor> = Arc::new(EtcdMonitor::open(address).map_err(unknown)?);
    let map = match monitor.map() {
        // The cluster was copied, and its map not made yet.
        Err(MonitorError::Uninitialized) => return Ok(()),
        map => map.map_err(unknown)?,
    };
    if map.filesystem != filesystem {
        return Err(StartError::Failed(format!(
            "{address} has the map of another file system ({:016x}): name the etcd of this cluster with --monitor",
            map.filesystem
        )));
    }
    let alive: Vec<String> = monitor.alive().map_err(unknown)?.keys().map(u64::to_string).collect();
    if alive.is_empty() {
        return Ok(());
    }
    Err(StartError::Held {
        data: data.clone(),
        holder: format!("its cluster (servers that live: {})", alive.join(", ")),
        next: format!(
            "stop all of them first (SIGTERM to each chiton serve; chiton cluster status --monitor {address} lists them)"
        ),
    })
}
