//! `chiton status` of a cluster: the report about all plates, then a table of servers and plates.

use chiton_types::counted;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::{everything, report};
use crate::args::Status;
use crate::commands::cluster::{Round, Servers};
use crate::failure::{Failure, Outcome};
use crate::size;

pub(super) fn run(args: &Status, mut servers: Servers) -> Outcome {
    let round = servers.ask("status")?;
    let status = status(&round);
    let target = servers.address.to_string();
    if args.watched.json {
        println!("{status}");
        return round.complete(&servers.address);
    }
    println!("{}", report::of(args.watched.target.as_deref().unwrap_or(&target), &status));
    println!("\n{}", table(&status).trim_fmt());
    if args.verbose {
        println!("\n{}", everything::everything(&status));
    }
    // The report has named the servers that do not answer; this is for the exit code.
    round
        .complete(&servers.address)
        .map_err(|failure| Failure::new(failure.class, "the cluster is not complete, see above"))
}

/// The merged report, with all plates of the map and with the servers.
fn status(round: &Round) -> Value {
    let mut status = round.merged().unwrap_or_else(|| json!({}));
    let lines = status["plates"].take();
    let mut plates = Vec::new();
    for (plate, entry) in round.map.plates.iter().enumerate() {
        let known = lines.as_array().into_iter().flatten().find(|line| line["plate"] == plate);
        let mut line = known.cloned().unwrap_or_else(|| json!({ "plate": plate, "runs": false }));
        line["server"] = json!(entry.owner);
        plates.push(line);
    }
    status["plates"] = json!(plates);
    status["servers"] = round.servers_json();
    status["map"] = json!({
        "epoch": round.map.epoch,
        "lease_ms": round.map.lease_ms,
        "plates_without_server": round.orphans().iter().map(|plate| plate.0).collect::<Vec<_>>(),
    });
    status
}

fn table(status: &Value) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "server",
        "address",
        "state",
        "plate",
        "health",
        "files",
        "clients",
        "not durable",
        "cache",
    ]);
    let all = |name: &str| status[name].as_array().map_or(&[][..], Vec::as_slice);
    for server in all("servers") {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let head = [server["id"].to_string(), text(&server["addresses"][0]), text(&server["state"])];
        let mut plates = all("plates").iter().filter(|plate| plate["server"] == server["id"]);
        match plates.next() {
            Some(first) => table.add_row(head.into_iter().chain(cells(first))),
            None => table.add_row(head),
        };
        for plate in plates {
            table.add_row(["", "", ""].map(str::to_owned).into_iter().chain(cells(plate)));
        }
    }
    for plate in all("plates").iter().filter(|plate| plate["server"].is_null()) {
        table.add_row(["-", "-", "-"].map(str::to_owned).into_iter().chain(cells(plate)));
    }
    table
}

/// Plate, health, files, sessions, events that are not durable, memory.
fn cells(plate: &Value) -> [String; 6] {
    let number = plate["plate"].to_string();
    if plate["runs"] == false {
        return [number, "?".into(), "?".into(), "?".into(), "?".into(), "?".into()];
    }
    let health = match plate["recovery"]["sessions"].as_u64() {
        Some(waits) => format!("waits for {}", counted(waits, "client")),
        None => plate["health"].as_str().unwrap_or("?").to_owned(),
    };
    let of = |name: &str| plate[name].as_u64().unwrap_or(0);
    [
        number,
        health,
        of("inodes").to_string(),
        of("sessions").to_string(),
        of("lag_events").to_string(),
        size::human(of("cache_bytes")),
    ]
}
