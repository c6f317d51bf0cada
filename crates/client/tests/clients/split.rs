//! Directories that get parts while they have names (S144): by request, or by `huge: threshold` and `huge: auto`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_model::{AttrChange, RenameHow, XattrHow};
use chiton_runtime::thread;
use chiton_types::{Attr, Mode, PlateId, Refusal};

use crate::site::{Site, names};

const PLATES: u16 = 3;

fn set_policy(client: &Client, dir: &str, text: &str) {
    let ino = client.mkdir_all(dir).expect("made").ino;
    client
        .setxattr(&client.caller(), ino, b"chiton.policy", text.as_bytes(), XattrHow::Set)
        .expect("the policy is set");
}

/// Gives a file a name in `top`.
fn link(client: &Client, path: &str, name: &[u8]) {
    let ino = client.stat(path).expect("there").ino;
    let top = client.stat("top").expect("there").ino;
    client.link(&client.caller(), ino, top, name).expect("linked");
}

fn has_parts(client: &Client, dir: &str) -> bool {
    client.stat(dir).expect("there").flags & Attr::HAS_PARTS != 0
}

/// Waits until the server has split a directory.
fn await_parts(client: &Client, dir: &str) {
    for _ in 0..1_000 {
        if has_parts(client, dir) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{dir} has no parts");
}

#[test]
fn a_directory_that_is_split_keeps_all_that_is_in_it() {
    let site = Site::with_plates(PLATES);
    let (client, other) = (site.connected(), site.connected());
    let dir = client.mkdir_all("top/huge").expect("made").ino;
    for n in 0..120 {
        client.create_file(format!("top/huge/f{n}"), &[n]).expect("made");
    }
    for n in 0..9 {
        client.mkdir_all(format!("top/huge/d{n}/deep")).expect("made");
    }
    link(&client, "top/huge/f1", b"l1");
    let change = AttrChange { mode: Some(Mode(0o750)), ..AttrChange::default() };
    client.set_attr_path("top/huge", change).expect("changed");
    let (before, listed) = (other.stat("top/huge").expect("there"), names(&other, "top/huge"));
    // Others have listed a part of it.
    let (page, _) = other.readdir(&other.caller(), dir, 0, 20, false).expect("listed");

    let mut steps = Vec::new();
    let parts = client.split(&client.caller(), dir, |parts| steps.push(parts)).expect("split");
    assert_eq!((parts.len(), steps), (usize::from(PLATES), vec![usize::from(PLATES)]));
    assert_eq!(client.split(&client.caller(), dir, |_| panic!("a step")), Ok(parts), "once is enough");

    for client in [&client, &other, &site.connected()] {
        assert_eq!(names(client, "top/huge"), listed);
        let after = client.stat("top/huge").expect("there");
        assert_eq!(
            (after.ino, after.mode, after.nlink, after.size, after.mtime),
            (dir, before.mode, before.nlink, before.size, before.mtime)
        );
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
    assert_eq!(seen, listed, "a listing goes on over the split");

    // Entries that moved are removed, renamed and linked as before.
    client.rename_path("top/huge/d3", "top/huge/e3").expect("renamed");
    client.rename_path("top/huge/f2", "top/f2").expect("moved out");
    link(&client, "top/huge/f3", b"l3");
    other.remove("top/huge/f1").expect("removed");
    assert_eq!(other.stat("top/l1").expect("it has another name").nlink, 1);
    for n in (0..120).filter(|n| !matches!(n, 1 | 2)) {
        other.remove(format!("top/huge/f{n}")).expect("removed");
    }
    for name in (0..9).map(|n| if n == 3 { "e3".to_owned() } else { format!("d{n}") }) {
        let refused = other.rename_path("top/huge", format!("top/huge/{name}/deep/huge"));
        assert_eq!(refused, Err(Refusal::Invalid), "{name}");
        client.remove(format!("top/huge/{name}/deep")).expect("removed");
        client.remove(format!("top/huge/{name}")).expect("removed");
    }
    client.remove("top/huge").expect("it is empty");
    assert_eq!(names(&site.connected(), "top").len(), 3);
}

#[test]
fn it_is_split_at_a_threshold_while_clients_use_it() {
    let site = Site::with_plates(PLATES);
    let client = site.connected();
    set_policy(&client, "top", "huge: threshold\nhuge_threshold: 40");
    client.mkdir_all("top/huge").expect("made");
    client.mkdir_all("top/small").expect("made");
    for n in 0..39 {
        client.create_file(format!("top/small/f{n}"), b"").expect("made");
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let client = site.connected_with(ClientOptions::default());
            thread::spawn("writer", move || {
                for n in 0..100 {
                    let name = format!("top/huge/w{writer}-{n}");
                    client.create_file(&name, &[writer]).expect("made");
                    assert!(client.stat(&name).is_ok(), "{name}");
                    if n % 4 == 3 {
                        client.remove(format!("top/huge/w{writer}-{}", n - 1)).expect("removed");
                    }
                    if n % 4 == 1 {
                        client.rename_path(&name, format!("top/huge/r{writer}-{n}")).expect("renamed");
                    }
                }
                client.sync().expect("durable");
            })
            .expect("a thread")
        })
        .collect();
    let reader = {
        let (client, is_over) = (site.connected(), is_over.clone());
        thread::spawn("reader", move || {
            let mut before = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                let now = names(&client, "top/huge");
                let lost = |name: &&String| name.starts_with('r') && !now.contains(*name);
                assert_eq!(before.iter().find(lost), None, "it was seen, and stays");
                before = now;
            }
        })
        .expect("a thread")
    };
    await_parts(&client, "top/huge");
    for round in 0..3 {
        site.kill_plate(PlateId(round % PLATES));
        site.start_plate(PlateId(round % PLATES));
    }
    for writer in writers {
        writer.join().expect("it has made all");
    }
    is_over.store(true, Ordering::Relaxed);
    reader.join().expect("it has seen each name once");
    let fresh = site.connected();
    let listed = names(&fresh, "top/huge");
    assert_eq!(listed.len(), 300);
    assert_eq!(fresh.stat("top/huge").expect("there").size, 300 * 32);
    for name in listed {
        assert!(fresh.stat(format!("top/huge/{name}")).is_ok(), "{name}");
    }
    assert!(!has_parts(&fresh, "top/small"));
}

