//! The ends of a connection in the real runtimes: the server's, and the client's.

use std::sync::Arc;

use chiton_client::{Dialer, RecallWire, Wire};
use chiton_model::Event;
use chiton_transport::{ConnectionLost, Outlet, Pending};
use chiton_types::{Ino, Position, Take};
use chiton_wire::{
    Answer, Call, Failure, Hello, LeaseMode, RealmCall, Recall, RecallDone, Reply, Request, Welcome,
};

use super::host::Work;
use super::{Conn, Net, Question, net};
use crate::canary::Canary;
use crate::history::ClientId;
use crate::scheduler::scheduler;

/// The server's end of a connection.
pub(super) struct Exit(pub(super) Arc<Conn>);

impl Outlet for Exit {
    fn welcome(&self, welcome: Welcome) -> Result<(), ConnectionLost> {
        if self.0.ends.lock().server_down {
            return Err(ConnectionLost::new("the client is gone"));
        }
        self.0.greet(welcome);
        Ok(())
    }

    fn reply(&self, reply: &Reply) -> Result<(), ConnectionLost> {
        let conn = &self.0;
        let (question, session, belief) = {
            let mut ends = conn.ends.lock();
            if ends.server_down {
                return Err(ConnectionLost::new("the client is gone"));
            }
            let question = ends.questions.remove(&reply.id).unwrap_or_default();
            (question, ends.session.map(|session| conn.recorded(session)), ends.belief)
        };
        let net = net();
        let recorder = net.0.recorder.clone();
        let at = (conn.host.server, conn.plate);
        recorder.replied(at, conn.host.epoch(conn.plate), question.is_commit, reply);
        // An answer without a position changed nothing.
        let has_changed = match &reply.result {
            Ok(Answer::Op { position, .. }) => *position > Position(0),
            Ok(Answer::WriteBehind(results)) => {
                results.iter().flatten().any(|(position, _)| *position > Position(0))
            }
            Ok(Answer::Batch(results)) => {
                results.iter().flatten().any(|(position, _)| *position > Position(0))
            }
            _ => false,
        };
        if let (Some(session), true, false) = (session, has_changed, question.is_again)
            && net.is_current(&conn.host)
        {
            recorder.names_changed(session, &question.changes, question.begun);
        }
        if let Ok(Answer::Op { .. }) = &reply.result {
            recorder.decided(conn.client, conn.plate, &question.names);
        }
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        scheduler().mix(bytes.len() as u64);
        let (n, c) = (net.clone(), conn.clone());
        net.send(conn, false, move || {
            let reply = Reply::decode(&mut Take::new(&bytes)).expect("what was encoded decodes");
            let promise = c.ends.lock().pending.remove(&reply.id);
            let Some(promise) = promise else { return };
            // A replaced server that does not know it answers only for itself.
            if let Some(session) = session
                && reply.result != Err(Failure::SessionGone)
                && n.is_current(&c.host)
            {
                recorder.heard(session, question.begun + belief);
                if let Ok(Answer::Names { leased: true, attr, .. }) = &reply.result {
                    n.0.state.lock().names.insert(attr.ino);
                }
                let carries_on = matches!(reply.result, Ok(Answer::Resolved(_)));
                for (ino, mode) in leases_in(&reply, &question) {
                    recorder.lease_given((session, carries_on), ino, mode, question.begun);
                }
            }
            promise.fulfil(Ok(reply));
        });
        Ok(())
    }

    fn recall(&self, recall: &Recall) -> Result<(), ConnectionLost> {
        let conn = &self.0;
        if conn.ends.lock().server_down {
            return Err(ConnectionLost::new("the client is gone"));
        }
        let net = net();
        if net.0.canary == Some(Canary::LeaseNotRecalled) {
            // The holder never hears of it.
            let done = RecallDone { id: recall.id };
            let c = conn.clone();
            net.send(conn, true, move || c.host.push(c.number, Work::RecallDone(c.clone(), done)));
            return Ok(());
        }
        if net.0.canary == Some(Canary::PendingLate) && net.0.state.lock().names.contains(&recall.ino) {
            let (c, done) = (conn.clone(), RecallDone { id: recall.id });
            net.send(conn, true, move || c.host.push(c.number, Work::RecallDone(c.clone(), done)));
        }
        let (c, recall) = (conn.clone(), *recall);
        net.send(conn, false, move || {
            c.ends.lock().recalls.push_back(recall);
            c.recall_here.notify_all();
        });
        Ok(())
    }

    fn close(&self) {
        net().cut(&self.0, false);
    }
}

/// The inodes on which an answer grants leases.
fn leases_in(reply: &Reply, question: &Question) -> Vec<(Ino, LeaseMode)> {
    let of_names = |leased: bool| question.names_of.filter(|_| leased).map(|dir| (dir, LeaseMode::Shared));
    match &reply.result {
        Ok(Answer::Op { outcome, lease, .. }) => outcome.attr.iter().map(|attr| (attr.ino, *lease)).collect(),
        Ok(Answer::Attr { attr, lease, parent_leased, .. }) => {
            std::iter::once((attr.ino, *lease)).chain(of_names(*parent_leased)).collect()
        }
        Ok(Answer::Absent { parent_leased, .. } | Answer::Elsewhere { parent_leased, .. }) => {
            of_names(*parent_leased).into_iter().collect()
        }
        Ok(Answer::Resolved(path)) => path.inodes.iter().map(|(attr, lease)| (attr.ino, *lease)).collect(),
        Ok(Answer::Entries { entries, parent_leased, .. }) => {
            let attrs = entries.iter().filter_map(|entry| entry.attr.as_ref());
            attrs.map(|(attr, lease)| (attr.ino, *lease)).chain(of_names(*parent_leased)).collect()
        }
        Ok(Answer::WriteBehind(results)) => {
            let each = question.made_early.iter().zip(results);
            each.filter_map(|(ino, result)| Some((*ino, result.as_ref().ok()?.1))).collect()
        }
        Ok(Answer::Names { leased: true, attr, .. }) => vec![(attr.ino, LeaseMode::Exclusive)],
        Ok(Answer::Map { attr, lease, .. } | Answer::Lease { mode: lease, attr, .. }) => {
            vec![(attr.ino, *lease)]
        }
        _ => Vec::new(),
    }
}

