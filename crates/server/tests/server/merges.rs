//! Merging decoupled journals: exactly once, whatever is lost or repeated; changes of others; hostile events.

use chiton_journal::Place;
use chiton_model::merge::{ConflictKind, MergeState, Resolution};
use chiton_model::{Event, Op};
use chiton_server::EmbeddedSession;
use chiton_types::{Ino, Kind, Mode, Position, Refusal, Time};
use chiton_wire::{
    Answer, Call, Claim, Failure, Foreign, LeaseMode, MERGE_EVENTS_MAX, MergeBatch, Query, RealmAnswer,
    RealmCall,
};

use crate::merge_calls::{answer, batch, call, chmod, job, make, merge, merge_all, number, removal, tree};
use crate::realms::Realms;
use crate::rig::{Asks, Rig, file, name, quiet, refused, session, unlink};

const ALLOW: &str = "interfere_policy: allow\nallocated_inodes: 9000";

#[test]
fn calls_that_repeat_skip_or_come_late_change_nothing() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let root = s.mkdir(Ino::ROOT, "job");
    let granted = s.decouple(root, 1, "interfere_policy: block_writes\nallocated_inodes: 9000");
    let claim = granted.claim;
    let events = job(&granted, root, 2, 6);
    let (first, rest) = events.split_at(10);
    let w = batch(0, 40);
    let done = |n| MergeState { merged: Position(0), batch: Some((Position(40), n)) };
    let none = MergeState::default();
    assert_eq!(merge(&s, claim, w, 3, first, false).state, none, "a gap");
    assert_eq!(merge(&s, claim, batch(7, 40), 0, first, false).state, none, "not what comes next");
    assert_eq!(merge(&s, claim, w, 0, first, false).state, done(10));
    let made = tree(&s, root);
    for again in [
        merge(&s, claim, w, 0, first, false),
        merge(&s, claim, w, 2, &first[2..5], false),
        merge(&s, claim, batch(0, 41), 0, first, false),
        merge(&s, claim, w, 11, &rest[1..], true),
    ] {
        assert_eq!((again.state, again.lost.len()), (done(10), 0));
        assert_eq!(tree(&s, root), made);
    }
    // Half of it is done already.
    assert_eq!(merge(&s, claim, w, 5, &events[5..20], false).state, done(20));
    let merged = MergeState { merged: Position(40), batch: None };
    let last = merge(&s, claim, w, 20, &events[20..], true);
    assert_eq!((last.state, last.lost.len(), last.conflicts.len()), (merged, 0, 0));
    assert_eq!(merge(&s, claim, w, 20, &events[20..], true).state, merged, "late");
    let expect: usize = 2 * (1 + 4);
    assert_eq!(tree(&s, root).len(), expect);
    assert!(tree(&s, root).iter().all(|(path, mode)| *mode == if path.len() == 3 { 0o755 } else { 0o640 }));
    // A batch without events.
    assert_eq!(merge(&s, claim, batch(40, 44), 0, &[], true).state.merged, Position(44));
    let used = s.realms()[0].used;
    assert_eq!(used, 14, "numbers of merged inodes");
    s.end(claim, false).expect("ends");
    assert_eq!(
        refused(s.try_call(Call::Realm(Box::new(call(claim, batch(44, 45), 0, &[], true))))),
        Refusal::Stale
    );
    let claim = s.decouple(root, 2, ALLOW).claim;
    assert_eq!(claim.generation, 1);
}

