//! The disk below a server: full, read-only, gone. Each caller gets a clear error, and nothing hangs.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use rustix::mount::{MountFlags, mount_remount};

use crate::rig::{
    Mounted, Scratch, check_whole, checkable, chiton, is_root, serve, sync_dir, until, write_checkable,
};
use crate::two::{done, run};

/// Writes a file and syncs it before the close, whose errors are lost.
fn write_durable(path: &Path, name: u64, len: usize) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&checkable(name, len))?;
    file.sync_all()
}

#[test]
fn a_full_disk_is_the_callers_error_and_heals_when_there_is_space() {
    let scratch = Scratch::new();
    if !scratch.small_disk("96m") {
        return;
    }
    scratch.format();
    // Kept free to be given back; the rest is the file system's.
    let ballast = scratch.data().join("ballast");
    let mut mounted = Mounted::embedded(&scratch, &[]);
    let grow = vec![1; 1 << 20];
    let mut file = File::create(&ballast).expect("a file");
    for _ in 0..24 {
        file.write_all(&grow).expect("there is space");
    }
    drop(file);
    let mut promised = Vec::new();
    let error = loop {
        let n = promised.len() as u64;
        let path = mounted.path(&n.to_string());
        let written = write_durable(&path, n, 1 << 20);
        match written.and_then(|()| sync_dir(&mounted.dir)) {
            Ok(()) => promised.push(n),
            Err(error) => break error,
        }
        assert!(promised.len() < 200, "the disk is never full");
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert!(!promised.is_empty(), "something fits");
    for &n in &promised {
        check_whole(&mounted.path(&n.to_string()), n).expect("it was promised");
    }
    assert!(mounted.process.lives());
    fs::remove_file(&ballast).expect("space returns");
    until("it goes on", || {
        let path = mounted.path("afterwards");
        write_durable(&path, 7, 1000).is_ok()
    });
    sync_dir(&mounted.dir).expect("durable");
    mounted.process.assert_sane();
    mounted.kill();
    let mounted = Mounted::embedded(&scratch, &[]);
    for &n in &promised {
        check_whole(&mounted.path(&n.to_string()), n).expect("it was promised");
    }
    check_whole(&mounted.path("afterwards"), 7).expect("it was promised");
    mounted.unmount();
}

#[test]
fn a_read_only_data_directory_is_refused_with_a_reason() {
    let scratch = Scratch::new();
    if !scratch.small_disk("64m") {
        return;
    }
    scratch.format();
    mount_remount(scratch.data(), MountFlags::RDONLY, c"").expect("remounted");
    let out = chiton().arg("serve").arg("--data").arg(scratch.data()).output().expect("it ends");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && !said.contains("panicked"), "{said}");
    assert!(said.to_lowercase().contains("read-only"), "{said}");
    mount_remount(scratch.data(), MountFlags::empty(), c"").expect("remounted");
    serve(&scratch, &[]).assert_sane();
}

#[test]
fn a_data_directory_that_vanishes_ends_in_answers() {
    vanish(false);
}

/// As where an administrator unmounts the disk by force or lazily.
#[test]
fn nothing_is_made_in_the_empty_mount_point_of_a_data_directory() {
    vanish(true);
}

fn vanish(leaves_mount_point: bool) {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let mounted = Mounted::embedded(&scratch, &[]);
    write_checkable(&mounted.path("before"), 1, 1000).expect("a write");
    sync_dir(&mounted.dir).expect("durable");
    let elsewhere = scratch.path("elsewhere");
    fs::rename(scratch.data(), &elsewhere).expect("renamed");
    if leaves_mount_point {
        fs::create_dir(scratch.data()).expect("a directory");
    }
    // Each of these may succeed or fail; each ends.
    for n in 0..20u64 {
        let path = mounted.path(&format!("during-{n}"));
        let _ = write_durable(&path, n, 300_000);
    }
    mounted.process.assert_sane();
    mounted.kill();
    if leaves_mount_point {
        fs::remove_dir(scratch.data()).expect("it is empty still");
    }
    assert!(!scratch.data().exists(), "nothing begins it anew");
    fs::rename(&elsewhere, scratch.data()).expect("renamed back");
    let mounted = Mounted::embedded(&scratch, &[]);
    check_whole(&mounted.path("before"), 1).expect("it was promised");
    mounted.unmount();
}

/// Bytes of the disk that a path lies on.
fn total(path: &Path) -> u64 {
    let stat = rustix::fs::statvfs(path).expect("a disk");
    stat.f_blocks * stat.f_frsize
}

/// Free bytes of the disk that a path lies on.
fn free(path: &Path) -> u64 {
    let stat = rustix::fs::statvfs(path).expect("a disk");
    stat.f_bavail * stat.f_frsize
}

