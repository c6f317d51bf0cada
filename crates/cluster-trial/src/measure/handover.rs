//! A plate with many entries goes from server to server, and a client works on it meanwhile.

use std::time::{Duration, Instant};

use chiton_client::Client;
use chiton_monitor::{ChangeError, MapChange, Monitor};

use super::probe::Probes;
use super::{Figure, Share, Size, monitor};
use crate::Result;
use crate::cluster::Cluster;

/// Names that are made in one call.
const BATCH: u32 = 1000;
/// Names of one directory.
const DIR_ENTRIES: u32 = 10_000;
/// The load before and after a hand-over.
const AROUND: Duration = Duration::from_millis(500);
/// A hand-over that takes longer is a failure.
const DEADLINE: Duration = Duration::from_secs(120);
const GOAL_MS: f64 = 200.0;

pub(crate) fn run(cluster: &Cluster, client: &Client, probes: &Probes, size: &Size) -> Result<Vec<Figure>> {
    let (plate, dir) = probes.dirs.first_key_value().ok_or("there is no plate")?;
    fill(client, dir, size.entries)?;
    let source = monitor(cluster)?;
    let (mut pauses, mut times) = (Vec::new(), Vec::new());
    for _ in 0..size.moves {
        let (took, calls) = probes.watch(client, &[*plate], || {
            std::thread::sleep(AROUND);
            let took = hand_over(&source, u32::from(plate.0))?;
            std::thread::sleep(AROUND);
            Ok(took)
        })?;
        times.push(took);
        pauses.extend(calls[plate].iter().map(|call| call.ended - call.began).max());
    }
    let what = format!("hand-over of a plate with {} entries, longest pause of a caller", size.entries);
    Ok(vec![
        Figure::of_times(what, &pauses).goal(GOAL_MS, Share::All),
        Figure::of_times("hand-over, from the decision to the change of owner", &times),
    ])
}

/// Files are born on their directory's plate, and a directory below may be elsewhere: so the entries share one directory's plate.
fn fill(client: &Client, dir: &str, entries: u32) -> Result<()> {
    let failed = |refusal: chiton_types::Refusal| format!("entries in {dir}: {refusal}");
    let mut made = 0;
    while made < entries {
        let count = BATCH.min(entries - made);
        let names: Vec<String> = (made..made + count).map(|n| format!("entry-{n:09}")).collect();
        let each = client.create_many(dir, &names).map_err(failed)?;
        if let Some(refusal) = each.into_iter().find_map(std::result::Result::err) {
            return Err(failed(refusal));
        }
        made += count;
        if made % DIR_ENTRIES == 0 {
            client.sync().map_err(failed)?;
        }
    }
    client.sync().map_err(failed)
}

/// Gives the plate to another server that lives; how long that took.
fn hand_over(monitor: &dyn Monitor, plate: u32) -> Result<Duration> {
    let began = Instant::now();
    let to = loop {
        let (map, alive) =
            monitor.map().and_then(|map| Ok((map, monitor.alive()?))).map_err(|e| e.to_string())?;
        let owner = map.plates[plate as usize].owner;
        let others = map.servers.values().filter(|server| !server.is_standby && Some(server.id) != owner);
        let mut others = others.filter(|server| alive.get(&server.id) == Some(&server.generation));
        let to = others.next().ok_or("a hand-over needs two servers")?.id;
        let change = [MapChange::SetPlate { plate, owner, next: Some(to) }];
        match monitor.change(map.epoch, &[], &change, "the trial", "to measure a hand-over") {
            Ok(_) => break to,
            Err(ChangeError::Outdated(_)) => {}
            Err(e) => return Err(e.to_string()),
        }
    };
    let mut watch = monitor.watch(0);
    while began.elapsed() < DEADLINE {
        watch.next(Duration::from_millis(100));
        if monitor.map().map_err(|e| e.to_string())?.plates[plate as usize].owner == Some(to) {
            return Ok(began.elapsed());
        }
    }
    Err(format!("plate {plate} is not handed over"))
}
