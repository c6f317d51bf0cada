//! All counters of the server, for `chiton status --verbose`: the journals, the decoupled directories, then the
//! rest as a table.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use serde_json::Value;

use crate::commands::df::flatten;
use crate::{duration, size};

pub(super) fn everything(status: &Value) -> String {
    let mut all = Vec::new();
    let journals = status["journals"].as_array().map_or(&[][..], Vec::as_slice);
    for journal in journals {
        let plate = journal["plate"].as_u64().unwrap_or(0);
        let whose = if journals.len() > 1 { format!(" of plate {plate}") } else { String::new() };
        all.extend(lines(journal, &whose));
    }
    all.extend(decoupled(status));
    all.push(table(status));
    all.join("\n")
}

fn lines(journal: &Value, whose: &str) -> Vec<String> {
    let number = |path: &str| journal.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let text = |path: &str| journal.pointer(path).and_then(Value::as_str).unwrap_or("");
    let mut lines = vec![format!("JOURNAL {}{whose}", text("/name"))];
    let mut say = |name: &str, what: String| lines.push(format!("  {name:<17}{what}"));
    say("written", format!("position {}", number("/written")));
    let durable = match number("/not_durable/events") {
        0 => "all".to_owned(),
        events => format!(
            "up to position {}; {events} events ({}) are not, the oldest for {} at most",
            number("/durable"),
            size::human(number("/not_durable/bytes")),
            duration::human(number("/not_durable/oldest_ms")),
        ),
    };
    say("durable", durable);
    let stored = match number("/not_checkpointed/events") {
        0 => "all".to_owned(),
        events => format!(
            "up to position {}; {events} events ({}) are in the journal only",
            number("/checkpointed"),
            size::human(number("/not_checkpointed/bytes")),
        ),
    };
    say("metadata store", stored);
    if let Some(integrity) = journal["integrity"].as_str() {
        say("integrity", integrity.to_owned());
    }
    if journal["checkpoints"].is_object() {
        let failure = journal["checkpoints"]["failure"].as_str();
        say(
            "checkpoints",
            format!(
                "{}; {} since the start, the last {} ago{}",
                text("/checkpoints/state"),
                number("/checkpoints/done"),
                duration::human(number("/checkpoints/last_ms_ago")),
                failure.map(|why| format!(" ({why})")).unwrap_or_default(),
            ),
        );
        let how = if journal["replay"]["measured"] == true { "measured" } else { "assumed" };
        let beyond = match journal["replay"]["within_target"] == false {
            true => "; BEYOND the target, until a checkpoint succeeds",
            false => "",
        };
        say(
            "recovery",
            format!(
                "about {} now, at most {} ({} events/s, {how}){beyond}",
                duration::human(number("/replay/estimate_ms")),
                duration::human(number("/replay/target_ms")),
                number("/replay/events_per_second"),
            ),
        );
    }
    say(
        "place",
        format!(
            "{} segments, {}, from position {}",
            number("/segments"),
            size::human(number("/bytes")),
            number("/first")
        ),
    );
    lines
}

/// The decoupled directories as text.
fn decoupled(status: &Value) -> Vec<String> {
    let all = status["decoupled"].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines = Vec::new();
    if !all.is_empty() {
        lines.extend([String::new(), "DECOUPLED (details: chiton decoupled)".to_owned()]);
    }
    for one in all {
        let text = |name: &str| one[name].as_str().unwrap_or("");
        let branch = one["branch"].as_str().map(|branch| format!(" branch {branch}")).unwrap_or_default();
        let there = if one["attached"] == true { "" } else { ", which is gone" };
        let reserved = one["inodes_reserved"].as_u64();
        let numbers = reserved.map(|n| format!("; {n} inode numbers reserved")).unwrap_or_default();
        lines.push(format!(
            "  {}{branch}: by {}{there}; journal at {}{numbers}",
            text("path"),
            text("owner"),
            text("journal_at")
        ));
    }
    lines
}

