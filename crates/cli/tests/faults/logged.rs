//! `CHITON_LOG`: a request can be followed by its numbers from the mount to the journal.

use std::fs::{self, File};
use std::path::Path;

use crate::rig::{Mounted, Process, Scratch, chiton, is_root, until};

/// The number of a field in a line of the log.
fn field(line: &str, name: &str) -> Option<u64> {
    let start = line.rfind(&format!(" {name}="))? + name.len() + 2;
    let digits: String = line[start..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn line_with(process: &Process, words: &[&str]) -> Option<String> {
    process.said().lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned)
}

#[test]
fn a_create_is_followed_from_the_kernel_to_the_durable_journal() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let logged = |words: &[&str], place: &Path| {
        let mut command = chiton();
        command.env("CHITON_LOG", "debug").args(words).arg(place);
        command
    };
    let mut server =
        Process::start(logged(&["serve", "--data"], &scratch.data()), scratch.path("server.log"));
    server.says("serving ", 1);
    let dir = scratch.mnt();
    let socket = format!("unix:{}", scratch.data().join("socket").display());
    let command = logged(&["mount", "--foreground", "--server", &socket], &dir);
    let mut process = Process::start(command, scratch.path("mnt.log"));
    process.says("mounted on", 1);
    let mounted = Mounted { process, dir };
    let file = File::create(mounted.path("followed")).expect("made");
    file.sync_all().expect("durable");

    let sent =
        line_with(&mounted.process, &["operation=\"CREATE\"", " seq="]).expect("the mount logs the request");
    assert!(sent.contains("fuse{unique="), "{sent}");
    let (session, seq) =
        (field(&sent, "session").expect("a session"), field(&sent, "seq").expect("a number"));
    let (session, seq) = (format!(" session={session} "), format!(" seq={seq} "));
    let mut appended = None;
    until("the server logs the frame", || {
        appended = line_with(&server, &["appended to the journal", &session, &seq]);
        appended.is_some()
    });
    let position = field(&appended.expect("just seen"), "position").expect("a position");
    until("the server logs the commit", || {
        let said = server.said();
        let durable = said.lines().filter(|line| line.contains("the journal is durable"));
        durable.filter_map(|line| field(line, "durable")).any(|durable| durable >= position)
    });
    until("the server logs what was asked", || {
        line_with(&server, &["request of a client", &session, &seq, "operation=make file \"followed\" in "])
            .is_some()
    });
    drop(file);
    mounted.unmount();
}

#[test]
fn without_the_variable_a_mount_logs_plain_lines_and_a_wrong_one_is_refused() {
    let run = |filter: &str| {
        chiton().env("CHITON_LOG", filter).arg("completions").arg("bash").output().expect("it runs")
    };
    for filter in ["nonsense=nothing", "chiton=7=8"] {
        let out = run(filter);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("CHITON_LOG") && said.contains(filter), "{said}");
    }
    for filter in ["debug", "OFF", "chiton_server=debug,chiton=warn"] {
        assert!(run(filter).status.success(), "{filter}");
    }
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let mounted = Mounted::embedded(&scratch, &[]);
    fs::write(mounted.path("x"), "x").expect("written");
    assert!(!mounted.process.said().contains("DEBUG"), "{}", mounted.process.said());
    mounted.unmount();
}
