//! The disk below a server: full, read-only, gone. Whoever asks gets an error that says so, and nothing hangs.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use rustix::mount::{MountFlags, mount_remount};

use crate::rig::{
    Mounted, Scratch, check_whole, checkable, chiton, is_root, serve, sync_dir, until, write_checkable,
};

/// Writes a file and syncs it before it is closed: nobody hears of what close says.
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
    // Each of these may succeed or fail; each ends.
    for n in 0..20u64 {
        let path = mounted.path(&format!("during-{n}"));
        let _ = write_durable(&path, n, 300_000);
    }
    mounted.process.assert_sane();
    mounted.kill();
    fs::rename(&elsewhere, scratch.data()).expect("renamed back");
    let mounted = Mounted::embedded(&scratch, &[]);
    check_whole(&mounted.path("before"), 1).expect("it was promised");
    mounted.unmount();
}
