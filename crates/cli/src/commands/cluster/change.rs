//! Changes of the map by an administrator.

use std::time::Duration;

use chiton_etcd::EtcdMonitor;
use chiton_monitor::{Alive, ClusterMap, Event, MapChange, Monitor, ServerInfo};

use super::{Add, Named, Rebalance, failed, not_changed, who};
use crate::failure::{Class, Failure, Outcome};
use crate::progress::Work;
use chiton_types::counted;

/// A hand-over that makes no progress for so long is reported.
const PATIENCE: Duration = Duration::from_secs(60);

/// The map and the living servers.
fn look(monitor: &EtcdMonitor) -> Outcome<(ClusterMap, Alive)> {
    Ok((monitor.map().map_err(|e| failed(&e))?, monitor.alive().map_err(|e| failed(&e))?))
}

fn change(monitor: &EtcdMonitor, map: &ClusterMap, changes: &[MapChange], why: &str) -> Outcome<u64> {
    monitor.change(map.epoch, &[], changes, &who(), why).map_err(|e| not_changed(&e))
}

fn server(map: &ClusterMap, id: u64) -> Outcome<ServerInfo> {
    map.servers.get(&id).cloned().ok_or_else(|| {
        let known: Vec<String> = map.servers.keys().map(ToString::to_string).collect();
        Failure::absent(format!("the cluster has no server {id}; its servers are {}", known.join(", ")))
    })
}

/// Prints the result: one sentence, or JSON.
fn done(json: bool, epoch: u64, said: &str) {
    match json {
        true => println!("{}", serde_json::json!({ "epoch": epoch })),
        false => println!("{said} (map of epoch {epoch})"),
    }
}

pub(super) fn add(args: &Add) -> Outcome {
    let monitor = args.monitored.open()?;
    let (map, _) = look(&monitor)?;
    let address = args.address.to_string();
    if let Some(known) = map.servers.values().find(|server| server.addresses.contains(&address)) {
        return Err(Failure::new(
            Class::Busy,
            format!("{address} is the address of server {} already", known.id),
        ));
    }
    let id = map.servers.keys().next_back().copied().unwrap_or(0) + 1;
    let new = ServerInfo {
        id,
        addresses: vec![address.clone()],
        domain: args.domain.clone(),
        weight: args.weight,
        is_in: true,
        is_standby: false,
        generation: 0,
    };
    let epoch = change(&monitor, &map, &[MapChange::PutServer(new)], "server add")?;
    done(args.monitored.json, epoch, &format!("server {id} is expected at {address}"));
    Ok(())
}

pub(super) fn set_in(args: &Named, is_in: bool) -> Outcome {
    let monitor = args.monitored.open()?;
    let (map, _) = look(&monitor)?;
    let server = ServerInfo { is_in, ..server(&map, args.id)? };
    let word = if is_in { "in" } else { "out" };
    let epoch = change(&monitor, &map, &[MapChange::PutServer(server)], &format!("server {word}"))?;
    let said = match is_in {
        true => format!("server {} gets plates again; chiton cluster rebalance hands some over now", args.id),
        false => format!(
            "server {} gets no more plates; chiton cluster server drain takes those that it has",
            args.id
        ),
    };
    done(args.monitored.json, epoch, &said);
    Ok(())
}

pub(super) fn remove(args: &Named) -> Outcome {
    let monitor = args.monitored.open()?;
    let (map, alive) = look(&monitor)?;
    server(&map, args.id)?;
    if alive.contains_key(&args.id) {
        let id = args.id;
        return Err(Failure::new(
            Class::Busy,
            format!("server {id} runs: drain it (chiton cluster server drain {id}), then stop it"),
        ));
    }
    let epoch = change(&monitor, &map, &[MapChange::RemoveServer(args.id)], "server rm")?;
    done(args.monitored.json, epoch, &format!("server {} is removed", args.id));
    Ok(())
}

pub(super) fn drain(args: &Named) -> Outcome {
    let monitor = args.monitored.open()?;
    let (map, alive) = look(&monitor)?;
    let own = server(&map, args.id)?;
    let put = MapChange::PutServer(ServerInfo { is_in: false, ..own });
    // Decided on the map as it will be, so that the server is out and its plates leave in one change.
    let (after, _) = map.changed(std::slice::from_ref(&put)).map_err(Failure::failed)?;
    let owns =
        |plate: u32| after.plates.get(plate as usize).is_some_and(|entry| entry.owner == Some(args.id));
    let of_it = |change: &MapChange| matches!(change, MapChange::SetPlate { plate, .. } if owns(*plate));
    let moves: Vec<MapChange> = chiton_monitor::rebalance(&after, &alive).into_iter().filter(of_it).collect();
    let owned = after.plates.iter().filter(|entry| entry.owner == Some(args.id)).count();
    if alive.contains_key(&args.id) && moves.len() < owned {
        return Err(Failure::failed(format!(
            "there is no other server that could take the {} of server {}: start one, or bring one in (chiton cluster server in)",
            counted(owned as u64, "plate"),
            args.id
        )));
    }
    let changes: Vec<MapChange> = [put].into_iter().chain(moves).collect();
    let epoch = change(&monitor, &map, &changes, "server drain")?;
    follow(&monitor, "handing plates over")?;
    done(
        args.monitored.json,
        epoch,
        &format!("server {} has no plates and gets none; it may be stopped", args.id),
    );
    Ok(())
}

pub(super) fn rebalance(args: &Rebalance) -> Outcome {
    let monitor = args.monitored.open()?;
    let (map, alive) = look(&monitor)?;
    let moves = chiton_monitor::rebalance(&map, &alive);
    if args.dry_run {
        if args.monitored.json {
            println!("{}", serde_json::to_string(&moves).map_err(Failure::failed)?);
            return Ok(());
        }
        for one in &moves {
            println!("{one}");
        }
        println!("{} would be handed over", counted(moves.len() as u64, "plate"));
        return Ok(());
    }
    if moves.is_empty() {
        done(args.monitored.json, map.epoch, "the plates are balanced");
        return Ok(());
    }
    let epoch = change(&monitor, &map, &moves, "rebalance")?;
    follow(&monitor, "handing plates over")?;
    done(args.monitored.json, epoch, &format!("handed over: {}", counted(moves.len() as u64, "plate")));
    Ok(())
}

/// Waits until no plate is on its way to another server.
fn follow(monitor: &EtcdMonitor, doing: &'static str) -> Outcome {
    let mut map = monitor.map().map_err(|e| failed(&e))?;
    let left = |map: &ClusterMap| map.plates.iter().filter(|entry| entry.next.is_some()).count() as u64;
    let total = left(&map);
    let work = Work::counting(doing, "plates");
    let mut watch = monitor.watch(map.epoch);
    while left(&map) > 0 {
        work.count(total.saturating_sub(left(&map)), total);
        match watch.next(PATIENCE) {
            Some(Event::Map(increment)) if map.apply(&increment).is_ok() => {}
            Some(Event::Whole(whole)) => map = whole,
            Some(Event::Servers) => {}
            Some(Event::Map(_)) => map = monitor.map().map_err(|e| failed(&e))?,
            None => {
                return Err(Failure::failed(format!(
                    "{} plates are still on their way, and nothing has moved for {} s: read the logs of their servers (chiton cluster \
                     plates shows which)",
                    left(&map),
                    PATIENCE.as_secs()
                )));
            }
        }
    }
    Ok(())
}
