//! Surveys: a whole journal reads as in replay, a damaged one names lost events, and every frame comes with its own
//! position.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_journal::{Found, Journal, JournalError, MemoryPlace, Place, SegmentState, Shape, Survey, survey};
use chiton_types::Position;
use proptest::prelude::*;
use support::{append, commit, create, identity, options, read};

/// First positions of the frames that a survey gives, by their numbers.
fn look(place: &dyn Place) -> (BTreeMap<u64, u64>, Result<Survey, JournalError>) {
    let mut frames = BTreeMap::new();
    let mut before = 0;
    let result = survey::<JournalError>(
        place,
        &mut |found| {
            if let Found::Frame(frame) = found {
                assert!(frame.first.0 > before, "positions ascend");
                before = frame.last().0;
                frames.insert(frame.header.seq.0 - 1, frame.first.0);
            }
            Ok(())
        },
        &mut |progress| assert!(progress.bytes_done <= progress.bytes_total),
    );
    (frames, result)
}

fn copy(place: &MemoryPlace) -> MemoryPlace {
    place.crash(&mut |_, _| 0)
}

/// Frames 0..`frames` in commits, with a reopening after every third; and where each frame begins.
fn journal(
    shape: Shape,
    segment_bytes: usize,
    frames: u64,
    commits: u64,
) -> (Arc<MemoryPlace>, BTreeMap<u64, u64>) {
    let (place, mut journal) = create(shape, options(segment_bytes));
    let mut starts = BTreeMap::new();
    for n in 0..frames {
        starts.insert(n, journal.last().0 + 1);
        append(&journal, [n]);
        if n % commits == commits - 1 {
            journal.wait_durable(journal.last()).expect("durable");
        }
        if n % (3 * commits) == 0 {
            journal.close().expect("close");
            journal = Journal::open(place.clone(), identity(n + 2), options(segment_bytes)).expect("opens").0;
        }
    }
    journal.close().expect("close");
    (place, starts)
}

/// The invariant after one flipped bit: a position may be wrong only where no later segment of its writer shows
/// where the bad one ends.
fn check_flipped(place: &dyn Place, starts: &BTreeMap<u64, u64>, context: &str) {
    check(place, starts, context);
    let (frames, Ok(survey)) = look(place) else { return };
    let ends = |segment: u64| {
        let at = survey.segments.iter().position(|note| note.number == segment).expect("noted");
        let nonces: Vec<u64> =
            survey.segments[at..].iter().filter_map(|n| Some(n.header?.nonce)).take(2).collect();
        nonces.len() == 2 && nonces[0] == nonces[1]
    };
    if survey.flaws.iter().all(|flaw| ends(flaw.damage.segment)) {
        for (n, first) in &frames {
            assert_eq!(starts.get(n), Some(first), "{context}: frame {n}");
        }
    }
}

/// The invariant for any bytes, if `starts` has the positions of the frames.
fn check(place: &dyn Place, starts: &BTreeMap<u64, u64>, context: &str) {
    let (numbers, replayed) = read(place, Position(0));
    let (frames, surveyed) = look(place);
    match (&replayed, &surveyed) {
        (Ok(replayed), Ok(surveyed)) => {
            assert_eq!(surveyed.flaws, [], "{context}");
            assert_eq!(surveyed.last, replayed.last, "{context}");
            assert_eq!(surveyed.torn.is_some(), replayed.torn.is_some(), "{context}");
        }
        (Err(JournalError::Damaged(damage)), Ok(surveyed)) => {
            assert!(!surveyed.is_whole(), "{context}: replay says {damage}, a survey says that all is well");
        }
        (_, Err(error)) => assert!(replayed.is_err(), "{context}: {error}"),
        (Err(error), Ok(surveyed)) => panic!("{context}: {error}, survey {surveyed:?}"),
    }
    for n in numbers {
        assert!(frames.contains_key(&n), "{context}: frame {n} is replayed and not surveyed");
    }
    let assumed = surveyed.as_ref().is_ok_and(|survey| survey.assumed);
    for (n, first) in &frames {
        assert!(
            assumed || starts.get(n) == Some(first),
            "{context}: frame {n} at {first}, {:?}",
            starts.get(n)
        );
    }
    // Every position is available or named as lost.
    if let Ok(survey) = surveyed.as_ref()
        && !assumed
        && survey.flaws.iter().all(|flaw| flaw.lost.is_none_or(|(_, last)| last.is_some()))
    {
        let lost: u64 =
            survey.flaws.iter().filter_map(|flaw| flaw.lost).map(|(a, b)| b.expect("seen").0 - a.0 + 1).sum();
        assert_eq!(survey.first.0 + survey.events + lost, survey.last.0 + 1, "{context}: {survey:?}");
    }
}