#[test]
fn a_server_that_crashes_anywhere_in_a_merge_goes_on_where_it_was() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let root = s.mkdir(Ino::ROOT, "job");
    let granted = s.decouple(root, 1, ALLOW);
    let events = job(&granted, root, 2, 4);
    s.commit();
    server.checkpoint().expect("checkpoint");
    drop(s);
    rig.crash(&server);
    let whole = MergeBatch { after: Position(0), upto: Position(events.len() as u64) };
    // In pieces of three.
    let send_all = |s: &chiton_server::EmbeddedSession, claim, mut state: MergeState| {
        while state.merged < whole.upto {
            let done = state.batch.map_or(0, |(_, done)| done as usize);
            let end = events.len().min(done + 3);
            state = merge(s, claim, whole, done as u64, &events[done..end], end == events.len()).state;
        }
        tree(s, root)
    };
    let server = rig.start(quiet());
    let s = session(&server);
    let attached = s.attach(granted.claim.realm, 2);
    s.commit();
    let last = |rig: &Rig| *rig.place.list().expect("lists").last().expect("a segment");
    let from = last(&rig);
    let expect = send_all(&s, attached.claim, attached.state);
    assert_eq!(expect.len(), 2 * 4);
    s.commit();
    drop(s);
    server.abandon();
    let to = last(&rig);
    assert_eq!(from.number, to.number, "one segment holds all of the merge");
    let bytes = rig.place.read(to.number, u64::MAX).expect("reads");
    let journal = rig.place.clone();
    let mut resumed = std::collections::BTreeSet::new();
    // Cut off at many places, within frames and between them.
    let step = (bytes.len() - from.bytes as usize).div_ceil(60);
    for cut in (from.bytes as usize..=bytes.len()).step_by(step).chain([bytes.len()]) {
        rig.place = std::sync::Arc::new(journal.crash(&mut |_, _| 0));
        rig.place.set_bytes(to.number, bytes[..cut].to_vec());
        let server = rig.start(quiet());
        let s = session(&server);
        let again = s.attach(granted.claim.realm, 3);
        resumed.insert(again.state.batch.map_or(again.state.merged.0, |(_, done)| done));
        assert_eq!(send_all(&s, again.claim, again.state), expect, "cut at {cut} of {}", bytes.len());
        drop(s);
        server.abandon();
    }
    assert!(resumed.len() > 5 && resumed.contains(&0) && resumed.contains(&whole.upto.0), "{resumed:?}");
}

#[test]
fn hostile_events_touch_nothing_but_the_subtree_and_its_numbers() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let (root, out) = (s.mkdir(Ino::ROOT, "job"), s.mkdir(Ino::ROOT, "out"));
    let (inside, secret) = (s.mkdir(root, "inside"), s.create(out, "secret"));
    let granted = s.decouple(root, 1, ALLOW);
    let claim = granted.claim;
    let before = tree(&s, out);
    let n = |i| number(&granted, i);
    let extent = chiton_model::Extent {
        offset: 0,
        len: 10,
        block: chiton_types::BlockId { writer: 1, number: 1 },
        block_offset: 0,
        shared: false,
    };
    let write = |ino| Event::Write {
        ino,
        body: chiton_model::Body::Extents(vec![extent]),
        size: 10,
        mode: None,
        mtime: Time(1),
    };
    let events = vec![
        make(out, "x", n(0), Kind::File),
        make(root, "x", Ino(granted.ranges[0].1.0 + 5), Kind::File),
        make(root, "x", secret, Kind::File),
        removal(out, "secret", secret),
        chmod(secret, 0o777),
        chmod(Ino::ROOT, 0o777),
        Event::Rename {
            from: out,
            from_name: name("secret"),
            to: root,
            to_name: name("mine"),
            ino: secret,
            kind: Kind::File,
            over: chiton_model::Over::Nothing,
            time: Time(1),
        },
        Event::Link { parent: root, name: name("mine"), ino: secret, kind: Kind::File, time: Time(1) },
        Event::Restore { parent: root, name: name("mine"), ino: secret, time: Time(1) },
        Event::DecouplingEnded { id: claim.realm },
        Event::Reserve { shard: root.shard(), counter_end: 1 << 47 },
        make(inside, "good", n(1), Kind::File),
        write(n(1)),
        make(inside, "again", n(1), Kind::File),
    ];
    let merged = merge_all(&s, claim, &events);
    let lost: Vec<u64> = merged.lost.iter().map(|(n, _)| *n).collect();
    assert_eq!(lost, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13]);
    assert!(merged.lost.iter().all(|(_, why)| !why.is_empty()));
    assert_eq!(tree(&s, out), before);
    assert_eq!(tree(&s, root), [("/inside".to_owned(), 0o755), ("/inside/good".to_owned(), 0o755)]);
    assert_eq!(s.realms().len(), 1);
    let malformed = |call| matches!(s.try_realm(call), Err(Failure::Malformed(_)));
    let next = batch(14, 20);
    let garbage = |bytes: &[u8], count| RealmCall::Merge {
        claim,
        batch: next,
        from: 0,
        count,
        events: bytes.to_vec(),
        last: true,
        blind: false,
    };
    assert!(
        malformed(garbage(&[255; 9], 1))
            && malformed(garbage(&[15, 1, 15, 1], 1))
            && malformed(garbage(&[15, 1], 2))
    );
    assert!(malformed(garbage(&[15, 1].repeat(5000), MERGE_EVENTS_MAX as u32 + 1)));
    assert!(malformed(call(claim, batch(14, 14), 0, &[], true)));
    assert!(malformed(call(claim, next, u64::MAX, &[Event::NOTHING], true)));
    let other = session(&server);
    assert_eq!(
        other.try_realm(call(claim, next, 0, &[Event::NOTHING], true)),
        Err(Failure::Refused(Refusal::Stale))
    );
    assert_eq!(answer(s.try_realm(garbage(&[15, 1], 1))).state.merged, Position(20));
}

