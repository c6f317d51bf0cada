//! The servers of a cluster: how many answer, and which plates nobody serves.

use serde_json::Value;

use super::{Report, Source};

pub(super) fn servers(source: &Source<'_>, report: &mut Report) {
    let all = source.list("servers");
    if all.is_empty() {
        return;
    }
    let count = |state: &str| all.iter().filter(|server| server["state"] == state).count();
    let states = [
        ("up", "up"),
        ("standby", "standby"),
        ("no plates", "without plates"),
        ("SILENT", "silent"),
        ("down", "down"),
    ];
    let words: Vec<String> = states
        .iter()
        .filter_map(|(state, word)| Some((count(state), word)).filter(|(count, _)| *count > 0))
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    report.line("servers", words.join(", "));
    for server in all.iter().filter(|server| server["state"] == "SILENT") {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        report.problem(
            format!("server {} does not answer ({})", server["id"], text(&server["why"])),
            format!(
                "read the log of the server at {}; if its process hangs, end it, and others take its plates over",
                text(&server["addresses"][0])
            ),
        );
    }
    let orphans = source.status["map"]["plates_without_server"].as_array().map_or(&[][..], Vec::as_slice);
    if !orphans.is_empty() {
        let names: Vec<String> = orphans.iter().map(ToString::to_string).collect();
        report.problem(
            format!("no server that lives has the plates {}", names.join(", ")),
            "wait for a take-over, which takes about as long as a lease; if it lasts, start a server (chiton serve --monitor)",
        );
    }
    let is_up = |id: &Value| all.iter().any(|server| server["id"] == *id && server["state"] == "up");
    let plates = source.list("plates");
    let starting: Vec<String> = plates
        .iter()
        .filter(|plate| plate["runs"] == false && is_up(&plate["server"]))
        .map(|plate| format!("{} on server {}", plate["plate"], plate["server"]))
        .collect();
    if !starting.is_empty() {
        report.problem(
            format!("plates do not run yet: {}", starting.join(", ")),
            "wait a moment, then ask again; if it lasts, read the logs of these servers",
        );
    }
    report.line("plates", format!("{}, of which {} run", plates.len(), plates.len() - missing(plates)));
}

fn missing(plates: &[Value]) -> usize {
    plates.iter().filter(|plate| plate["runs"] == false).count()
}
