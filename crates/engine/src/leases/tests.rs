//! Leases alone, without an engine.

use super::*;
use LeaseMode::{Exclusive, None as Nothing, Shared};

const INO: Ino = Ino(7);
const NOW: Time = Time(1_000);
const T: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_millis(250);
const A: Slot = Slot(1);
const B: Slot = Slot(2);
const C: Slot = Slot(3);

/// Three sessions, the first (with the universal lease) gone.
fn three() -> Leases {
    let mut l = Leases::new(100, REST);
    for slot in [Slot(9), A, B, C] {
        l.join(slot);
    }
    l.leave(Slot(9));
    l
}

#[test]
fn conflicts_and_what_is_recalled() {
    // Holder A has `held`; B wants others to keep at most `keep`.
    let check = |held, keep, expect: bool| {
        let mut l = three();
        assert_eq!(l.grant(INO, A, held, true, T), held);
        assert_eq!(l.conflict(INO, B, keep, T), expect, "{held:?} {keep:?}");
        assert_eq!(l.conflict(INO, B, keep, T), expect);
        assert_eq!(l.recalls.outbox.len(), usize::from(expect), "asked once");
        assert!(!l.conflict(INO, A, keep, T), "one's own lease is never in the way");
        if expect {
            assert_eq!(l.acknowledge(B, l.recalls.outbox[0].1.id), Option::None, "not B's to give back");
            assert_eq!(l.acknowledge(A, l.recalls.outbox[0].1.id), Some(INO));
            assert!(!l.conflict(INO, B, keep, T));
            assert_eq!(l.mode(INO, A), keep);
        }
    };
    check(Shared, Nothing, true);
    check(Shared, Shared, false);
    check(Exclusive, Shared, true);
    check(Exclusive, Nothing, true);
}

#[test]
fn grants() {
    let mut l = three();
    assert_eq!(l.grant(INO, A, Shared, false, T), Shared);
    assert_eq!(l.grant(INO, B, Shared, false, T), Shared);
    assert_eq!(l.grant(INO, A, Exclusive, true, T), Shared, "B reads");
    assert!(l.conflict(INO, A, Nothing, T));
    l.wait(INO);
    assert_eq!(l.grant(INO, C, Shared, false, T), Nothing, "wanted by A");
    assert_eq!(l.grant(INO, B, Shared, false, T), Nothing, "B is to give it back");
    assert_eq!(l.acknowledge(B, 1), Some(INO));
    l.wait_ended(INO);
    assert_eq!(l.grant(INO, A, Exclusive, true, T), Exclusive);
    assert_eq!(l.grant(INO, B, Shared, false, T + REST), Nothing, "A is alone on it");
    assert_eq!(l.len(), 1);
}

#[test]
fn the_first_session_holds_everything_until_asked() {
    let mut l = Leases::new(100, REST);
    l.join(A);
    assert!(l.is_alone(A));
    assert_eq!(l.grant(INO, A, Shared, false, T), Exclusive);
    l.join(B);
    assert!(!l.is_alone(A));
    assert_eq!(l.grant(INO, B, Shared, false, T), Nothing);
    assert!(l.conflict(INO, B, Shared, T));
    let id = l.recalls.outbox[0].1.id;
    assert_eq!(l.acknowledge(A, id), Some(INO));
    assert_eq!(l.mode(INO, A), Shared);
    assert_eq!(l.grant(INO, B, Shared, false, T), Shared);
    assert_eq!(l.mode(Ino(8), A), Exclusive);
    l.leave(A);
    assert!(l.is_alone(B) && l.len() == 0);
}

