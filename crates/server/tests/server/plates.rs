//! Several plates of one file system in one process.

use std::sync::Arc;
use std::time::Duration;

use chiton_journal::{MemoryPlace, Shape};
use chiton_metastore::{MemoryMetastore, Metastore};
use chiton_model::{Op, XattrHow};
use chiton_objects::{MemoryObjects, Objects, encode_block};
use chiton_server::{
    EmbeddedSession, FilesystemInfo, FormatError, FormatOptions, Offline, PLATES_MAX, Role, Server,
    ServerOptions, StartError, Stores,
};
use chiton_transport::{Address, Connection, OpenError};
use chiton_types::{BlockId, Cred, Epoch, Ino, PlateId, Position, Refusal, Seq};
use chiton_wire::{Call, Channel, Failure, Hello, PROTOCOL_VERSION, Query, RefuseReason, Request, Welcome};

use crate::rig::{Asks, eventually, figure, file, quiet, refused, session, unlink, world};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Stores in memory of a file system with several plates.
struct Rig {
    objects: Arc<MemoryObjects>,
    /// Journal and rows of each plate.
    plates: Vec<(Arc<MemoryPlace>, Arc<MemoryMetastore>)>,
    info: FilesystemInfo,
}

impl Rig {
    fn new(plates: u16) -> Rig {
        let of = |_| (Arc::new(MemoryPlace::new(Shape::Grows)), Arc::new(MemoryMetastore::new()));
        let info =
            FilesystemInfo { version: 1, filesystem: 0, shards: 0, plates: 1, created: 0, monitor: None };
        let mut rig =
            Rig { objects: Arc::new(MemoryObjects::new()), plates: (0..plates).map(of).collect(), info };
        let options = FormatOptions { shards: 6, plates, ..FormatOptions::default() };
        rig.info = Server::format_with(&rig.stores(), &options, &world()).expect("formats");
        rig
    }

    fn stores(&self) -> Vec<Stores> {
        (0..self.plates.len()).map(|plate| self.stores_of(plate)).collect()
    }

    fn stores_of(&self, plate: usize) -> Stores {
        let (place, meta) = self.plates[plate].clone();
        Stores {
            objects: self.objects.clone(),
            open_meta: Box::new(move || {
                meta.crash();
                Ok(meta.clone() as Arc<dyn Metastore>)
            }),
            place,
            objects_address: String::new(),
        }
    }

    fn start(&self, options: ServerOptions) -> Arc<Server> {
        self.try_start(options).expect("starts")
    }

    fn try_start(&self, options: ServerOptions) -> Result<Arc<Server>, StartError> {
        Server::start_as(Role::serving_plates(&self.info, self.stores()), options, world())
    }

    /// The records of a plate's journal that were not synced are gone.
    fn lose_unsynced(&mut self, plate: usize) {
        let (place, _) = &mut self.plates[plate];
        *place = Arc::new(place.crash(&mut |_, _| 0));
    }
}

fn at(server: &Server, plate: u16) -> EmbeddedSession {
    server.session_embedded_at(PlateId(plate), "test", Box::new(|_| {})).expect("a session")
}

fn hello(plate: u16, resume: Option<(chiton_types::SessionId, u64)>) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        channel: Channel::Main,
        resume,
        identity: "test".into(),
        resend_count: 0,
        decouples: false,
        plate: PlateId(plate),
        client: 0,
        filesystem: 0,
    }
}

fn request(call: Call) -> Request {
    let (seq, settled, epoch) = (Seq(0), Seq(0), Epoch(1));
    Request { id: 1, seq, settled, epoch, again: None, cred: Cred::ROOT, call }
}

/// The ids that a plate gives out.
fn ids_of(plate: u16) -> std::ops::Range<u64> {
    u64::from(plate) << 48..(u64::from(plate) + 1) << 48
}

fn put(s: &EmbeddedSession, number: u64) -> BlockId {
    let block = BlockId { writer: s.session().0, number };
    s.objects().put(&block.key(), &encode_block(&[b"named by nothing"])).expect("stored");
    block
}

