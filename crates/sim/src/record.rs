//! Records the events of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::sync::Mutex;
use chiton_types::{Ino, Name, PlateId, Plates, SessionId};
use chiton_wire::{LeaseMode, Recall, Reply};

use crate::history::{CallId, ClientId, Happened, History, ServerId};
use crate::scheduler::scheduler;

/// Lines of the log that are kept: the last ones of a failure matter.
const LINES_MAX: usize = 100_000;

/// The history of a running run, and lines for readers.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    history: History,
    lines: Vec<(Duration, String)>,
    next_call: u64,
    /// The life of a client to which each session belongs, and the plate.
    sessions: BTreeMap<SessionId, (ClientId, u32, PlateId)>,
    losses: BTreeMap<(ClientId, u32), u32>,
    acknowledged: BTreeMap<(ServerId, PlateId, u64), u64>,
    /// The time until which a session's cache is trusted.
    believes: BTreeMap<SessionId, Duration>,
    /// Sessions that are over, for their clients.
    over: BTreeSet<SessionId>,
    /// Time at which a lease was returned last.
    recalled: BTreeMap<(SessionId, Ino), Duration>,
    recalled_all: BTreeMap<SessionId, Duration>,
}

impl Recorder {
    pub fn push(&self, what: Happened) {
        let now = scheduler().now();
        let mut state = self.0.lock();
        if !matches!(what, Happened::Observed { .. }) {
            let line = format!("{what:?}");
            for byte in line.bytes() {
                scheduler().mix(byte.into());
            }
            state.line(now, line);
        }
        state.history.push(now, what);
    }

    /// A line for the reader.
    pub fn line(&self, line: String) {
        let now = scheduler().now();
        self.0.lock().line(now, line);
    }

    /// A number for the next call.
    pub fn next_call(&self) -> CallId {
        let mut state = self.0.lock();
        state.next_call += 1;
        CallId(state.next_call - 1)
    }

    /// The file system has these plates.
    pub fn serves(&self, plates: Plates) {
        self.0.lock().history.plates = plates;
    }

    /// Directories are split over the plates.
    pub fn splits(&self) {
        self.0.lock().history.splits = true;
    }

    /// A plate answers operations on these names, which it has decided.
    pub fn decided(&self, client: ClientId, plate: PlateId, names: &[Name]) {
        if self.0.lock().history.splits && !names.is_empty() {
            self.push(Happened::Decided { client, plate, names: names.to_vec() });
        }
    }

    /// A session with a plate belongs to a life of a client.
    pub fn session(&self, (client, life): (ClientId, u32), plate: PlateId, session: SessionId) {
        let lost = {
            let mut state = self.0.lock();
            let of_life = (client, life, plate);
            let before = state.sessions.iter().any(|(known, of)| *of == of_life && *known != session);
            let new = state.sessions.insert(session, of_life).is_none();
            if new && before {
                *state.losses.entry((client, life)).or_default() += 1;
            }
            new && before
        };
        if lost {
            self.push(Happened::SessionLost { client });
            self.end_sessions(|of| *of == (client, life, plate), Some(session));
        }
    }

    /// How many sessions this life of a client has lost.
    pub fn losses(&self, client: ClientId, life: u32) -> u32 {
        self.0.lock().losses.get(&(client, life)).copied().unwrap_or(0)
    }

    pub fn replied(&self, (server, plate): (ServerId, PlateId), epoch: u64, commit: bool, reply: &Reply) {
        let durable = reply.durable.0;
        let fresh = {
            let mut state = self.0.lock();
            let known = state.acknowledged.entry((server, plate, epoch)).or_default();
            let fresh = commit && reply.result.is_ok() && durable > *known;
            *known = durable.max(*known);
            fresh
        };
        if fresh {
            self.push(Happened::Acknowledged { server, plate, epoch, durable });
        }
    }

    /// A client trusts its cache in this session until then.
    pub fn heard(&self, session: SessionId, until: Duration) {
        let mut state = self.0.lock();
        if !state.over.contains(&session) {
            let known = state.believes.entry(session).or_default();
            *known = until.max(*known);
        }
    }

    /// A client no longer trusts its cache in this session.
    pub fn leases_void(&self, session: SessionId) {
        self.0.lock().believes.remove(&session);
        self.push(Happened::LeasesVoid { session });
    }