#[test]
fn every_flipped_bit_is_survived() {
    for (shape, segment_bytes) in [(Shape::Grows, 1 << 20), (Shape::Grows, 150), (Shape::Whole, 150)] {
        let (place, starts) = journal(shape, segment_bytes, 12, 2);
        check(&*place, &starts, "whole");
        for info in place.list().expect("list") {
            let bytes = place.read(info.number, u64::MAX).expect("read");
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let damaged = copy(&place);
                damaged.set_bytes(info.number, bad);
                check_flipped(&damaged, &starts, &format!("{shape:?}, segment {}, bit {bit}", info.number));
            }
        }
    }
}

#[test]
fn one_bad_frame_costs_one_frame() {
    let (place, _) = create(Shape::Grows, options(1 << 20));
    let journal = Journal::open(place.clone(), identity(2), options(300)).expect("opens").0;
    commit(&journal, 0..30);
    journal.close().expect("close");
    let (all, survey) = look(&*place);
    assert_eq!(all.len(), 30);
    let segment =
        survey.expect("a survey").segments.iter().find(|s| s.frames > 4).expect("a full one").number;
    let mut bytes = place.read(segment, u64::MAX).expect("read");
    bytes[64 + 20] ^= 0x40;
    place.set_bytes(segment, bytes);
    let (rest, survey) = look(&*place);
    assert_eq!(rest.len(), 29);
    assert!(rest.iter().all(|(n, first)| all[n] == *first));
    let survey = survey.expect("a survey");
    let (n, first) = all.iter().find(|(n, _)| !rest.contains_key(n)).expect("one is missing");
    let lost = (Position(*first), Some(Position(first + n % 3)));
    assert_eq!(survey.flaws.iter().map(|flaw| flaw.lost).collect::<Vec<_>>(), [Some(lost)]);
}

#[test]
fn a_lost_header_differs_from_a_lost_segment() {
    let (place, starts) = journal(Shape::Grows, 150, 40, 3);
    let live: Vec<u64> = look(&*place)
        .1
        .expect("a survey")
        .segments
        .iter()
        .filter(|s| s.events > 0)
        .map(|s| s.number)
        .collect();
    let middle = live[live.len() / 2];

    let headless = copy(&place);
    let mut bytes = place.read(middle, u64::MAX).expect("read");
    bytes[30] ^= 1;
    headless.set_bytes(middle, bytes);
    let (frames, survey) = look(&headless);
    let survey = survey.expect("a survey");
    assert_eq!(frames, starts, "its neighbours say what it is");
    assert_eq!(survey.flaws.len(), 1);
    assert_eq!(survey.flaws[0].lost, None);
    assert!(survey.segments.iter().any(|s| s.state == SegmentState::Headless));

    place.remove(middle).expect("removed");
    let (frames, survey) = look(&*place);
    let survey = survey.expect("a survey");
    assert_eq!(survey.flaws.len(), 1);
    let (first, last) = survey.flaws[0].lost.expect("something is lost");
    let gone: Vec<u64> =
        starts.values().copied().filter(|n| (first.0..=last.expect("known").0).contains(n)).collect();
    assert_eq!(gone.len() + frames.len(), starts.len());
}

/// A whole segment cut to its damaged header looks like a damaged claim, but for the number after it.
#[test]
fn a_segment_cut_to_its_damaged_header_is_no_claim() {
    let (place, starts) = journal(Shape::Whole, 80, 2, 1);
    let survey = look(&*place).1.expect("a survey");
    let data = survey.segments.iter().find(|segment| segment.events > 0).expect("one with events").number;
    let mut bytes = place.read(data, u64::MAX).expect("read");
    bytes[0] = 0;
    bytes.truncate(64);
    place.set_bytes(data, bytes);
    check(&*place, &starts, "cut");
    assert!(!look(&*place).1.expect("a survey").is_whole());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn damage_at_random_places_is_survived(
        whole in any::<bool>(),
        segment_bytes in 80usize..400,
        frames in 1u64..60,
        commits in 1u64..6,
        wounds in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 1usize..40), 1..4),
        cut in proptest::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
    ) {
        let shape = if whole { Shape::Whole } else { Shape::Grows };
        let (place, starts) = journal(shape, segment_bytes, frames, commits);
        let numbers: Vec<u64> = place.list().expect("list").iter().map(|info| info.number).collect();
        for (segment, at, fill, len) in wounds {
            let number = *segment.get(&numbers);
            let mut bytes = place.read(number, u64::MAX).expect("read");
            let at = at.index(bytes.len());
            let end = (at + len).min(bytes.len());
            bytes[at..end].fill(fill);
            place.set_bytes(number, bytes);
        }
        if let Some((segment, at)) = cut {
            let number = *segment.get(&numbers);
            let mut bytes = place.read(number, u64::MAX).expect("read");
            bytes.truncate(at.index(bytes.len()));
            place.set_bytes(number, bytes);
        }
        check(&*place, &starts, "wounded");
    }
}
