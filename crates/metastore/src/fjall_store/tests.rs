use std::io;

use super::*;

fn open(path: &Path) -> Result<FjallMetastore, StoreError> {
    FjallMetastore::open(path, FjallOptions { memtable_bytes: 1 << 20, ..FjallOptions::default() })
}

/// 20 commits of 100 rows, the last number in row "n".
fn filled(path: &Path) -> FjallMetastore {
    let store = open(path).unwrap();
    for commit in 1..=20u64 {
        let mut batch = Batch::new();
        (0..100u64).for_each(|n| batch.put(format!("k{:06}", commit * 1000 + n), vec![n as u8; 100]));
        batch.put("n", commit.to_le_bytes());
        store.commit(&batch).unwrap();
    }
    store
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

fn journal(path: &Path) -> PathBuf {
    let mut found = Vec::new();
    files(path, &mut found).unwrap();
    found.retain(|file| file.extension().is_some_and(|ext| ext == "jnl"));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Cuts the zeros that a journal is made with (64 MiB), so that copies are cheap.
fn trim_journal(path: &Path) -> (PathBuf, u64) {
    let journal = journal(path);
    let used = fs::read(&journal).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    fs::OpenOptions::new().write(true).open(&journal).unwrap().set_len(used).unwrap();
    (journal, used)
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// A copy of an open store, which tidies up in the background: taken again until nothing changed meanwhile.
fn copy_at_rest(from: &Path, to: &Path) {
    let look = || {
        let mut found = Vec::new();
        files(from, &mut found)?;
        found
            .into_iter()
            .map(|file| Ok((fs::metadata(&file)?.modified()?, file)))
            .collect::<io::Result<Vec<_>>>()
    };
    loop {
        let (before, copied) = (look(), copy_tree(from, to));
        if copied.is_ok() && before.is_ok_and(|before| look().is_ok_and(|after| before == after)) {
            return;
        }
        fs::remove_dir_all(to).unwrap();
    }
}

#[test]
fn two_openers_notice_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let _first = filled(dir.path());
    let second = open(dir.path()).err().expect("the store is in use");
    assert_eq!(second, StoreError::Busy { path: dir.path().to_owned() });
}

/// The promise behind `acked`: damage anywhere in the journal is reported, or every acknowledged row exists.
#[test]
fn a_lost_commit_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    drop(filled(&whole));
    let (journal, used) = trim_journal(&whole);
    let bytes = fs::read(&journal).unwrap();
    let journal = journal.strip_prefix(&whole).unwrap();
    let mut reported = 0;
    for case in 0..24 {
        let copy = dir.path().join(format!("copy{case}"));
        copy_tree(&whole, &copy).unwrap();
        let file = fs::OpenOptions::new().read(true).write(true).open(copy.join(journal)).unwrap();
        let at = (used - 1) * case / 23;
        if case % 2 == 0 {
            file.set_len(at).unwrap();
        } else {
            std::os::unix::fs::FileExt::write_all_at(&file, &[bytes[at as usize] ^ 0xff], at).unwrap();
        }
        match open(&copy) {
            Ok(store) => assert_eq!(store.get(b"n"), Ok(Some(20u64.to_le_bytes().to_vec())), "case {case}"),
            Err(StoreError::Corrupt { path, .. }) => {
                assert_eq!(path, copy);
                reported += 1;
            }
            Err(other) => panic!("case {case}: {other}"),
        }
    }
    assert!(reported >= 20, "only {reported} of 24 damages were noticed");
}

/// A store that fjall would take for an unfinished one is reported and left unchanged: with the file restored, all
/// rows exist.
#[test]
fn a_store_without_one_of_its_markers_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let store = filled(&whole);
    // The rows are in tables, and a later commit is not: its number alone would not show that they are lost.
    store.settle().unwrap();
    let mut batch = Batch::new();
    batch.put("n", 21u64.to_le_bytes());
    store.commit(&batch).unwrap();
    drop(store);
    trim_journal(&whole);
    let look = |path: &Path| {
        let mut found = Vec::new();
        files(path, &mut found).unwrap();
        found.sort();
        found.into_iter().map(|file| (fs::read(&file).unwrap(), file)).collect::<Vec<_>>()
    };
    for name in [
        "version",
        "keyspaces/0/current",
        "keyspaces/1/current",
        "keyspaces/0",
        "keyspaces/1",
        "keyspaces",
        "",
    ] {
        let copy = dir.path().join("copy");
        copy_tree(&whole, &copy).unwrap();
        let (lost, aside) = (copy.join("rows").join(name), dir.path().join("aside"));
        fs::rename(&lost, &aside).unwrap();
        let before = look(&copy);
        match open(&copy).err().unwrap_or_else(|| panic!("without {name:?}: made anew")) {
            StoreError::Corrupt { cause, .. } => {
                assert!(cause.contains("is missing"), "without {name:?}: {cause}")
            }
            other => panic!("without {name:?}: {other}"),
        }
        assert!(look(&copy) == before, "without {name:?}: something was touched");
        fs::rename(&aside, &lost).unwrap();
        let store = open(&copy).unwrap();
        assert_eq!(store.get(b"n"), Ok(Some(21u64.to_le_bytes().to_vec())));
        assert_eq!(store.get(b"k001000"), Ok(Some(vec![0; 100])));
        drop(store);
        fs::remove_dir_all(&copy).unwrap();
    }
    // Before the first acknowledgement there is nothing to lose: an interrupted creation begins anew.
    let young = dir.path().join("young");
    drop(open(&young).unwrap());
    fs::remove_file(young.join("rows/keyspaces/1/current")).unwrap();
    open(&young).unwrap();
}

