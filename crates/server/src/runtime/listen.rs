//! Sessions of clients that connect.

use std::sync::Arc;

use chiton_proto::{
    Channel, Closed, ConnId, Hello, RecallDone, RefuseReason, Request, Sender, Service, Welcome,
};
use chiton_types::SessionId;

use crate::engine::Opened;
use crate::runtime::shared::Shared;
use crate::runtime::startup::EPOCH;

/// Where clients come in.
pub(crate) struct Door(pub(crate) Arc<Shared>);

impl Service for Door {
    fn open(&self, hello: Hello, sender: &Sender) -> Welcome {
        let shared = &*self.0;
        if shared.is_stopping() {
            return refused(RefuseReason::NotReady, "the server stops; try again");
        }
        let opened = match (hello.channel, hello.resume) {
            (Channel::Main, None) => match shared.begin_session(&hello.identity) {
                Ok(opened) => opened,
                Err(welcome) => return *welcome,
            },
            (Channel::Main, Some((session, secret))) => {
                let count = hello.resend_count;
                match shared.with_engine(|engine, m| engine.resume_session(session, secret, count, m)) {
                    Ok(opened) => opened,
                    Err(reason) => {
                        return refused(reason, "the session is unknown or over; begin a new one");
                    }
                }
            }
            (Channel::Recall, Some((session, secret))) => {
                let recalls = shared.with_engine(|engine, m| engine.recalls_connected(session, secret, m));
                let Some(recalls) = recalls else {
                    return refused(
                        RefuseReason::SessionGone,
                        "the session is unknown or over; begin a new one",
                    );
                };
                for recall in recalls {
                    // Lost: the client connects again.
                    let _ = sender.recall(&recall);
                }
                Opened { session, secret }
            }
            (Channel::Recall, None) => {
                return refused(RefuseReason::SessionGone, "a recall connection belongs to a session");
            }
        };
        if hello.channel == Channel::Main {
            shared.with_engine(|engine, _| engine.note_decouples(opened.session, hello.decouples));
        }
        shared.channels.add(opened.session, hello.channel, sender);
        Welcome::Accepted {
            session: opened.session,
            secret: opened.secret,
            epoch: EPOCH,
            filesystem: shared.info.filesystem,
            boot: shared.boot,
            session_ms: shared.options.belief_ms(),
            durable: shared.journal.durable(),
            objects: shared.objects_address.clone(),
        }
    }

    fn requests(&self, session: SessionId, sender: &Sender, batch: &mut Vec<Request>) {
        self.0.serve_requests(session, sender, batch);
    }

    fn recall_done(&self, session: SessionId, _sender: &Sender, done: RecallDone) {
        self.0.with_engine(|engine, m| engine.recall_done(session, done.id, m));
    }

    fn closed(&self, conn: ConnId, opened: Option<(SessionId, Channel)>, why: &Closed) {
        if let Some((session, _)) = opened {
            self.0.channels.remove(session, conn);
        }
        if let Closed::Malformed(what) = why {
            self.0.log(&format!("connection {} ends: {what}", conn.0));
        }
    }
}

impl Shared {
    /// A new session, durable: what it does later must find it known after a crash.
    fn begin_session(&self, identity: &str) -> Result<Opened, Box<Welcome>> {
        let refuse = |reason, message: &str| Box::new(refused(reason, message));
        let session = self.new_session_id().map_err(|e| refuse(RefuseReason::NotReady, &e))?;
        let secret = self.world.random();
        let opened = self.with_engine(|engine, m| {
            let opened = engine.open_session(session, secret, identity, false, m);
            opened.map(|opened| (opened, engine.position()))
        });
        let (opened, position) = opened.map_err(|reason| {
            refuse(reason, "the server has too many sessions; end some or raise its limit")
        })?;
        match self.journal.wait_durable(position) {
            Ok(()) => Ok(opened),
            Err(error) => {
                self.with_engine(|engine, m| engine.end_session(session, m));
                Err(refuse(RefuseReason::NotReady, &error.to_string()))
            }
        }
    }
}

fn refused(reason: RefuseReason, message: &str) -> Welcome {
    Welcome::Refused { reason, message: message.to_owned() }
}
