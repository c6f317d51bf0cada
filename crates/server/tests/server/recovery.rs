//! Recovery is bounded: the replay after a crash stays below the target, whatever the load.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::rig::{Asks, Rig, eventually, figure, file, quiet, session, world};
use chiton_metastore::Fault;
use chiton_model::Event;
use chiton_server::{Apply, Offline, Role, Server, ServerOptions};
use chiton_types::{Ino, PlateId, Position};
use chiton_wire::Call;

/// Events a second that are assumed until a replay was measured.
const ASSUMED_PER_SECOND: u64 = 500_000;

fn events_left(server: &Server) -> u64 {
    figure(server, "/journals/0/not_checkpointed/events")
}

#[test]
fn a_burst_leaves_no_more_to_replay_than_the_target_allows() {
    let mut rig = Rig::new();
    let target = Duration::from_millis(2);
    let bound = ASSUMED_PER_SECOND * target.as_millis() as u64 / 1_000;
    let server = rig.start(ServerOptions { recovery_target: target, ..quiet() });
    let s = session(&server);
    let mut worst = 0;
    for n in 0..5_000 {
        s.create(Ino::ROOT, &format!("f{n}"));
        if n % 50 == 0 {
            worst = worst.max(events_left(&server));
        }
    }
    s.commit();
    worst = worst.max(events_left(&server));
    // An operation that was let in may bring a few events.
    assert!(worst <= bound + 8, "{worst} events would be replayed, {bound} are allowed");
    assert!(figure(&server, "/checkpoint/count") >= 5_000 / bound, "checkpoints began by themselves");
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    assert!(events_left(&server) <= bound + 8 + 64, "and so many were");
    assert_eq!(session(&server).list(Ino::ROOT, false).len(), 5_000);
}

#[test]
fn while_checkpoints_fail_changes_go_on_and_status_says_that_the_target_is_missed() {
    let rig = Rig::new();
    let options = ServerOptions { recovery_target: Duration::from_millis(1), ..quiet() };
    let server = rig.start(options);
    let s = session(&server);
    s.create(Ino::ROOT, "first");
    rig.full.store(true, Ordering::SeqCst);
    rig.meta.fail_next(usize::MAX, Fault::NoSpace);
    for n in 0..1_200 {
        let op = Call::Op { op: file(Ino::ROOT, &format!("f{n}")), open: false };
        s.try_call(op).expect("nobody waits for a checkpoint that cannot be written");
    }
    let status = || -> serde_json::Value {
        serde_json::from_str(&server.report("status").expect("a status")).expect("JSON")
    };
    eventually("the failure is reported", || {
        status()["journals"][0]["checkpoints"]["state"] == "failing: no space"
    });
    let journal = &status()["journals"][0];
    assert_eq!(journal["replay"]["within_target"], false, "{journal}");
    assert!(journal["not_checkpointed"]["events"].as_u64().is_some_and(|n| n >= 1_200), "{journal}");
    rig.full.store(false, Ordering::SeqCst);
    rig.meta.crash();
    eventually("it is within the target again", || {
        status()["journals"][0]["replay"]["within_target"] == true
    });
    assert_eq!(status()["journals"][0]["checkpoints"]["failure"], serde_json::Value::Null);
}

#[test]
fn status_tells_what_is_not_durable_and_since_when() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    s.create(Ino::ROOT, "a");
    s.commit();
    assert_eq!(figure(&server, "/journals/0/not_durable/events"), 0);
    assert_eq!(figure(&server, "/journals/0/not_durable/oldest_ms"), 0);
    rig.place.set_trouble(Some(chiton_journal::PlaceError::NoSpace("full".into())));
    s.create(Ino::ROOT, "b");
    eventually("it grows old", || figure(&server, "/journals/0/not_durable/oldest_ms") >= 20);
    assert_eq!(figure(&server, "/journals/0/not_durable/events"), 1);
    assert!(figure(&server, "/journals/0/not_durable/bytes") > 0);
    rig.place.set_trouble(None);
    eventually("it is durable", || figure(&server, "/journals/0/not_durable/events") == 0);
}

