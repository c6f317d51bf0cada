//! A server that is restarted under open files and a running `tar`: tar continues, and the tree is right (S26,
//! S28).

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::rig::{Holder, Mounted, Scratch, check_whole, is_root, serve, write_checkable};
use crate::two::text;

const DIRS: u64 = 20;
const FILES: u64 = 40;

#[test]
fn tar_continues_over_server_restarts_and_files_stay_open() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let source = scratch.path("source");
    for dir in 0..DIRS {
        fs::create_dir_all(source.join(dir.to_string())).expect("a folder");
        for file in 0..FILES {
            let number = dir * FILES + file;
            write_checkable(&source.join(format!("{dir}/{file}")), number, (number * 37 % 9000) as usize)
                .expect("a write");
        }
    }
    let archive = scratch.path("archive.tar");
    let made = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&source).arg(".").status();
    assert!(made.expect("tar runs").success());

    let mut server = serve(&scratch, &[]);
    let mounted = Mounted::connected(&scratch, &[]);
    write_checkable(&mounted.path("open"), 1, 50_000).expect("a write");
    let mut nameless = Holder::new();
    nameless.runs(&format!("exec 3<'{}'", text(&mounted.path("open"))));
    fs::remove_file(mounted.path("open")).expect("removed");
    let target = mounted.path("target");
    fs::create_dir(&target).expect("a folder");
    let mut tar = Command::new("tar")
        .arg("-xvf")
        .arg(&archive)
        .arg("-C")
        .arg(&target)
        .stdout(Stdio::piped())
        .spawn()
        .expect("tar runs");
    let lines = BufReader::new(tar.stdout.take().expect("piped")).lines();
    // tar prints each entry before it writes it.
    for (n, line) in lines.enumerate() {
        line.expect("a line");
        match n {
            150 | 500 => {
                server.kill();
                server = serve(&scratch, &[]);
            }
            300 => {
                server.signal(Signal::TERM);
                assert!(server.ended().success());
                server = serve(&scratch, &[]);
            }
            _ => {}
        }
    }
    assert!(tar.wait().expect("it ends").success());
    for number in 0..DIRS * FILES {
        let path = target.join(format!("{}/{}", number / FILES, number % FILES));
        check_whole(&path, number).expect("as in the archive");
    }
    assert_eq!(count(&target), DIRS * FILES);
    let copy = scratch.path("copy");
    nameless.runs(&format!("cat <&3 >'{}'", text(&copy)));
    let content = fs::read(&copy).expect("it was still open");
    assert!(content == crate::rig::checkable(1, 50_000), "{} bytes", content.len());
    nameless.ends();
    mounted.unmount();
    server.assert_sane();
}

fn count(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("a folder");
    entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() { count(&entry.path()) } else { 1 }
        })
        .sum()
}

/// S80, S81: an append of one mount that is not pushed is neither overwritten nor hidden by later appends after the
/// restart.
#[test]
fn appends_of_two_mounts_outlive_a_restart_of_the_server_in_their_order() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let mut server = serve(&scratch, &[]);
    let near = Mounted::connected(&scratch, &[]);
    let far = Mounted::beside(&scratch, "far", &[]);
    // Small content lies inside its inode, large content in blocks.
    for (name, base, in_order) in [("small", 10, false), ("large", 20_000, false), ("last", 10, true)] {
        fs::write(near.path(name), vec![b'.'; base]).expect("a write");
        let opened = |path: &Path| {
            let mut holder = Holder::new();
            holder.runs(&format!("exec 3>>'{}'", text(path)));
            holder
        };
        let (mut first, mut second) = (opened(&near.path(name)), opened(&far.path(name)));
        second.runs("printf 'before ' >&3");
        first.runs("printf 'buffered ' >&3");
        match in_order {
            false => server.kill(),
            true => {
                server.signal(Signal::TERM);
                assert!(server.ended().success());
            }
        }
        server = serve(&scratch, &[]);
        second.runs("printf 'after ' >&3");
        for mount in [&near, &far] {
            File::open(mount.path(name)).expect("opens").sync_all().expect("an fsync");
        }
        let content = fs::read_to_string(far.path(name)).expect("a read");
        assert_eq!(content.trim_start_matches('.'), "before buffered after ", "{name}");
        first.ends();
        second.ends();
        assert_eq!(fs::read_to_string(near.path(name)).expect("a read"), content, "{name}");
    }
    far.unmount();
    near.unmount();
    server.assert_sane();
}
