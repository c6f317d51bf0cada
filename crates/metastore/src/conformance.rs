//! The requirements of every metadata store, as one call: [`suite`].
//!
//! Invariants: each case gets a new, empty store from `make`; a failure panics with the difference.

#![expect(clippy::disallowed_methods, reason = "stores are checked by real threads")]

use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::Arc;
use std::thread;

use crate::{Batch, Metastore, Row, StoreError, prefix_end};

pub struct Subject {
    pub store: Arc<dyn Metastore>,
    /// Lets go of it without closing first where the store can bear that (as a crash does), and opens it again.
    pub reopen: Box<Reopen>,
}

/// Opens again the store that it is given.
pub type Reopen = dyn FnMut(Arc<dyn Metastore>) -> Arc<dyn Metastore>;

pub type Make<'a> = &'a dyn Fn() -> Subject;

/// Runs every case. Panics where the store does not conform. Commits about 200,000 rows.
pub fn suite(make: Make<'_>) {
    rows_come_and_go(make());
    scans(&*make().store);
    equal_keys(&*make().store);
    history(make());
    large_batch(make());
    batches_are_seen_whole(make().store);
    snapshots(&*make().store);
    close(make().store);
}

fn batch(rows: &[(&str, Option<&str>)]) -> Batch {
    let mut batch = Batch::new();
    for (key, value) in rows {
        match value {
            Some(value) => batch.put(*key, *value),
            None => batch.delete(*key),
        }
    }
    batch
}

fn text(row: Row) -> (String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("the rows of this case are text");
    (text(row.0), text(row.1))
}

fn rows_come_and_go(mut subject: Subject) {
    let mut store = subject.store;
    assert_eq!(store.get(b"a"), Ok(None));
    assert_eq!(store.get(b""), Ok(None));
    assert_eq!(store.get(b"\xffcommit"), Ok(None));
    store.commit(&Batch::new()).expect("an empty batch");
    store.commit(&batch(&[("a", Some("1")), ("b", Some("")), ("c", Some("3"))])).expect("commit");
    store.commit(&batch(&[("b", None), ("none", None), ("c", Some("4"))])).expect("commit");
    for _ in 0..3 {
        assert_eq!(store.get(b"a"), Ok(Some(b"1".to_vec())));
        let many = store.get_many(&[b"c", b"none", b"b", b"a", b"c"]).expect("get_many");
        let one = |value: &[u8]| Some(value.to_vec());
        assert_eq!(many, [one(b"4"), None, None, one(b"1"), one(b"4")]);
        assert_eq!(store.get_many(&[]), Ok(vec![]));
        let rows = store.scan(Unbounded, None, 10).expect("scan");
        assert_eq!(
            rows.into_iter().map(text).collect::<Vec<_>>(),
            [("a".into(), "1".into()), ("c".into(), "4".into())]
        );
        store = (subject.reopen)(store);
    }
    store.commit(&batch(&[("a", None), ("b", Some("back"))])).expect("commit after reopen");
    store = (subject.reopen)(store);
    assert_eq!(store.get_many(&[b"a", b"b"]), Ok(vec![None, Some(b"back".to_vec())]));
}

