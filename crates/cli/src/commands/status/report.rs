//! The report that `chiton status` prints: about fifteen lines for a person.
//!
//! ```text
//!   /mnt/chiton: healthy
//!
//!   durable     everything
//!   clients     2
//!               mount /mnt/chiton, process 812
//!               mount /work, process 907: silent for 12.0 s
//!   to do       nothing
//! ```
//!
//! Each part is a function in `PARTS`. It reads the server's JSON, and adds its lines and its problems with advice.
//! The file system is healthy if no part found a problem. A new part is one function and one line in `PARTS`; a
//! part whose figures are not in the JSON adds nothing.

mod servers;

use chiton_types::counted;
use chiton_wire::TOOL_IDENTITY;
use serde_json::Value;

use crate::{duration, size};

/// The parts, in the order in which they are shown.
const PARTS: [Part; 8] =
    [service, durability, recovery, space, servers::servers, plates, clients, decouplings];

type Part = fn(&Source<'_>, &mut Report);

/// A client that has been silent for this long may be gone: a live client sends a message every few seconds.
const SILENT_MS: u64 = 15_000;
/// Clients and decouplings that are named, each; the rest is counted.
const NAMED_MAX: usize = 4;

/// The report about `target`, as the user named it.
pub(super) fn of(target: &str, status: &Value) -> String {
    let source = Source { target, status };
    let mut report = Report::default();
    for part in PARTS {
        part(&source, &mut report);
    }
    report.text(target)
}

/// The input of the parts.
struct Source<'a> {
    /// As the user named it: for commands to run next.
    target: &'a str,
    status: &'a Value,
}

impl Source<'_> {
    fn number(&self, path: &str) -> Option<u64> {
        self.status.pointer(path).and_then(Value::as_u64)
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.status.pointer(path).and_then(Value::as_str)
    }

    fn list(&self, name: &str) -> &[Value] {
        self.status[name].as_array().map_or(&[], Vec::as_slice)
    }

    /// Whether several servers have reported.
    fn is_cluster(&self) -> bool {
        !self.list("servers").is_empty()
    }
}

/// The results of the parts.
#[derive(Default)]
struct Report {
    lines: Vec<(&'static str, String)>,
    problems: Vec<Problem>,
    hints: Vec<String>,
}

struct Problem {
    what: String,
    to_do: String,
}

impl Report {
    /// Adds a line: its label and its text.
    fn line(&mut self, word: &'static str, text: impl Into<String>) {
        self.lines.push((word, text.into()));
    }

    /// A line that belongs to the one before.
    fn more(&mut self, text: impl Into<String>) {
        self.lines.push(("", text.into()));
    }

    /// Adds a problem, and advice.
    fn problem(&mut self, what: impl Into<String>, to_do: impl Into<String>) {
        self.problems.push(Problem { what: what.into(), to_do: to_do.into() });
    }

    /// Something that can be done although nothing is wrong.
    fn hint(&mut self, to_do: impl Into<String>) {
        self.hints.push(to_do.into());
    }

    /// The lines of a list, of which only the first ones are named.
    fn items(&mut self, items: impl ExactSizeIterator<Item = String>) {
        let rest = items.len().saturating_sub(NAMED_MAX);
        for item in items.take(NAMED_MAX) {
            self.more(item);
        }
        if rest > 0 {
            self.more(format!("and {rest} more (--verbose names all)"));
        }
    }

