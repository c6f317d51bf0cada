//! Directories with parts on several plates (`huge: always`, S144): for a client they are directories.

use std::collections::BTreeSet;
use std::time::Duration;

use chiton_client::{Client, ClientOptions, Lookup, OpenFlags};
use chiton_model::{AttrChange, RenameHow, XattrHow};
use chiton_runtime::thread;
use chiton_types::{Attr, Cred, Ino, Mode, PlateId, Plates, Refusal, SHARDS_DEFAULT};

use crate::site::Site;

const PLATES: u16 = 3;
const FILES: usize = 200;

fn plate(ino: Ino) -> PlateId {
    Plates::new(SHARDS_DEFAULT, PLATES).expect("plates").of(ino).expect("a shard")
}

/// A subtree whose directories have parts, and one of them.
fn site_with_parts() -> (Site, Client) {
    let site = Site::with_plates(PLATES);
    let client = site.connected();
    let top = client.mkdir_all("top").expect("made").ino;
    client
        .setxattr(&client.caller(), top, b"chiton.policy", b"huge: always", XattrHow::Set)
        .expect("the policy is set");
    client.mkdir_all("top/huge").expect("made");
    (site, client)
}

fn names(client: &Client, dir: &str) -> Vec<String> {
    let listed = client.list(dir).expect("listed");
    let mut names: Vec<String> = listed.iter().map(|entry| entry.name.to_string()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "each name once");
    names
}

fn file(n: usize) -> String {
    format!("top/huge/f{n:03}")
}

fn fill(client: &Client) -> BTreeSet<PlateId> {
    (0..FILES).map(|n| plate(client.create_file(file(n), &[n as u8]).expect("made").ino)).collect()
}

#[test]
fn names_are_spread_over_all_plates() {
    let (site, client) = site_with_parts();
    assert!(client.stat("top/huge").expect("there").flags & Attr::HAS_PARTS != 0);
    let plates = fill(&client);
    assert_eq!(plates.len(), usize::from(PLATES), "files are born where their names are");
    let other = site.connected();
    for client in [&client, &other] {
        assert_eq!(names(client, "top/huge").len(), FILES);
        assert_eq!(client.stat("top/huge").expect("there").size, FILES as u64 * 32);
        for n in 0..FILES {
            assert_eq!(client.read_file(file(n)), Ok(vec![n as u8]), "{n}");
        }
        assert_eq!(client.stat("top/huge/none").map(drop), Err(Refusal::NotFound));
    }
    // By number, without any path: as a mount asks.
    let dir = other.stat("top/huge").expect("there").ino;
    let fresh = site.connected();
    assert!(matches!(fresh.lookup(&fresh.caller(), dir, b"f007"), Ok(Lookup::Found { .. })));
    let batch: Vec<String> = (0..FILES).map(|n| format!("f{n:03}")).collect();
    assert!(fresh.stat_in(&fresh.caller(), dir, &batch).iter().all(Result::is_ok));
    assert!(fresh.unlink_in(&fresh.caller(), dir, &batch).iter().all(Result::is_ok));
    assert_eq!(names(&client, "top/huge"), Vec::<String>::new());
    let made = fresh.create_in(&fresh.caller(), dir, &batch, Mode(0o644));
    assert!(made.iter().all(Result::is_ok));
    assert_eq!(names(&client, "top/huge").len(), FILES);
    // Page by page, and from a cookie on.
    let (mut cookie, mut seen) = (0, BTreeSet::new());
    loop {
        let (page, end) = fresh.readdir(&fresh.caller(), dir, cookie, 7, false).expect("listed");
        for entry in page {
            assert!(entry.cookie > cookie, "in order");
            cookie = entry.cookie;
            assert!(seen.insert(entry.name.to_string()), "each name once");
        }
        if end {
            break;
        }
    }
    assert_eq!(seen.len(), FILES);
    site.kill();
    site.start();
    assert_eq!(names(&site.connected(), "top/huge").len(), FILES);
}

#[test]
fn directories_in_it_know_their_way_up() {
    let (site, client) = site_with_parts();
    let before = client.stat("top/huge").expect("there");
    for n in 0..12 {
        client.mkdir_all(format!("top/huge/d{n}/deep")).expect("made");
        client.create_file(format!("top/huge/d{n}/deep/file"), b"x").expect("made");
    }
    let fresh = site.connected();
    let huge = fresh.stat("top/huge").expect("there");
    assert_eq!(huge.nlink, before.nlink + 12);
    for n in 0..12 {
        let dir = fresh.stat(format!("top/huge/d{n}")).expect("there");
        let up = fresh.lookup(&fresh.caller(), dir.ino, b"..").expect("found");
        let Lookup::Found { attr, .. } = up else { panic!("there is one") };
        assert_eq!(attr.ino, huge.ino);
        let other = (n + 1) % 12;
        assert!(fresh.stat(format!("top/huge/d{n}/../d{other}/deep/../../../huge/d{n}/deep/file")).is_ok());
        fresh.remove(format!("top/huge/d{n}")).expect_err("not empty");
    }
    // A file replaces no directory, whichever plates have the two.
    client.create_file("top/huge/file", b"x").expect("made");
    for n in 0..12 {
        let refused = fresh.rename_path("top/huge/file", format!("top/huge/d{n}"));
        assert_eq!(refused, Err(Refusal::IsDir), "{n}");
        let refused = fresh.rename_path(format!("top/huge/d{n}/deep/file"), format!("top/huge/d{n}"));
        assert_eq!(refused, Err(Refusal::NotEmpty), "{n}");
    }
    client.remove("top/huge/file").expect("removed");
    // A directory is not moved below itself, however the way up leads.
    let refused = fresh.rename_path("top/huge", "top/huge/d3/deep/huge");
    assert_eq!(refused, Err(Refusal::Invalid));
    fresh.rename_path("top/huge", "top/moved").expect("moved as a whole");
    assert_eq!(names(&client, "top/moved").len(), 12);
    client.rename_path("top/moved/d1", "top/moved/e1").expect("renamed in it");
    client.rename_path("top/moved/e1/deep/file", "top/moved/file").expect("moved in it");
    client.rename_path("top/moved/file", "top/outside").expect("moved out");
    assert_eq!(fresh.read_file("top/outside"), Ok(b"x".to_vec()));
    assert_eq!(names(&fresh, "top/moved").len(), 12);
}