fn scans(store: &dyn Metastore) {
    let all: Vec<Vec<u8>> =
        [&b"\0"[..], b"a", b"a\0", b"a\0b", b"ab", b"a\xff", b"a\xff\xff", b"b", b"\xfe\xff"]
            .iter()
            .map(|key| key.to_vec())
            .collect();
    let rows: Batch = all.iter().rev().map(|key| (key, Some(key.repeat(2)))).collect();
    store.commit(&rows).expect("commit");
    let edges: Vec<&[u8]> =
        all.iter().map(Vec::as_slice).chain([&b""[..], b"aa", b"\xff", b"\xff\xff", b"z"]).collect();
    let starts = edges.iter().flat_map(|edge| [Included(*edge), Excluded(*edge)]).chain([Unbounded]);
    for start in starts {
        for end in edges.iter().map(|edge| Some(*edge)).chain([None]) {
            for limit in [0, 1, 2, 100] {
                let wanted =
                    all.iter().filter(|key| after(start, key) && end.is_none_or(|end| key.as_slice() < end));
                let wanted: Vec<Row> = wanted.take(limit).map(|key| (key.clone(), key.repeat(2))).collect();
                let got = store.scan(start, end, limit).expect("scan");
                assert_eq!(got, wanted, "start {start:?} end {end:?} limit {limit}");
            }
        }
    }
    let of_prefix = store.scan(Included(b"a\xff"), prefix_end(b"a\xff").as_deref(), 100).expect("scan");
    assert_eq!(of_prefix.len(), 2);
}

fn after(start: Bound<&[u8]>, key: &[u8]) -> bool {
    match start {
        Included(start) => key >= start,
        Excluded(start) => key > start,
        Unbounded => true,
    }
}

fn equal_keys(store: &dyn Metastore) {
    store
        .commit(&batch(&[("k", Some("1")), ("a", Some("1")), ("k", Some("2")), ("a", None)]))
        .expect("commit");
    assert_eq!(store.get_many(&[b"k", b"a"]), Ok(vec![Some(b"2".to_vec()), None]));
    store.commit(&batch(&[("k", None), ("k", Some("3"))])).expect("commit");
    assert_eq!(store.get(b"k"), Ok(Some(b"3".to_vec())));
}

/// Many commits of puts and deletions against a map, with reopening in between.
fn history(mut subject: Subject) {
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut store = subject.store;
    let mut state = 7u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for commit in 0..120u64 {
        let mut batch = Batch::new();
        for _ in 0..random(60) {
            let key = format!("{}{:03}", ["E", "I"][random(2) as usize], random(400)).into_bytes();
            let value = (random(3) > 0).then(|| vec![commit as u8; random(200) as usize]);
            match &value {
                Some(value) => model.insert(key.clone(), value.clone()),
                None => model.remove(&key),
            };
            batch.push((&key, value.as_deref()));
        }
        batch.put("position", commit.to_le_bytes());
        model.insert(b"position".to_vec(), commit.to_le_bytes().to_vec());
        store.commit(&batch).expect("commit");
        if commit % 30 == 29 {
            store = (subject.reopen)(store);
        }
        if commit % 10 == 9 {
            let mut rows: Vec<Row> = Vec::new();
            loop {
                let start = rows.last().map_or(Unbounded, |(last, _)| Excluded(last.as_slice()));
                let page = store.scan(start, None, 64).expect("scan");
                if page.is_empty() {
                    break;
                }
                rows.extend(page);
            }
            assert!(rows.iter().map(|(k, v)| (k, v)).eq(model.iter()), "rows differ after commit {commit}");
        }
    }
}

fn large_batch(mut subject: Subject) {
    const ROWS: u32 = 100_000;
    let mut large = Batch::new();
    for n in 0..ROWS {
        large.put([b"E".as_slice(), &n.to_be_bytes()].concat(), n.to_le_bytes());
    }
    subject.store.commit(&large).expect("a commit of 100,000 rows");
    let mut half = Batch::new();
    (0..ROWS).step_by(2).for_each(|n| half.delete([b"E".as_slice(), &n.to_be_bytes()].concat()));
    subject.store.commit(&half).expect("a commit of 50,000 deletions");
    let store = (subject.reopen)(subject.store);
    let rows = store.scan(Unbounded, None, usize::MAX).expect("scan");
    assert_eq!(rows.len() as u32, ROWS / 2);
    assert!(rows.iter().zip((1..ROWS).step_by(2)).all(|((_, value), n)| *value == n.to_le_bytes()));
    assert!(store.stats().expect("stats").disk_bytes > 0);
}

