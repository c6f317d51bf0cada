//! "An exclusive lease on a directory lets it create there without waiting, in batches, under strong consistency, until
//! someone else comes": what write-behind makes is there for every client that looks, in order, once, whatever happens to the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_model::{AttrChange, SetTime};
use chiton_types::{Attr, Ino, Kind, Mode, Refusal, Time};

use crate::site::Site;

const FILES: usize = 400;

/// How often the server has done something of this kind.
fn count(client: &Client, kind: &str) -> u64 {
    let status = client.admin("status").expect("status");
    let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
    status["operations"][kind].as_u64().unwrap_or(0)
}

fn make(client: &Client, dir: &str, names: std::ops::Range<usize>) -> BTreeMap<String, Ino> {
    let each = names.map(|n| format!("{dir}/f{n}"));
    each.map(|path| {
        let attr = client.create_file(&path, path.as_bytes()).expect("made");
        (path, attr.ino)
    })
    .collect()
}

fn check(client: &Client, acknowledged: &BTreeMap<String, Ino>) {
    for (path, ino) in acknowledged {
        assert_eq!(client.stat(path).map(|attr| attr.ino), Ok(*ino), "{path}");
        assert_eq!(client.read_file(path), Ok(path.clone().into_bytes()), "{path}");
    }
}

#[test]
fn files_of_one_directory_are_made_in_batches_and_there_for_whoever_looks() {
    let site = Site::new();
    let (client, other) = (site.connected(), site.connected());
    client.mkdir_all("/dir").expect("made");
    let acknowledged = make(&client, "/dir", 0..FILES);
    // The other looks at once: the names, their number, their content.
    assert_eq!(other.list("/dir").expect("listed").len(), FILES);
    assert_eq!(other.stat("/dir").expect("there").size, 32 * FILES as u64);
    check(&other, &acknowledged);
    check(&client, &acknowledged);
    assert_eq!(count(&other, "make_file"), FILES as u64, "each once");
    let messages = count(&other, "write_behind");
    assert!(messages > 0 && count(&other, "lease_names") > 0, "the lease was used");
    assert_eq!(client.create_file("/dir/f7", b"").map(drop), Err(Refusal::Exists));
    assert_eq!(other.create_file("/dir/f7", b"").map(drop), Err(Refusal::Exists));
}

/// As a mount does it: made, written, closed.
fn write(client: &Client, dir: Ino, name: &str, content: &[u8]) -> Ino {
    let caller = client.caller();
    let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
    let (entry, fh) = client.create(&caller, dir, name.as_bytes(), Mode(0o640), flags).expect("made");
    client.write(&caller, fh, 0, content).expect("written");
    client.release(fh).expect("closed");
    entry.attr.ino
}

#[test]
fn what_was_written_and_closed_is_there_for_whoever_looks() {
    let site = Site::new();
    let (client, other) = (site.connected(), site.connected());
    // In a directory each, since who was disturbed asks for a while.
    for n in 0..40 {
        let path = format!("/dir{n}");
        let dir = client.mkdir_all(&path).expect("made").ino;
        let names: Vec<String> = (0..8).map(|n| format!("f{n}")).collect();
        let inos: Vec<Ino> = names.iter().map(|name| write(&client, dir, name, name.as_bytes())).collect();
        let caller = client.caller();
        let fh = client.open(&caller, inos[7], OpenFlags::READ_WRITE).expect("opened");
        client.write(&caller, fh, 2, b" and more").expect("written");
        client.release(fh).expect("closed");
        let here: Vec<_> = inos.iter().map(|ino| client.getattr(*ino, None).expect("there").attr).collect();
        // By its name only, or all of them, or the last by its content.
        if n % 2 == 0 {
            let listed = other.list(&path).expect("listed");
            let sizes: Vec<u64> =
                listed.iter().map(|e| e.entry.as_ref().expect("asked for").attr.size).collect();
            assert_eq!(sizes.iter().sum::<u64>(), 2 * 8 + 9);
        }
        for (name, here) in names.iter().zip(&here).rev() {
            let there = other.stat(format!("{path}/{name}")).expect("there");
            let what =
                |attr: &chiton_types::Attr| (attr.ino, attr.size, attr.allocated, attr.mtime, attr.ctime);
            assert_eq!(what(&there), what(here), "{path}/{name}");
        }
        let content = |name: &str| other.read_file(format!("{path}/{name}")).expect("read");
        assert_eq!((content("f0"), content("f7")), (b"f0".to_vec(), b"f7 and more".to_vec()));
    }
    assert!(count(&other, "write_behind") >= 40, "the lease was used in each");
}

