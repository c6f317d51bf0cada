//! Many that connect at once, or while the disk stands still, keep nobody from being served.

use std::ops::Range;
use std::sync::Arc;

use chiton_journal::{MemoryPlace, Place, PlaceError, SegmentInfo, Shape};
use chiton_objects::{MemoryObjects, ObjectError, ObjectInfo, Objects};
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_server::{Role, Server, ServerOptions, Stores};
use chiton_transport::{Address, Connection, ServeOptions};
use chiton_types::{BlockId, Cred, Epoch, Ino, PlateId, Seq, SessionId};
use chiton_wire::{Answer, Call, Channel, Hello, PROTOCOL_VERSION, Query, Welcome};
use std::time::Duration;

use crate::rig::{Asks, Rig, eventually, figure, quiet, world};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Something that can stand still: its users wait until it continues.
#[derive(Default)]
pub(crate) struct Motion {
    still: Mutex<bool>,
    continued: Condvar,
}

impl Motion {
    pub(crate) fn stand_still(&self, still: bool) {
        *self.still.lock() = still;
        self.continued.notify_all();
    }

    pub(crate) fn wait(&self) {
        let mut still = self.still.lock();
        while *still {
            self.continued.wait(&mut still);
        }
    }
}

/// A journal's place on a disk that can stand still: syncs wait.
struct Disk {
    place: Arc<MemoryPlace>,
    motion: Motion,
}

/// An object store that can stand still, for all but looking how large something is.
struct Store {
    objects: Arc<MemoryObjects>,
    motion: Motion,
}

impl Objects for Store {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        self.motion.wait();
        self.objects.get(key, range)
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        self.motion.wait();
        self.objects.read_into(key, offset, into)
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        self.objects.size(key)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        self.motion.wait();
        self.objects.put(key, bytes)
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        self.motion.wait();
        self.objects.put_if_absent(key, bytes)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.motion.wait();
        self.objects.delete(key)
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        self.motion.wait();
        self.objects.list(prefix, after, max)
    }

    fn sync(&self) -> Result<(), ObjectError> {
        self.motion.wait();
        self.objects.sync()
    }
}

impl Place for Disk {
    fn shape(&self) -> Shape {
        self.place.shape()
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        self.place.list()
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.place.read(number, bytes_max)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.place.create(number, bytes)
    }

    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.place.append(number, offset, bytes)
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        self.motion.wait();
        self.place.sync(number)
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.place.remove(number)
    }
}

/// A server with one thread for all its clients.
fn start(rig: &Rig, dir: &std::path::Path) -> (Arc<Server>, Arc<Disk>, Address) {
    let disk = Arc::new(Disk { place: rig.place.clone(), motion: Motion::default() });
    let (server, address) = start_with(rig, dir, Stores { place: disk.clone(), ..rig.stores() });
    (server, disk, address)
}

pub(crate) fn start_with(rig: &Rig, dir: &std::path::Path, stores: Stores) -> (Arc<Server>, Address) {
    let serve = ServeOptions { threads: 1, ..ServeOptions::default() };
    let server =
        Server::start_as(Role::serving(&rig.info, stores), ServerOptions { serve, ..quiet() }, world());
    let server = server.expect("starts");
    let address = Address::Unix(dir.join("socket"));
    let address = server.serve(std::slice::from_ref(&address)).expect("listens").remove(0);
    (server, address)
}

pub(crate) struct Client(Connection, SessionId);

impl Client {
    pub(crate) fn connect(address: &Address) -> Client {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            channel: Channel::Main,
            resume: None,
            identity: "test".into(),
            resend_count: 0,
            decouples: false,
            plate: PlateId(0),
            client: 0,
            filesystem: 0,
        };
        let (connection, welcome) = Connection::open(address, None, &hello, TIMEOUT).expect("connects");
        let Welcome::Accepted { session, durable, .. } = welcome else { panic!("a refusal is an error") };
        assert!(durable.0 > 0);
        Client(connection, session)
    }
}

impl Asks for Client {
    fn try_call(&self, call: Call) -> Result<Answer, chiton_wire::Failure> {
        let request = chiton_wire::Request {
            id: self.0.next_id(),
            seq: Seq(0),
            settled: Seq(0),
            epoch: Epoch(1),
            again: None,
            cred: Cred::ROOT,
            call,
        };
        self.0.call(&request).expect("answered").result
    }
}

