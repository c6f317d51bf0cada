//! A server with two mounts, and commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::rig::{Mounted, Process, Scratch, chiton, is_root, plates, serve};

pub(crate) fn run(args: &[&str]) -> Output {
    chiton().args(args).output().expect("chiton runs")
}

pub(crate) fn done(args: &[&str]) -> String {
    let out = run(args);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "chiton {args:?} ({}): {said}", out.status);
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub(crate) fn refused(args: &[&str], code: i32, words: &str) {
    let out = run(args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "chiton {args:?}: {said}");
    assert!(said.contains(words), "chiton {args:?} does not say {words:?}: {said}");
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

pub(crate) fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.expect_err("it is refused").raw_os_error()
}

/// A directory whose tree can have branches: with several plates its policy keeps it on one.
pub(crate) fn tree_at(tree: &Path) {
    fs::create_dir(tree).expect("a directory");
    if plates() > 1 {
        let policy = tempfile::NamedTempFile::new().expect("a file");
        fs::write(policy.path(), "placement: near\n").expect("a policy");
        done(&["policy", "set", text(tree), text(policy.path())]);
    }
}

/// A server, and one mount with a place for its journals; a second one looks on.
pub(crate) struct Two {
    // Ended in this order.
    pub(crate) far: Mounted,
    pub(crate) near: Mounted,
    _server: Process,
    pub(crate) scratch: Scratch,
}

impl Two {
    pub(crate) fn new() -> Option<Two> {
        if !is_root() {
            return None;
        }
        let scratch = Scratch::new();
        scratch.format();
        let server = serve(&scratch, &[]);
        let near = mount_near(&scratch, "near");
        let state = text(&scratch.path("far-state")).to_owned();
        let far = Mounted::beside(&scratch, "far", &["--state-dir", &state]);
        Some(Two { far, near, _server: server, scratch })
    }

    pub(crate) fn job(&self, policy: &str) -> (PathBuf, PathBuf) {
        let (near, far) = (self.near.path("job"), self.far.path("job"));
        fs::create_dir(&near).expect("a directory");
        done(&["policy", "set", text(&near), policy]);
        (near, far)
    }

    pub(crate) fn decouplings(&self) -> Vec<Value> {
        let all: Value =
            serde_json::from_str(&done(&["decoupled", "--json", text(&self.far.dir)])).expect("JSON");
        all.as_array().expect("a list").clone()
    }
}

/// A mount whose journals are where those of the near one are.
pub(crate) fn mount_near(scratch: &Scratch, at: &str) -> Mounted {
    let state = text(&scratch.path("state")).to_owned();
    Mounted::beside(scratch, at, &["--state-dir", &state])
}

pub(crate) fn libc_busy() -> i32 {
    rustix::io::Errno::BUSY.raw_os_error()
}

/// A branch's mount in the foreground.
pub(crate) fn mount_branch(scratch: &Scratch, tree: &Path, name: &str) -> Mounted {
    let dir = scratch.path(&format!("at-{name}"));
    fs::create_dir_all(&dir).expect("a mount point");
    mount_branch_at(scratch, tree, name, &dir)
}

/// A branch, mounted on this directory.
pub(crate) fn mount_branch_at(scratch: &Scratch, tree: &Path, name: &str, dir: &Path) -> Mounted {
    let log = scratch.path(&format!("{name}.log"));
    let before = fs::read_to_string(&log).unwrap_or_default().matches("mounted on").count();
    let mut command = chiton();
    command.args(["branch", "mount", "--foreground"]).arg(tree).arg(name).arg(dir);
    let mut process = Process::start(command, log);
    process.says("mounted on", before + 1);
    Mounted { process, dir: dir.to_owned() }
}
