//! Restarts: durable changes stay, others go whole, inode numbers never come again.

use std::collections::{BTreeMap, BTreeSet};

use crate::rig::{Asks, Rig, eventually, figure, file, make, name, quiet, session, unlink, world};
use chiton_model::{Make, Op, RenameHow};
use chiton_server::{FormatOptions, Server, ServerOptions, StartError};
use chiton_types::Ino;
use chiton_wire::{Answer, Call, Query};

#[test]
fn a_directory_is_served_again_after_an_orderly_end() {
    let tmp = tempfile::tempdir().expect("a directory");
    let dir = tmp.path().join("fs");
    assert!(matches!(Server::start(&dir, quiet(), world()), Err(StartError::NotFormatted(_))));
    Server::format(&dir, &FormatOptions::default(), &world()).expect("formats");
    let server = Server::start(&dir, quiet(), world()).expect("starts");
    assert!(matches!(Server::start(&dir, quiet(), world()), Err(StartError::Held { .. })));
    let s = session(&server);
    let d = s.mkdir(Ino::ROOT, "d");
    let f = s.create(d, "f");
    s.op(Op::Rename {
        from: d,
        from_name: name("f"),
        to: Ino::ROOT,
        to_name: name("g"),
        how: RenameHow::Replace,
    });
    s.op(make(d, "link", Make::Symlink { target: b"../g".to_vec() }));
    let resolve =
        Query::Resolve { from: Ino::ROOT, path: b"d/./link".to_vec(), follow: true, sessions: vec![] };
    let end = |answer| match answer {
        Ok(Answer::Resolved(path)) => path.end().map(|(attr, _)| attr.ino),
        other => panic!("not resolved: {other:?}"),
    };
    assert_eq!(end(s.query(resolve.clone())), Some(f));
    let before = s.getattr(f).expect("there");
    drop(s);
    server.shutdown().expect("ends");

    let server = Server::start(&dir, quiet(), world()).expect("starts again");
    let s = session(&server);
    assert_eq!(s.getattr(f).expect("there"), before);
    assert_eq!(s.list(Ino::ROOT, true).len(), 2);
    assert_eq!(end(s.query(resolve)), Some(f));
    assert_eq!(figure(&server, "/inodes"), 4);
}

#[test]
fn crashes_leave_a_prefix_and_never_reuse_a_number() {
    let mut rig = Rig::new();
    let mut given = BTreeSet::new();
    let mut durable: BTreeMap<String, Ino> = BTreeMap::new();
    for life in 0..20 {
        // Some lives end after a checkpoint, some amid a journal.
        let options =
            ServerOptions { checkpoint_rows: if life % 3 == 0 { 20 } else { usize::MAX }, ..quiet() };
        let server = rig.start(options);
        let s = session(&server);
        assert_eq!(s.list(Ino::ROOT, false).into_iter().collect::<BTreeMap<_, _>>(), durable, "life {life}");
        let mut volatile = durable.clone();
        for n in 0..40 {
            let text = format!("{life}-{n}");
            let op = if n % 8 == 0 { make(Ino::ROOT, &text, Make::Dir) } else { file(Ino::ROOT, &text) };
            let ino = s.op(op).1.attr.expect("made").ino;
            assert!(given.insert(ino), "{ino} comes again in life {life}");
            volatile.insert(text, ino);
            if n == 29 {
                let victim = format!("{life}-1");
                s.op(unlink(Ino::ROOT, &victim));
                volatile.remove(&victim);
                s.commit();
                durable = volatile.clone();
            }
        }
        if life % 2 == 0 {
            // Operations that nobody waited for may be durable already.
            s.commit();
            durable = volatile;
        } else {
            rig.place.set_trouble(Some(chiton_journal::PlaceError::Failed("cut".into())));
            let reached = server.durable();
            if reached.0 > 0 && s.list(Ino::ROOT, false).len() != durable.len() {
                // Not cut in time: accept what the journal says.
                rig.crash(&server);
                let server = rig.start(quiet());
                durable = session(&server).list(Ino::ROOT, false).into_iter().collect();
                let kept = volatile.iter().filter(|(text, _)| durable.contains_key(*text)).count();
                assert_eq!(kept, durable.len(), "nothing but what was made");
                rig.crash(&server);
                continue;
            }
        }
        drop(s);
        rig.crash(&server);
    }
}

