//! Changing a journal offline: healthy at every moment, also if the tool dies amid it.

mod support;

use std::sync::Arc;

use chiton_journal::{
    FilePlace, Frame, Journal, JournalError, MemoryPlace, Place, PlaceError, SEGMENT_HEADER_BYTES,
    SegmentInfo, Shape, cut, replay, reset, rewrite, trim_before,
};
use chiton_types::Position;
use parking_lot::Mutex;
use support::{append, commit, create, identity, options, read};

/// A place that dies after a number of changes.
struct Mortal {
    inner: Arc<MemoryPlace>,
    left: Mutex<usize>,
}

impl Mortal {
    fn step(&self) -> Result<(), PlaceError> {
        let mut left = self.left.lock();
        *left = left.checked_sub(1).ok_or(PlaceError::Failed("died".into()))?;
        Ok(())
    }
}

impl Place for Mortal {
    fn shape(&self) -> Shape {
        self.inner.shape()
    }
    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        self.inner.list()
    }
    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.inner.read(number, bytes_max)
    }
    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.step()?;
        self.inner.create(number, bytes)
    }
    fn publish(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.step()?;
        self.inner.publish(number, bytes)
    }
    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.inner.append(number, offset, bytes)
    }
    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        self.inner.sync(number)
    }
    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        let found = self.inner.list()?.into_iter().find(|info| info.number == number);
        let is_claim = |info: SegmentInfo| info.bytes == SEGMENT_HEADER_BYTES as u64;
        assert!(self.shape() == Shape::Grows || !found.is_some_and(is_claim), "claim {number} is removed");
        self.step()?;
        self.inner.remove(number)
    }
}

/// Frames 0..24 over several segments and writers, with a torn tail amid them.
fn journal(shape: Shape) -> Arc<MemoryPlace> {
    let (place, first) = create(shape, options(120));
    commit(&first, 0..8);
    append(&first, 8..9);
    let place = Arc::new(place.crash(&mut |_, unsynced| unsynced / 2));
    drop(first);
    let second = Journal::open(place.clone(), identity(2), options(120)).expect("opens").0;
    let from = read(&*place, Position(0)).0.len() as u64;
    commit(&second, from..24);
    second.close().expect("close");
    place
}

fn copy(place: &MemoryPlace) -> Arc<MemoryPlace> {
    Arc::new(place.crash(&mut |_, _| 0))
}

fn payloads(place: &dyn Place, after: Position) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut visit = |frame: &Frame<'_>| {
        all.push((frame.first.0, frame.payload.to_vec()));
        Ok::<(), JournalError>(())
    };
    replay(place, after, &mut visit, &mut |_| {}).expect("healthy");
    all
}

const MARKED: &[u8] = b"void";

fn splice(place: &dyn Place, which: &dyn Fn(u64) -> bool) -> Result<u64, JournalError> {
    let mut change = |frame: &Frame<'_>| Ok(which(frame.header.seq.0 - 1).then(|| MARKED.to_vec()));
    rewrite::<JournalError>(place, identity(99), &mut change, &mut |_| {})
}

#[test]
fn a_rewrite_that_dies_anywhere_leaves_a_healthy_journal_and_can_be_repeated() {
    for shape in [Shape::Grows, Shape::Whole] {
        let place = journal(shape);
        let before = payloads(&*place, Position(0));
        assert_eq!(before.len(), 24);
        let which = |n: u64| n % 5 == 2;
        for steps in 0.. {
            let inner = copy(&place);
            let mortal = Mortal { inner: inner.clone(), left: Mutex::new(steps) };
            let result = splice(&mortal, &which);
            let now = payloads(&*inner, Position(0));
            assert_eq!(now.len(), 24, "{shape:?} after {steps} steps");
            for (n, (before, now)) in before.iter().zip(&now).enumerate() {
                assert_eq!(before.0, now.0, "positions stay");
                assert!(now.1 == before.1 || (which(n as u64) && now.1 == MARKED), "frame {n}");
            }
            splice(&*inner, &which).expect("again");
            let marked = payloads(&*inner, Position(0)).iter().filter(|(_, p)| p == MARKED).count();
            assert_eq!(marked, 5);
            // The journal continues.
            let (journal, recovered) = Journal::open(inner, identity(3), options(120)).expect("opens");
            assert_eq!(recovered.torn, None);
            journal.close().expect("close");
            if result.is_ok() {
                assert!(steps > 4, "several segments were replaced");
                break;
            }
        }
    }
}