/// A tree that one client unpacks: its entries, in the order in which they are made. Some of it is removed again.
fn unpack(client: &Client, root: Ino, dirs: usize) -> BTreeMap<String, Option<Vec<u8>>> {
    let caller = client.caller();
    let mut there = BTreeMap::new();
    let (mut dir, mut path) = (root, String::new());
    for n in 0..dirs {
        if n % 5 == 0 {
            (dir, path) = (root, String::new());
        }
        dir = client.mkdir(&caller, dir, format!("d{n}").as_bytes(), Mode(0o755)).expect("made").attr.ino;
        path = format!("{path}/d{n}");
        there.insert(path.clone(), None);
        for n in 0..6 {
            let (name, content) = (format!("f{n}"), format!("{path} {n}").into_bytes());
            write(client, dir, &name, &content);
            there.insert(format!("{path}/{name}"), Some(content));
        }
        client.symlink(&caller, dir, b"link", b"f0").expect("made");
        there.insert(format!("{path}/link"), Some(b"f0".to_vec()));
        for name in ["f5", "link"].iter().take(n % 3) {
            client.unlink(&caller, dir, name.as_bytes()).expect("removed");
            there.remove(&format!("{path}/{name}"));
        }
    }
    there
}

/// All that a client finds below a directory.
fn look(client: &Client, root: &str) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut there = BTreeMap::new();
    let mut todo = vec![String::new()];
    while let Some(path) = todo.pop() {
        for entry in client.list(format!("{root}{path}")).expect("listed") {
            let below = format!("{path}/{}", entry.name);
            let what = match entry.kind {
                Kind::Dir => {
                    todo.push(below.clone());
                    None
                }
                Kind::Symlink => Some(client.readlink(entry.ino).expect("read")),
                _ => Some(client.read_file(format!("{root}{below}")).expect("read")),
            };
            there.insert(below, what);
        }
    }
    there
}

#[test]
fn a_tree_is_unpacked_in_batches_and_there_for_whoever_looks() {
    let site = Site::new();
    let (client, other) = (site.connected(), site.connected());
    for n in 0..6 {
        let root = format!("/tree{n}");
        let ino = client.mkdir_all(&root).expect("made").ino;
        let there = unpack(&client, ino, 20);
        // From below, or from above.
        if n % 2 == 0 {
            let last = there.iter().rfind(|(_, content)| content.is_some()).expect("there is one");
            if let Ok(attr) = other.lstat(format!("{root}{}", last.0)) {
                assert_eq!(attr.size, last.1.as_ref().map_or(0, |content| content.len() as u64));
            } else {
                panic!("{} is not there", last.0);
            }
        }
        assert_eq!(look(&other, &root), there);
        assert_eq!(look(&client, &root), there);
    }
    assert!(count(&other, "make_dir") >= 120 && count(&other, "make_symlink") == 120);
    assert!(
        count(&other, "write_behind") > 0 && count(&other, "lease_names") < 60,
        "what is made below needs no question"
    );
}

#[test]
fn a_directory_that_was_emptied_can_be_removed_by_others_and_one_that_was_filled_cannot() {
    let site = Site::new();
    let (client, other) = (site.connected(), site.connected());
    let (caller, theirs) = (client.caller(), other.caller());
    for n in 0..30 {
        let dir = client.mkdir_all(format!("/dir{n}")).expect("made").ino;
        // Told nothing, by handle, as a kernel asks that knows the directory.
        write(&client, dir, "first", b"");
        let sub = client.mkdir(&caller, dir, b"sub", Mode(0o755)).expect("made").attr.ino;
        other.list(format!("/dir{n}")).expect("listed");
        for n in 0..4 {
            write(&client, sub, &format!("f{n}"), b"hello");
        }
        let removed = other.rmdir(&theirs, dir, b"sub");
        assert_eq!(removed, Err(Refusal::NotEmpty));
        for n in 0..4 {
            client.unlink(&caller, sub, format!("f{n}").as_bytes()).expect("removed");
        }
        if n % 2 == 0 {
            other.rmdir(&theirs, dir, b"sub").expect("empty");
        } else {
            other.mkdir(&theirs, dir, b"new", Mode(0o755)).expect("made");
            let how = chiton_model::RenameHow::Replace;
            other.rename(&theirs, dir, b"new", dir, b"sub", how).expect("empty");
        }
    }
}

