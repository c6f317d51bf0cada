//! Sessions of clients that connect.

use std::sync::Arc;

use chiton_runtime::SharedWorld;
use chiton_runtime::sync::RwLock;
use chiton_transport::{Closed, ConnId, Sender, Service};
use chiton_types::{PlateId, Position, SessionId};
use chiton_wire::{Channel, Hello, PeerFrame, RecallDone, RefuseReason, Request, Welcome};
use hashbrown::HashMap;

use crate::commits::OnDurable;
use crate::format::FilesystemInfo;
use crate::often::Often;
use crate::peers::Peers;
use crate::plate::Plate;
use crate::plate_table::PlateTable;
use crate::startup::EPOCH;
use crate::trust::subtree_limit;
use crate::waiting_greetings::Greeting;
use chiton_engine::Opened;

/// Answers the messages of clients of one plate.
pub(crate) struct PlateService(pub(crate) Arc<Plate>);

/// Answers the messages of clients of several plates, and of plates of other servers: each connection belongs to the plate that its greeting names, as it runs
/// then. If the plate is started anew, its clients connect anew.
#[derive(Clone)]
pub(crate) struct PlatesService {
    table: Arc<PlateTable>,
    peers: Arc<Peers>,
    info: FilesystemInfo,
    world: SharedWorld,
    by_connection: Arc<RwLock<HashMap<ConnId, Arc<PlateService>>>>,
}

impl PlatesService {
    pub(crate) fn new(
        table: Arc<PlateTable>,
        peers: Arc<Peers>,
        info: FilesystemInfo,
        world: SharedWorld,
    ) -> PlatesService {
        PlatesService { table, peers, info, world, by_connection: Arc::default() }
    }

    /// A client greets the plate as it runs now, or is sent to the server that has it.
    fn greet(&self, hello: Hello, sender: &Sender) -> Option<Welcome> {
        if let Some(other) = other_filesystem(&hello, &self.info) {
            return Some(other);
        }
        let Some(running) = self.table.get(hello.plate) else {
            let elsewhere = self.peers.addresses_of(hello.plate);
            return Some(match (usize::from(hello.plate.0) < self.table.count(), elsewhere) {
                (true, Some(addresses)) => Welcome::Elsewhere {
                    epoch: EPOCH,
                    addresses: addresses.iter().map(ToString::to_string).collect(),
                },
                (true, None) => refused(RefuseReason::NotReady, "the plate does not run; try again"),
                (false, _) => no_plate(hello.plate, self.table.count()),
            });
        };
        let service = Arc::new(PlateService(running.plate.clone()));
        self.by_connection.write().insert(sender.id(), service.clone());
        service.open(hello, sender)
    }

    /// Another server is to send messages of its plates.
    fn open_peer(&self, hello: &Hello, sender: &Sender) -> Welcome {
        let Some((server, filesystem)) = hello.resume else {
            return refused(RefuseReason::NoPlate, "a server says which one it is");
        };
        if filesystem != self.info.filesystem {
            let why = "this server has another file system; it is not the one that the map means";
            return refused(RefuseReason::NoPlate, why);
        }
        if !self.peers.hear(server.0, sender.id()) {
            return refused(RefuseReason::NotReady, "the server is not known here; try again in a moment");
        }
        Welcome::Accepted {
            session: server,
            secret: 0,
            epoch: EPOCH,
            filesystem: self.info.filesystem,
            boot: 0,
            session_ms: 0,
            durable: Position(0),
            objects: String::new(),
            shards: self.info.shards,
            plates: self.info.plates,
        }
    }

    fn of(&self, conn: ConnId) -> Option<Arc<PlateService>> {
        self.by_connection.read().get(&conn).cloned()
    }
}

impl Service for PlatesService {
    fn open(&self, hello: Hello, sender: &Sender) -> Option<Welcome> {
        if hello.channel == Channel::Peer {
            return Some(self.open_peer(&hello, sender));
        }
        // From its greeting on: the client lives, even if the plate is not ready for it.
        self.table.connected(sender.id(), &hello.identity);
        if hello.resume.is_none() {
            return self.greet(hello, sender);
        }
        let plate = hello.plate;
        let (sender_of, service) = (sender.clone(), self.clone());
        let greeting = Greeting { hello, sender: sender_of, service, since: self.world.monotonic() };
        let back = self.table.waiting_greetings().hold(greeting, || self.table.get(plate).is_some())?;
        self.greet(back.hello, sender)
    }