#[test]
fn one_client_alone_keeps_its_directory_whole() {
    let site = Site::with_plates(PLATES);
    let client = site.connected();
    set_policy(&client, "top", "huge: auto\nhuge_threshold: 64");
    client.mkdir_all("top/own").expect("made");
    client.mkdir_all("top/shared").expect("made");
    let other = site.connected();
    for n in 0..640 {
        client.create_file(format!("top/own/f{n}"), b"").expect("made");
        let writer = if n % 64 < 40 { &client } else { &other };
        writer.create_file(format!("top/shared/f{n}"), b"").expect("made");
    }
    client.sync().expect("durable");
    // The server looks at every 64th name.
    for n in 0..192 {
        let writer = if n < 100 { &other } else { &client };
        writer.create_file(format!("top/shared/g{n}"), b"").expect("made");
    }
    await_parts(&client, "top/shared");
    assert!(!has_parts(&other, "top/own"));
}

#[test]
fn batches_follow_the_names() {
    let site = Site::with_plates(PLATES);
    let (client, other) = (site.connected(), site.connected());
    let dir = client.mkdir_all("huge").expect("made").ino;
    let batch = |from: usize| (from..from + 200).map(|n| format!("f{n}")).collect::<Vec<_>>();
    assert!(client.create_in(&client.caller(), dir, &batch(0), Mode(0o644)).iter().all(Result::is_ok));
    other.split(&other.caller(), dir, |_| {}).expect("split");
    // The client knows that the directory has no parts.
    let made = client.create_in(&client.caller(), dir, &batch(100), Mode(0o644));
    let is_first = |n: usize| n < 100;
    for (n, result) in made.iter().enumerate() {
        assert_eq!(result.is_ok(), !is_first(n), "{n}: {result:?}");
    }
    let gone = client.unlink_in(&client.caller(), dir, &batch(50));
    assert!(gone.iter().all(Result::is_ok));
    assert_eq!(names(&other, "huge").len(), 100);
}

/// It has made files there that the server does not know yet, and makes more at once.
#[test]
fn a_client_splits_the_directory_in_which_it_works() {
    let site = Site::with_plates(PLATES);
    let client = site.connected();
    for round in 0..5 {
        let dir = client.mkdir_all(format!("work{round}")).expect("made").ino;
        for n in 0..200 {
            client.create_file(format!("work{round}/f{n}"), b"").expect("made");
            if n == 60 {
                client.split(&client.caller(), dir, |_| {}).expect("split");
            }
        }
    }
    client.sync().expect("all that was made is there");
    let other = site.connected();
    assert!((0..5).all(|round| names(&other, &format!("work{round}")).len() == 200));
}

