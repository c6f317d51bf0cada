//! The python environment that moto runs in, below the build's directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

/// The packages to install. A change here makes a new environment.
const PACKAGES: [&str; 3] = ["moto[s3]==5.2.5", "flask>=3,<4", "flask-cors>=6,<7"];

/// Its interpreter, installed if need be.
pub(crate) fn python() -> PathBuf {
    let target = option_env!("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        |dir| Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(dir),
    );
    fs::create_dir_all(&target).expect("the build's directory is there");
    let dir = target.join("moto");
    let lock = File::create(target.join("moto.lock")).expect("a lock beside the environment");
    flock(&lock, FlockOperation::LockExclusive).expect("the lock of the environment");
    let wanted = PACKAGES.join("\n");
    let complete = dir.join("complete");
    let python = dir.join("bin/python");
    // It is a link to the system's interpreter, which may be another one than it was.
    if python.exists() && fs::read_to_string(&complete).is_ok_and(|found| found == wanted) {
        return python;
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).expect("an incomplete environment can be removed");
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&dir), "install python3 and python3-venv");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
    run(&mut pip, "the package index must be reachable once");
    fs::write(&complete, wanted).expect("written");
    python
}

fn run(command: &mut Command, need: &str) {
    let status = command.status();
    assert!(status.as_ref().is_ok_and(|s| s.success()), "{command:?} failed ({status:?}): {need}");
}
