//! A service in this process: calls are carried out on the calling thread, and end with the server.
//!
//! Invariants:
//! - Nothing is numbered, kept or sent again: a client that dies with its server needs no second try.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chiton_client::{
    CallError, CancelToken, ConnectError, Connection, Durability, PlateInodes, PlateLookup, RecallInbox,
    Recalls, Service, Session, Underway, ready,
};
use chiton_server::{EmbeddedSession, Server};
use chiton_types::{Attr, Cred, Epoch, Ino, Mode, PlateId, Position, Refusal, Seq, SessionId};
use chiton_wire::{Answer, Call, Recall, Request};

pub(crate) struct Embedded {
    session: EmbeddedSession,
    next_id: AtomicU64,
    inbox: Arc<RecallInbox>,
    /// With one plate among several: the last position of an answer. All commit together, and those need not that have nothing to make
    /// durable.
    answered: Option<AtomicU64>,
}

impl Embedded {
    /// Begins a session with a plate, whose recalls go to `inbox`.
    pub(crate) fn begin(
        server: &Arc<Server>,
        plate: PlateId,
        identity: &str,
        inbox: &Arc<RecallInbox>,
    ) -> Result<Embedded, ConnectError> {
        let (delivered, inodes) = (inbox.clone(), PlateInodes::of(server.plates(), plate));
        let on_recall = move |recall: Recall| _ = delivered.deliver(&recall, &inodes);
        let session =
            server.session_embedded_at(plate, identity, Box::new(on_recall)).map_err(ConnectError)?;
        let answered = (server.plates().count() > 1).then(AtomicU64::default);
        Ok(Embedded { session, next_id: AtomicU64::new(1), inbox: inbox.clone(), answered })
    }

    /// See [`chiton_client::ClientOptions::decouples`].
    pub(crate) fn decouple_first(&self) {
        self.session.decouple_first();
    }

    fn ask(&self, id: u64, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        let request = Request {
            id,
            seq: Seq(0),
            settled: Seq(0),
            epoch: Epoch(0),
            again: None,
            cred: cred.clone(),
            call,
        };
        let answer = self.session.call(request).result;
        if let (Some(answered), Ok(answer)) = (&self.answered, &answer) {
            answered.fetch_max(last_position(answer), Ordering::Relaxed);
        }
        answer.map_err(CallError::from)
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// The last position that an answer names.
fn last_position(answer: &Answer) -> u64 {
    match answer {
        Answer::Op { position, .. } => position.0,
        Answer::Batch(results) => results.iter().flatten().map(|(position, _)| position.0).max().unwrap_or(0),
        _ => 0,
    }
}

impl Service for Embedded {
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.ask(self.new_id(), cred, call)
    }

    fn create_lazily(&self, cred: &Cred, parent: Ino, names: &[&[u8]], mode: Mode) -> Vec<Attr> {
        self.session.create_lazily(cred, parent, names, mode)
    }

    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        ready(self.call(cred, call))
    }

    fn call_cancellable(&self, cred: &Cred, call: Call, token: &CancelToken) -> Result<Answer, CallError> {
        let id = self.new_id();
        let answer =
            if token.waits_as(id) { self.ask(id, cred, call) } else { Err(Refusal::Interrupted.into()) };
        token.over();
        answer
    }
}

impl Session for Embedded {
    fn session(&self, _ino: Ino) -> SessionId {
        self.session.session()
    }

    fn closed(&self, ino: Ino) {
        // Refused only when the server ends, and the session with it.
        drop(self.call(&Cred::ROOT, Call::Closed { inos: vec![ino] }));
    }

    fn valid_until(&self, _ino: Ino) -> Duration {
        Duration::MAX
    }

    fn recalls(&self) -> &Recalls {
        self.inbox.recalls()
    }

    fn is_shared(&self) -> bool {
        self.session.is_shared()
    }
}

impl Durability for Embedded {
    fn durable(&self) -> Position {
        self.session.durable()
    }

    fn commit(&self, upto: Position) -> Result<(), Refusal> {
        match self.call(&Cred::ROOT, Call::Commit { upto }) {
            Ok(_) => Ok(()),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(CallError::NeedGroups) => Err(Refusal::Access),
        }
    }

    fn needs_commit(&self) -> bool {
        self.answered.as_ref().is_none_or(|answered| answered.load(Ordering::Relaxed) > self.durable().0)
    }
}

impl PlateLookup for Embedded {}

impl Connection for Embedded {
    fn leave(&self, limit: Duration) {
        self.session.leave(limit);
    }

    fn is_embedded(&self) -> bool {
        true
    }
}