#[test]
fn of_a_tree_that_was_unpacked_a_prefix_survives_the_crash_of_both() {
    let site = Site::new();
    let client = site.connected();
    let [before, after] = ["/before", "/after"].map(|root| client.mkdir_all(root).expect("made").ino);
    let synced = unpack(&client, before, 20);
    client.sync().expect("durable");
    let there = unpack(&client, after, 40);
    client.abandon();
    site.kill();
    site.start();
    let client = site.connected();
    assert_eq!(look(&client, "/before"), synced);
    for (path, content) in look(&client, "/after") {
        // A removed file may be there: it was made before.
        let is_removed = ["/f5", "/link"].iter().any(|end| path.ends_with(end));
        assert!(is_removed || there.contains_key(&path), "{path}");
        if let Some(Some(acknowledged)) = there.get(&path) {
            let content = content.expect("a file");
            assert!(content == *acknowledged || content.is_empty(), "{path}");
        }
    }
}

#[test]
fn content_that_was_synced_is_there_after_a_crash_of_both_and_the_rest_in_order() {
    let site = Site::new();
    let client = site.connected();
    let dir = client.mkdir_all("/dir").expect("made").ino;
    let all: Vec<String> = (0..300).map(|n| format!("f{n}")).collect();
    all[..100].iter().for_each(|name| {
        write(&client, dir, name, name.as_bytes());
    });
    client.sync().expect("durable");
    all[100..].iter().for_each(|name| {
        write(&client, dir, name, name.as_bytes());
    });
    client.abandon();
    site.kill();
    site.start();
    let client = site.connected();
    let left: Vec<Vec<u8>> =
        all.iter().map_while(|name| client.read_file(format!("/dir/{name}")).ok()).collect();
    assert_eq!(client.list("/dir").expect("listed").len(), left.len(), "those made first are there");
    // Of the last one, the content may be lost.
    let whole = left.len().saturating_sub(usize::from(left.last().is_some_and(Vec::is_empty)));
    assert!(whole >= 100, "{whole} of {}", left.len());
    for (name, content) in all.iter().zip(&left[..whole]) {
        assert_eq!(content, name.as_bytes(), "{name}");
    }
}

#[test]
fn client_that_ends_has_sent_what_it_acknowledged() {
    let site = Site::new();
    let other = site.connected();
    for n in 0..20 {
        let client = site.connected();
        let path = format!("/dir{n}");
        let dir = client.mkdir_all(&path).expect("made").ino;
        let names: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
        names.iter().for_each(|name| _ = write(&client, dir, name, name.as_bytes()));
        drop(client);
        for name in &names {
            assert_eq!(other.read_file(format!("{path}/{name}")), Ok(name.clone().into_bytes()), "{path}");
        }
    }
    assert!(count(&other, "write_behind") >= 20, "each had pending operations");
}

#[test]
fn who_does_not_want_it_asks_for_each_file() {
    let site = Site::new();
    let client = site.connected_with(ClientOptions { write_behind_after: None, ..ClientOptions::default() });
    client.mkdir_all("/dir").expect("made");
    check(&client, &make(&client, "/dir", 0..20));
    assert_eq!((count(&client, "write_behind"), count(&client, "lease_names")), (0, 0));
}

#[test]
fn two_that_make_files_in_one_directory_see_each_others() {
    let site = Site::new();
    let clients = [site.connected(), site.connected()];
    clients[0].mkdir_all("/dir").expect("made");
    // Of each name, one makes it.
    let names = 0..FILES;
    let made: Vec<usize> = thread::scope(|scope| {
        let work = |who: usize| {
            let (client, names) = (&clients[who], names.clone());
            scope.spawn(move || {
                let each = names.filter(|n| {
                    let path = format!("/dir/f{}", if who == 0 { *n } else { FILES - 1 - n });
                    match client.create_file(&path, path.as_bytes()) {
                        Ok(_) => true,
                        Err(refusal) => {
                            assert_eq!(refusal, Refusal::Exists);
                            // The file that the other client made is readable for this one, too.
                            assert_eq!(client.read_file(&path), Ok(path.into_bytes()));
                            false
                        }
                    }
                });
                each.count()
            })
        };
        let works = [work(0), work(1)];
        works.map(|work| work.join().expect("no panic")).into_iter().collect()
    });
    assert_eq!(made.iter().sum::<usize>(), FILES, "each name is made once");
    assert_eq!(clients[1].list("/dir").expect("listed").len(), FILES);
}

