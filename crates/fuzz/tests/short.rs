//! A short run of every target; `./x fuzz --seconds N` is a long one.

use chiton_fuzz::{TARGETS, run};

#[global_allocator]
static MEMORY: chiton_fuzz::Watched = chiton_fuzz::Watched;

#[test]
fn nothing_that_a_stranger_wrote_does_harm() {
    for target in TARGETS {
        let count = target.short_run;
        let report = run(target, 0..count, &mut || true).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(report.inputs, count);
        // Neither all is refused at the door, nor is nothing ever wrong.
        assert!((1..count).contains(&report.accepted), "{}: {report:?}", target.name);
    }
}

#[test]
fn a_fault_happens_once() {
    // Damage in a part of a segment that the next one makes void: replayed, but reported as damage.
    let seed = 1_000_289_505;
    let target = TARGETS.iter().find(|target| target.name == "journal").expect("a target");
    let report = run(target, seed..seed + 1, &mut || true).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.inputs, 1);
}