#[test]
fn a_small_cache_serves_a_large_tree() {
    let rig = Rig::new();
    let options = ServerOptions { cache_bytes: 256 << 10, checkpoint_rows: 3_000, ..quiet() };
    let server = rig.start(options.clone());
    let s = session(&server);
    let mut tree: BTreeMap<Ino, BTreeMap<String, Ino>> = BTreeMap::new();
    let dirs: Vec<Ino> = (0..20).map(|n| s.mkdir(Ino::ROOT, &format!("d{n}"))).collect();
    for n in 0..1_000 {
        for &dir in &dirs {
            let text = format!("f{n}");
            let ino = s.create(dir, &text);
            tree.entry(dir).or_default().insert(text, ino);
        }
    }
    let check = |s: &dyn Asks, tree: &BTreeMap<Ino, BTreeMap<String, Ino>>| {
        for (dir, files) in tree {
            let listed: BTreeMap<_, _> = s.list(*dir, true).into_iter().collect();
            assert_eq!(&listed, files);
            for (text, ino) in files.iter().step_by(97) {
                assert_eq!(s.lookup(*dir, text).0.expect("there").ino, *ino);
            }
            assert_eq!(s.lookup(*dir, "nothing").0, None);
        }
    };
    server.checkpoint().expect("a checkpoint");
    check(&s, &tree);
    server.checkpoint().expect("a checkpoint");
    eventually("the cache is small", || figure(&server, "/cache_bytes") < 1 << 20);
    for (dir, files) in &mut tree {
        for n in (0..1_000).step_by(2) {
            let text = format!("f{n}");
            s.op(unlink(*dir, &text));
            files.remove(&text);
        }
    }
    check(&s, &tree);
    s.commit();
    drop(s);
    server.abandon();
    let server = rig.start(options);
    let s = session(&server);
    check(&s, &tree);
    assert_eq!(figure(&server, "/inodes"), 1 + 20 + 10_000);
}

#[test]
fn a_cache_that_grows_by_reading_alone_shrinks() {
    let rig = Rig::new();
    let options = ServerOptions { cache_bytes: 256 << 10, ..quiet() };
    let server = rig.start(options.clone());
    let s = session(&server);
    let dirs: Vec<Ino> = (0..10).map(|n| s.mkdir(Ino::ROOT, &format!("d{n}"))).collect();
    let files: Vec<Vec<Ino>> =
        dirs.iter().map(|dir| (0..1_000).map(|n| s.create(*dir, &format!("f{n}"))).collect()).collect();
    drop(s);
    server.shutdown().expect("ends");
    drop(server);
    let server = rig.start(options);
    let s = session(&server);
    for _ in 0..2 {
        for (dir, files) in dirs.iter().zip(&files) {
            for (n, ino) in files.iter().enumerate() {
                assert_eq!(s.lookup(*dir, &format!("f{n}")).0.expect("there").ino, *ino);
            }
        }
        eventually("the cache is small", || figure(&server, "/cache_bytes") <= 288 << 10);
    }
    assert_eq!(figure(&server, "/checkpoint/count"), 0);
    drop(s);
    server.shutdown().expect("ends");
}

#[test]
fn orphans_live_as_long_as_they_are_open() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let open = |text: &str| match s.try_call(Call::Op { op: file(Ino::ROOT, text), open: true }) {
        Ok(Answer::Op { outcome, .. }) => outcome.attr.expect("made").ino,
        other => panic!("{other:?}"),
    };
    let (a, b) = (open("a"), open("b"));
    for text in ["a", "b"] {
        let (_, outcome) = s.op(unlink(Ino::ROOT, text));
        assert!(outcome.gone.is_some_and(|gone| gone.orphan));
    }
    assert_eq!(s.getattr(a).expect("still there").0.nlink, 0);
    assert_eq!(figure(&server, "/orphans"), 2);
    s.try_call(Call::Closed { inos: vec![a] }).expect("closed");
    eventually("the closed orphan is freed", || s.getattr(a).is_err());
    assert!(s.getattr(b).is_ok());
    s.commit();
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    eventually("the orphan of the dead session is freed", || figure(&server, "/inodes") == 1);
    let s = session(&server);
    assert!(s.getattr(b).is_err());
}