#[test]
fn what_others_did_meets_the_policy_and_what_they_removed_comes_back() {
    for (on_conflict, expect) in [
        ("overwrite", vec!["both", "edited", "mine"]),
        ("keep_both", vec!["both", "both.theirs", "edited", "mine"]),
    ] {
        let mut rig = Rig::new();
        let server = rig.start(quiet());
        let s = session(&server);
        let root = s.mkdir(Ino::ROOT, "job");
        let (edited, dropped) = (s.create(root, "edited"), s.create(root, "dropped"));
        let granted = s.decouple(root, 1, &format!("{ALLOW}\non_conflict: {on_conflict}"));
        // Others, on the global namespace.
        s.create(root, "both");
        s.op(unlink(root, "edited"));
        s.op(unlink(root, "dropped"));
        s.commit();
        drop(s);
        // They survive a restart, from the journal or from rows.
        if on_conflict == "overwrite" {
            server.checkpoint().expect("checkpoint");
        }
        rig.crash(&server);
        let server = rig.start(quiet());
        server.tidy().expect("tidies");
        let s = session(&server);
        let attached = s.attach(granted.claim.realm, 2);
        let check = RealmCall::Check {
            claim: attached.claim,
            inodes: vec![edited, root, number(&granted, 0)],
            names: vec![(root, name("both")), (root, name("edited")), (root, name("mine"))],
        };
        let Ok(RealmAnswer::Foreign { inodes, names }) = s.try_realm(check) else { panic!("answered") };
        assert_eq!(inodes, [Foreign::Removed, Foreign::Same, Foreign::Same]);
        assert_eq!(names, [Foreign::Changed, Foreign::Removed, Foreign::Same]);
        let events = [
            make(root, "both", number(&granted, 0), Kind::File),
            make(root, "mine", number(&granted, 1), Kind::File),
            chmod(edited, 0o600),
            removal(root, "dropped", dropped),
        ];
        let merged = merge_all(&s, attached.claim, &events);
        let kinds: Vec<_> = merged.conflicts.iter().map(|c| (c.kind, c.resolution)).collect();
        let first = if on_conflict == "overwrite" { Resolution::Ours } else { Resolution::TheirsAside };
        assert_eq!(
            kinds,
            [(ConflictKind::FileFile, first), (ConflictKind::EditDelete, Resolution::Restored)]
        );
        let names: Vec<String> = tree(&s, root).into_iter().map(|(path, _)| path[1..].to_owned()).collect();
        assert_eq!(names, expect);
        assert_eq!(s.lookup(root, "edited").0.map(|attr| (attr.ino, attr.mode)), Some((edited, Mode(0o600))));
        s.end(attached.claim, false).expect("ends");
        server.tidy().expect("tidies");
        assert_eq!(crate::rig::figure(&server, "/orphans"), 0, "nobody brings them back any more");
    }
}

