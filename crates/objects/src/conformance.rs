//! The requirements of every object store, as one call: `suite(&|| Arc::new(MyStore::new()))`.
//!
//! Invariants: each case gets a new, empty store from `make`; a failure panics with the difference.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "stores are checked by real threads"
)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::Barrier;
use std::thread;

use crate::{ObjectError, Objects};

/// Makes a new, empty store.
pub type Make<'a> = &'a dyn Fn() -> Arc<dyn Objects>;

/// Runs every case. Panics where the store does not conform.
pub fn suite(make: Make<'_>) {
    put_get_overwrite_delete(&*make());
    ranges(&*make());
    listing(&*make());
    odd_keys(&*make());
    put_if_absent(&*make());
    for _ in 0..4 {
        put_if_absent_race(make());
    }
    puts_are_never_torn(make());
}

fn assert_not_found<T: std::fmt::Debug>(result: Result<T, ObjectError>) {
    let Err(ObjectError::NotFound { key }) = result else { panic!("not found was expected, not {result:?}") };
    assert!(!key.is_empty(), "an error names its key");
}

fn put_get_overwrite_delete(store: &dyn Objects) {
    assert_not_found(store.get("a/b", None));
    assert_not_found(store.get("a/b", Some(0..0)));
    assert_not_found(store.size("a/b"));
    assert_not_found(store.read_into("a/b", 0, &mut []));
    store.delete("a/b").expect("delete of an object that is not there");
    for bytes in [&b"first"[..], b"second, longer", b"", b"3"] {
        store.put("a/b", bytes).expect("put");
        assert_eq!(store.get("a/b", None).expect("get"), bytes);
        assert_eq!(store.size("a/b").expect("size"), bytes.len() as u64);
    }
    store.sync().expect("sync");
    let large: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    store.put("large", &large).expect("put 5 MB");
    assert!(store.get("large", None).expect("get 5 MB") == large);
    for _ in 0..2 {
        store.delete("a/b").expect("delete, also twice");
        assert_not_found(store.get("a/b", None));
    }
    store.sync().expect("sync");
    assert_eq!(store.size("large").expect("size"), large.len() as u64);
}

fn ranges(store: &dyn Objects) {
    let bytes: Vec<u8> = (0..100).collect();
    store.put("r", &bytes).expect("put");
    for Range { start, end } in [0..100, 0..0, 100..100, 0..1, 99..100, 17..60] {
        let part = &bytes[start as usize..end as usize];
        assert_eq!(store.get("r", Some(start..end)).expect("get of a range"), part, "{start}..{end}");
        let mut into = vec![0xee; part.len()];
        store.read_into("r", start, &mut into).expect("read_into");
        assert_eq!(into, part, "{start}..{end}");
    }
    let backwards = Range { start: 60, end: 17 };
    for range in [0..101, 100..101, 101..101, backwards, 0..u64::MAX, u64::MAX - 1..u64::MAX] {
        let result = store.get("r", Some(range.clone()));
        assert!(matches!(result, Err(ObjectError::Corrupt { .. })), "{range:?} of 100 bytes gave {result:?}");
    }
    for (offset, len) in [(0, 101), (100, 1), (u64::MAX, 1)] {
        let result = store.read_into("r", offset, &mut vec![0; len]);
        assert!(
            matches!(result, Err(ObjectError::Corrupt { .. })),
            "{len} at {offset} of 100 bytes gave {result:?}"
        );
    }
}

fn keys(store: &dyn Objects, prefix: &str, after: Option<&str>, max: usize) -> Vec<String> {
    store.list(prefix, after, max).expect("list").into_iter().map(|info| info.key).collect()
}

fn listing(store: &dyn Objects) {
    assert_eq!(keys(store, "", None, 10), [""; 0]);
    assert_eq!(keys(store, "none/", None, 10), [""; 0]);
    // A directory's place among its siblings is where a walk goes wrong: '-' and '.' sort before '/', letters after.
    let all = ["a-b", "a.b", "a/1", "a/1x/y", "a/2", "a/b-c", "a/b/c/d", "aa", "b/0", "b0"];
    for (n, key) in all.iter().enumerate().rev() {
        store.put(key, &vec![0; n]).expect("put");
    }
    let infos = store.list("", None, 100).expect("list");
    assert_eq!(
        infos.iter().map(|info| info.bytes).collect::<Vec<_>>(),
        (0..all.len() as u64).collect::<Vec<_>>()
    );
    let afters =
        all.iter().copied().chain(["", "a", "a/", "a/1x", "a/1x/", "a/b/c/d/e", "a0", "zz", "a/1x/yy"]);
    for after in afters.map(Some).chain([None]) {
        for prefix in ["", "a", "a/", "a/1", "a/1x/", "a/b", "a/b/", "b", "b/", "c", "a/1/"] {
            for max in [0, 1, 2, 3, 100] {
                let wanted =
                    all.iter().filter(|k| k.starts_with(prefix) && after.is_none_or(|after| **k > after));
                let wanted: Vec<&str> = wanted.copied().take(max).collect();
                assert_eq!(
                    keys(store, prefix, after, max),
                    wanted,
                    "prefix {prefix:?} after {after:?} max {max}"
                );
            }
        }
    }
    let mut paged: Vec<String> = Vec::new();
    loop {
        let page = keys(store, "", paged.last().map(String::as_str), 3);
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, all);
    store.delete("a/b/c/d").expect("delete");
    assert_eq!(keys(store, "a/b", None, 10), ["a/b-c"]);
}

