//! Conflicts that are resolved where one side, or both, have a directory at the path: `--ours` and `--theirs` lead to a merge, and the advice of
//! each refusal leads there, too.

use chiton_decoupled::{Choice, Realm};
use chiton_policy::OnConflict;
use chiton_types::Refusal;

use crate::deeds::{act, shown};
use crate::pairs::{Two, two};
use crate::site::{Site, merge};

const BASE: &[&str] = &["put f 1", "mkdir d", "put d/g 3"];
const RM_D: &[&str] = &["rm d/g", "rm d"];
const DIR_F: &[&str] = &["rm f", "mkdir f", "put f/x 4"];

/// Merges where conflicts are forbidden, which stops.
fn stopped(two: &Two, (ours, theirs): (&[&str], &[&str])) {
    act(two.one.client(), "", theirs);
    act(two.two.client(), "", ours);
    merge(&two.one);
    assert!(merged(&two.two).is_err(), "ours {ours:?}, theirs {theirs:?}");
}

fn merged(realm: &Realm) -> Result<(), Vec<String>> {
    let report = realm.merge_with(Some(OnConflict::Abort), &|_| {}).expect("an answer");
    let left = report.conflicts.into_iter().map(|line| line.path).collect();
    if report.stopped { Err(left) } else { Ok(()) }
}

#[test]
fn either_side_of_a_directory_can_be_chosen() {
    let site = Site::new();
    let party = site.connected();
    let (mut n, mut wrong) = (0, Vec::new());
    for (ours, theirs, path, take_theirs, keep_ours) in [
        (&["write f a"][..], DIR_F, "f", "d/, d/g=3, f/, f/x=4", "d/, d/g=3, f=a, f.theirs/, f.theirs/x=4"),
        (
            &["put n b"],
            &["mkdir n", "put n/a 4"],
            "n",
            "d/, d/g=3, f=1, n/, n/a=4",
            "d/, d/g=3, f=1, n=b, n.theirs/, n.theirs/a=4",
        ),
        (RM_D, &["put d/n 6"], "d", "d/, d/g=3, d/n=6, f=1", "d/, d/n=6, f=1"),
        (RM_D, &["write d/g 6"], "d/g", "d/, d/g=6, f=1", "f=1"),
        (RM_D, &["chmod d 700"], "d", "d/ 700, d/g=3, f=1", "f=1"),
        (&["chmod d 700"], RM_D, "d", "f=1", "d/ 700, d/g=3, f=1"),
        (&["mv d e"], RM_D, "e", "f=1", "e/, e/g=3, f=1"),
        (&["write d/g 6"], RM_D, "d/g", "f=1", "d/, d/g=6, f=1"),
        (
            &["rm d/g", "rm d", "put d b"],
            &["put d/n 6"],
            "d",
            "d/, d/g=3, d/n=6, f=1",
            "d=b, d.theirs/, d.theirs/n=6, f=1",
        ),
    ] {
        for (choice, expect) in [(Choice::Theirs, take_theirs), (Choice::Ours, keep_ours)] {
            n += 1;
            let two = two(&party, n, BASE);
            stopped(&two, (ours, theirs));
            let resolved = two.two.resolve_conflict(path.as_bytes(), choice);
            let (left, found) = (merged(&two.two), shown(&site.embedded().client, &two.at));
            if resolved.is_err() || left.is_err() || found != expect {
                wrong.push(format!("{ours:?}, {theirs:?}, {choice:?}: {resolved:?}, {left:?}, {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The user follows the advice of a refusal. Beside it the tree after the merge.
#[test]
fn the_advice_of_a_refusal_leads_to_a_merge() {
    let site = Site::new();
    let party = site.connected();
    for (n, (ours, theirs, path, refusal, advice, then, expect)) in [
        (
            DIR_F,
            &["write f a"][..],
            "f",
            Refusal::NotEmpty,
            &["mv f/x x"][..],
            Choice::Theirs,
            "d/, d/g=3, f=a, x=4",
        ),
        (
            DIR_F,
            &["write f a"],
            "f",
            Refusal::NotEmpty,
            &["rm f/x", "rm f"],
            Choice::Theirs,
            "d/, d/g=3, f=a",
        ),
        (
            &["mkdir n", "put n/a 4"],
            &["put n b"],
            "n",
            Refusal::NotEmpty,
            &["mv n/a a"],
            Choice::Theirs,
            "a=4, d/, d/g=3, f=1, n=b",
        ),
        (
            &["chmod d 700"],
            &["mv d/g h", "rm d"],
            "d",
            Refusal::Exists,
            &["mv d/g h"],
            Choice::Theirs,
            "f=1, h=3",
        ),
        (&["mv d e"], &["mv d k"], "e", Refusal::Exists, &["mv e k"], Choice::Ours, "f=1, k/, k/g=3"),
        (RM_D, &["mv d e"], "d", Refusal::Exists, &["mkdir e", "put e/g 3"], Choice::Ours, "e/, e/g=3, f=1"),
    ]
    .into_iter()
    .enumerate()
    {
        let two = two(&party, n, BASE);
        stopped(&two, (ours, theirs));
        let before = shown(two.two.client(), "");
        let refused = two.two.resolve_conflict(path.as_bytes(), Choice::Theirs).expect_err("a loss");
        assert_eq!(refused.refusal(), refusal, "{refused}");
        assert_eq!(shown(two.two.client(), ""), before, "a refusal changes nothing");
        act(two.two.client(), "", advice);
        for conflict in two.two.conflicts().expect("reported") {
            let choice = if conflict.path == path { then } else { Choice::Ours };
            two.two.resolve_conflict(conflict.path.as_bytes(), choice).expect("resolved");
        }
        let left = merged(&two.two);
        assert_eq!(
            (left, &*shown(&site.embedded().client, &two.at)),
            (Ok(()), expect),
            "{ours:?}, {theirs:?}: {refused}"
        );
    }
}
