//! `chiton cluster init`.

use std::sync::Arc;

use chiton_monitor::{ClusterMap, Monitor, MonitorError};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{DataAddress, FilesystemInfo, FormatError, FormatOptions, Server};

use super::{Init, failed, grow};
use crate::commands::format;
use crate::failure::{Class, Failure, Outcome};
use crate::target;
use chiton_types::counted;

pub(super) fn run(args: &Init) -> Outcome {
    let data = target::absolute(&args.data)?;
    let monitor = args.monitored.open()?;
    let lease_ms = u32::try_from(args.lease.as_millis()).unwrap_or(u32::MAX);
    let before = match monitor.map() {
        Ok(map) => Some(map),
        Err(MonitorError::Uninitialized) => None,
        Err(error) => return Err(failed(&error)),
    };
    let name = args.monitored.monitor.to_string();
    let info = match (before, &args.from) {
        (Some(map), _) => known(&data, &map)?,
        (None, Some(from)) => grow::grown(args, from, &data, &name)?,
        (None, None) => made(args, &data, &name)?,
    };
    match monitor.init(info.filesystem, info.plates.into(), lease_ms) {
        Ok(()) => {}
        Err(MonitorError::Initialized { filesystem }) if filesystem == info.filesystem => {}
        Err(error) => return Err(failed(&error)),
    }
    if args.monitored.json {
        let filesystem = format!("{:016x}", info.filesystem);
        let said = serde_json::json!({ "data": data.to_string(), "monitor": name, "filesystem": filesystem, "plates": info.plates });
        println!("{said}");
    } else {
        println!(
            "{data} is ready for a cluster with {}; start servers, on one machine or on many:",
            counted(info.plates, "plate")
        );
        println!("  chiton serve --monitor {name} --data {data} --listen tcp:HOST:7117");
    }
    Ok(())
}

/// The file system of the data, if it is that of the map: the command is repeated.
fn known(data: &DataAddress, map: &ClusterMap) -> Outcome<FilesystemInfo> {
    match Server::info_of_any(data) {
        Ok(info) if info.filesystem == map.filesystem => Ok(info),
        _ => Err(Failure::new(
            Class::Busy,
            format!(
                "the monitor already has the map of file system {:016x}, which is not in {data}: use another prefix \
                 (etcd://…/PREFIX) for a new one",
                map.filesystem
            ),
        )),
    }
}

/// A new file system; or the one that an earlier, interrupted run of the command made.
fn made(args: &Init, data: &DataAddress, monitor: &str) -> Outcome<FilesystemInfo> {
    let options = FormatOptions { shards: args.shards, plates: args.plates, ..format::options() };
    let world: SharedWorld = Arc::new(RealWorld);
    match Server::format_for_cluster(data, &options, monitor, &world) {
        Ok(info) => Ok(info),
        Err(FormatError::Formatted(_)) => {
            let info = Server::info_of_any(data).map_err(Failure::from)?;
            let is_ours = info.monitor.as_deref() == Some(monitor);
            if is_ours && (info.plates, info.shards) == (args.plates, args.shards) {
                return Ok(info);
            }
            let other = match &info.monitor {
                Some(monitor) => format!("of the cluster at {monitor}, with {} plates", info.plates),
                None => "of one server".to_owned(),
            };
            Err(Failure::new(
                Class::Busy,
                format!("{data} already contains a file system, {other}: choose another place"),
            ))
        }
        Err(error) => Err(error.into()),
    }
}
