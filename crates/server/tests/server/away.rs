//! Stores that are away for a while: programs wait, and nobody is refused for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use chiton_journal::{PlaceError, Shape};
use chiton_objects::Fault;
use chiton_server::{Server, ServerOptions};
use chiton_types::{Ino, Position, Refusal};
use chiton_wire::Call;

use crate::rig::{Asks, Rig, eventually, quiet, refused, session};

/// The stores that the server's status says are away.
fn away(server: &Server) -> Vec<String> {
    let status = server.report("status").expect("a status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let stores = status["away"].as_array().expect("a list");
    stores.iter().map(|store| store["store"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn programs_wait_for_a_journal_store_that_is_away() {
    let troubles = [PlaceError::Transient("no answer".into()), PlaceError::Denied("403".into())];
    for (trouble, shape) in troubles.into_iter().zip([Shape::Whole, Shape::Grows]) {
        let rig = Rig::with_segments(shape);
        let server = rig.start(quiet());
        let s = session(&server);
        s.mkdir(Ino::ROOT, "before");
        s.commit();
        assert!(away(&server).is_empty());
        rig.place.set_trouble(Some(trouble));
        s.mkdir(Ino::ROOT, "during");
        thread::scope(|scope| {
            let waits = scope.spawn(|| s.commit());
            eventually("the store is said to be away", || away(&server) == ["the journal's store"]);
            // Changes continue meanwhile.
            s.mkdir(Ino::ROOT, "meanwhile");
            assert!(!waits.is_finished());
            rig.place.set_trouble(None);
            waits.join().expect("the commit succeeds");
        });
        eventually("it is said to be back", || away(&server).is_empty());
        s.commit();
        server.shutdown().expect("ends in order");
    }
}

#[test]
fn a_limit_ends_the_wait_with_eio_and_work_goes_on_later() {
    let rig = Rig::with_segments(Shape::Whole);
    let server = rig.start(ServerOptions { store_timeout: Some(Duration::from_millis(300)), ..quiet() });
    let s = session(&server);
    rig.place.set_trouble(Some(PlaceError::Transient("no answer".into())));
    s.mkdir(Ino::ROOT, "during");
    assert_eq!(refused(s.try_call(Call::Commit { upto: Position(0) })), Refusal::Io);
    rig.place.set_trouble(None);
    eventually("it is durable", || s.try_call(Call::Commit { upto: Position(0) }).is_ok());
    s.mkdir(Ino::ROOT, "afterwards");
    s.commit();
}

#[test]
fn objects_are_waited_for_and_a_put_whose_reply_was_lost_is_known_again() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let objects = server.objects();
    rig.objects.fail_next(3, Fault::Transient);
    objects.put("a", b"1").expect("put in the end");
    rig.objects.fail_next(3, Fault::Transient);
    assert_eq!(objects.get("a", None).expect("read in the end"), b"1");
    rig.objects.fail_next(1, Fault::LostReply);
    assert_eq!(objects.put_if_absent("b", b"mine"), Ok(true), "it was this very put");
    assert_eq!(objects.put_if_absent("b", b"mine"), Ok(false), "this one was not tried before");
    rig.objects.fail_next(1, Fault::Transient);
    assert_eq!(objects.put_if_absent("b", b"another"), Ok(false));
    assert!(away(&server).is_empty());
}

#[test]
fn a_journal_that_failed_for_good_ends_the_server() {
    let rig = Rig::new();
    let reports = Arc::new(AtomicUsize::new(0));
    let count = reports.clone();
    let on_failed = move |_: &str| {
        count.fetch_add(1, Ordering::SeqCst);
    };
    let server = rig.start(ServerOptions { on_failed: Some(Arc::new(on_failed)), ..quiet() });
    let s = session(&server);
    s.mkdir(Ino::ROOT, "durable");
    s.commit();
    rig.place.set_trouble(Some(PlaceError::Failed("the disk is gone".into())));
    s.mkdir(Ino::ROOT, "lost");
    assert_eq!(refused(s.try_call(Call::Commit { upto: Position(0) })), Refusal::Io);
    eventually("it is reported", || reports.load(Ordering::SeqCst) == 1);
    server.abandon();
    assert_eq!(reports.load(Ordering::SeqCst), 1, "once");
    rig.place.set_trouble(None);
    let server = rig.start(quiet());
    assert!(session(&server).lookup(Ino::ROOT, "durable").0.is_some());
}
