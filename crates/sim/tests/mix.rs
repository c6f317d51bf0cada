//! Several change one subtree, merge and die: `docs/simulation.md`, "Mixes".

use chiton_sim::mix::{Case, Met, run};

#[test]
fn what_is_merged_is_what_both_sides_did_whoever_dies() {
    let mut all = Met::default();
    // Of 403 a branch that died while it was merged could not be read by who went on with it.
    for seed in (0..60).chain([403]) {
        let outcome = run(&Case::draw(seed));
        assert_eq!(outcome.wrong, None, "cargo xtask mix --seed {seed}");
        all += outcome.met;
    }
    // They are about something.
    let Met { merges, contradicted, conflicts, stopped, deaths, recoveries, .. } = all;
    assert!(merges > 100 && contradicted > 20 && conflicts >= contradicted, "{all:?}");
    assert!(stopped > 5 && deaths > 5 && recoveries > 5, "{all:?}");
}

#[test]
fn the_same_seed_gives_the_same_case_and_the_same_lines() {
    for seed in [3, 265] {
        let (a, b) = (run(&Case::draw(seed)), run(&Case::draw(seed)));
        assert_eq!((a.met, a.lines), (b.met, b.lines), "seed {seed}");
    }
}
