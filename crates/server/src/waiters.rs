//! The waiters of a plate: threads and clients that wait for an answer, and the ways to the clients whose leases it recalls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chiton_engine::{Command, Engine, Ticket};
use chiton_runtime::sync::Mutex;
use chiton_transport::Sender;
use chiton_wire::Reply;
use hashbrown::HashMap;

use crate::commits::Commits;
use crate::deliver::{Channels, ReplySlot};
use crate::latency::{Begun, Latency};
use crate::plate::Plate;
use crate::requests::stopped;

/// The receiver of an answer that comes later.
pub(crate) enum Waiter {
    /// A thread of this process.
    Thread(Arc<ReplySlot>),
    /// A client in another process.
    Client(Sender),
}

pub(crate) struct Waiters {
    /// For the answers of requests that wait in the engine.
    tickets: Mutex<HashMap<Ticket, (Waiter, Option<Begun>)>>,
    /// Commits that wait for durability.
    pub(crate) commits: Arc<Commits>,
    /// Ways to the sessions' clients.
    pub(crate) channels: Channels,
    /// Leases that were recalled since the start.
    pub(crate) recalls: AtomicU64,
}

impl Waiters {
    pub(crate) fn new(latency: Option<Arc<Latency>>) -> Waiters {
        Waiters {
            tickets: Mutex::default(),
            commits: Arc::new(Commits::new(latency)),
            channels: Channels::default(),
            recalls: AtomicU64::new(0),
        }
    }
}

impl Plate {
    /// Records who gets the answer of a waiting request, whose time runs if `begun` is there. To be called with the engine's lock held.
    pub(crate) fn answer_later(
        &self,
        engine: &Engine,
        ticket: Ticket,
        waiter: Waiter,
        mut begun: Option<Begun>,
    ) {
        if let Some(begun) = &mut begun {
            begun.waits(engine.waits_for(ticket));
        }
        self.waiters.tickets.lock().insert(ticket, (waiter, begun));
        if let Some(position) = engine.durable_wanted() {
            self.waiters.commits.engine_waits(position);
            self.journal.request_commit();
        }
    }

    pub(crate) fn deliver(&self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Reply(ticket, reply) => self.answer_waiter(ticket, reply),
                Command::Recall(session, recall) => {
                    self.waiters.recalls.fetch_add(1, Relaxed);
                    self.waiters.channels.recall(session, recall);
                }
                Command::Log(line) => self.log(&line),
                // The history of the cluster is the log of refusals.
                Command::Denied(line) => {
                    self.options.trust.iter().for_each(|trust| trust.note(line.clone()));
                }
                Command::Peer(..) => unreachable!("it was sent under the engine's lock"),
                Command::DropSession(session, ended) => {
                    self.waiters.channels.drop_session(session);
                    self.blocks.dead_writers.lock().push((session, ended));
                }
            }
        }
    }

    fn answer_waiter(&self, ticket: Ticket, reply: Reply) {
        let Some((waiter, begun)) = self.waiters.tickets.lock().remove(&ticket) else { return };
        match waiter {
            Waiter::Thread(slot) => slot.answer(reply),
            // A client that is gone asks again when it comes back.
            Waiter::Client(sender) if !self.is_fenced() => drop(sender.send(&reply)),
            Waiter::Client(_) => {}
        }
        self.end(begun);
    }

    /// The time of a request ends, if it runs.
    #[inline]
    pub(crate) fn end(&self, begun: Option<Begun>) {
        if let (Some(latency), Some(begun)) = (&self.latency, begun) {
            latency.end(&begun);
        }
    }

    /// Tells threads that wait for answers that there will be none.
    pub(crate) fn dismiss_waiters(&self) {
        let m = self.moment();
        for (_, (waiter, _)) in self.waiters.tickets.lock().drain() {
            if let Waiter::Thread(slot) = waiter {
                slot.answer(stopped(0, &m));
            }
        }
    }
}
