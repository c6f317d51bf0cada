use super::step::Step;
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
    assert_eq!(report.workloads, VOCABULARY.len() as u64);
    assert!(report.crash_points > report.workloads && report.recoveries > report.crash_points);
}

#[test]
fn every_operation_alone_survives_every_crash_with_a_journal_of_objects() {
    let report = check(&Options { length: 1, journal_of_objects: true, ..Options::default() });
    assert!(report.crash_points > report.workloads && report.recoveries > report.workloads, "{report:?}");
}

#[test]
fn a_sample_of_longer_workloads_survives_every_crash() {
    let report = check(&Options { strides: vec![u64::MAX, 23, 2_003], ..Options::default() });
    assert!(report.workloads > 150 && report.recoveries > 1_000, "{report:?}");
}

#[test]
fn workloads_are_counted_shortest_first_and_each_once() {
    let options = Options { length: 2, ..Options::default() };
    let n = VOCABULARY.len();
    assert_eq!((options.count(1), options.count(2)), (n as u64, (n * n) as u64));
    assert_eq!(options.nth(0), [0]);
    assert_eq!(options.nth(n as u64), [0, 0]);
    let all: std::collections::BTreeSet<Vec<usize>> =
        (0..options.count(1) + options.count(2)).map(|at| options.nth(at)).collect();
    assert_eq!(all.len(), n + n * n);
}

#[test]
fn canaries_broken_rules_are_noticed() {
    let write = Step::Write { path: "/a/l", offset: 10_000, bytes: 20_000 };
    let cases: [(Canary, [Step; 2], &[&str]); 5] = [
        // A number that is used twice, or a journal that ends before the rows: whichever crash finds it first.
        (
            Canary::SegmentsNotSynced,
            [Step::Create("/n", 0), Step::Fsync("/a/s")],
            &["a second time", "the journal ends at position"],
        ),
        (Canary::ObjectsNotSynced, [write, Step::Sync], &["not found"]),
        (Canary::HalfCommits, [Step::Rename("/a", "/b/e"), Step::Checkpoint], &[""]),
        (Canary::CommitsForgotten, [Step::Mkdir("/b/n"), Step::Checkpoint], &[""]),
        (Canary::RottenObjects, [write, Step::Sync], &["checksum"]),
    ];
    assert!(Canary::ALL.iter().all(|(_, canary)| cases.iter().any(|(case, ..)| case == canary)));
    let base = Base::new(Shape::Grows).expect("the small tree is made");
    let place = |step: &Step| VOCABULARY.iter().position(|known| known == step).expect("of the vocabulary");
    for (canary, steps, expect) in cases {
        let steps: Vec<usize> = steps.iter().map(place).collect();
        let honest = Workload::new(&base, &steps, None).run();
        assert!(honest.failure.is_none(), "{:?}", honest.failure);
        let failure = Workload::new(&base, &steps, Some(canary)).run().failure;
        let said = failure.unwrap_or_else(|| panic!("{canary:?} was not noticed")).what;
        assert!(
            expect.iter().any(|words| said.contains(words)),
            "{canary:?} is not noticed by {expect:?}: {said}"
        );
    }
}