/// Bytes behind the last acknowledged commit are a torn commit: all of it or none.
#[test]
fn a_torn_commit_is_gone_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let store = filled(&whole);
    let acked = fs::read(whole.join("acked")).unwrap();
    let mut batch = Batch::new();
    (0..1000u64).for_each(|n| batch.put(format!("torn{n:06}"), vec![n as u8; 50]));
    batch.put("n", 21u64.to_le_bytes());
    store.commit(&batch).unwrap();
    drop(store);
    // As if the crash had come before the acknowledgement.
    fs::write(whole.join("acked"), acked).unwrap();
    let (journal, used) = trim_journal(&whole);
    fs::OpenOptions::new().write(true).open(&journal).unwrap().set_len(used - 20_000).unwrap();
    let store = open(&whole).unwrap();
    assert_eq!(store.get(b"n"), Ok(Some(20u64.to_le_bytes().to_vec())));
    assert_eq!(store.scan(Bound::Included(b"torn"), Some(b"tosn"), 10), Ok(vec![]));
    assert_eq!(store.scan(Bound::Unbounded, None, usize::MAX).unwrap().len(), 2001);
    store.commit(&Batch::from_iter([("n", Some("again"))])).unwrap();
    drop(store);
    assert_eq!(open(&whole).unwrap().get(b"n"), Ok(Some(b"again".to_vec())));
}

/// Damage in any file: no panic, no wrong value; an error of this store or the right rows.
#[test]
fn damaged_files_are_typed_errors() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let store = filled(&whole);
    store.settle().unwrap();
    let good = store.scan(Bound::Unbounded, None, usize::MAX).unwrap();
    drop(store);
    trim_journal(&whole);
    let mut all = Vec::new();
    files(&whole, &mut all).unwrap();
    let (mut cases, mut reported) = (0, 0);
    for file in all {
        let name = file.strip_prefix(&whole).unwrap();
        let bytes = fs::read(&file).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for step in 0..6 {
            let copy = dir.path().join("copy");
            copy_tree(&whole, &copy).unwrap();
            let mut bytes = bytes.clone();
            match step {
                0 => bytes.clear(),
                1 => bytes.truncate(used / 2),
                _ if used == 0 => continue,
                _ => bytes[(used - 1) * (step - 2) / 3] ^= 0x55,
            }
            fs::write(copy.join(name), bytes).unwrap();
            cases += 1;
            let rows = open(&copy).and_then(|store| store.scan(Bound::Unbounded, None, usize::MAX));
            match rows {
                Ok(rows) => assert!(
                    rows == good,
                    "{name:?} step {step}: wrong rows ({} of {})",
                    rows.len(),
                    good.len()
                ),
                Err(StoreError::Corrupt { path, .. } | StoreError::Io { path, .. }) => {
                    assert_eq!(path, copy);
                    reported += 1;
                }
                Err(other) => panic!("{name:?} step {step}: {other}"),
            }
            fs::remove_dir_all(&copy).unwrap();
        }
    }
    assert!(reported > 0, "none of {cases} damages was noticed");
}

