//! Rows that are not in memory: a request that waits for one keeps no other waiting, and a start fetches many together.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chiton_metastore::{Batch, MemoryMetastore, Metastore, Row, StoreError, StoreStats};
use chiton_model::Op;
use chiton_server::{Role, Server, ServerOptions, Stores};
use chiton_transport::ServeOptions;
use chiton_types::{Ino, Position};
use chiton_wire::{Answer, Call, Query};

use crate::burst::{Client, Motion, start_with};
use crate::rig::{Asks, Rig, figure, file, quiet, session, unlink, world};

/// A metadata store whose reads can stand still, and are counted.
struct Slow {
    rows: Arc<MemoryMetastore>,
    motion: Motion,
    reads: AtomicU64,
}

impl Slow {
    fn of(rig: &Rig) -> (Arc<Slow>, Stores) {
        let (rows, motion, reads) = (rig.meta.clone(), Motion::default(), AtomicU64::new(0));
        let slow = Arc::new(Slow { rows, motion, reads });
        let Stores { objects, open_meta, place, objects_address } = rig.stores();
        let opened = slow.clone();
        let open_meta = Box::new(move || {
            open_meta()?;
            Ok::<Arc<dyn Metastore>, StoreError>(opened.clone())
        });
        (slow, Stores { objects, open_meta, place, objects_address })
    }

    fn read(&self) -> &MemoryMetastore {
        self.reads.fetch_add(1, Relaxed);
        self.motion.wait();
        &self.rows
    }
}

impl Metastore for Slow {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.read().get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.read().get_many(keys)
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.read().scan(start, end, limit)
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.rows.commit(batch)
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        self.rows.stats()
    }

    fn close(&self) -> Result<(), StoreError> {
        self.rows.close()
    }
}

#[test]
fn clients_that_wait_for_rows_keep_no_serving_thread() {
    const WAITING: usize = 20;
    let tmp = tempfile::tempdir().expect("a directory");
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let warm = s.create(Ino::ROOT, "warm");
    let dirs: Vec<Ino> = (0..WAITING).map(|n| s.mkdir(Ino::ROOT, &format!("dir {n}"))).collect();
    let files: Vec<Ino> = dirs.iter().map(|dir| s.create(*dir, "file")).collect();
    drop(s);
    server.shutdown().expect("ends");
    drop(server);
    let (slow, stores) = Slow::of(&rig);
    // It has one thread for all its clients.
    let (server, address) = start_with(&rig, tmp.path(), stores);
    let reader = Client::connect(&address);
    let clients: Vec<Client> = dirs.iter().map(|_| Client::connect(&address)).collect();
    assert_eq!(reader.lookup(Ino::ROOT, "warm").0.map(|attr| attr.ino), Some(warm));
    slow.motion.stand_still(true);
    let reads = slow.reads.load(Relaxed);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = clients
            .iter()
            .zip(dirs)
            .map(|(client, dir)| scope.spawn(move || client.lookup(dir, "file").0.map(|attr| attr.ino)))
            .collect();
        crate::rig::eventually("fetches have begun", || slow.reads.load(Relaxed) > reads);
        for n in 0..100 {
            assert_eq!(reader.lookup(Ino::ROOT, "warm").0.map(|attr| attr.ino), Some(warm));
            assert!(reader.query(Query::GetAttr { ino: warm }).is_ok());
            reader.create(Ino::ROOT, &format!("new {n}"));
        }
        assert!(waiting.iter().all(|one| !one.is_finished()), "their rows are not there");
        slow.motion.stand_still(false);
        for (one, file) in waiting.into_iter().zip(files) {
            assert_eq!(one.join().expect("answered"), Some(file));
        }
    });
    server.shutdown().expect("ends");
}

