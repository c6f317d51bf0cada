//! A flipped byte in each kind of stored object: detected, named, the rest still served; never a panic, never silent.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiton_metastore::{Batch, Metastore};
use chiton_model::{Body, Extent, Make, Op};
use chiton_namespace::{StoredRow, tag, tag_of};
use chiton_objects::encode_block;
use chiton_runtime::sync::Mutex;
use chiton_server::{EmbeddedSession, FormatOptions, Server, ServerOptions};
use chiton_types::{BlockId, Ino, Refusal, Time};
use chiton_wire::{Answer, Call, Content, Failure, Query};

use crate::rig::{Asks, Rig, make, quiet, session, world};

const FILES: u64 = 40;
/// Bytes of the file that is in a block.
const BIG: u32 = 150_000;

/// The lines that a server logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn options(&self) -> ServerOptions {
        let lines = self.0.clone();
        ServerOptions { log: Arc::new(move |line| lines.lock().push(line.to_owned())), ..quiet() }
    }

    fn text(&self) -> String {
        self.0.lock().join("\n")
    }
}

fn content(n: u64) -> Vec<u8> {
    format!("what file {n} holds").into_bytes()
}

/// Files of a few bytes in two directories, and one with a block.
fn fill(server: &Server) {
    let s = session(server);
    let dirs = [s.mkdir(Ino::ROOT, "even"), s.mkdir(Ino::ROOT, "odd")];
    for n in 0..FILES {
        s.op(make(dirs[n as usize % 2], &format!("file {n}"), Make::File { content: content(n) }));
    }
    let big = s.create(Ino::ROOT, "big");
    let block = BlockId { writer: s.session().0, number: 1 };
    s.objects().put(&block.key(), &encode_block(&[&big_content()])).expect("puts");
    let extent = Extent { offset: 0, len: BIG, block, block_offset: 0, shared: false };
    let body = Body::Extents(vec![extent]);
    s.op(Op::Write {
        ino: big,
        body,
        size: BIG.into(),
        mtime: Time(5),
        kill_setid: false,
        hold: Default::default(),
    });
    s.commit();
}