#[test]
fn what_was_answered_is_there_for_whoever_removes_or_moves_it() {
    let site = Site::new();
    let (client, other) = (site.connected(), site.connected());
    // In a directory each, since who was disturbed asks for a while.
    for n in 0..60 {
        let dir = format!("/dir{n}");
        let ino = client.mkdir_all(&dir).expect("made").ino;
        make(&client, &dir, 0..10);
        // By handle, as a kernel asks that knows the directory: nothing else looks at it before.
        let (caller, how) = (other.caller(), chiton_model::RenameHow::Replace);
        match n % 4 {
            0 => other.unlink(&caller, ino, b"f9").expect("there"),
            1 => other.rename(&caller, ino, b"f9", ino, b"moved", how).expect("there"),
            2 => {
                let made = other.mkdir(&caller, ino, b"f9", Mode(0o755)).map(drop);
                assert_eq!(made, Err(Refusal::Exists));
            }
            _ => assert_eq!(other.remove(&dir).map(drop), Err(Refusal::NotEmpty)),
        }
        let left = client.list(&dir).expect("listed").len();
        assert_eq!(left, if n % 4 == 0 { 9 } else { 10 }, "{dir}");
    }
    assert!(count(&other, "write_behind") >= 60, "the lease was used in each");
}

/// As `tar` unpacks a file: made, written, its time and mode set, closed.
#[test]
fn attributes_set_by_write_behind_are_those_that_others_see() {
    let site = Site::new();
    let (client, other) = (site.connected(), site.connected());
    let dir = client.mkdir_all("/dir").expect("made").ino;
    let caller = client.caller();
    let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
    let mut acknowledged = Vec::new();
    for n in 0..200_i64 {
        let name = format!("f{n}");
        let (entry, fh) = client.create(&caller, dir, name.as_bytes(), Mode(0o600), flags).expect("made");
        client.write(&caller, fh, 0, name.as_bytes()).expect("written");
        let changes = [
            AttrChange { mtime: Some(SetTime::At(Time(n * 1_000))), ..Default::default() },
            AttrChange { atime: Some(SetTime::Now), mode: Some(Mode(0o4755)), ..Default::default() },
            AttrChange { uid: Some(entry.attr.uid), gid: Some(entry.attr.gid), ..Default::default() },
        ];
        for change in &changes[..1 + n as usize % 3] {
            client.setattr(&caller, entry.attr.ino, *change, Some(fh)).expect("set");
        }
        client.release(fh).expect("closed");
        acknowledged.push((name, client.getattr(entry.attr.ino, None).expect("known").attr));
    }
    for (name, acknowledged) in acknowledged {
        let seen = other.stat(format!("/dir/{name}")).expect("there");
        assert_eq!(Attr { position: acknowledged.position, ..seen.clone() }, acknowledged, "{name}");
        assert!(seen.position >= acknowledged.position, "what is guessed is not later than what is");
    }
    assert!(count(&other, "write_behind") > 0 && count(&other, "setattr") >= 200);
}

#[test]
fn what_depends_on_what_was_made_comes_after_it() {
    let site = Site::new();
    let (client, other) = (site.connected(), site.connected());
    let dir = client.mkdir_all("/dir").expect("made").ino;
    let caller = client.caller();
    let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
    for n in 0..60 {
        let name = format!("f{n}");
        let (entry, fh) = client.create(&caller, dir, name.as_bytes(), Mode(0o640), flags).expect("made");
        client.write(&caller, fh, 0, name.as_bytes()).expect("written");
        client.release(fh).expect("closed");
        let path = format!("/dir/{name}");
        match n % 6 {
            0 => client.rename_path(&path, format!("/dir/g{n}")).expect("moved"),
            1 => client.remove(&path).expect("removed"),
            2 => drop(client.link(&caller, entry.attr.ino, dir, format!("g{n}").as_bytes()).expect("linked")),
            3 => assert_eq!(other.read_file(&path), Ok(name.clone().into_bytes())),
            _ => {}
        }
    }
    let list = |client: &Client| {
        let listed = client.list("/dir").expect("listed").into_iter();
        let attrs = listed.map(|entry| (entry.name, entry.entry.expect("asked for").attr));
        attrs.collect::<Vec<_>>()
    };
    let listed = list(&other);
    assert_eq!(listed.len(), 60);
    assert_eq!(list(&client), listed);
    // A directory that is removed takes nothing more.
    client.mkdir_all("/dir/sub").expect("made");
    make(&client, "/dir/sub", 0..5);
    let sub = client.stat("/dir/sub").expect("there").ino;
    for n in 0..5 {
        client.remove(format!("/dir/sub/f{n}")).expect("removed");
    }
    client.remove("/dir/sub").expect("removed");
    let late = client.create(&caller, sub, b"late", Mode(0o644), flags).map(drop);
    assert!(matches!(late, Err(Refusal::NotFound | Refusal::Stale)), "{late:?}");
}