#[test]
fn a_number_of_plates_that_does_not_fit_is_refused() {
    let tmp = tempfile::tempdir().expect("a directory");
    for (shards, plates) in [(6, 0), (6, 7), (4096, PLATES_MAX + 1)] {
        let options = FormatOptions { shards, plates, ..FormatOptions::default() };
        let error = Server::format(tmp.path(), &options, &world()).expect_err("refused");
        assert!(matches!(error, FormatError::Plates { .. }), "{error}");
        assert_eq!(std::fs::read_dir(tmp.path()).expect("listed").count(), 0, "nothing was made");
    }
}

#[test]
fn each_plate_gives_its_own_ids_and_keeps_its_own_journal() {
    for plates in [2, 3] {
        let rig = Rig::new(plates);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let server = rig.start(quiet());
            assert_eq!(server.plates().count(), plates);
            for plate in 0..plates {
                let s = at(&server, plate);
                assert!(ids_of(plate).contains(&s.session().0), "{}", s.session());
                assert!(!seen.contains(&s.session()), "no id is given twice");
                seen.push(s.session());
            }
            assert!(server.session_embedded_at(PlateId(plates), "test", Box::new(|_| {})).is_err());
            server.shutdown().expect("ends in order");
        }
    }
}

#[test]
fn a_directory_holds_all_plates_and_starts_again_after_an_end_and_a_crash() {
    let tmp = tempfile::tempdir().expect("a directory");
    let dir = tmp.path().join("fs");
    let options = FormatOptions { shards: 6, plates: 3, ..FormatOptions::default() };
    let info = Server::format(&dir, &options, &world()).expect("formats");
    assert_eq!((info.plates, Server::info(&dir).expect("reads")), (3, info.clone()));
    for part in ["journal", "meta", "plates/1/journal", "plates/1/meta", "plates/2/journal", "plates/2/meta"]
    {
        assert!(dir.join(part).is_dir(), "{part}");
    }
    let start = || Server::start(&dir, quiet(), world()).expect("starts");
    let server = start();
    let made = session(&server).create(Ino::ROOT, "before");
    server.shutdown().expect("ends in order");
    let server = start();
    let s = session(&server);
    s.create(Ino::ROOT, "durable");
    s.commit();
    assert_eq!(s.lookup(Ino::ROOT, "before").0.map(|attr| attr.ino), Some(made));
    drop(s);
    server.abandon();
    let server = start();
    let s = session(&server);
    assert!(s.lookup(Ino::ROOT, "durable").0.is_some());
    drop(s);
    server.shutdown().expect("ends in order");
    // A tool reads each plate's journal, under its own identity.
    for plate in 0..3 {
        let offline = Offline::open(&dir.as_path().into(), PlateId(plate), world()).expect("opens");
        assert_eq!(offline.identity().journal, info.filesystem + u64::from(plate));
    }
    let none = Offline::open(&dir.as_path().into(), PlateId(3), world()).map(drop);
    assert!(matches!(none, Err(StartError::NoPlate { .. })), "{none:?}");
}

#[test]
fn exchanged_journals_and_stores_are_noticed() {
    let mut rig = Rig::new(3);
    rig.start(quiet()).shutdown().expect("ends in order");
    let (one, two) = (rig.plates[1].clone(), rig.plates[2].clone());
    rig.plates[1].0 = two.0.clone();
    let error = rig.try_start(quiet()).map(drop).expect_err("a foreign journal");
    assert!(matches!(error, StartError::Corrupt(_)), "{error}");
    rig.plates[1] = (one.0.clone(), two.1);
    let error = rig.try_start(quiet()).map(drop).expect_err("foreign rows").to_string();
    assert!(error.contains("session ids of plate 2"), "{error}");
    rig.plates[1] = one;
    rig.start(quiet()).shutdown().expect("nothing was changed");
}