    fn requests(&self, session: SessionId, sender: &Sender, batch: &mut Vec<Request>) {
        if let Some(service) = self.of(sender.id()) {
            service.requests(session, sender, batch);
        }
    }

    fn recall_done(&self, session: SessionId, sender: &Sender, done: RecallDone) {
        if let Some(service) = self.of(sender.id()) {
            service.recall_done(session, sender, done);
        }
    }

    fn peer(&self, server: SessionId, sender: &Sender, frame: PeerFrame) {
        self.peers.deliver(server.0, sender.id(), frame);
    }

    fn closed(&self, conn: ConnId, opened: Option<(SessionId, Channel)>, why: &Closed) {
        self.table.disconnected(conn);
        self.table.waiting_greetings().forget(conn);
        let service = self.by_connection.write().remove(&conn);
        if let Some(service) = service {
            service.closed(conn, opened, why);
        }
    }
}

impl Greeting {
    /// Answers a greeting that has waited.
    pub(crate) fn answer(self) {
        let Greeting { hello, sender, service, .. } = self;
        let opened = hello.resume.map(|(session, _)| (session, hello.channel));
        if let Some(welcome) = service.greet(hello, &sender)
            && sender.welcome(welcome).is_err()
        {
            service.closed(sender.id(), opened, &Closed::End);
        }
    }

    /// Has its client try again.
    pub(crate) fn refuse(self) {
        // If the client is gone, nobody needs the answer.
        let _ = self.sender.welcome(refused(RefuseReason::NotReady, "the plate does not run yet; try again"));
    }
}

/// The answer to a client that means another file system than this server's. Its operations would be carried out in the wrong one.
fn other_filesystem(hello: &Hello, info: &FilesystemInfo) -> Option<Welcome> {
    let is_other =
        hello.channel != Channel::Peer && hello.filesystem != 0 && hello.filesystem != info.filesystem;
    is_other.then(|| {
        let message = format!(
            "the server there has another file system ({:016x}) than the one that this client uses ({:016x}); start the server of that one, \
             or unmount and mount again",
            info.filesystem, hello.filesystem
        );
        Welcome::Refused { reason: RefuseReason::OtherFileSystem, message }
    })
}

fn no_plate(plate: PlateId, count: usize) -> Welcome {
    let message = format!("this file system has no plate {plate}: its plates are 0 to {}", count - 1);
    Welcome::Refused { reason: RefuseReason::NoPlate, message }
}

impl Service for PlateService {
    fn open(&self, hello: Hello, sender: &Sender) -> Option<Welcome> {
        let plate = &*self.0;
        if let Some(other) = other_filesystem(&hello, &plate.info) {
            return Some(other);
        }
        if hello.plate != plate.plate {
            return Some(no_plate(hello.plate, usize::from(plate.peers.plates().count())));
        }
        if plate.is_stopping() {
            return Some(refused(RefuseReason::NotReady, "the server stops; try again"));
        }
        let opened = match (hello.channel, hello.resume) {
            (Channel::Main, None) => return plate.begin_session(&hello, sender).err(),
            (Channel::Main, Some((session, secret))) => {
                let (count, limit) = (hello.resend_count, subtree_limit(sender));
                plate.with_engine(|engine, m| {
                    let opened = engine.resume_session(session, secret, count, m);
                    let opened = opened
                        .and_then(|opened| engine.limit_session(session, limit.clone()).map(|()| opened));
                    if opened.is_ok() {
                        engine.note_greeting(session, hello.client, hello.decouples && limit.is_none());
                    }
                    opened
                })
            }
            (Channel::Recall, Some((session, secret))) => {
                let recalls = plate.with_engine(|engine, m| {
                    let recalls = engine.recalls_connected(session, secret, m)?;
                    // Recalls from now on are sent this way.
                    Some((recalls, plate.waiters.channels.replace(session, Channel::Recall, sender)))
                });
                let recalls = recalls.map(|(recalls, before)| {
                    before.iter().for_each(Sender::close);
                    recalls
                });
                for recall in recalls.iter().flatten() {
                    // Lost: the client connects again.
                    let _ = sender.recall(recall);
                }
                return Some(match recalls {
                    Some(_) => plate.accepted(Opened { session, secret }, sender),
                    None => unknown(RefuseReason::SessionGone),
                });
            }
            (Channel::Peer, _) => {
                return Some(refused(RefuseReason::NoPlate, "a file system with one plate has one server"));
            }
            (Channel::Recall, None) => {
                return Some(refused(RefuseReason::SessionGone, "a recall connection belongs to a session"));
            }
        };
        match opened {
            Ok(opened) => {
                plate.waiters.channels.add(opened.session, Channel::Main, sender);
                Some(plate.accepted(opened, sender))
            }
            Err(RefuseReason::NotReady) => {
                Some(refused(RefuseReason::NotReady, "the session ends; try again in a moment"))
            }
            Err(reason) => Some(unknown(reason)),
        }
    }