/// "A connection is greeted when its session is durable", and its wait is nobody else's.
#[test]
fn who_connects_while_the_disk_stands_still_keeps_nobody_from_reading() {
    let tmp = tempfile::tempdir().expect("a directory");
    let rig = Rig::new();
    let (server, disk, address) = start(&rig, tmp.path());
    let reader = Client::connect(&address);
    let made = reader.create(Ino::ROOT, "f");
    reader.commit();
    disk.motion.stand_still(true);
    std::thread::scope(|scope| {
        let burst: Vec<_> = (0..50).map(|_| scope.spawn(|| Client::connect(&address))).collect();
        eventually("all have said hello", || figure(&server, "/sessions") == 51);
        for _ in 0..100 {
            assert_eq!(reader.lookup(Ino::ROOT, "f").0.map(|attr| attr.ino), Some(made));
            assert!(reader.query(Query::GetAttr { ino: made }).is_ok());
        }
        // The server answers changes before they are durable, too.
        reader.create(Ino::ROOT, "g");
        assert!(
            burst.iter().all(|one| !one.is_finished()),
            "nobody is greeted before its session is durable"
        );
        disk.motion.stand_still(false);
        let mut sessions: Vec<u64> = burst
            .into_iter()
            .map(|one| {
                let client = one.join().expect("greeted");
                client.try_call(Call::Ping).expect("known");
                client.1.0
            })
            .collect();
        sessions.sort_unstable();
        sessions.dedup();
        assert_eq!(sessions.len(), 50);
    });
    server.shutdown().expect("ends");
}

/// A slow object store holds up who needs it, and nobody else at the same serving thread.
#[test]
fn who_stores_and_reads_content_while_the_object_store_stands_still_keeps_nobody_waiting() {
    let tmp = tempfile::tempdir().expect("a directory");
    let rig = Rig::new();
    let store = Arc::new(Store { objects: rig.objects.clone(), motion: Motion::default() });
    let (server, address) = start_with(&rig, tmp.path(), Stores { objects: store.clone(), ..rig.stores() });
    let (reader, writer) = (Client::connect(&address), Client::connect(&address));
    let made = reader.create(Ino::ROOT, "f");
    let block = |number| BlockId { writer: writer.1.0, number };
    let put = |number| {
        let bytes = chiton_objects::encode_block(&[b"block"]);
        writer.try_call(Call::PutBlock { block: block(number), bytes }).expect("stored")
    };
    put(1);
    store.motion.stand_still(true);
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| writer.commit());
        let get = scope
            .spawn(|| writer.try_call(Call::GetBlock { block: block(1), offset: 0, len: 5 }).expect("read"));
        let puts: Vec<_> = (2..20).map(|number| scope.spawn(move || put(number))).collect();
        for _ in 0..100 {
            assert_eq!(reader.lookup(Ino::ROOT, "f").0.map(|attr| attr.ino), Some(made));
        }
        reader.create(Ino::ROOT, "g");
        assert!(!commit.is_finished() && !get.is_finished() && puts.iter().all(|put| !put.is_finished()));
        store.motion.stand_still(false);
        commit.join().expect("the block is durable");
        assert!(matches!(get.join().expect("read"), Answer::Bytes(bytes) if bytes == b"block"));
        puts.into_iter().for_each(|put| drop(put.join().expect("stored")));
    });
    // The server answers the waiting requests or closes their connections, and stops.
    server.shutdown().expect("ends");
}

/// Session ids are reserved in chunks, by another thread than the one that greets.
#[test]
fn ids_of_sessions_are_reserved_before_they_are_used_up() {
    let tmp = tempfile::tempdir().expect("a directory");
    let rig = Rig::new();
    let (server, _, address) = start(&rig, tmp.path());
    let first = Client::connect(&address).1.0;
    // Past the first chunk while the store takes nothing: the reservation is enough.
    let mut last = first;
    while last < first + 3_000 {
        last = Client::connect(&address).1.0;
    }
    let mark = || {
        let row = chiton_metastore::Metastore::get(&*rig.meta, chiton_engine::SESSION_MARK_KEY)
            .expect("read")
            .expect("there");
        u64::from_le_bytes(row[..].try_into().expect("a number"))
    };
    eventually("more are reserved when half are used", || mark() > first + 4_096 + 1_000);
    server.shutdown().expect("ends");
}
