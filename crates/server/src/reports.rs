//! What administrators ask of a server with several plates: figures of all of them.
//!
//! ```text
//!   plate 0 ─ status ─┐
//!   plate 1 ─ status ─┴▶ counts are added up; positions, clients and the store's state are those of plate 0
//!                        "journals": one of each plate      "plates": a line for each
//! ```

use serde_json::{Value, json};

use chiton_types::PlateId;

use crate::plate::Plate;
use crate::plate_table::PlateTable;

/// Figures that are added up, with all below them. Others are those of plate 0: its positions, its clients (each client has a session
/// there), what is said of the disk that all share.
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
];
/// How bad it is that a plate says this of its health; the first is the worst.
const HEALTH: [&str; 4] = ["failed", "full", "waiting", "good"];

impl Plate {
    /// The answer of all plates to a word; `None` if it is not one of ours.
    pub(crate) fn report_of_all(&self, what: &str) -> Option<String> {
        match self.table.get().and_then(std::sync::Weak::upgrade) {
            Some(table) if table.count() > 1 => table.report(what),
            _ => self.report(what),
        }
        .map(|value| value.to_string())
    }
}

impl PlateTable {
    /// The answer of all plates to a word; `None` if it is not one of ours, or plate 0 does not run.
    pub(crate) fn report(&self, what: &str) -> Option<Value> {
        let first = self.get(PlateId(0))?.plate.report(what)?;
        if !first.is_object() || what == "policies" {
            return Some(first);
        }
        let others = (1..self.count()).map(|plate| {
            let running = self.get(PlateId(plate as u16))?;
            running.plate.report(what)
        });
        let all: Vec<Option<Value>> = std::iter::once(Some(first.clone())).chain(others).collect();
        let mut total = first;
        for part in all.iter().skip(1).flatten() {
            add(&mut total, part);
        }
        if total["journals"].is_array() {
            total["plates"] =
                all.iter().enumerate().map(|(plate, part)| line(plate, part.as_ref())).collect();
        }
        Some(total)
    }
}

/// What is said of each plate.
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
        "recovery": part["recovery"],
    })
}

fn add(total: &mut Value, part: &Value) {
    for (name, value) in total.as_object_mut().into_iter().flatten() {
        match name.as_str() {
            name if ADDED.contains(&name) => add_all(value, &part[name]),
            "journals" | "away" => {
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
}
