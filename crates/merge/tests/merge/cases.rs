//! Every kind of conflict, by hand: the changes of theirs, those of ours, and the tree after the merge.

use std::collections::BTreeSet;

use chiton_model::Event;
use chiton_model::merge::{Conflict, ConflictKind, ConflictKind as K, MergeMap, OnConflict};
use chiton_types::{Ino, Kind, ShardId};

use crate::case_table::{CASES, Case};
use crate::paths::{SUB, act, resolve};
use crate::peer::{Content, Peer};

/// Makes the base, forks, lets both sides act, and gives what to merge.
fn prepare(case: &Case, on_conflict: OnConflict) -> (Peer, Vec<Event>, MergeMap) {
    let mut server = Peer::new();
    let mut next = 10;
    case.base.iter().for_each(|text| act(&mut server, text, &mut next));
    let mut client = server.fork();
    let mut map = MergeMap::new(SUB, server.position, 7, on_conflict);
    map.grant(Ino(1000), Ino(2000));
    map.note_born_after(ShardId(0), next);
    // An inode that the decoupled side may still ask for stays as an orphan, and its name is remembered.
    server.open.extend((5..next).map(Ino));
    server.noted_in = Some(map);
    case.theirs.iter().for_each(|text| act(&mut server, text, &mut next));
    let map = server.noted_in.take().expect("given above");
    let mut next = 1000;
    case.ours.iter().for_each(|text| act(&mut client, text, &mut next));
    (server, client.journal, map)
}

fn tree(server: &mut Peer) -> String {
    let tree = server.tree(SUB);
    let mut tree: Vec<_> = tree.into_iter().collect();
    tree.sort_by_key(|(path, _)| path.replace('/', "\0"));
    let lines = tree.iter().filter(|(path, _)| !path.is_empty()).map(|(path, node)| match &node.content {
        _ if node.attr.kind == Kind::Dir => format!("{path}/"),
        Content::Inline(bytes) => format!("{path}={}", String::from_utf8_lossy(bytes)),
        _ => format!("{path}=<{}>", node.attr.size),
    });
    lines.collect::<Vec<_>>().join(" ")
}

fn merge(case: &Case, on_conflict: OnConflict) -> (Peer, Result<Vec<Conflict>, Conflict>) {
    let (mut server, events, mut map) = prepare(case, on_conflict);
    let (mut fresh, mut report) = (5000, Vec::new());
    for event in &events {
        match server.merge(event, &mut map, &mut fresh, &mut report) {
            Ok(None) => {}
            Ok(Some(skipped)) => assert!(!skipped.loses(), "{event:?}: {skipped:?}"),
            Err(conflict) => return (server, Err(conflict)),
        }
    }
    server.validate();
    (server, Ok(report))
}

#[test]
fn each_conflict_comes_out_as_the_table_says() {
    let mut seen = BTreeSet::new();
    for case in CASES {
        let about = format!("base {:?}, theirs {:?}, ours {:?}", case.base, case.theirs, case.ours);
        for (on_conflict, expect) in
            [(OnConflict::Overwrite, case.overwrite), (OnConflict::KeepBoth, case.keep_both)]
        {
            let (mut server, report) = merge(case, on_conflict);
            let report = report.expect("nothing stops");
            assert_eq!(tree(&mut server), expect, "{on_conflict:?}: {about}");
            let kinds: Vec<ConflictKind> = report.iter().map(|c| c.kind).collect();
            assert_eq!(kinds, case.conflicts, "{on_conflict:?}: {about}");
            assert!(report.iter().all(|c| c.resolution == c.kind.resolution(on_conflict)), "{about}");
            assert!(report.iter().all(|c| !c.path.is_empty()), "{about}: {report:?}");
            seen.extend(kinds.iter().map(|kind| format!("{kind:?}")));
        }
        let (_, aborted) = merge(case, OnConflict::Abort);
        assert_eq!(aborted.err().map(|c| c.kind), case.conflicts.first().copied(), "{about}");
    }
    let missing: Vec<_> = K::ALL.iter().filter(|kind| !seen.contains(&format!("{kind:?}"))).collect();
    assert!(missing.is_empty(), "no case shows {missing:?}");
}

