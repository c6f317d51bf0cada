//! The waiters of a plate: threads and clients that wait for an answer, and the ways to the clients whose leases it recalls.

use std::sync::Arc;

use chiton_engine::{Command, Engine, Ticket};
use chiton_runtime::sync::Mutex;
use chiton_transport::Sender;
use chiton_wire::Reply;
use hashbrown::HashMap;

use crate::commits::Commits;
use crate::deliver::{Channels, ReplySlot};
use crate::plate::Plate;
use crate::requests::stopped;

/// The receiver of an answer that comes later.
pub(crate) enum Waiter {
    /// A thread of this process.
    Thread(Arc<ReplySlot>),
    /// A client elsewhere.
    Client(Sender),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Waiters {
    /// For the answers of requests that wait in the engine.
    tickets: Mutex<HashMap<Ticket, Waiter>>,
    /// Commits that wait for durability.
    pub(crate) commits: Arc<Commits>,
    /// Ways to the sessions' clients.
    pub(crate) channels: Channels,
}

impl Plate {
    /// Records who gets the answer of a waiting request. To be called with the engine's lock held.
    pub(crate) fn answer_later(&self, engine: &Engine, ticket: Ticket, waiter: Waiter) {
        self.waiters.tickets.lock().insert(ticket, waiter);
        if let Some(position) = engine.durable_wanted() {
            self.waiters.commits.engine_waits(position);
            self.journal.request_commit();
        }
    }

    pub(crate) fn deliver(&self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Reply(ticket, reply) => self.answer_waiter(ticket, reply),
                Command::Recall(session, recall) => self.waiters.channels.recall(session, recall),
                Command::Log(line) => self.log(&line),
                Command::Peer(..) => unreachable!("it was sent under the engine's lock"),
                Command::DropSession(session, ended) => {
                    self.waiters.channels.drop_session(session);
                    self.blocks.dead_writers.lock().push((session, ended));
                }
            }
        }
    }

    fn answer_waiter(&self, ticket: Ticket, reply: Reply) {
        match self.waiters.tickets.lock().remove(&ticket) {
            Some(Waiter::Thread(slot)) => slot.answer(reply),
            // A client that is gone asks again when it comes back.
            Some(Waiter::Client(sender)) if !self.is_fenced() => drop(sender.send(&reply)),
            Some(Waiter::Client(_)) => {}
            None => {}
        }
    }

    /// Tells threads that wait for answers that there will be none.
    pub(crate) fn dismiss_waiters(&self) {
        let m = self.moment();
        for (_, waiter) in self.waiters.tickets.lock().drain() {
            if let Waiter::Thread(slot) = waiter {
                slot.answer(stopped(0, &m));
            }
        }
    }
}
