//! Several change one subtree, merge and die: `docs/simulation.md`, "Mixes".

use chiton_sim::mix::cells::{self, Broken, Cell, Switch};
use chiton_sim::mix::{Arm, Case, Met, OfDisk, Victim, run};

#[test]
fn a_merge_has_the_changes_of_both_sides_whoever_dies() {
    let mut all = Met::default();
    // Of 403 a branch that died during its merge could not be read when it was resumed; in others the resumed
    // client did not see the merged state (10881, 17422, 21161), or could not read a file with two names (21636);
    // 20948 lost a file.
    for seed in (0..60).chain([403, 10881, 17422, 20948, 21161, 21636, 35228, 48172]) {
        let outcome = run(&Case::draw(seed));
        assert_eq!(outcome.wrong, None, "cargo xtask mix --seed {seed}");
        all += outcome.met;
    }
    // They are about something.
    let Met { merges, contradicted, conflicts, stopped, deaths, recoveries, .. } = all;
    assert!(merges > 100 && contradicted > 20 && conflicts >= contradicted, "{all:?}");
    assert!(stopped > 5 && deaths > 5 && recoveries > 5, "{all:?}");
}

/// Wide cases that were wrong once: seed, and the steps that it took.
const FOUND_WIDE: &[(u64, &[usize])] = &[
    (862773109278, &[3, 10, 27, 35, 46, 50]),
    (821, &[0, 1, 27, 28, 29, 30]),
    (769, &[3, 8, 27, 30, 34, 37, 38, 40, 41]),
    (1041, &[1, 5, 9, 17, 19, 22, 24]),
    (513, &[6, 14, 18, 31, 32, 39, 40, 41, 45, 47, 58]),
    (1461, &[0, 10, 13, 17, 28, 32, 34, 35]),
    (10289, &[13, 14, 28, 32, 33, 34, 40]),
    (600680107017, &[2, 11, 15, 20, 21]),
    (600680106810, &[4, 5, 7, 10, 11, 12, 14]),
    (303, &[2, 3, 7, 8, 13, 14, 15, 28]),
    (10233, &[2, 4, 8, 14, 20, 22, 38]),
    (10233, &[2, 4, 8, 13, 22, 29, 31, 32, 33]),
    (
        1304,
        &[
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 30, 31, 32, 33, 34, 35, 36, 37, 39, 42,
            44, 45, 46, 47, 48,
        ],
    ),
    (1054, &[2, 12, 13, 15, 16, 19, 20, 22, 24, 26, 30]),
    (18007164598, &[10, 11, 13, 14, 15, 22, 25, 27, 28, 37, 38, 40]),
    (349509530320, &[2, 3, 7, 9, 11, 12]),
    (468590709529, &[1, 2, 4, 5, 6, 8, 9, 13, 14, 16, 17, 18]),
    // A loss that a close reported is reported to the next sync, too.
    (
        704211747967,
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 25, 26, 29, 30, 31, 38],
    ),
    // A further name that ours took again brought back a file that others had replaced.
    (20169, &[3, 16, 17, 20, 22]),
    // A file that both removed came back for a moment, and took the place of another.
    (18007164598, &[10, 11, 13, 14, 15, 16, 22, 25, 27, 28, 37, 38, 40]),
    // Ours prevails where a merge put its file aside.
    (18007164598, &[10, 13, 14, 15, 22, 25, 37, 40]),
    (1024962462521, &[6, 7, 9, 11, 12, 14, 18, 22, 25, 29, 30, 33, 34]),
];

