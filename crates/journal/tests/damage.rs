//! Torn tails, flipped bits and hostile bytes: never a panic, never a wrong frame, always a place.

mod support;

use std::sync::Arc;

use chiton_journal::{DamageKind, Journal, JournalError, MemoryPlace, Place, Shape};
use chiton_types::frame::{FrameHeader, encode_frame};
use chiton_types::{Position, Seq, SessionId, ShardId};
use proptest::prelude::*;
use support::{append, commit, create, frame, identity, options, read};

/// A closed journal of frames 0..9 in commits of three, and the numbers of whole frames before each offset
/// of its last segment.
fn small(segment_bytes: usize, shape: Shape) -> (Arc<MemoryPlace>, u64) {
    let (place, journal) = create(shape, options(segment_bytes));
    for commit_start in [0, 3, 6] {
        commit(&journal, commit_start..commit_start + 3);
    }
    journal.close().expect("close");
    let last = place.list().expect("list").last().expect("a segment").number;
    (place, last)
}

fn copy(place: &MemoryPlace) -> MemoryPlace {
    place.crash(&mut |_, _| 0)
}

/// A process that died without the machine left frames that are not synced. The next opening makes them durable, or
/// the next crash of the machine would leave a gap.
#[test]
fn the_end_that_an_opening_continues_is_durable() {
    let (place, last) = small(1 << 20, Shape::Grows);
    let end = place.read(last, u64::MAX).expect("read").len() as u64;
    place.append(last, end, &frame(9).0).expect("append");
    let (journal, recovered) = Journal::open(place.clone(), identity(2), options(1 << 20)).expect("it opens");
    let crashed = Arc::new(copy(&place));
    drop(journal);
    let (_journal, again) =
        Journal::open(crashed, identity(3), options(1 << 20)).expect("nothing is missing");
    assert_eq!(again.last_position, recovered.last_position);
}

#[test]
fn torn_at_every_byte_recovers_the_whole_frames_before() {
    let (place, last) = small(1 << 20, Shape::Grows);
    let bytes = place.read(last, u64::MAX).expect("read");
    // Where each frame ends: header, then three commits with a mark between them.
    let mut ends = Vec::new();
    let mut at = 64;
    for n in 0..9 {
        at += if n == 3 || n == 6 { 8 } else { 0 } + frame(n).0.len();
        ends.push(at);
    }
    assert_eq!(at + 8, bytes.len(), "nothing but a mark follows");
    for cut in 0..=bytes.len() {
        for zeros in [0, 700] {
            let torn = Arc::new(copy(&place));
            let mut left = bytes[..cut].to_vec();
            left.resize(cut + zeros, 0);
            torn.set_bytes(last, left);
            let opened = Journal::open(torn.clone(), identity(2), options(1 << 20));
            if cut < 64 {
                // The first header is durable before anyone can append: there was no journal yet, or it is corrupt.
                let absent = cut == 0 || zeros == 0;
                let error = opened.err().expect("no journal");
                assert_eq!(error == JournalError::Absent, absent, "cut {cut}: {error}");
                assert_eq!(matches!(error, JournalError::Damaged(_)), !absent, "cut {cut}: {error}");
                continue;
            }
            let (journal, recovered) = opened.expect("a torn tail opens");
            let whole = ends.iter().filter(|&&end| end <= cut).count() as u64;
            assert_eq!(recovered.last_position, Position((0..whole).map(|n| 1 + n % 3).sum()), "cut {cut}");
            if zeros == 0 {
                let clean = cut == 64 || ends.contains(&cut) || bytes.len() == cut;
                let clean =
                    clean || (cut >= 8 && ends.contains(&(cut - 8)) && bytes[cut - 8..cut - 4] == [0xff; 4]);
                assert_eq!(recovered.torn.is_none(), clean, "cut {cut}: {:?}", recovered.torn);
            }
            // The journal continues, and the torn tail does not come back.
            commit(&journal, [100, 101]);
            journal.close().expect("close");
            let (numbers, result) = read(&*torn, Position(0));
            assert_eq!(numbers, (0..whole).chain([100, 101]).collect::<Vec<_>>(), "cut {cut}");
            assert_eq!(result.expect("replay").torn, None, "cut {cut}");
        }
    }
}

