//! A server for a decoupled subtree, over the rows of another that is played here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use std::ops::Bound;

use chiton_journal::{MemoryPlace, Shape};
use chiton_metastore::{MemoryMetastore, Metastore, StoreError};
use chiton_model::{Make, Op, RenameHow};
use chiton_namespace::{Fetched, Namespace, Need, RowSource, Rows};
use chiton_policy::Policy;
use chiton_runtime::sync::Mutex;
use chiton_server::{Base, DecoupledSubtree, Role, Server, StartError};
use chiton_types::{Cred, Ino, Kind, Mode, Position, Refusal, SessionId, ShardId};
use chiton_wire::{Answer, Call, Query};

use crate::rig::{Asks, Rig, file, make, name, quiet, refused, session, unlink, world};

const WRITER: u64 = 77_000;
const SHARD: ShardId = ShardId(2);

/// Rows of a file system at rest, and numbers as long as there are any.
struct Played {
    meta: Arc<MemoryMetastore>,
    fetched: Mutex<Vec<Need>>,
    next: AtomicU64,
    numbers_left: AtomicU64,
}

impl RowSource for Played {
    type Error = StoreError;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.meta.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Rows, StoreError> {
        self.meta.scan(Bound::Included(start), Some(end), limit)
    }
}

impl Base for Played {
    fn fetch(&self, needs: &[Need]) -> Result<Vec<Fetched>, String> {
        self.fetched.lock().extend(needs.iter().cloned());
        needs.iter().map(|need| Namespace::fetch(self, need).map_err(|e| e.to_string())).collect()
    }

    fn grant(&self, _: ShardId, count: u64) -> Result<Vec<(Ino, Ino)>, String> {
        if self.numbers_left.load(Ordering::SeqCst) < count {
            return Err("no more".to_owned());
        }
        self.numbers_left.fetch_sub(count, Ordering::SeqCst);
        let first = self.next.fetch_add(count, Ordering::SeqCst);
        Ok(vec![(Ino::new(SHARD, first), Ino::new(SHARD, first + count))])
    }

    fn sync_blocks(&self) -> Result<(), String> {
        Ok(())
    }
}

/// `/sub` with a file and a directory with a file in it, decoupled from a server that has stopped.
struct Subtree {
    base: Arc<Played>,
    place: Arc<MemoryPlace>,
    root: Ino,
}

impl Subtree {
    fn new(numbers_left: u64) -> Subtree {
        let rig = Rig::new();
        let server = rig.start(quiet());
        let s = session(&server);
        let root = s.mkdir(Ino::ROOT, "sub");
        s.op(make(root, "old", Make::File { content: b"before".to_vec() }));
        let dir = s.mkdir(root, "dir");
        s.create(dir, "deep");
        drop(s);
        server.checkpoint().expect("checkpoint");
        drop(server);
        rig.meta.crash();
        let (next, numbers_left) = (AtomicU64::new(1 << 40), AtomicU64::new(numbers_left));
        let base = Played { meta: rig.meta, fetched: Mutex::default(), next, numbers_left };
        Subtree { base: Arc::new(base), place: Arc::new(MemoryPlace::new(Shape::Grows)), root }
    }

    fn start_at(&self, merged: Position, used: Vec<Ino>) -> Result<Arc<Server>, StartError> {
        let subtree = DecoupledSubtree {
            filesystem: 5,
            journal: 6,
            shards: 4,
            own_shards: 0..4,
            root: self.root,
            policy: Policy::default(),
            inode_count: 5,
            writer: SessionId(WRITER),
            ranges: vec![(Ino::new(SHARD, 1 << 30), Ino::new(SHARD, (1 << 30) + 100))],
            borders: Vec::new(),
            used,
            merged,
            base: self.base.clone(),
            place: self.place.clone(),
        };
        Server::start_as(Role::Decoupled(subtree), quiet(), world())
    }

    fn start(&self) -> Arc<Server> {
        self.start_at(Position(0), Vec::new()).expect("starts")
    }
}

