//! The program, run to its end.

use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn chiton(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chiton")).args(args).output().expect("the program runs")
}

pub(crate) fn done(args: &[&str]) -> String {
    let out = chiton(args);
    assert!(out.status.success(), "chiton {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub(crate) fn json(args: &[&str]) -> Value {
    serde_json::from_str(&done(args)).expect("JSON")
}

/// Runs and expects this exit code and these words in the message.
pub(crate) fn refused(args: &[&str], code: i32, words: &str) {
    let out = chiton(args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "chiton {args:?}: {said}");
    assert!(said.contains(words), "chiton {args:?} does not say {words:?}: {said}");
}