#[test]
fn abort_stops_at_the_first_conflict_and_blind_sees_none() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let root = s.mkdir(Ino::ROOT, "job");
    let f = s.create(root, "f");
    let granted = s.decouple(root, 1, &format!("{ALLOW}\non_conflict: abort"));
    let change = chiton_model::AttrChange { mode: Some(Mode(0o700)), ..Default::default() };
    s.op(Op::SetAttr { ino: f, change });
    let events = [make(root, "mine", number(&granted, 0), Kind::File), chmod(f, 0o600)];
    let merged = merge_all(&s, granted.claim, &events);
    assert!(merged.stopped);
    assert_eq!(merged.conflicts[0].kind, ConflictKind::AttrEdit);
    assert_eq!(merged.state.batch, Some((Position(2), 1)), "nothing from there on");
    assert_eq!(s.getattr(f).expect("there").0.mode, Mode(0o700));
    let RealmCall::Merge { claim, batch, from, count, events, last, .. } =
        call(granted.claim, batch(0, 2), 0, &events, true)
    else {
        unreachable!("made so")
    };
    let merged =
        answer(s.try_realm(RealmCall::Merge { claim, batch, from, count, events, last, blind: true }));
    assert_eq!((merged.stopped, merged.conflicts.len(), merged.state.merged), (false, 0, Position(2)));
    assert_eq!(s.getattr(f).expect("there").0.mode, Mode(0o600));
}

/// The answer was lost: a client that asks again gets the same conflicts, and of another piece none.
#[test]
fn what_contradicted_is_told_again_to_who_asks_again() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let root = s.mkdir(Ino::ROOT, "job");
    let f = s.create(root, "f");
    let granted = s.decouple(root, 1, ALLOW);
    let change = chiton_model::AttrChange { mode: Some(Mode(0o700)), ..Default::default() };
    s.op(Op::SetAttr { ino: f, change });
    let first = call(granted.claim, batch(0, 2), 0, &[chmod(f, 0o600)], false);
    let second = [make(root, "mine", number(&granted, 0), Kind::File)];
    let second = call(granted.claim, batch(0, 2), 1, &second, true);
    let first_answer = answer(s.try_realm(first.clone()));
    assert_eq!(first_answer.conflicts.len(), 1);
    let again = answer(s.try_realm(first.clone()));
    assert_eq!((again.conflicts, again.state), (first_answer.conflicts, first_answer.state));
    assert_eq!(answer(s.try_realm(second.clone())).conflicts, []);
    assert_eq!(answer(s.try_realm(second)).conflicts, []);
    assert_eq!(answer(s.try_realm(first)).conflicts, [], "who asks for the next has heard of the one before");
}

/// One decoupling of a directory merges at a time; its lock ends with its client.
#[test]
fn one_decoupling_of_a_directory_merges_at_a_time() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let (a, b) = (session(&server), session(&server));
    let root = a.mkdir(Ino::ROOT, "job");
    let branch = |s: &EmbeddedSession, name: &str, nonce: u64| {
        let call = RealmCall::Decouple {
            root,
            branch: chiton_types::Name::try_from(name).ok(),
            nonce,
            journal_at: "here".to_owned(),
            policy: ALLOW.as_bytes().to_vec(),
        };
        match s.try_realm(call) {
            Ok(RealmAnswer::Granted(granted)) => granted,
            other => panic!("{other:?}"),
        }
    };
    let (one, two) = (branch(&a, "one", 1), branch(&b, "two", 2));
    let lock = |s: &EmbeddedSession, claim: Claim, acquire: bool| {
        s.try_realm(RealmCall::MergeLock { claim, acquire })
    };
    let busy = Err(Failure::Refused(Refusal::Busy));
    answer(lock(&a, one.claim, true));
    answer(lock(&a, one.claim, true));
    assert_eq!(lock(&b, two.claim, true), busy);
    let events = [make(root, "f", number(&two, 0), Kind::File)];
    assert_eq!(b.try_realm(call(two.claim, batch(0, 1), 0, &events, true)), busy);
    let merging: Vec<bool> = b.realms().iter().map(|info| info.is_merging).collect();
    assert_eq!(merging, [true, false]);
    assert_eq!(lock(&b, one.claim, false), Err(Failure::Refused(Refusal::Stale)), "of another's");
    answer(lock(&a, one.claim, false));
    answer(lock(&b, two.claim, true));
    assert_eq!(merge_all(&b, two.claim, &events).skipped, 0);
    assert_eq!(lock(&a, one.claim, true), busy);
    drop(b);
    answer(a.try_realm(RealmCall::MergeLock { claim: one.claim, acquire: true }));
}

