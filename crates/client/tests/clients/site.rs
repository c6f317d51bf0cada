//! A server in a directory of its own, with a socket, that can be killed and started again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_runtime::sync::Mutex;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{DataAddress, FormatOptions, Server, ServerOptions, Stores};
use chiton_transport::Address;
use chiton_types::PlateId;
use tempfile::TempDir;

pub(crate) struct Site {
    dir: TempDir,
    server: Mutex<Option<Arc<Server>>>,
}

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

impl Site {
    /// Formats and starts one. Everybody may do everything at the root.
    pub(crate) fn new() -> Site {
        Site::with_plates(1)
    }

    /// The same, with so many plates.
    pub(crate) fn with_plates(plates: u16) -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let user = rustix::process::geteuid().as_raw();
        let options = FormatOptions { uid: user, plates, ..FormatOptions::default() };
        Server::format(&dir.path().join("data"), &options, &world()).expect("formatted");
        let site = Site { dir, server: Mutex::default() };
        site.start();
        site
    }

    /// Starts the server.
    pub(crate) fn start(&self) {
        self.start_on(&self.data());
    }

    /// Starts a server of the other site's file system at the address of this one. Both of their own are dead.
    pub(crate) fn start_instead(&self, other: &Site) {
        self.start_on(&other.data());
    }

    fn start_on(&self, data: &Path) {
        let options =
            ServerOptions { log: Arc::new(|line| println!("server: {line}")), ..ServerOptions::default() };
        let server = Server::start(data, options, world()).expect("started");
        server.serve(&[self.address()]).expect("listening");
        *self.server.lock() = Some(server);
    }

    /// Ends the server as a crash would.
    pub(crate) fn kill(&self) {
        self.server().abandon();
        self.server.lock().take();
    }

    /// Ends the server with a checkpoint.
    pub(crate) fn stop(&self) {
        self.server().shutdown().expect("stopped");
        self.server.lock().take();
    }

    /// Ends a plate as a crash would. The others continue.
    pub(crate) fn kill_plate(&self, plate: PlateId) {
        self.server().crash_plate(plate);
    }

    /// Starts a plate again in the running server.
    pub(crate) fn start_plate(&self, plate: PlateId) {
        let stores = Stores::open(&DataAddress::Dir(self.data()), plate).expect("its stores are there");
        self.server().start_plate(plate, stores).expect("started");
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn address(&self) -> Address {
        format!("unix:{}", self.dir.path().join("socket").display()).parse().expect("an address")
    }

    fn server(&self) -> Arc<Server> {
        self.server.lock().clone().expect("running")
    }

    /// A client at the other end of a socket.
    pub(crate) fn connected(&self) -> Client {
        self.connected_with(ClientOptions::default())
    }

    /// The same, of a certain kind.
    pub(crate) fn connected_with(&self, options: ClientOptions) -> Client {
        Client::connect(&self.address(), options).expect("connected")
    }
}

/// The names in a directory.
pub(crate) fn names(client: &Client, dir: &str) -> BTreeSet<String> {
    let listed = client.list(dir).expect("listed");
    let names: BTreeSet<String> = listed.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(names.len(), listed.len(), "each name once");
    names
}
