//! A server on a socket, and clients that number their operations and choose which ones they send again.

use std::sync::Arc;
use std::time::Duration;

use crate::rig::{Asks, Rig, make, quiet};
use chiton_model::{Make, Op, Outcome};
use chiton_server::{Server, ServerOptions};
use chiton_transport::{Address, Connection, OpenError, RecallChannel};
use chiton_types::{Cred, Epoch, Ino, PlateId, Position, Seq, SessionId};
use chiton_wire::{Again, Answer, Call, Channel, Failure, Hello, PROTOCOL_VERSION, Reply, Request, Welcome};

const TIMEOUT: Duration = Duration::from_secs(5);

/// A server on a socket, which can crash and start again on the same stores.
pub(crate) struct SocketRig {
    pub(crate) server: Arc<Server>,
    address: Address,
    /// Servers that crashed. Dropping one would close the metadata store, which the next server uses.
    former: Vec<Arc<Server>>,
    options: ServerOptions,
    rig: Rig,
    dir: tempfile::TempDir,
}

impl SocketRig {
    pub(crate) fn start(options: ServerOptions) -> SocketRig {
        let dir = tempfile::tempdir().expect("a directory");
        let rig = Rig::new();
        let server = rig.start(options.clone());
        let address = serve(&server, &dir);
        SocketRig { server, address, former: Vec::new(), options, rig, dir }
    }

    /// The server dies. The next one, with the same options, finds what was synced.
    pub(crate) fn crash_and_restart(&mut self) {
        self.rig.crash(&self.server);
        let next = self.rig.start(self.options.clone());
        self.former.push(std::mem::replace(&mut self.server, next));
        self.address = serve(&self.server, &self.dir);
    }

    pub(crate) fn client(&self) -> Client {
        self.open(None, 0).expect("connects")
    }

    /// The client comes back on a new connection, and declares that it holds nothing.
    pub(crate) fn resume(&self, client: &Client, resend_count: u32) -> Client {
        let resumed = self.open(Some(client.session), resend_count).expect("resumes");
        let nothing = Call::Reopen { opens: vec![], locks: vec![], dirty: vec![], names: vec![] };
        resumed.try_call(nothing).expect("declared");
        resumed
    }

    /// A new connection, which resumes a session if its id and secret are given.
    pub(crate) fn open(
        &self,
        resume: Option<(SessionId, u64)>,
        resend_count: u32,
    ) -> Result<Client, OpenError> {
        self.greet(&hello(Channel::Main, resume, resend_count))
    }

    /// A client that calls itself so.
    pub(crate) fn client_named(&self, identity: &str) -> Client {
        let hello = Hello { identity: identity.into(), ..hello(Channel::Main, None, 0) };
        self.greet(&hello).expect("connects")
    }

    fn greet(&self, hello: &Hello) -> Result<Client, OpenError> {
        let (connection, welcome) = Connection::open(&self.address, None, hello, TIMEOUT)?;
        let Welcome::Accepted { session, secret, .. } = welcome else { panic!("a refusal is an error") };
        Ok(Client { connection, session: (session, secret) })
    }

    /// The connection on which the server recalls the client's leases.
    pub(crate) fn recalls(&self, client: &Client) -> RecallChannel {
        let hello = hello(Channel::Recall, Some(client.session), 0);
        RecallChannel::open(&self.address, None, &hello, TIMEOUT).expect("connects").0
    }
}

fn serve(server: &Server, dir: &tempfile::TempDir) -> Address {
    let address = Address::Unix(dir.path().join("socket"));
    server.serve(std::slice::from_ref(&address)).expect("listens").remove(0)
}

/// Options of a server that syncs only while a client waits, and that waits a minute for the sessions of before a restart.
pub(crate) fn patient() -> ServerOptions {
    let mut options = ServerOptions { grace_ms: 60_000, session_ms: 60_000, ..quiet() };
    options.journal.flush_interval = Duration::from_secs(3600);
    options
}

/// A client that numbers its operations.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) session: (SessionId, u64),
}

fn hello(channel: Channel, resume: Option<(SessionId, u64)>, resend_count: u32) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        channel,
        resume,
        identity: "test".into(),
        resend_count,
        decouples: false,
        plate: PlateId(0),
        client: 0,
        filesystem: 0,
    }
}

impl Client {
    pub(crate) fn request(&self, seq: u64, again: Option<Again>, call: Call) -> Request {
        let id = self.connection.next_id();
        Request { id, seq: Seq(seq), settled: Seq(0), epoch: Epoch(1), again, cred: Cred::ROOT, call }
    }

    /// Puts a request into the connection's buffer; returns its id. The caller flushes.
    pub(crate) fn send(&self, seq: u64, again: Option<Again>, op: Op) -> u64 {
        let request = self.request(seq, again, Call::Op { op, open: false });
        self.connection.send(&request);
        request.id
    }

    /// Waits for the answer to a request that was sent.
    pub(crate) fn wait(&self, id: u64) -> Result<(Position, Outcome), Failure> {
        outcome(self.connection.wait(id).expect("answered"))
    }

    pub(crate) fn numbered(
        &self,
        seq: u64,
        again: Option<Again>,
        op: Op,
    ) -> Result<(Position, Outcome), Failure> {
        let request = self.request(seq, again, Call::Op { op, open: false });
        outcome(self.connection.call(&request).expect("answered"))
    }

    /// Makes a directory in the root as operation 1.
    pub(crate) fn first_dir(&self, text: &str) -> Ino {
        made_ino(&self.numbered(1, None, make(Ino::ROOT, text, Make::Dir)).expect("made"))
    }
}

impl Asks for Client {
    fn try_call(&self, call: Call) -> Result<Answer, Failure> {
        self.connection.call(&self.request(0, None, call)).expect("answered").result
    }
}

fn outcome(reply: Reply) -> Result<(Position, Outcome), Failure> {
    match reply.result? {
        Answer::Op { position, outcome, .. } => Ok((position, outcome)),
        other => panic!("{other:?}"),
    }
}

/// The inode that an operation made.
pub(crate) fn made_ino((_, outcome): &(Position, Outcome)) -> Ino {
    outcome.attr.as_ref().expect("made").ino
}

/// Says of a resent operation that it was answered like this.
pub(crate) fn again((position, outcome): &(Position, Outcome)) -> Option<Again> {
    let attr = outcome.attr.as_ref();
    Some(Again {
        boot: 1,
        position: *position,
        ino: attr.map(|attr| attr.ino).unwrap_or_default(),
        time: outcome.time,
    })
}

pub(crate) fn never_answered() -> Option<Again> {
    Some(Again::default())
}
