//! Reports of a server with several plates, and of a cluster with several servers: the figures of all plates together.
//!
//! ```text
//!   plate 0 ─ status ─┐
//!   plate 1 ─ status ─┴▶ counts are added up; positions, clients and the store's state are those of the first plate
//!                        "journals": one of each plate      "plates": a line for each
//!
//!   server 1 ─ status ─┐
//!   server 2 ─ status ─┴▶ the same once more
//! ```
//!
//! A server of a cluster reports the plates that it runs. Another server reports all plates, and says which of them do not run.

use serde_json::{Value, json};

use chiton_types::PlateId;

use crate::plate::Plate;
use crate::plate_table::PlateTable;

/// Figures that are added up, with all below them. Others are those of the first plate: its positions, its clients (each client has a
/// session with each plate), and the figures of the disk, which all share.
const ADDED: &[&str] = &[
    "cache_bytes",
    "dirty_rows",
    "inodes",
    "inodes_used",
    "garbage_blocks",
    "open_inodes",
    "leases",
    "recalls",
    "locks",
    "waiting",
    "orphans",
    "operations",
    "lag_events",
    "uptime_errors",
    "waiting_commits",
    "object_store",
    "metadata_store",
    "journal",
    "ended_sessions_to_sweep",
    "inode_numbers",
];
/// How bad it is that a plate says this of its health; the first is the worst.
const HEALTH: [&str; 4] = ["failed", "full", "waiting", "good"];

impl Plate {
    /// The answer of all plates to a word; `None` if it is not one of ours.
    pub(crate) fn report_of_all(&self, what: &str) -> Option<String> {
        match self.table.get().and_then(std::sync::Weak::upgrade) {
            Some(table) if table.count() > 1 || self.is_in_cluster() => table.report(what),
            _ => self.report(what),
        }
        .map(|value| value.to_string())
    }

    /// Whether other servers may run the other plates.
    fn is_in_cluster(&self) -> bool {
        self.options.gate.is_some()
    }
}

impl PlateTable {
    /// The answer of all plates to a word; `None` if it is not one of ours, or no plate can answer for all.
    pub(crate) fn report(&self, what: &str) -> Option<Value> {
        let running = self.all();
        let first = &running.first()?.plate;
        if !first.is_in_cluster() && first.plate != PlateId(0) {
            return None;
        }
        let mut total = first.report(what)?;
        if !total.is_object() || what == "policies" {
            return Some(total);
        }
        let mut parts = vec![None; self.count()];
        parts[usize::from(first.plate.0)] = Some(total.clone());
        for one in &running[1..] {
            let part = one.plate.report(what)?;
            add(&mut total, &part);
            parts[usize::from(one.plate.plate.0)] = Some(part);
        }
        if total["journals"].is_array() {
            let lines = parts.iter().enumerate();
            let lines = lines.filter(|(_, part)| part.is_some() || !first.is_in_cluster());
            total["plates"] = lines.map(|(plate, part)| line(plate, part.as_ref())).collect();
        }
        Some(total)
    }
}

/// The reports of several servers of a cluster as one. The one whose plates have the lowest numbers comes first: figures that are not
/// added up are its.
pub fn merge_reports(mut reports: Vec<Value>) -> Option<Value> {
    reports.sort_by_key(|report| report["plates"][0]["plate"].as_u64());
    let mut reports = reports.into_iter();
    let mut total = reports.next()?;
    for report in reports {
        add(&mut total, &report);
    }
    Some(total)
}

/// The line about each plate.
fn line(plate: usize, part: Option<&Value>) -> Value {
    let Some(part) = part else { return json!({ "plate": plate, "runs": false }) };
    json!({
        "plate": plate,
        "runs": true,
        "health": part["health"],
        "inodes": part["inodes"],
        "sessions": part["sessions"],
        "durable": part["durable"],
        "lag_events": part["lag_events"],
        "cache_bytes": part["cache_bytes"],
        "recovery": part["recovery"],
    })
}

fn add(total: &mut Value, part: &Value) {
    for (name, value) in total.as_object_mut().into_iter().flatten() {
        match name.as_str() {
            name if ADDED.contains(&name) => add_all(value, &part[name]),
            "journals" | "away" | "plates" | "decoupled" => {
                let more = part[name].as_array().cloned().unwrap_or_default();
                value.as_array_mut().into_iter().for_each(|all| all.extend(more.iter().cloned()));
            }
            "disk" => add(value, &part[name]),
            "health" => {
                let found = [&*value, &part[name]].map(|health| health.as_str().unwrap_or("good").to_owned());
                let worst = HEALTH.iter().find(|health| found.iter().any(|found| found == *health));
                *value = json!(worst.unwrap_or(&"good"));
            }
            _ => {}
        }
    }
}

fn add_all(total: &mut Value, part: &Value) {
    match total {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| add_all(value, &part[name])),
        Value::Number(number) => {
            *total = json!(number.as_u64().unwrap_or(0).saturating_add(part.as_u64().unwrap_or(0)));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_and_positions_are_not() {
        let mut total = json!({
            "inodes": 3, "durable": 17, "operations": { "make": 2, "unlink": 0 }, "health": "good",
            "disk": { "bytes_free": 5, "inodes_used": 3 }, "journals": [{ "durable": 17 }],
        });
        let part = json!({
            "inodes": 4, "durable": 9, "operations": { "make": 5, "unlink": 1 }, "health": "waiting",
            "disk": { "bytes_free": 5, "inodes_used": 4 }, "journals": [{ "durable": 9 }],
        });
        add(&mut total, &part);
        let expect = json!({
            "inodes": 7, "durable": 17, "operations": { "make": 7, "unlink": 1 }, "health": "waiting",
            "disk": { "bytes_free": 5, "inodes_used": 7 }, "journals": [{ "durable": 17 }, { "durable": 9 }],
        });
        assert_eq!(total, expect);
    }

    #[test]
    fn reports_of_servers_are_merged_and_plate_0_speaks_for_all() {
        let of = |plate: u64, clients: u64| json!({ "inodes": 2, "clients": clients, "plates": [{ "plate": plate }] });
        let merged = merge_reports(vec![of(3, 9), of(0, 1), of(2, 9)]);
        let plates = json!([{ "plate": 0 }, { "plate": 2 }, { "plate": 3 }]);
        assert_eq!(merged, Some(json!({ "inodes": 6, "clients": 1, "plates": plates })));
        assert_eq!(merge_reports(Vec::new()), None);
    }
}