#[test]
fn a_reset_that_dies_anywhere_can_be_repeated_and_a_damaged_journal_is_reset() {
    for shape in [Shape::Grows, Shape::Whole] {
        for damaged in [false, true] {
            let place = journal(shape);
            if damaged {
                let second = place.list().expect("list")[1].number;
                let mut bytes = place.read(second, u64::MAX).expect("read");
                bytes[70] ^= 1;
                place.set_bytes(second, bytes);
            }
            for first in [Position(1), Position(20), Position(500)] {
                for steps in 0.. {
                    let inner = copy(&place);
                    let mortal = Mortal { inner: inner.clone(), left: Mutex::new(steps) };
                    let done = reset(&mortal, identity(99), first).is_ok();
                    reset(&*inner, identity(100), first).expect("again");
                    assert_eq!(payloads(&*inner, Position(first.0 - 1)), []);
                    let (journal, recovered) =
                        Journal::open(inner, identity(3), options(120)).expect("opens");
                    assert_eq!(recovered.first_position, first);
                    assert_eq!(journal.last().next(), first);
                    if done {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn a_cut_ends_the_journal_at_a_frame_and_nowhere_else() {
    for shape in [Shape::Whole, Shape::Grows] {
        let place = journal(shape);
        let all = payloads(&*place, Position(0));
        for (i, (first, _)) in all.iter().enumerate() {
            for steps in 0.. {
                let inner = copy(&place);
                let mortal = Mortal { inner: inner.clone(), left: Mutex::new(steps) };
                let done = cut(&mortal, identity(99), Position(*first)).is_ok();
                assert!(payloads(&*inner, Position(0)).len() >= i, "what stays is never lost");
                if done {
                    assert_eq!(payloads(&*inner, Position(0)), all[..i]);
                    let (journal, recovered) =
                        Journal::open(inner, identity(3), options(120)).expect("opens");
                    assert_eq!(recovered.last_position.next(), Position(*first));
                    commit(&journal, 0..3);
                    break;
                }
            }
        }
    }
    let place = journal(Shape::Grows);
    // Frame 1 has two events.
    assert!(matches!(cut(&*place, identity(99), Position(3)), Err(JournalError::Damaged(_))));
    assert!(matches!(cut(&*place, identity(99), Position(9999)), Err(JournalError::Trimmed { .. })));
    let foreign = chiton_journal::Identity { journal: 8, ..identity(99) };
    assert!(matches!(cut(&*place, foreign, Position(1)), Err(JournalError::Damaged(_))));
    assert!(matches!(reset(&*place, foreign, Position(1)), Err(JournalError::Damaged(_))));
}

#[test]
fn a_trim_keeps_its_position_and_later_ones() {
    let place = journal(Shape::Grows);
    let all = payloads(&*place, Position(0));
    let (middle, _) = all[12];
    assert!(trim_before(&*place, Position(middle)).expect("trims") > 0);
    assert_eq!(payloads(&*place, Position(middle - 1)), all[12..]);
}

#[test]
fn files_are_replaced_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let place: Arc<dyn Place> = Arc::new(FilePlace::open(dir.path()).expect("opens"));
    let journal = Journal::create(place.clone(), identity(1), options(300)).expect("creates");
    commit(&journal, 0..50);
    journal.close().expect("close");
    assert_eq!(splice(&*place, &|n| n == 25).expect("spliced"), 1);
    let now = payloads(&*place, Position(0));
    assert_eq!((now.len(), now[25].1.as_slice()), (50, MARKED));
    let names: Vec<_> =
        std::fs::read_dir(dir.path()).expect("list").map(|e| e.expect("an entry").file_name()).collect();
    assert!(names.iter().all(|name| name.to_string_lossy().ends_with(".seg")), "{names:?}");
    assert_eq!(place.publish(place.list().expect("list")[0].number, b"x"), Err(PlaceError::Exists));
}

/// A server was paused in the midst of a put, and a tool worked on its journal meanwhile: when it wakes up, it confirms
/// nothing any more.
#[test]
fn a_writer_that_sleeps_through_a_tool_confirms_nothing_afterwards() {
    type Tool = fn(&dyn Place) -> Result<(), JournalError>;
    // Each leaves a journal from a position on.
    let tools: [(&str, Position, Tool); 4] = [
        ("reset", Position(3), |place| reset(place, identity(99), Position(4))),
        ("reset to the beginning", Position(0), |place| reset(place, identity(99), Position(1))),
        ("cut", Position(3), |place| cut(place, identity(99), Position(7))),
        ("rewrite", Position(0), |place| splice(place, &|n| n == 2).map(drop)),
    ];
    for (name, after, tool) in tools {
        let place = Arc::new(MemoryPlace::new(Shape::Whole));
        let first = Journal::create(place.clone(), identity(1), options(120)).expect("creates");
        commit(&first, 0..8);
        let claims = |place: &MemoryPlace| -> Vec<u64> {
            let all = place.list().expect("list");
            let is_claim = |info: &SegmentInfo| info.bytes == SEGMENT_HEADER_BYTES as u64;
            all.into_iter().filter(is_claim).map(|info| info.number).collect()
        };
        let before = claims(&place);
        tool(&*place).unwrap_or_else(|e| panic!("{name}: {e}"));
        let left = claims(&place);
        assert!(before.iter().all(|claim| left.contains(claim)), "{name}: {before:?}, then {left:?}");
        let healthy = payloads(&*place, after);
        let durable = first.durable();
        append(&first, 8..10);
        let fenced = first.close();
        assert!(matches!(fenced, Err(JournalError::Fenced { .. })), "{name}: {fenced:?}");
        assert_eq!(first.durable(), durable, "{name}");
        assert_eq!(payloads(&*place, after), healthy, "{name}: what it put is void");
        // Two more writers continue it.
        for n in [3, 4] {
            let (next, _) = Journal::open(place.clone(), identity(n), options(120))
                .unwrap_or_else(|e| panic!("{name}, then {n}: {e}"));
            commit(&next, 20..22);
            next.close().expect("closes");
        }
        assert_eq!(payloads(&*place, after).len(), healthy.len() + 4, "{name}");
    }
}
