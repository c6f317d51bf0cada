//! The loads of `chiton bench`: by processes in a directory, and by connections to a server of several plates.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

mod program;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use program::{done, json, refused};

struct Server(Child);

impl Server {
    fn start(data: &str) -> Server {
        done(&["format", data, "--plates", "2"]);
        let mut child = Command::new(env!("CARGO_BIN_EXE_chiton"))
            .args(["serve", "--data", data])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chiton runs");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("serving")), "the server says when it serves");
        std::thread::spawn(move || lines.for_each(drop));
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The operations of a load that were measured so often.
fn operations<'a>(report: &'a Value, load: &str, runs: usize) -> Vec<&'a str> {
    let series = report["series"].as_array().expect("series").iter().filter(|series| series["load"] == load);
    let checked = series.inspect(|series| {
        assert_eq!(series["values"].as_array().expect("values").len(), runs, "{series}");
        assert_eq!(series["estimate"]["half_width"].is_null(), runs == 1, "{series}");
    });
    checked.map(|series| series["operation"].as_str().expect("a name")).collect()
}

const EASY: [&str; 5] = ["Tree creation", "File creation", "File stat", "File removal", "Tree removal"];
const HARD: [&str; 6] =
    ["Tree creation", "File creation", "File stat", "File read", "File removal", "Tree removal"];

fn all_loads(place: &[&str], is_empty: impl Fn() -> bool) {
    let run = |words: &[&str]| {
        json(&["bench", words[0]].iter().chain(place).chain(&words[1..]).copied().collect::<Vec<_>>())
    };
    let words =
        ["mdtest", "--easy", "--hard", "-n", "20", "--tasks", "2", "--runs", "3", "--ci", "90", "--json"];
    let report = run(&words);
    assert_eq!(report["confidence_percent"], 90.0);
    assert_eq!(operations(&report, "easy", 3), EASY);
    assert_eq!(operations(&report, "hard", 3), HARD);
    assert_eq!(operations(&report, "hard / easy", 3), EASY);
    assert!(is_empty());

    let words =
        ["mdtest", "-n", "20", "-z", "1", "-b", "3", "-y", "-w", "10", "-e", "10", "--tasks", "2", "--json"];
    assert_eq!(operations(&run(&words), "", 1).len(), 9);
    let report = run(&["mdtest", "-F", "-n", "50", "--batch", "20", "-N", "1", "--tasks", "2", "--json"]);
    assert_eq!(operations(&report, "", 1).len(), 6);
    let made = run(&["mdtest", "-F", "-C", "-I", "3", "-z", "1", "-b", "2", "--json"]);
    assert_eq!(operations(&made, "", 1), ["Tree creation", "File creation"]);
    assert!(!is_empty());
    let removed = run(&["mdtest", "-F", "-r", "-I", "3", "-z", "1", "-b", "2", "--json"]);
    assert_eq!(operations(&removed, "", 1), ["File removal", "Tree removal"]);
    assert!(is_empty());

    for dirs in [&[][..], &["--dirs", "1"], &["--dirs", "1", "--batch", "8"]] {
        let words = [&["metarates", "-n", "30", "-N", "1", "--tasks", "2", "--json"], dirs].concat();
        assert_eq!(operations(&run(&words), "", 1), ["Create-close", "Stat", "Utime", "Removal"]);
    }
    let report = run(&["hp-trace", "-n", "2000", "--tasks", "3", "--runs", "2", "--json"]);
    assert_eq!(operations(&report, "", 2), ["Hierarchy", "Replay", "Removal"]);
    assert!(is_empty());
}

#[test]
fn loads_run_in_a_directory() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().display().to_string();
    all_loads(&["-d", &path], || fs::read_dir(&path).expect("it is there").next().is_none());
}

#[test]
fn loads_run_by_connections_to_a_server() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data").display().to_string();
    let _server = Server::start(&data);
    let socket = format!("{data}/socket");
    let is_empty = || {
        let usage = &json(&["du", "--server", &socket, "/", "--json"])["usage"][0];
        usage["files"] == 0 && usage["directories"] == 1
    };
    all_loads(&["--server", &socket], is_empty);
    let report =
        json(&["bench", "mdtest", "--server", &socket, "--write-behind", "-F", "-n", "50", "--json"]);
    assert_eq!(operations(&report, "", 1).len(), 6);
    refused(&["bench", "mdtest", "--server", &socket, "--dir", "/absent", "-n", "1"], 1, "Tree creation");
}

#[test]
fn a_trace_from_a_file_is_replayed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let trace = done(&["bench", "hp-trace", "--print", "-n", "100", "--seed", "4"]);
    assert_eq!(trace.lines().count(), 100);
    fs::write(path("trace"), format!("# of a test\n{trace}")).expect("written");
    fs::create_dir(path("work")).expect("made");
    let report = json(&["bench", "hp-trace", "-d", &path("work"), "--trace", &path("trace"), "--json"]);
    assert!(operations(&report, "", 1).contains(&"Replay"));
    assert!(fs::read_dir(Path::new(&path("work"))).expect("it is there").next().is_none());
    fs::write(path("trace"), "stat\ta\nfly\ta\n").expect("written");
    refused(&["bench", "hp-trace", "-d", &path("work"), "--trace", &path("trace")], 1, "line 2: \"fly\"");
    refused(&["bench", "hp-trace"], 2, "--server");
}

#[test]
fn sequential_rates_have_an_interval() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().display().to_string();
    let report = json(&["bench", "seqio", "--dir", &path, "--size", "4M", "--runs", "2", "--json"]);
    assert_eq!(operations(&report, "", 2), ["write, with fsync", "read"]);
}