#[test]
fn rows_come_when_they_are_needed_and_what_changes_is_its_own() {
    let subtree = Subtree::new(0);
    let server = subtree.start();
    let s = session(&server);
    assert_eq!(s.session(), SessionId(WRITER));
    let (dir, _) = s.lookup(subtree.root, "dir");
    let dir = dir.expect("there").ino;
    let deep = Need::Dir(dir);
    assert!(!subtree.base.fetched.lock().contains(&deep), "nobody has looked there");
    assert_eq!(s.list(dir, false).len(), 1);
    assert!(subtree.base.fetched.lock().contains(&deep));

    let new = s.create(subtree.root, "new");
    assert_eq!((new.shard(), new.counter()), (SHARD, 1 << 30));
    let attr = s.lookup(subtree.root, "new").0.expect("there");
    assert!(
        attr.position > s.lookup(subtree.root, "old").0.expect("there").position,
        "later than all before"
    );
    s.op(unlink(subtree.root, "old"));
    assert_eq!(s.lookup(subtree.root, "old").0, None);
    let op = Op::Rename {
        from: subtree.root,
        from_name: name("dir"),
        to: subtree.root,
        to_name: name("moved"),
        how: RenameHow::Replace,
    };
    s.op(op);
    // Upwards it ends at its root, for paths and for the search for loops.
    let resolve = |path: &str| {
        s.query(Query::Resolve { from: subtree.root, path: path.into(), follow: true, sessions: vec![] })
    };
    for path in ["/moved/deep", "../../moved/deep", "moved/../../moved/deep"] {
        let Ok(Answer::Resolved(found)) = resolve(path) else { panic!("{path}") };
        assert!(found.end().is_some_and(|(attr, _)| attr.kind == Kind::File), "{path}");
    }
    let below = Op::Rename {
        from: subtree.root,
        from_name: name("moved"),
        to: dir,
        to_name: name("below"),
        how: RenameHow::Replace,
    };
    assert_eq!(refused(s.try_call(chiton_wire::Call::Op { op: below, open: false })), Refusal::Invalid);
    let outside = subtree.base.fetched.lock().iter().any(|need| *need == Need::Inode(Ino::ROOT));
    assert!(!outside, "asked for what is outside of the subtree");
}

#[test]
fn its_journal_brings_back_what_it_did() {
    let subtree = Subtree::new(0);
    let server = subtree.start();
    let s = session(&server);
    let made: Vec<Ino> = (0..10).map(|n| s.create(subtree.root, &format!("f{n}"))).collect();
    s.op(unlink(subtree.root, "f3"));
    s.op(unlink(subtree.root, "old"));
    let last = server.last();
    server.wait_durable(last).expect("durable");
    s.create(subtree.root, "late");
    drop(s);
    server.abandon();

    let crashed = Subtree {
        place: Arc::new(subtree.place.crash(&mut |_, _| 0)),
        base: subtree.base,
        root: subtree.root,
    };
    let server = crashed.start();
    assert!(server.last() >= last);
    let s = session(&server);
    let mut names: Vec<String> = s.list(crashed.root, false).into_iter().map(|(name, _)| name).collect();
    names.retain(|name| name != "late");
    names.sort();
    assert_eq!(names, ["dir", "f0", "f1", "f2", "f4", "f5", "f6", "f7", "f8", "f9"]);
    let next = s.create(crashed.root, "next");
    assert!(made.iter().all(|ino| *ino < next), "a number is used twice");
    drop(s);
    server.shutdown().expect("ends in order");
    assert_eq!(
        server.journal_place().list().map(|segments| segments.is_empty()),
        Ok(false),
        "nothing is trimmed"
    );
}

#[test]
fn numbers_are_fetched_on_demand_and_their_end_is_no_space() {
    let subtree = Subtree::new(300);
    let server = subtree.start();
    let s = session(&server);
    let mut made = Vec::new();
    let refusal = loop {
        let op = file(subtree.root, &format!("f{}", made.len()));
        match s.try_call(chiton_wire::Call::Op { op, open: false }) {
            Ok(Answer::Op { outcome, .. }) => made.push(outcome.attr.expect("made").ino),
            other => break refused(other),
        }
    };
    assert_eq!(refusal, Refusal::NoSpace);
    assert_eq!(made.len(), 400, "100 at first, 100 more, 200 more");
    let mut sorted = made.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), made.len());
    assert_eq!(server.numbers().left, 0);
    // Operations that need no number still succeed.
    s.op(unlink(subtree.root, "f0"));
    let mode = Mode(0o700);
    let change = chiton_model::AttrChange { mode: Some(mode), ..Default::default() };
    let op = Op::SetAttr { ino: made[1], change };
    assert_eq!(s.op(op).1.attr.expect("there").mode, mode);
    // And when there are some again, so do creates.
    subtree.base.numbers_left.store(1 << 20, Ordering::SeqCst);
    let deadline = std::time::Duration::from_secs(60);
    let begun = world().monotonic();
    loop {
        let op = file(subtree.root, "again");
        match s.try_call(chiton_wire::Call::Op { op, open: false }) {
            Ok(_) => break,
            other => assert_eq!(refused(other), Refusal::NoSpace),
        }
        assert!(world().monotonic() - begun < deadline, "no numbers within a minute");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn frozen_changes_wait_and_looking_does_not() {
    let subtree = Subtree::new(0);
    let server = subtree.start();
    let s = session(&server);
    let last = server.last();
    server.freeze(true);
    let (old, new) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| s.create(subtree.root, "new"));
        let seen = (s.lookup(subtree.root, "old").0, s.lookup(subtree.root, "new").0);
        assert_eq!(server.last(), last);
        server.freeze(false);
        waiting.join().expect("made");
        seen
    });
    assert!(old.is_some() && new.is_none());
    assert!(server.last() > last);
}