#[test]
fn what_the_first_session_gave_back_is_not_its_own_when_the_others_go() {
    let mut l = Leases::new(100, REST);
    l.join(A);
    l.join(B);
    for ino in [INO, Ino(8)] {
        assert!(l.conflict(ino, B, Nothing, T));
    }
    assert_eq!(l.acknowledge(A, 1), Some(INO));
    l.leave(B);
    assert!(!l.is_alone(A), "it is still asked for the other");
    assert_eq!(l.grant(INO, A, Shared, false, T + REST), Shared, "it holds what it is given");
    l.join(C);
    assert!(l.conflict(INO, C, Nothing, T), "and is asked for it again");
    l.leave(C);
    assert_eq!(l.acknowledge(A, 2), Some(Ino(8)));
    assert_eq!(l.acknowledge(A, 3), Some(INO));
    assert!(l.is_alone(A) && l.len() == 0);
    // B's recalls do not reach it yet, so that it does not count among those who hold something.
    assert!(l.conflict(INO, B, Nothing, T));
    l.wait(INO);
    assert_eq!(l.acknowledge(A, 4), Some(INO));
    assert!(!l.conflict(INO, B, Nothing, T), "it gets its turn");
    l.wait_ended(INO);
    l.join(C);
    assert!(l.conflict(Ino(8), C, Nothing, T));
}

/// The first session, which holds everything, and another that looks at `count` inodes.
fn looked_at(count: u64) -> Leases {
    let mut l = Leases::new(100, REST);
    l.join(A);
    l.join(B);
    for ino in (1..=count).map(Ino) {
        let holds_all = l.mode.holder() == Some(A);
        assert_eq!(l.grant(ino, B, Shared, false, T), if holds_all { Nothing } else { Shared });
        l.downgrade_idle(ino, B, T, |_| false);
        for (slot, recall) in std::mem::take(&mut l.recalls.outbox) {
            assert!(slot == A || recall.keep == Nothing);
            l.acknowledge(slot, recall.id).expect("asked");
        }
        l.grant(ino, B, Shared, false, T);
        l.limit(T);
        for (slot, recall) in std::mem::take(&mut l.recalls.outbox) {
            l.acknowledge(slot, recall.id).expect("asked");
        }
    }
    l
}

#[test]
fn the_session_that_holds_everything_counts_with_what_it_holds_less_of() {
    let l = looked_at(50);
    assert_eq!((l.len(), l.mode(Ino(1), A), l.mode(Ino(1), B)), (100, Shared, Shared));
    assert_eq!(l.mode(Ino(51), A), Exclusive);
    // It has given up everything.
    let l = looked_at(1_000);
    assert!(l.len() <= 100, "{}", l.len());
    assert_eq!(
        (l.mode(Ino(999), A), l.mode(Ino(1_000), B), l.mode(Ino(1_001), A)),
        (Nothing, Shared, Nothing)
    );
}

#[test]
fn what_the_session_that_holds_everything_shares_is_not_forgotten() {
    let mut l = looked_at(50);
    assert_eq!(l.forget_exception(Ino(1), A), Some(false));
    assert_eq!(l.grant(Ino(1), A, Exclusive, true, T), Shared, "B reads");
    assert!(l.conflict(Ino(1), A, Nothing, T));
    let (slot, recall) = l.recalls.outbox.pop().expect("a recall");
    assert_eq!((slot, l.acknowledge(slot, recall.id)), (B, Some(Ino(1))));
    assert_eq!(l.forget_exception(Ino(1), A), Some(true), "nobody else has it");
    assert_eq!((l.mode(Ino(1), A), l.len()), (Exclusive, 98));
    assert_eq!(l.forget_exception(Ino(1), A), Option::None);
}

#[test]
fn who_comes_back_holds_nothing_until_all_are_back() {
    let mut l = Leases::new(100, REST);
    l.rejoin(A);
    l.rejoin(B);
    l.leave(A);
    assert!(!l.is_alone(B), "what others send again would wait for it");
    assert!(!l.conflict(INO, C, Nothing, T));
    l.all_back();
    assert!(l.is_alone(B));
}