#[test]
fn every_flipped_bit_is_found_and_placed() {
    for (shape, segment_bytes) in [(Shape::Grows, 1 << 20), (Shape::Grows, 100), (Shape::Whole, 120)] {
        let (place, last) = small(segment_bytes, shape);
        for info in place.list().expect("list") {
            let bytes = place.read(info.number, u64::MAX).expect("read");
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let damaged = Arc::new(copy(&place));
                damaged.set_bytes(info.number, bad);
                let (numbers, result) = read(&*damaged, Position(0));
                assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "a prefix");
                let context =
                    format!("{shape:?}, segment {}, byte {} of {}", info.number, bit / 8, bytes.len());
                match result {
                    Err(JournalError::Damaged(damage)) => {
                        assert_eq!(damage.kind, DamageKind::Corrupt, "{context}");
                        assert_eq!(damage.segment, info.number, "{context}: {damage}");
                        assert!(damage.offset <= (bit / 8) as u64, "{context}: {damage}");
                    }
                    // A claim holds nothing that could be lost.
                    Ok(_) if bytes.len() == 64 => assert_eq!(numbers.len(), 9, "{context}"),
                    // The last mark of a segment has nothing after it.
                    Ok(replayed) => {
                        assert_eq!(numbers.len(), 9, "{context}");
                        let at_the_end = bit / 8 >= bytes.len() - 8;
                        assert!(at_the_end, "{context}: {replayed:?}");
                        assert_eq!(replayed.torn.is_some(), info.number == last, "{context}");
                    }
                    Err(error) => panic!("{context}: {error}"),
                }
                // Opening refuses, or continues after the end; it never panics.
                drop(Journal::open(damaged, identity(2), options(segment_bytes)));
            }
        }
    }
}

#[test]
fn a_bad_frame_before_a_whole_one_is_corrupt_without_any_mark() {
    let (place, journal) = create(Shape::Grows, options(1 << 20));
    commit(&journal, [10, 11, 12]);
    let mut bytes = place.read(1, u64::MAX).expect("read");
    bytes[64 + 20] ^= 1;
    let damaged = copy(&place);
    damaged.set_bytes(1, bytes.clone());
    let Err(JournalError::Damaged(damage)) = read(&damaged, Position(0)).1 else { panic!("not found") };
    assert_eq!((damage.segment, damage.offset, damage.kind), (1, 64, DamageKind::Corrupt));
    assert!(
        damage
            .to_string()
            .starts_with("corrupt journal: segment 0000000000000001, offset 64: expected checksum")
    );
}

#[test]
fn a_sector_that_never_reached_the_disk_is_torn() {
    let (place, journal) = create(Shape::Grows, options(1 << 20));
    let header = FrameHeader { event_count: 1, shard: ShardId(0), session: SessionId(0), seq: Seq(0) };
    let mut frames = Vec::new();
    encode_frame(&mut frames, &header, &[1; 2000]);
    encode_frame(&mut frames, &header, &[2; 10]);
    journal.append(&frames, 2).expect("append");
    journal.wait_durable(Position(2)).expect("durable");
    let mut bytes = place.read(1, u64::MAX).expect("read");
    bytes[512..1024].fill(0);
    let torn = Arc::new(copy(&place));
    torn.set_bytes(1, bytes);
    let (_, recovered) = Journal::open(torn, identity(2), options(1 << 20)).expect("opens");
    assert_eq!(recovered.last_position, Position(0));
    assert_eq!(recovered.torn.map(|damage| damage.kind), Some(DamageKind::Torn));
}

#[test]
fn a_lost_segment_is_corruption() {
    let (place, journal) = create(Shape::Grows, options(100));
    for n in 0..9 {
        commit(&journal, [n]);
    }
    append(&journal, [9]);
    let middle = place.list().expect("list")[1].number;
    place.remove(middle).expect("remove");
    let Err(JournalError::Damaged(damage)) = read(&*place, Position(0)).1 else { panic!("not found") };
    assert_eq!(damage.kind, DamageKind::Corrupt);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn hostile_bytes_never_panic(
        tail in prop::collection::vec(prop_oneof![Just(0u8), Just(0xffu8), any::<u8>()], 0..300),
        at in 0usize..400,
    ) {
        let (place, last) = small(1 << 20, Shape::Grows);
        let mut bytes = place.read(last, u64::MAX).expect("read");
        bytes.truncate(at);
        bytes.extend_from_slice(&tail);
        place.set_bytes(last, bytes);
        let (numbers, _) = read(&*place, Position(0));
        prop_assert_eq!(&numbers, &(0..numbers.len() as u64).collect::<Vec<_>>());
    }
}