fn odd_keys(store: &dyn Objects) {
    let long = ["p".repeat(200).as_str(); 6].join("/");
    let odd = [
        "",
        "/",
        "/etc/passwd",
        "a/",
        "a//b",
        ".",
        "..",
        "../x",
        "a/../../x",
        "a b",
        "é",
        "a\0b",
        "+tmp/0/0",
        &long,
    ];
    for key in odd {
        let results = [
            store.put(key, b"x"),
            store.put_if_absent(key, b"x").map(|_| ()),
            store.get(key, None).map(|_| ()),
            store.read_into(key, 0, &mut []),
            store.size(key).map(|_| ()),
            store.delete(key),
        ];
        for result in results {
            assert!(matches!(result, Err(ObjectError::BadKey { .. })), "key {key:?} gave {result:?}");
        }
    }
    for prefix in ["/", "../", "a/../", "a//", "*"] {
        assert!(matches!(store.list(prefix, None, 1), Err(ObjectError::BadKey { .. })), "prefix {prefix:?}");
    }
    assert_eq!(keys(store, "", None, 10), [""; 0]);
    for key in ["..a", "a..", "a/...", "0", "-_.", long[..1000].trim_end_matches('/')] {
        store.put(key, b"x").expect("a plain key");
        assert_eq!(store.get(key, None).expect("get"), b"x");
    }
}

fn put_if_absent(store: &dyn Objects) {
    assert_eq!(store.put_if_absent("j/1", b"mine"), Ok(true));
    assert_eq!(store.put_if_absent("j/1", b"theirs"), Ok(false));
    assert_eq!(store.get("j/1", None).expect("get"), b"mine");
    store.put("p", b"put").expect("put");
    assert_eq!(store.put_if_absent("p", b"late"), Ok(false));
    assert_eq!(store.get("p", None).expect("get"), b"put");
    store.delete("j/1").expect("delete");
    assert_eq!(store.put_if_absent("j/1", b""), Ok(true));
    assert_eq!(store.get("j/1", None).expect("get"), b"");
}

const RACERS: usize = 16;

fn put_if_absent_race(store: Arc<dyn Objects>) {
    let barrier = Arc::new(Barrier::new(RACERS));
    let racers: Vec<_> = (0..RACERS)
        .map(|n| {
            let (store, barrier) = (store.clone(), barrier.clone());
            thread::spawn(move || {
                barrier.wait();
                store.put_if_absent("race/new/dir/1", &vec![n as u8; 1000]).expect("put_if_absent in a race")
            })
        })
        .collect();
    let won: Vec<bool> = racers.into_iter().map(|racer| racer.join().expect("a racer panicked")).collect();
    assert_eq!(won.iter().filter(|won| **won).count(), 1, "exactly one winner: {won:?}");
    let winner = won.iter().position(|won| *won).expect("a winner");
    assert_eq!(store.get("race/new/dir/1", None).expect("get"), vec![winner as u8; 1000]);
}

fn puts_are_never_torn(store: Arc<dyn Objects>) {
    store.put("t", &[0; 100_000]).expect("put");
    let writer = {
        let store = store.clone();
        thread::spawn(move || (1..=50u8).for_each(|n| store.put("t", &[n; 100_000]).expect("put")))
    };
    while !writer.is_finished() {
        let bytes = match store.get("t", None) {
            // A service may be at a loss for a moment (moto answers 500); torn bytes it may never give.
            Err(error) if error.is_transient() => continue,
            result => result.expect("get while it is replaced"),
        };
        assert!(bytes.len() == 100_000 && bytes.iter().all(|b| *b == bytes[0]), "a torn put was seen");
    }
    writer.join().expect("the writer panicked");
    store.sync().expect("sync");
    assert_eq!(store.get("t", None).expect("get")[0], 50);
}
