//! Damaged files of the metadata store: the unreadable parts are named, and everything else is checked.

use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::damage::content;
use crate::rig::{Hand, Rig};
use chiton_admin::fsck::{Finding, Offline, Options, Problem, Summary, check, repair};
use chiton_metastore::{
    Batch, FjallMetastore, FjallOptions, MemoryMetastore, Metastore, Row, StoreError, StoreStats,
};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{DataAddress, FormatOptions, Server, ServerOptions};
use chiton_types::{Ino, Time};

/// A store in which rows of these ranges (first, last) cannot be read.
struct Damaged {
    store: Arc<MemoryMetastore>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Damaged {
    fn corrupt<T>(&self) -> Result<T, StoreError> {
        Err(StoreError::Corrupt { path: PathBuf::new(), cause: "checksum".to_owned() })
    }
}

impl Metastore for Damaged {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.ranges.iter().any(|(first, last)| (&first[..]..=&last[..]).contains(&key)) {
            true => self.corrupt(),
            false => self.store.get(key),
        }
    }
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        keys.iter().map(|key| self.get(key)).collect()
    }
    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        let page = self.store.scan(start, end, limit)?;
        // As the library does: it reads the block with the next row in any case.
        match page.iter().any(|(key, _)| self.get(key).is_err()) {
            true => self.corrupt(),
            false => Ok(page),
        }
    }
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.store.commit(batch)
    }
    fn stats(&self) -> Result<StoreStats, StoreError> {
        self.store.stats()
    }
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn look(store: &dyn Metastore, rig: &Rig) -> (Summary, Vec<Finding>) {
    let mut found = Vec::new();
    let summary = check(store, &*rig.objects, &content(), &mut |f| found.push(f), &mut |_| {});
    (summary.expect("checks"), found)
}

#[test]
fn the_check_continues_behind_unreadable_rows() {
    let rig = Rig::new();
    rig.serve(|server| {
        let s = Hand::new(server);
        for d in 0..20 {
            let dir = s.dir(Ino::ROOT, &format!("dir {d}"));
            for f in 0..50 {
                s.file(dir, &format!("file {f}"), b"content");
            }
        }
        let big = s.file(Ino::ROOT, "big", b"");
        s.write(big, &[(0, 1_000, 1)], 1_000);
    });
    let rows = rig.rows();
    let all = rows.len() as u64;
    // Real damage beside it: still found.
    let block = chiton_types::BlockId::parse_key(
        &chiton_objects::Objects::list(&*rig.objects, "blocks/", None, 10).expect("lists")[0].key,
    );
    chiton_objects::Objects::delete(&*rig.objects, &block.expect("a block").key()).expect("deletes");
    // Ranges of rows by their numbers: at the ends, side by side, single ones, most of all.
    let last = rows.len() - 1;
    for ranges in [
        vec![(0, 0)],
        vec![(last, last)],
        vec![(10, 30), (32, 40)],
        vec![(5, 5), (900, 1000), (1001, 1001), (1500, 1700)],
        vec![(3, last - 3)],
    ] {
        let lost: usize = ranges.iter().map(|(first, last)| last - first + 1).sum();
        let keys = ranges.iter().map(|&(a, b)| (rows[a].0.clone(), rows[b].0.clone())).collect();
        let store = Damaged { store: rig.meta.clone(), ranges: keys };
        let (summary, found) = look(&store, &rig);
        // A row or two between two damages may be passed over with them.
        let read = all - lost as u64;
        assert!((read - 2..=read).contains(&summary.rows), "{ranges:?}: {} of {read}", summary.rows);
        assert!((1..=ranges.len() as u64).contains(&summary.unreadable), "{ranges:?}: {found:?}");
        for finding in &found {
            let expected =
                matches!(finding.problem, Problem::UnreadableRows { .. } | Problem::MissingBlock { .. });
            assert!(expected, "{ranges:?}: {finding}");
        }
        assert!(
            found[0].to_string().contains("cannot be read") && found[0].to_string().contains("chiton dump")
        );
        // Nothing is changed.
        let mut reported = Vec::new();
        let report = &mut |f: &Finding, repaired: bool| reported.push((f.problem.name(), repaired));
        let done = repair(&store, &*rig.objects, &content(), Time(7), report, &mut |_| {}).expect("looks");
        assert_eq!((done.repaired, done.left), (0, found.len() as u64), "{reported:?}");
        assert_eq!(rig.rows(), rows);
    }
}

/// The same of the library's own files, by a server's data directory.
#[test]
fn a_flipped_byte_in_a_table() {
    let dir = tempfile::tempdir().expect("a directory");
    let world: SharedWorld = Arc::new(RealWorld);
    Server::format(dir.path(), &FormatOptions::default(), &world).expect("formats");
    let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
    let server = Server::start(dir.path(), options, world.clone()).expect("starts");
    let hand = Hand::new(&server);
    let dirs: Vec<Ino> = (0..20).map(|n| hand.dir(Ino::ROOT, &format!("dir {n}"))).collect();
    for (n, dir) in dirs.iter().cycle().take(2_000).enumerate() {
        hand.file(*dir, &format!("file {n}"), format!("what file {n} holds").as_bytes());
    }
    hand.sync();
    drop(hand);
    server.shutdown().expect("ends");
    drop(server);
    // All rows into one table.
    let meta = dir.path().join("meta");
    FjallMetastore::open(&meta, FjallOptions::default()).expect("opens").settle().expect("settles");
    let data: DataAddress = dir.path().into();
    let look = || {
        let offline = Offline::open(&data, world.clone(), &mut |_, _| {}).expect("opens");
        let mut found = Vec::new();
        let summary =
            offline.check(&Options::default(), &mut |f| found.push(f), &mut |_| {}).expect("checks");
        (summary, found)
    };
    let (whole, found) = look();
    assert_eq!(found, []);
    let table = largest(&meta.join("rows")).expect("a table");
    let file = std::fs::File::options().read(true).write(true).open(&table).expect("opens");
    let flip = |at: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("reads");
        file.write_all_at(&[byte[0] ^ 0x10], at).expect("writes");
    };
    let bytes = file.metadata().expect("metadata").len();
    // In the first block stands the position from which on the journal counts.
    for (at, names) in [
        (1_000, &["journal-damage", "unreadable-rows"][..]),
        (bytes / 4, &["unreadable-rows"]),
        (bytes / 2, &["unreadable-rows"]),
    ] {
        flip(at);
        let (summary, found) = look();
        let reported: Vec<_> = found.iter().map(|f| f.problem.name()).collect();
        assert_eq!((summary.unreadable, &reported[..]), (1, names), "at {at} of {bytes}: {found:?}");
        // A block of the table, not more.
        assert!(
            summary.rows < whole.rows && summary.rows > whole.rows - 400,
            "{} of {}",
            summary.rows,
            whole.rows
        );
        flip(at);
    }
    assert_eq!(look().1, []);
}

pub(crate) fn largest(dir: &std::path::Path) -> Option<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let entry = entry.expect("an entry");
            let meta = entry.metadata().expect("metadata");
            // A journal of the library is longer than its content.
            if meta.is_dir() {
                dirs.push(entry.path());
            } else if entry.path().to_string_lossy().contains("/tables/") {
                files.push((meta.len(), entry.path()));
            }
        }
    }
    files.sort();
    files.pop().map(|(_, path)| path)
}
