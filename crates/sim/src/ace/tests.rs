use super::*;

fn check(options: &Options) -> Report {
    let report = run(options, &|_, _| ()).expect("the small tree is made");
    let said: Vec<&str> = report.failures.iter().map(|failure| failure.what.as_str()).collect();
    assert!(said.is_empty(), "{} failures, the first:\n{}", said.len(), said[0]);
    report
}

#[test]
fn every_operation_alone_survives_every_crash() {
    let report = check(&Options { length: 1, ..Options::default() });
    assert_eq!(report.workloads, vocabulary_len(&Options::default()) as u64);
    assert!(report.crash_points > report.workloads && report.recoveries > report.crash_points);
}

#[test]
fn every_operation_alone_survives_every_crash_with_a_journal_of_objects() {
    let report = check(&Options { length: 1, journal_of_objects: true, ..Options::default() });
    assert!(report.crash_points > report.workloads && report.recoveries > report.workloads, "{report:?}");
}

#[test]
fn a_sample_of_operations_over_two_plates_survives_every_crash_of_both_and_of_each() {
    let report = check(&Options { plates: 2, strides: vec![4, 1_009], length: 2, ..Options::default() });
    assert!(report.workloads > 15 && report.recoveries > 500, "{report:?}");
}

#[test]
fn a_sample_of_operations_on_directories_that_are_split_at_two_names_survives_every_crash() {
    let options =
        Options { plates: 2, splits: true, strides: vec![5, 1_709], length: 2, ..Options::default() };
    let report = check(&options);
    assert!(report.workloads > 20 && report.recoveries > 500, "{report:?}");
}

#[test]
fn a_directory_that_was_folded_grows_and_is_split_again() {
    let base = Base::new(Shape::Grows, 2, true).expect("the small tree is made");
    let known = vocabulary(2, true);
    let place = |step: &Step| known.iter().position(|known| known == step).expect("of the vocabulary");
    for then in [Step::Rename("/a/s", "/a/l"), Step::HoldUnnamed("/a/n", 20_000)] {
        let steps = [place(&Step::Fold("/a")), place(&then)];
        let ran = Workload::new(&base, &steps, None).run();
        assert!(ran.failure.is_none(), "{:?}", ran.failure);
        assert!(ran.recoveries > 50, "{ran:?}");
    }
}

#[test]
fn a_sample_of_longer_workloads_survives_every_crash() {
    let report = check(&Options { strides: vec![u64::MAX, 23, 2_003], ..Options::default() });
    assert!(report.workloads > 150 && report.recoveries > 1_000, "{report:?}");
}

#[test]
fn workloads_are_counted_shortest_first_and_each_once() {
    let options = Options { length: 2, ..Options::default() };
    let n = vocabulary_len(&Options::default());
    assert_eq!((options.count(1), options.count(2)), (n as u64, (n * n) as u64));
    assert_eq!(options.nth(0), [0]);
    assert_eq!(options.nth(n as u64), [0, 0]);
    let all: std::collections::BTreeSet<Vec<usize>> =
        (0..options.count(1) + options.count(2)).map(|at| options.nth(at)).collect();
    assert_eq!(all.len(), n + n * n);
}

/// A judge that takes such a copy for a write expects a later mtime than the file has.
#[test]
fn a_copy_of_nothing_to_another_plate_changes_nothing() {
    let base = Base::new(Shape::Grows, 2, false).expect("the small tree is made");
    let steps = [Step::Truncate("/a/l", 0), Step::Copy("/a/l", "/b/n")];
    let place =
        |step: &Step| vocabulary(2, false).iter().position(|known| known == step).expect("of the vocabulary");
    let steps: Vec<usize> = steps.iter().map(place).collect();
    let ran = Workload::new(&base, &steps, None).run();
    assert!(ran.failure.is_none(), "{:?}", ran.failure);
}

#[test]
fn canaries_broken_rules_are_noticed() {
    let write = Step::Write { path: "/a/l", offset: 10_000, bytes: 20_000 };
    // A name without an inode, and the other way round: not merely something that was promised to be durable.
    const OVER_PLATES: &[&str] = &["Stale", "inconsistencies"];
    // The inode ends on plate 1, and plate 0 does not know that it has decided so.
    let removed = [Step::Mkdir("/b/e/m"), Step::Sync, Step::Rmdir("/b/e/m")];
    // The directory's row is guarded on plate 0, and plate 1 decides. With the guard the removal before it is lost.
    let guarded = [Step::Create("/a/d/n", 100), Step::Sync, Step::Unlink("/a/d/n"), Step::Rmdir("/a/d")];
    // The directory's row is on plate 0, and plate 1 decides. Carried out once more, the exchange would undo the later time.
    let twice = [Step::Exchange("/a/d", "/a/l"), Step::Chmod("/a/l", 0o600), Step::Checkpoint];
    let cases: [(Canary, u16, &[Step], &[&str]); 9] = [
        // A number that is used twice, or a journal that ends before the rows: whichever crash finds it first.
        (
            Canary::SegmentsNotSynced,
            1,
            &[Step::Create("/n", 0), Step::Fsync("/a/s")],
            &["a second time", "the journal ends at position"],
        ),
        (Canary::ObjectsNotSynced, 1, &[write, Step::Sync], &["not found"]),
        (Canary::HalfCommits, 1, &[Step::Rename("/a", "/b/e"), Step::Checkpoint], &[""]),
        (Canary::CommitsForgotten, 1, &[Step::Mkdir("/b/n"), Step::Checkpoint], &[""]),
        (Canary::RottenObjects, 1, &[write, Step::Sync], &["checksum"]),
        (Canary::FirstPlateNotSynced, 2, &removed, OVER_PLATES),
        (Canary::SecondPlateNotSynced, 2, &[Step::Rmdir("/a/d")], OVER_PLATES),
        (Canary::FirstPlateNotSynced, 2, &guarded, OVER_PLATES),
        (Canary::EffectsForgotten, 2, &twice, &["do not come to rest"]),
    ];
    assert!(Canary::ALL.iter().all(|(_, canary)| cases.iter().any(|(case, ..)| case == canary)));
    let bases = [1, 2].map(|plates| Base::new(Shape::Grows, plates, false).expect("the small tree is made"));
    let place =
        |step: &Step| vocabulary(2, false).iter().position(|known| known == step).expect("of the vocabulary");
    for (canary, plates, steps, expect) in cases {
        let base = &bases[usize::from(plates) - 1];
        let steps: Vec<usize> = steps.iter().map(place).collect();
        let honest = Workload::new(base, &steps, None).run();
        assert!(honest.failure.is_none(), "{:?}", honest.failure);
        let failure = Workload::new(base, &steps, Some(canary)).run().failure;
        let said = failure.unwrap_or_else(|| panic!("{canary:?} was not noticed")).what;
        assert!(
            expect.iter().any(|words| said.contains(words)),
            "{canary:?} is not noticed by {expect:?}: {said}"
        );
    }
}