    /// The same, for good.
    pub fn session_over(&self, session: SessionId) {
        if self.0.lock().over.insert(session) {
            self.leases_void(session);
        }
    }

    /// A life of a client is over.
    pub fn died(&self, client: ClientId, life: u32) {
        self.end_sessions(|(of, its, _)| (*of, *its) == (client, life), None);
    }

    fn end_sessions(&self, ends: impl Fn(&(ClientId, u32, PlateId)) -> bool, but: Option<SessionId>) {
        let sessions: Vec<SessionId> = {
            let state = self.0.lock();
            let of_life = state.sessions.iter().filter(|(_, of)| ends(of));
            of_life.map(|(session, _)| *session).filter(|session| Some(*session) != but).collect()
        };
        sessions.into_iter().for_each(|session| self.session_over(session));
    }

    /// An answer in this session to a call that began at `begun` grants a lease. If it is to a path, the lease is of the client's
    /// session with the plate that has the inode; else clients believe only what a plate says of its own inodes.
    pub fn lease_given(
        &self,
        (asked, is_path): (SessionId, bool),
        ino: Ino,
        mode: LeaseMode,
        begun: Duration,
    ) {
        let (session, believers) = {
            let state = self.0.lock();
            let Some(session) = state.session_with(asked, ino).filter(|with| is_path || *with == asked)
            else {
                return;
            };
            // The recall was faster than the answer: this is void.
            let of_one = state.recalled.get(&(session, ino));
            let mut times = of_one.into_iter().chain(state.recalled_all.get(&session));
            let is_void = times.any(|at| *at >= begun);
            if mode == LeaseMode::None || is_void || state.over.contains(&session) {
                return;
            }
            (session, state.believers())
        };
        self.push(Happened::LeaseGiven { session, ino, mode, believers });
    }

    /// A client gives a lease back.
    pub fn gave_back(&self, session: SessionId, ino: Ino, keep: LeaseMode) {
        if ino == Recall::EVERYTHING {
            self.0.lock().recalled_all.insert(session, scheduler().now());
            return self.push(match keep {
                LeaseMode::None => Happened::LeasesVoid { session },
                _ => Happened::LeaseReturned { session, ino, keep },
            });
        }
        self.0.lock().recalled.insert((session, ino), scheduler().now());
        self.push(Happened::LeaseReturned { session, ino, keep });
    }

    /// A server answers an operation that changed names and was sent at `asked`.
    pub fn names_changed(&self, session: SessionId, dirs: &[Ino], asked: Duration) {
        if !dirs.is_empty() {
            let believers = self.0.lock().other_believers(session);
            self.push(Happened::NamesChanged { session, dirs: dirs.to_vec(), asked, believers });
        }
    }

    /// The events so far.
    pub fn history(&self) -> History {
        self.0.lock().history.clone()
    }

    /// Everything, when the run is over: the history and its lines.
    pub fn take(&self) -> (History, Vec<(Duration, String)>) {
        let mut state = self.0.lock();
        (std::mem::take(&mut state.history), std::mem::take(&mut state.lines))
    }
}

/// Between a client's look at its clock and its request on the wire passes no more.
const LOOK: Duration = Duration::from_millis(5);

impl State {
    /// The session that the client of a session has with the plate of an inode.
    fn session_with(&self, session: SessionId, ino: Ino) -> Option<SessionId> {
        let (client, life, plate) = self.sessions.get(&session)?;
        match self.history.plates.of(ino)? {
            owner if owner == *plate => Some(session),
            owner => {
                let theirs = self.sessions.iter().filter(|(_, of)| **of == (*client, *life, owner));
                theirs.map(|(session, _)| *session).max()
            }
        }
    }

    /// Sessions whose clients trust their caches.
    fn believers(&self) -> Vec<SessionId> {
        let now = scheduler().now();
        self.believes.iter().filter(|(_, until)| **until > now + LOOK).map(|(session, _)| *session).collect()
    }

    /// Those of other clients: a client keeps its leases with other plates when it renames between plates.
    fn other_believers(&self, session: SessionId) -> Vec<SessionId> {
        let client =
            |session: &SessionId| self.sessions.get(session).map(|(client, life, _)| (*client, *life));
        let own = client(&session);
        let believers = self.believers().into_iter();
        believers.filter(|other| *other == session || own.is_none() || client(other) != own).collect()
    }

    fn line(&mut self, now: Duration, line: String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push((now, line));
        }
    }
}
