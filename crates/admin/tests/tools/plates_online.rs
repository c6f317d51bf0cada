//! fsck beside the server of a file system with several plates, while operations over plates are under way.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::plates_repair::{Hands, PLATES, SHARDS, plate_of};
use crate::rig::name;
use chiton_admin::fsck::{Finding, Offline, Options, check_online};
use chiton_client::{Client, ClientOptions};
use chiton_metastore::Batch;
use chiton_model::{Make, Op, RenameHow};
use chiton_namespace::entry_row_key;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_types::{Ino, PlateId};

/// Threads that change the tree.
const BUSY: usize = 3;
const CHECKS: usize = 12;

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

fn start(dir: &Path) -> Arc<Server> {
    let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
    Server::start(dir, options, world()).expect("starts")
}

fn format(dir: &Path) -> Arc<Server> {
    let options = FormatOptions { shards: SHARDS, plates: PLATES, ..FormatOptions::default() };
    Server::format(dir, &options, &world()).expect("formats");
    start(dir)
}

fn client(server: &Arc<Server>) -> Arc<Client> {
    let options = ClientOptions { user: Some((0, 0, Vec::new())), ..ClientOptions::default() };
    Arc::new(chiton_embedded::client(server, options).expect("a client"))
}

fn check(client: &Arc<Client>) -> Vec<Finding> {
    let mut found = Vec::new();
    check_online(client, &Options::default(), &mut |f| found.push(f), &mut |_| {}).expect("checks");
    found
}

/// A directory of each plate.
fn directories(hands: &Hands, prefix: &str) -> [Ino; 2] {
    let mut dirs = [None, None];
    for n in 0.. {
        let made = hands.make(Ino::ROOT, &format!("{prefix}{n}"), Make::Dir);
        dirs[usize::from(plate_of(made).0)].get_or_insert(made);
        if let [Some(near), Some(far)] = dirs {
            return [near, far];
        }
    }
    unreachable!("directories are spread over the plates")
}

/// Changes both directories until the end: every operation must succeed. Counts them.
fn change(hands: &Hands, [near, far]: [Ino; 2], is_over: &AtomicBool, done: &AtomicU64) {
    for n in 0u64.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let (from, to) = if n.is_multiple_of(2) { (near, far) } else { (far, near) };
        let (file, link, moved, dir) =
            (format!("file{n}"), format!("link{n}"), format!("moved{n}"), format!("dir{n}"));
        let ino = hands.file(from, &file, b"some");
        hands.op(to, Op::Link { ino, parent: to, name: name(&link) });
        let (from_name, to_name) = (name(&file), name(&moved));
        hands.op(to, Op::Rename { from, to, how: RenameHow::Replace, from_name, to_name });
        hands.op(to, Op::Unlink { parent: to, name: name(&link) });
        let made = hands.make(from, &dir, Make::Dir);
        hands.file(made, "within", b"some");
        hands.op(made, Op::Unlink { parent: made, name: name("within") });
        if n.is_multiple_of(3) {
            hands.op(from, Op::Rmdir { parent: from, name: name(&dir) });
        } else {
            let (from_name, to_name) = (name(&dir), name(&dir));
            hands.op(to, Op::Rename { from, to, how: RenameHow::Replace, from_name, to_name });
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `f` while threads change the tree.
fn while_busy<T>(server: &Arc<Server>, prefix: &str, f: impl FnOnce(&AtomicU64) -> T) -> T {
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (is_over, done) = (&is_over, &done);
        for thread in 0..BUSY {
            let hands = Hands::begin(server);
            let dirs = directories(&hands, &format!("{prefix}{thread}-"));
            scope.spawn(move || change(&hands, dirs, is_over, done));
        }
        let _end = End(is_over);
        f(done)
    })
}

/// Ends the threads, also when a check has failed.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_healthy_file_system_is_clean_whatever_is_under_way() {
    let tmp = tempfile::tempdir().expect("a directory");
    let server = format(tmp.path());
    let client = client(&server);
    while_busy(&server, "busy", |done| {
        for n in 0..CHECKS {
            let before = done.load(Ordering::Relaxed);
            assert_eq!(check(&client), [], "check {n}");
            // The plates take messages of each other again.
            while done.load(Ordering::Relaxed) <= before {
                std::thread::yield_now();
            }
        }
    });
    drop(client);
    server.shutdown().expect("ends in order");
    let offline = Offline::open(&tmp.path().into(), world(), &mut |_, _| {}).expect("opens");
    let mut found = Vec::new();
    offline.check(&Options::default(), &mut |f| found.push(f), &mut |_| {}).expect("checks");
    assert_eq!(found, []);
}

#[test]
fn damage_on_another_plate_is_found_whatever_is_under_way() {
    let tmp = tempfile::tempdir().expect("a directory");
    let server = format(tmp.path());
    let hands = Hands::begin(&server);
    let [_, far] = directories(&hands, "dir");
    let lost = hands.file(far, "file", b"some");
    drop(hands);
    server.shutdown().expect("ends in order");
    drop(server);
    let plate = chiton_server::Offline::open(&tmp.path().into(), PlateId(1), world()).expect("opens");
    let key = entry_row_key(far, &name("file"));
    plate.meta().commit(&Batch::from_iter([(key, None::<Vec<u8>>)])).expect("commits");
    drop(plate);
    let server = start(tmp.path());
    let client = client(&server);
    while_busy(&server, "busy", |_| {
        for _ in 0..3 {
            let found = check(&client);
            let mut what: Vec<_> = found.iter().map(|f| (f.problem.name(), f.problem.ino())).collect();
            what.sort();
            assert_eq!(what, [("orphan", Some(lost)), ("wrong-entry-count", Some(far))]);
        }
    });
    drop(client);
    server.shutdown().expect("ends in order");
}
