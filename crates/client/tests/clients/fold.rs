//! Directories that lose their parts while they have names (S144).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chiton_client::ClientOptions;
use chiton_model::AttrChange;
use chiton_runtime::thread;
use chiton_types::{Attr, Mode, PlateId, Refusal};

use crate::site::{Site, names};

const PLATES: u16 = 3;

#[test]
fn a_directory_that_is_folded_keeps_all_that_is_in_it() {
    let site = Site::with_plates(PLATES);
    let (client, other) = (site.connected(), site.connected());
    let dir = client.mkdir_all("top/huge").expect("made").ino;
    let top = client.stat("top").expect("there").ino;
    for n in 0..60 {
        client.create_file(format!("top/huge/f{n}"), &[n]).expect("made");
    }
    client.split(&client.caller(), dir, |_| {}).expect("split");
    // Born in parts.
    for n in 60..120 {
        other.create_file(format!("top/huge/f{n}"), &[n]).expect("made");
    }
    for n in 0..9 {
        client.mkdir_all(format!("top/huge/d{n}/deep")).expect("made");
    }
    for n in [1u8, 70] {
        let ino = client.stat(format!("top/huge/f{n}")).expect("there").ino;
        client.link(&client.caller(), ino, top, format!("l{n}").as_bytes()).expect("linked");
    }
    let change = AttrChange { mode: Some(Mode(0o750)), ..AttrChange::default() };
    client.set_attr_path("top/huge", change).expect("changed");
    let (before, listed) = (other.stat("top/huge").expect("there"), names(&other, "top/huge"));
    let (page, _) = other.readdir(&other.caller(), dir, 0, 20, false).expect("listed");

    let mut left = Vec::new();
    client.fold(&client.caller(), dir, |parts| left.push(parts)).expect("folded");
    assert_eq!(left, [2, 1]);
    client.fold(&client.caller(), dir, |_| panic!("a step")).expect("once is enough");
    assert_eq!(client.parts(dir), Ok(Vec::new()));

    for client in [&client, &other, &site.connected()] {
        assert_eq!(names(client, "top/huge"), listed);
        let after = client.stat("top/huge").expect("there");
        assert_eq!(
            (after.ino, after.mode, after.nlink, after.size, after.mtime),
            (dir, before.mode, before.nlink, before.size, before.mtime)
        );
        assert!(!after.is_parted());
        for n in 0..120 {
            assert_eq!(client.read_file(format!("top/huge/f{n}")), Ok(vec![n]), "{n}");
        }
        for n in 0..9 {
            assert!(client.stat(format!("top/huge/d{n}/deep/../../f7")).is_ok(), "{n}");
        }
        assert_eq!(client.stat("top/huge/none").map(drop), Err(Refusal::NotFound));
    }
    let mut seen: BTreeSet<String> = page.iter().map(|entry| entry.name.to_string()).collect();
    let mut cookie = page.last().expect("names").cookie;
    loop {
        let (page, end) = other.readdir(&other.caller(), dir, cookie, 20, false).expect("listed");
        for entry in page {
            cookie = entry.cookie;
            assert!(seen.insert(entry.name.to_string()), "each name once");
        }
        if end {
            break;
        }
    }
    assert_eq!(seen, listed, "a listing goes on over the fold");

    // It is a directory like any other: split again, folded again, emptied, removed.
    other.split(&other.caller(), dir, |_| {}).expect("split again");
    assert_eq!(names(&client, "top/huge"), listed);
    other.fold(&other.caller(), dir, |_| {}).expect("folded again");
    client.rename_path("top/huge/d3", "top/huge/e3").expect("renamed");
    other.remove("top/huge/f1").expect("removed");
    assert_eq!(other.stat("top/l1").expect("it has another name").nlink, 1);
    for n in (0..120).filter(|n| *n != 1) {
        other.remove(format!("top/huge/f{n}")).expect("removed");
    }
    for name in (0..9).map(|n| if n == 3 { "e3".to_owned() } else { format!("d{n}") }) {
        let refused = other.rename_path("top/huge", format!("top/huge/{name}/deep/huge"));
        assert_eq!(refused, Err(Refusal::Invalid), "{name}");
        client.remove(format!("top/huge/{name}/deep")).expect("removed");
        client.remove(format!("top/huge/{name}")).expect("removed");
    }
    client.remove("top/huge").expect("it is empty");
    assert_eq!(names(&site.connected(), "top").len(), 2);
}

