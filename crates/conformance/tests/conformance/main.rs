//! The suite, run against this project's server, and against one that breaks the rules.

mod faulty;
mod page;
mod rig;

use std::collections::BTreeSet;

use chiton_conformance::{CLAUSES, Report, State, Verdict, run};
use chiton_types::Refusal;
use chiton_wire::{Answer, Failure, Reply};

use crate::faulty::Fault;
use crate::rig::Rig;

/// Runs the suite against a server that should pass, and returns the clauses that do not apply.
fn passes(rig: &Rig) -> BTreeSet<&'static str> {
    let report = run(&rig.target(rig.address.clone()), |_| true, |_| {}).expect("a report");
    for checked in &report.checked {
        if let Verdict::Failed(difference) = &checked.verdict {
            println!("{:?}, {}: {difference:#?}", checked.clause, checked.state);
        }
    }
    assert!(report.conforms(), "{} of {} checks failed", report.counts().1, report.checked.len());
    assert_eq!(rig.names_in_root(), Vec::<String>::new(), "the suite leaves nothing behind");
    let not_applicable = |verdict: &Verdict| matches!(verdict, Verdict::NotApplicable(_));
    let checked = report.checked.iter().filter(|checked| not_applicable(&checked.verdict));
    checked.map(|checked| checked.clause.number).collect()
}

#[test]
fn a_server_with_one_plate_keeps_the_clauses() {
    let not_applicable = passes(&Rig::new(1));
    let about_parts = ["D61", "D62", "D63", "D64", "D65", "D66", "D67", "D70", "D71", "D72", "D73"];
    assert_eq!(not_applicable, BTreeSet::from(about_parts));
}

#[test]
fn a_server_with_four_plates_keeps_the_clauses() {
    let rig = Rig::new(4);
    assert_eq!(passes(&rig), BTreeSet::new());
    let report = run(&rig.target(rig.address.clone()), |number| number == "D45", |_| {}).expect("a report");
    let states: Vec<State> = report.checked.iter().map(|checked| checked.state).collect();
    assert_eq!(states, [State::Made, State::Split], "clauses about names are checked twice");
}

#[test]
fn directories_that_split_at_four_names_keep_the_clauses() {
    let rig = Rig::new(4);
    rig.split_from(4);
    passes(&rig);
}

/// The clauses that a server fails whose replies a fault changes.
fn failed(plates: u16, fault: Fault, is_chosen: impl Fn(&str) -> bool) -> (Report, BTreeSet<&'static str>) {
    let rig = Rig::new(plates);
    let faulty = faulty::before(&rig.address, fault);
    let report = run(&rig.target(faulty), is_chosen, |_| {}).expect("a report");
    let failed = report.checked.iter().filter(|checked| matches!(checked.verdict, Verdict::Failed(_)));
    let failed = failed.map(|checked| checked.clause.number).collect();
    (report, failed)
}

/// Of each page of three entries or more, the second is missing.
fn loses_a_name(reply: &mut Reply) {
    if let Ok(Answer::Entries { entries, .. }) = &mut reply.result
        && entries.len() > 2
    {
        entries.remove(1);
    }
}

#[test]
fn a_server_that_loses_a_name_of_a_page_fails_the_clauses_about_pages() {
    let (report, failed) = failed(1, loses_a_name, |_| true);
    assert_eq!(failed, BTreeSet::from(["D5", "D45", "D46", "D47"]));
    assert!(!report.conforms() && report.counts().0 > CLAUSES.len() / 2);
    let json = report.json();
    let of = |number: &str| {
        json["clauses"].as_array().expect("clauses").iter().find(|c| c["clause"] == number).cloned()
    };
    let pages = of("D46").expect("checked");
    assert_eq!(pages["verdict"], "failed");
    assert_eq!(pages["expected"], "60 names");
    assert!(pages["seen"].as_str().is_some_and(|seen| seen.contains("missing")), "{pages}");
    assert_eq!(of("D10").expect("checked")["verdict"], "passed");
}

fn answers_eacces_for_eexist(reply: &mut Reply) {
    if let Err(Failure::Refused(refusal)) = &mut reply.result
        && *refusal == Refusal::Exists
    {
        *refusal = Refusal::Access;
    }
}

#[test]
fn a_server_with_a_wrong_errno_fails_the_clauses_about_refusals() {
    let (_, failed) = failed(1, answers_eacces_for_eexist, |_| true);
    assert_eq!(failed, BTreeSet::from(["D15", "D21", "D38", "D40", "D43"]));
}

/// A part denies that there is a name that another part has.
fn hides_other_parts(reply: &mut Reply) {
    if reply.result == Err(Failure::Refused(Refusal::OtherPart)) {
        reply.result = Ok(Answer::Absent { parent_leased: false, parent_open: false });
    }
}

#[test]
fn a_part_that_answers_for_others_fails_the_clause_about_ranges() {
    let (_, failed) = failed(2, hides_other_parts, |number| ["D1", "D62"].contains(&number));
    assert!(failed.contains("D62"), "{failed:?}");
}
