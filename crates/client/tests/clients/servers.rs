//! Several servers of one file system, each with some of its plates, and clients that know one address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{
    DataAddress, FilesystemInfo, FormatOptions, PeerIdentity, PeerServer, Role, Server, ServerOptions, Stores,
};
use chiton_transport::Address;
use chiton_types::PlateId;
use tempfile::TempDir;

const PLATES: u16 = 4;

/// Servers with numbers from 0 on; `None` is dead.
struct Cluster {
    dir: TempDir,
    info: FilesystemInfo,
    servers: Vec<Option<Arc<Server>>>,
    /// By plate: the server that has it.
    owners: Vec<usize>,
}

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

impl Cluster {
    /// So many servers, with the plates dealt out in turn.
    fn start(count: usize) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let user = rustix::process::geteuid().as_raw();
        let options = FormatOptions { uid: user, plates: PLATES, ..FormatOptions::default() };
        let info = Server::format(&dir.path().join("data"), &options, &world()).expect("formatted");
        let owners = (0..usize::from(PLATES)).map(|plate| plate % count).collect();
        let mut cluster = Cluster { dir, info, servers: vec![None; count], owners };
        for number in 0..count {
            cluster.start_server(number);
        }
        cluster.tell();
        cluster
    }

    fn stores(&self, plate: PlateId) -> Stores {
        Stores::open(&DataAddress::Dir(self.dir.path().join("data")), plate).expect("its stores are there")
    }

    fn start_server(&mut self, number: usize) {
        let own = self.plates_of(number).into_iter().map(|plate| (plate, self.stores(plate))).collect();
        let role = Role::Serving { info: self.info.clone(), plates: own, ownership: None };
        let log = Arc::new(move |line: &str| println!("server {number}: {line}"));
        let options = ServerOptions { log, ..ServerOptions::default() };
        let server = Server::start_as(role, options, world()).expect("started");
        server.serve(&[self.address(number)]).expect("listening");
        self.servers[number] = Some(server);
    }

    fn plates_of(&self, number: usize) -> Vec<PlateId> {
        let owned = (0..PLATES).filter(|plate| self.owners[usize::from(*plate)] == number);
        owned.map(PlateId).collect()
    }

    fn address(&self, number: usize) -> Address {
        format!("unix:{}", self.dir.path().join(format!("socket-{number}")).display())
            .parse()
            .expect("an address")
    }

    /// Notifies every server of the plates that each one serves.
    fn tell(&self) {
        let all: Vec<PeerServer> = (0..self.servers.len())
            .map(|number| PeerServer {
                number: number as u64,
                addresses: vec![self.address(number)],
                plates: self.plates_of(number),
            })
            .collect();
        for (number, server) in self.servers.iter().enumerate() {
            let own = PeerIdentity {
                number: number as u64,
                filesystem: self.info.filesystem,
                name: format!("server {number}"),
            };
            server.iter().for_each(|server| server.set_servers(&own, &all).expect("threads"));
        }
    }

    fn kill(&mut self, number: usize) {
        self.servers[number].take().expect("it lives").abandon();
    }

    /// The plates of a dead server go to another.
    fn take_over(&mut self, dead: usize, by: usize) {
        for plate in self.plates_of(dead) {
            self.owners[usize::from(plate.0)] = by;
            let server = self.servers[by].as_ref().expect("it lives");
            server.start_plate(plate, self.stores(plate)).expect("started");
        }
        self.tell();
    }

    /// A plate goes to another server, as if it alone had died.
    fn move_plate(&mut self, plate: PlateId, to: usize) {
        let from = std::mem::replace(&mut self.owners[usize::from(plate.0)], to);
        if from == to {
            return;
        }
        self.servers[from].as_ref().expect("it lives").crash_plate(plate);
        self.servers[to].as_ref().expect("it lives").start_plate(plate, self.stores(plate)).expect("started");
        self.tell();
    }

    fn client(&self, number: usize) -> Client {
        Client::connect(&self.address(number), ClientOptions::default()).expect("connected")
    }
}

/// Directories with files in them, some of them below each other.
fn grow(client: &Client, name: &str) {
    for n in 0..12 {
        let dir = format!("{name}-{n}/below");
        client.mkdir_all(&dir).expect("made");
        client.write_file(format!("{dir}/file"), format!("{name} {n}").as_bytes()).expect("written");
    }
}

fn check(client: &Client, name: &str) {
    for n in 0..12 {
        let path = format!("{name}-{n}/below/file");
        let content = client.read_file(&path).unwrap_or_else(|refusal| panic!("{path}: {refusal}"));
        assert_eq!(content, format!("{name} {n}").as_bytes());
    }
}

/// S117.
#[test]
fn clients_use_the_plates_of_all_servers_from_one_address() {
    let cluster = Cluster::start(3);
    let (one, two) = (cluster.client(0), cluster.client(2));
    grow(&one, "one");
    grow(&two, "two");
    check(&two, "one");
    check(&one, "two");
    let root = two.caller();
    for n in 0..12 {
        two.remove(format!("one-{n}/below/file")).expect("removed");
        let above = two.stat(format!("one-{n}")).expect("found");
        two.rmdir(&root, above.ino, b"below").expect("removed");
    }
    assert!(one.read_file("one-3/below/file").is_err());
    one.sync().expect("durable");
}

