//! Damaged files of the metadata store: the start is refused and names the file and the command, which makes it whole again.

use std::fs;
use std::path::{Path, PathBuf};

use chiton_client::{Client, ClientOptions};

use crate::rig::{Process, Scratch, is_root, serve};
use crate::two::{done, refused, text};

const FILES: usize = 200;

/// Damages a file of a store; which.
type Damage = fn(&Path) -> PathBuf;

fn content(n: usize) -> Vec<u8> {
    let bytes = if n.is_multiple_of(10) { 70_000 } else { 30 };
    format!("what file {n} holds ").into_bytes().into_iter().cycle().take(bytes).collect()
}

fn client(scratch: &Scratch) -> Client {
    let address = format!("unix:{}", scratch.data().join("socket").display()).parse().expect("an address");
    let user = Some((0, 0, Vec::new()));
    Client::connect(&address, ClientOptions { user, ..ClientOptions::default() }).expect("connects")
}

fn fill(scratch: &Scratch) {
    let client = client(scratch);
    for dir in 0..5 {
        client.mkdir_all(format!("/dir {dir}/deep")).expect("made");
    }
    for n in 0..FILES {
        client.create_file(format!("/dir {}/file {n}", n % 5), &content(n)).expect("made");
    }
    client.sync().expect("durable");
}

fn check(scratch: &Scratch, what: &str) {
    let client = client(scratch);
    for dir in 0..5 {
        assert_eq!(client.list(format!("/dir {dir}")).expect("listed").len(), FILES / 5 + 1, "{what}");
    }
    for n in 0..FILES {
        let found = client.read_file(format!("/dir {}/file {n}", n % 5));
        assert!(found == Ok(content(n)), "{what}: file {n} holds something else");
    }
}

fn end(mut server: Process) {
    server.signal(rustix::process::Signal::TERM);
    assert!(server.ended().success(), "{}", server.said());
}

/// Files below a directory whose names fit.
fn named(dir: &Path, fits: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            found.extend(named(&entry.path(), fits));
        } else if fits(&name) {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// Changes one byte in the middle of a file.
fn flip(file: &Path) {
    let mut bytes = fs::read(file).expect("read");
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("something is in it");
    bytes[used / 2] ^= 0x10;
    fs::write(file, bytes).expect("written");
}

/// The last of the files whose names fit, damaged.
fn flipped(rows: &Path, fits: &dyn Fn(&str) -> bool) -> PathBuf {
    let file = named(rows, fits).pop().expect("one");
    flip(&file);
    file
}

fn is_list(name: &str) -> bool {
    name.strip_prefix('v').is_some_and(|number| number.parse::<u64>().is_ok())
}

#[test]
fn a_damaged_file_of_the_metadata_store_is_named_and_rebuilt() {
    let cases: [(&str, Damage); 4] = [
        ("the library's journal", |rows| flipped(rows, &|name| name.ends_with(".jnl"))),
        ("a list of tables", |rows| flipped(rows, &is_list)),
        ("which list counts", |rows| flipped(rows, &|name| name == "current")),
        ("a marker is missing", |rows| {
            fs::remove_file(rows.join("version")).expect("removed");
            rows.join("version")
        }),
    ];
    for killed in [false, true] {
        for (what, damage) in cases {
            let scratch = Scratch::new();
            scratch.format();
            let mut server = serve(&scratch, &[]);
            fill(&scratch);
            match killed {
                true => server.kill(),
                false => end(server),
            }
            let data = scratch.data();
            let file = damage(&data.join("meta/rows"));
            let name = file.strip_prefix(data.join("meta")).expect("below").display().to_string();
            let what = format!("{what} ({name}, killed: {killed})");
            eprintln!("{what}");
            refused(&["serve", "--data", text(&data)], 1, "chiton fsck --rebuild");
            // A list is reported as the one that `current` should name, or `current` as a file that does not name
            // it.
            let place = name.rsplit_once('/').map_or(name.as_str(), |(place, _)| place);
            let named = if name.ends_with(".jnl") { name.as_str() } else { place };
            refused(&["serve", "--data", text(&data)], 1, named);
            refused(&["fsck", text(&data)], 8, "chiton fsck --rebuild --yes");
            refused(&["fsck", "--rebuild", text(&data)], 8, "--rebuild --yes");
            done(&["fsck", "--rebuild", "--yes", text(&data)]);
            let server = serve(&scratch, &[]);
            check(&scratch, &what);
            end(server);
            done(&["fsck", "--content", text(&data)]);
        }
    }
}

/// The library opens no store without its lock, an empty file: it is made again without a word.
#[test]
fn a_missing_lock_file_is_created() {
    let scratch = Scratch::new();
    scratch.format();
    let server = serve(&scratch, &[]);
    fill(&scratch);
    end(server);
    fs::remove_file(scratch.data().join("meta/rows/lock")).expect("removed");
    let server = serve(&scratch, &[]);
    check(&scratch, "without the lock");
    end(server);
}

/// A file system that no repair mends can be mounted as far as it can be read.
#[test]
fn the_readable_part_of_a_damaged_file_system_is_mounted_read_only() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let server = serve(&scratch, &[]);
    fill(&scratch);
    end(server);
    // One block, and the journal: without `chiton journal reset` nothing starts.
    let block = named(&scratch.data().join("objects/blocks"), &|_| true).pop().expect("a block");
    flip(&block);
    let segment = named(&scratch.data().join("journal"), &|name| name.ends_with(".seg")).pop().expect("one");
    let mut bytes = fs::read(&segment).expect("read");
    bytes[..40].fill(0xff);
    fs::write(&segment, bytes).expect("written");
    refused(&["serve", "--data", text(&scratch.data())], 1, "chiton mount --salvage");
    let mounted = crate::rig::Mounted::embedded(&scratch, &["--salvage"]);
    let (mut whole, mut unread) = (0, 0);
    for n in 0..FILES {
        match fs::read(mounted.path(&format!("dir {}/file {n}", n % 5))) {
            Ok(found) => {
                assert!(found == content(n), "file {n} holds something else");
                whole += 1;
            }
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "file {n}: {e}");
                unread += 1;
            }
        }
    }
    assert_eq!((whole, unread), (FILES - 1, 1));
    let said = mounted.process.said();
    assert!(said.contains("orrupt") && said.contains("read-only"), "{said}");
    let refused = fs::write(mounted.path("new"), "x").expect_err("read-only").raw_os_error();
    assert_eq!(refused, Some(rustix::io::Errno::ROFS.raw_os_error()));
    // Other clients are refused, too.
    let other = client(&scratch).create_file("/new", b"x").map(drop);
    assert_eq!(other, Err(chiton_types::Refusal::ReadOnly));
    mounted.unmount();
}
