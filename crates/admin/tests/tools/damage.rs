//! Damage to a populated file system, and the findings of fsck.

use std::collections::BTreeSet;

use crate::rig::{Hand, Rig};
use chiton_admin::fsck::{Finding, Options, check, findings, repair};
use chiton_objects::Objects;
use chiton_types::{BlockId, Ino, Time};

pub(crate) fn names(found: &[Finding]) -> BTreeSet<&'static str> {
    found.iter().map(|f| f.problem.name()).collect()
}

pub(crate) fn content() -> Options {
    Options { content: true, ..Options::default() }
}

pub(crate) fn check_content(rig: &Rig) -> Vec<Finding> {
    let mut all = Vec::new();
    check(&*rig.meta, &*rig.objects, &content(), &mut |f| all.push(f), &mut |_| {}).expect("checks");
    all
}

/// Damages a populated file system; expects `problem`, and that repair leaves `left` and is stable.
pub(crate) fn damaged(problem: &str, left: &[&str], damage: impl FnOnce(&Rig)) -> Rig {
    damaged_rig(problem, left, Rig::populated(), damage)
}

fn damaged_rig(problem: &str, left: &[&str], rig: Rig, damage: impl FnOnce(&Rig)) -> Rig {
    assert_eq!(check_content(&rig), [], "before any damage");
    damage(&rig);
    let found = check_content(&rig);
    assert!(names(&found).contains(problem), "{problem} is not among {found:?}");
    for finding in &found {
        let said = finding.to_string();
        assert!(said.contains("repair"), "says neither what repair does nor what to do: {said}");
    }
    let objects_before = rig.objects.list("", None, 10_000).expect("lists");
    let mut reported = Vec::new();
    let report = &mut |f: &Finding, repaired: bool| reported.push((f.clone(), repaired));
    let done = repair(&*rig.meta, &*rig.objects, &content(), Time(7), report, &mut |_| {}).expect("repairs");
    let after = check_content(&rig);
    assert_eq!(
        names(&after),
        left.iter().copied().collect(),
        "after the repair: {after:?}; reported {reported:?}"
    );
    assert_eq!(done.left, after.len() as u64);
    assert!(after.iter().all(|f| f.problem.remedy().is_none()), "left although repairable: {after:?}");
    assert_eq!(rig.objects.list("", None, 10_000).expect("lists"), objects_before, "content was deleted");
    // Again: nothing is changed.
    let rows = rig.rows();
    let again = repair(&*rig.meta, &*rig.objects, &content(), Time(7), &mut |_, _| {}, &mut |_| {});
    assert_eq!(again.expect("repairs").repaired, 0);
    assert_eq!(rig.rows(), rows);
    rig
}

/// Damage of which nothing is left after repair; and a server starts on it.
pub(crate) fn repaired(problem: &str, damage: impl FnOnce(&Rig)) -> Rig {
    repaired_rig(problem, Rig::populated(), damage)
}

/// The same of a file system that was made otherwise.
pub(crate) fn repaired_rig(problem: &str, rig: Rig, damage: impl FnOnce(&Rig)) -> Rig {
    let rig = damaged_rig(problem, &[], rig, damage);
    rig.serve(|server| {
        Hand::new(server).dir(Ino::ROOT, "goes on");
    });
    assert_eq!(findings(&*rig.meta, &*rig.objects).expect("checks"), []);
    rig
}

/// The blocks of the rig's files, by number.
pub(crate) fn block(rig: &Rig, number: u64) -> BlockId {
    let objects = rig.objects.list("blocks/", None, 100).expect("lists");
    let mut blocks = objects.iter().filter_map(|o| BlockId::parse_key(&o.key));
    blocks.find(|b| b.number == number).expect("a block")
}