/// A client can change the treatment of conflicts, and the change survives a crash.
#[test]
fn treatment_of_conflicts_can_be_changed() {
    use chiton_model::merge::OnConflict;
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let root = s.mkdir(Ino::ROOT, "job");
    let f = s.create(root, "f");
    let granted = s.decouple(root, 1, &format!("{ALLOW}\non_conflict: abort"));
    let change = chiton_model::AttrChange { mode: Some(Mode(0o700)), ..Default::default() };
    s.op(Op::SetAttr { ino: f, change });
    let merge = call(granted.claim, batch(0, 1), 0, &[chmod(f, 0o600)], true);
    assert!(answer(s.try_realm(merge.clone())).stopped);
    let claim = Claim { generation: 9, ..granted.claim };
    let on_conflict = OnConflict::Overwrite;
    let stale = s.try_realm(RealmCall::Resolve { claim, on_conflict });
    assert_eq!(stale, Err(Failure::Refused(Refusal::Stale)));
    answer(s.try_realm(RealmCall::Resolve { claim: granted.claim, on_conflict }));
    let merged = answer(s.try_realm(merge));
    assert_eq!((merged.stopped, merged.conflicts[0].resolution), (false, Resolution::Together));
    assert_eq!(s.getattr(f).expect("there").0.mode, Mode(0o600));
}

#[test]
fn others_give_their_leases_back_before_a_merge_changes_what_they_cache() {
    use std::sync::{Arc, Mutex};
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let root = s.mkdir(Ino::ROOT, "job");
    let f = s.create(root, "f");
    let granted = s.decouple(root, 1, "interfere_policy: block_writes");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let other = server
        .session_embedded("other", Box::new(move |recall| noted.lock().unwrap().push(recall.ino)))
        .expect("a session");
    assert_eq!(other.getattr(f).expect("there").1, LeaseMode::Shared);
    assert!(other.lookup(root, "new").1, "also that there is no such name");
    merge_all(&s, granted.claim, &[make(root, "new", number(&granted, 0), Kind::File)]);
    assert_eq!(*asked.lock().unwrap(), [root]);
    merge_all(&s, granted.claim, &[chmod(f, 0o600), removal(root, "f", f)]);
    let asked = asked.lock().unwrap().clone();
    assert!(asked[1..].contains(&f), "{asked:?}");
    assert_eq!(other.lookup(root, "new").0.map(|attr| attr.ino), Some(number(&granted, 0)));
}

#[test]
fn merges_of_several_take_turns_with_all_others() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let realms: Vec<_> = (0..3)
        .map(|n| {
            let root = s.mkdir(Ino::ROOT, &format!("job{n}"));
            (root, s.decouple(root, n, ALLOW))
        })
        .collect();
    std::thread::scope(|scope| {
        for (root, granted) in &realms {
            let s = &s;
            scope.spawn(move || {
                let events = job(granted, *root, 3, 900);
                let whole = batch(0, events.len() as u64);
                let mut state = MergeState::default();
                while state.merged < whole.upto {
                    let done = state.batch.map_or(0, |(_, done)| done as usize);
                    let end = events.len().min(done + MERGE_EVENTS_MAX);
                    let merged =
                        merge(s, granted.claim, whole, done as u64, &events[done..end], end == events.len());
                    assert_eq!(merged.lost, []);
                    state = merged.state;
                }
            });
        }
        for n in 0..200 {
            s.op(file(Ino::ROOT, &format!("meanwhile {n}")));
        }
    });
    for (root, _) in &realms {
        assert_eq!(tree(&s, *root).len(), 3 * (1 + 600));
    }
    let answer = s.query(Query::StatFs);
    assert!(matches!(answer, Ok(Answer::StatFs(_))));
}