#[test]
fn a_connection_belongs_to_the_plate_of_its_greeting() {
    let rig = Rig::new(2);
    let server = rig.start(quiet());
    let tmp = tempfile::tempdir().expect("a directory");
    let address = Address::Unix(tmp.path().join("socket"));
    server.serve(std::slice::from_ref(&address)).expect("serves");
    let mut sessions = Vec::new();
    for plate in [0, 1] {
        let (connection, welcome) =
            Connection::open(&address, None, &hello(plate, None), TIMEOUT).expect("connects");
        let Welcome::Accepted { session, secret, shards, plates, .. } = welcome else {
            panic!("{welcome:?}")
        };
        assert_eq!((shards, plates), (6, 2));
        assert!(ids_of(plate).contains(&session.0));
        let request = request(Call::Query(Query::StatFs));
        connection.call(&request).expect("answered").result.expect("granted");
        sessions.push((session, secret));
    }
    // A session is known to its own plate only.
    for (plate, resume) in [(0, sessions[1]), (1, sessions[0])] {
        let error = Connection::open(&address, None, &hello(plate, Some(resume)), TIMEOUT).map(drop);
        let Err(OpenError::Refused { reason, .. }) = error else { panic!("{error:?}") };
        assert_eq!(reason, RefuseReason::SessionGone);
    }
    let error = Connection::open(&address, None, &hello(2, None), TIMEOUT).map(drop);
    let Err(OpenError::Refused { reason, message }) = error else { panic!("{error:?}") };
    assert_eq!(reason, RefuseReason::NoPlate);
    assert_eq!(message, "this file system has no plate 2: its plates are 0 to 1");
    server.shutdown().expect("ends in order");
}

#[test]
fn a_plate_sweeps_blocks_of_its_own_writers_only() {
    let rig = Rig::new(3);
    let server = rig.start(quiet());
    let sessions = [0, 1, 2].map(|plate| at(&server, plate));
    let blocks = [0, 1, 2].map(|plate: usize| put(&sessions[plate], plate as u64 + 1));
    let is_there = |block: &BlockId| rig.objects.size(&block.key()).is_ok();
    // Plate 2 starts anew, finds the writers of earlier lives, and knows nothing of the sessions that others have.
    server.crash_plate(PlateId(2));
    server.start_plate(PlateId(2), rig.stores_of(2)).expect("starts");
    server.tidy().expect("tidied");
    assert_eq!([0, 1, 2].map(|plate: usize| is_there(&blocks[plate])), [true, true, false]);
    drop(sessions);
    server.tidy().expect("tidied");
    assert_eq!([0, 1, 2].map(|plate: usize| is_there(&blocks[plate])), [false; 3]);
    server.shutdown().expect("ends in order");
}

#[test]
fn a_plate_starts_again_alone_while_the_other_serves() {
    let mut rig = Rig::new(2);
    let server = rig.start(quiet());
    let (zero, one) = (at(&server, 0), at(&server, 1));
    let durable = zero.create(Ino::ROOT, "durable");
    zero.commit();
    zero.create(Ino::ROOT, "not durable");
    server.crash_plate(PlateId(0));
    assert_eq!(server.durable_at(PlateId(0)), None);
    assert!(server.session_embedded("test", Box::new(|_| {})).is_err());
    assert!(zero.query(Query::StatFs).is_err(), "its plate is gone");
    assert!(one.query(Query::StatFs).is_ok(), "its plate is not");
    rig.lose_unsynced(0);
    server.start_plate(PlateId(0), rig.stores_of(0)).expect("starts");
    let again = session(&server);
    assert_eq!(again.list(Ino::ROOT, false), [("durable".to_owned(), durable)]);
    // The other way round.
    server.crash_plate(PlateId(1));
    again.op(file(Ino::ROOT, "while plate 1 is away"));
    again.op(unlink(Ino::ROOT, "durable"));
    rig.lose_unsynced(1);
    server.start_plate(PlateId(1), rig.stores_of(1)).expect("starts");
    assert!(at(&server, 1).query(Query::StatFs).is_ok());
    assert!(server.durable_at(PlateId(1)) > Some(Position(0)));
    drop((zero, one, again));
    server.shutdown().expect("ends in order");
}

