//! The endpoint for Prometheus of a real server: its format, its names in the documents, and the board that shows them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use tempfile::TempDir;

/// A server with an endpoint. Its log is read as it comes.
struct Serving {
    child: Child,
    log: mpsc::Receiver<String>,
    dir: TempDir,
    endpoint: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn chiton(words: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_chiton")).args(words).output().expect("chiton runs");
    assert!(out.status.success(), "chiton {words:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

impl Serving {
    fn start(plates: &str) -> Serving {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data").display().to_string();
        chiton(&["format", &data, "--plates", plates]);
        let mut child = Command::new(env!("CARGO_BIN_EXE_chiton"))
            .args(["serve", "--data", &data, "--metrics", "127.0.0.1:0", "--slow-ms", "0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chiton runs");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut serving = Serving { child, log, dir, endpoint: String::new() };
        let said = serving.await_line("metrics at http://");
        let endpoint = said.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/metrics"));
        serving.endpoint = endpoint.expect("an address").to_owned();
        serving.await_line("serving");
        serving
    }

    /// The next line of the log that contains these words.
    fn await_line(&self, words: &str) -> String {
        self.log.iter().find(|line| line.contains(words)).expect("the server logs it before it ends")
    }

    fn data(&self) -> String {
        self.dir.path().join("data").display().to_string()
    }

    /// A few commands ask the server.
    fn work(&self) {
        let dump = self.dir.path().join("dump").display().to_string();
        chiton(&["dump", &self.data(), "-o", &dump]);
        let text = std::fs::read_to_string(&dump).expect("a dump");
        assert!(!text.is_empty());
        chiton(&["flush", &self.data()]);
        chiton(&["status", &self.data()]);
    }

    /// The body of a scrape.
    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.endpoint).expect("it listens");
        // A server of HTTP 1.1 may send a long body in pieces.
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("it answers");
        let (head, body) = said.split_once("\r\n\r\n").expect("a head");
        assert!(
            head.starts_with("HTTP/1.") && head.contains(" 200 ") && head.contains("version=0.0.4"),
            "{head}"
        );
        body.to_owned()
    }
}

/// A scrape: the types of the metrics, and all samples.
struct Scrape {
    types: BTreeMap<String, String>,
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Scrape {
    /// Reads Prometheus' text format, and refuses whatever breaks its rules: a sample without HELP and TYPE before it, a metric in two
    /// places, a line twice, a label or a number that is none, a histogram whose buckets do not grow or do not end in its count.
    fn read(text: &str) -> Scrape {
        assert!(text.ends_with('\n'), "the last line ends");
        let (mut types, mut samples, mut helps) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        let (mut current, mut seen) = (String::new(), BTreeSet::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help");
                assert!(!help.is_empty() && helps.insert(name.to_owned()), "{name} twice");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(helps.contains(name) && is_name(name), "{line}");
                assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
                current = name.to_owned();
            } else {
                let (name, labels, value) = sample(line);
                let family = match types[&current].as_str() {
                    "histogram" => {
                        ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end))
                    }
                    _ => Some(name.as_str()),
                };
                assert_eq!(family, Some(current.as_str()), "{line}");
                assert!(seen.insert(format!("{name}{labels:?}")), "{line} twice");
                assert!(types[&current] == "gauge" || value >= 0.0, "{line}");
                samples.push((name, labels, value));
            }
        }
        let scrape = Scrape { types, samples };
        scrape.check_histograms();
        scrape
    }

    fn check_histograms(&self) {
        let mut last: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for (name, labels, value) in &self.samples {
            let mut others = labels.clone();
            let end = others.remove("le");
            let key = |base: &str| format!("{base}{others:?}");
            if let (Some(base), Some(end)) = (name.strip_suffix("_bucket"), end) {
                let end = if end == "+Inf" { f64::INFINITY } else { end.parse().expect("a bound") };
                let before = last.insert(key(base), (end, *value)).unwrap_or((f64::NEG_INFINITY, 0.0));
                assert!(before.0 < end && before.1 <= *value, "{name}{labels:?}");
            }
        }
        let counts = self.samples.iter().filter(|(name, ..)| name.ends_with("_duration_seconds_count"));
        for (name, labels, value) in counts {
            let base = name.strip_suffix("_count").expect("it is a count");
            assert_eq!(last[&format!("{base}{labels:?}")], (f64::INFINITY, *value), "{name}{labels:?}");
        }
    }