#[test]
fn the_session_that_holds_everything_gives_all_up_for_a_decoupling() {
    let mut l = Leases::new(100, REST);
    l.join(A);
    l.freeze(T);
    assert!(l.recall_everything(Nothing, T) && l.recall_everything(Nothing, T));
    assert_eq!(l.recalls.outbox, [(A, Recall { id: 1, ino: EVERYTHING, keep: Nothing, grown: None })]);
    let late = T * 60;
    assert_eq!(l.grant(INO, A, Shared, true, late), Nothing, "it is being asked to give up all");
    assert_eq!(l.acknowledge(A, 1), Some(EVERYTHING));
    assert!(!l.recall_everything(Nothing, late) && l.held(Nothing).is_empty());
    assert_eq!(l.grant(INO, A, Shared, true, T), Nothing, "frozen");
    l.thaw();
    assert_eq!(l.grant(INO, A, Shared, false, T), Shared);
    assert_eq!(l.held(Nothing), [INO]);
    assert_eq!(l.held(Shared), [], "who reads only");
    l.decoupled(true);
    assert!(!l.is_alone(A) && l.conflict(INO, Slot::SERVER, Nothing, T));
    assert_eq!(l.acknowledge(A, 2), Some(INO));
    l.leave(A);
    l.join(B);
    assert!(!l.is_alone(B), "while something is decoupled nobody holds everything");
    l.decoupled(false);
    assert!(l.is_alone(B));
}

#[test]
fn the_session_that_holds_everything_gives_all_up_for_its_job() {
    let mut l = Leases::new(100, REST);
    l.join(A);
    l.join(B);
    l.recall_everything_of(B, T);
    assert_eq!(l.recalls.outbox, [], "it holds nothing but what the table says");
    l.recall_everything_of(A, T);
    l.recall_everything_of(A, T);
    assert_eq!(l.recalls.outbox, [(A, Recall { id: 1, ino: EVERYTHING, keep: Nothing, grown: None })]);
    assert_eq!(l.acknowledge(A, 1), Some(EVERYTHING));
    assert!(!l.conflict(INO, B, Nothing, T), "one recall for all inodes");
}

#[test]
fn the_session_that_holds_everything_hands_over_what_it_buffered_for_a_branch() {
    let mut l = Leases::new(100, REST);
    l.join(A);
    assert!(l.grant_names(INO, A, (NOW, T)));
    l.freeze(T);
    assert!(l.recall_everything(Shared, T) && l.recall_everything(Shared, T));
    assert_eq!(l.recalls.outbox, [(A, Recall { id: 1, ino: EVERYTHING, keep: Shared, grown: None })]);
    assert_eq!(l.acknowledge(A, 1), Some(EVERYTHING));
    assert!(!l.holds_names(INO, A), "it ends write-behind");
    assert_eq!(l.grant(INO, A, Exclusive, true, T), Nothing, "frozen");
    l.freeze(T);
    assert!(!l.recall_everything(Shared, T), "it has none that it could have buffered under");
    assert!(l.recall_everything(Nothing, T), "but may have cached");
    assert_eq!(l.acknowledge(A, 2), Some(EVERYTHING));
    l.decoupled(true);
    l.leave(A);
    l.decoupled(false);
    l.join(A);
    // It took too long: leases were given again meanwhile.
    l.freeze(T);
    assert!(l.recall_everything(Shared, T));
    assert_eq!(l.acknowledge(A, 3), Some(EVERYTHING));
    let late = T * 60;
    assert_eq!(l.grant(INO, A, Exclusive, true, late), Exclusive);
    l.freeze(late);
    assert!(l.recall_everything(Shared, late));
    // It is the next one's turn.
    assert_eq!(l.acknowledge(A, 4), Some(EVERYTHING));
    l.thaw();
    l.freeze(late);
    assert!(l.recall_everything(Shared, late));
}