/// Commits through the journal and past it, alternately and over the same keys: the later one wins, also after a
/// crash, when the journal still has rows that tables have replaced.
#[test]
fn ingested_and_inserted_commits_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let options = FjallOptions { ingest_rows_min: 50, ..FjallOptions::default() };
    let store = FjallMetastore::open(&whole, options).unwrap();
    let mut expected = std::collections::BTreeMap::new();
    for commit in 0..12u64 {
        let mut batch = Batch::new();
        // 10 rows are inserted, 100 ingested.
        for n in 0..if commit % 3 == 0 { 100 } else { 10 } {
            let key = format!("k{:03}", (n * 7 + commit * 3) % 120).into_bytes();
            if (n + commit) % 5 == 0 {
                expected.remove(&key);
                batch.delete(key);
            } else {
                let value = format!("{commit}-{n}").into_bytes();
                expected.insert(key.clone(), value.clone());
                batch.put(key, value);
            }
        }
        store.commit(&batch).unwrap();
        let rows: Vec<_> = expected.clone().into_iter().collect();
        assert_eq!(store.scan(Bound::Unbounded, None, usize::MAX).unwrap(), rows, "commit {commit}");
        // As it is on disk now: nothing is closed first.
        let copy = dir.path().join(format!("copy{commit}"));
        copy_at_rest(&whole, &copy);
        let copied = FjallMetastore::open(&copy, options).unwrap();
        assert_eq!(copied.scan(Bound::Unbounded, None, usize::MAX).unwrap(), rows, "copy of {commit}");
    }
}

/// Tables of an ingestion that compaction has replaced are deleted, both when the store is idle and while many more
/// rows are written.
#[test]
fn replaced_tables_of_an_ingestion_go() {
    let dir = tempfile::tempdir().unwrap();
    let tables = |path: &Path| disk_bytes(&path.join("rows/keyspaces")).unwrap();
    for settles in [true, false] {
        let path = dir.path().join(format!("{settles}"));
        let options = FjallOptions { ingest_rows_min: 1_000, ..FjallOptions::default() };
        let store = FjallMetastore::open(&path, options).unwrap();
        for commit in 0..4u64 {
            let mut batch = Batch::new();
            (0..20_000u64)
                .for_each(|n| batch.put(format!("k{:06}", n * 4 + commit), n.to_le_bytes().repeat(8)));
            store.commit(&batch).unwrap();
        }
        if settles {
            store.settle().unwrap();
        } else {
            store.run(|open| open.rows.major_compact()).unwrap();
            // Two: before the first, the last view still shows the tables from before.
            for _ in 0..2 {
                store.commit(&Batch::from_iter([("n", Some("1"))])).unwrap();
            }
        }
        let bytes = tables(&path);
        store.close().unwrap();
        // Files that no version names are deleted at the next start.
        drop(FjallMetastore::open(&path, options).unwrap());
        let alone = tables(&path);
        assert!(bytes < alone * 5 / 4, "settles: {settles}: {bytes} bytes, and {alone} after a new start");
    }
}

/// Every byte of a list: the damage is reported before the library deletes tables that the list does not name, and
/// the copy heals it.
#[test]
fn a_damaged_list_is_named_and_rebuilt_from_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let store = filled(&whole);
    store.settle().unwrap();
    let good = store.scan(Bound::Unbounded, None, usize::MAX).unwrap();
    store.close().unwrap();
    trim_journal(&whole);
    let mut all = Vec::new();
    files(&whole.join("rows"), &mut all).unwrap();
    let is_list = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        name == "current" || name.strip_prefix('v').is_some_and(|rest| rest.parse::<u64>().is_ok())
    };
    let lists: Vec<PathBuf> = all.into_iter().filter(is_list).collect();
    assert!(lists.len() >= 4, "{lists:?}");
    let mut cases = 0;
    for file in lists {
        let name = file.strip_prefix(&whole).unwrap();
        let bytes = fs::read(&file).unwrap();
        for at in (0..bytes.len()).step_by(bytes.len() / 7 + 1) {
            let copy = dir.path().join("copy");
            copy_tree(&whole, &copy).unwrap();
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            fs::write(copy.join(name), bytes).unwrap();
            let error = open(&copy).err().map(|e| e.to_string());
            // A list that does not count any more does no harm.
            let reported =
                error.as_ref().is_none_or(|e| e.contains("rows/keyspaces/") && e.contains("--rebuild"));
            assert!(reported, "{name:?} byte {at}: {error:?}");
            let done = FjallMetastore::rebuild(&copy, FjallOptions::default()).unwrap();
            assert_eq!(done.is_empty(), error.is_none(), "{name:?} byte {at}: {done:?}");
            let rows = open(&copy).unwrap().scan(Bound::Unbounded, None, usize::MAX).unwrap();
            assert!(rows == good, "{name:?} byte {at}: {} of {} rows", rows.len(), good.len());
            fs::remove_dir_all(&copy).unwrap();
            cases += 1;
        }
    }
    assert!(cases > 20, "{cases}");
}

