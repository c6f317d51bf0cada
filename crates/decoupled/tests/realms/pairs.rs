//! Pairs of changes, one of each side, and the trees that merges make of them (S105 and S107 of semantics.md): for both ways in
//! which the others may save, in place and by a rename.

use std::sync::Arc;

use chiton_decoupled::{MergeReport, Realm};
use chiton_policy::OnConflict;

use crate::deeds::{act, shown};
use crate::site::{Party, Site, merge};

/// A directory with two branches of one base.
struct Two {
    at: String,
    one: Arc<Realm>,
    two: Arc<Realm>,
}

fn two(party: &Party, n: usize, base: &[&str]) -> Two {
    let at = format!("/t{n}");
    let root = party.mkdir(&at).ino;
    act(&party.client, &at, base);
    let one = party.branch(root, "one").expect("made");
    let two = party.branch(root, "two").expect("made");
    Two { at, one, two }
}

/// Both sides act, and the others merge first: the tree after ours merged.
fn merged(
    party: &Party,
    n: usize,
    (base, theirs, ours): (&[&str], &[&str], &[&str]),
    on_conflict: OnConflict,
) -> (String, MergeReport) {
    let two = two(party, n, base);
    act(two.one.client(), "", theirs);
    act(two.two.client(), "", ours);
    assert_eq!(merge(&two.one).conflict_count, 0);
    let report = two.two.merge_with(Some(on_conflict), &|_| {}).expect("merged");
    assert_eq!(report.lost_count, 0, "{report:?}");
    if report.stopped {
        two.two.discard().expect("dropped");
    }
    (shown(&party.client, &two.at), report)
}

/// Ours, and the outcomes under `overwrite` and under `keep_both`, each where theirs saved in place, and by a rename.
type Row = (&'static [&'static str], [&'static str; 2], [&'static str; 2]);

const BOTH: &str = "f=base 700, f.theirs=theirs";

#[test]
fn attributes_and_further_names_of_ours_take_no_content_from_others_however_they_saved() {
    let rows: &[Row] = &[
        (&["chmod f 700"], ["f=theirs 700", "f=theirs 700"], [BOTH, BOTH]),
        (&["tag f ours", "chmod f 700", "touch f 5"], ["f=theirs 700", "f=theirs 700"], [BOTH, BOTH]),
        (
            &["chmod f 700", "write f ours"],
            ["f=ours 700", "f=ours 700"],
            ["f=ours 700, f.theirs=theirs", "f=ours 700, f.theirs=theirs"],
        ),
        (&["ln f g"], ["f=theirs, g=theirs", "f=theirs, g=base"], ["f=theirs, g=theirs", "f=theirs, g=base"]),
        (
            &["ln f g", "chmod f 700"],
            ["f=theirs 700, g=theirs 700", "f=theirs 700, g=base 700"],
            ["f=base 700, f.theirs=theirs, g=base 700", "f=theirs, g=base 700"],
        ),
        (
            &["ln f g", "write f ours"],
            ["f=ours, g=ours", "f=ours, g=ours"],
            ["f=ours, f.theirs=theirs, g=ours", "f=ours, f.theirs=theirs, g=ours"],
        ),
        // As `cp --backup=simple` and some editors do.
        (
            &["ln f g", "save f ours"],
            ["f=ours, g=theirs", "f=ours, g=base"],
            ["f=ours, f.theirs=theirs, g=theirs", "f=ours, f.theirs=theirs, g=base"],
        ),
        (&["mv f g"], ["g=theirs", "f=theirs, g=base"], ["g=theirs", "f=theirs, g=base"]),
    ];
    let site = Site::new();
    let party = site.connected();
    let mut n = 0;
    for (ours, overwrite, keep_both) in rows {
        for (on_conflict, expect) in [(OnConflict::Overwrite, overwrite), (OnConflict::KeepBoth, keep_both)] {
            for (theirs, expect) in [["write f theirs"], ["save f theirs"]].iter().zip(expect) {
                n += 1;
                let (found, report) = merged(&party, n, (&["put f base"], theirs, ours), on_conflict);
                assert_eq!(found, *expect, "{on_conflict:?}: theirs {theirs:?}, ours {ours:?}: {report:?}");
            }
        }
    }
}

#[test]
fn a_link_of_others_in_place_of_a_file_is_not_lost() {
    let site = Site::new();
    let party = site.connected();
    for (n, (ours, expect)) in [
        ("chmod f 700", "f=base 700, f.theirs->x"),
        ("ln f g", "f->x, g=base"),
        ("touch f 5", "f=base, f.theirs->x"),
    ]
    .into_iter()
    .enumerate()
    {
        let case = (&["put f base"][..], &["rm f", "symlink f x"][..], &[ours][..]);
        let (found, report) = merged(&party, n, case, OnConflict::Overwrite);
        assert_eq!(found, expect, "{ours}: {report:?}");
    }
}