fn big_content() -> Vec<u8> {
    (0..BIG).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Every answer is right, or a refusal with EIO. Returns how many were refused.
fn look(s: &EmbeddedSession) -> usize {
    let mut refused = 0;
    let mut ask = |query: Query| match s.query(query) {
        Ok(answer) => Some(answer),
        Err(Failure::Refused(Refusal::Io)) => {
            refused += 1;
            None
        }
        Err(other) => panic!("neither right nor EIO: {other:?}"),
    };
    let find =
        |parent: Ino, text: &str, ask: &mut dyn FnMut(Query) -> Option<Answer>| match ask(Query::Lookup {
            parent,
            name: crate::rig::name(text),
        })? {
            Answer::Attr { attr, .. } => Some(attr.ino),
            other => panic!("{text} is silently gone: {other:?}"),
        };
    for (d, dir) in ["even", "odd"].into_iter().enumerate() {
        let Some(ino) = find(Ino::ROOT, dir, &mut ask) else { continue };
        for n in (0..FILES).filter(|n| *n as usize % 2 == d) {
            let Some(file) = find(ino, &format!("file {n}"), &mut ask) else { continue };
            match ask(Query::Map { ino: file, offset: 0, len: 100 }) {
                Some(Answer::Map { content: found, .. }) => {
                    assert_eq!(found, Content::Inline(content(n)), "file {n} holds something else");
                }
                None => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let Some(big) = find(Ino::ROOT, "big", &mut ask) else { return refused };
    let Some(Answer::Map { content: Content::Extents { extents, .. }, .. }) =
        ask(Query::Map { ino: big, offset: 0, len: BIG.into() })
    else {
        return refused;
    };
    for e in extents {
        match s.try_call(Call::GetBlock { block: e.block, offset: e.block_offset, len: e.len }) {
            Ok(Answer::Bytes(bytes)) => assert!(bytes == big_content(), "the block holds something else"),
            Err(Failure::Refused(Refusal::Io)) => refused += 1,
            other => panic!("neither right nor EIO: {other:?}"),
        }
    }
    refused
}

/// All files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { all.extend(files(&path)) } else { all.push(path) }
    }
    all.sort();
    all
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}

/// Numbers from a fixed seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

fn flip(path: &Path, at: usize, with: u8) {
    let mut bytes = fs::read(path).expect("reads");
    bytes[at] ^= with;
    fs::write(path, bytes).expect("writes");
}

/// Starts on a directory with a flipped byte: true if the start was refused.
fn judge(dir: &Path, what: &str) -> bool {
    let log = Log::default();
    let started = catch_unwind(AssertUnwindSafe(|| Server::start(dir, log.options(), world())));
    match started.unwrap_or_else(|_| panic!("{what}: the start panicked")) {
        Err(error) => {
            let said = error.to_string();
            assert!(
                said.contains("chiton fsck") || said.contains("backup"),
                "{what}: says not what to do: {said}"
            );
            true
        }
        Ok(server) => {
            let refused = look(&session(&server));
            assert!(
                refused == 0 || log.text().contains("orrupt"),
                "{what}: {refused} refused; log: {}",
                log.text()
            );
            server.abandon();
            false
        }
    }
}

/// A populated directory, ended in order or crashed with everything in the journal.
fn populated(crashed: bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    Server::format(dir.path(), &FormatOptions { shards: 4, ..FormatOptions::default() }, &world())
        .expect("formats");
    let server = Server::start(dir.path(), quiet(), world()).expect("starts");
    fill(&server);
    if crashed {
        server.abandon()
    } else {
        server.shutdown().expect("ends")
    }
    dir
}

#[test]
fn a_flipped_byte_in_the_metadata_store() {
    let mut draw = Draw(11);
    let pristine = populated(false);
    let mut refused = 0;
    for file in files(&pristine.path().join("meta")) {
        let bytes = fs::read(&file).expect("reads");
        // Preallocated zeros at the end are nobody's.
        let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        for _ in 0..4 {
            if used == 0 {
                continue;
            }
            let trial = tempfile::tempdir().expect("a directory");
            copy(pristine.path(), trial.path());
            let inner = file.strip_prefix(pristine.path()).expect("below");
            let (at, with) = (draw.below(used), 1 << draw.below(8));
            flip(&trial.path().join(inner), at, with);
            refused += usize::from(judge(trial.path(), &format!("{} at {at} with {with}", inner.display())));
        }
    }
    assert!(refused > 0, "no flip was noticed at all");
}

#[test]
fn a_flipped_byte_in_the_journal() {
    let mut draw = Draw(12);
    let pristine = populated(true);
    let segment = files(&pristine.path().join("journal")).pop().expect("a segment");
    let used = fs::read(&segment).expect("reads").iter().rposition(|b| *b != 0).expect("events") + 1;
    // Commits after it witness what stood before them.
    let server = Server::start(pristine.path(), quiet(), world()).expect("starts");
    for _ in 0..3 {
        session(&server).commit();
    }
    server.abandon();
    let mut refused = 0;
    for _ in 0..12 {
        let trial = tempfile::tempdir().expect("a directory");
        copy(pristine.path(), trial.path());
        let (at, with) = (64 + draw.below(used - 64), 1 << draw.below(8));
        let inner = segment.strip_prefix(pristine.path()).expect("below");
        flip(&trial.path().join(inner), at, with);
        refused += usize::from(judge(trial.path(), &format!("{} at {at} of {used}", inner.display())));
    }
    assert!(refused > 6, "only {refused} of 12 were noticed");
}

#[test]
fn a_flipped_byte_in_a_block() {
    let mut draw = Draw(13);
    let pristine = populated(false);
    let block = files(&pristine.path().join("objects/blocks")).pop().expect("a block");
    let len = fs::read(&block).expect("reads").len();
    let mut places: Vec<usize> = (0..3).map(|_| draw.below(len)).collect();
    // The payload's ends, a checksum, the length, the magic, the version.
    places.extend([0, BIG as usize - 1, BIG as usize, len - 16, len - 8, len - 1]);
    let log = Log::default();
    let server = Server::start(pristine.path(), log.options(), world()).expect("starts");
    let key = "blocks/";
    for at in places {
        flip(&block, at, 0x20);
        assert_eq!(look(&session(&server)), 1, "at {at} of {len}");
        assert!(log.text().contains(key) && log.text().contains("corrupt"), "{}", log.text());
        log.0.lock().clear();
        flip(&block, at, 0x20);
        assert_eq!(look(&session(&server)), 0, "healed");
    }
    // One that is too short, and one that is gone.
    let whole = fs::read(&block).expect("reads");
    fs::write(&block, &whole[..len - 1]).expect("writes");
    assert_eq!(look(&session(&server)), 1);
    fs::write(&block, whole).expect("writes");
    assert_eq!(look(&session(&server)), 0);
    server.shutdown().expect("ends");
}

#[test]
fn a_row_that_does_not_decode() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    fill(&server);
    server.shutdown().expect("ends");
    drop(server);
    rig.meta.crash();
    let rows = rig.meta.scan(std::ops::Bound::Unbounded, None, 10_000).expect("scans");
    let of = |tag: u8| rows.iter().filter(move |(key, _)| tag_of(key) == Some(tag));
    // Of each kind that is read while a server runs: one row, cut short.
    for (kind, word) in [(tag::CHUNK, "map"), (tag::INODE, "inode"), (tag::ENTRY, "entry")] {
        let (key, value) = of(kind).next_back().expect("such a row");
        if StoredRow::decode(key, value).expect("decodes").is_none() {
            panic!("not one of the namespace's");
        }
        let put = |value: Vec<u8>| {
            rig.meta.commit(&Batch::from_iter([(key, Some(value))])).expect("commits");
        };
        put(value[..value.len() - 1].to_vec());
        let log = Log::default();
        let server = rig.start(log.options());
        let refused = look(&session(&server));
        let most = if kind == tag::ENTRY { 1 } else { FILES as usize / 2 + 5 };
        assert!((1..=most).contains(&refused), "{word}: {refused} refused");
        let said = log.text();
        assert!(said.contains("corrupt") && said.contains(word) && said.contains("chiton fsck"), "{said}");
        assert!(crate::rig::figure(&server, "/uptime_errors") > 0);
        server.abandon();
        drop(server);
        rig.meta.crash();
        put(value.clone());
    }
}

/// The names in a directory, and whether the list ends in an error.
fn list(s: &EmbeddedSession, dir: Ino) -> (Vec<String>, bool) {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        match s.query(Query::ReadDir { dir, cookie, entries_max: 1_000, plus: false, part_end: None }) {
            Ok(Answer::Entries { entries, end, .. }) => {
                cookie = entries.last().map_or(cookie, |e| e.cookie);
                names.extend(entries.iter().map(|e| e.name.to_string()));
                if end {
                    return (names, false);
                }
            }
            Err(Failure::Refused(Refusal::Io)) => return (names, true),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_directory_with_an_entry_that_does_not_decode_is_served_but_for_that() {
    // One that is held whole, and one that is read in slices.
    for files in [50, 5_000] {
        let rig = Rig::new();
        let server = rig.start(quiet());
        let s = session(&server);
        let dir = s.mkdir(Ino::ROOT, "dir");
        for n in 0..files {
            s.op(make(dir, &format!("file {n}"), Make::File { content: Vec::new() }));
        }
        server.shutdown().expect("ends");
        drop((s, server));
        rig.meta.crash();
        let victim = crate::rig::name("file 7");
        let key = chiton_namespace::entry_row_key(dir, &victim);
        // Its name cannot be read, either.
        let nameless = [&key[..17], b"?"].concat();
        for (key, names) in [(key, files - 1), (nameless, files)] {
            let change = |value| rig.meta.commit(&Batch::from_iter([(&key, value)])).expect("commits");
            let before = rig.meta.get(&key).expect("reads");
            change(Some(vec![1, 2]));
            let log = Log::default();
            let server = rig.start(log.options());
            let s = session(&server);
            let bad = names < files;
            let check = || {
                let (listed, failed) = list(&s, dir);
                assert_eq!((listed.len() as u64, failed), (names, true), "of {files}");
                let asked = Query::Lookup { parent: dir, name: crate::rig::name("file 8") };
                assert!(matches!(s.query(asked), Ok(Answer::Attr { .. })));
                let asked = s.query(Query::Lookup { parent: dir, name: victim.clone() });
                assert_eq!(asked == Err(Failure::Refused(Refusal::Io)), bad, "{asked:?}");
            };
            check();
            if bad {
                let op = make(dir, "file 7", Make::File { content: Vec::new() });
                let made = s.try_call(Call::Op { op, open: false });
                assert_eq!(made, Err(Failure::Refused(Refusal::Io)), "it is there, whatever it is");
            }
            // Changes beside it do not affect it.
            s.op(make(dir, "new", Make::File { content: Vec::new() }));
            server.checkpoint().expect("a checkpoint");
            s.op(Op::Unlink { parent: dir, name: crate::rig::name("new") });
            server.checkpoint().expect("a checkpoint");
            check();
            assert!(log.text().contains("an entry of a directory"), "{}", log.text());
            server.shutdown().expect("ends");
            drop((s, server));
            rig.meta.crash();
            assert_eq!(rig.meta.get(&key), Ok(Some(vec![1, 2])));
            change(before);
        }
    }
}

#[test]
fn a_damaged_table_costs_what_stands_in_the_damaged_part() {
    let pristine = populated(false);
    let server = Server::start(pristine.path(), quiet(), world()).expect("starts");
    let s = session(&server);
    let dir = s.mkdir(Ino::ROOT, "dir");
    for n in 0..1_000 {
        s.op(make(dir, &format!("file {n}"), Make::File { content: content(n) }));
    }
    server.shutdown().expect("ends");
    drop((s, server));
    let meta = pristine.path().join("meta");
    chiton_metastore::FjallMetastore::open(&meta, Default::default())
        .expect("opens")
        .settle()
        .expect("settles");
    let tables = files(&meta).into_iter().filter(|path| path.to_string_lossy().contains("/tables/"));
    let table = tables.max_by_key(|path| fs::metadata(path).expect("metadata").len()).expect("a table");
    // Among the rows of entries, which are by far the most but for content and inodes: those come between.
    let bytes = fs::read(&table).expect("reads");
    let at = bytes.len() / 2;
    flip(&table, at, 0x10);
    let log = Log::default();
    let server = Server::start(pristine.path(), log.options(), world()).expect("starts");
    let s = session(&server);
    let (mut found, mut refused) = (0, 0);
    for n in 0..1_000 {
        match s.query(Query::Lookup { parent: dir, name: crate::rig::name(&format!("file {n}")) }) {
            Ok(Answer::Attr { .. }) => found += 1,
            Err(Failure::Refused(Refusal::Io)) => refused += 1,
            other => panic!("file {n}: {other:?}"),
        }
    }
    assert!(refused > 0 && found > 700, "{found} found, {refused} refused");
    let (listed, failed) = list(&s, dir);
    assert!(failed, "{} listed, as if that were all", listed.len());
    assert!(log.text().contains("orrupt"), "{}", log.text());
    server.abandon();
}