#[test]
fn the_status_has_a_line_for_each_plate_and_counts_of_all() {
    let rig = Rig::new(3);
    let server = rig.start(quiet());
    let sessions = [0, 1, 2].map(|plate| at(&server, plate));
    sessions[0].create(Ino::ROOT, "f");
    assert_eq!(figure(&server, "/inodes"), 2);
    assert_eq!(figure(&server, "/plates/0/inodes"), 2);
    assert_eq!(figure(&server, "/plates/2/sessions"), 1);
    assert_eq!(figure(&server, "/journals/2/plate"), 2);
    server.crash_plate(PlateId(1));
    let text = server.report("status").expect("a status");
    assert!(text.contains(r#"{"plate":1,"runs":false}"#), "{text}");
    assert_eq!(figure(&server, "/plates/2/plate"), 2);
    server.abandon();
}

#[test]
fn what_needs_one_plate_is_refused_with_several() {
    let rig = Rig::new(2);
    let server = rig.start(quiet());
    let tmp = tempfile::tempdir().expect("a directory");
    let address = Address::Unix(tmp.path().join("socket"));
    server.serve(std::slice::from_ref(&address)).expect("serves");
    let (connection, _) = Connection::open(&address, None, &hello(0, None), TIMEOUT).expect("connects");
    let s = session(&server);
    let name = b"chiton.policy".to_vec();
    let policy =
        Op::SetXattr { ino: Ino::ROOT, name, value: b"durability: none".to_vec(), how: XattrHow::Set };
    let calls = [Call::Op { op: policy, open: false }];
    for call in calls {
        let request = request(call.clone());
        let reply = connection.call(&request).expect("answered");
        assert_eq!(reply.result, Err(Failure::Refused(Refusal::Unsupported)), "{call:?}");
        assert_eq!(refused(s.try_call(call)), Refusal::Unsupported);
    }
    drop(s);
    server.shutdown().expect("ends in order");
}

/// Directories in the root, one of each plate.
fn directories(server: &Server, s: &EmbeddedSession, prefix: &str) -> Vec<Ino> {
    let mut found = vec![None; usize::from(server.plates().count())];
    for n in 0.. {
        if found.iter().all(Option::is_some) {
            break;
        }
        let dir = s.mkdir(Ino::ROOT, &format!("{prefix}{n}"));
        let plate = server.plates().of(dir).expect("a shard of this file system");
        found[usize::from(plate.0)].get_or_insert(dir);
    }
    found.into_iter().flatten().collect()
}

#[test]
fn sessions_of_two_plates_work_in_the_directories_of_their_plates() {
    for plates in [2, 3] {
        let rig = Rig::new(plates);
        let server = rig.start(quiet());
        let sessions: Vec<_> = (0..plates).map(|plate| at(&server, plate)).collect();
        let dirs = directories(&server, &sessions[0], "dir");
        for (plate, (s, dir)) in sessions.iter().zip(&dirs).enumerate() {
            let made = s.create(*dir, "f");
            assert_eq!(server.plates().of(made), Some(PlateId(plate as u16)), "born beside its directory");
            assert_eq!(s.list(*dir, false), [("f".to_owned(), made)]);
            s.commit();
        }
        drop(sessions);
        server.shutdown().expect("ends in order");
        let server = rig.start(quiet());
        for (plate, dir) in dirs.iter().enumerate() {
            let s = at(&server, plate as u16);
            assert_eq!(s.list(*dir, false).len(), 1);
            s.op(unlink(*dir, "f"));
        }
        let root = session(&server);
        for (name, _) in root.list(Ino::ROOT, false) {
            root.op(Op::Rmdir { parent: Ino::ROOT, name: crate::rig::name(&name) });
        }
        drop(root);
        // A decision of one plate is carried out by the other a little later.
        eventually("the root alone is left", || figure(&server, "/inodes") == 1);
        server.shutdown().expect("ends in order");
    }
}

#[test]
fn a_directory_is_born_although_its_plate_is_away() {
    let mut rig = Rig::new(2);
    let server = rig.start(quiet());
    let zero = session(&server);
    // So many that plates have lent each other numbers of all shards.
    for n in 0..40 {
        zero.mkdir(Ino::ROOT, &format!("before{n}"));
    }
    zero.commit();
    server.crash_plate(PlateId(1));
    // Numbers of plate 1 are at hand, and what it owes is sent when it is back.
    let dir = directories(&server, &zero, "meanwhile")[1];
    zero.commit();
    rig.lose_unsynced(1);
    server.start_plate(PlateId(1), rig.stores_of(1)).expect("starts");
    let one = at(&server, 1);
    let made = one.create(dir, "f");
    assert_eq!(one.list(dir, false), [("f".to_owned(), made)]);
    drop((zero, one));
    server.shutdown().expect("ends in order");
}
