//! A file system of several plates, over one socket: directories live on any of them, and a client does not notice which.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_types::{Ino, PlateId, Plates, Refusal, SHARDS_DEFAULT};

use crate::site::Site;

const DIRS: usize = 24;
const PLATES: u16 = 3;

fn plate(ino: Ino) -> PlateId {
    Plates::new(SHARDS_DEFAULT, PLATES).expect("plates").of(ino).expect("a shard")
}

/// Makes directories until each plate has some; returns their names with their numbers.
fn spread(client: &Client) -> BTreeMap<String, Ino> {
    let dirs: BTreeMap<String, Ino> = (0..DIRS)
        .map(|n| (format!("dir-{n}"), client.mkdir_all(format!("dir-{n}")).expect("made").ino))
        .collect();
    let plates: BTreeSet<PlateId> = dirs.values().map(|ino| plate(*ino)).collect();
    assert_eq!(plates.len(), usize::from(PLATES), "directories are spread");
    dirs
}

/// Paths of all that is there, with inode numbers and sizes.
fn tree(client: &Client) -> BTreeMap<String, (Ino, u64)> {
    let (mut all, mut todo) = (BTreeMap::new(), vec![String::new()]);
    while let Some(dir) = todo.pop() {
        for entry in client.list(if dir.is_empty() { "/" } else { &dir }).expect("listed") {
            let path = format!("{dir}/{}", entry.name);
            let attr = entry.entry.expect("a listing with attributes has them, wherever they are").attr;
            assert_eq!(attr, client.stat(&path).expect("there"), "{path}");
            if attr.kind == chiton_types::Kind::Dir {
                todo.push(path.clone());
                all.insert(path, (attr.ino, 0));
            } else {
                all.insert(path, (attr.ino, attr.size));
            }
        }
    }
    all
}

#[test]
fn tree_over_plates_is_one_tree() {
    let site = Site::with_plates(PLATES);
    let (one, other) = (site.connected(), site.connected());
    let dirs = spread(&one);
    for (n, dir) in dirs.keys().enumerate() {
        let client = if n % 2 == 0 { &one } else { &other };
        client.mkdir_all(format!("{dir}/sub/deep")).expect("made");
        for (name, content) in
            [("small", vec![1; 10]), ("large", vec![2; 300_000]), ("sub/deep/file", vec![3; 5])]
        {
            client.create_file(format!("{dir}/{name}"), &content).expect("made");
        }
        client.rename_path(format!("{dir}/small"), format!("{dir}/renamed")).expect("moved");
    }
    let seen = tree(&one);
    assert_eq!(seen.len(), DIRS * 6);
    assert_eq!(seen, tree(&other));
    assert_eq!(one.statfs().expect("counted").inodes_used, 1 + seen.len() as u64);
    for dir in dirs.keys() {
        assert_eq!(other.read_file(format!("{dir}/large")).map(|bytes| bytes == [2; 300_000]), Ok(true));
        assert_eq!(one.remove(dir), Err(Refusal::NotEmpty), "wherever it lives");
    }
    // After a crash of the server all plates have what was synced.
    one.sync().expect("durable");
    other.sync().expect("durable");
    site.kill();
    site.start();
    assert_eq!(tree(&one), seen);
    assert_eq!(tree(&site.connected()), seen);
    for dir in dirs.keys() {
        for name in ["sub/deep/file", "sub/deep", "sub", "large", "renamed"] {
            other.remove(format!("{dir}/{name}")).expect("removed");
        }
        one.remove(dir).expect("removed");
    }
    assert_eq!(tree(&other), BTreeMap::new());
}

#[test]
fn what_is_acknowledged_by_write_behind_is_seen_by_others() {
    let site = Site::with_plates(PLATES);
    let writer =
        site.connected_with(ClientOptions { write_behind_after: Some(0), ..ClientOptions::default() });
    let reader = site.connected();
    for dir in spread(&writer).keys() {
        // A directory whose names are all known: from here on its files are made before the server knows.
        assert_eq!(writer.list(dir).expect("listed").len(), 0);
        for n in 0..20 {
            writer.create_file(format!("{dir}/f{n}"), &[n]).expect("made");
        }
        writer.remove(format!("{dir}/f3")).expect("removed");
        let names = |client: &Client| client.list(dir).expect("listed").len();
        assert_eq!(names(&reader), 19);
        assert_eq!(reader.read_file(format!("{dir}/f7")), Ok(vec![7]));
        reader.remove(format!("{dir}/f7")).expect("removed");
        assert_eq!(names(&writer), 18);
    }
}

#[test]
fn open_files_outlive_a_server_with_several_plates() {
    let site = Site::with_plates(PLATES);
    let client = site.connected();
    let dirs = spread(&client);
    let open: Vec<(String, u64)> = dirs
        .keys()
        .map(|dir| {
            let path = format!("{dir}/open");
            client.create_file(&path, b"before").expect("made");
            let fh = client.open_path(&path, OpenFlags::READ_WRITE).expect("open");
            client.write(&client.caller(), fh, 0, b"BEFORE").expect("written");
            (path, fh)
        })
        .collect();
    site.kill();
    site.start();
    for (path, fh) in &open {
        client.write(&client.caller(), *fh, 6, b" and after").expect("written");
        client.fsync(*fh, false).expect("durable");
        client.release(*fh).expect("closed");
        assert_eq!(site.connected().read_file(path), Ok(b"BEFORE and after".to_vec()), "{path}");
    }
}

#[test]
fn plate_that_dies_keeps_nobody_from_the_others() {
    const ROUNDS: u8 = 3;
    const FILES: u8 = 40;
    let site = Site::with_plates(PLATES);
    let client = site.connected();
    let dirs = spread(&client);
    let on =
        |wanted: u16| dirs.iter().find(|(_, ino)| plate(**ino) == PlateId(wanted)).expect("some").0.clone();
    let (mortal, safe) = (on(1), on(2));
    for dir in [&mortal, &safe] {
        assert_eq!(client.list(dir).expect("listed").len(), 0);
    }
    let write = |dir: &str, round: u8, from: u8| {
        for n in from..from + FILES {
            client.create_file(format!("{dir}/{round}-{n}"), &[round, n]).expect("made");
        }
    };
    for round in 0..ROUNDS {
        write(&mortal, round, 0);
        site.kill_plate(PlateId(1));
        while !client.is_away() {
            thread::yield_now();
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| write(&mortal, round, FILES));
            write(&safe, round, 0);
            assert_eq!(client.read_file(format!("{safe}/{round}-7")), Ok(vec![round, 7]));
            assert!(!waits.is_finished(), "nobody carries these out");
            site.start_plate(PlateId(1));
        });
    }
    client.sync().expect("nothing that was acknowledged is lost");
    let reader = site.connected();
    for (dir, files) in [(&mortal, 2 * FILES), (&safe, FILES)] {
        let listed = reader.list(dir).expect("listed");
        assert_eq!(listed.len(), usize::from(ROUNDS) * usize::from(files), "{dir}");
        for round in 0..ROUNDS {
            for n in 0..files {
                assert_eq!(reader.read_file(format!("{dir}/{round}-{n}")), Ok(vec![round, n]));
            }
        }
    }
}
