//! Inserts, reads and sizes of the metadata store with rows like those of a file system.
//!
//! `cargo run --release -p chiton-metastore --example metastore_speed -- DIRECTORY [PAIRS]`
//!
//! A pair is a file: its entry (`E` directory hash name → inode number, type, position) and its inode
//! (`I` number → 60 bytes of which about a third differ between neighbours). Directories have 1,000 files.

use std::ops::Bound;
use std::path::PathBuf;
use std::time::Duration;

use chiton_metastore::{Batch, FjallMetastore, FjallOptions, Metastore, prefix_end};
use chiton_runtime::{RealWorld, SeededWorld, World};

const PAIRS_PER_COMMIT: u64 = 50_000;
const FILES_PER_DIR: u64 = 1000;
const READS: u64 = 200_000;

fn mix(n: u64) -> u64 {
    SeededWorld::new(n).random()
}

fn entry_key(file: u64) -> Vec<u8> {
    let dir = (1u64 << 40) + file / FILES_PER_DIR;
    [b"E", dir.to_be_bytes().as_slice(), &mix(file).to_be_bytes(), format!("f.{file:010}").as_bytes()]
        .concat()
}

fn inode_key(file: u64) -> Vec<u8> {
    [b"I".as_slice(), &((7u64 << 40) + file).to_be_bytes()].concat()
}

fn commit_of(first: u64) -> Batch {
    let mut rows = Vec::new();
    for file in first..first + PAIRS_PER_COMMIT {
        let entry = [&((7u64 << 40) + file).to_le_bytes()[..], &[8], &file.to_le_bytes()].concat();
        rows.push((entry_key(file), Some(entry)));
        // Kind and mode, owner, group, links, size, three times that differ in their last 4 bytes, position.
        let time = 1_795_000_000_000_000_000 + mix(file) % (1 << 31);
        let words = [0o100_644 << 32 | 1000, 1000 << 32 | 1, mix(file ^ 1) % 100_000, time, time, time, file];
        let mut inode: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        inode.extend([0; 4]);
        rows.push((inode_key(file), Some(inode)));
    }
    rows.sort();
    rows.into_iter().collect()
}

fn timed<T>(what: &str, count: u64, run: impl FnOnce() -> T) -> T {
    let start = RealWorld.monotonic();
    let result = run();
    let took = RealWorld.monotonic() - start;
    println!("{what:36} {:10.0} /s", count as f64 / took.as_secs_f64());
    result
}

/// Gets of rows that are there and of rows that are not, in random order.
fn reads(store: &FjallMetastore, world: &SeededWorld, pairs: u64, when: &str) {
    let some = || world.random() % pairs;
    let get = |what: &str, key: &mut dyn FnMut() -> Vec<u8>, present: bool| {
        timed(&format!("get {what}, {when}"), READS, || {
            for _ in 0..READS {
                assert_eq!(store.get(&key()).expect("get").is_some(), present);
            }
        });
    };
    get("entry", &mut || entry_key(some()), true);
    get("inode", &mut || inode_key(some()), true);
    get("absent entry", &mut || [entry_key(some()).as_slice(), b"x"].concat(), false);
    get("absent inode", &mut || inode_key(pairs + some()), false);
}

fn main() {
    let mut args = std::env::args_os().skip(1);
    let dir = args.next().map(PathBuf::from).expect("usage: metastore_speed DIRECTORY [PAIRS]");
    let pairs =
        args.next().map_or(2_000_000, |pairs| pairs.to_str().and_then(|s| s.parse().ok()).expect("a number"));
    let pairs = pairs / PAIRS_PER_COMMIT * PAIRS_PER_COMMIT;
    let store = FjallMetastore::open(&dir, FjallOptions::default()).expect("open");

    let mut commits: Vec<Duration> = Vec::new();
    let mut spent = Duration::ZERO;
    for first in (0..pairs).step_by(PAIRS_PER_COMMIT as usize) {
        let batch = commit_of(first);
        let start = RealWorld.monotonic();
        store.commit(&batch).expect("commit");
        commits.push(RealWorld.monotonic() - start);
        spent += commits[commits.len() - 1];
    }
    commits.sort();
    println!("{:36} {:10.0} /s", "rows inserted, 100,000 a commit", 2.0 * pairs as f64 / spent.as_secs_f64());
    println!(
        "commit ms: median {:.0}, longest {:.0}",
        ms(commits[commits.len() / 2]),
        ms(commits[commits.len() - 1])
    );

    let report = |when: &str, store: &FjallMetastore| {
        let stats = store.stats().expect("stats");
        println!("{when:36} {:10.1} bytes a pair ({stats:?})", stats.disk_bytes as f64 / pairs as f64);
    };
    report("on disk at once", &store);
    let world = SeededWorld::new(1);
    reads(&store, &world, pairs, "at once");
    timed("settle (pairs)", pairs, || store.settle().expect("settle"));
    // Tables that compaction has replaced go when the store is opened.
    store.close().expect("close");
    let store = FjallMetastore::open(&dir, FjallOptions::default()).expect("open");
    report("on disk, settled", &store);

    for round in ["first", "second"] {
        reads(&store, &world, pairs, round);
    }
    timed("get_many of 100 entries (rows)", READS, || {
        for _ in 0..READS / 100 {
            let keys: Vec<Vec<u8>> = (0..100).map(|_| entry_key(world.random() % pairs)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            assert!(store.get_many(&keys).expect("get_many").iter().all(Option::is_some));
        }
    });
    timed("scan, pages of 1,000 (rows)", 2 * pairs, || {
        let (mut last, mut rows) = (b"E".to_vec(), 0);
        loop {
            let page = store.scan(Bound::Excluded(&last), None, 1000).expect("scan");
            rows += page.len() as u64;
            let Some((key, _)) = page.into_iter().last() else { break };
            last = key;
        }
        assert_eq!(rows, 2 * pairs);
    });
    timed("scan of a directory (rows)", READS, || {
        for _ in 0..READS / FILES_PER_DIR {
            let prefix = entry_key(world.random() % pairs)[..9].to_vec();
            let end = prefix_end(&prefix);
            let rows = store.scan(Bound::Included(&prefix), end.as_deref(), usize::MAX).expect("scan");
            assert_eq!(rows.len() as u64, FILES_PER_DIR);
        }
    });
    println!(
        "memory: {}",
        std::fs::read_to_string("/proc/self/status")
            .expect("status")
            .lines()
            .filter(|l| l.starts_with("VmHWM"))
            .collect::<String>()
    );
    timed("close", 1, || store.close().expect("close"));
    timed("open", 1, || FjallMetastore::open(&dir, FjallOptions::default()).expect("open"));
    println!("one commit of 1,000,000 rows:");
    let store = FjallMetastore::open(&dir, FjallOptions::default()).expect("open");
    let mut large = Batch::new();
    for n in 0..1_000_000u64 {
        large.put([b"L".as_slice(), &n.to_be_bytes()].concat(), mix(n).to_le_bytes());
    }
    timed("rows inserted, 1,000,000 a commit", 1_000_000, || store.commit(&large).expect("commit"));
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