pub(super) struct SimDialer {
    pub(super) net: Net,
    pub(super) client: ClientId,
    pub(super) life: u32,
}

impl Dialer for SimDialer {
    fn dial(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), String> {
        let (welcome, conn) = self.net.connect(self.client, self.life, hello)?;
        let wire = |conn| Arc::new(ClientEnd { net: self.net.clone(), conn }) as Arc<dyn Wire>;
        Ok((welcome, conn.map(wire)))
    }

    fn dial_recall(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn RecallWire>>), String> {
        let (welcome, conn) = self.net.connect(self.client, self.life, hello)?;
        let wire = |conn| Arc::new(ClientEnd { net: self.net.clone(), conn }) as Arc<dyn RecallWire>;
        Ok((welcome, conn.map(wire)))
    }
}

/// The client's end of a connection.
struct ClientEnd {
    net: Net,
    conn: Arc<Conn>,
}

impl Wire for ClientEnd {
    fn call(&self, request: &Request) -> Result<Reply, ConnectionLost> {
        self.start(request).wait()
    }

    fn start(&self, request: &Request) -> Pending {
        let (promise, pending) = Pending::promise();
        {
            let mut ends = self.conn.ends.lock();
            if ends.client_down || ends.client_dead {
                return Pending::ready(Err(ConnectionLost::new("the connection is closed")));
            }
            if let (Call::Bye, Some(session)) = (&request.call, ends.session) {
                self.net.0.recorder.session_over(self.conn.recorded(session));
            }
            if self.net.0.canary == Some(Canary::PendingLost)
                && let Some(reply) = said_to_be_done(request)
            {
                return Pending::ready(Ok(reply));
            }
            ends.questions.insert(request.id, Question::new(request));
            ends.pending.insert(request.id, promise);
        }
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        scheduler().mix(bytes.len() as u64);
        let conn = self.conn.clone();
        let forgets = self.net.0.canary == Some(Canary::DedupForgets);
        let hides = self.net.0.canary == Some(Canary::DeclarationLost);
        let deafens = self.net.0.canary == Some(Canary::GroupsForgotten);
        let loses = self.net.0.canary == Some(Canary::MergeLoses);
        self.net.send(&self.conn, true, move || {
            let mut request = Request::decode(&mut Take::new(&bytes)).expect("what was encoded decodes");
            if forgets && request.again.is_some() {
                request.seq = chiton_types::Seq(request.seq.0 + 1_000_000);
            }
            if let (true, Call::Reopen { dirty, names, .. }) = (hides, &mut request.call) {
                dirty.clear();
                names.clear();
            }
            if deafens {
                request.cred.groups = Some(Vec::new().into());
            }
            if loses {
                lose_first(&mut request);
            }
            conn.host.push(conn.number, Work::Request(conn.clone(), request));
        });
        pending
    }

    fn close(&self) {
        self.net.end(&self.conn);
    }
}

/// The answer to pending operations as if the server had carried them out.
fn said_to_be_done(request: &Request) -> Option<Reply> {
    let Call::WriteBehind { acknowledged, .. } = &request.call else { return None };
    let done = acknowledged.iter().map(|_| Ok((Position(0), LeaseMode::Exclusive))).collect();
    Some(Reply {
        id: request.id,
        epoch: request.epoch,
        durable: Position(0),
        result: Ok(Answer::WriteBehind(done)),
    })
}

/// In place of the first event of a piece of a merge comes one that does nothing.
fn lose_first(request: &mut Request) {
    let Call::Realm(call) = &mut request.call else { return };
    let RealmCall::Merge { events, .. } = &mut **call else { return };
    let mut from = Take::new(events);
    if Event::decode(&mut from).is_ok() {
        let rest = from.rest().to_vec();
        events.clear();
        Event::NOTHING.encode(events);
        events.extend(rest);
    }
}

impl RecallWire for ClientEnd {
    fn next(&self) -> Result<Recall, ConnectionLost> {
        let mut ends = self.conn.ends.lock();
        loop {
            if ends.client_down {
                return Err(ConnectionLost::new("the connection is closed"));
            }
            if let Some(recall) = ends.recalls.pop_front() {
                ends.asked.insert(recall.id, recall);
                return Ok(recall);
            }
            self.conn.recall_here.wait(&mut ends);
        }
    }

    fn done(&self, done: RecallDone) {
        let (recall, session) = {
            let mut ends = self.conn.ends.lock();
            if ends.client_down || ends.client_dead {
                return;
            }
            (ends.asked.remove(&done.id), ends.session)
        };
        if let (Some(recall), Some(session)) = (recall, session) {
            self.net.0.recorder.gave_back(self.conn.recorded(session), recall.ino, recall.keep);
        }
        let conn = self.conn.clone();
        self.net.send(&self.conn, true, move || {
            conn.host.push(conn.number, Work::RecallDone(conn.clone(), done));
        });
    }

    fn close(&self) {
        self.net.end(&self.conn);
    }
}