fn all(_: Position, _: &chiton_types::frame::FrameHeader, _: &Event) -> bool {
    true
}

#[test]
fn the_journal_applied_offline_gives_what_a_start_gives() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let dir = s.mkdir(Ino::ROOT, "d");
    for n in 0..300 {
        s.create(dir, &format!("f{n}"));
    }
    server.checkpoint().expect("a checkpoint");
    for n in 300..600 {
        s.create(dir, &format!("f{n}"));
    }
    s.commit();
    drop(s);
    rig.crash(&server);

    let offline =
        |rig: &Rig| Offline::open_with(&rig.info, PlateId(0), &rig.stores(), world()).expect("opens");
    let apply = |offline: &Offline, after, skip_misfits| {
        let what = Apply { after, upto: Position(u64::MAX), select: &mut all, skip_misfits };
        offline.apply(what, &mut |_| {}).expect("applies")
    };
    let tool = offline(&rig);
    let before = tool.stored().expect("a position");
    let done = apply(&tool, Position(0), false);
    assert_eq!(done.applied, done.stored.0 - before.0);
    assert!(done.applied >= 300 && done.misfits == 0, "{done:?}");
    assert_eq!(tool.newest_row(&mut |_| {}).expect("rows"), done.stored, "the last create is in the rows");
    assert_eq!(apply(&tool, Position(0), false).applied, 0, "nothing a second time");

    // The pointer is behind the rows: events that are in them are not applied again.
    tool.set_stored(before).expect("set back");
    let newest = tool.newest_row(&mut |_| {}).expect("rows");
    let recovered = apply(&tool, newest, true);
    assert_eq!((recovered.applied, recovered.misfits, recovered.stored), (0, 0, done.stored));
    // Without looking at the rows, it shows that they are newer.
    tool.set_stored(before).expect("set back");
    let what = Apply { after: Position(0), upto: Position(u64::MAX), select: &mut all, skip_misfits: false };
    let error = tool.apply(what, &mut |_| {}).expect_err("the names are there").to_string();
    assert!(error.contains("does not fit"), "{error}");
    tool.set_stored(done.stored).expect("set right");
    drop(tool);

    let server = rig.start(quiet());
    assert_eq!(session(&server).list(dir, false).len(), 600);
    server.shutdown().expect("ends");
}

#[test]
fn events_that_are_passed_over_are_passed_over_for_good_and_a_start_names_what_does_not_fit() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let dir = s.mkdir(Ino::ROOT, "d");
    s.create(dir, "in it");
    s.create(Ino::ROOT, "beside it");
    s.commit();
    drop(s);
    rig.crash(&server);

    // Erased: the directory. The file made in it then fits nothing.
    let identity =
        chiton_journal::Identity { journal: rig.info.filesystem, epoch: chiton_types::Epoch(1), nonce: 77 };
    let mut change =
        |frame: &chiton_journal::Frame<'_>| -> Result<Option<Vec<u8>>, chiton_journal::JournalError> {
            let mut take = chiton_types::Take::new(frame.payload);
            let is_dir = matches!(Event::decode(&mut take), Ok(Event::Make { ino, .. }) if ino == dir);
            let mut noop = Vec::new();
            Event::NOTHING.encode(&mut noop);
            Ok(is_dir.then_some(noop))
        };
    chiton_journal::rewrite(&*rig.place, identity, &mut change, &mut |_| {}).expect("rewritten");
    let error = Server::start_as(Role::serving(&rig.info, rig.stores()), quiet(), world()).map(drop);
    let error = error.expect_err("it does not fit").to_string();
    assert!(error.contains("does not fit") && error.contains("does not exist"), "{error}");

    let tool = Offline::open_with(&rig.info, PlateId(0), &rig.stores(), world()).expect("opens");
    let what = Apply { after: Position(0), upto: Position(u64::MAX), select: &mut all, skip_misfits: true };
    let done = tool.apply(what, &mut |_| {}).expect("recovers");
    assert_eq!(done.misfits, 1, "{done:?}");
    drop(tool);
    let server: Arc<Server> = rig.start(quiet());
    let names: Vec<String> =
        session(&server).list(Ino::ROOT, false).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["beside it"]);
}
