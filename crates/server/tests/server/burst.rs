//! Many that connect at once, or while the disk stands still, keep nobody from being served.

use std::sync::Arc;

use chiton_journal::{MemoryPlace, Place, PlaceError, SegmentInfo, Shape};
use chiton_proto::{
    Address, Answer, Call, Channel, Connection, Hello, PROTOCOL_VERSION, Query, ServeOptions, Welcome,
};
use chiton_server::{Server, ServerOptions, Stores};
use chiton_types::{Cred, Epoch, Ino, Seq, SessionId};
use chiton_world::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::rig::{Asks, Rig, eventually, figure, quiet, world};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A place on a disk that can stand still: whoever syncs waits until it goes on.
struct Disk {
    place: Arc<MemoryPlace>,
    still: Mutex<bool>,
    goes_on: Condvar,
}

impl Disk {
    fn stand_still(&self, still: bool) {
        *self.still.lock() = still;
        self.goes_on.notify_all();
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
        let mut still = self.still.lock();
        while *still {
            self.goes_on.wait(&mut still);
        }
        drop(still);
        self.place.sync(number)
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.place.remove(number)
    }
}

/// A server with one thread for all its clients.
fn start(rig: &Rig, dir: &std::path::Path) -> (Arc<Server>, Arc<Disk>, Address) {
    let disk = Arc::new(Disk { place: rig.place.clone(), still: Mutex::new(false), goes_on: Condvar::new() });
    let stores = Stores { place: disk.clone(), ..rig.stores() };
    let serve = ServeOptions { threads: 1, ..ServeOptions::default() };
    let server = Server::start_with(&rig.info, stores, ServerOptions { serve, ..quiet() }, world());
    let server = server.expect("starts");
    let address = Address::Unix(dir.join("socket"));
    let address = server.serve(std::slice::from_ref(&address)).expect("listens").remove(0);
    (server, disk, address)
}

struct Client(Connection, SessionId);

impl Client {
    fn connect(address: &Address) -> Client {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            channel: Channel::Main,
            resume: None,
            identity: "test".into(),
            resend_count: 0,
            decouples: false,
        };
        let (connection, welcome) = Connection::open(address, &hello, TIMEOUT).expect("connects");
        let Welcome::Accepted { session, durable, .. } = welcome else { panic!("a refusal is an error") };
        assert!(durable.0 > 0);
        Client(connection, session)
    }
}

impl Asks for Client {
    fn try_call(&self, call: Call) -> Result<Answer, chiton_proto::Failure> {
        let request = chiton_proto::Request {
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
    disk.stand_still(true);
    std::thread::scope(|scope| {
        let burst: Vec<_> = (0..50).map(|_| scope.spawn(|| Client::connect(&address))).collect();
        eventually("all have said hello", || figure(&server, "/sessions") == 51);
        for _ in 0..100 {
            assert_eq!(reader.lookup(Ino::ROOT, "f").0.map(|attr| attr.ino), Some(made));
            assert!(reader.query(Query::GetAttr { ino: made }).is_ok());
        }
        // What changes something is answered before it is durable, too.
        reader.create(Ino::ROOT, "g");
        assert!(
            burst.iter().all(|one| !one.is_finished()),
            "nobody is greeted before its session is durable"
        );
        disk.stand_still(false);
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

/// Session ids are reserved in chunks, by another thread than the one that greets.
#[test]
fn ids_of_sessions_are_reserved_before_they_are_used_up() {
    let tmp = tempfile::tempdir().expect("a directory");
    let rig = Rig::new();
    let (server, _, address) = start(&rig, tmp.path());
    let first = Client::connect(&address).1.0;
    // Past the first chunk while the store takes nothing: what was reserved ahead is enough.
    let mut last = first;
    while last < first + 3_000 {
        last = Client::connect(&address).1.0;
    }
    let mark = || {
        let row = chiton_metastore::Metastore::get(&*rig.meta, b"\0sessions").expect("read").expect("there");
        u64::from_le_bytes(row[..].try_into().expect("a number"))
    };
    eventually("more are reserved when half are used", || mark() > first + 4_096 + 1_000);
    server.shutdown().expect("ends");
}