/// Every commit writes its number to the same rows, so a reader that sees two numbers saw half a batch.
fn batches_are_seen_whole(store: Arc<dyn Metastore>) {
    const ROWS: u16 = 500;
    const COMMITS: u64 = 200;
    let commit = |store: &dyn Metastore, number: u64| {
        let mut batch = Batch::new();
        (0..ROWS).for_each(|n| batch.put(n.to_be_bytes(), number.to_le_bytes()));
        store.commit(&batch).expect("commit");
    };
    commit(&*store, 0);
    let writer = {
        let store = store.clone();
        thread::spawn(move || (1..=COMMITS).for_each(|number| commit(&*store, number)))
    };
    let (first, last) = (0u16.to_be_bytes(), (ROWS - 1).to_be_bytes());
    let mut newest = 0;
    while !writer.is_finished() {
        let ends = store.get_many(&[&last, &first]).expect("get_many");
        assert_eq!(ends[0], ends[1], "get_many saw half a batch");
        let rows = store.scan(Unbounded, None, usize::MAX).expect("scan");
        assert_eq!(rows.len(), usize::from(ROWS));
        assert!(rows.iter().all(|row| row.1 == rows[0].1), "a scan saw half a batch");
        // One commit seen in one read is seen in the next: reads never go back.
        let one = store.get(&first).expect("get").expect("the row is there");
        let one = u64::from_le_bytes(one.try_into().expect("8 bytes"));
        assert!(one >= newest, "a get went back from {newest} to {one}");
        newest = one;
    }
    writer.join().expect("the writer panicked");
    assert_eq!(store.get(&last), Ok(Some(COMMITS.to_le_bytes().to_vec())));
}

fn snapshots(store: &dyn Metastore) {
    // Enough rows that later ones are flushed and compacted under the snapshot.
    let round = |n: u32| {
        let mut batch = Batch::new();
        for i in (0..400u32).filter(|i| n == 0 || !(i + n).is_multiple_of(3)) {
            batch.put(format!("row {i:04}"), vec![n as u8; 1000]);
        }
        for i in (0..400u32).filter(|i| n > 0 && (i + n).is_multiple_of(3)) {
            batch.delete(format!("row {i:04}"));
        }
        batch
    };
    store.commit(&round(0)).expect("commit");
    let view = store.snapshot().expect("a snapshot");
    for n in 1..5 {
        store.commit(&round(n)).expect("commit");
        store.commit(&batch(&[("later", Some("1"))])).expect("commit");
        assert_eq!(view.get(b"row 0007"), Ok(Some(vec![0; 1000])), "after {n} more commits");
    }
    let rows = view.scan(Unbounded, None, 10_000).expect("scan");
    assert_eq!(rows.len(), 400);
    assert!(rows.iter().all(|(_, value)| *value == vec![0; 1000]));
    let many = view.get_many(&[b"row 0399", b"later"]).expect("get_many");
    assert_eq!(many, [Some(vec![0; 1000]), None]);
    assert!(view.commit(&batch(&[("a", Some("1"))])).is_err() || view.get(b"a") == Ok(Some(b"1".to_vec())));
    assert_eq!(store.get(b"a"), Ok(None), "what is committed to a snapshot reached the store");
    drop(view);
    assert_eq!(store.get(b"later"), Ok(Some(b"1".to_vec())));
}

fn close(store: Arc<dyn Metastore>) {
    store.commit(&batch(&[("a", Some("1"))])).expect("commit");
    store.close().expect("close");
    store.close().expect("close again");
    let results = [
        store.get(b"a").map(|_| ()),
        store.get_many(&[b"a"]).map(|_| ()),
        store.scan(Unbounded, None, 1).map(|_| ()),
        store.commit(&batch(&[("a", None)])),
        store.stats().map(|_| ()),
    ];
    for result in results {
        assert!(matches!(result, Err(StoreError::Closed { .. })), "after close: {result:?}");
    }
}
