//! Dry runs (`chiton diff`, `chiton merge --dry-run`) report what a merge then does, under each policy.

use chiton_decoupled::{ChangeKind, OpenConflict, SideVersion};
use chiton_policy::OnConflict;

use crate::deeds::act;
use crate::pairs::{merged, two};
use crate::site::Site;

const BASE: &[&str] = &["put f 1", "put o 2", "mkdir d", "put d/g 3", "symlink l x"];

/// Changes of one side, over that base.
const CHANGES: &[&[&str]] = &[
    &["write f a"],
    &["save f b"],
    &["chmod f 700"],
    &["rm f"],
    &["mv f g"],
    &["mv f g", "write g a"],
    &["write f a", "mv f g"],
    &["mv o f"],
    &["swap f o"],
    &["ln f h"],
    &["ln f h", "save f a"],
    &["ln f h", "rm f", "put f c"],
    &["mv f g", "put f c"],
    &["rm f", "mkdir f", "put f/x 4"],
    &["relink l y"],
    &["mv d e", "write e/g a"],
    &["save d/g b"],
    &["rm d/g", "rm d"],
    &["put d/n 5"],
    &["chmod d 700"],
];

/// S146: under the policy in force.
#[test]
fn a_dry_run_reports_what_a_merge_then_does() {
    let site = Site::new();
    let party = site.connected();
    let mut n = 0;
    for (at, ours) in CHANGES.iter().enumerate() {
        for (other, theirs) in CHANGES.iter().enumerate() {
            // Each pair under two policies of the four, which differ from pair to pair.
            for turn in 0..2 {
                let on_conflict = OnConflict::ALL[(at + other + 2 * turn) % OnConflict::ALL.len()];
                // It compares both reports.
                merged(&party, n, (BASE, theirs, ours), on_conflict);
                n += 1;
            }
        }
    }
    assert!(n > 500);
}

#[test]
fn a_file_saved_by_a_rename_is_named_once_and_was_not_removed() {
    let site = Site::new();
    let party = site.connected();
    for (n, (ours, theirs, expect)) in [
        (&["save f b"][..], &["write f a"][..], (ChangeKind::Replaced, SideVersion::Changed)),
        (&["write f a"], &["save f b"], (ChangeKind::Written, SideVersion::Replaced)),
        (&["chmod f 700"], &["save f b"], (ChangeKind::Attributes, SideVersion::Replaced)),
        (&["save f a"], &["save f b"], (ChangeKind::Replaced, SideVersion::Changed)),
        (&["write f a"], &["rm f"], (ChangeKind::Written, SideVersion::Removed)),
    ]
    .into_iter()
    .enumerate()
    {
        let two = two(&party, n, BASE);
        act(two.one.client(), "", theirs);
        act(two.two.client(), "", ours);
        crate::site::merge(&two.one);
        let changes = two.two.diff().expect("compared").changes;
        let found: Vec<_> = changes.iter().map(|change| (&change.path[..], change.kind)).collect();
        assert_eq!(found, [("f", expect.0)], "{ours:?}");
        let one = OpenConflict {
            path: "f".to_owned(),
            path_bytes: None,
            ours: expect.0,
            theirs: expect.1,
            resolved: false,
        };
        assert_eq!(two.two.conflicts().expect("reported"), [one], "ours {ours:?}, theirs {theirs:?}");
        two.two.discard().expect("dropped");
    }
}
