//! Notices to sessions that have a file open while another session writes it, or replaces it by a rename.

use std::sync::{Arc, OnceLock};

use crate::rig::{Asks, Rig, file, name, quiet, refused, session, unlink};
use chiton_model::{AttrChange, Body, Op, RenameHow};
use chiton_runtime::sync::Mutex;
use chiton_server::EmbeddedSession;
use chiton_types::{Ino, Mode, Refusal, Time, access};
use chiton_wire::{Answer, Call, Failure, Grown, LeaseMode, Query, Recall};

fn open(s: &EmbeddedSession, ino: Ino) {
    let opened = s.query(Query::Open { ino, want: access::READ, content: false });
    assert!(matches!(opened, Ok(Answer::Attr { .. })), "{opened:?}");
}

fn lease(s: &EmbeddedSession, ino: Ino) -> bool {
    match s.try_call(Call::Lease { ino, mode: LeaseMode::Exclusive }) {
        Ok(Answer::Lease { mode: LeaseMode::Exclusive, is_watched, .. }) => is_watched,
        other => panic!("{other:?}"),
    }
}

/// S3.
#[test]
fn a_question_about_an_open_file_makes_its_writer_push() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let writer: Arc<OnceLock<EmbeddedSession>> = Arc::default();
    let handler = writer.clone();
    let sizes = Arc::new(Mutex::new(4u64));
    let next = sizes.clone();
    let write_back = move |recall: Recall| {
        if recall.ino == Ino::ROOT {
            return;
        }
        let size = *next.lock();
        let body = Body::Inline(vec![b'x'; size as usize]);
        let op = Op::Write {
            ino: recall.ino,
            body,
            size,
            mtime: Time(5),
            kill_setid: false,
            hold: Default::default(),
        };
        handler.get().expect("set").op(op);
    };
    let s = server.session_embedded("writer", Box::new(write_back)).expect("a session");
    let ino = s.create(Ino::ROOT, "f");
    assert!(writer.set(s).is_ok());
    let writer = writer.get().expect("set");
    open(writer, ino);
    let (reader, passer_by) = (session(&server), session(&server));
    open(&reader, ino);
    for size in [7, 9, 20] {
        lease(writer, ino);
        *sizes.lock() = size;
        assert!(passer_by.getattr(ino).expect("there").0.size < size, "one that has it not open asks nobody");
        let seen = match size {
            7 => reader.getattr(ino).expect("there").0.size,
            9 => reader.lookup(Ino::ROOT, "f").0.expect("there").size,
            _ => match reader.query(Query::ReadDir {
                dir: Ino::ROOT,
                cookie: 0,
                entries_max: 9,
                plus: true,
                part_end: None,
            }) {
                Ok(Answer::Entries { entries, .. }) => entries[0].attr.as_ref().expect("plus").0.size,
                other => panic!("{other:?}"),
            },
        };
        assert_eq!(seen, size);
    }
}

/// S90.
#[test]
fn a_growth_is_answered_when_those_who_have_the_file_open_know() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let heard: Arc<Mutex<Vec<Grown>>> = Arc::default();
    let log = heard.clone();
    let on_recall = move |recall: Recall| log.lock().extend(recall.grown);
    let reader = server.session_embedded("reader", Box::new(on_recall)).expect("a session");
    let (writer, other) = (session(&server), session(&server));
    let ino = writer.create(Ino::ROOT, "f");
    open(&writer, ino);
    assert!(!lease(&writer, ino), "only the writer has it open");
    open(&reader, ino);
    assert!(lease(&writer, ino), "the reader has it open");
    let grown = |s: &EmbeddedSession, size, last| s.try_call(Call::Grown { ino, size, last });
    assert_eq!(grown(&writer, 9, 7), Ok(Answer::Done));
    assert_eq!(*heard.lock(), [Grown { size: 9, last: 7 }]);
    assert_eq!(refused(grown(&writer, 0, 7)), Refusal::Invalid);
    assert_eq!(refused(grown(&writer, u64::MAX, 7)), Refusal::Invalid);
    // A session that has not opened the file reports nothing: the server sees for itself.
    let resize = |size| {
        let change = AttrChange { size: Some(size), ..AttrChange::default() };
        other.op(Op::SetAttr { ino, change });
    };
    resize(5000);
    resize(70);
    assert_eq!(*heard.lock(), [Grown { size: 9, last: 7 }, Grown { size: 5000, last: 0 }]);
    assert_eq!(reader.try_call(Call::Closed { inos: vec![ino] }), Ok(Answer::Done));
    assert!(!lease(&writer, ino), "the reader has closed it");
    assert_eq!(grown(&writer, 10, 7), Ok(Answer::Done));
    assert_eq!(heard.lock().len(), 2);
}

/// S91.
#[test]
fn a_rename_names_the_other_inode_that_it_changed() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let (one, two) = (s.create(Ino::ROOT, "one"), s.create(Ino::ROOT, "two"));
    s.op(Op::Link { ino: two, parent: Ino::ROOT, name: name("three") });
    let rename = |from: &str, to: &str, how| {
        let (from_name, to_name) = (name(from), name(to));
        let (_, outcome) = s.op(Op::Rename { from: Ino::ROOT, from_name, to: Ino::ROOT, to_name, how });
        (outcome.gone.map(|gone| gone.ino), outcome.other)
    };
    assert_eq!(rename("one", "four", RenameHow::Replace), (None, None));
    assert_eq!(rename("four", "two", RenameHow::Exchange), (None, Some(two)));
    assert_eq!(rename("two", "four", RenameHow::Replace), (None, Some(two)));
    assert_eq!(rename("four", "three", RenameHow::Replace), (Some(two), None));
    assert_eq!(s.lookup(Ino::ROOT, "three").0.map(|attr| attr.ino), Some(one));
}

/// S92.
#[test]
fn what_a_rename_replaced_is_still_answered_by_number() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let (s, reader) = (session(&server), session(&server));
    for dir in [false, true] {
        let make = |text: &str| if dir { s.mkdir(Ino::ROOT, text) } else { s.create(Ino::ROOT, text) };
        let old = make("v");
        make("tmp");
        let (from_name, to_name) = (name("tmp"), name("v"));
        s.op(Op::Rename { from: Ino::ROOT, from_name, to: Ino::ROOT, to_name, how: RenameHow::Replace });
        assert_eq!(reader.getattr(old).expect("it lingers").0.nlink, 0);
        open(&reader, old);
        let change = AttrChange { mode: Some(Mode(0o600)), ..AttrChange::default() };
        reader.op(Op::SetAttr { ino: old, change });
        let place = Op::Link { ino: old, parent: Ino::ROOT, name: name("again") };
        assert!(reader.try_call(Call::Op { op: place, open: false }).is_err(), "it gets no name again");
        s.op(if dir { Op::Rmdir { parent: Ino::ROOT, name: name("v") } } else { unlink(Ino::ROOT, "v") });
    }
    let gone = s.create(Ino::ROOT, "gone");
    s.op(unlink(Ino::ROOT, "gone"));
    assert_eq!(
        s.getattr(gone).err(),
        Some(Failure::Refused(Refusal::Stale)),
        "what was removed does not linger"
    );
    s.op(file(Ino::ROOT, "gone"));
}
