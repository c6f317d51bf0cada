//! A server in this process, on a socket.

use std::sync::Arc;

use chiton_conformance::Target;
use chiton_model::{Op, XattrHow};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_transport::{Address, CONNECT_TIMEOUT, Connection};
use chiton_types::{Cred, Epoch, Ino, PlateId, Seq};
use chiton_wire::{Answer, Call, Channel, Hello, PROTOCOL_VERSION, Query, Request};
use tempfile::TempDir;

pub(crate) struct Rig {
    _dir: TempDir,
    _server: Arc<Server>,
    pub(crate) address: Address,
}

impl Rig {
    /// Formats and starts one, with so many plates.
    pub(crate) fn new(plates: u16) -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let world: SharedWorld = Arc::new(RealWorld);
        let data = dir.path().join("data");
        let options = FormatOptions { plates, ..FormatOptions::default() };
        Server::format(&data, &options, &world).expect("formatted");
        let server = Server::start(&data, ServerOptions::default(), world).expect("started");
        let address = Address::Unix(dir.path().join("socket"));
        server.serve(std::slice::from_ref(&address)).expect("listening");
        Rig { _dir: dir, _server: server, address }
    }

    /// Asks plate 0 as the superuser.
    fn ask(&self, seq: u64, call: Call) -> Answer {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            channel: Channel::Main,
            resume: None,
            identity: "test".to_owned(),
            resend_count: 0,
            decouples: false,
            plate: PlateId(0),
            client: 0,
            filesystem: 0,
        };
        let (connection, _) =
            Connection::open(&self.address, None, &hello, CONNECT_TIMEOUT).expect("connected");
        let (id, settled, epoch) = (1, Seq(0), Epoch(0));
        let request = Request { id, seq: Seq(seq), settled, epoch, again: None, cred: Cred::ROOT, call };
        connection.call(&request).expect("a reply").result.expect("an answer")
    }

    /// Directories are split over the plates as soon as they have so many names.
    pub(crate) fn split_from(&self, names: usize) {
        let op = Op::SetXattr {
            ino: Ino::ROOT,
            how: XattrHow::Set,
            name: b"chiton.policy".to_vec(),
            value: format!("huge: threshold\nhuge_threshold: {names}").into_bytes(),
        };
        self.ask(1, Call::Op { op, open: false });
    }

    pub(crate) fn names_in_root(&self) -> Vec<String> {
        let query =
            Query::ReadDir { dir: Ino::ROOT, cookie: 0, entries_max: 10, plus: false, part_end: None };
        match self.ask(0, Call::Query(query)) {
            Answer::Entries { entries, .. } => entries.iter().map(|entry| entry.name.to_string()).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// The server, by this address.
    pub(crate) fn target(&self, address: Address) -> Target {
        Target { address, credentials: None, path: Vec::new() }
    }
}