fn table(status: &Value) -> String {
    let mut groups: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    flatten("", status, &mut |name, value| {
        let (group, leaf) = name.rsplit_once('.').unwrap_or(("", name));
        // Of the many kinds of operations, only those that happened are shown; the rest is shown above.
        let is_nothing = value.as_f64() == Some(0.0) || value.as_array().is_some_and(Vec::is_empty);
        if (is_nothing && (group == "operations" || value.is_array()))
            || ["journals", "plates", "servers", "decoupled", "clients"].contains(&name)
        {
            return;
        }
        groups.entry(group.to_string()).or_default().push((leaf.replace('_', " "), shown(leaf, value)));
    });
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for (group, rows) in groups {
        table.add_row([String::new()]);
        if !group.is_empty() {
            table.add_row([group.replace('_', " ").to_uppercase()]);
        }
        table.add_rows(rows.into_iter().map(|(name, value)| [name, value]));
    }
    table.trim_fmt()
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Number(n) if name.contains("bytes") => size::human(n.as_u64().unwrap_or(0)),
        Value::String(s) => s.clone(),
        Value::Array(items) => {
            items.iter().map(|i| format!("\n{i}")).collect::<String>().trim_start().to_string()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_decoupling_has_a_line() {
        let mut one = json!({ "path": "/src", "branch": "t1", "owner": "process 7", "attached": false });
        one["journal_at"] = json!("vm:/var");
        one["inodes_reserved"] = json!(500);
        let other = json!({ "path": "/job", "branch": null, "owner": "mount", "attached": true, "journal_at": "memory" });
        let said = decoupled(&json!({ "decoupled": [one, other] }));
        assert_eq!(
            said[2..],
            [
                "  /src branch t1: by process 7, which is gone; journal at vm:/var; 500 inode numbers reserved",
                "  /job: by mount; journal at memory"
            ]
        );
        assert!(decoupled(&json!({ "decoupled": [] })).is_empty() && decoupled(&json!({})).is_empty());
        assert_eq!(table(&json!({ "decoupled": [{ "path": "/src" }] })), "");
    }

    #[test]
    fn an_absent_value_has_no_row() {
        let status = json!({ "decoupled": [], "decouplings": 0, "operations": { "link": 0, "rename": 2 } });
        let rows: Vec<String> = table(&status).lines().map(|line| line.trim().to_owned()).collect();
        assert_eq!(rows, ["", "decouplings  0", "", "OPERATIONS", "rename       2"]);
    }

    #[test]
    fn status_shows_how_far_each_journal_is_durable() {
        let journal = json!({
            "name": "server", "written": 500, "durable": 480, "checkpointed": 100, "segments": 3, "bytes": 2048,
            "first": 90, "not_durable": { "events": 20, "bytes": 1024, "oldest_ms": 1500 },
            "not_checkpointed": { "events": 400, "bytes": 4096 },
            "checkpoints": { "state": "failing: no space", "failure": "disk full", "done": 7, "last_ms_ago": 65_000 },
            "replay": { "estimate_ms": 9000, "target_ms": 5000, "within_target": false, "events_per_second": 10,
                        "measured": true },
        });
        let text = lines(&journal, "").join("\n");
        for said in [
            "JOURNAL server",
            "up to position 480; 20 events (1.0 KiB) are not, the oldest for 1.5 s at most",
            "up to position 100; 400 events (4.0 KiB) are in the journal only",
            "failing: no space; 7 since the start, the last 65.0 s ago (disk full)",
            "about 9.0 s now, at most 5.0 s (10 events/s, measured); BEYOND the target",
            "3 segments, 2.0 KiB, from position 90",
        ] {
            assert!(text.contains(said), "{said:?} is not in\n{text}");
        }
        let idle = json!({ "name": "server", "written": 5, "durable": 5, "integrity": "OK" });
        assert!(lines(&idle, "").contains(&"  durable          all".to_owned()), "{:?}", lines(&idle, ""));
    }
}
