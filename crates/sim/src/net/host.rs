//! A server's end of the network: threads that receive messages.

use std::collections::VecDeque;
use std::sync::Arc;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_transport::{Closed, ConnId, Service};
use chiton_types::PlateId;
use chiton_wire::{Hello, RecallDone, Request, Welcome};

use super::Conn;
use crate::history::ServerId;
use crate::scheduler::Party;

/// Number of receiving threads of a server.
pub(super) const LOOPS: u64 = 2;

/// A server as the network knows it.
pub struct Host {
    pub server: ServerId,
    pub party: Party,
    /// Epoch of each plate's journal.
    pub(super) epochs: Mutex<Vec<u64>>,
    pub(super) service: Arc<dyn Service>,
    pub(super) inboxes: Vec<Inbox>,
}

#[derive(Default)]
pub(super) struct Inbox {
    pub(super) work: Mutex<(VecDeque<Work>, bool)>,
    pub(super) more: Condvar,
}

pub(super) enum Work {
    Open(Arc<Conn>, Hello, Arc<Greeting>),
    Request(Arc<Conn>, Request),
    RecallDone(Arc<Conn>, RecallDone),
    Closed(Arc<Conn>),
}

#[derive(Default)]
pub(super) struct Greeting {
    pub(super) welcome: Mutex<Option<Result<Welcome, String>>>,
    pub(super) here: Condvar,
}

impl Host {
    pub(super) fn epoch(&self, plate: PlateId) -> u64 {
        self.epochs.lock()[usize::from(plate.0)]
    }

    /// A plate has a new epoch.
    pub fn set_epoch(&self, plate: PlateId, epoch: u64) {
        self.epochs.lock()[usize::from(plate.0)] = epoch;
    }

    pub(super) fn push(&self, conn: u64, work: Work) {
        let inbox = &self.inboxes[(conn % LOOPS) as usize];
        let mut queue = inbox.work.lock();
        if queue.1 {
            return;
        }
        queue.0.push_back(work);
        inbox.more.notify_one();
    }

    pub(super) fn run(&self, n: usize) {
        let inbox = &self.inboxes[n];
        loop {
            let work = {
                let mut queue = inbox.work.lock();
                loop {
                    if queue.1 {
                        return;
                    }
                    if let Some(work) = queue.0.pop_front() {
                        break self.gather(work, &mut queue.0);
                    }
                    inbox.more.wait(&mut queue);
                }
            };
            self.work(work);
        }
    }

    /// Requests of one connection that lie there are handed over together, as one read brings them.
    fn gather(&self, first: Work, queue: &mut VecDeque<Work>) -> (Work, Vec<Request>) {
        let mut more = Vec::new();
        if let Work::Request(conn, _) = &first {
            while let Some(Work::Request(other, _)) = queue.front() {
                if other.number != conn.number {
                    break;
                }
                if let Some(Work::Request(_, request)) = queue.pop_front() {
                    more.push(request);
                }
            }
        }
        (first, more)
    }

    fn work(&self, (work, more): (Work, Vec<Request>)) {
        match work {
            Work::Open(conn, hello, greeting) => {
                let sender = conn.sender();
                conn.ends.lock().greeting = Some(greeting);
                if let Some(welcome) = self.service.open(hello, &sender) {
                    conn.greet(welcome);
                }
            }
            Work::Request(conn, request) => {
                let session = conn.ends.lock().session;
                if let Some(session) = session {
                    let mut batch = vec![request];
                    batch.extend(more);
                    self.service.requests(session, &conn.sender(), &mut batch);
                }
            }
            Work::RecallDone(conn, done) => {
                let session = conn.ends.lock().session;
                if let Some(session) = session {
                    self.service.recall_done(session, &conn.sender(), done);
                }
            }
            Work::Closed(conn) => {
                let opened = conn.ends.lock().session.map(|session| (session, conn.channel));
                self.service.closed(ConnId(conn.number), opened, &Closed::End);
            }
        }
    }
}
