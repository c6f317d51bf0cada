//! Figures of the status on the object store and on the journal's writes.

use std::time::Duration;

use chiton_journal::Shape;
use chiton_objects::encode_block;
use chiton_server::ServerOptions;
use chiton_types::{BlockId, Ino};
use chiton_wire::{Answer, Call};

use crate::rig::{Asks, Rig, figure, quiet, session};

#[test]
fn what_goes_to_the_object_store_is_counted_with_its_bytes() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let of = |what: &str| figure(&server, &format!("/object_store/{what}"));
    assert_eq!((of("puts"), of("written_bytes")), (0, 0));
    let (bytes, block) = (encode_block(&[b"some content"]), BlockId { writer: s.session().0, number: 1 });
    assert_eq!(s.try_call(Call::PutBlock { block, bytes: bytes.clone() }), Ok(Answer::Done));
    assert_eq!((of("puts"), of("written_bytes")), (1, bytes.len() as u64));
    // A client in the same process comes the same way.
    s.objects().put("blocks/other", &[7; 1_000]).expect("stored");
    assert_eq!(s.objects().get("blocks/other", Some(10..30)).expect("there").len(), 20);
    assert!(s.objects().get("blocks/none", None).is_err());
    s.objects().delete("blocks/other").expect("gone");
    assert_eq!((of("puts"), of("written_bytes")), (2, bytes.len() as u64 + 1_000));
    assert_eq!((of("gets"), of("read_bytes"), of("deletes"), of("errors")), (2, 20, 1, 1));
}

/// The journal is one object for many events, and making files reads no object.
#[test]
fn a_thousand_creates_are_one_object_of_the_journal_and_no_object_read() {
    let rig = Rig::with_segments(Shape::Whole);
    let journal = chiton_journal::Options {
        flush_interval: Duration::from_secs(3600),
        ..chiton_journal::Options::default()
    };
    let server = rig.start(ServerOptions { journal, ..quiet() });
    let s = session(&server);
    let dir = s.mkdir(Ino::ROOT, "dir");
    s.commit();
    let of = |what: &str| figure(&server, what);
    let before = (of("/journal/segments_created"), of("/journal/written_bytes"), of("/object_store/events"));
    for n in 0..1_000 {
        s.create(dir, &format!("f{n}"));
    }
    s.commit();
    assert_eq!(of("/journal/segments_created") - before.0, 1);
    let events = of("/object_store/events") - before.2;
    let bytes = of("/journal/written_bytes") - before.1;
    assert!(events >= 1_000 && bytes > 20 * events, "{events} events, {bytes} bytes");
    assert_eq!((of("/journal/appends"), of("/object_store/gets")), (0, 0));
    assert_eq!(of("/object_store/gets_per_1000_events"), 0);
}
