//! Several servers in this process, which share the plates of a file system, and a load that keeps all plates busy with each other.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_model::XattrHow;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{
    DataAddress, FilesystemInfo, FormatOptions, PeerIdentity, PeerServer, Role, Server, ServerOptions, Stores,
};
use chiton_transport::Address;
use chiton_types::{Ino, PlateId};
use tempfile::TempDir;

pub(crate) const PLATES: u16 = 4;
pub(crate) const SHARDS: u16 = 8;
/// Threads that change the tree.
const BUSY: usize = 3;

pub(crate) fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

/// A directory with the data of a file system.
pub(crate) struct Site {
    dir: TempDir,
    pub(crate) info: FilesystemInfo,
}

impl Site {
    pub(crate) fn new() -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let options = FormatOptions { shards: SHARDS, plates: PLATES, ..FormatOptions::default() };
        let info = Server::format(&dir.path().join("data"), &options, &world()).expect("formats");
        Site { dir, info }
    }

    pub(crate) fn data(&self) -> DataAddress {
        DataAddress::Dir(self.dir.path().join("data"))
    }

    /// One server of all plates, for as long as `f` runs.
    pub(crate) fn alone<T>(&self, f: impl FnOnce(&Client) -> T) -> T {
        let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
        let server = Server::start(self.data(), options, world()).expect("starts");
        let client = chiton_embedded::client(&server, ClientOptions::default()).expect("a client");
        let result = f(&client);
        client.sync().expect("durable");
        drop(client);
        server.shutdown().expect("ends in order");
        result
    }
}

/// The servers of a site, with numbers from 0 on; `None` is dead.
pub(crate) struct Servers<'a> {
    site: &'a Site,
    running: Vec<Option<Arc<Server>>>,
    /// By plate: the server that has it.
    owners: Vec<usize>,
}

