//! `./x cluster`: a whole cluster of real processes on this machine.

use std::process::Command;

use crate::run::{Build, Result, build_release, programs, shown, target};

/// How long the check of all checks lasts.
const SHORT: &str = "25";

/// Runs the trial with these options; `--dev`: with programs as the tests are built, not for speed.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let is_dev = args.iter().any(|arg| arg == "--dev");
    let programs = match is_dev {
        true => programs(Build::Dev)?,
        false => {
            build_release(&["--package", "chiton", "--package", "chiton-cluster-trial"])?;
            target().join("release")
        }
    };
    let mut trial = Command::new(programs.join("chiton-cluster-trial"));
    trial.arg("--chiton").arg(programs.join("chiton")).args(args.iter().filter(|arg| *arg != "--dev"));
    shown(&mut trial)
}

/// The short check under faults.
pub(crate) fn check() -> Result<()> {
    run(&["--dev", "--check", "--etcd", "3", "--seconds", SHORT].map(str::to_owned))
}
