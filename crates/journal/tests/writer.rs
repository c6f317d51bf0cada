//! The group-commit writer: confirmed events survive, failures are reported, unneeded segments are removed.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use chiton_journal::{
    FilePlace, Journal, JournalError, MemoryPlace, Options, Place, PlaceError, SegmentInfo, Shape,
};
use chiton_types::Position;
use parking_lot::Mutex;
use proptest::prelude::*;
use support::{append, commit, create, frame, identity, options, read};

#[test]
fn eight_threads_share_commits() {
    for shape in [Shape::Grows, Shape::Whole] {
        let (place, journal) = create(shape, options(4096));
        let positions = Mutex::new(BTreeSet::new());
        thread::scope(|scope| {
            for thread in 0..8 {
                let (journal, positions) = (&journal, &positions);
                scope.spawn(move || {
                    for n in 0..50 {
                        let (bytes, events) = frame(thread * 1000 + n);
                        let position = journal.append(&bytes, events).expect("append");
                        journal.wait_durable(position).expect("durable");
                        assert!(journal.durable() >= position);
                        assert!(positions.lock().insert(position), "{position} given twice");
                    }
                });
            }
        });
        journal.close().expect("close");
        let (mut numbers, result) = read(&*place, Position(0));
        for thread in 0..8 {
            let of_thread: Vec<u64> = numbers.iter().copied().filter(|n| n / 1000 == thread).collect();
            assert_eq!(
                of_thread,
                (0..50).map(|n| thread * 1000 + n).collect::<Vec<_>>(),
                "in order of its appends"
            );
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 400);
        assert_eq!(Some(&result.expect("replay").last), positions.lock().last());
    }
}

#[test]
fn commits_without_waiters_follow_bytes_requests_time_and_close() {
    let until_durable = |journal: &Journal, position| {
        while journal.durable() < position {
            thread::yield_now();
        }
    };
    let (_, journal) = create(Shape::Grows, options(1000));
    append(&journal, 0..20);
    until_durable(&journal, Position(1));
    let last = append(&journal, [1]);
    journal.request_commit();
    until_durable(&journal, last);
    let last = append(&journal, [2]);
    journal.close().expect("close");
    assert_eq!(journal.durable(), last);
    assert_eq!(journal.append(&frame(0).0, 1), Err(JournalError::Closed));

    let by_time = Options { flush_interval: std::time::Duration::from_millis(1), ..options(1 << 20) };
    for shape in [Shape::Grows, Shape::Whole] {
        let (_, journal) = create(shape, by_time);
        until_durable(&journal, append(&journal, [1]));
        until_durable(&journal, append(&journal, [2]));
    }
}

#[test]
fn space_that_returns_heals() {
    for shape in [Shape::Grows, Shape::Whole] {
        let (place, journal) = create(shape, options(200));
        let before = commit(&journal, [0]);
        place.set_trouble(Some(PlaceError::NoSpace("disk full".to_owned())));
        let last = append(&journal, 1..20);
        assert_eq!(journal.wait_durable(last), Err(JournalError::NoSpace("disk full".to_owned())));
        assert_eq!(journal.durable(), before);
        append(&journal, 20..22);
        place.set_trouble(None);
        let last = journal.last();
        while let Err(error) = journal.wait_durable(last) {
            assert!(error.may_heal(), "{error}");
        }
        assert_eq!(read(&*place, Position(0)).0, (0..22).collect::<Vec<_>>());
    }
}

#[test]
fn other_errors_stay() {
    for shape in [Shape::Grows, Shape::Whole] {
        let (place, journal) = create(shape, options(200));
        let before = commit(&journal, [0]);
        place.set_trouble(Some(PlaceError::Failed("input/output error".to_owned())));
        let last = append(&journal, [1]);
        let error = journal.wait_durable(last).expect_err("not durable");
        assert!(matches!(error, JournalError::Failed(_)), "{error}");
        place.set_trouble(None);
        assert_eq!(journal.wait_durable(last), Err(error.clone()));
        assert_eq!(journal.append(&frame(2).0, 3), Err(error.clone()));
        assert_eq!(journal.close(), Err(error));
        assert_eq!(journal.wait_durable(before), Ok(()));
        assert_eq!(read(&*place, Position(0)).0, [0]);
    }
}

#[test]
fn closing_without_space_fails() {
    for shape in [Shape::Grows, Shape::Whole] {
        let (place, journal) = create(shape, options(200));
        place.set_trouble(Some(PlaceError::NoSpace("disk full".to_owned())));
        append(&journal, [1]);
        assert!(matches!(journal.close(), Err(JournalError::Failed(_))));
    }
}

