//! Who serves a data directory: one process at a time, by a lock of the operating system.
//!
//! Invariants:
//! - The lock decides; the text in its file only names the holder.
//! - A take-over ends only the process that the file names, if its start time is the same: process ids come again.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use chiton_world::World;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::runtime::error::StartError;

/// How long a holder has to leave after being asked, and again after being killed.
const LEAVE: Duration = Duration::from_secs(5);
/// How long a lock that is about to be released is waited for.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);

/// The lock on a data directory, until dropped.
#[derive(Debug)]
pub(crate) struct DirectoryHold {
    file: File,
}

/// What the lock file says.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    host: String,
    pid: i32,
    /// Start of the process in clock ticks after boot.
    started: u64,
}

impl DirectoryHold {
    /// Takes the lock.
    pub(crate) fn take(dir: &Path, take_over: bool, world: &dyn World) -> Result<DirectoryHold, StartError> {
        let failed = |e: std::io::Error| StartError::Failed(format!("{}/lock: {e}", dir.display()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join("lock"))
            .map_err(failed)?;
        if !wait_for(&file, PATIENCE, world).map_err(failed)? {
            let mut text = String::new();
            let holder: Option<Holder> = match (&file).take(4096).read_to_string(&mut text) {
                Ok(_) => serde_json::from_str(&text).ok(),
                Err(_) => None,
            };
            let named = || match &holder {
                Some(h) => format!("process {} on {}", h.pid, h.host),
                None => "a process that did not leave its name".to_owned(),
            };
            let held = || StartError::Held { data: dir.into(), holder: named() };
            let Some(holder) = holder.as_ref().filter(|h| take_over && h.host == host()) else {
                return Err(held());
            };
            end(holder, &file, world).map_err(failed)?;
            if !wait_for(&file, PATIENCE, world).map_err(failed)? {
                return Err(held());
            }
        }
        let pid = rustix::process::getpid();
        let me = Holder { host: host(), pid: pid.as_raw_nonzero().get(), started: started(pid).unwrap_or(0) };
        let text = serde_json::to_string(&me).expect("plain values");
        let mut write = || -> std::io::Result<()> {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(text.as_bytes())
        };
        write().map_err(failed)?;
        Ok(DirectoryHold { file })
    }
}

impl Drop for DirectoryHold {
    fn drop(&mut self) {
        // The name goes with the lock. If it cannot be removed, the next holder writes over it.
        let _ = self.file.set_len(0);
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Tries to lock for about `patience`; false if another keeps it.
fn wait_for(file: &File, patience: Duration, world: &dyn World) -> std::io::Result<bool> {
    let deadline = world.monotonic() + patience;
    // Counted, too: a simulated clock does not move by itself.
    for _ in 0..=patience.as_millis() / PAUSE.as_millis() {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if world.monotonic() >= deadline {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(false)
}

/// Asks the holder to leave, then makes it.
fn end(holder: &Holder, file: &File, world: &dyn World) -> std::io::Result<()> {
    let Some(pid) = Pid::from_raw(holder.pid).filter(|pid| *pid != rustix::process::getpid()) else {
        return Ok(());
    };
    for signal in [Signal::TERM, Signal::KILL] {
        if started(pid) != Some(holder.started) {
            return Ok(());
        }
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => return Err(e.into()),
        }
        if wait_for(file, LEAVE, world)? {
            return Ok(());
        }
    }
    Ok(())
}

pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Start time of a process, from the 22nd field of its stat file; the second may hold spaces and parentheses.
pub(super) fn started(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use chiton_world::RealWorld;

    use super::*;

    #[test]
    fn a_held_directory_names_its_holder_and_is_free_afterwards() {
        let dir = tempfile::tempdir().expect("a directory");
        let hold = DirectoryHold::take(dir.path(), false, &RealWorld).expect("free");
        let error = DirectoryHold::take(dir.path(), false, &RealWorld).expect_err("held").to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        // One's own process is never ended.
        assert!(DirectoryHold::take(dir.path(), true, &RealWorld).is_err());
        drop(hold);
        DirectoryHold::take(dir.path(), false, &RealWorld).expect("free again");
    }

    #[test]
    fn a_take_over_ends_the_holder() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lock");
        let mut child = std::process::Command::new("flock")
            .args(["-x", path.to_str().expect("a plain path"), "sleep", "600"])
            .spawn()
            .expect("flock(1) runs");
        let pid = Pid::from_child(&child);
        let probe = OpenOptions::new().create(true).truncate(false).write(true).open(&path).expect("opens");
        while flock(&probe, FlockOperation::NonBlockingLockExclusive).is_ok() {
            flock(&probe, FlockOperation::Unlock).expect("unlocks");
            thread::sleep(PAUSE);
        }
        // flock(1) keeps the lock in its child, too, which would survive: name that one.
        let holder = loop {
            let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", pid.as_raw_nonzero()));
            match children.ok().and_then(|text| text.split_whitespace().next()?.parse().ok()) {
                Some(holder) => break holder,
                None => thread::sleep(PAUSE),
            }
        };
        let started = started(Pid::from_raw(holder).expect("a pid")).expect("it runs");
        let text =
            serde_json::to_string(&Holder { host: host(), pid: holder, started }).expect("plain values");
        fs::write(&path, text).expect("written");
        assert!(DirectoryHold::take(dir.path(), false, &RealWorld).is_err());
        DirectoryHold::take(dir.path(), true, &RealWorld).expect("taken over");
        child.wait().expect("ended");
    }
}