#[test]
fn what_cannot_be_split_stays_whole() {
    let one = Site::new();
    let client = one.connected();
    let dir = client.mkdir_all("d").expect("made").ino;
    assert_eq!(client.split(&client.caller(), dir, |_| {}), Err(Refusal::Unsupported));

    let site = Site::with_plates(PLATES);
    let client = site.connected();
    set_policy(&client, "near", "placement: near");
    let near = client.mkdir_all("near/d").expect("made").ino;
    assert_eq!(client.split(&client.caller(), near, |_| {}), Err(Refusal::CrossDevice));
    let file = client.create_file("f", b"x").expect("made").ino;
    assert_eq!(client.split(&client.caller(), file, |_| {}), Err(Refusal::NotDir));
    let dir = client.mkdir_all("d").expect("made").ino;
    let stranger = site.connected().acting_as(4711, 4711, &[]);
    assert_eq!(stranger.split(&stranger.caller(), dir, |_| {}), Err(Refusal::NotPermitted));
    client.remove("d").expect("removed");
    assert_eq!(client.split(&client.caller(), dir, |_| {}), Err(Refusal::Stale));
}

/// Programs name a directory that they have open: the client may not know that it has parts by now.
#[test]
fn a_client_that_has_not_looked_changes_names_in_parts() {
    let site = Site::with_plates(PLATES);
    let (client, late) = (site.connected(), site.connected());
    let (huge, plain) =
        (client.mkdir_all("huge").expect("made").ino, client.mkdir_all("plain").expect("made").ino);
    for n in 0..40 {
        client.create_file(format!("huge/f{n}"), &[n]).expect("made");
    }
    client.split(&client.caller(), huge, |_| {}).expect("split");
    let name = |n: u8| format!("f{n}").into_bytes();
    for n in 0..20 {
        let fresh = site.connected();
        fresh
            .rename(&fresh.caller(), huge, &name(n), plain, &name(n), RenameHow::Replace)
            .unwrap_or_else(|refusal| panic!("out {n}: {refusal}"));
        let fresh = site.connected();
        fresh
            .rename(&fresh.caller(), plain, &name(n), huge, &name(n + 40), RenameHow::Replace)
            .unwrap_or_else(|refusal| panic!("in {n}: {refusal}"));
        assert_eq!(client.read_file(format!("huge/f{}", n + 40)), Ok(vec![n]));
    }
    assert_eq!(names(&late, "huge").len(), 40);
}

#[test]
fn files_without_names_are_made_in_parts() {
    let site = Site::with_plates(PLATES);
    let client = site.connected();
    let huge = client.mkdir_all("huge").expect("made").ino;
    client.split(&client.caller(), huge, |_| {}).expect("split");
    let mut linked = 0;
    for n in 0..20 {
        let name = format!("f{n}");
        let made = client.create_unnamed(&client.caller(), huge, Mode(0o600), OpenFlags::READ_WRITE);
        let (entry, fh) = made.expect("made");
        match client.link_unnamed(&client.caller(), entry.attr.ino, huge, name.as_bytes()) {
            Ok(_) => linked += 1,
            // Another plate has the name.
            Err(refusal) => assert_eq!(refusal, Refusal::CrossDevice, "{n}"),
        }
        client.release(fh).expect("closed");
    }
    assert!((1..20).contains(&linked), "{linked} of 20");
    assert_eq!(names(&site.connected(), "huge").len(), linked);
}

/// Linux asks for the right to write to a directory only if it gets another parent.
#[test]
fn directories_are_renamed_between_parts_as_within_one_directory() {
    let site = Site::with_plates(PLATES);
    let client = site.connected();
    let all = AttrChange { mode: Some(Mode(0o777)), ..AttrChange::default() };
    for dir in ["huge", "other"] {
        client.mkdir_all(dir).expect("made");
        client.set_attr_path(dir, all).expect("changed");
    }
    for n in 0..12 {
        client.mkdir_all(format!("huge/d{n}")).expect("made");
    }
    client.split(&client.caller(), client.stat("huge").expect("there").ino, |_| {}).expect("split");
    let stranger = client.acting_as(4711, 4711, &[]);
    for n in 0..12 {
        assert_eq!(stranger.rename_path(format!("huge/d{n}"), format!("huge/e{n}")), Ok(()), "{n}");
        let out = stranger.rename_path(format!("huge/e{n}"), format!("other/e{n}"));
        assert_eq!(out, Err(Refusal::Access), "{n}");
    }
}