    fn text(&self, target: &str) -> String {
        let mut said = match self.problems.as_slice() {
            [] => format!("{target}: healthy\n"),
            problems => {
                let all: Vec<&str> = problems.iter().map(|problem| problem.what.as_str()).collect();
                format!("{target}: NOT HEALTHY: {}\n", all.join("; "))
            }
        };
        let to_do: Vec<&String> =
            self.problems.iter().map(|problem| &problem.to_do).chain(&self.hints).collect();
        let nothing = String::from("nothing");
        let to_do = if to_do.is_empty() { vec![&nothing] } else { to_do };
        let lines = self.lines.iter().map(|(word, text)| (*word, text));
        let last = to_do.into_iter().enumerate().map(|(n, text)| (if n == 0 { "to do" } else { "" }, text));
        for (word, text) in lines.chain(last) {
            said.push_str(&format!("\n{word:<12}{text}"));
        }
        said
    }
}

fn service(source: &Source<'_>, report: &mut Report) {
    let target = source.target;
    if source.status["served"] == false {
        report.line("served", "no: no server is running");
        report.hint(format!("chiton mount --data {target} MOUNTPOINT, or chiton serve --data {target}"));
    }
    match source.text("/health") {
        Some("full") => report.problem(
            "the disk is full, and operations that need space are refused",
            format!("remove files here or elsewhere on the server's disk (chiton df {target})"),
        ),
        Some("failed") => report.problem(
            "the journal cannot be written, and changes are refused",
            "read the server's log for the reason, then start the server again",
        ),
        _ => {}
    }
    for store in source.list("away") {
        let since = duration::human(store["away_ms"].as_u64().unwrap_or(0));
        let text = |name: &str| store[name].as_str().unwrap_or("?").to_owned();
        report.problem(
            format!(
                "{} has been away for {since}, and programs that need it wait ({})",
                text("store"),
                text("error")
            ),
            "remove the cause; they continue when the store is back",
        );
    }
    if let Some(count) = source.number("/uptime_errors").filter(|count| *count > 0) {
        report.problem(
            format!("{count} errors since the server started: rows or blocks that could not be read, or work in the background"),
            format!("chiton fsck --content {target} finds the damage"),
        );
    }
}

fn durability(source: &Source<'_>, report: &mut Report) {
    let journals = source.list("journals");
    // A cluster's table has a line for each plate.
    let is_cluster = source.is_cluster();
    let mut label = "durable";
    for journal in journals {
        let plate = journal["plate"].as_u64().unwrap_or(0);
        let whose = if journals.len() > 1 { format!("plate {plate}: ") } else { String::new() };
        let number = |path: &str| journal.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        if let Some(why) = journal["checkpoints"]["failure"].as_str() {
            report.problem(
                format!("{whose}checkpoints fail ({why})"),
                "remove the cause; the server then takes one automatically",
            );
        }
        let text = match number("/not_durable/events") {
            _ if journal["integrity"] == "DAMAGED" => {
                let of_plate = if plate == 0 { String::new() } else { format!(" --plate {plate}") };
                report.problem(
                    format!("{whose}the journal is damaged"),
                    format!("chiton journal inspect {}{of_plate} names the lost events", source.target),
                );
                "only the readable part of the journal".to_owned()
            }
            0 if is_cluster => continue,
            0 => "everything that was acknowledged".to_owned(),
            events => format!(
                "all but the last {} ({}), of which the oldest is {} old",
                counted(events, "change"),
                size::human(number("/not_durable/bytes")),
                duration::human(number("/not_durable/oldest_ms")),
            ),
        };
        report.line(std::mem::take(&mut label), format!("{whose}{text}"));
    }
    if is_cluster && !label.is_empty() && !journals.is_empty() {
        report.line(label, "everything that was acknowledged");
    }
}

/// How long a start would take, and whether one is under way.
fn recovery(source: &Source<'_>, report: &mut Report) {
    if let Some(sessions) = source.number("/recovery/sessions") {
        report.line(
            "recovering",
            format!("the server waits for {} from before its restart", counted(sessions, "client")),
        );
    }
    // Plates replay their journals at the same time.
    let replays = || source.list("journals").iter().map(|journal| &journal["replay"]);
    let Some(estimate) = replays().filter_map(|replay| replay["estimate_ms"].as_u64()).max() else { return };
    report.line("restart", format!("would replay the journal for about {}", duration::human(estimate)));
    if let Some(replay) = replays().find(|replay| replay["within_target"] == false) {
        let target = duration::human(replay["target_ms"].as_u64().unwrap_or(0));
        report.problem(
            format!("a restart would take longer than the target of {target}"),
            "see why checkpoints do not keep up (--verbose)",
        );
    }
}

fn space(source: &Source<'_>, report: &mut Report) {
    let Some(inodes) = source.number("/disk/inodes_used") else { return };
    let is_bucket = source.text("/objects").is_some_and(|at| at.starts_with("s3://"));
    let bytes = source.number("/disk/bytes_free").zip(source.number("/disk/bytes_total"));
    let free = match bytes.filter(|_| !is_bucket) {
        Some((free, total)) => format!("{} of {} free, ", size::human(free), size::human(total)),
        None => String::new(),
    };
    let bytes = |path: &str| size::human(source.number(path).unwrap_or(0));
    let reserve = match source.number("/reserve/wanted_bytes") {
        Some(wanted) if wanted > 0 => {
            format!(", {} of {} in reserve", bytes("/reserve/held_bytes"), bytes("/reserve/wanted_bytes"))
        }
        _ => String::new(),
    };
    report.line("space", format!("{free}{inodes} files, directories and links{reserve}"));
}

/// The parts of a file system that was formatted with several.
fn plates(source: &Source<'_>, report: &mut Report) {
    let all = source.list("plates");
    if all.is_empty() || source.is_cluster() {
        return;
    }
    report.line("plates", all.len().to_string());
    let mut stopped = Vec::new();
    let items: Vec<String> = all
        .iter()
        .map(|one| {
            let plate = one["plate"].as_u64().unwrap_or(0);
            if one["runs"] == false {
                stopped.push(plate);
                return format!("plate {plate}: does not run");
            }
            let inodes = one["inodes"].as_u64().unwrap_or(0);
            let waits = one["recovery"]["sessions"].as_u64().unwrap_or(0);
            let recovers =
                if waits > 0 { format!(", waits for {}", counted(waits, "client")) } else { String::new() };
            format!("plate {plate}: {inodes} files, directories and links{recovers}")
        })
        .collect();
    report.items(items.into_iter());
    for plate in stopped {
        report.problem(
            format!("plate {plate} does not run"),
            "read the server's log for the reason, then start the server again",
        );
    }
}

fn clients(source: &Source<'_>, report: &mut Report) {
    if source.status["clients"].is_null() {
        return;
    }
    let text = |client: &Value| client["identity"].as_str().unwrap_or("").to_owned();
    let all: Vec<&Value> =
        source.list("clients").iter().filter(|client| !text(client).starts_with(TOOL_IDENTITY)).collect();
    let mut away = 0;
    let items: Vec<String> = all
        .iter()
        .map(|client| {
            let silent = client["silent_ms"].as_u64().unwrap_or(0);
            let is_away = client["embedded"] != true && (client["connected"] == false || silent > SILENT_MS);
            away += u64::from(is_away);
            match is_away {
                true => format!("{}: silent for {}", text(client), duration::human(silent)),
                false => text(client),
            }
        })
        .collect();
    let connected = all.len() as u64 - away;
    let silent = if away > 0 { format!(", {away} silent") } else { String::new() };
    report.line("clients", format!("{connected} connected{silent}"));
    report.items(items.into_iter());
}

fn decouplings(source: &Source<'_>, report: &mut Report) {
    if source.status["decoupled"].is_null() {
        return;
    }
    let all = source.list("decoupled");
    if all.is_empty() {
        return report.line("decoupled", "nothing");
    }
    report.line("decoupled", format!("{} (details: chiton decoupled {})", all.len(), source.target));
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or("").to_owned();
    let name = |one: &Value| match one["branch"].as_str() {
        Some(branch) => format!("{} branch {branch}", text(one, "path")),
        None => text(one, "path"),
    };
    let items = all.iter().map(|one| {
        let age = one["age_ms"].as_u64().map(|age| format!(" for {}", duration::human(age)));
        let gone = if one["attached"] == false && one["branch"].is_null() { ", which is gone" } else { "" };
        format!("{}{}, by {}{gone}", name(one), age.unwrap_or_default(), text(one, "owner"))
    });
    report.items(items);
    // A branch waits for its next mount; a directory whose client is gone excludes all others.
    let left = all.iter().filter(|one| one["attached"] == false && one["branch"].is_null());
    for one in left.take(NAMED_MAX) {
        let path = text(one, "path");
        report.problem(
            format!("the client that decoupled {path} is gone"),
            format!(
                "mount again where its journal is ({}), or there: chiton recover; to end it: chiton recouple {} --id {} --force",
                text(one, "journal_at"),
                source.target,
                one["realm"]
            ),
        );
    }
    let is_set_aside = |one: &&Value| {
        one["attached"] == false && one["branch"] == format!("ended-{}", one["realm"]).as_str()
    };
    for one in all.iter().filter(is_set_aside).take(NAMED_MAX) {
        report.hint(format!(
            "branch {} of {} has the unmerged changes of a decoupling that was ended by force: chiton branch diff, merge or delete; \
             where its journal is ({}): chiton recover --as-branch NAME",
            text(one, "branch"),
            text(one, "path"),
            text(one, "journal_at"),
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn healthy() -> Value {
        json!({
            "health": "good", "uptime_errors": 0, "objects": "local:/srv/objects",
            "journals": [{
                "name": "server", "not_durable": { "events": 0 }, "checkpoints": { "failure": null },
                "replay": { "estimate_ms": 20, "target_ms": 5000, "within_target": true },
            }],
            "disk": { "bytes_total": 4096, "bytes_free": 2048, "inodes_used": 7 },
            "clients": [
                { "identity": "mount /mnt, process 7", "connected": true, "silent_ms": 3, "embedded": false },
                { "identity": "chiton tool, process 8", "connected": true, "silent_ms": 0, "embedded": false },
            ],
            "decoupled": [],
        })
    }

    #[test]
    fn a_healthy_file_system_is_a_few_lines() {
        let said = of("/mnt", &healthy());
        let expected = "\
/mnt: healthy

durable     everything that was acknowledged
restart     would replay the journal for about 20 ms
space       2.0 KiB of 4.0 KiB free, 7 files, directories and links
clients     1 connected
            mount /mnt, process 7
decoupled   nothing
to do       nothing";
        assert_eq!(said, expected);
    }

    #[test]
    fn each_problem_has_advice() {
        let check = |change: fn(&mut Value), what: &str, to_do: &str| {
            let mut status = healthy();
            change(&mut status);
            let said = of("/mnt", &status);
            let (first, last) = said.split_once('\n').expect("lines");
            assert!(first.starts_with("/mnt: NOT HEALTHY: ") && first.contains(what), "{said}");
            let to_do_line = last.lines().find(|line| line.starts_with("to do ")).expect("what to do");
            assert!(to_do_line.contains(to_do), "{said}");
        };
        check(|s| s["health"] = json!("full"), "disk is full", "chiton df /mnt");
        check(|s| s["health"] = json!("failed"), "cannot be written", "log");
        check(
            |s| s["away"] = json!([{ "store": "the object store", "away_ms": 5_000, "error": "403" }]),
            "the object store has been away for 5",
            "when the store is back",
        );
        check(|s| s["uptime_errors"] = json!(3), "3 errors since", "chiton fsck --content /mnt");
        check(|s| s["journals"][0]["integrity"] = json!("DAMAGED"), "damaged", "chiton journal inspect /mnt");
        check(
            |s| s["journals"][0]["checkpoints"]["failure"] = json!("no disk"),
            "checkpoints fail (no disk)",
            "cause",
        );
        check(
            |s| s["journals"][0]["replay"]["within_target"] = json!(false),
            "longer than the target",
            "--verbose",
        );
        check(
            |s| {
                s["decoupled"] = json!([{ "path": "/job", "branch": null, "owner": "mount /mnt, process 7",
                    "attached": false, "journal_at": "vm:/var", "age_ms": 300_000, "realm": 4 }]);
            },
            "the client that decoupled /job is gone",
            "(vm:/var), or there: chiton recover; to end it: chiton recouple /mnt --id 4 --force",
        );
    }

    #[test]
    fn work_of_a_decoupling_that_was_ended_by_force_is_to_be_merged_or_dropped() {
        let mut status = healthy();
        let branch = |name: &str| {
            json!({ "path": "/job", "branch": name, "owner": "mount /mnt, process 7", "attached": false,
                "journal_at": "vm:/var", "age_ms": 300_000, "realm": 4 })
        };
        status["decoupled"] = json!([branch("ended-4")]);
        let said = of("/mnt", &status);
        let to_do = "to do       branch ended-4 of /job has the unmerged changes";
        assert!(
            said.contains(to_do) && said.contains("(vm:/var): chiton recover --as-branch NAME"),
            "{said}"
        );
        // A branch that a user made, or that has a name by now.
        status["decoupled"] = json!([branch("ended-5"), branch("mine")]);
        assert!(of("/mnt", &status).contains("to do       nothing"));
    }

    #[test]
    fn clients_and_decouplings_are_named_up_to_a_number() {
        let mut status = healthy();
        let client = |n: u64| json!({ "identity": format!("mount /m{n}"), "connected": n != 1, "silent_ms": n * 20_000 });
        status["clients"] = (0..6).map(client).collect();
        let one = |n: u64| {
            let branch = if n == 0 { Value::Null } else { json!(format!("b{n}")) };
            json!({ "path": "/src", "branch": branch, "owner": "process 1", "attached": n == 0, "age_ms": 120_000 })
        };
        status["decoupled"] = (0..2).map(one).collect();
        let said = of("/mnt", &status);
        for words in [
            "clients     1 connected, 5 silent",
            "            mount /m0\n",
            "            mount /m1: silent for 20.0 s",
            "and 2 more (--verbose names all)",
            "decoupled   2 (details: chiton decoupled /mnt)",
            "            /src for 2 min, by process 1\n",
            "            /src branch b1 for 2 min, by process 1\n",
            "/mnt: healthy",
        ] {
            assert!(said.contains(words), "{words:?} is not in\n{said}");
        }
        assert!(said.lines().count() <= 18, "{said}");
    }

    #[test]
    fn status_without_a_server_names_the_command_to_serve() {
        let status =
            json!({ "served": false, "journals": [{ "not_durable": { "events": 0 }, "integrity": "OK" }] });
        let said = of("/srv", &status);
        assert!(said.starts_with("/srv: healthy\n\nserved      no: no server is running\n"), "{said}");
        assert!(said.contains("chiton mount --data /srv MOUNTPOINT, or chiton serve --data /srv"), "{said}");
    }
}
