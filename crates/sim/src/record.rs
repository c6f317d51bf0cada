//! Who writes down what happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chiton_proto::{Answer, LeaseMode, Reply};
use chiton_types::{Ino, SessionId};
use chiton_world::sync::Mutex;

use crate::history::{CallId, ClientId, Happened, History, ServerId};
use crate::turns::turns;

/// Lines of the log that are kept: the last ones of a failure matter.
const LINES_MAX: usize = 100_000;

/// The history of a run while it is being made, and lines for those who read it.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    history: History,
    lines: Vec<(Duration, String)>,
    next_call: u64,
    sessions: BTreeMap<SessionId, (ClientId, u32)>,
    losses: BTreeMap<(ClientId, u32), u32>,
    acknowledged: BTreeMap<(ServerId, u64), u64>,
}

impl Recorder {
    /// Something happened now.
    pub fn push(&self, what: Happened) {
        let now = turns().now();
        let mut state = self.0.lock();
        if !matches!(what, Happened::Observed { .. }) {
            let line = format!("{what:?}");
            for byte in line.bytes() {
                turns().mix(byte.into());
            }
            state.line(now, line);
        }
        state.history.push(now, what);
    }

    /// A line for the reader.
    pub fn line(&self, line: String) {
        let now = turns().now();
        self.0.lock().line(now, line);
    }

    /// A number for the next call.
    pub fn next_call(&self) -> CallId {
        let mut state = self.0.lock();
        state.next_call += 1;
        CallId(state.next_call - 1)
    }

    /// A session belongs to a life of a client.
    pub fn session(&self, client: ClientId, life: u32, session: SessionId) {
        let lost = {
            let mut state = self.0.lock();
            let before = state.sessions.iter().any(|(known, of)| *of == (client, life) && *known != session);
            let new = state.sessions.insert(session, (client, life)).is_none();
            if new && before {
                *state.losses.entry((client, life)).or_default() += 1;
            }
            new && before
        };
        if lost {
            self.push(Happened::SessionLost { client });
        }
    }

    /// How many sessions this life of a client has lost.
    pub fn losses(&self, client: ClientId, life: u32) -> u32 {
        self.0.lock().losses.get(&(client, life)).copied().unwrap_or(0)
    }

    /// A server answers.
    pub fn replied(
        &self,
        server: ServerId,
        epoch: u64,
        session: Option<SessionId>,
        commit: bool,
        reply: &Reply,
    ) {
        let durable = reply.durable.0;
        let (fresh, client) = {
            let mut state = self.0.lock();
            let known = state.acknowledged.entry((server, epoch)).or_default();
            let fresh = commit && reply.result.is_ok() && durable > *known;
            *known = durable.max(*known);
            (fresh, session.and_then(|session| state.sessions.get(&session).map(|(client, _)| *client)))
        };
        if fresh {
            self.push(Happened::Acknowledged { server, epoch, durable });
        }
        if let (Some(client), Ok(Answer::Lease { mode, attr })) = (client, &reply.result) {
            self.push(Happened::LeaseGiven { client, ino: attr.ino, mode: *mode as u8 });
        }
    }

    /// A client gives a lease back.
    pub fn gave_back(&self, session: SessionId, ino: Ino, keep: LeaseMode) {
        let client = self.0.lock().sessions.get(&session).map(|(client, _)| *client);
        if let Some(client) = client {
            self.push(Happened::LeaseReturned { client, ino, keep: keep as u8 });
        }
    }

    /// What has happened so far.
    pub fn history(&self) -> History {
        self.0.lock().history.clone()
    }

    /// Everything, when the run is over: the history and its lines.
    pub fn take(&self) -> (History, Vec<(Duration, String)>) {
        let mut state = self.0.lock();
        (std::mem::take(&mut state.history), std::mem::take(&mut state.lines))
    }
}

impl State {
    fn line(&mut self, now: Duration, line: String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push((now, line));
        }
    }
}
