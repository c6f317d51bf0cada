//! No space: changes are refused, nothing is corrupted, and service goes on when space returns.

use crate::rig::{Asks, Rig, eventually, figure, file, quiet, refused, session};
use chiton_journal::PlaceError;
use chiton_metastore::Fault;
use chiton_proto::{Call, Failure};
use chiton_server::ServerOptions;
use chiton_types::{Ino, Position, Refusal};

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
    // While a checkpoint waits, changes go on until too much of it is in memory.
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