/// S105: larger files, written in part by both sides, saved by renames; sides that begin later.
#[test]
fn no_merge_mixes_the_bytes_of_two_sides() {
    let mut all = Met::default();
    for seed in 0..60 {
        let outcome = run(&Case::wide(seed));
        assert_eq!(outcome.wrong, None, "cargo xtask mix --wide --seed {seed}");
        all += outcome.met;
    }
    let Met { merges, contradicted, stopped, resolved, rescued, .. } = all;
    assert!(merges > 100 && contradicted > 20 && stopped > 3, "{all:?}");
    assert!(resolved > 0 && rescued > 0, "{all:?}");
    // Under abort a merge stopped in the middle: at a file that both had removed and ours had edited before, at a
    // temporary name of ours, and after conflicts were resolved to the version of the others. In 10233, one name of
    // a file was resolved to theirs, and its other name had theirs too. In 600680106810, the side died in its
    // merge, and its former version was back under its name. In 303 and 10233, a file with two names did not get
    // the one that ours still had. In 1304, a client that resumed got the entry of others instead of its own. In 1054,
    // a file that others had moved was copied after ours had emptied it. In 18007164598, ours
    // removed a file, and a merge put it in the place of another that others had saved. In
    // 349509530320, ours replaced a name that it had itself given to a file of theirs. In 468590709529 the judge was wrong.
    for (seed, only) in FOUND_WIDE {
        let mut case = Case::wide(*seed);
        case.steps = only.iter().map(|n| case.steps[*n].clone()).collect();
        assert_eq!(run(&case).wrong, None, "cargo xtask mix --wide --seed {seed} --only {only:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_case_and_the_same_lines() {
    for seed in [3, 265] {
        let (a, b) = (run(&Case::draw(seed)), run(&Case::draw(seed)));
        assert_eq!((a.met, a.lines), (b.met, b.lines), "seed {seed}");
    }
}

/// S54: of each pair of cells one death, now of one, now of another, after this or that write. All deaths there
/// are: `cargo xtask mix --cells`.
#[test]
fn a_policy_change_keeps_promises_over_any_death() {
    let (mut struck, mut within, mut gone_on) = (0, 0, 0);
    for (n, (from, to)) in cells::pairs().enumerate() {
        let victim = [Victim::Server, Victim::Side(0), Victim::Both(0)][n % 3];
        let has_journal = |cell: Cell| cell.is_decoupled() && cell.durability == "local";
        let of = match has_journal(to) && n % 2 == 0 {
            true => OfDisk::Side(0),
            false => OfDisk::Server,
        };
        let strike = Some(Arm { victim, of, after: 1 + (n as u64 * 7) % 11 });
        let outcome = Switch { strike, ..Switch::new(from, to, 0) }.run(None);
        assert_eq!(outcome.wrong, None);
        struck += u64::from(outcome.met.struck);
        within += u64::from(outcome.met.within);
        gone_on += u64::from(outcome.met.gone_on);
    }
    assert!(struck > 50 && within > 20 && gone_on > 10, "{struck} {within} {gone_on}");
}

/// Seeds that a canary is looked for with.
const SEEDS_OF_CANARIES: u64 = 10;

/// Looks for a death that shows the broken rule, where the same is right without. A death loses what the seed draws, so some
/// seeds show nothing.
fn is_noticed(broken: Broken, from: Cell, to: Cell) {
    let noticed = |switch: &Switch| {
        let wrong = switch.run(Some(broken)).wrong;
        wrong.is_some_and(|wrong| wrong.contains("must be there")) && switch.run(None).wrong.is_none()
    };
    let is_noticed = (0..SEEDS_OF_CANARIES).any(|seed| {
        let whole = Switch::new(from, to, seed);
        whole.strikes(whole.run(None).met.writes).iter().rev().any(noticed)
    });
    assert!(is_noticed, "{broken:?} is not noticed");
}

#[test]
fn a_policy_that_promises_more_than_holds_is_noticed() {
    let cell = |consistency, durability| Cell { consistency, durability };
    is_noticed(Broken::Weaker, cell("strong", "local"), cell("strong", "global"));
    is_noticed(Broken::Weaker, cell("weak", "local"), cell("strong", "local"));
}

#[test]
fn disks_that_do_not_sync_are_noticed() {
    let cell = |durability| Cell { consistency: "invisible", durability };
    is_noticed(Broken::Unsynced, cell("none"), cell("local"));
}

/// S128. The subtree lies on one of two plates, or of three.
#[test]
fn a_merge_over_plates_has_the_changes_of_both_sides() {
    let mut merges = 0;
    for seed in 0..20 {
        let case = if seed % 2 == 0 { Case::draw(seed) } else { Case::wide(seed) };
        let case = case.over(if seed % 3 == 0 { 3 } else { 2 });
        let outcome = run(&case);
        assert_eq!(outcome.wrong, None, "cargo xtask mix --seed {seed} --plates {}", case.plates);
        merges += outcome.met.merges;
    }
    assert!(merges > 10, "{merges} merges");
}