#[test]
fn a_name_that_ours_alone_gave_goes_as_it_came() {
    let case = Case {
        base: &["put f base"],
        theirs: &["mv f g"],
        ours: &["mv f h", "rm h"],
        conflicts: &[],
        overwrite: "",
        keep_both: "",
    };
    let moved = (K::RenameRename, "h".to_owned());
    for (on_conflict, expect, told) in [
        (OnConflict::KeepBoth, "g=base", vec![moved.clone()]),
        (OnConflict::Overwrite, "", vec![moved, (K::DeleteEdit, "h".to_owned())]),
    ] {
        let (mut server, report) = merge(&case, on_conflict);
        assert_eq!(tree(&mut server), expect);
        let report = report.expect("nothing stops").into_iter();
        let report = report.map(|c| (c.kind, String::from_utf8_lossy(&c.path).into_owned()));
        assert_eq!(report.collect::<Vec<_>>(), told);
    }
}

#[test]
fn attributes_of_both_sides_are_told_apart() {
    let case = |theirs, ours| Case {
        base: &["mkdir d"],
        theirs,
        ours,
        conflicts: &[],
        overwrite: "",
        keep_both: "",
    };
    let (mut server, _) = merge(&case(&["chmod d 711"], &["put d/f x"]), OnConflict::Abort);
    let dir = resolve(&mut server, "d").expect("it is there");
    assert_eq!(server.node(dir).attr.mode.0, 0o711);
    let (mut server, report) = merge(&case(&["chmod d 711"], &["chmod d 700"]), OnConflict::Overwrite);
    assert_eq!(server.node(dir).attr.mode.0, 0o700);
    assert_eq!(report.map(|r| r.len()), Ok(1));
}

#[test]
fn a_directory_that_ours_makes_anew_has_nothing_of_the_one_that_ours_removed() {
    for (theirs, tagged) in [(&["put d/x theirs"][..], false), (&["put d/x theirs", "tag d theirs"], true)] {
        let case = Case {
            base: &["mkdir d", "tag d base"],
            theirs,
            ours: &["rmdir d", "mkdir d"],
            conflicts: &[],
            overwrite: "",
            keep_both: "",
        };
        let (mut server, _) = merge(&case, OnConflict::Overwrite);
        assert_eq!(tree(&mut server), "d/ d/x=theirs");
        let dir = resolve(&mut server, "d").expect("it is there");
        assert_eq!(!server.node(dir).xattrs.is_empty(), tagged, "{theirs:?}");
    }
}

#[test]
fn what_theirs_removed_after_it_became_one_with_ours_comes_back() {
    let mut server = Peer::new();
    let mut client = server.fork();
    let mut map = MergeMap::new(SUB, server.position, 7, OnConflict::Overwrite);
    map.grant(Ino(1000), Ino(2000));
    map.note_born_after(ShardId(0), 10);
    server.open.insert(Ino(10));
    let (mut next, mut fresh, mut merged, mut report) = (1000, 5000, 0, Vec::new());
    act(&mut server, "mkdir d", &mut 10);
    for ours in ["mkdir d", "put d/f ours"] {
        act(&mut client, ours, &mut next);
        for event in &client.journal[merged..] {
            server.merge(event, &mut map, &mut fresh, &mut report).expect("nothing stops");
        }
        merged = client.journal.len();
        if ours == "mkdir d" {
            server.noted_in = Some(map);
            act(&mut server, "rmdir d", &mut 20);
            map = server.noted_in.take().expect("given above");
        }
    }
    assert_eq!(tree(&mut server), "d/ d/f=ours");
}