#[test]
fn hooks_run_before_and_after_a_commit() {
    for shape in [Shape::Grows, Shape::Whole] {
        let (place, journal) = create(shape, options(1 << 20));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (before, after) = (seen.clone(), seen.clone());
        journal.before_commit(Box::new(move |position| {
            before.lock().push(("before", position));
            if position > Position(3) { Err("block lost".to_owned()) } else { Ok(()) }
        }));
        journal.on_durable(Box::new(move |position| after.lock().push(("after", position))));
        commit(&journal, [2]);
        let last = append(&journal, [3]);
        let error = journal.wait_durable(last).expect_err("the barrier said no");
        assert_eq!(error, JournalError::Failed("barrier before commit: block lost".to_owned()));
        drop(journal);
        assert_eq!(*seen.lock(), [("before", Position(3)), ("after", Position(3)), ("before", Position(4))]);
        assert_eq!(read(&*place, Position(0)).0, [2]);
    }
}

#[test]
fn a_panicking_hook_fails_the_journal() {
    for shape in [Shape::Grows, Shape::Whole] {
        let (_, journal) = create(shape, options(1 << 20));
        journal.before_commit(Box::new(|_| panic!("on purpose")));
        let last = append(&journal, [1]);
        assert!(matches!(journal.wait_durable(last), Err(JournalError::Failed(_))));
    }
}

#[test]
fn trim_removes_segments_wholly_below() {
    for shape in [Shape::Grows, Shape::Whole] {
        let (place, journal) = create(shape, options(100));
        let ends: Vec<Position> = (0..30).map(|n| commit(&journal, [n])).collect();
        assert_eq!(journal.trim(Position(0)).expect("trim").min(1), usize::from(shape == Shape::Whole));
        journal.trim(ends[9]).expect("trim");
        assert!(journal.first() <= ends[9].next() && journal.first() > Position(1));
        assert_eq!(read(&*place, ends[9]).0, (10..30).collect::<Vec<_>>());
        assert!(matches!(
            read(&*place, Position(0)).1,
            Err(JournalError::Trimmed { asked: Position(1), .. })
        ));
        journal.trim(Position(u64::MAX)).expect("trim");
        let claims = usize::from(shape == Shape::Whole);
        assert_eq!(place.list().expect("list").len(), 1 + claims, "the last one stays");
        drop(journal);
        let (journal, recovered) = Journal::open(place.clone(), identity(2), options(100)).expect("open");
        assert_eq!(recovered.last_position, ends[29]);
        commit(&journal, [30]);
        assert_eq!(read(&*place, ends[29]).0, [30]);
    }
}

/// A place whose syncs can fail while all else works.
struct Unsynced(MemoryPlace, AtomicBool);

impl Place for Unsynced {
    fn shape(&self) -> Shape {
        self.0.shape()
    }
    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        self.0.list()
    }
    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.0.read(number, bytes_max)
    }
    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.0.create(number, bytes)
    }
    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.0.append(number, offset, bytes)
    }
    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        if self.1.load(Ordering::SeqCst) {
            return Err(PlaceError::Failed("cannot sync".to_owned()));
        }
        self.0.sync(number)
    }
    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.0.remove(number)
    }
}

#[test]
fn a_segment_of_which_nothing_is_durable_replaces_no_other() {
    let place = Arc::new(Unsynced(MemoryPlace::new(Shape::Grows), AtomicBool::new(false)));
    let journal = Journal::create(place.clone(), identity(1), options(100)).expect("create");
    let mut last = commit(&journal, [0]);
    while place.list().expect("list").last().is_none_or(|segment| segment.bytes < 100) {
        last = commit(&journal, [1]);
    }
    let before = place.list().expect("list").len();
    place.1.store(true, Ordering::SeqCst);
    let next = append(&journal, [2]);
    assert!(matches!(journal.wait_durable(next), Err(JournalError::Failed(_))));
    assert_eq!(place.list().expect("list").len(), before + 1, "the next one is begun");
    // A checkpoint holds all that is durable, and the machine dies.
    journal.trim(Position(u64::MAX)).expect("trim");
    drop(journal);
    let left = Arc::new(place.0.crash(&mut |_, _| 0));
    let (_, recovered) = Journal::open(left, identity(2), options(100)).expect("there is a journal");
    assert_eq!(recovered.last_position, last);
}

