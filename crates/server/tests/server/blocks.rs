//! File data: named blocks stay, unnamed ones go, fragmented files are made whole.

use chiton_model::{Body, Extent, Op};
use chiton_objects::{Objects, encode_block, read_block};
use chiton_server::{EmbeddedSession, ServerOptions};
use chiton_types::{BlockId, Ino, Position, Time};
use chiton_wire::{Answer, Call, Content, Query};

use crate::rig::{Asks, Rig, eventually, quiet, session, unlink};

fn put(s: &EmbeddedSession, number: u64, bytes: &[u8]) -> BlockId {
    let block = BlockId { writer: s.session().0, number };
    s.objects().put(&block.key(), &encode_block(&[bytes])).expect("stored");
    block
}

fn write(s: &EmbeddedSession, ino: Ino, offset: u64, bytes: &[u8], number: u64) {
    let block = put(s, number, bytes);
    let extent = Extent { offset, len: bytes.len() as u32, block, block_offset: 0, shared: false };
    let size = offset + bytes.len() as u64;
    s.op(Op::Write {
        ino,
        body: Body::Extents(vec![extent]),
        size,
        mtime: Time(1),
        kill_setid: false,
        hold: Default::default(),
    });
}

fn extents(s: &EmbeddedSession, ino: Ino) -> Vec<Extent> {
    match s.query(Query::Map { ino, offset: 0, len: u64::MAX >> 9 }) {
        Ok(Answer::Map { content: Content::Extents { extents, .. }, .. }) => extents,
        other => panic!("{other:?}"),
    }
}

fn read(rig: &Rig, extents: &[Extent]) -> Vec<u8> {
    let part = |e: &Extent| {
        let start = u64::from(e.block_offset);
        read_block(&*rig.objects, &e.block.key(), Some(start..start + u64::from(e.len))).expect("readable")
    };
    extents.iter().flat_map(part).collect()
}

fn block_count(rig: &Rig) -> usize {
    rig.objects.list("blocks/", None, 10_000).expect("listed").len()
}

#[test]
fn a_commit_makes_blocks_durable_that_nothing_names_yet() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let put = |number| {
        let block = BlockId { writer: s.session().0, number };
        let call = Call::PutBlock { block, bytes: encode_block(&[b"kept by the client until now"]) };
        assert_eq!(s.try_call(call), Ok(Answer::Done));
    };
    put(1);
    assert_eq!(s.try_call(Call::Commit { upto: Position(0) }), Ok(Answer::Done));
    put(2);
    rig.crash(&server);
    assert_eq!(block_count(&rig), 1);
}

#[test]
fn blocks_are_kept_while_named_and_swept_afterwards() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let (kept, dropped) = (s.create(Ino::ROOT, "kept"), s.create(Ino::ROOT, "dropped"));
    write(&s, kept, 0, b"precious", 1);
    write(&s, dropped, 0, b"worthless", 2);
    put(&s, 3, b"never named");
    s.op(unlink(Ino::ROOT, "dropped"));
    eventually("a checkpoint after the file is freed deletes its block", || {
        server.checkpoint().expect("a checkpoint");
        block_count(&rig) == 2
    });
    // The session may still name its third block: it is looked at when the session is over.
    drop(s);
    eventually("the block that was never named goes", || {
        server.checkpoint().expect("a checkpoint");
        block_count(&rig) == 1
    });
    // The same when the server dies first.
    let s = session(&server);
    let other = s.create(Ino::ROOT, "other");
    write(&s, other, 0, b"durable, as the event is", 1);
    s.commit();
    put(&s, 2, b"never named");
    drop(s);
    server.abandon();
    rig.place = std::sync::Arc::new(rig.place.crash(&mut |_, _| 0));
    let server = rig.start(quiet());
    eventually("blocks of sessions of the life before are swept", || {
        server.checkpoint().expect("a checkpoint");
        block_count(&rig) == 2
    });
    let s = session(&server);
    assert_eq!(read(&rig, &extents(&s, kept)), b"precious");
    assert_eq!(read(&rig, &extents(&s, other)), b"durable, as the event is");
}

/// Blocks that only the journal names at a crash are in no map of the store yet when the next life begins to sweep.
#[test]
fn blocks_that_only_the_replayed_journal_names_are_not_swept() {
    let rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let ino = s.create(Ino::ROOT, "f");
    write(&s, ino, 0, b"durable by the journal alone", 1);
    s.commit();
    server.abandon();
    drop(s);
    let server = rig.start(quiet());
    // Several rounds of the sweeper, which would find the block in no row. Nothing says that a round is over.
    std::thread::sleep(std::time::Duration::from_millis(700));
    let s = session(&server);
    assert_eq!(read(&rig, &extents(&s, ino)), b"durable by the journal alone");
    server.checkpoint().expect("a checkpoint");
    assert_eq!(read(&rig, &extents(&s, ino)), b"durable by the journal alone");
}

#[test]
fn no_event_is_durable_before_its_blocks() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let ino = s.create(Ino::ROOT, "f");
    write(&s, ino, 0, b"first", 1);
    s.commit();
    write(&s, ino, 5, b"second", 2);
    drop(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    let s = session(&server);
    let bytes = read(&rig, &extents(&s, ino));
    assert!(bytes == b"first" || bytes == b"firstsecond", "{bytes:?}");
}

#[test]
fn a_file_of_many_small_writes_is_compacted() {
    let rig = Rig::new();
    let server = rig.start(ServerOptions { checkpoint_rows: 100, ..quiet() });
    let s = session(&server);
    let ino = s.create(Ino::ROOT, "log");
    let mut content = Vec::new();
    for n in 1..=700u64 {
        let line = format!("line {n}\n").into_bytes();
        write(&s, ino, content.len() as u64, &line, n);
        content.extend(line);
    }
    let before = s.getattr(ino).expect("there").0;
    eventually("there are few extents", || extents(&s, ino).len() < 400);
    assert_eq!(read(&rig, &extents(&s, ino)), content);
    let after = s.getattr(ino).expect("there").0;
    assert_eq!((after.size, after.mtime, after.ctime), (before.size, before.mtime, before.ctime));
    eventually("the old blocks go", || {
        server.checkpoint().expect("a checkpoint");
        block_count(&rig) < 500
    });
    assert_eq!(read(&rig, &extents(&s, ino)), content);
}
