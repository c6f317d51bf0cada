//! `chiton umount`.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::mount::UnmountFlags;

use crate::args::Umount;
use crate::failure::{Class, Failure, Outcome};
use crate::target;

/// How often it is looked whether the mount's process has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Looks before somebody who waits is told why.
const PATIENCE_LOOKS: u32 = 100;

pub(crate) fn run(args: &Umount) -> Outcome {
    let dir = args.mountpoint.display().to_string();
    let address = target::address(&dir);
    let pid = address.as_ref().ok().and_then(|_| mount_pid(&dir));
    let log = pid.and_then(Log::of);
    detach(args).map_err(|(said, busy)| {
        let class = if busy { Class::Busy } else { Class::Failed };
        let hint = if busy {
            "; fuser -vm names the processes that use it, and chiton umount --lazy takes it away when they are gone"
        } else {
            ""
        };
        Failure::new(class, format!("cannot unmount {dir}: {said}{hint}"))
    })?;
    let Some(pid) = pid.filter(|_| !args.lazy) else { return Ok(()) };
    // The process commits what it has and ends; only then the data directory is free. It gives up on a server that does
    // not answer (--unmount-timeout of the mount), so this ends, too.
    let mut looks = 0;
    while is_running(pid) {
        thread::sleep(LOOK);
        looks += 1;
        if looks == PATIENCE_LOOKS {
            eprintln!("chiton: unmounted; waiting for process {pid} to make everything durable");
        }
    }
    let said = log.map(|log| log.since()).unwrap_or_default();
    if [chiton_mount::NOT_DURABLE, chiton_mount::NOT_GIVEN_BACK].iter().any(|words| said.contains(words)) {
        return Err(Failure::failed(format!("unmounted {dir}, but the mount says:\n{}", said.trim())));
    }
    Ok(())
}

/// Whether a process has not ended. One that has ended may stay in the table for ever, where the first process of a container
/// collects none.
fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !has_ended(&stat))
}

/// Reads the state, which follows the name; that may hold anything, but stands in parentheses.
fn has_ended(stat: &str) -> bool {
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Detaches the mount; an error in words, and whether it is that it is in use. root asks the system itself: umount(8)
/// looks at the mount first, which may wait for a server that is away.
fn detach(args: &Umount) -> Result<(), (String, bool)> {
    if rustix::process::geteuid().is_root() {
        let flags = if args.lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return rustix::mount::unmount(&args.mountpoint, flags).map_err(|error| match error {
            rustix::io::Errno::INVAL => {
                ("nothing is mounted there; findmnt lists what is mounted".to_owned(), false)
            }
            error => (error.to_string(), error == rustix::io::Errno::BUSY),
        });
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if args.lazy {
        command.arg("-z");
    }
    let out = command
        .arg(&args.mountpoint)
        .output()
        .map_err(|e| (format!("cannot run {:?}: {e}", command.get_program()), false))?;
    let said = String::from_utf8_lossy(&out.stderr).trim().to_string();
    if out.status.success() { Ok(()) } else { Err((said.clone(), said.contains("busy"))) }
}

/// Where a mount in the background writes its messages.
struct Log {
    path: PathBuf,
    start: u64,
}

impl Log {
    fn of(pid: u32) -> Option<Log> {
        let path = std::fs::read_link(format!("/proc/{pid}/fd/2")).ok()?;
        let start = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?.len();
        Some(Log { path, start })
    }

    /// What was written since.
    fn since(&self) -> String {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(self.start as usize..).unwrap_or_default()).into_owned()
    }
}

/// The process whose mount this is, if it is one that `chiton mount` left in the background.
fn mount_pid(dir: &str) -> Option<u32> {
    let absolute = std::fs::canonicalize(dir).ok()?;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Ok(words) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let words: Vec<&[u8]> = words.split(|b| *b == 0).collect();
        let command = words.iter().skip(1).find(|word| **word != b"branch");
        let is_mount = words.contains(&&b"--announce"[..]) && command == Some(&&b"mount"[..]);
        if is_mount && words.contains(&absolute.as_os_str().as_encoded_bytes()) {
            return Some(pid);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_process_that_nobody_has_collected_has_ended() {
        assert!(!has_ended("7 (chiton) S 1 7 7 0"));
        assert!(!has_ended("7 (a) Z b) S 1 7 7 0"));
        assert!(has_ended("7 (chiton) Z 1 7 7 0") && has_ended(""));
        let mut child = Command::new("true").spawn().expect("it starts");
        while is_running(child.id()) {
            thread::sleep(LOOK);
        }
        assert!(Path::new(&format!("/proc/{}", child.id())).exists(), "nobody has collected it");
        child.wait().expect("it ends");
    }
}
