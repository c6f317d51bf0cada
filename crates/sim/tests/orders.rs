//! Every order of the messages of calls over plates: `docs/simulation.md`, "Every order of messages".

use chiton_sim::orders::scenario::{LOOKS, PAIRS, Scenario, Shape, TRIPLES};
use chiton_sim::orders::{Broken, Commits, search};

/// States of the largest scenario, and room.
const STATES_MAX: usize = 60_000;

/// Searches every n-th way to lay the directories of some shapes on plates. Returns the number of ends.
fn check(shapes: &[Shape], plates: u16, commits: Commits, stride: usize) -> usize {
    let all = shapes.iter().flat_map(|shape| Scenario::all(*shape, plates).step_by(stride));
    let ends = all.map(|scenario| {
        let found = search(&scenario, commits, None, STATES_MAX);
        assert!(found.wrong.is_none(), "{scenario} over {plates} plates: {:?}", found.wrong);
        assert!(!found.is_cut_off, "{scenario} over {plates} plates has over {STATES_MAX} states");
        found.ends
    });
    ends.sum()
}

/// S117, S118.
#[test]
fn two_calls_over_two_plates_are_right_in_every_order() {
    assert!(check(PAIRS, 2, Commits::AtOnce, 1) > 1_000);
}

/// S117, S118. Plates commit at any time.
#[test]
fn two_calls_are_right_whenever_plates_commit() {
    assert!(check(PAIRS, 2, Commits::AnyTime, 9) > 1_000);
}

/// S117, S118.
#[test]
fn two_calls_over_three_plates_are_right_in_every_order() {
    assert!(check(PAIRS, 3, Commits::AtOnce, 41) > 500);
}

/// S118.
#[test]
fn three_calls_are_right_in_every_order() {
    assert!(check(TRIPLES, 2, Commits::AtOnce, 11) > 1_000);
}

/// S117. Nobody sees a name in two places, or in none.
#[test]
fn clients_that_look_on_see_one_order() {
    assert!(check(LOOKS, 2, Commits::AtOnce, 1) > 500);
}

/// Number of scenarios that a broken rule makes wrong.
fn noticed(broken: Broken) -> usize {
    let all = PAIRS.iter().flat_map(|shape| Scenario::all(*shape, 2).step_by(3));
    all.filter(|scenario| search(scenario, Commits::AtOnce, Some(broken), STATES_MAX).wrong.is_some()).count()
}

#[test]
fn guards_that_are_left_out_are_noticed() {
    assert!(noticed(Broken::GuardsLeftOut) > 0);
}

#[test]
fn a_token_that_is_left_out_is_noticed() {
    assert!(noticed(Broken::TokenLeftOut) > 0);
}