#[test]
fn who_holds_the_names_of_a_directory_is_asked_by_whoever_looks() {
    let mut l = three();
    assert!(l.grant_names(INO, A, (NOW, T)) && l.holds_names(INO, A));
    assert!(!l.names_conflict(INO, A, T), "one's own");
    assert_eq!(l.grant(INO, B, Shared, false, T), Nothing, "nobody else caches names");
    assert_eq!(l.held(Shared), [INO]);
    assert!(l.names_conflict(INO, B, T) && l.names_conflict(INO, C, T));
    assert_eq!(l.recalls.outbox, [(A, Recall { id: 1, ino: INO, keep: Shared, grown: None })], "asked once");
    assert!(!l.grant_names(INO, A, (NOW, T)), "it is to be given back");
    assert_eq!(l.acknowledge(A, 1), Some(INO));
    assert!(!l.names_conflict(INO, B, T) && !l.holds_names(INO, A));
    assert_eq!(l.mode(INO, A), Shared, "names stay cached");
    assert_eq!(l.grant(INO, B, Shared, false, T), Shared);
    assert!(!l.grant_names(INO, A, (NOW, T)), "B looks at it");
    assert!(l.conflict(INO, A, Nothing, T));
    assert_eq!(l.acknowledge(B, 2), Some(INO));
    assert!(!l.grant_names(INO, A, (NOW, T)), "it was fought over a moment ago");
    assert!(l.grant_names(INO, A, (NOW, T + REST)));
    assert!(l.grant_names(INO, A, (Time(2_000), T + REST)));
    assert_eq!(l.names_since(INO, A), Some(NOW), "asked for more numbers, he holds it since then");
    assert!(!l.names_taken(INO, A, T) && !l.names_taken(Ino(8), B, T));
    assert_eq!(l.any_names_conflict(T)[..], [INO]);
    assert!(l.names_taken(INO, B, T), "asked for more");
    l.leave(A);
    assert!(l.any_names_conflict(T).is_empty());
}

#[test]
fn what_was_just_made_is_not_held_by_the_session_that_holds_everything() {
    let mut l = Leases::new(100, REST);
    l.join(A);
    assert_eq!(l.grant_born(INO, A, Exclusive, T), Exclusive);
    assert!(l.is_alone(A), "nothing to note");
    l.join(B);
    assert_eq!(l.grant_born(Ino(6), B, Shared, T), Shared);
    assert_eq!((l.mode(Ino(6), A), l.mode(Ino(8), A)), (Nothing, Exclusive));
    assert_eq!(l.grant(Ino(6), B, Exclusive, true, T), Exclusive);
    assert!(l.grant_names(Ino(6), B, (NOW, T)) && !l.grant_names(Ino(8), B, (NOW, T)));
    assert!(!l.conflict(Ino(6), B, Nothing, T));
    assert!(l.conflict(Ino(6), A, Nothing, T), "its maker is asked, and nobody else");
    assert_eq!(l.recalls.outbox.len(), 1);
    l.leave(B);
    assert_eq!(l.mode(Ino(6), A), Exclusive);
}

#[test]
fn what_others_made_is_noted_up_to_the_limit_and_then_counts_as_held() {
    let mut l = Leases::new(10, REST);
    l.join(A);
    l.join(B);
    for ino in (1..=20).map(Ino) {
        assert_eq!(l.grant_born(ino, B, Exclusive, T), Exclusive);
        l.limit(T);
        while let Some((slot, recall)) = l.recalls.outbox.pop() {
            assert_eq!((slot, recall.keep), (B, Nothing), "who holds everything is not asked");
            l.acknowledge(slot, recall.id);
        }
    }
    assert!((8..=12).contains(&l.len()), "{} leases", l.len());
    assert_eq!((l.mode(Ino(20), A), l.mode(Ino(20), B)), (Nothing, Exclusive));
    assert_eq!((l.mode(Ino(1), A), l.mode(Ino(1), B)), (Exclusive, Nothing));
    assert!(l.conflict(Ino(1), B, Nothing, T), "it is asked for what may be its");
}

#[test]
fn one_that_holds_everything_does_not_hold_again_what_others_have_when_that_is_no_longer_noted() {
    let mut l = Leases::new(2, REST);
    l.join(A);
    l.join(B);
    for ino in (1..=6).map(Ino) {
        assert!(l.conflict(ino, B, Shared, T));
        let (_, recall) = l.recalls.outbox.pop().expect("sent");
        l.acknowledge(A, recall.id);
        assert!(l.conflict(ino, B, Nothing, T));
        let (_, recall) = l.recalls.outbox.pop().expect("sent");
        l.acknowledge(A, recall.id);
        l.grant(ino, B, Shared, true, T);
        l.limit(T);
        let (b, a) = (l.mode(ino, B), l.mode(ino, A));
        assert!(a == Nothing || b == Nothing, "{ino}: A {a:?}, B {b:?}");
        l.grant(ino, A, Exclusive, true, T);
        let (b, a) = (l.mode(ino, B), l.mode(ino, A));
        assert!(a == Nothing || b == Nothing, "{ino}: A {a:?}, B {b:?}");
    }
}

