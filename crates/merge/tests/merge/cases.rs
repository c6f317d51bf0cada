//! Every kind of conflict, by hand: what theirs did, what ours did, what is there after the merge.

use std::collections::BTreeSet;

use chiton_model::Event;
use chiton_model::merge::{Conflict, ConflictKind, MergeMap, OnConflict};
use chiton_types::{Ino, Kind, ShardId};

use crate::paths::{SUB, act, resolve};
use crate::peer::{Content, Peer};

struct Case {
    base: &'static [&'static str],
    theirs: &'static [&'static str],
    ours: &'static [&'static str],
    conflicts: &'static [ConflictKind],
    /// The tree under `overwrite`, and under `keep_both`: `d/` is a directory, `f=content` a file.
    overwrite: &'static str,
    keep_both: &'static str,
}

use ConflictKind as K;

const CASES: &[Case] = &[
    Case {
        base: &["mkdir d"],
        theirs: &["put d/x theirs"],
        ours: &["put d/y ours", "mkdir e"],
        conflicts: &[],
        overwrite: "d/ d/x=theirs d/y=ours e/",
        keep_both: "d/ d/x=theirs d/y=ours e/",
    },
    Case {
        base: &[],
        theirs: &["put f theirs"],
        ours: &["put f ours", "write f ours2"],
        conflicts: &[K::FileFile],
        overwrite: "f=ours2",
        keep_both: "f=ours2 f.theirs=theirs",
    },
    Case {
        base: &[],
        theirs: &["put f theirs", "put f.theirs taken"],
        ours: &["put f ours"],
        conflicts: &[K::FileFile],
        overwrite: "f=ours f.theirs=taken",
        keep_both: "f=ours f.theirs=taken f.theirs-2=theirs",
    },
    Case {
        base: &[],
        theirs: &["put f theirs"],
        ours: &["mkdir f", "put f/x ours"],
        conflicts: &[K::DirFile],
        overwrite: "f/ f/x=ours",
        keep_both: "f/ f/x=ours f.theirs=theirs",
    },
    Case {
        base: &[],
        theirs: &["mkdir f", "put f/x theirs"],
        ours: &["put f ours"],
        conflicts: &[K::FileDir],
        overwrite: "f=ours f.theirs/ f.theirs/x=theirs",
        keep_both: "f=ours f.theirs/ f.theirs/x=theirs",
    },
    Case {
        // Both make a directory: it is one, with what is in both.
        base: &[],
        theirs: &["mkdir d", "put d/x theirs"],
        ours: &["mkdir d", "put d/y ours", "mkdir d/e", "put d/e/z ours", "mv d/e d/g"],
        conflicts: &[],
        overwrite: "d/ d/g/ d/g/z=ours d/x=theirs d/y=ours",
        keep_both: "d/ d/g/ d/g/z=ours d/x=theirs d/y=ours",
    },
    Case {
        base: &["mkdir a"],
        theirs: &["mkdir d", "put d/x theirs"],
        ours: &["mv a d"],
        conflicts: &[K::DirDir],
        overwrite: "d/ d.theirs/ d.theirs/x=theirs",
        keep_both: "d/ d.theirs/ d.theirs/x=theirs",
    },
    Case {
        base: &["put f base"],
        theirs: &["write f theirs"],
        ours: &["write f ours", "write f ours2"],
        conflicts: &[K::EditEdit],
        overwrite: "f=ours2",
        keep_both: "f=ours2 f.theirs=theirs",
    },
    Case {
        base: &["put f base"],
        theirs: &["blocks f"],
        ours: &["write f ours"],
        conflicts: &[K::EditEdit],
        overwrite: "f=ours",
        keep_both: "f=ours f.theirs=<100>",
    },
    Case {
        // Ours copies what it knows: that is no change of the file.
        base: &["put f ", "blocks f"],
        theirs: &["blocks f"],
        ours: &["put g ", "clone f g"],
        conflicts: &[],
        overwrite: "f=<100> g=<100>",
        keep_both: "f=<100> g=<100>",
    },
    Case {
        base: &["put f base"],
        theirs: &["write f theirs"],
        ours: &["chmod f 700"],
        conflicts: &[K::AttrEdit],
        overwrite: "f=theirs",
        keep_both: "f=theirs f.theirs=theirs",
    },
    Case {
        // Both did the same.
        base: &["put f base"],
        theirs: &["write f same"],
        ours: &["write f same"],
        conflicts: &[],
        overwrite: "f=same",
        keep_both: "f=same",
    },
    Case {
        // Theirs saved to a temporary file and renamed it.
        base: &["put f base"],
        theirs: &["put t theirs", "mv t f"],
        ours: &["write f ours"],
        conflicts: &[K::EditFile],
        overwrite: "f=ours",
        keep_both: "f=ours f.theirs=theirs",
    },
    Case {
        base: &["mkdir d"],
        theirs: &["rmdir d", "mkdir d", "put d/x theirs"],
        ours: &["put d/y ours"],
        conflicts: &[K::EditDir],
        overwrite: "d/ d/y=ours d.theirs/ d.theirs/x=theirs",
        keep_both: "d/ d/y=ours d.theirs/ d.theirs/x=theirs",
    },
    Case {
        base: &["mkdir d"],
        theirs: &["chmod d 711"],
        ours: &["chmod d 700"],
        conflicts: &[K::AttrAttr],
        overwrite: "d/",
        keep_both: "d/",
    },
    Case {
        // A new entry is no change of the directory's attributes.
        base: &["mkdir d"],
        theirs: &["put d/x theirs"],
        ours: &["chmod d 700"],
        conflicts: &[],
        overwrite: "d/ d/x=theirs",
        keep_both: "d/ d/x=theirs",
    },
    Case {
        base: &["put f base"],
        theirs: &["rm f"],
        ours: &["write f ours"],
        conflicts: &[K::EditDelete],
        overwrite: "f=ours",
        keep_both: "f=ours",
    },
    Case {
        base: &["mkdir d", "mkdir d/e"],
        theirs: &["rmdir d/e", "rmdir d", "put d theirs"],
        ours: &["put d/e/f ours"],
        conflicts: &[K::EditDelete, K::EditDelete],
        overwrite: "d=theirs d.ours/ d.ours/e/ d.ours/e/f=ours",
        keep_both: "d=theirs d.ours/ d.ours/e/ d.ours/e/f=ours",
    },
    Case {
        base: &["put f base"],
        theirs: &["write f theirs"],
        ours: &["rm f"],
        conflicts: &[K::DeleteEdit],
        overwrite: "",
        keep_both: "f=theirs",
    },
    Case {
        base: &["put f base"],
        theirs: &["rm f"],
        ours: &["rm f"],
        conflicts: &[],
        overwrite: "",
        keep_both: "",
    },
    Case {
        base: &["put f base"],
        theirs: &["rm f", "put f theirs"],
        ours: &["rm f"],
        conflicts: &[K::DeleteFile],
        overwrite: "",
        keep_both: "f=theirs",
    },
    Case {
        base: &["put f base"],
        theirs: &["rm f", "mkdir f", "put f/x theirs"],
        ours: &["rm f"],
        conflicts: &[K::DeleteDir],
        overwrite: "f/ f/x=theirs",
        keep_both: "f/ f/x=theirs",
    },
    Case {
        base: &["mkdir d"],
        theirs: &["put d/x theirs"],
        ours: &["rmdir d"],
        conflicts: &[K::DeleteFilled],
        overwrite: "d/ d/x=theirs",
        keep_both: "d/ d/x=theirs",
    },
    Case {
        base: &["put f base"],
        theirs: &["mv f g"],
        ours: &["rm f"],
        conflicts: &[K::DeleteRename],
        overwrite: "",
        keep_both: "g=base",
    },
    Case {
        base: &["put f base"],
        theirs: &["mv f g"],
        ours: &["mv f h"],
        conflicts: &[K::RenameRename],
        overwrite: "h=base",
        keep_both: "g=base h=base",
    },
    Case {
        base: &["put f base"],
        theirs: &["mv f g"],
        ours: &["mv f g"],
        conflicts: &[],
        overwrite: "g=base",
        keep_both: "g=base",
    },
    Case {
        base: &["mkdir d", "put d/x base"],
        theirs: &["mv d g"],
        ours: &["mv d h", "put h/y ours"],
        conflicts: &[K::RenameRenameDir],
        overwrite: "h/ h/x=base h/y=ours",
        keep_both: "h/ h/x=base h/y=ours",
    },
    Case {
        // What ours changes in the directory before does not hide that theirs moved it.
        base: &["mkdir d", "put f base"],
        theirs: &["swap d f"],
        ours: &["chmod d 700", "mv d h", "tag h x"],
        conflicts: &[K::RenameRenameDir],
        overwrite: "d=base h/",
        keep_both: "d=base h/",
    },
    Case {
        // Theirs gave the file the name that the exchange gives it: it is ours there, too, and not under the others.
        base: &["put d base", "ln d c", "mkdir b"],
        theirs: &["swap b c"],
        ours: &["swap b d", "rm c"],
        conflicts: &[K::RenameRenameDir, K::DirFile],
        overwrite: "b=base d/",
        keep_both: "b=base d/ d.theirs=base",
    },
    Case {
        base: &["put f base"],
        theirs: &["rm f"],
        ours: &["mv f g"],
        conflicts: &[K::RenameDelete],
        overwrite: "g=base",
        keep_both: "g=base",
    },
    Case {
        base: &["mkdir a", "mkdir b"],
        theirs: &["mv a b/a"],
        ours: &["mv b a/b", "put a/b/f ours"],
        conflicts: &[K::Loop],
        overwrite: "b/ b/a/ b/f=ours",
        keep_both: "b/ b/a/ b/f=ours",
    },
    Case {
        // A rename over what theirs changed.
        base: &["put f base", "put g base"],
        theirs: &["write g theirs"],
        ours: &["mv f g"],
        conflicts: &[K::FileFile],
        overwrite: "g=base",
        keep_both: "g=base g.theirs=theirs",
    },
    Case {
        // What ours moves, others' content in it, ours has not seen: it is met when ours writes.
        base: &["put f base"],
        theirs: &["write f theirs"],
        ours: &["mv f g", "write g ours", "write g ours2"],
        conflicts: &[K::EditEdit],
        overwrite: "g=ours2",
        keep_both: "g=ours2 g.theirs=theirs",
    },
    Case {
        // A further name of ours goes as it came.
        base: &["put f base"],
        theirs: &["write f theirs"],
        ours: &["ln f g", "rm g", "rm f"],
        conflicts: &[K::DeleteEdit],
        overwrite: "",
        keep_both: "f=theirs",
    },
    Case {
        // What ours goes on with, and then removes itself.
        base: &["put f base"],
        theirs: &["mv f g", "rm g"],
        ours: &["write f ours", "rm f"],
        conflicts: &[K::EditDelete],
        overwrite: "",
        keep_both: "",
    },
    Case {
        base: &["mkdir d"],
        theirs: &["mv d e", "rmdir e", "put d theirs"],
        ours: &["chmod d 700", "rmdir d"],
        conflicts: &[K::EditDelete],
        overwrite: "d=theirs",
        keep_both: "d=theirs",
    },
    Case {
        // Both removed one of its names: the other is no new name of it.
        base: &["put f base", "ln f g"],
        theirs: &["rm f"],
        ours: &["rm f"],
        conflicts: &[],
        overwrite: "g=base",
        keep_both: "g=base",
    },
    Case {
        // Each side removed another name of it: neither removed it.
        base: &["put f base", "ln f g"],
        theirs: &["rm f"],
        ours: &["rm g"],
        conflicts: &[K::DeleteEdit],
        overwrite: "f=base",
        keep_both: "g=base",
    },
    Case {
        base: &["put f base", "ln f g", "put x x"],
        theirs: &["mv x f"],
        ours: &["rm g"],
        conflicts: &[K::DeleteEdit],
        overwrite: "f=x f.ours=base",
        keep_both: "f=x g=base",
    },
    Case {
        base: &["put f base", "ln f g", "put x x"],
        theirs: &["rm f"],
        ours: &["mv x g"],
        conflicts: &[K::FileFile],
        overwrite: "f=base g=x",
        keep_both: "g=x g.theirs=base",
    },
    Case {
        // A name that theirs linked and removed again was never one of ours.
        base: &["put f base"],
        theirs: &["ln f x", "rm x"],
        ours: &["rm f"],
        conflicts: &[K::DeleteEdit],
        overwrite: "",
        keep_both: "f=base",
    },
    Case {
        // Theirs moved what ours has elsewhere to a name that ours removed.
        base: &["put a a", "put d d"],
        theirs: &["mv a d"],
        ours: &["rm d"],
        conflicts: &[],
        overwrite: "d=a",
        keep_both: "d=a",
    },
    Case {
        base: &["put c c", "put d d"],
        theirs: &["swap c d"],
        ours: &["rm c"],
        conflicts: &[K::DeleteRename],
        overwrite: "c=d",
        keep_both: "c=d d=c",
    },
    Case {
        // The other name stays when ours moves the one that theirs removed.
        base: &["put a base", "ln a d"],
        theirs: &["rm a"],
        ours: &["mv d b", "mv a c"],
        conflicts: &[K::RenameDelete],
        overwrite: "b=base c=base",
        keep_both: "b=base c=base",
    },
    Case {
        base: &["put a base", "ln a b", "put d d"],
        theirs: &["rm b", "put c c"],
        ours: &["mv b d", "mv a c"],
        conflicts: &[K::RenameDelete, K::FileFile],
        overwrite: "c=base d=base",
        keep_both: "c=base c.theirs=c d=base",
    },
    Case {
        base: &["put f f", "put g g"],
        theirs: &["mv f h", "put x x"],
        ours: &["mv f x", "mv g y"],
        conflicts: &[K::RenameRename, K::FileFile],
        overwrite: "x=f y=g",
        keep_both: "h=f x=f x.theirs=x y=g",
    },
    Case {
        // Where theirs moved it ours has it, too.
        base: &["put c base"],
        theirs: &["mv c b"],
        ours: &["ln c b", "mv c a"],
        conflicts: &[K::RenameDelete],
        overwrite: "a=base b=base",
        keep_both: "a=base b=base",
    },
    Case {
        base: &["put c base", "ln c d"],
        theirs: &["mv c e"],
        ours: &["mv c f"],
        conflicts: &[K::RenameRename],
        overwrite: "d=base f=base",
        keep_both: "d=base e=base f=base",
    },
    Case {
        base: &["put f base", "put g base"],
        theirs: &["write g theirs"],
        ours: &["mv g h", "mv f h"],
        conflicts: &[K::FileFile],
        overwrite: "h=base",
        keep_both: "h=base h.theirs=theirs",
    },
    Case {
        // Theirs moved a file to where ours puts another: neither removed it.
        base: &["put a base"],
        theirs: &["mv a c"],
        ours: &["put c ours", "mv a d"],
        conflicts: &[K::FileMoved],
        overwrite: "c=ours d=base",
        keep_both: "c=ours d=base",
    },
    Case {
        base: &["put a base"],
        theirs: &["mv a c"],
        ours: &["mkdir c"],
        conflicts: &[K::FileMoved],
        overwrite: "c/ c.theirs=base",
        keep_both: "c/ c.theirs=base",
    },
    Case {
        // An exchange of which theirs moved one half.
        base: &["put f f", "put g g"],
        theirs: &["mv g h"],
        ours: &["swap f g"],
        conflicts: &[K::RenameRename],
        overwrite: "f=g g=f",
        keep_both: "f=g g=f h=g",
    },
    Case {
        base: &["put f f", "put g g"],
        theirs: &["mv f h"],
        ours: &["swap f g"],
        conflicts: &[K::RenameRename],
        overwrite: "f=g g=f",
        keep_both: "f=g g=f h=f",
    },
    Case {
        base: &["put f f", "put g g"],
        theirs: &["rm g"],
        ours: &["swap f g"],
        conflicts: &[K::RenameDelete],
        overwrite: "f=g g=f",
        keep_both: "f=g g=f",
    },
    Case {
        base: &["put f f", "put g g"],
        theirs: &["swap f g"],
        ours: &["swap f g"],
        conflicts: &[],
        overwrite: "f=g g=f",
        keep_both: "f=g g=f",
    },
    Case {
        base: &["mkdir f", "put f/x x", "put g g"],
        theirs: &["mv f h", "put f theirs"],
        ours: &["swap f g"],
        conflicts: &[K::FileFile, K::RenameRenameDir],
        overwrite: "f=g g/ g/x=x",
        keep_both: "f=g f.theirs=theirs g/ g/x=x",
    },
    Case {
        base: &["put f f", "put g g"],
        theirs: &["put h theirs"],
        ours: &["swap f g", "ln f h"],
        conflicts: &[K::FileFile],
        overwrite: "f=g g=f h=g",
        keep_both: "f=g g=f h=g h.theirs=theirs",
    },
];

/// Makes the base, forks, lets both sides act, and gives what to merge.
fn prepare(case: &Case, on_conflict: OnConflict) -> (Peer, Vec<Event>, MergeMap) {
    let mut server = Peer::new();
    let mut next = 10;
    case.base.iter().for_each(|text| act(&mut server, text, &mut next));
    let mut client = server.fork();
    let mut map = MergeMap::new(SUB, server.position, 7, on_conflict);
    map.grant(Ino(1000), Ino(2000));
    map.note_born_after(ShardId(0), next);
    // What the decoupled side may still ask for stays as an orphan, and its name is remembered.
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