#[test]
fn rows_stay_as_the_decoupled_client_saw_them_whatever_others_do() {
    use chiton_model::{Body, XattrHow};
    use chiton_namespace::Need;
    for checkpointed in [false, true] {
        let mut rig = Rig::new();
        let server = rig.start(quiet());
        let s = session(&server);
        let root = s.mkdir(Ino::ROOT, "job");
        let (f, gone) = (s.create(root, "f"), s.create(root, "gone"));
        let large = s.mkdir(root, "large");
        let ops: Vec<Op> = (0..5_000).map(|n| file(large, &format!("file {n}"))).collect();
        s.try_call(Call::Batch { ops, stop_on_failure: true }).expect("made");
        let write = |text: &str| {
            let body = Body::Inline(text.as_bytes().to_vec());
            Op::Write {
                ino: f,
                body,
                size: text.len() as u64,
                mtime: Time(9),
                kill_setid: false,
                hold: Default::default(),
            }
        };
        s.op(write("before"));
        let granted = s.decouple(root, 1, ALLOW);
        let needs = vec![
            Need::Inode(root),
            Need::Dir(root),
            Need::Inode(f),
            Need::Content(f),
            Need::Xattrs(f),
            Need::Inode(gone),
            Need::Entry(root, name("gone")),
            Need::Entry(root, name("new")),
            Need::Inode(large),
            Need::Entry(large, name("file 7")),
            Need::Slice { dir: large, after: 0, rows: 1000 },
        ];
        let before = s.rows(granted.claim, needs.clone());
        let new = s.create(root, "new");
        s.op(write("after"));
        s.op(Op::SetXattr { ino: f, name: b"user.a".into(), value: vec![1], how: XattrHow::Set });
        s.op(unlink(root, "gone"));
        s.create(root, "gone");
        for n in 0..500 {
            s.op(unlink(large, &format!("file {n}")));
            s.create(large, &format!("theirs {n}"));
        }
        let same = |s: &chiton_server::EmbeddedSession, claim| {
            let now = s.rows(claim, needs.clone());
            // Of the directory in which it merged something meanwhile, see below.
            for (need, (now, before)) in needs.iter().zip(now.iter().zip(&before)) {
                if matches!(need, Need::Inode(ino) if *ino == large) {
                    continue;
                }
                if matches!(need, Need::Slice { .. }) {
                    assert!(before.rows.starts_with(&now.rows) || now.rows.starts_with(&before.rows));
                } else {
                    assert_eq!(now, before, "{need:?}");
                }
            }
            assert_eq!(s.rows(claim, vec![Need::Inode(new)])[0].rows, [], "it is not known to be there");
        };
        same(&s, granted.claim);
        // They hold the client's own merged files.
        merge_all(&s, granted.claim, &[make(large, "mine", number(&granted, 0), Kind::File)]);
        let mine =
            s.rows(granted.claim, vec![Need::Entry(large, name("mine")), Need::Inode(number(&granted, 0))]);
        assert!(mine.iter().all(|found| found.rows.len() == 1));
        let known = |s: &chiton_server::EmbeddedSession, claim| {
            let (key, value) = s.rows(claim, vec![Need::Inode(large)])[0].rows[0].clone();
            match chiton_namespace::StoredRow::decode(&key, &value) {
                Ok(Some(chiton_namespace::StoredRow::Inode(inode))) => inode.node.entries(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(known(&s, granted.claim), 5_001, "its own entry, and none of theirs");
        s.commit();
        if checkpointed {
            server.checkpoint().expect("checkpoint");
        }
        drop(s);
        rig.crash(&server);
        let server = rig.start(quiet());
        let s = session(&server);
        let claim = s.attach(granted.claim.realm, 2).claim;
        same(&s, claim);
        assert_eq!(known(&s, claim), 5_001);
        s.end(claim, false).expect("ends");
        server.checkpoint().expect("checkpoint");
        use chiton_metastore::Metastore;
        let rows = rig.meta.scan(std::ops::Bound::Unbounded, None, usize::MAX).expect("scans");
        let is_image = |key: &[u8]| chiton_namespace::tag_of(key) == Some(chiton_namespace::tag::IMAGE);
        assert!(!rows.iter().any(|(key, _)| is_image(key)), "they go with the decoupling");
    }
}