#[test]
fn it_is_folded_and_split_while_clients_use_it_and_plates_die() {
    let site = Site::with_plates(PLATES);
    let client = site.connected();
    let dir = client.mkdir_all("huge").expect("made").ino;
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let client = site.connected_with(ClientOptions::default());
            thread::spawn("writer", move || {
                for n in 0..200 {
                    let name = format!("huge/w{writer}-{n}");
                    client.create_file(&name, &[writer]).expect("made");
                    assert_eq!(client.stat(&name).map(drop), Ok(()), "{name}");
                    if n % 4 == 3 {
                        client.remove(format!("huge/w{writer}-{}", n - 1)).expect("removed");
                    }
                    if n % 4 == 1 {
                        client.rename_path(&name, format!("huge/r{writer}-{n}")).expect("renamed");
                    }
                }
                client.sync().expect("durable");
            })
            .expect("a thread")
        })
        .collect();
    let folder = {
        let (client, is_over) = (site.connected(), is_over.clone());
        thread::spawn("folder", move || {
            while !is_over.load(Ordering::Relaxed) {
                client.split(&client.caller(), dir, |_| {}).expect("split");
                client.fold(&client.caller(), dir, |_| {}).expect("folded");
            }
        })
        .expect("a thread")
    };
    let reader = {
        let (client, is_over) = (site.connected(), is_over.clone());
        thread::spawn("reader", move || {
            let mut before = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                let now = names(&client, "huge");
                let lost = |name: &&String| name.starts_with('r') && !now.contains(*name);
                assert_eq!(before.iter().find(lost), None, "it was seen, and stays");
                before = now;
            }
        })
        .expect("a thread")
    };
    for round in 0..4 {
        site.kill_plate(PlateId(round % PLATES));
        site.start_plate(PlateId(round % PLATES));
    }
    for writer in writers {
        writer.join().expect("it has made all");
    }
    is_over.store(true, Ordering::Relaxed);
    reader.join().expect("it has seen each name once");
    folder.join().expect("it has split and folded");
    let fresh = site.connected();
    let listed = names(&fresh, "huge");
    assert_eq!(listed.len(), 600);
    let attr = fresh.stat("huge").expect("there");
    assert_eq!((attr.size, attr.flags & (Attr::HAS_PARTS | Attr::PART)), (600 * 32, 0));
    for name in listed {
        assert!(fresh.stat(format!("huge/{name}")).is_ok(), "{name}");
    }
}

#[test]
fn what_cannot_be_folded_keeps_its_parts() {
    let one = Site::new();
    let client = one.connected();
    let dir = client.mkdir_all("d").expect("made").ino;
    assert_eq!(client.fold(&client.caller(), dir, |_| {}), Err(Refusal::Unsupported));

    let site = Site::with_plates(2);
    let client = site.connected();
    let file = client.create_file("f", b"x").expect("made").ino;
    assert_eq!(client.fold(&client.caller(), file, |_| {}), Err(Refusal::NotDir));
    let dir = client.mkdir_all("d").expect("made").ino;
    let parts = client.split(&client.caller(), dir, |_| {}).expect("split");
    let stranger = site.connected().acting_as(4711, 4711, &[]);
    assert_eq!(stranger.fold(&stranger.caller(), dir, |_| {}), Err(Refusal::NotPermitted));
    // More than a step brings home: half of them are in the part.
    let all: Vec<String> = (0..40_000).map(|n| format!("f{n}")).collect();
    assert!(client.create_in(&client.caller(), dir, &all, Mode(0o644)).iter().all(Result::is_ok));
    assert_eq!(client.fold(&client.caller(), dir, |_| {}), Err(Refusal::ArgTooBig));
    assert_eq!(client.parts(dir), Ok(parts));
    let gone = client.unlink_in(&client.caller(), dir, &all[..20_000]);
    assert!(gone.iter().all(Result::is_ok));
    client.fold(&client.caller(), dir, |_| {}).expect("folded");
    assert_eq!(names(&client, "d").len(), 20_000);
}
