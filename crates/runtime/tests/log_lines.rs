//! Nothing that may run in a daemon ends because a line of its log cannot be written.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Crates of which nothing runs in a daemon.
const NO_DAEMONS: [&str; 3] = ["sim", "fuzz", "cluster-trial"];

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry").path()) {
        match entry.is_dir() {
            true => sources(&entry, into),
            false if entry.extension().is_some_and(|e| e == "rs") => into.push(entry),
            false => {}
        }
    }
}

#[test]
fn no_daemon_prints_by_a_macro_that_panics() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a directory of crates");
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).expect("listed").map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().into_string().expect("a plain name");
        if !NO_DAEMONS.contains(&name.as_str()) && entry.path().join("src").is_dir() {
            sources(&entry.path().join("src"), &mut files);
        }
    }
    assert!(files.len() > 100, "{}", files.len());
    let panics = |path: &&PathBuf| {
        let is_test = path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
        let text = fs::read_to_string(path).expect("text");
        !is_test && text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains("eprint"))
    };
    let found: Vec<_> = files.iter().filter(panics).collect();
    assert!(found.is_empty(), "use chiton_runtime::log_line! in {found:?}");
}

/// This test program runs itself with a log that cannot be written.
#[test]
fn a_line_that_cannot_be_written_is_dropped() {
    const CHILD: &str = "CHITON_TEST_LOG_CHILD";
    if std::env::var_os(CHILD).is_some() {
        chiton_runtime::log_line!("a line of {} bytes", 1);
        chiton_runtime::log::announce(format_args!("{{}}"));
        std::process::exit(7);
    }
    let run = |stderr: Stdio| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["a_line_that_cannot_be_written_is_dropped", "--exact", "--nocapture"]).env(CHILD, "1");
        command.stdout(Stdio::null()).stderr(stderr).status().expect("it runs").code()
    };
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    assert_eq!(run(Stdio::from(full)), Some(7));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(run(Stdio::from(writer)), Some(7));
}
