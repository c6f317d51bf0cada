//! The end of a mount whose server is gone: bounded, with a message about data that may be lost.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::rig::{Holder, Mounted, Process, Scratch, chiton, is_root, now, serve, until};
use crate::two::{done, refused, text};

const UNDONE: &str = "not everything could be made durable";
const SHORT: [&str; 2] = ["--unmount-timeout", "2"];

/// A mount with something unsaved, and its server.
fn with_unsaved(scratch: &Scratch) -> (Process, Mounted) {
    scratch.format();
    let server = serve(scratch, &[]);
    let mounted = Mounted::connected(scratch, &SHORT);
    fs::write(mounted.path("closed"), "content").expect("a write");
    fs::metadata(&mounted.dir).expect("the root is known");
    (server, mounted)
}

#[test]
fn sigterm_ends_a_mount_without_server_and_reports_possible_losses() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let (mut server, mut mounted) = with_unsaved(&scratch);
    let mut holder = Holder::new();
    holder.runs(&format!("exec 3>'{}'", text(&mounted.path("open"))));
    server.kill();
    // One process waits for the server when it closes a file, and one when it makes a directory.
    holder.begins("printf 'buffered under the lease' >&3");
    let mut waits = Command::new("mkdir").arg(mounted.path("directory")).spawn().expect("runs");
    mounted.process.signal(Signal::TERM);
    mounted.process.ended();
    assert!(mounted.process.said().contains(UNDONE), "{}", mounted.process.said());
    mounted.process.assert_sane();
    // Both have an answer.
    waits.wait().expect("it ends");
    holder.ends();
}

#[test]
fn plain_umount_ends_although_the_server_died() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let (mut server, mut mounted) = with_unsaved(&scratch);
    server.kill();
    until("umount", || Command::new("umount").arg(&mounted.dir).status().expect("runs").success());
    let status = mounted.process.ended();
    assert!(status.success() || mounted.process.said().contains(UNDONE), "{status}");
    assert!(mounted.process.said().contains(UNDONE), "{}", mounted.process.said());
}

#[test]
fn a_stopped_server_does_not_keep_a_mount_from_ending() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let (server, mut mounted) = with_unsaved(&scratch);
    server.signal(Signal::STOP);
    mounted.process.signal(Signal::TERM);
    mounted.process.ended();
    assert!(mounted.process.said().contains(UNDONE), "{}", mounted.process.said());
}

#[test]
fn umount_reports_possible_losses_and_loses_nothing_if_the_server_returns() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let mut server = serve(&scratch, &[]);
    let socket = format!("unix:{}", scratch.data().join("socket").display());
    let mount = |timeout: &str| {
        let mut command = chiton();
        command.args(["mount", "--unmount-timeout", timeout, "--server", &socket]).arg(scratch.mnt());
        assert!(command.status().expect("runs").success());
    };
    mount("600");
    fs::write(scratch.mnt().join("first"), "1").expect("a write");
    server.kill();
    let umount = || {
        let mut command = chiton();
        command.arg("umount").arg(scratch.mnt());
        command
    };
    // The server comes back while the mount ends: nothing is lost.
    let mut ending = umount().spawn().expect("runs");
    let mut server = serve(&scratch, &[]);
    assert!(ending.wait().expect("ends").success());
    mount("1");
    assert_eq!(fs::read_to_string(scratch.mnt().join("first")).expect("it is there"), "1");
    fs::write(scratch.mnt().join("second"), "2").expect("a write");
    server.kill();
    let out = umount().output().expect("runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(1) && said.contains(UNDONE) && said.contains("lost"), "{said}");
}

/// Also of a mount in the foreground, as under systemd, and of one whose process dies meanwhile.
#[test]
fn chiton_umount_fails_if_a_foreground_mount_could_not_make_everything_durable() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let umount = || chiton().arg("umount").arg(scratch.mnt()).output().expect("runs");
    let said = |out: &std::process::Output| String::from_utf8_lossy(&out.stderr).into_owned();
    let (mut server, mut mounted) = with_unsaved(&scratch);
    server.kill();
    let out = umount();
    assert!(out.status.code() == Some(1) && said(&out).contains(UNDONE), "{}", said(&out));
    assert_eq!(mounted.process.ended().code(), Some(1), "systemd sees it, too");
    // In order.
    let server = serve(&scratch, &[]);
    let mut mounted = Mounted::connected(&scratch, &SHORT);
    fs::write(mounted.path("second"), "content").expect("a write");
    let out = umount();
    assert!(out.status.success(), "{}", said(&out));
    assert!(mounted.process.ended().success());
    // The process is killed while it ends.
    let mut mounted = Mounted::connected(&scratch, &[]);
    fs::write(mounted.path("third"), "content").expect("a write");
    server.signal(Signal::STOP);
    let ending = chiton().arg("umount").arg(scratch.mnt()).stderr(std::process::Stdio::piped()).spawn();
    let is_gone = || !fs::read_to_string("/proc/self/mounts").expect("read").contains(text(&scratch.mnt()));
    until("it is unmounted", is_gone);
    mounted.process.kill();
    let out = ending.expect("runs").wait_with_output().expect("it ends");
    assert!(out.status.code() == Some(1) && said(&out).contains("may be lost"), "{}", said(&out));
    server.signal(Signal::CONT);
}