#[test]
fn who_may_not_make_files_is_refused() {
    let site = Site::new();
    let client = site.connected();
    client.mkdir_all("/dir").expect("made");
    make(&client, "/dir", 0..10);
    let dir = client.stat("/dir").expect("there").ino;
    let stranger = chiton_client::Caller { uid: 12_345, gid: 12_345, groups: client.caller().groups };
    let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
    let mine = client.create(&stranger, dir, b"mine", Mode(0o644), flags).map(drop);
    assert_eq!(mine, Err(Refusal::Access));
    let open = chiton_model::AttrChange { mode: Some(Mode(0o777)), ..Default::default() };
    client.set_attr_path("/dir", open).expect("opened to all");
    for n in 0..10 {
        let name = format!("s{n}");
        let (entry, fh) = client.create(&stranger, dir, name.as_bytes(), Mode(0o644), flags).expect("made");
        client.release(fh).expect("closed");
        assert_eq!((entry.attr.uid, entry.attr.gid), (12_345, 12_345));
    }
}

#[test]
fn what_was_synced_is_there_after_a_crash_of_both_and_of_the_rest_a_prefix() {
    let site = Site::new();
    let client = site.connected();
    client.mkdir_all("/dir").expect("made");
    let synced = make(&client, "/dir", 0..100);
    client.sync().expect("durable");
    make(&client, "/dir", 100..300);
    client.abandon();
    site.kill();
    site.start();
    let client = site.connected();
    check(&client, &synced);
    let left = client.list("/dir").expect("listed").len();
    for n in 0..left {
        assert!(client.stat(format!("/dir/f{n}")).is_ok(), "{n} of {left}: those made first are there");
    }
}

#[test]
fn a_server_that_is_killed_again_and_again_loses_and_doubles_nothing() {
    let site = Site::new();
    let clients = [site.connected(), site.connected()];
    let dirs = [0, 1].map(|who| clients[who].mkdir_all(format!("/dir{who}")).expect("made").ino);
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let acknowledged: Vec<BTreeMap<String, Ino>> = thread::scope(|scope| {
        let work = |who: usize| {
            let (client, dirs, stop, done) = (&clients[who], &dirs, &stop, &done);
            scope.spawn(move || {
                let mut acknowledged = BTreeMap::new();
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    acknowledged.extend(make(client, &format!("/dir{who}"), n..n + 5));
                    for n in n + 5..n + 10 {
                        let path = format!("/dir{who}/f{n}");
                        let ino = write(client, dirs[who], &format!("f{n}"), path.as_bytes());
                        acknowledged.insert(path, ino);
                    }
                    n += 10;
                    done.fetch_add(10, Ordering::Relaxed);
                }
                client.sync().expect("nothing that was answered is lost");
                acknowledged
            })
        };
        let works = [work(0), work(1)];
        for _ in 0..4 {
            let before = done.load(Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < before + 1_000 {
                thread::yield_now();
            }
            site.kill();
            site.start();
        }
        stop.store(true, Ordering::Relaxed);
        works.map(|work| work.join().expect("no panic")).into_iter().collect()
    });
    let looker = site.connected();
    for (who, acknowledged) in acknowledged.iter().enumerate() {
        check(&looker, acknowledged);
        assert_eq!(looker.list(format!("/dir{who}")).expect("listed").len(), acknowledged.len());
    }
    let mut numbers: Vec<Ino> =
        acknowledged.iter().flat_map(|acknowledged| acknowledged.values().copied()).collect();
    numbers.sort_unstable();
    let all = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), all, "no number twice");
}