impl<'a> Servers<'a> {
    /// So many servers, with the plates dealt out in turn.
    pub(crate) fn start(site: &'a Site, count: usize) -> Servers<'a> {
        let owners = (0..usize::from(PLATES)).map(|plate| plate % count).collect();
        let mut servers = Servers { site, running: vec![None; count], owners };
        for number in 0..count {
            servers.start_one(number);
        }
        servers.introduce();
        servers
    }

    fn stores(&self, plate: PlateId) -> Stores {
        Stores::open(&self.site.data(), plate).expect("its stores are there")
    }

    fn start_one(&mut self, number: usize) {
        let own = self.plates_of(number).into_iter().map(|plate| (plate, self.stores(plate))).collect();
        let role = Role::Serving { info: self.site.info.clone(), plates: own, ownership: None };
        let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
        let server = Server::start_as(role, options, world()).expect("started");
        server.serve(&[self.address(number)]).expect("listening");
        self.running[number] = Some(server);
    }

    fn plates_of(&self, number: usize) -> Vec<PlateId> {
        let owned = (0..PLATES).filter(|plate| self.owners[usize::from(*plate)] == number);
        owned.map(PlateId).collect()
    }

    fn address(&self, number: usize) -> Address {
        let socket = self.site.dir.path().join(format!("socket-{number}"));
        format!("unix:{}", socket.display()).parse().expect("an address")
    }

    /// Lets every server know which plates each has.
    fn introduce(&self) {
        let all: Vec<PeerServer> = (0..self.running.len())
            .map(|number| PeerServer {
                number: number as u64,
                addresses: vec![self.address(number)],
                plates: self.plates_of(number),
            })
            .collect();
        for (number, server) in self.running.iter().enumerate() {
            let (filesystem, name) = (self.site.info.filesystem, format!("server {number}"));
            let own = PeerIdentity { number: number as u64, filesystem, name };
            server.iter().for_each(|server| server.set_servers(&own, &all).expect("threads"));
        }
    }

    pub(crate) fn kill(&mut self, number: usize) {
        self.running[number].take().expect("it lives").abandon();
    }

    /// The plates of a dead server go to another.
    pub(crate) fn take_over(&mut self, dead: usize, by: usize) {
        for plate in self.plates_of(dead) {
            self.owners[usize::from(plate.0)] = by;
            let server = self.running[by].as_ref().expect("it lives");
            server.start_plate(plate, self.stores(plate)).expect("started");
        }
        self.introduce();
    }

    /// A plate goes to another server, as if it alone had died.
    pub(crate) fn move_plate(&mut self, plate: PlateId, to: usize) {
        let from = std::mem::replace(&mut self.owners[usize::from(plate.0)], to);
        if from == to {
            return;
        }
        self.running[from].as_ref().expect("it lives").crash_plate(plate);
        let server = self.running[to].as_ref().expect("it lives");
        server.start_plate(plate, self.stores(plate)).expect("started");
        self.introduce();
    }

    /// A client that knows the address of one server, and stops waiting for one that is away for so long.
    pub(crate) fn client(&self, number: usize, timeout: Option<Duration>) -> Arc<Client> {
        let options = ClientOptions { timeout, ..ClientOptions::default() };
        Arc::new(Client::connect(&self.address(number), options).expect("connected"))
    }

    /// The same for another user.
    pub(crate) fn client_of(&self, number: usize, uid: u32) -> Arc<Client> {
        let options = ClientOptions { user: Some((uid, uid, Vec::new())), ..ClientOptions::default() };
        Arc::new(Client::connect(&self.address(number), options).expect("connected"))
    }

    pub(crate) fn shutdown(self) {
        for server in self.running.into_iter().flatten() {
            server.shutdown().expect("ends in order");
        }
    }
}

/// A directory that each thread of the load works in, with directories on all plates and one with parts.
pub(crate) fn prepare(client: &Client) {
    for thread in 0..BUSY {
        for n in 0..6 {
            client.mkdir_all(format!("load{thread}/{n}")).expect("made");
        }
        let top = client.mkdir_all(format!("load{thread}/huge")).expect("made").ino;
        let (name, policy) = (b"chiton.policy", b"huge: always");
        client.setxattr(&client.caller(), top, name, policy, XattrHow::Set).expect("a policy");
        client.mkdir_all(format!("load{thread}/huge/shared")).expect("made");
    }
}

/// Changes directories of all plates until the end: every operation must succeed. Counts them.
fn change(client: &Client, base: &str, is_over: &AtomicBool, done: &AtomicU64) {
    let caller = client.caller();
    let dir = |n: u64| format!("{base}/{}", n % 6);
    let ino = |path: &str| client.stat(path).unwrap_or_else(|e| panic!("{path}: {e}")).ino;
    for n in 0u64.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let (from, to) = (dir(n), dir(n * 5 + 1));
        let (from_ino, to_ino) = (ino(&from), ino(&to));
        let (file, link, moved) = (format!("{from}/file{n}"), format!("link{n}"), format!("{to}/moved{n}"));
        // Every other one has a block.
        let content = vec![n as u8; if n % 2 == 0 { 30_000 } else { 300 }];
        client.write_file(&file, &content).expect("written");
        client.link(&caller, ino(&file), to_ino, link.as_bytes()).expect("linked");
        client.rename_path(&file, &moved).expect("moved");
        client.unlink(&caller, to_ino, link.as_bytes()).expect("unlinked");
        clone(client, &moved, &format!("{from}/clone{n}"), content.len());
        if n % 3 != 0 {
            client.remove(&moved).expect("removed");
        }
        let (sub, other) = (format!("{from}/dir{n}"), format!("{to}/dir{n}"));
        client.mkdir_all(&sub).expect("made");
        client.write_file(format!("{sub}/within"), b"some").expect("written");
        client.remove(format!("{sub}/within")).expect("removed");
        if n % 3 == 0 {
            client.rmdir(&caller, from_ino, format!("dir{n}").as_bytes()).expect("removed");
        } else if sub != other {
            client.rename_path(&sub, &other).expect("moved");
        }
        in_parts(client, &format!("{base}/huge"), n);
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A file that shares the blocks of another.
pub(crate) fn clone(client: &Client, from: &str, to: &str, len: usize) {
    let caller = client.caller();
    client.write_file(to, b"").expect("made");
    let source = client.open_path(from, OpenFlags::READ).expect("opened");
    let target = client.open_path(to, OpenFlags::READ_WRITE).expect("opened");
    client.copy_range(&caller, source, 0, target, 0, len as u64).expect("copied");
    client.release(source).expect("closed");
    client.release(target).expect("closed");
}

/// Changes a directory with parts, and makes and removes others.
fn in_parts(client: &Client, huge: &str, n: u64) {
    let caller = client.caller();
    client.write_file(format!("{huge}/shared/{n}"), b"some").expect("written");
    client.mkdir_all(format!("{huge}/shared/dir{n}")).expect("made");
    client.mkdir_all(format!("{huge}/dir{n}")).expect("made");
    if n >= 3 {
        let top = client.stat(huge).expect("found").ino;
        let shared = client.stat(format!("{huge}/shared")).expect("found").ino;
        let before = format!("dir{}", n - 3);
        client.remove(format!("{huge}/shared/{}", n - 3)).expect("removed");
        client.rmdir(&caller, shared, before.as_bytes()).expect("removed");
        client.rmdir(&caller, top, before.as_bytes()).expect("removed");
    }
}

/// Runs `f` while threads change the tree through these clients, after [`prepare`]. `f` gets the count of their rounds.
pub(crate) fn while_busy<T>(clients: &[Arc<Client>], f: impl FnOnce(&AtomicU64) -> T) -> T {
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (is_over, done) = (&is_over, &done);
        for thread in 0..BUSY {
            let client = clients[thread % clients.len()].clone();
            scope.spawn(move || change(&client, &format!("load{thread}"), is_over, done));
        }
        let _end = End(is_over);
        f(done)
    })
}

/// Ends the threads, also when a check has failed.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The plate of an inode.
pub(crate) fn plate_of(ino: Ino) -> PlateId {
    chiton_types::Plates::new(SHARDS, PLATES).expect("fits").of(ino).expect("a plate")
}

/// A plate of a file system that nobody serves, to be damaged.
pub(crate) fn plate_at_rest(data: &Path, plate: PlateId) -> chiton_server::Offline {
    chiton_server::Offline::open(&data.into(), plate, world()).expect("opens")
}
