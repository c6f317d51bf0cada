//! Certificates at the door: which connections a server accepts, and which of their calls.
//!
//! ```text
//!   connection ── TLS: signed by the authority ──▶ Guard: revoked? a server, where only servers speak? ──▶ the service
//!                                                   │ each call: may this certificate change, or administer?
//!                                                   ▼
//!                                                refusals, for the log and the history of the cluster
//! ```
//!
//! Invariants:
//! - A connection without a certificate passes as it is: it came over a Unix socket, which belongs to its owner, or the server has no
//!   credentials at all.
//! - A connection whose certificate is revoked is closed when the list arrives, and none of its later calls is carried out.
//! - Rights belong to the connection, not to its session: a session that is resumed under another certificate has the rights of that one.
//!   The subtree to which a certificate is limited belongs to the session: the engine knows it, and lets no other certificate resume it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chiton_auth::{Certified, Credentials, Grant, Serial};
use chiton_engine::SubtreeLimit;
use chiton_runtime::sync::{Mutex, RwLock};
use chiton_transport::{Closed, ConnId, Sender, Service};
use chiton_types::{Epoch, Position, Refusal, SessionId};
use chiton_wire::{
    Call, Channel, Failure, Hello, PeerFrame, RecallDone, RefuseReason, Reply, Request, Welcome,
};

use crate::call_kinds::changes;
use crate::tree_jobs::JOBS;

/// Refusals that wait for a reader; the rest is counted.
const NOTES_MAX: usize = 16;

/// The credentials of a server, and the certificates that are revoked.
pub struct Trust {
    credentials: Credentials,
    state: RwLock<State>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct State {
    revoked: BTreeSet<String>,
    connections: BTreeMap<ConnId, Known>,
}

struct Known {
    certified: Arc<Certified>,
    sender: Sender,
}

#[derive(Default)]
struct Notes {
    lines: Vec<String>,
    more: u64,
}

impl Trust {
    pub fn new(credentials: Credentials) -> Trust {
        Trust { credentials, state: RwLock::default(), notes: Mutex::default() }
    }

    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Takes over which certificates are revoked, by their serial numbers, and closes their connections.
    pub fn set_revoked<'a>(&self, serials: impl IntoIterator<Item = &'a str>) {
        let serials: BTreeSet<String> = serials.into_iter().map(str::to_owned).collect();
        let closed: Vec<(Arc<Certified>, Sender)> = {
            let mut state = self.state.write();
            if state.revoked == serials {
                return;
            }
            state.revoked = serials;
            let State { revoked, connections } = &*state;
            let is_revoked = |known: &&Known| revoked.contains(known.certified.serial.as_str());
            let found = connections.values().filter(is_revoked);
            found.map(|known| (known.certified.clone(), known.sender.clone())).collect()
        };
        let mut named = BTreeSet::<Serial>::new();
        for (certified, sender) in closed {
            sender.close();
            if named.insert(certified.serial.clone()) {
                self.note(format!("closed the connections of {}: revoked", in_words(&certified)));
            }
        }
    }

    /// The refusals since the last call, a line each.
    pub fn take_refusals(&self) -> Vec<String> {
        let Notes { mut lines, more } = std::mem::take(&mut *self.notes.lock());
        if more > 0 {
            lines.push(format!("refused {more} more"));
        }
        lines
    }

    pub(crate) fn note(&self, line: String) {
        let mut notes = self.notes.lock();
        match notes.lines.len() < NOTES_MAX {
            true => notes.lines.push(line),
            false => notes.more += 1,
        }
    }

    /// Lets a certificate in, or says why not.
    fn admit(&self, certified: Certified, channel: Channel, sender: &Sender) -> Result<(), String> {
        let mut state = self.state.write();
        if state.revoked.contains(certified.serial.as_str()) {
            return Err(format!(
                "the certificate of {} is revoked: ask the administrator for another (chiton auth create)",
                in_words(&certified)
            ));
        }
        if channel == Channel::Peer && !certified.grant.is_server() {
            return Err(format!(
                "the certificate of {} is not that of a server, and only servers send messages between plates",
                in_words(&certified)
            ));
        }
        let known = Known { certified: Arc::new(certified), sender: sender.clone() };
        state.connections.insert(sender.id(), known);
        Ok(())
    }

    /// The limits of a connection.
    fn limited(&self, conn: ConnId) -> Limits {
        let state = self.state.read();
        let Some(known) = state.connections.get(&conn) else { return Limits::None };
        if state.revoked.contains(known.certified.serial.as_str()) {
            return Limits::Revoked;
        }
        match known.certified.grant.may_write() && known.certified.grant.may_administer() {
            true => Limits::None,
            false => Limits::Some(known.certified.grant.clone()),
        }
    }

    fn forget(&self, conn: ConnId) {
        self.state.write().connections.remove(&conn);
    }
}

enum Limits {
    /// Every call is allowed.
    None,
    /// It depends on the call.
    Some(Grant),
    Revoked,
}

/// For messages: the name, and the number by which it is revoked.
fn in_words(certified: &Certified) -> String {
    format!("{} ({})", certified.name, certified.serial)
}

/// Why a right does not include a call; `None` if it does.
fn forbidden(grant: &Grant, call: &Call) -> Option<Refusal> {
    // How much space there is, every client of the whole file system may know. A job has the rights of the user who asks, over the whole
    // file system, and may change it.
    let is_open = |what: &str| what == "df" || what.starts_with(JOBS) && grant.may_write();
    let is_report = matches!(call, Call::Admin { what } if !is_open(what) || grant.subtree().is_some());
    if is_report && !grant.may_administer() {
        return Some(Refusal::NotPermitted);
    }
    (!grant.may_write() && (changes(call) || reserves(call))).then_some(Refusal::ReadOnly)
}

