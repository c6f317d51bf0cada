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
fn a_sample_of_longer_workloads_survives_every_crash() {
    let report = check(&Options { strides: vec![u64::MAX, 31, 2_801], ..Options::default() });
    assert!(report.workloads > 100 && report.recoveries > 500, "{report:?}");
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