    /// The sum of all samples of this name, with such a label if one is given.
    fn sum(&self, wanted: &str, label: Option<(&str, &str)>) -> f64 {
        let fits = |labels: &BTreeMap<String, String>| {
            label.is_none_or(|(name, value)| labels.get(name).is_some_and(|v| v == value))
        };
        self.samples
            .iter()
            .filter(|(name, labels, _)| name == wanted && fits(labels))
            .map(|(.., value)| value)
            .sum()
    }
}

fn is_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// `name{label="value",…} number`. No value of ours has a quote, a comma or a backslash.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (left, value) = line.rsplit_once(' ').expect("a value");
    let value = value.parse().expect("a number");
    let (name, labels) = match left.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').expect("the end of the labels")),
        None => (left, ""),
    };
    let label = |text: &str| {
        let (name, value) = text.split_once('=').expect("a label");
        let value =
            value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).expect("a quoted value");
        assert!(is_name(name) && !value.contains(['"', '\\']), "{line}");
        (name.to_owned(), value.to_owned())
    };
    assert!(is_name(name), "{line}");
    (name.to_owned(), labels.split(',').filter(|text| !text.is_empty()).map(label).collect(), value)
}

fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("chiton_")).map(str::to_owned).collect()
}

#[test]
fn documents_and_board_name_the_metrics_of_a_real_server() {
    let serving = Serving::start("2");
    serving.work();
    let scrape = Scrape::read(&serving.scrape());
    let documents = repository("docs/administration.md");
    let table: BTreeSet<String> = documents
        .lines()
        .filter(|line| line.starts_with("| `chiton_"))
        .flat_map(|line| names(line.split('|').nth(1).unwrap_or("")))
        .collect();
    assert_eq!(scrape.types.keys().cloned().collect::<BTreeSet<_>>(), table, "endpoint and documents");

    let board: serde_json::Value =
        serde_json::from_str(&repository("packaging/grafana/chiton.json")).expect("JSON");
    let mut queries = Vec::new();
    collect(&board, &mut queries);
    assert!(queries.len() > 40, "the board asks for something");
    let mut shown = BTreeSet::new();
    for name in queries.iter().flat_map(|query| names(query)) {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
            name.strip_suffix(end)
                .filter(|base| scrape.types.get(*base).is_some_and(|kind| kind == "histogram"))
        });
        let family = family.unwrap_or(&name);
        assert!(scrape.types.contains_key(family), "the board asks for {name}, which no server has");
        let is_whole = family != name || scrape.types[family] != "histogram";
        assert!(is_whole, "the board asks for {name}, which has no value of its own");
        shown.insert(family.to_owned());
    }
    let missing: Vec<&String> = scrape.types.keys().filter(|name| !shown.contains(*name)).collect();
    assert!(missing.is_empty(), "the board does not show {missing:?}");
}

/// The queries of a board.
fn collect(value: &serde_json::Value, queries: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if ["expr", "definition"].contains(&name.as_str()) => {
                        queries.push(text.to_owned())
                    }
                    _ => collect(value, queries),
                }
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|value| collect(value, queries)),
        _ => {}
    }
}

#[test]
fn requests_are_counted_timed_and_logged() {
    let serving = Serving::start("1");
    serving.work();
    let scrape = Scrape::read(&serving.scrape());
    assert_eq!(scrape.sum("chiton_plates", None), 1.0);
    assert_eq!(scrape.sum("chiton_plate_healthy", None), 1.0);
    assert_eq!(scrape.sum("chiton_inodes", Some(("plate", "0"))), 1.0);
    assert!(scrape.sum("chiton_disk_size_bytes", None) > 0.0);
    let of = Some(("op", "admin"));
    let counted = scrape.sum("chiton_operations_total", of);
    let timed = scrape.sum("chiton_operation_duration_seconds_count", of);
    assert!(counted >= 1.0 && timed >= 1.0, "{counted} counted, {timed} timed");
    assert!(scrape.sum("chiton_operation_duration_seconds_sum", of) > 0.0);
    let all = scrape.sum("chiton_operation_duration_seconds_count", None);
    assert!(all > timed, "{all} of all kinds, {timed} reports");
    // With a limit of 0 ms every operation is slow.
    assert!(scrape.sum("chiton_slow_operations_total", None) >= 1.0);
    let line = serving.await_line("slow operation: call=");
    assert!(
        line.contains(" plate=0 session=") && line.contains(" seq=") && line.contains("it waited for"),
        "{line}"
    );
    // A second look has no less.
    let later = Scrape::read(&serving.scrape());
    let counters = later.types.iter().filter(|(_, kind)| *kind == "counter");
    for (name, _) in counters {
        assert!(later.sum(name, None) >= scrape.sum(name, None), "{name} shrinks");
    }
}