#[test]
fn creating_and_opening_refuse_absent_and_foreign_journals() {
    let (place, journal) = create(Shape::Grows, options(100));
    drop(journal);
    assert_eq!(Journal::create(place.clone(), identity(1), options(100)).err(), Some(JournalError::Present));
    let foreign = chiton_journal::Identity { journal: 8, ..identity(1) };
    assert!(matches!(Journal::open(place, foreign, options(100)).err(), Some(JournalError::Damaged(_))));
    // A creation that a crash cut short is no journal, and may be done again.
    let place = Arc::new(chiton_journal::MemoryPlace::new(Shape::Grows));
    place.create(1, b"CHITON").expect("create");
    assert_eq!(Journal::open(place.clone(), identity(1), options(100)).err(), Some(JournalError::Absent));
    commit(&Journal::create(place, identity(1), options(100)).expect("create"), [1]);
}

#[test]
fn append_waits_for_room() {
    let (place, journal) = create(Shape::Grows, Options { pending_bytes_max: 300, ..options(300) });
    place.set_trouble(Some(PlaceError::NoSpace("disk full".to_owned())));
    let full = (0..).find_map(|n| journal.append(&frame(n).0, frame(n).1).err());
    assert_eq!(full, Some(JournalError::NoSpace("disk full".to_owned())));
    place.set_trouble(None);
    let last = journal.last();
    while journal.wait_durable(last).is_err() {}
    append(&journal, 0..50);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Rounds of commits, appends and a crash that keeps any part of the unsynced bytes.
    #[test]
    fn durable_frames_survive_every_crash(
        rounds in prop::collection::vec(
            (prop::collection::vec((1u64..6, any::<bool>()), 0..6), any::<prop::sample::Index>()), 1..6),
        segment_bytes in 100usize..1000,
        whole in any::<bool>(),
    ) {
        let shape = if whole { Shape::Whole } else { Shape::Grows };
        let (mut place, mut journal) = create(shape, options(segment_bytes));
        // The journal's frames as they must be, and the next number, never used twice.
        let mut model: Vec<u64> = Vec::new();
        let mut next = 0;
        for (round, (steps, keep)) in rounds.into_iter().enumerate() {
            for (count, wait) in steps {
                let numbers = next..next + count;
                model.extend(numbers.clone());
                next += count;
                if wait { commit(&journal, numbers) } else { append(&journal, numbers) };
            }
            // First the durable position, then the crash: commits may happen between them.
            let durable = journal.durable();
            let crashed = Arc::new(place.crash(&mut |_, unsynced| keep.index(unsynced + 1)));
            drop(journal);
            let (opened, recovered) =
                Journal::open(crashed.clone(), identity(10 + round as u64), options(segment_bytes)).expect("open");
            prop_assert!(recovered.last_position >= durable);
            prop_assert_eq!(opened.durable(), recovered.last_position);
            let (numbers, result) = read(&*crashed, Position(0));
            prop_assert_eq!(&numbers[..], &model[..numbers.len()], "a prefix");
            prop_assert_eq!(result.expect("replay").last, recovered.last_position);
            model = numbers;
            (place, journal) = (crashed, opened);
        }
    }
}

#[test]
fn a_writer_in_a_directory_confirms_nothing_once_a_newer_one_is_there_or_its_segment_is_gone() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("journal");
    let place = || -> Arc<dyn Place> { Arc::new(FilePlace::open(&path).expect("opens")) };
    let options = options(1 << 20);
    let first = Journal::create(place(), identity(1), options).expect("creates");
    commit(&first, 0..5);
    let (second, recovered) = Journal::open(place(), identity(2), options).expect("opens");
    let confirmed = first.durable();
    assert_eq!(recovered.last_position, confirmed);
    let last = append(&first, 5..6);
    let error = first.wait_durable(last).expect_err("fenced");
    assert!(matches!(error, JournalError::Fenced { by } if by.0 == 2), "{error}");
    assert_eq!(first.durable(), confirmed);
    assert!(first.close().is_err());
    commit(&second, 10..15);
    assert_eq!(read(&*place(), Position(0)).0, [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]);
    // Writes to a removed file are lost.
    let confirmed = second.durable();
    std::fs::rename(&path, scratch.path().join("elsewhere")).expect("renamed");
    let last = append(&second, 20..21);
    let error = second.wait_durable(last).expect_err("not there any more");
    assert!(!error.may_heal() && error.to_string().contains("removed or renamed"), "{error}");
    assert_eq!(second.durable(), confirmed);
}