/// Whether content lies in blocks or in the metadata store: a disk that the file system and then another program have filled
/// up starts, answers, and gets its space back by removals.
#[test]
fn a_full_disk_gets_its_space_back_by_removals() {
    for len in [50_000, 4_000] {
        let scratch = Scratch::new();
        if !scratch.small_ext4(96) {
            return;
        }
        scratch.format();
        let mounted = Mounted::embedded(&scratch, &[]);
        fs::create_dir(mounted.path("d")).expect("a directory");
        let (mut written, mut refused) = (0u64, 0);
        while refused < 10 {
            let path = mounted.path(&format!("d/{written}"));
            match write_durable(&path, written, len) {
                Ok(()) => written += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                    refused += 1;
                }
            }
            assert!(written < 50_000, "the disk is never full");
        }
        // Another program takes the rest, to the last block.
        let mut other = File::create(scratch.data().join("other")).expect("a file");
        let mut step = 1 << 20;
        while step >= 512 {
            if other.write_all(&vec![1; step]).is_err() {
                step /= 2;
            }
        }
        let taken = other.metadata().expect("it is there").len();
        drop(other);
        let full = free(&scratch.data());
        assert!(full < 64 << 10, "{full} bytes are free");
        let run = |words: &[&str]| {
            let out = chiton().args(words).output().expect("it runs");
            assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        };
        let (data, mnt) = (scratch.data(), scratch.mnt());
        let (data, mnt) = (data.to_str().expect("text"), mnt.to_str().expect("text"));
        run(&["status", mnt]);
        run(&["df", mnt]);
        mounted.unmount();
        run(&["fsck", data]);
        Mounted::embedded(&scratch, &["--read-only"]).unmount();
        let mounted = Mounted::embedded(&scratch, &[]);
        check_whole(&mounted.path("d/0"), 0).expect("it was promised");
        for entry in fs::read_dir(mounted.path("d")).expect("listed") {
            fs::remove_file(entry.expect("an entry").path()).expect("removing needs no space of others");
        }
        sync_dir(&mounted.dir).expect("durable");
        // All that the other program and the reserve leave, but 8 MiB.
        let all = total(&scratch.data()) - taken - (16 << 20) - (8 << 20);
        assert!(all >= 24 << 20, "the other program took {taken} bytes");
        until("the space comes back", || free(&scratch.data()) > all);
        let reserved = || fs::metadata(scratch.data().join("reserve")).map_or(0, |meta| meta.len());
        until("the reserve is whole", || reserved() == 16 << 20);
        until("writing goes on", || write_durable(&mounted.path("afterwards"), 7, 1000).is_ok());
        mounted.process.assert_sane();
        mounted.unmount();
        run(&["fsck", data]);
    }
}

/// A part of the way out: the files removed first are not those that fill the disk.
#[test]
fn a_log_on_the_full_disk_ends_no_mount() {
    let scratch = Scratch::new();
    if !scratch.small_ext4(64) {
        return;
    }
    scratch.format();
    let full = File::options().write(true).open("/dev/full").expect("a full device");
    let mut command = chiton();
    command.args(["mount", "--foreground", "--data"]).arg(scratch.data()).arg(scratch.mnt());
    let mut child = command.stdout(std::process::Stdio::null()).stderr(full).spawn().expect("it starts");
    let device = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).map(|meta| meta.dev()).unwrap_or(0)
    };
    let before = device(&scratch.path("."));
    until("it is mounted", || device(&scratch.mnt()) != before);
    let mut refused = 0;
    for n in 0.. {
        refused += u32::from(write_durable(&scratch.mnt().join(n.to_string()), n, 1 << 20).is_err());
        if refused == 3 {
            break;
        }
    }
    assert!(child.try_wait().expect("it is ours").is_none(), "it ended because nobody can read its log");
    let out = chiton().arg("umount").arg(scratch.mnt()).output().expect("it runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(child.wait().expect("it ends").success());
}

/// S85: a tree whose names fill the disk is removed at once, and freed in the background: the journal of that and its checkpoints take
/// no more than the reserve, also if the server dies meanwhile.
#[test]
fn a_full_disk_gets_its_space_back_by_the_removal_of_a_whole_tree() {
    let scratch = Scratch::new();
    if !scratch.small_disk("48m") {
        return;
    }
    let (data, mnt) = (scratch.data(), scratch.mnt());
    let (data, mnt) = (data.to_str().expect("text"), mnt.to_str().expect("text"));
    done(&["format", "--plates", "2", data]);
    let mut server = serve(&scratch, &[]);
    let address = format!("unix:{data}/socket");
    let mounted = Mounted::connected(&scratch, &[]);
    fs::create_dir(mounted.path("x")).expect("a directory");
    let bench = ["bench", "mdtest", "--server", &address, "-d", "/x", "--tasks", "2"];
    let filled = run(&[&bench[..], &["-n", "1000000", "-F", "-C", "--batch", "1000"]].concat());
    let said = String::from_utf8_lossy(&filled.stderr);
    assert!(said.contains("No space left on device"), "the disk is never full: {said}");
    done(&["rm", "-r", &format!("{mnt}/x")]);
    for _ in 0..3 {
        drop(server);
        server = serve(&scratch, &[]);
    }
    until("the space comes back", || free(&scratch.data()) > 24 << 20);
    until("writing goes on", || write_durable(&mounted.path("afterwards"), 7, 1000).is_ok());
    drop(server);
    let server = serve(&scratch, &[]);
    check_whole(&mounted.path("afterwards"), 7).expect("it was promised");
    mounted.unmount();
    drop(server);
    done(&["fsck", data]);
}
