//! `chiton umount`.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::args::Umount;
use crate::failure::{Class, Failure, Outcome};
use crate::target;

pub(crate) fn run(args: &Umount) -> Outcome {
    let dir = args.mountpoint.display().to_string();
    let address = target::address(&dir);
    let pid = address.as_ref().ok().and_then(|_| mount_pid(&dir));
    let root = rustix::process::geteuid().is_root();
    let mut command = if root { Command::new("umount") } else { Command::new("fusermount3") };
    if !root {
        command.arg("-u");
    }
    if args.lazy {
        command.arg(if root { "-l" } else { "-z" });
    }
    let out = command
        .arg(&args.mountpoint)
        .output()
        .map_err(|e| Failure::failed(format!("cannot run {:?}: {e}", command.get_program())))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr).trim().to_string();
        let class = if said.contains("busy") { Class::Busy } else { Class::Failed };
        let hint = if class == Class::Busy {
            "; see who uses it (fuser -vm DIR), or take it away when its last user is gone (--lazy)"
        } else {
            ""
        };
        return Err(Failure::new(class, format!("cannot unmount {dir}: {said}{hint}")));
    }
    // The process commits what it has and ends; only then the data directory is free.
    while pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists()) && !args.lazy {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The process whose mount this is, if it is one that `chiton mount` left in the background.
fn mount_pid(dir: &str) -> Option<u32> {
    let absolute = std::fs::canonicalize(dir).ok()?;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Ok(words) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let words: Vec<&[u8]> = words.split(|b| *b == 0).collect();
        let is_mount = words.contains(&&b"--announce"[..]) && words.get(1) == Some(&&b"mount"[..]);
        if is_mount && words.contains(&absolute.as_os_str().as_encoded_bytes()) {
            return Some(pid);
        }
    }
    None
}
