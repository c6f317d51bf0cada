//! The words of the trial. (The trial itself is a step of all checks: `./x cluster --check`.)

#![allow(clippy::disallowed_methods, reason = "a test runs the real program")]

use std::process::{Command, Output};

fn trial(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chiton-cluster-trial")).args(words).output().expect("it runs")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_has_examples_and_odd_numbers_are_refused() {
    let help = trial(&["--help"]);
    assert!(
        help.status.success() && said(&help.stdout).contains("./x cluster --servers 4 --standby 1 --check")
    );
    for odd in [["--servers", "0"], ["--seconds", "1"], ["--etcd", "9"]] {
        let out = trial(&[&["--chiton", "/nonexistent/chiton"], &odd[..]].concat());
        assert_eq!(out.status.code(), Some(2), "{odd:?}: {}", said(&out.stderr));
    }
}