/// S25: durable data survive the death of either server, and open files stay usable.
#[test]
fn another_server_takes_over_the_plates_of_a_dead_one() {
    let mut cluster = Cluster::start(2);
    let client = cluster.client(0);
    grow(&client, "before");
    let root = client.caller();
    let fh = client.open_path("before-3/below/file", OpenFlags::READ_WRITE).expect("opened");
    client.sync().expect("durable");
    grow(&client, "acknowledged");
    cluster.kill(1);
    client.write(&root, fh, 0, b"BEFORE").expect("written into the buffer");
    cluster.take_over(1, 0);
    grow(&client, "after");
    client.fsync(fh, false).expect("durable");
    client.release(fh).expect("closed");
    let other = cluster.client(0);
    for name in ["acknowledged", "after"] {
        check(&client, name);
        check(&other, name);
    }
    assert_eq!(other.read_file("before-3/below/file").expect("read"), b"BEFORE 3");
    client.sync().expect("nothing is lost");
}

/// After a rebalance a plate has stopped at one server before it runs at another.
#[test]
fn a_new_client_waits_for_a_plate_that_moves() {
    let cluster = Cluster::start(2);
    let moving = PlateId(1);
    let server = cluster.servers[1].as_ref().expect("it lives");
    server.crash_plate(moving);
    let connect = |limit| {
        let options = ClientOptions { timeout: Some(limit), ..ClientOptions::default() };
        Client::connect(&cluster.address(0), options)
    };
    let refused = connect(Duration::from_millis(200)).err().expect("the plate does not run");
    assert!(refused.to_string().contains("the plate does not run"), "{refused}");
    std::thread::scope(|scope| {
        let connected = scope.spawn(|| connect(Duration::from_secs(30)));
        chiton_runtime::thread::sleep(Duration::from_millis(300));
        assert!(!connected.is_finished(), "it waits");
        server.start_plate(moving, cluster.stores(moving)).expect("started");
        let client = connected.join().expect("a worker").expect("the plate runs");
        grow(&client, "late");
        check(&client, "late");
    });
}

/// At the address of a server that is gone there may be one of another file system. A client of the first waits for its own.
#[test]
fn a_client_does_not_take_another_file_system_for_its_own() {
    let (mut ours, mut other) = (Cluster::start(1), Cluster::start(1));
    let address = ours.address(0);
    let options = ClientOptions { timeout: Some(Duration::from_secs(1)), ..ClientOptions::default() };
    let client = Client::connect(&address, options).expect("connected");
    client.write_file("file", b"ours").expect("written");
    client.sync().expect("durable");
    ours.kill(0);
    let server = other.servers[0].take().expect("it lives");
    server.serve(std::slice::from_ref(&address)).expect("listening");
    let refused = client.write_file("late", b"lost").and_then(|()| client.sync());
    assert!(refused.is_err(), "there is no server of this file system");
    server.abandon();
    ours.start_server(0);
    ours.tell();
    let back = ours.client(0);
    assert_eq!(back.read_file("file").expect("read"), b"ours");
}

/// A server that comes back finds what the others have decided for its plates meanwhile.
#[test]
fn a_server_that_was_away_catches_up() {
    let mut cluster = Cluster::start(2);
    let client = cluster.client(0);
    grow(&client, "before");
    client.sync().expect("durable");
    cluster.kill(1);
    cluster.start_server(1);
    cluster.tell();
    grow(&client, "after");
    check(&client, "before");
    check(&cluster.client(1), "after");
    client.sync().expect("nothing is lost");
}

/// Makes directories and files and removes some, until it is over. Returns how many it has made.
fn work(client: &Client, worker: usize, is_over: &AtomicBool) -> usize {
    let root = client.caller();
    for n in 0.. {
        if is_over.load(Ordering::SeqCst) {
            return n;
        }
        client.mkdir_all(format!("{worker}-{n}/below")).expect("made");
        client.write_file(format!("{worker}-{n}/below/file"), n.to_string().as_bytes()).expect("written");
        if n % 4 == 3 {
            let gone = format!("{worker}-{}", n - 2);
            let above = client.stat(&gone).expect("found");
            client.remove(format!("{gone}/below/file")).expect("removed");
            client.rmdir(&root, above.ino, b"below").expect("removed");
        }
    }
    unreachable!("it ends above")
}

/// S26: plates move from server to server, by deaths too, while clients work in directories of all plates. The clients live, so nothing
/// that they were answered is lost.
#[test]
fn plates_move_under_load_and_nothing_is_lost() {
    let mut cluster = Cluster::start(3);
    let clients: Vec<Client> = (0..3).map(|_| cluster.client(0)).collect();
    let is_over = AtomicBool::new(false);
    let made: Vec<usize> = std::thread::scope(|scope| {
        let is_over = &is_over;
        let workers: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(number, client)| scope.spawn(move || work(client, number, is_over)))
            .collect();
        for round in 0..12u16 {
            chiton_runtime::thread::sleep(Duration::from_millis(50));
            let to = usize::from(round * 5 % 3);
            if round % 3 == 0 {
                cluster.move_plate(PlateId(round * 7 % PLATES), to);
                continue;
            }
            // Server 0 stays: it is the address with which the clients began.
            let dead = 1 + usize::from(round % 2);
            cluster.kill(dead);
            cluster.take_over(dead, if to == dead { 0 } else { to });
            cluster.start_server(dead);
            cluster.tell();
        }
        is_over.store(true, Ordering::SeqCst);
        workers.into_iter().map(|worker| worker.join().expect("it went on")).collect()
    });
    for (worker, (client, made)) in clients.iter().zip(made).enumerate() {
        client.sync().expect("nothing is lost");
        for n in 0..made {
            let path = format!("{worker}-{n}/below/file");
            match cluster.client(0).read_file(&path) {
                Ok(content) => assert_eq!(content, n.to_string().as_bytes(), "{path}"),
                Err(refusal) => assert!(n % 4 == 1 && n + 2 < made, "{path}: {refusal}"),
            }
        }
    }
}
