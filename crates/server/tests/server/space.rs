//! No space: changes are refused, nothing is corrupted, and service resumes when space returns.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::rig::{Asks, Rig, eventually, figure, file, quiet, refused, session, world};
use chiton_journal::PlaceError;
use chiton_metastore::{Fault, Metastore, StoreError};
use chiton_objects::{Objects, encode_block};
use chiton_server::{Role, Server, ServerOptions};
use chiton_types::{BlockId, Ino, Position, Refusal};
use chiton_wire::{Answer, Call, Failure};

#[test]
fn a_full_journal_refuses_changes_until_there_is_space() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    s.create(Ino::ROOT, "before");
    s.commit();
    rig.place.set_trouble(Some(PlaceError::NoSpace("full".into())));
    s.create(Ino::ROOT, "answered, not durable");
    assert_eq!(refused(s.try_call(Call::Commit { upto: Position(0) })), Refusal::NoSpace);
    let op = || Call::Op { op: file(Ino::ROOT, "refused"), open: false };
    assert_eq!(refused(s.try_call(op())), Refusal::NoSpace);
    assert_eq!(s.list(Ino::ROOT, true).len(), 2, "questions are still answered");
    rig.place.set_trouble(None);
    eventually("changes are accepted again", || s.try_call(op()).is_ok());
    s.commit();
    drop(s);
    server.abandon();
    let server = rig.start(quiet());
    assert_eq!(session(&server).list(Ino::ROOT, false).len(), 3);
}

#[test]
fn a_failed_journal_is_never_trusted_again() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    s.create(Ino::ROOT, "durable");
    s.commit();
    rig.place.set_trouble(Some(PlaceError::Failed("disk error".into())));
    s.create(Ino::ROOT, "lost");
    assert_eq!(refused(s.try_call(Call::Commit { upto: Position(0) })), Refusal::Io);
    rig.place.set_trouble(None);
    let op = Call::Op { op: file(Ino::ROOT, "refused"), open: false };
    assert_eq!(s.try_call(op), Err(Failure::Refused(Refusal::Io)));
    assert!(server.checkpoint().is_err(), "never past the durable journal");
    drop(s);
    server.abandon();
    let server = rig.start(quiet());
    let names: Vec<String> =
        session(&server).list(Ino::ROOT, false).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["durable"]);
}

#[test]
fn a_full_metadata_store_is_tried_again_and_pushes_back() {
    let rig = Rig::new();
    let options = ServerOptions { dirty_bytes_max: 100 * 200, ..quiet() };
    let server = rig.start(options.clone());
    let s = session(&server);
    for n in 0..40 {
        s.create(Ino::ROOT, &format!("f{n}"));
    }
    rig.meta.fail_next(1, Fault::NoSpace);
    assert!(server.checkpoint().is_err());
    // While a checkpoint waits, changes continue until too much of it is in memory.
    rig.meta.fail_next(1_000_000, Fault::NoSpace);
    let mut made = 40;
    let refusal = loop {
        match s.try_call(Call::Op { op: file(Ino::ROOT, &format!("f{made}")), open: false }) {
            Ok(_) => made += 1,
            Err(failure) => break failure,
        }
        assert!(made < 1_000, "nothing pushes back");
    };
    assert_eq!(refusal, Failure::Refused(Refusal::NoSpace));
    rig.meta.fail_next(0, Fault::NoSpace);
    eventually("the checkpoint is written", || server.checkpoint().is_ok());
    eventually("changes are accepted again", || {
        s.try_call(Call::Op { op: file(Ino::ROOT, "last"), open: false }).is_ok()
    });
    assert!(figure(&server, "/checkpoint/count") >= 1);
    s.commit();
    drop(s);
    server.abandon();
    let server = rig.start(options);
    assert_eq!(session(&server).list(Ino::ROOT, false).len(), made + 1);
}

/// A store whose commit failed refuses everything until it is opened anew.
#[test]
fn a_metadata_store_that_refuses_is_opened_anew_whoever_notices() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    rig.meta.close().expect("closed");
    // Their numbers are reserved in the metadata store, some thousands at a time.
    let begins = |_: &i32| server.session_embedded("test", Box::new(|_| {})).is_ok();
    let begun = (0..5_000).filter(begins).count();
    assert!(begun >= 4_999, "{begun} of 5000");

    // Nothing changes any more, so that nobody but the sweeper asks the store for anything.
    let s = session(&server);
    let block = BlockId { writer: s.session().0, number: 1 };
    rig.objects.put(&block.key(), &encode_block(&[b"of nobody"])).expect("stored");
    let view = match s.try_call(Call::Admin { what: "view open".to_owned() }) {
        Ok(Answer::Bytes(text)) => text,
        other => panic!("{other:?}"),
    };
    let view: serde_json::Value = serde_json::from_slice(&view).expect("JSON");
    drop(s);
    server.checkpoint().expect("written");
    assert_eq!(rig.objects.list("blocks/", None, 9).expect("listed").len(), 1, "what is looked at stays");
    let s = session(&server);
    rig.meta.close().expect("closed");
    s.try_call(Call::Admin { what: format!("view {} close", view["view"]) }).expect("over");
    eventually("the block is swept", || rig.objects.list("blocks/", None, 9).expect("listed").is_empty());
}

#[test]
fn a_metadata_store_that_could_not_be_opened_is_tried_again() {
    let rig = Rig::new();
    let is_gone = Arc::new(AtomicBool::new(false));
    let (mut stores, gone) = (rig.stores(), is_gone.clone());
    let open = stores.open_meta;
    stores.open_meta = Box::new(move || match gone.load(Relaxed) {
        true => Err(StoreError::Closed { path: PathBuf::new() }),
        false => open(),
    });
    let server = Server::start_as(Role::serving(&rig.info, stores), quiet(), world()).expect("starts");
    is_gone.store(true, Relaxed);
    rig.meta.close().expect("closed");
    // Until their numbers run out.
    while server.session_embedded("test", Box::new(|_| {})).is_ok() {}
    is_gone.store(false, Relaxed);
    eventually("it is open, though nobody asks", || rig.meta.stats().is_ok());
}