#[test]
fn a_start_fetches_the_rows_of_many_frames_together() {
    const DIRS: usize = 300;
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let dirs: Vec<Ino> = (0..DIRS).map(|n| s.mkdir(Ino::ROOT, &format!("dir {n}"))).collect();
    for dir in &dirs {
        s.create(*dir, "before");
    }
    server.checkpoint().expect("a checkpoint");
    let files: Vec<Ino> = dirs.iter().map(|dir| s.create(*dir, "after")).collect();
    s.commit();
    drop(s);
    rig.crash(&server);
    drop(server);
    let (slow, stores) = Slow::of(&rig);
    let options = ServerOptions { serve: ServeOptions::default(), ..quiet() };
    let server = Server::start_as(Role::serving(&rig.info, stores), options, world()).expect("starts");
    assert!(server.durable() > Position(0));
    let reads = slow.reads.load(Relaxed);
    assert!(reads < DIRS as u64 / 3, "{reads} reads of the metadata store for {DIRS} frames");
    let s = session(&server);
    for (dir, file) in dirs.iter().zip(files) {
        assert_eq!(s.lookup(*dir, "after").0.map(|attr| attr.ino), Some(file));
        assert!(s.lookup(*dir, "before").0.is_some());
    }
    drop(s);
    server.shutdown().expect("ends");
}

/// The server ends in order and begins again, with no row in memory.
fn restarted(rig: &Rig, server: Arc<Server>) -> (Arc<Slow>, Arc<Server>) {
    server.shutdown().expect("ends");
    drop(server);
    let (slow, stores) = Slow::of(rig);
    let server = Server::start_as(Role::serving(&rig.info, stores), quiet(), world()).expect("starts");
    (slow, server)
}

#[test]
fn a_batch_fetches_the_rows_of_its_operations_together() {
    // So many that the directory is never read as a whole.
    const FILES: usize = 6_000;
    const BATCH: usize = 500;
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let dir = s.mkdir(Ino::ROOT, "large");
    let files: Vec<Ino> = (0..FILES).map(|n| s.create(dir, &format!("f{n}"))).collect();
    drop(s);
    let (slow, server) = restarted(&rig, server);
    let s = session(&server);
    let reads_of = |ops: Vec<Op>| {
        let before = slow.reads.load(Relaxed);
        match s.try_call(Call::Batch { ops, stop_on_failure: false }) {
            Ok(Answer::Batch(results)) => assert!(results.iter().all(Result::is_ok), "{results:?}"),
            other => panic!("{other:?}"),
        }
        slow.reads.load(Relaxed) - before
    };
    let made = reads_of((0..BATCH).map(|n| file(dir, &format!("new{n}"))).collect());
    let removed = reads_of((0..BATCH).map(|n| unlink(dir, &format!("f{n}"))).collect());
    // One for names and one for inodes, and a few for the directories above.
    assert!(made <= 4 && removed <= 4, "{made} and {removed} reads of the metadata store");
    for n in (0..FILES).step_by(7) {
        let expected = (n >= BATCH).then_some(files[n]);
        assert_eq!(s.lookup(dir, &format!("f{n}")).0.map(|attr| attr.ino), expected);
    }
    assert_eq!(figure(&server, "/operations/make_file"), BATCH as u64);
    assert_eq!(figure(&server, "/operations/unlink"), BATCH as u64);
    drop(s);
    server.shutdown().expect("ends");
}

#[test]
fn listings_by_small_pages_fetch_a_large_directory_once_each() {
    const FILES: usize = 10_000;
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let dir = s.mkdir(Ino::ROOT, "large");
    for n in 0..FILES {
        s.create(dir, &format!("f{n}"));
    }
    drop(s);
    let (slow, server) = restarted(&rig, server);
    let s = session(&server);
    let page = |cookie: u64| {
        let query = Query::ReadDir { dir, cookie, entries_max: 50, plus: false, part_end: None };
        match s.try_call(Call::Query(query)) {
            Ok(Answer::Entries { entries, end, .. }) => (entries, end),
            other => panic!("{other:?}"),
        }
    };
    let before = slow.reads.load(Relaxed);
    // The second is a few thousand names behind the first all the time.
    let (mut at, mut seen, mut ended) = ([0, 0], [0, 0], [false, false]);
    for turn in 0.. {
        for lister in 0..2 {
            if ended[lister] || lister == 1 && turn < 100 {
                continue;
            }
            let (entries, end) = page(at[lister]);
            seen[lister] += entries.len();
            at[lister] = entries.last().map_or(at[lister], |last| last.cookie);
            ended[lister] = end;
        }
        if ended == [true, true] {
            break;
        }
    }
    assert_eq!(seen, [FILES, FILES]);
    let reads = slow.reads.load(Relaxed) - before;
    assert!(reads <= 12, "{reads} reads of the metadata store for 10,000 names");
    drop(s);
    server.shutdown().expect("ends");
}
