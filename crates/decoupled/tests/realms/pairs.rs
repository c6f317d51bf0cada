//! Pairs of changes, one of each side, and the trees that merges make of them (S105 and S107 of semantics.md): for both ways in
//! which the others may save, in place and by a rename.

use std::sync::Arc;

use chiton_decoupled::{MergeReport, Realm};
use chiton_policy::OnConflict;

use crate::deeds::{act, shown};
use crate::site::{Party, Site, merge};

/// A directory with two branches of one base.
pub(crate) struct Two {
    pub(crate) at: String,
    pub(crate) one: Arc<Realm>,
    pub(crate) two: Arc<Realm>,
}

pub(crate) fn two(party: &Party, n: usize, base: &[&str]) -> Two {
    let at = format!("/t{n}");
    let root = party.mkdir(&at).ino;
    act(&party.client, &at, base);
    let one = party.branch(root, "one").expect("made");
    let two = party.branch(root, "two").expect("made");
    Two { at, one, two }
}

/// Both sides act, and the others merge first: the tree after ours merged.
pub(crate) fn merged(
    party: &Party,
    n: usize,
    (base, theirs, ours): (&[&str], &[&str], &[&str]),
    on_conflict: OnConflict,
) -> (String, MergeReport) {
    let two = two(party, n, base);
    act(two.one.client(), "", theirs);
    act(two.two.client(), "", ours);
    assert_eq!(merge(&two.one).conflict_count, 0);
    let rehearsed = two.two.diff_with(Some(on_conflict)).expect("rehearsed");
    let report = two.two.as_named_here(two.two.merge_with(Some(on_conflict), &|_| {}).expect("merged"));
    assert_eq!(report.lost_count, 0, "{report:?}");
    let found = (rehearsed.conflict_count, &rehearsed.conflicts, rehearsed.stopped);
    let expect = (report.conflict_count, &report.conflicts, report.stopped);
    assert_eq!(found, expect, "{on_conflict:?}: base {base:?}, theirs {theirs:?}, ours {ours:?}");
    assert!(!report.stopped || report.sent == 0, "a part is merged: {theirs:?}, {ours:?}: {report:?}");
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
        (
            &["chmod f 711", "chmod f 644", "write f ours"],
            ["f=ours", "f=ours"],
            ["f=ours, f.theirs=theirs", "f=ours, f.theirs=theirs"],
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

/// Of both sides the same changes, at a base.
const SAME: &[(&[&str], &[&str], &str)] = &[
    (&[], &["symlink l v1"], "l->v1"),
    (&["symlink l v0"], &["relink l v1"], "l->v1"),
    (&["put l v0"], &["relink l v1"], "l->v1"),
    (&["symlink l v0"], &["rm l", "put l v1"], "l=v1"),
    (&[], &["fifo p"], "p|"),
    (&["put p x"], &["rm p", "device p 5"], "p|"),
    (&["put f f"], &["mv f g"], "g=f"),
    (&["put f f", "put o o"], &["mv o f"], "f=o"),
    (&["put f f", "put o o"], &["swap f o"], "f=o, o=f"),
    (&["mkdir d", "put d/f f"], &["mv d e"], "e/, e/f=f"),
    (&["mkdir d", "put d/f f"], &["mv d/f d/g"], "d/, d/g=f"),
    (&["mkdir d", "mkdir e", "put e/f f"], &["swap d e"], "d/, d/f=f, e/"),
    (&["put f f"], &["mv f g", "write g g"], "g=g"),
    (&["put f f"], &["mv f g", "put f new"], "f=new, g=f"),
    (&["put f f"], &["ln f l"], "f=f, l=f"),
    (&["put f f", "put l l"], &["rm l", "ln f l"], "f=f, l=f"),
    (&["put f f", "put l l"], &["chmod f 700", "rm l", "ln f l", "write l x"], "f=x 700, l=x 700"),
    (&["put f f", "ln f l"], &["rm l"], "f=f"),
    (&["put f f", "ln f l"], &["mv l m"], "f=f, m=f"),
    (&["mkdir d"], &["chmod d 700"], "d/ 700"),
    (&["mkdir d"], &["chmod d 711", "chmod d 700", "put d/f f"], "d/ 700, d/f=f"),
    (&["mkdir d"], &["tag d x", "touch d 5"], "d/"),
    (&["symlink l v0", "put f f"], &["touch f 5", "chmod f 700"], "f=f 700, l->v0"),
    (&["put f f"], &["rm f", "mkdir f"], "f/"),
    (&["put f f"], &["rm f", "mkdir f", "put f/g g", "chmod f 700"], "f/ 700, f/g=g"),
    (&["mkdir d", "put d/f f"], &["rm d/f", "rm d", "put d d"], "d=d"),
    (&["mkdir d", "put d/f f"], &["rm d/f", "rm d"], ""),
    (&["put f f"], &["save f g", "chmod f 700"], "f=g 700"),
    (&["put f f"], &["ln f g", "save f new"], "f=new, g=f"),
    (&["put f f"], &["ln f g", "rm f"], "g=f"),
];

#[test]
fn equal_changes_of_every_kind_are_no_conflict() {
    let site = Site::new();
    let party = site.connected();
    let (mut n, mut wrong) = (0, Vec::new());
    for (base, both, expect) in SAME {
        for on_conflict in OnConflict::ALL {
            n += 1;
            let (found, report) = merged(&party, n, (base, both, both), *on_conflict);
            if found != *expect || report.conflict_count > 0 || !report.ended {
                let conflicts: Vec<_> =
                    report.conflicts.iter().map(|c| (&c.path, &c.ours, &c.theirs, &c.resolution)).collect();
                wrong.push(format!("{on_conflict:?}: {base:?}, both {both:?}: {found}, {conflicts:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_branch_is_rebased_over_equal_changes_of_every_kind() {
    let site = Site::new();
    let party = site.connected();
    let (mut n, mut wrong) = (0, Vec::new());
    for (base, both, expect) in SAME {
        n += 1;
        let two = two(&party, n, base);
        act(two.one.client(), "", both);
        act(two.two.client(), "", &[both, &["put more more"][..]].concat());
        merge(&two.one);
        let (root, name) = (two.two.root(), two.two.branch().expect("a branch").clone());
        two.two.client().sync().expect("durable");
        two.two.abandon();
        let done = party.realms.rebase_branch(root, &name);
        let whole = done.as_ref().is_ok_and(|report| report.conflict_count == 0 && !report.stopped);
        if whole {
            merge(&party.realms.open_branch(root, &name).expect("opened"));
        }
        let found = shown(&party.client, &two.at);
        let found: Vec<_> = found.split(", ").filter(|line| *line != "more=more").collect();
        let found = found.join(", ");
        if !whole || found != *expect {
            wrong.push(format!("{base:?}, both {both:?}: {found}, {done:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_attribute_that_both_set_alike_stays_with_the_content_of_ours() {
    let site = Site::new();
    let party = site.connected();
    for (n, theirs) in
        [&["chmod f 700", "tag f x", "write f theirs"][..], &["chmod f 700", "tag f x"]].iter().enumerate()
    {
        let case = (&["put f base"][..], *theirs, &["chmod f 700", "tag f x", "write f ours"][..]);
        let (found, report) = merged(&party, n, case, OnConflict::Overwrite);
        assert_eq!(found, "f=ours 700", "{theirs:?}: {report:?}");
        let file = party.client.stat(format!("/t{n}/f")).expect("there").ino;
        assert_eq!(party.client.getxattr(&party.client.caller(), file, b"user.tag"), Ok(b"x".to_vec()));
    }
}

#[test]
fn a_file_that_others_moved_over_ours_is_no_version_of_it() {
    let site = Site::new();
    let party = site.connected();
    let case = (&["put f base", "put o other"][..], &["mv o f"][..], &["chmod f 700"][..]);
    let (found, report) = merged(&party, 0, case, OnConflict::Merge);
    assert_eq!(found, "f=base 700, f.theirs=other", "{report:?}");
}

/// A name that ours had for a while only does not conflict with a file of others.
#[test]
fn files_that_passed_under_a_name_of_others_leave_it_alone() {
    let site = Site::new();
    let party = site.connected();
    let mut n = 0;
    for (base, ours, expect) in [
        (&[][..], &["put tmp 1", "put x 2", "mv x tmp", "mv tmp c"][..], "c=2, tmp=theirs"),
        (&[], &["put tmp 1", "put x 2", "mv x tmp", "rm tmp"], "tmp=theirs"),
        (&[], &["put tmp 1", "ln tmp c", "put x 2", "mv x tmp", "rm tmp"], "c=1, tmp=theirs"),
        (&[], &["put c 1", "put tmp 2", "swap c tmp", "rm tmp"], "c=2, tmp=theirs"),
        (&["put f base"], &["put tmp ours", "swap tmp f", "rm tmp"], "f=ours, tmp=theirs"),
    ] {
        for on_conflict in OnConflict::ALL {
            n += 1;
            let case = (base, &["put tmp theirs"][..], ours);
            let (found, report) = merged(&party, n, case, *on_conflict);
            assert_eq!(
                (&found[..], report.conflict_count),
                (expect, 0),
                "{on_conflict:?}: {ours:?}: {report:?}"
            );
        }
    }
}

#[test]
fn a_directory_that_ours_moved_or_changed_comes_back_whole() {
    let site = Site::new();
    let party = site.connected();
    let base: &[&str] = &["mkdir d", "mkdir d/s", "put d/f base", "put d/s/g base", "symlink d/l x"];
    let theirs: &[&str] = &["write d/f theirs", "rm d/f", "rm d/s/g", "rm d/s", "rm d/l", "rm d"];
    let mut n = 0;
    for (ours, expect) in [
        (&["mv d e"][..], "e/, e/f=base, e/l->x, e/s/, e/s/g=base"),
        (&["mv d e", "write e/f ours", "rm e/s/g"], "e/, e/f=ours, e/l->x, e/s/"),
        (&["chmod d 700"], "d/ 700, d/f=base, d/l->x, d/s/, d/s/g=base"),
        (&["tag d/s x"], "d/, d/s/, d/s/g=base"),
        (&["put d/h ours"], "d/, d/h=ours"),
        (&["mv d/s s"], "s/, s/g=base"),
        (&["mkdir e", "mv d e/d", "mv e/d/f f"], "e/, e/d/, e/d/l->x, e/d/s/, e/d/s/g=base, f=base"),
    ] {
        for on_conflict in [OnConflict::Overwrite, OnConflict::KeepBoth] {
            n += 1;
            let (found, report) = merged(&party, n, (base, theirs, ours), on_conflict);
            assert_eq!(found, expect, "{on_conflict:?}: {ours:?}: {report:?}");
            assert!(report.conflict_count > 0, "{ours:?}");
        }
    }
}