const MODE: Mode = Mode(0o640);

#[test]
fn lazily_made_files_are_in_memory_once_a_lookup_asks() {
    let subtree = Subtree::new(0);
    let server = subtree.start();
    let s = session(&server);
    let lazily = |names: &[&str]| {
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        s.create_lazily(&Cred::ROOT, subtree.root, &names, MODE)
    };
    assert!(lazily(&["a", "b"]).is_empty(), "nobody has read the directory yet");
    assert_eq!(s.list(subtree.root, false).len(), 2);

    let before = server.last();
    let made = lazily(&["a", "b", "old", "c"]);
    assert_eq!(made.len(), 2, "what is there goes the usual way, and what follows it");
    assert!(server.has_unapplied());
    assert_eq!(lazily(&["c", "a", "d"]).len(), 1, "what is deferred is there, too");
    assert_eq!(lazily(&["no/name", "d"]).len(), 0);
    assert_eq!(server.last().0, before.0 + 3, "all is in the journal");
    assert!(server.has_unapplied());

    for (attr, name) in made.iter().zip(["a", "b"]) {
        assert_eq!(s.lookup(subtree.root, name).0.as_ref(), Some(attr), "as it was answered");
    }
    assert!(!server.has_unapplied());
    assert_eq!(s.list(subtree.root, false).len(), 5);
    assert_eq!(
        refused(s.ask(&Cred::ROOT, Call::Op { op: file(subtree.root, "c"), open: false })),
        Refusal::Exists
    );
    assert_eq!(lazily(&["d"]).len(), 1);
    s.op(unlink(subtree.root, "d"));
    assert_eq!(s.lookup(subtree.root, "d").0, None);
}

#[test]
fn lazily_made_files_survive_what_the_journal_survives() {
    let subtree = Subtree::new(0);
    let server = subtree.start();
    let s = session(&server);
    s.list(subtree.root, false);
    let names: Vec<String> = (0..60).map(|n| format!("f{n}")).collect();
    let bytes: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let made = s.create_lazily(&Cred::ROOT, subtree.root, &bytes, MODE);
    assert_eq!(made.len(), 60);
    server.wait_durable(server.last()).expect("durable");
    server.abandon();
    drop((s, server));
    let server = subtree.start();
    let s = session(&server);
    for (attr, name) in made.iter().zip(&names) {
        assert_eq!(s.lookup(subtree.root, name).0.as_ref(), Some(attr));
    }
}

#[test]
fn no_file_is_made_lazily_without_a_number() {
    let subtree = Subtree::new(0);
    let server = subtree.start();
    let s = session(&server);
    s.list(subtree.root, false);
    let names: Vec<String> = (0..150).map(|n| format!("f{n}")).collect();
    let bytes: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let made = s.create_lazily(&Cred::ROOT, subtree.root, &bytes, MODE);
    assert_eq!(made.len(), 100, "as many as were granted");
    let numbers: std::collections::BTreeSet<Ino> = made.iter().map(|attr| attr.ino).collect();
    assert_eq!(numbers.len(), 100);
    assert_eq!(server.numbers().left, 0);
}

#[test]
fn others_in_the_same_process_end_it() {
    let subtree = Subtree::new(0);
    let server = subtree.start();
    let (s, other) = (session(&server), session(&server));
    s.list(subtree.root, false);
    assert!(
        s.create_lazily(&Cred::ROOT, subtree.root, &[b"a"], MODE).is_empty(),
        "leases are to be looked at"
    );
    drop(other);
    assert_eq!(s.create_lazily(&Cred::ROOT, subtree.root, &[b"a"], MODE).len(), 1);
    assert_eq!(session(&server).lookup(subtree.root, "a").0.expect("there").mode, MODE);
    // Whose permissions it takes.
    let nobody = Cred::new(65_534, 65_534, &[]);
    assert!(s.create_lazily(&nobody, subtree.root, &[b"b"], MODE).is_empty());
}