#[test]
fn a_missing_lock_is_made_again_and_a_missing_marker_comes_from_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = filled(&path);
    let good = store.scan(Bound::Unbounded, None, usize::MAX).unwrap();
    store.close().unwrap();
    fs::remove_file(path.join("rows/lock")).unwrap();
    assert_eq!(open(&path).unwrap().scan(Bound::Unbounded, None, usize::MAX).unwrap(), good);
    for name in ["rows/version", "rows/keyspaces/0/current", "rows/keyspaces/1/current"] {
        fs::remove_file(path.join(name)).unwrap();
        let error = open(&path).err().expect("refused").to_string();
        assert!(error.contains(name) && error.contains("--rebuild"), "{error}");
        FjallMetastore::rebuild(&path, FjallOptions::default()).unwrap();
        assert_eq!(open(&path).unwrap().scan(Bound::Unbounded, None, usize::MAX).unwrap(), good);
    }
}

/// A byte of the library's journal: the error names it, and a rebuild goes back to a commit before the damage.
#[test]
fn a_damaged_journal_of_the_library_is_named_and_the_rows_go_back() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let store = open(&whole).unwrap();
    for n in 0..10u64 {
        store
            .commit(&Batch::from_iter([("n", Some(n.to_le_bytes())), ("m", Some(n.to_le_bytes()))]))
            .unwrap();
    }
    store.close().unwrap();
    let bytes = fs::read(whole.join("rows/0.jnl")).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let mut reported = 0;
    for at in (0..used).step_by(used / 40).chain([used / 2]) {
        let path = dir.path().join("copy");
        copy_tree(&whole, &path).unwrap();
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        fs::write(path.join("rows/0.jnl"), bytes).unwrap();
        let error = open(&path).err().map(|e| e.to_string());
        assert!(
            error.as_ref().is_none_or(|e| e.contains("rows/0.jnl") && e.contains("--rebuild")),
            "byte {at}: {error:?}"
        );
        reported += u32::from(error.is_some());
        let done = FjallMetastore::rebuild(&path, FjallOptions::default()).unwrap();
        assert_eq!(
            done.iter().any(|line| line.starts_with("went back to commit")),
            error.is_some(),
            "{done:?}"
        );
        let store = open(&path).unwrap();
        let (n, m) = (store.get(b"n").unwrap(), store.get(b"m").unwrap());
        assert!(n == m, "byte {at}: parts of a commit");
        let is_older = n.is_none_or(|n| n < 9u64.to_le_bytes().to_vec());
        assert_eq!(is_older, error.is_some(), "byte {at}");
        assert!(path.join("rows.before-rebuild").is_dir());
        store.commit(&Batch::from_iter([("n", Some("again"))])).unwrap();
        drop(store);
        fs::remove_dir_all(&path).unwrap();
    }
    assert!(reported > 30, "{reported}");
}

/// If the library's journal cannot be read at all, the rows are those of the tables.
#[test]
fn a_rebuild_without_the_librarys_journal_keeps_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = filled(&path);
    store.settle().unwrap();
    let good = store.scan(Bound::Unbounded, None, usize::MAX).unwrap();
    store.commit(&Batch::from_iter([("later", Some("1"))])).unwrap();
    store.close().unwrap();
    let journal = path.join("rows").join(journal_names(&path).pop().unwrap());
    let len = fs::read(&journal).unwrap().len();
    fs::write(&journal, vec![0xa5; len]).unwrap();
    FjallMetastore::rebuild(&path, FjallOptions::default()).unwrap();
    let store = open(&path).unwrap();
    assert!(store.scan(Bound::Unbounded, None, usize::MAX).unwrap() == good);
    store.commit(&Batch::from_iter([("later", Some("2"))])).unwrap();
    drop(store);
    assert_eq!(open(&path).unwrap().get(b"later").unwrap().unwrap(), b"2");
}