#[test]
fn attributes_hold_in_every_part() {
    let (site, client) = site_with_parts();
    fill(&client);
    let huge = client.stat("top/huge").expect("there").ino;
    let change = AttrChange { mode: Some(Mode(0o700)), ..AttrChange::default() };
    client.set_attr_path("top/huge", change).expect("changed");
    assert_eq!(client.stat("top/huge").expect("there").mode, Mode(0o700));
    let stranger = Cred { uid: 4711, gid: 4711, ..Cred::ROOT.clone() };
    let stranger = site.connected().acting_as(stranger.uid, stranger.gid, &[]);
    for n in 0..20 {
        assert_eq!(stranger.stat(file(n)).map(drop), Err(Refusal::Access), "{n}");
        assert_eq!(stranger.create_file(format!("top/huge/new{n}"), b"").map(drop), Err(Refusal::Access));
    }
    let change = AttrChange { mode: Some(Mode(0o777)), ..AttrChange::default() };
    client.setattr(&client.caller(), huge, change, None).expect("changed");
    for n in 0..20 {
        assert!(stranger.stat(file(n)).is_ok());
        stranger.create_file(format!("top/huge/new{n}"), b"").expect("made");
    }
    assert_eq!(names(&client, "top/huge").len(), FILES + 20);
}

#[test]
fn removal_asks_every_part() {
    let (site, client) = site_with_parts();
    let (caller, top) = (client.caller(), client.stat("top").expect("there").ino);
    let inodes = client.statfs().expect("counted").inodes_used;
    for n in 0..24 {
        client.create_file(file(n), b"x").expect("made");
        assert_eq!(client.rmdir(&caller, top, b"huge"), Err(Refusal::NotEmpty), "{n}");
        client.mkdir_all("top/other").expect("made");
        let refused = client.rename(&caller, top, b"other", top, b"huge", RenameHow::Replace);
        assert_eq!(refused, Err(Refusal::NotEmpty), "{n}");
        client.remove(file(n)).expect("removed");
    }
    client.rename(&caller, top, b"other", top, b"huge", RenameHow::Replace).expect("over an empty one");
    assert_eq!(names(&site.connected(), "top"), ["huge"]);
    client.create_file(file(1), b"x").expect("made");
    client.remove(file(1)).expect("removed");
    let huge = client.stat("top/huge").expect("there").ino;
    let fh = client.open(&caller, huge, OpenFlags::READ).expect("open");
    client.rmdir(&caller, top, b"huge").expect("removed");
    let listed = client.readdir(&caller, huge, 0, 100, false).expect("as long as it is open");
    assert_eq!((listed.0.len(), listed.1), (0, true));
    client.release(fh).expect("closed");
    assert_eq!(names(&site.connected(), "top"), Vec::<String>::new());
    client.sync().expect("durable");
    // The other plates carry it out once it is durable.
    let expected = inodes - u64::from(PLATES);
    for _ in 0..1_000 {
        if client.statfs().expect("counted").inodes_used == expected {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.statfs().expect("counted").inodes_used, expected, "all its parts are gone");
}

#[test]
fn many_clients_create_in_one_while_a_plate_dies() {
    let (site, client) = site_with_parts();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let client = site.connected_with(ClientOptions::default());
            thread::spawn("writer", move || {
                for n in 0..60 {
                    client.create_file(format!("top/huge/w{writer}-{n}"), &[writer]).expect("made");
                }
                client.sync().expect("durable");
            })
            .expect("a thread")
        })
        .collect();
    for round in 0..3 {
        site.kill_plate(PlateId(round % PLATES));
        site.start_plate(PlateId(round % PLATES));
    }
    for writer in writers {
        writer.join().expect("it has made all");
    }
    assert_eq!(names(&client, "top/huge").len(), 240);
}

#[test]
fn a_policy_in_it_knows_its_path() {
    let (site, client) = site_with_parts();
    for n in 0..8 {
        let dir = client.mkdir_all(format!("top/huge/d{n}")).expect("made").ino;
        client
            .setxattr(&client.caller(), dir, b"chiton.policy", b"data: lazy", XattrHow::Set)
            .unwrap_or_else(|refusal| panic!("{n}: {refusal}"));
    }
    let fresh = site.connected();
    for n in 0..8 {
        let dir = fresh.stat(format!("top/huge/d{n}")).expect("there").ino;
        let text = fresh.getxattr(&fresh.caller(), dir, b"chiton.policy").expect("there");
        assert!(text.starts_with(b"data: lazy"), "{n}: {}", String::from_utf8_lossy(&text));
    }
}