#[test]
fn after_a_sync_only_new_changes_of_others_are_conflicts() {
    let mut server = Peer::new();
    let mut client = server.fork();
    let mut map = MergeMap::new(SUB, server.position, 7, OnConflict::Overwrite);
    map.grant(Ino(1000), Ino(2000));
    let (mut next, mut fresh, mut merged, mut report) = (1000, 5000, 0, Vec::new());
    for (ours, theirs, conflicts) in [
        ("put f 1", None, 0),
        ("write f 2", Some("write f theirs"), 0),
        ("write f 3", None, 1),
        ("write f 4", None, 1),
    ] {
        act(&mut client, ours, &mut next);
        for event in &client.journal[merged..] {
            server.merge(event, &mut map, &mut fresh, &mut report).expect("nothing stops");
        }
        merged = client.journal.len();
        assert_eq!(report.len(), conflicts, "after {ours}: {report:?}");
        if let Some(theirs) = theirs {
            act(&mut server, theirs, &mut 400);
        }
    }
    assert_eq!(tree(&mut server), "f=4");
}

#[test]
fn flags_that_ours_set_come_with_a_merge() {
    use chiton_model::Op;
    use chiton_types::{Attr, Time};

    let mut server = Peer::new();
    act(&mut server, "put f base", &mut 10);
    let mut client = server.fork();
    let mut map = MergeMap::new(SUB, server.position, 7, OnConflict::Overwrite);
    map.grant(Ino(1000), Ino(2000));
    let (mut next, mut fresh, mut report) = (1000, 5000, Vec::new());
    act(&mut client, "put g ours", &mut next);
    for (ino, flags) in [(Ino(10), Attr::IMMUTABLE), (Ino(1000), Attr::APPEND_ONLY)] {
        client.run(&Op::SetFlags { ino, flags }, Ino(0), Time(77)).expect("root may");
    }
    for event in &client.journal {
        let skipped = server.merge(event, &mut map, &mut fresh, &mut report).expect("nothing stops");
        assert_eq!(skipped, None, "{event:?}");
    }
    assert_eq!(report, []);
    for (ino, flags) in [(Ino(10), Attr::IMMUTABLE), (Ino(1000), Attr::APPEND_ONLY)] {
        assert_eq!(server.ask(|ns| ns.attr(ino)).expect("there").flags, flags, "{ino}");
    }
}

#[test]
fn attributes_of_ours_are_on_what_theirs_saved_and_stay_when_ours_writes() {
    let case = |ours| Case {
        base: &["put f base", "tag f base"],
        theirs: &["put t theirs", "mv t f"],
        ours,
        conflicts: &[],
        overwrite: "",
        keep_both: "",
    };
    for (ours, expect, tag, kinds) in [
        (&["chmod f 700"][..], "f=theirs", None, &[K::AttrFile][..]),
        (&["chmod f 700", "tag f ours"], "f=theirs", Some("ours"), &[K::AttrFile]),
        (&["chmod f 700", "write f ours"], "f=ours", Some("base"), &[K::AttrFile, K::EditFile]),
        (&["ln f g", "chmod f 700"], "f=theirs g=base", None, &[K::EditDelete, K::AttrFile]),
    ] {
        let (mut server, report) = merge(&case(ours), OnConflict::Overwrite);
        assert_eq!(tree(&mut server), expect, "{ours:?}");
        let found: Vec<_> = report.expect("nothing stops").iter().map(|c| c.kind).collect();
        assert_eq!(found, kinds, "{ours:?}");
        let file = resolve(&mut server, "f").expect("it is there");
        let node = server.node(file);
        assert_eq!(node.attr.mode.0, 0o700, "{ours:?}");
        let found = node.xattrs.first().map(|(_, value)| String::from_utf8_lossy(value).into_owned());
        assert_eq!(found.as_deref(), tag, "{ours:?}");
    }
}