/// A commit that may not rest on the library's journal becomes tables at once, and so do those before it.
#[test]
fn a_large_commit_is_settled_with_all_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = FjallOptions { unsettled_bytes: 1 << 20, ..FjallOptions::default() };
    let store = FjallMetastore::open(&dir.path().join("store"), options).unwrap();
    store.commit(&Batch::from_iter([("small", Some("1"))])).unwrap();
    assert_eq!(store.settled(), (1, 0));
    let large = (0..2_000).map(|n| (format!("k{n:04}"), Some(vec![7; 1_000])));
    store.commit(&Batch::from_iter(large.collect::<Vec<_>>())).unwrap();
    assert_eq!(store.settled(), (2, 2));
}

/// Removed rows free their space, also in the library's journal, and nothing else is lost.
#[test]
fn reclaiming_gives_back_tables_and_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = FjallOptions { unsettled_bytes: 1 << 20, ..FjallOptions::default() };
    let store = FjallMetastore::open(&path, options).unwrap();
    let key = |n: u64| format!("k{n:06}");
    let mut random = 1u64;
    // Nothing that can be compressed.
    let mut value = || {
        let mut byte = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        };
        (0..500).map(|_| byte()).collect::<Vec<u8>>()
    };
    for commit in 0..20u64 {
        let rows = (0..1_000).map(|n| (key(commit * 1_000 + n), Some(value())));
        store.commit(&Batch::from_iter(rows.collect::<Vec<_>>())).unwrap();
    }
    let before = store.stats().unwrap().disk_bytes;
    let (commits, settled) = store.settled();
    assert!(commits == 20 && settled <= 20, "{settled}");
    let removed = (0..19_990).map(|n| (key(n), None::<Vec<u8>>));
    store.commit(&Batch::from_iter(removed.collect::<Vec<_>>())).unwrap();
    assert!(!store.reclaim(0, 10).unwrap(), "the other rows do not fit the disk once more");
    assert!(store.reclaim(2 << 20, 19_990).unwrap(), "what is left of them does");
    assert_eq!(store.settled(), (21, 21), "all is in tables");
    let after = store.stats().unwrap().disk_bytes;
    assert!(after < before / 5, "{before} bytes before, {after} after");
    let left = |store: &FjallMetastore| store.scan(Bound::Unbounded, None, usize::MAX).unwrap().len();
    assert_eq!(left(&store), 10);
    store.commit(&Batch::from_iter([("n", Some("1"))])).unwrap();
    drop(store);
    let store = FjallMetastore::open(&path, options).unwrap();
    assert_eq!(
        (left(&store), store.settled()),
        (11, (0, 0)),
        "the last commit rests on the library's journal"
    );
    assert!(store.reclaim(u64::MAX, 1).unwrap());
    assert_eq!((left(&store), store.settled()), (11, (1, 1)), "and is in tables now");
}

/// A data directory that is gone, or whose disk is not mounted, is not begun anew.
#[test]
fn a_store_that_vanished_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (data, elsewhere) = (dir.path().join("data"), dir.path().join("elsewhere"));
    std::fs::create_dir(&data).unwrap();
    let store = FjallMetastore::open(&data.join("meta"), FjallOptions::default()).unwrap();
    store.commit(&Batch::from_iter([("a", Some("1"))])).unwrap();
    std::fs::rename(&data, &elsewhere).unwrap();
    // It may succeed in the files that are open.
    let _ = store.commit(&Batch::from_iter([("b", Some("1"))]));
    drop(store);
    assert!(FjallMetastore::open(&data.join("meta"), FjallOptions::default()).is_err());
    assert!(!data.exists());
    let store = FjallMetastore::open(&elsewhere.join("meta"), FjallOptions::default()).unwrap();
    assert_eq!(store.get(b"a").unwrap(), Some(b"1".to_vec()));
}