/// S86: nothing was pending, so nothing is lost.
#[test]
fn a_mount_of_which_nothing_is_pending_ends_without_its_server() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let mut server = serve(&scratch, &[]);
    for read_only in [&["--read-only"][..], &[]] {
        let log = scratch.path("mnt.log");
        let mut mounted = Mounted::connected(&scratch, read_only);
        fs::read_dir(&mounted.dir).expect("listed").for_each(drop);
        server.signal(Signal::TERM);
        assert!(server.ended().success());
        let began = now();
        done(&["umount", text(&mounted.dir)]);
        assert!(mounted.process.ended().success());
        assert!(now() - began < std::time::Duration::from_secs(15), "{:?}", now() - began);
        assert!(!fs::read_to_string(&log).expect("a log").contains(UNDONE));
        server = serve(&scratch, &[]);
    }
}

/// Whether something is mounted there.
fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").expect("read");
    table.lines().any(|line| line.split(' ').nth(1) == Some(text(dir)))
}

#[test]
fn umount_unmounts_only_mounts_of_chiton() {
    let scratch = Scratch::new();
    if !scratch.small_disk("64m") {
        return;
    }
    let (data, mnt) = (scratch.data(), scratch.mnt());
    for lazy in [&[][..], &["--lazy"]] {
        let umount = |dir: &str, code: i32, words: &str| {
            refused(&[&["umount"], lazy, &[dir]].concat(), code, words);
        };
        umount(text(&data), 1, "a file system of the type tmpfs is mounted there");
        umount(text(&data), 1, "umount(8) unmounts other file systems");
        umount("/", 1, "is mounted there, and this command unmounts only Chiton");
        umount(text(&mnt), 1, "nothing is mounted there");
        umount(text(&scratch.path("nothing")), 4, "it does not exist");
    }
    assert!(is_mounted(&data));
    scratch.format();
    let _server = serve(&scratch, &[]);
    let mounted = Mounted::connected(&scratch, &[]);
    fs::create_dir(mounted.path("dir")).expect("a directory");
    let next = format!("chiton umount {}", mnt.display());
    refused(&["umount", text(&mounted.path("dir"))], 1, &next);
    // A bind mount is one of Chiton, too, and what it shows stays mounted.
    let bound = scratch.path("bound");
    fs::create_dir(&bound).expect("a directory");
    for at in [mounted.path("dir"), mounted.dir.clone()] {
        rustix::mount::mount_bind(&at, &bound).expect("bound");
        done(&["umount", text(&bound)]);
        assert!(!is_mounted(&bound) && is_mounted(&mnt));
    }
    // A mount whose process is dead.
    mounted.process.signal(Signal::KILL);
    until("its process is dead", || fs::metadata(&mnt).is_err());
    done(&["umount", text(&mnt)]);
    assert!(!is_mounted(&mnt));
}

#[test]
fn callers_of_a_dead_server_can_be_killed_or_continue_later() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let (mut server, mounted) = with_unsaved(&scratch);
    server.kill();
    let mkdir = |name: &str| Command::new("mkdir").arg(mounted.path(name)).spawn().expect("runs");
    // One after the other: a process that waits for the kernel's lock of a directory behind another caller cannot
    // be killed.
    let mut killed = mkdir("killed");
    let stat = format!("/proc/{}/stat", killed.id());
    let is_waiting =
        || std::fs::read_to_string(&stat).is_ok_and(|s| s.contains(") S ") || s.contains(") D "));
    until("it waits", is_waiting);
    let start = now();
    killed.kill().expect("it is ours");
    until("the killed process is gone", || killed.try_wait().expect("it is ours").is_some());
    eprintln!("killed within {:?}", start.elapsed());
    let mut patient = mkdir("patient");
    assert!(patient.try_wait().expect("it is ours").is_none());
    let _server = serve(&scratch, &[]);
    assert!(patient.wait().expect("it ends").success());
    assert!(mounted.path("patient").is_dir());
    mounted.unmount();
}
