//! A service in this process: calls are carried out on the calling thread, and end with the server.
//!
//! Invariants:
//! - Nothing is numbered, kept or sent again: what dies with the server needs no second try.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chiton_client::{
    CallError, CancelToken, ConnectError, Connection, PlateInodes, RecallInbox, Recalls, Service, Session,
    Underway, ready,
};
use chiton_server::{EmbeddedSession, Server};
use chiton_types::{Attr, Cred, Epoch, Ino, Mode, Position, Refusal, Seq, SessionId};
use chiton_wire::{Answer, Call, Recall, Request};

/// See the module.
pub(crate) struct Embedded {
    session: EmbeddedSession,
    next_id: AtomicU64,
    inbox: Arc<RecallInbox>,
}

impl Embedded {
    /// Begins a session.
    pub(crate) fn begin(server: &Arc<Server>, identity: &str) -> Result<Embedded, ConnectError> {
        let inbox = Arc::new(RecallInbox::default());
        let delivered = inbox.clone();
        let on_recall = move |recall: Recall| _ = delivered.deliver(&recall, &PlateInodes::all());
        let session = server.session_embedded(identity, Box::new(on_recall)).map_err(ConnectError)?;
        Ok(Embedded { session, next_id: AtomicU64::new(1), inbox })
    }

    /// See [`chiton_client::ClientOptions::decouples`].
    pub(crate) fn decouple_first(&self) {
        self.session.decouple_first();
    }

    /// Where the session's recalls go.
    pub(crate) fn inbox(&self) -> &RecallInbox {
        &self.inbox
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
        self.session.call(request).result.map_err(CallError::from)
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
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

impl Connection for Embedded {
    fn leave(&self, limit: Duration) {
        self.session.leave(limit);
    }

    fn is_embedded(&self) -> bool {
        true
    }
}
