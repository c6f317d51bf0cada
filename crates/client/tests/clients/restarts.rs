//! "After a reconnect or a restart of the server it sends them again, in order": a workload does not notice that
//! its server was killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::site::Site;

const KILLS: usize = 4;
const FILES_BETWEEN: usize = 150;

#[test]
fn a_workload_goes_on_over_a_server_that_is_killed_again_and_again() {
    let site = Site::new();
    let clients = [site.connected(), site.connected()];
    let (stop, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let told: BTreeMap<String, (u64, Vec<u8>)> = thread::scope(|scope| {
        let workers: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(who, client)| {
                let (stop, count) = (&stop, &count);
                scope.spawn(move || {
                    let mut told = Vec::new();
                    let mut n = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let (path, content) = (format!("c{who}-f{n}"), format!("content {n}").into_bytes());
                        let attr = client.create_file(&path, &content).expect("made");
                        if n % 10 == 3 {
                            client.remove(&path).expect("removed");
                        } else if n % 10 == 7 {
                            client.rename_path(&path, format!("{path}-moved")).expect("moved");
                            told.push((format!("{path}-moved"), (attr.ino.0, content)));
                        } else {
                            told.push((path, (attr.ino.0, content)));
                        }
                        n += 1;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    client.sync().expect("nothing acknowledged was lost");
                    told
                })
            })
            .collect();
        for _ in 0..KILLS {
            let before = count.load(Ordering::Relaxed);
            while count.load(Ordering::Relaxed) < before + FILES_BETWEEN {
                thread::yield_now();
            }
            site.kill();
            site.start();
        }
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    // Also the next start finds all of it: it was synced. (The clients live on, so that nobody waits for them.)
    site.kill();
    site.start();
    let client = site.connected();
    let mut found = BTreeMap::new();
    for entry in client.list("/").expect("listed") {
        let name = entry.name.to_string();
        let content = client.read_file(&name).expect("read");
        found.insert(name, (entry.ino.0, content));
    }
    assert_eq!(found.len(), told.len());
    assert!(found == told, "each file once, with the inode number and the content that its maker was told");
}

#[test]
fn what_is_open_stays_open_over_a_restart() {
    let site = Site::new();
    let client = site.connected();
    client.write_file("file", b"still here").expect("written");
    let fh = client.open_path("file", chiton_client::OpenFlags::READ).expect("open");
    client.remove("file").expect("removed");
    client.sync().expect("durable");
    site.kill();
    site.start();
    assert_eq!(client.read(fh, 0, 100), Ok(b"still here".to_vec()), "an orphan waits for who has it open");
    client.release(fh).expect("closed");
    assert_eq!(client.stat("file").map(drop), Err(chiton_types::Refusal::NotFound));
}

/// S97, S28, S26: a file without a name outlives restarts of the server with its client, and its link survives like any other
/// operation. One that is not linked ends with its last open.
#[test]
fn files_without_names_outlive_a_restart_with_their_client() {
    use chiton_client::OpenFlags;
    use chiton_types::{Ino, Mode, Refusal};
    let site = Site::new();
    let client = site.connected();
    let caller = client.caller();
    let make = |content: &[u8]| {
        let made = client.create_unnamed(&caller, Ino::ROOT, Mode(0o640), OpenFlags::READ_WRITE);
        let (entry, fh) = made.expect("made");
        assert_eq!(entry.attr.nlink, 0);
        client.write(&caller, fh, 0, content).expect("written");
        (entry.attr.ino, fh)
    };
    let (linked, linked_fh) = make(b"linked before the crash");
    let (later, later_fh) = make(&[7; 100_000]);
    let (never, never_fh) = make(b"never linked");
    assert!(client.list("/").expect("listed").is_empty());
    client.link_unnamed(&caller, linked, Ino::ROOT, b"linked").expect("linked");
    let again = client.link_unnamed(&caller, linked, Ino::ROOT, b"other").map(drop);
    assert_eq!(again, Err(Refusal::Invalid), "it has a name");
    client.fsync(never_fh, false).expect("durable");
    site.kill();
    site.start();
    client.link_unnamed(&caller, later, Ino::ROOT, b"later").expect("linked after it");
    client.release(never_fh).expect("closed");
    for fh in [linked_fh, later_fh] {
        client.fsync(fh, false).expect("durable");
        client.release(fh).expect("closed");
    }
    site.kill();
    site.start();
    assert_eq!(client.read_file("linked"), Ok(b"linked before the crash".to_vec()));
    assert_eq!(client.read_file("later"), Ok(vec![7; 100_000]));
    let stat = client.stat("later").expect("there");
    assert_eq!((stat.ino, stat.nlink, stat.mode), (later, 1, Mode(0o640)));
    assert_eq!(client.list("/").expect("listed").len(), 2);
    let gone = client.link_unnamed(&caller, never, Ino::ROOT, b"never").map(drop);
    assert!(matches!(gone, Err(Refusal::NotFound | Refusal::Stale)), "{gone:?}");
}

/// S13, S26: a rename and its whiteout are one operation, also over a restart of the server.
#[test]
fn a_whiteout_comes_with_its_rename_over_a_restart() {
    use chiton_model::RenameHow;
    use chiton_types::{Ino, Kind};
    let site = Site::new();
    let client = site.connected();
    client.write_file("a", b"moved").expect("written");
    client.rename(&client.caller(), Ino::ROOT, b"a", Ino::ROOT, b"b", RenameHow::Whiteout).expect("renamed");
    for _ in 0..2 {
        site.kill();
        site.start();
        assert_eq!(client.read_file("b"), Ok(b"moved".to_vec()));
        let left = client.lstat("a").expect("a whiteout");
        assert_eq!((left.kind, left.rdev, left.nlink), (Kind::Char, 0, 1));
        assert_eq!(client.list("/").expect("listed").len(), 2);
    }
    client.remove("a").expect("removed");
    assert_eq!(client.list("/").expect("listed").len(), 1);
}

/// S26: while a server of another file system is at the address, operations wait. None is carried out there, and no session begins.
#[test]
fn operations_wait_while_another_file_system_is_at_the_address() {
    for plates in [1, 2] {
        let (site, other) = (Site::with_plates(plates), Site::with_plates(plates));
        let client = site.connected();
        client.write_file("before", b"1").expect("written");
        client.sync().expect("durable");
        site.kill();
        other.kill();
        site.start_instead(&other);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| client.create_file("meanwhile", b"2").map(drop));
            // In this time the client asks several times.
            chiton_runtime::thread::sleep(Duration::from_secs(1));
            let tool = site.connected();
            assert!(tool.list("/").expect("listed").is_empty());
            let status = String::from_utf8(tool.admin("status").expect("answered")).expect("JSON");
            assert_eq!(status.matches("\"identity\"").count(), 1, "only that of the one who asks: {status}");
            drop(tool);
            assert!(!waiting.is_finished());
            site.kill();
            site.start();
            assert_eq!(waiting.join().expect("no panic"), Ok(()));
        });
        for (name, content) in [("before", b"1"), ("meanwhile", b"2")] {
            assert_eq!(client.read_file(name), Ok(content.to_vec()));
        }
    }
}
