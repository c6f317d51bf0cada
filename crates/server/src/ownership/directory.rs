//! Ownership of a data directory: one process at a time, by a lock of the operating system.
//!
//! Invariants:
//! - The lock decides; the text in its file only names the holder.
//! - The lock counts only if its file is the one at its path: removing the file must not make two holders.
//! - A take-over ends only the process that the file names, if its start time is the same: process ids come again.

#![expect(clippy::disallowed_methods, reason = "a lock file is waited for in real time")]

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use chiton_runtime::World;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::error::StartError;

/// How long a holder has to leave after being asked, and again after being killed.
const LEAVE: Duration = Duration::from_secs(5);
/// How long a lock that is about to be released is waited for.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);
/// Most of a command line that is kept, and of a lock file that is read.
const COMMAND_CHARS_MAX: usize = 1024;
const LOCK_BYTES_MAX: usize = 16 << 10;

/// The lock on a data directory, until dropped.
#[derive(Debug)]
pub(crate) struct DirectoryHold {
    file: File,
}

/// Content of the lock file.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    host: String,
    pid: i32,
    /// Start of the process in clock ticks after boot.
    started: u64,
    /// When it took the lock, in seconds since the Unix epoch.
    since: i64,
    command: String,
}

impl DirectoryHold {
    pub(crate) fn take(dir: &Path, take_over: bool, world: &dyn World) -> Result<DirectoryHold, StartError> {
        let path = dir.join("lock");
        let failed = |e: std::io::Error| {
            StartError::Failed(format!(
                "cannot use the lock {}: {e}; check the permissions of its directory",
                path.display()
            ))
        };
        let held = |holder: String, why: &str| StartError::Held {
            data: dir.into(),
            holder,
            next: match (take_over, why) {
                (false, _) => "stop it, or take over (--take-over)".to_owned(),
                (true, why) => why.to_owned(),
            },
        };
        loop {
            let mut file = open(&path).map_err(failed)?;
            if !wait_for(&file, PATIENCE, world).map_err(failed)? {
                let Some(holder) = Holder::read(&file) else {
                    let why = "no process can be ended for it: find it (fuser -v) and stop it";
                    return Err(held("a process that did not leave its name".to_owned(), why));
                };
                let named = holder.describe(world);
                if !take_over {
                    return Err(held(named, ""));
                }
                if holder.host != host() {
                    return Err(held(named, "only processes of this machine can be ended: stop it there"));
                }
                match end(&holder, &file, world) {
                    Ok(true) => {}
                    Ok(false) => {
                        return Err(held(
                            named,
                            "it did not end when it was killed: find out what it waits for",
                        ));
                    }
                    Err(e) => {
                        return Err(held(named, &format!("it cannot be ended ({e}): stop it as its user")));
                    }
                }
            }
            // A lock on a file that was removed or replaced meanwhile keeps nobody out.
            if !is_at(&file, &path).map_err(failed)? {
                continue;
            }
            match Holder::me(world).write(&mut file) {
                // The lock decides; its text is only a help.
                Err(e) if e.kind() == ErrorKind::StorageFull => {}
                written => written.map_err(failed)?,
            }
            return Ok(DirectoryHold { file });
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

impl Holder {
    fn me(world: &dyn World) -> Holder {
        let pid = rustix::process::getpid();
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let command = words.collect::<Vec<_>>().join(" ").chars().take(COMMAND_CHARS_MAX).collect();
        let pid_number = pid.as_raw_nonzero().get();
        let started = started(pid).unwrap_or(0);
        Holder { host: host(), pid: pid_number, started, since: world.now().secs(), command }
    }

    fn read(file: &File) -> Option<Holder> {
        let mut text = vec![0; LOCK_BYTES_MAX];
        let len = file.read_at(&mut text, 0).ok()?;
        serde_json::from_slice(&text[..len]).ok()
    }

    fn write(&self, file: &mut File) -> std::io::Result<()> {
        let text = serde_json::to_vec(self).expect("plain values");
        file.set_len(0)?;
        file.write_all_at(&text, 0)
    }

    fn describe(&self, world: &dyn World) -> String {
        let Holder { host, pid, since, command, .. } = self;
        let secs = world.now().secs().saturating_sub(*since).max(0);
        let (days, hours, minutes) = (secs / 86_400, secs / 3_600 % 24, secs / 60 % 60);
        let time = match (days, hours, minutes) {
            (0, 0, 0) => format!("{secs} s"),
            (0, 0, _) => format!("{minutes} min {} s", secs % 60),
            (0, _, _) => format!("{hours} h {minutes} min"),
            _ => format!("{days} d {hours} h"),
        };
        let command: String = command.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        format!("process {pid} on {host} (`{command}`), for {time}")
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
    // Counted, too: a simulated clock does not advance while nothing happens.
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

/// Asks the holder to leave, then makes it. True if the lock is ours: also if it was given up meanwhile.
fn end(holder: &Holder, file: &File, world: &dyn World) -> std::io::Result<bool> {
    let Some(pid) = Pid::from_raw(holder.pid).filter(|pid| *pid != rustix::process::getpid()) else {
        return Err(std::io::Error::other("it is this process"));
    };
    for signal in [Signal::TERM, Signal::KILL] {
        let Some(stat) = Stat::of(pid).filter(|stat| stat.started == holder.started) else {
            // It is gone, and its lock with it; or another inherited the lock, which has no name.
            return wait_for(file, PATIENCE, world);
        };
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => return Err(e.into()),
        }
        // A stopped process receives no signal before it is continued, except the last.
        let patience = if stat.stopped && signal == Signal::TERM { PAUSE } else { LEAVE };
        if wait_for(file, patience, world)? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The fields of `/proc` about a process that runs. One that ended and is not yet waited for holds nothing any more.
struct Stat {
    /// Its start, in clock ticks after boot.
    started: u64,
    /// By a signal or a debugger.
    stopped: bool,
}

impl Stat {
    fn of(pid: Pid) -> Option<Stat> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        // The second field may hold spaces and parentheses. The third is the state, the 22nd the start.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        if matches!(state, "Z" | "X") {
            return None;
        }
        let stopped = matches!(state, "T" | "t");
        Some(Stat { started: fields.nth(18)?.parse().ok()?, stopped })
    }
}

pub(super) fn started(pid: Pid) -> Option<u64> {
    Stat::of(pid).map(|stat| stat.started)
}

#[cfg(test)]
mod tests {
    use chiton_runtime::RealWorld;

    use super::*;

    #[test]
    fn a_held_directory_names_its_holder_and_is_free_afterwards() {
        let dir = tempfile::tempdir().expect("a directory");
        let hold = DirectoryHold::take(dir.path(), false, &RealWorld).expect("free");
        let error = DirectoryHold::take(dir.path(), false, &RealWorld).expect_err("held").to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.contains("(`") && error.contains(" s: stop it, or"), "{error}");
        // One's own process is never ended.
        assert!(DirectoryHold::take(dir.path(), true, &RealWorld).is_err());
        drop(hold);
        DirectoryHold::take(dir.path(), false, &RealWorld).expect("free again");
    }

    #[test]
    fn who_ended_and_is_not_waited_for_does_not_run() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep(1) runs");
        let pid = Pid::from_child(&child);
        assert!(started(pid).is_some());
        child.kill().expect("it is ours");
        let stat =
            || fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).expect("not waited for");
        while !stat().contains(") Z ") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(started(pid), None);
        child.wait().expect("ended");
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
        let text = serde_json::to_string(&Holder {
            host: host(),
            pid: holder,
            started,
            since: 0,
            command: "flock".into(),
        })
        .expect("plain values");
        fs::write(&path, text).expect("written");
        assert!(DirectoryHold::take(dir.path(), false, &RealWorld).is_err());
        DirectoryHold::take(dir.path(), true, &RealWorld).expect("taken over");
        child.wait().expect("ended");
    }
}
