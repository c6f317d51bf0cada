//! A service of a server in the test's process: for clients of one, and for doubles that pass calls on to it.

use std::sync::Arc;
use std::time::Duration;

use chiton_server::{EmbeddedSession, Server};
use chiton_types::{Cred, Ino, Position, Refusal, SessionId};
use chiton_wire::{Answer, Call};

use crate::data::DirectBlocks;
use crate::{
    CallError, Client, ClientOptions, Connection, Durability, PlateInodes, PlateLookup, RecallInbox, Recalls,
    Service, Session, Underway, ready,
};

pub(crate) struct Near {
    session: EmbeddedSession,
    pub(crate) inbox: Arc<RecallInbox>,
}

impl Near {
    pub(crate) fn begin(server: &Arc<Server>, identity: &str) -> Near {
        let inbox = Arc::new(RecallInbox::default());
        let delivered = inbox.clone();
        let session = server.session_embedded(
            identity,
            Box::new(move |recall| _ = delivered.deliver(&recall, &PlateInodes::all())),
        );
        Near { session: session.expect("a session"), inbox }
    }

    pub(crate) fn client(server: &Arc<Server>, options: ClientOptions) -> Client {
        let near = Arc::new(Near::begin(server, "near"));
        let blocks = Arc::new(DirectBlocks::new(server.objects()));
        Client::over(near.clone(), &near.inbox, Some(blocks), 1, options)
    }
}

impl Service for Near {
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.session.ask(cred, call).map_err(CallError::from)
    }
    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        ready(self.call(cred, call))
    }
}

impl Session for Near {
    fn session(&self, _ino: Ino) -> SessionId {
        self.session.session()
    }
    fn closed(&self, ino: Ino) {
        self.session.ask(&Cred::ROOT, Call::Closed { inos: vec![ino] }).expect("the server goes on");
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

impl Durability for Near {
    fn durable(&self) -> Position {
        self.session.durable()
    }
    fn commit(&self, upto: Position) -> Result<(), Refusal> {
        let committed = self.session.ask(&Cred::ROOT, Call::Commit { upto });
        committed.map(drop).map_err(|failure| panic!("not committed: {failure:?}"))
    }
}

impl PlateLookup for Near {}

impl Connection for Near {
    fn is_embedded(&self) -> bool {
        true
    }
}
