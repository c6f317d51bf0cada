//! The requirements of every place, as one function: a new place is one file and one call.

use crate::place::{Place, PlaceError, Shape};

/// Runs all checks, each on a fresh and empty place from `make`.
///
/// # Panics
/// If the place does not conform.
pub fn suite(make: &dyn Fn() -> Box<dyn Place>) {
    lists_in_order(&*make());
    reads_return_the_written_bytes(&*make());
    has_one_winner(&*make());
    removes(&*make());
    if make().shape() == Shape::Grows {
        grows(&*make());
    } else {
        wins_again_with_the_same_bytes(&*make());
    }
}

fn numbers(place: &dyn Place) -> Vec<(u64, u64)> {
    place.list().expect("list").iter().map(|segment| (segment.number, segment.bytes)).collect()
}

fn lists_in_order(place: &dyn Place) {
    assert_eq!(numbers(place), []);
    for number in [0x10, 2, 9, u64::MAX, 1] {
        place.create(number, &number.to_le_bytes()[..(number % 8) as usize]).expect("create");
    }
    assert_eq!(numbers(place), [(1, 1), (2, 2), (9, 1), (0x10, 0), (u64::MAX, 7)]);
}

fn reads_return_the_written_bytes(place: &dyn Place) {
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    place.create(1, &bytes).expect("create");
    assert!(place.read(1, u64::MAX).expect("read all") == bytes);
    assert!(place.read(1, 100_000).expect("read all") == bytes);
    assert!(place.read(1, 64).expect("read the head") == bytes[..64]);
    assert!(place.read(1, 0).expect("read nothing").is_empty());
    assert_eq!(place.read(2, 64), Err(PlaceError::Missing));
}

fn has_one_winner(place: &dyn Place) {
    place.create(1, b"first").expect("create");
    assert_eq!(place.create(1, b"other"), Err(PlaceError::Exists));
    assert_eq!(place.read(1, 99).expect("read"), b"first");
    let won = std::thread::scope(|scope| {
        let contenders: Vec<_> = (0..8u8).map(|n| scope.spawn(move || place.create(2, &[n; 9]))).collect();
        contenders.into_iter().map(|t| t.join().expect("no panic")).collect::<Vec<_>>()
    });
    let winners: Vec<_> = won.iter().enumerate().filter(|(_, result)| result.is_ok()).collect();
    assert_eq!(winners.len(), 1, "{won:?}");
    assert_eq!(place.read(2, 99).expect("read"), [winners[0].0 as u8; 9]);
    assert!(won.iter().all(|result| matches!(result, Ok(()) | Err(PlaceError::Exists))), "{won:?}");
}

fn removes(place: &dyn Place) {
    for number in 1..=3 {
        place.create(number, b"x").expect("create");
    }
    assert_eq!(place.holds(2), Ok(true));
    place.remove(2).expect("remove");
    assert_eq!((place.holds(1), place.holds(2), place.holds(4)), (Ok(true), Ok(false), Ok(false)));
    place.remove(2).expect("remove what is gone");
    place.remove(77).expect("remove what never was");
    assert_eq!(numbers(place), [(1, 1), (3, 1)]);
    place.create(2, b"again").expect("create anew");
    assert_eq!(place.read(2, 99).expect("read"), b"again");
}

fn grows(place: &dyn Place) {
    place.create(1, b"head").expect("create");
    place.append(1, 4, b"one").expect("append");
    place.sync(1).expect("sync");
    place.append(1, 7, b"bad").expect("append");
    // Written again at the same offset, as after a failure.
    place.append(1, 7, b"two").expect("append again");
    place.append(1, 10, b"three").expect("append");
    place.sync(1).expect("sync");
    assert_eq!(place.read(1, 99).expect("read"), b"headonetwothree");
    assert_eq!(numbers(place), [(1, 15)]);
    assert_eq!(place.append(2, 0, b"x"), Err(PlaceError::Missing));
    assert_eq!(place.create(1, b"headonetwothree"), Err(PlaceError::Exists));
    place.create(2, b"next").expect("create");
    place.append(1, 15, b"!").expect("append to the older one");
    assert_eq!(numbers(place), [(1, 16), (2, 4)]);
}

fn wins_again_with_the_same_bytes(place: &dyn Place) {
    place.create(1, b"mine").expect("create");
    place.create(1, b"mine").expect("the answer was lost, the object was not");
    assert_eq!(place.create(1, b"yours"), Err(PlaceError::Exists));
}
