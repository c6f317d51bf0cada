//! `chiton cluster status`, `map`, `plates` and `history`: they print the map and its history.

use std::collections::BTreeMap;

use chiton_model::text::utc;
use chiton_monitor::{Alive, ClusterMap, Monitor, ServerInfo};
use chiton_types::Time;
use comfy_table::{Table, presets};
use serde_json::json;

use super::{History, Monitored, failed};
use crate::duration;
use crate::failure::{Class, Failure, Outcome};

fn state(server: &ServerInfo, alive: &Alive) -> String {
    let lives = if alive.get(&server.id) == Some(&server.generation) { "up" } else { "down" };
    let is_in = if server.is_in { "in" } else { "out" };
    let standby = if server.is_standby { ", standby" } else { "" };
    format!("{lives}, {is_in}{standby}")
}

fn plates_of(map: &ClusterMap) -> BTreeMap<u64, usize> {
    map.plates.iter().filter_map(|entry| entry.owner).fold(BTreeMap::new(), |mut counts, id| {
        *counts.entry(id).or_default() += 1;
        counts
    })
}

fn table<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head);
    table
}

pub(super) fn status(args: &Monitored) -> Outcome {
    let monitor = args.open()?;
    let map = monitor.map().map_err(|e| failed(&e))?;
    let alive = monitor.alive().map_err(|e| failed(&e))?;
    let lives =
        |id: u64| map.servers.get(&id).is_some_and(|server| alive.get(&id) == Some(&server.generation));
    let orphans = map.plates.iter().filter(|entry| !entry.owner.is_some_and(lives)).count();
    let moving = map.plates.iter().filter(|entry| entry.next.is_some()).count();
    let counts = plates_of(&map);
    let count = |id: u64| counts.get(&id).copied().unwrap_or(0);
    if args.json {
        let server = |server: &ServerInfo| {
            json!({
                "id": server.id, "addresses": server.addresses, "domain": server.domain, "weight": server.weight,
                "up": lives(server.id), "in": server.is_in, "standby": server.is_standby,
                "generation": server.generation, "plates": count(server.id),
            })
        };
        let servers: Vec<_> = map.servers.values().map(server).collect();
        let said = json!({
            "filesystem": format!("{:016x}", map.filesystem), "epoch": map.epoch, "lease_ms": map.lease_ms,
            "plates": map.plates.len(), "plates_without_server": orphans, "plates_moving": moving, "servers": servers,
        });
        println!("{said}");
    } else {
        let mut shown = table(["server", "address", "state", "weight", "domain", "plates"]);
        for server in map.servers.values() {
            shown.add_row([
                server.id.to_string(),
                server.addresses.join(", "),
                state(server, &alive),
                server.weight.to_string(),
                if server.domain.is_empty() { "-".to_owned() } else { server.domain.clone() },
                count(server.id).to_string(),
            ]);
        }
        let lease = duration::human(map.lease_ms.into());
        println!("file system {:016x}, map of epoch {}, lease {lease}", map.filesystem, map.epoch);
        println!("{}", shown.trim_fmt());
        if moving > 0 {
            println!("{moving} of {} plates are being handed over", map.plates.len());
        }
        if orphans == 0 {
            println!("all {} plates have a server that lives", map.plates.len());
        }
    }
    match orphans {
        0 => Ok(()),
        orphans => Err(Failure::new(
            Class::Failed,
            format!(
                "{orphans} of {} plates have no server that lives: a take-over takes about as long as a lease; if it lasts, start a \
                 server (chiton serve --monitor {} …)",
                map.plates.len(),
                args.monitor
            ),
        )),
    }
}

pub(super) fn map(args: &Monitored) -> Outcome {
    let map = args.open()?.map().map_err(|e| failed(&e))?;
    let text = match args.json {
        true => serde_json::to_string(&map),
        false => serde_json::to_string_pretty(&map),
    };
    println!("{}", text.map_err(Failure::failed)?);
    Ok(())
}

pub(super) fn plates(args: &Monitored) -> Outcome {
    let monitor = args.open()?;
    let map = monitor.map().map_err(|e| failed(&e))?;
    if args.json {
        println!("{}", serde_json::to_string(&map.plates).map_err(Failure::failed)?);
        return Ok(());
    }
    let alive = monitor.alive().map_err(|e| failed(&e))?;
    let mut shown = table(["plate", "server", "state", "next"]);
    for (plate, entry) in map.plates.iter().enumerate() {
        let owner = entry.owner.and_then(|id| map.servers.get(&id));
        let name = |id: Option<u64>| id.map_or("-".to_owned(), |id| id.to_string());
        let state = owner.map_or("-".to_owned(), |server| state(server, &alive));
        shown.add_row([plate.to_string(), name(entry.owner), state, name(entry.next)]);
    }
    println!("{}", shown.trim_fmt());
    Ok(())
}

pub(super) fn history(args: &History) -> Outcome {
    let monitor = args.monitored.open()?;
    let lines = monitor.history(args.count).map_err(|e| failed(&e))?;
    if lines.is_empty() {
        // A cluster has a history from its first map on.
        monitor.map().map_err(|e| failed(&e))?;
    }
    if args.monitored.json {
        for line in &lines {
            println!("{}", serde_json::to_string(line).map_err(Failure::failed)?);
        }
        return Ok(());
    }
    let mut shown = table(["epoch", "time (UTC)", "author", "reason", "changes"]);
    for line in lines {
        let time = utc(Time(line.at_ms.saturating_mul(1_000_000)));
        shown.add_row([line.epoch.to_string(), time, line.who, line.why, line.changes]);
    }
    println!("{}", shown.trim_fmt());
    Ok(())
}
