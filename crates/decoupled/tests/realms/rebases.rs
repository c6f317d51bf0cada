//! Branches that are rebased over a directory in which others changed other things: each is as it was, and has theirs too.

use crate::deeds::{act, shown};
use crate::pairs::two;
use crate::site::{Site, merge};

const FILES: &[&str] = &["put a 1", "put b 2"];
const DIRS: &[&str] = &["mkdir a", "put a/x 1", "mkdir b", "put b/y 2", "mkdir c", "put c/z 3"];

/// A base, and the branch's changes.
const CASES: &[(&[&str], &[&str])] = &[
    (FILES, &["mv b c", "mv a b"]),
    (FILES, &["mv b c", "mv a b", "put a 3"]),
    (FILES, &["mv a t", "mv b a", "mv t b"]),
    (FILES, &["swap a b"]),
    (FILES, &["swap a b", "write a 5"]),
    (FILES, &["mkdir d", "mv a d/x", "mv b a"]),
    (FILES, &["mv a b"]),
    (FILES, &["mv a b", "mkdir a", "put a/f 1"]),
    (FILES, &["put c new", "ln c d"]),
    (FILES, &["ln a z", "save a 4"]),
    (FILES, &["ln a z", "write z 5"]),
    (FILES, &["ln a z", "rm a", "mv z b"]),
    (FILES, &["symlink l x", "ln l m"]),
    (FILES, &["rm a", "mv b a"]),
    (DIRS, &["swap a b"]),
    (DIRS, &["mv a t", "mv b a", "mv c b", "mv t c"]),
    (DIRS, &["mv a b/a", "mv b a"]),
    (DIRS, &["mv a/x x", "mv a d", "mv x d/y", "mv d a"]),
    (DIRS, &["mv a/x b/x", "rm a", "mv b a"]),
    (DIRS, &["mv a/x x", "rm a", "mv x a"]),
    (DIRS, &["mv a b/y2", "mv c b/y2/c", "rm b/y2/x"]),
    (DIRS, &["rm a/x", "rm a", "put a file"]),
    (&["put a 1", "mkdir b", "put b/y 2"], &["swap a b"]),
    (&["put a 1", "mkdir b", "put b/y 2"], &["mv a b/a", "mv b a"]),
];

#[test]
fn a_rebased_branch_is_as_it_was_and_has_what_others_did() {
    let site = Site::new();
    let party = site.connected();
    let mut wrong = Vec::new();
    for (n, (base, ours)) in CASES.iter().enumerate() {
        let two = two(&party, n, base);
        act(two.two.client(), "", ours);
        let before = shown(two.two.client(), "");
        let links = two.two.client().list("/").expect("listed");
        let links: Vec<_> = links
            .iter()
            .map(|entry| two.two.client().lstat(format!("/{}", entry.name)).expect("there").nlink)
            .collect();
        act(two.one.client(), "", &["put zz theirs"]);
        merge(&two.one);
        let (root, name) = (two.two.root(), two.two.branch().expect("a branch").clone());
        two.two.client().sync().expect("durable");
        two.two.abandon();
        let report = party.realms.rebase_branch(root, &name);
        if !report.as_ref().is_ok_and(|report| !report.stopped) {
            wrong.push(format!("{base:?}, {ours:?}: {report:?}"));
            continue;
        }
        let rebased = party.realms.open_branch(root, &name).expect("opened");
        let after = shown(rebased.client(), "");
        if after != format!("{before}, zz=theirs") {
            wrong.push(format!("{base:?}, {ours:?}: {before} became {after}"));
            continue;
        }
        let listed = rebased.client().list("/").expect("listed");
        let now: Vec<_> = listed
            .iter()
            .filter(|entry| entry.name.to_string() != "zz")
            .map(|entry| rebased.client().lstat(format!("/{}", entry.name)).expect("there").nlink)
            .collect();
        assert_eq!(now, links, "{base:?}, {ours:?}: numbers of names");
        merge(&rebased);
        assert_eq!(shown(&party.client, &two.at), after, "{base:?}, {ours:?}: merged");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