#[test]
fn who_holds_what_others_look_at_is_asked_once_to_share_it_unless_he_has_it_open() {
    let mut l = Leases::new(100, REST);
    l.join(A);
    l.join(B);
    l.join(C);
    assert_eq!(l.grant_born(Ino(6), C, Exclusive, T), Exclusive);
    for (ino, holder) in [(INO, A), (Ino(6), C)] {
        assert_eq!(l.grant(ino, B, Shared, false, T), Nothing);
        l.downgrade_idle(ino, B, T, |slot| slot == holder);
        assert!(l.recalls.outbox.is_empty(), "open");
        l.downgrade_idle(ino, B, T, |_| false);
        l.downgrade_idle(ino, B, T, |_| false);
        let (slot, recall) = l.recalls.outbox.pop().expect("asked");
        assert_eq!((slot, recall.ino, recall.keep), (holder, ino, Shared));
        assert!(l.recalls.outbox.is_empty(), "once");
        assert_eq!(l.acknowledge(slot, recall.id), Some(ino));
        assert_eq!((l.grant(ino, B, Shared, false, T), l.mode(ino, holder)), (Shared, Shared));
    }
    // Where it is changed in turns, looks do not add to it.
    assert!(l.conflict(INO, A, Nothing, T));
    let (_, recall) = l.recalls.outbox.pop().expect("asked");
    l.acknowledge(B, recall.id);
    assert_eq!(l.grant(INO, A, Exclusive, true, T), Exclusive);
    l.downgrade_idle(INO, B, T, |_| false);
    assert!(l.recalls.outbox.is_empty());
    l.downgrade_idle(INO, B, T + REST, |_| false);
    assert_eq!(l.recalls.outbox.len(), 1);
}

#[test]
fn the_names_of_one_who_was_alone_are_asked_back_too() {
    let mut l = Leases::new(100, REST);
    l.join(A);
    l.set(INO, A, Nothing);
    assert!(l.grant_names(INO, A, (NOW, T)) && l.grant_names(Ino(8), A, (NOW, T)));
    l.join(B);
    for ino in [INO, Ino(8)] {
        assert!(l.names_conflict(ino, B, T) && l.conflict(ino, B, Nothing, T));
    }
    l.join(C);
    assert!(l.grant_names(Ino(9), A, (NOW, T)), "nobody else has asked for it");
    l.forget(Ino(9));
    assert!(!l.names_conflict(Ino(9), B, T));
    assert!(l.conflict(Ino(10), B, Nothing, T));
    let last = l.recalls.outbox.last().expect("asked").1.id;
    assert_eq!(l.acknowledge(A, last), Some(Ino(10)));
    assert!(l.grant_names(Ino(10), B, (NOW, T)), "it was held as everything else, not used");
}

#[test]
fn too_many_leases_recall_the_oldest() {
    let mut l = Leases::new(3, REST);
    for slot in [Slot(9), A, B] {
        l.join(slot);
    }
    l.leave(Slot(9));
    l.join(C);
    for n in 0..5 {
        l.grant(Ino(n), A, Shared, false, T);
    }
    l.limit(T);
    let recalled: Vec<Ino> = l.recalls.outbox.iter().map(|(_, r)| r.ino).collect();
    assert_eq!(recalled, [Ino(0), Ino(1)]);
    l.limit(T);
    assert_eq!(l.recalls.outbox.len(), 2, "two are on their way back already");
    assert_eq!(l.overdue(T * 2, T * 2), [A]);
    l.leave(A);
    assert_eq!(l.recall_count(), 0);
}
