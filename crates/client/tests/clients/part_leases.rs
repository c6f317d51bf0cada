//! How clients cache directories with parts (S144): names, under a lease on the part that has them.

use std::time::Duration;

use chiton_client::{Caller, Client, Groups, Lookup};
use chiton_model::AttrChange;
use chiton_runtime::thread;
use chiton_types::{Ino, Mode, Refusal};

use crate::site::Site;

const PLATES: u16 = 3;
const FILES: usize = 60;

/// A directory that is split, with files, and two clients.
fn split_directory() -> (Site, Client, Client, Ino) {
    let site = Site::with_plates(PLATES);
    let (client, other) = (site.connected(), site.connected());
    let dir = client.mkdir_all("top/huge").expect("made").ino;
    for n in 0..FILES {
        client.create_file(format!("top/huge/f{n}"), b"").expect("made");
    }
    client.split(&client.caller(), dir, |_| {}).expect("split");
    (site, client, other, dir)
}

fn look(client: &Client, dir: Ino, name: &str) -> Option<Ino> {
    match client.lookup(&client.caller(), dir, name.as_bytes()).expect("answered") {
        Lookup::Found { attr, .. } => Some(attr.ino),
        Lookup::Absent { .. } => None,
    }
}

/// Looks every file up, and as many names that there are not: the numbers of those found, and the messages that it took.
fn look_at_all(client: &Client, dir: Ino) -> (Vec<Option<Ino>>, u64) {
    let before = client.messages();
    let names = (0..FILES).map(|n| format!("f{n}")).chain((0..FILES).map(|n| format!("none{n}")));
    let found = names.map(|name| look(client, dir, &name)).collect();
    (found, client.messages() - before)
}

/// Waits until looking takes no message: for a moment after it was recalled, nobody is given a lease.
fn await_leases(mut messages: impl FnMut() -> u64) {
    for _ in 0..200 {
        if messages() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("each look takes messages");
}

#[test]
fn names_in_parts_are_kept_until_others_change_them() {
    let (_site, client, other, dir) = split_directory();
    let (first, _) = look_at_all(&other, dir);
    assert!(first[..FILES].iter().all(Option::is_some) && first[FILES..].iter().all(Option::is_none));
    await_leases(|| look_at_all(&other, dir).1);
    assert_eq!(look_at_all(&other, dir), (first.clone(), 0), "no question");
    match other.lookup(&other.caller(), dir, b"f7").expect("answered") {
        Lookup::Found { ttl, .. } => assert!(ttl > Duration::ZERO, "kernels may keep it, too"),
        Lookup::Absent { .. } => panic!("f7 is there"),
    }

    client.remove("top/huge/f1").expect("removed");
    client.rename_path("top/huge/f2", "top/huge/none2").expect("renamed");
    let made = client.create_file("top/huge/none3", b"").expect("made").ino;
    let mut now = first;
    (now[1], now[FILES + 2], now[FILES + 3]) = (None, now[2].take(), Some(made));
    assert_eq!(look_at_all(&other, dir).0, now);
    // The client keeps the names that it changes.
    other.remove("top/huge/f5").expect("removed");
    now[5] = None;
    assert_eq!(look_at_all(&other, dir).0, now);
    assert_eq!(look_at_all(&client, dir).0, now);
}

#[test]
fn a_listing_makes_names_known() {
    let (_site, _client, other, dir) = split_directory();
    await_leases(|| {
        let mut cookie = 0;
        loop {
            let (page, end) = other.readdir(&other.caller(), dir, cookie, 16, true).expect("listed");
            assert!(page.iter().all(|listed| listed.entry.is_some()), "with attributes");
            cookie = page.last().map_or(cookie, |listed| listed.cookie);
            if end {
                break;
            }
        }
        let before = other.messages();
        assert!((0..FILES).all(|n| look(&other, dir, &format!("f{n}")).is_some()));
        other.messages() - before
    });
}

#[test]
fn what_is_known_ends_with_a_split_and_a_fold() {
    let site = Site::with_plates(PLATES);
    let (client, other) = (site.connected(), site.connected());
    let dir = client.mkdir_all("top/huge").expect("made").ino;
    for n in 0..FILES {
        client.create_file(format!("top/huge/f{n}"), b"").expect("made");
    }
    for round in 0..3 {
        // Both know everything, in turn of the whole directory and of its parts.
        look_at_all(&client, dir);
        look_at_all(&other, dir);
        match round % 2 {
            0 => drop(client.split(&client.caller(), dir, |_| {}).expect("split")),
            _ => client.fold(&client.caller(), dir, |_| {}).expect("folded"),
        }
        for (at, changes, looks) in [(0, &client, &other), (1, &other, &client)] {
            for n in (at..FILES).step_by(2) {
                let (from, to) = match round % 2 {
                    0 => (format!("f{n}"), format!("none{n}")),
                    _ => (format!("none{n}"), format!("f{n}")),
                };
                changes.rename_path(format!("top/huge/{from}"), format!("top/huge/{to}")).expect("renamed");
                assert_eq!(look(looks, dir, &from), None, "round {round}: {from}");
                assert!(look(looks, dir, &to).is_some(), "round {round}: {to}");
            }
        }
    }
}

#[test]
fn search_rights_that_end_do_so_in_all_parts() {
    let (_site, client, other, dir) = split_directory();
    let stranger = Caller { uid: 77, gid: 77, groups: Groups::Known(&[].as_slice().into()) };
    let look_as_stranger = |n: usize| other.lookup(&stranger, dir, format!("f{n}").as_bytes()).map(drop);
    assert!((0..FILES).all(|n| look_as_stranger(n).is_ok()));
    let change = AttrChange { mode: Some(Mode(0o700)), ..AttrChange::default() };
    client.set_attr_path("top/huge", change).expect("changed");
    assert!((0..FILES).all(|n| look_as_stranger(n) == Err(Refusal::Access)));
}