    fn requests(&self, session: SessionId, sender: &Sender, batch: &mut Vec<Request>) {
        self.0.serve_requests(session, sender, batch);
    }

    fn recall_done(&self, session: SessionId, _sender: &Sender, done: RecallDone) {
        self.0.with_engine(|engine, m| engine.recall_done(session, done.id, m));
    }

    fn peer(&self, _server: SessionId, _sender: &Sender, _frame: PeerFrame) {
        // No such channel is opened.
    }

    fn closed(&self, conn: ConnId, opened: Option<(SessionId, Channel)>, why: &Closed) {
        if let Some((session, _)) = opened {
            self.0.waiters.channels.remove(session, conn);
        }
        if matches!(why, Closed::Malformed(_) | Closed::Behind) {
            self.0.log_often(Often::Connections, &format!("connection {} ends: {why}", conn.0));
        }
    }
}

impl Plate {
    /// A new session. Its client is greeted when its beginning is durable, because what it does later must find it known
    /// after a crash; meanwhile this thread has others to serve.
    fn begin_session(&self, hello: &Hello, sender: &Sender) -> Result<(), Welcome> {
        let session = self.new_session_id().map_err(|e| refused(RefuseReason::NotReady, &e))?;
        let secret = self.world.random();
        let limit = subtree_limit(sender);
        let opened = self.with_engine(|engine, m| {
            let opened = engine.open_session(session, secret, &hello.identity, false, m)?;
            engine.note_greeting(session, hello.client, hello.decouples && limit.is_none());
            engine.limit_session(session, limit)?;
            Ok((opened, engine.position()))
        });
        let (opened, position) = opened.map_err(|reason| {
            refused(reason, "the server has too many sessions; end some or raise its limit")
        })?;
        self.waiters.channels.add(session, Channel::Main, sender);
        self.send_when_durable(position, sender, OnDurable::Welcome(Box::new(self.accepted(opened, sender))));
        Ok(())
    }

    fn accepted(&self, opened: Opened, sender: &Sender) -> Welcome {
        // A client that is limited to a subtree reads no blocks but those of its files: the server looks at each.
        let is_limited = subtree_limit(sender).is_some();
        Welcome::Accepted {
            session: opened.session,
            secret: opened.secret,
            epoch: EPOCH,
            filesystem: self.info.filesystem,
            boot: self.boot,
            session_ms: self.options.belief_ms(),
            durable: self.journal.durable(),
            objects: if is_limited { String::new() } else { self.blocks.address.clone() },
            shards: self.info.shards,
            plates: self.info.plates,
        }
    }
}

fn unknown(reason: RefuseReason) -> Welcome {
    refused(reason, "the session is unknown or over; begin a new one")
}

fn refused(reason: RefuseReason, message: &str) -> Welcome {
    Welcome::Refused { reason, message: message.to_owned() }
}