/// Whether a call takes something from others that only one who changes the file system needs.
fn reserves(call: &Call) -> bool {
    match call {
        Call::Lease { mode, .. } => *mode == chiton_wire::LeaseMode::Exclusive,
        Call::LeaseNames { .. } => true,
        Call::Reopen { dirty, names, .. } => !dirty.is_empty() || !names.is_empty(),
        Call::Op { .. }
        | Call::Batch { .. }
        | Call::WriteBehind { .. }
        | Call::Late { .. }
        | Call::Grown { .. }
        | Call::PutBlock { .. }
        | Call::Realm(_)
        | Call::Query(_)
        | Call::Commit { .. }
        | Call::Closed { .. }
        | Call::Ended { .. }
        | Call::SetLock { .. }
        | Call::CancelLock { .. }
        | Call::GetLock { .. }
        | Call::GetBlock { .. }
        | Call::Admin { .. }
        | Call::Ping
        | Call::Bye => false,
    }
}

/// The subtree to which the certificate of a connection is limited.
pub(crate) fn subtree_limit(sender: &Sender) -> Option<SubtreeLimit> {
    let certified = sender.certified()?;
    let path = certified.grant.subtree()?.path().to_owned();
    Some(SubtreeLimit { path, owner: in_words(&certified) })
}

/// A service behind [`Trust`].
pub(crate) struct Guard {
    pub(crate) trust: Arc<Trust>,
    pub(crate) service: Arc<dyn Service>,
}

impl Service for Guard {
    fn open(&self, hello: Hello, sender: &Sender) -> Option<Welcome> {
        if let Some(certified) = sender.certified()
            && let Err(message) = self.trust.admit(certified, hello.channel, sender)
        {
            let from = sender.remote().map(|address| format!(" (from {address})")).unwrap_or_default();
            self.trust.note(format!("refused a connection: {message}{from}"));
            return Some(Welcome::Refused { reason: RefuseReason::Untrusted, message });
        }
        self.service.open(hello, sender)
    }

    fn requests(&self, session: SessionId, sender: &Sender, batch: &mut Vec<Request>) {
        match self.trust.limited(sender.id()) {
            Limits::None => {}
            // Its connection is about to close.
            Limits::Revoked => return batch.clear(),
            Limits::Some(grant) => batch.retain(|request| {
                let Some(refusal) = forbidden(&grant, &request.call) else { return true };
                let result = Err(Failure::Refused(refusal));
                let reply = Reply { id: request.id, epoch: Epoch(0), durable: Position(0), result };
                // A client that is gone needs no answer.
                let _ = sender.send(&reply);
                false
            }),
        }
        if !batch.is_empty() {
            self.service.requests(session, sender, batch);
        }
    }

    fn recall_done(&self, session: SessionId, sender: &Sender, done: RecallDone) {
        self.service.recall_done(session, sender, done);
    }

    fn peer(&self, server: SessionId, sender: &Sender, frame: PeerFrame) {
        if !matches!(self.trust.limited(sender.id()), Limits::Revoked) {
            self.service.peer(server, sender, frame);
        }
    }

    fn closed(&self, conn: ConnId, opened: Option<(SessionId, Channel)>, why: &Closed) {
        self.trust.forget(conn);
        if let Closed::Untrusted(why) = why {
            self.trust.note(format!("refused a connection: {why}"));
        }
        self.service.closed(conn, opened, why);
    }
}

#[cfg(test)]
mod tests {
    use chiton_auth::{Access, Subtree};
    use chiton_types::{BlockId, Ino};
    use chiton_wire::LeaseMode;

    use super::*;

    #[test]
    fn rights_decide_over_each_call() {
        let block = BlockId { writer: 1, number: 1 };
        let lease = |mode| Call::Lease { ino: Ino(2), mode };
        let admin = |what: &str| Call::Admin { what: what.to_owned() };
        let reopen =
            |dirty: Vec<Ino>| Call::Reopen { opens: Vec::new(), locks: Vec::new(), dirty, names: Vec::new() };
        let (read, report) = (Some(Refusal::ReadOnly), Some(Refusal::NotPermitted));
        // The call, and its refusals to one who may only read, and to one who may change.
        let cases = [
            (Call::Batch { stop_on_failure: false, ops: Vec::new() }, read, None),
            (Call::PutBlock { block, bytes: Vec::new() }, read, None),
            (Call::Grown { ino: Ino(2), size: 1, last: 0 }, read, None),
            (lease(LeaseMode::Exclusive), read, None),
            (lease(LeaseMode::Shared), None, None),
            (Call::LeaseNames { dir: Ino(1), numbers: 0 }, read, None),
            (reopen(vec![Ino(2)]), read, None),
            (reopen(Vec::new()), None, None),
            (Call::GetBlock { block, offset: 0, len: 1 }, None, None),
            (Call::Ping, None, None),
            (admin("df"), None, None),
            (admin("status"), report, report),
            (admin("view open"), report, report),
            (admin("view hold"), report, report),
            (admin("jobs list"), report, None),
        ];
        for (call, reader, writer) in cases {
            let home = Subtree::new("/home").expect("a path");
            let of_all = [admin("df"), admin("jobs list")].contains(&call);
            for (access, refusal) in [(Access::Read, reader), (Access::ReadWrite, writer)] {
                assert_eq!(forbidden(&Grant::Client(access), &call), refusal, "{call:?}");
                let below = forbidden(&Grant::Below(access, home.clone()), &call);
                assert_eq!(below, if of_all { report } else { refusal }, "{call:?}");
            }
            assert_eq!(forbidden(&Grant::Admin, &call), None, "{call:?}");
            assert_eq!(forbidden(&Grant::Server, &call), None, "{call:?}");
        }
    }
}
