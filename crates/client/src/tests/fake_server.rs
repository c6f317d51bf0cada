//! A server in memory that loses requests, replies, its memory, and sessions on request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chiton_model::{Op, Outcome};
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_transport::{ConnectionLost, Pending};
use chiton_types::{
    Attr, BlockId, Epoch, Ino, Kind, Mode, Name, Position, Refusal, Seq, SessionId, ShardId, Time,
};
use chiton_wire::{
    Again, Answer, Call, Channel, Failure, Hello, LeaseMode, Query, Recall, RecallDone, RefuseReason, Reply,
    Request, Welcome,
};

use crate::wire::{Dialer, RecallWire, Wire};

/// The fate of the next operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Carried out and answered.
    None,
    /// The connection breaks before it arrives.
    RequestLost,
    /// Carried out, then the connection breaks.
    ReplyLost,
    /// Carried out, then the server dies before it is durable.
    ServerDies,
    /// The server forgets the session before it arrives.
    SessionExpires,
    /// Carried out, then the server forgets the session.
    SessionExpiresBehind,
}

/// The state that a session declares: see [`Call::Reopen`].
pub(crate) type Declared = (Vec<(Ino, u32)>, Vec<Ino>, Vec<Ino>);

/// One row of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) session: SessionId,
    pub(crate) seq: Seq,
    pub(crate) name: Name,
    pub(crate) ino: Ino,
}

#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) journal: Vec<Made>,
    /// Rows of the journal that survive a restart.
    pub(crate) durable: usize,
    pub(crate) faults: VecDeque<Fault>,
    pub(crate) opens: BTreeMap<Ino, u32>,
    /// `Closed` messages that arrived.
    pub(crate) close_messages: usize,
    /// Requests since the last restart that were no resends, before all resends had come: must stay empty.
    pub(crate) overtaken: bool,
    /// Blocks that are there, and whether they survive a restart.
    pub(crate) blocks: BTreeMap<BlockId, bool>,
    /// All puts, by number.
    pub(crate) puts: Vec<u64>,
    /// A writer whose blocks are not taken (any more).
    pub(crate) forgotten_writer: Option<u64>,
    /// How many puts had come when an operation was last sent again.
    pub(crate) puts_at_resend: usize,
    resends_expected: u32,
    boot: u64,
    greeted_in: u64,
    sessions: BTreeMap<SessionId, u64>,
    next_ino: u64,
    connection: u64,
    pub(crate) recall: Option<Arc<FakeRecalls>>,
    /// Messages of pending operations wait at the server's door.
    pub(crate) holds_pending: bool,
    /// How many of them wait.
    pub(crate) held: usize,
    /// It is one of two plates: which.
    pub(crate) plate_of_two: Option<u16>,
    /// Operations that were carried out in a session that is over are remembered.
    pub(crate) remembers_ended: bool,
    /// `Commit` messages that arrived.
    pub(crate) commits: usize,
    /// The last declaration: opens, files with dirty content, directories with pending operations.
    pub(crate) declared: Option<Declared>,
}

#[derive(Clone, Default)]
pub(crate) struct FakeServer(pub(crate) Arc<Mutex<Fake>>, Arc<Condvar>);

pub(crate) struct FakeWire {
    server: FakeServer,
    connection: u64,
}

#[derive(Default)]
pub(crate) struct FakeRecalls {
    state: Mutex<(VecDeque<Recall>, Vec<u64>, bool)>,
    changed: Condvar,
}

pub(crate) fn name_of(op: &Op) -> &Name {
    match op {
        Op::Make { name, .. } => name,
        _ => panic!("the fake server only makes files"),
    }
}

pub(crate) fn attr(ino: Ino) -> Attr {
    Attr {
        ino,
        kind: Kind::File,
        mode: Mode(0o644),
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        allocated: 0,
        atime: Time(5),
        mtime: Time(5),
        ctime: Time(5),
        btime: Time(5),
        parent: Ino::ROOT,
        flags: 0,
        position: Position(0),
    }
}

impl Fake {
    /// The server dies and comes back.
    pub(crate) fn restart(&mut self) {
        self.journal.truncate(self.durable);
        self.blocks.retain(|_, durable| *durable);
        self.opens.clear();
        self.boot += 1;
        self.cut();
    }

    /// An inode of its plate.
    pub(crate) fn ino(&self, number: u64) -> Ino {
        Ino::new(ShardId(32 * self.plate_of_two.unwrap_or(0)), number)
    }

    pub(crate) fn cut(&mut self) {
        self.connection += 1;
    }

    /// All sessions are forgotten.
    pub(crate) fn expire(&mut self) {
        self.sessions.clear();
        self.cut();
    }

    fn make(&mut self, session: SessionId, seq: Seq, op: &Op, again: Option<Again>) -> (Position, Outcome) {
        let done = self.journal.iter().position(|made| made.session == session && made.seq == seq);
        let at = done.unwrap_or_else(|| {
            let ino = match again {
                Some(again) if again.ino != Ino(0) => again.ino,
                _ => {
                    self.next_ino += 1;
                    self.ino(self.next_ino + 1000)
                }
            };
            self.journal.push(Made { session, seq, name: name_of(op).clone(), ino });
            self.journal.len() - 1
        });
        let made = &self.journal[at];
        assert_eq!(made.name, *name_of(op), "one number, one operation");
        (
            Position(at as u64 + 1),
            Outcome { attr: Some(attr(made.ino)), gone: None, other: None, time: Time(0) },
        )
    }

    fn answer(&mut self, session: SessionId, request: &Request) -> Result<Answer, Failure> {
        match &request.call {
            Call::Op { op, .. } if name_of(op).as_bytes().starts_with(b"refused") => {
                Err(Failure::Refused(Refusal::Exists))
            }
            Call::Op { op, open } => {
                let fresh =
                    !self.journal.iter().any(|made| made.session == session && made.seq == request.seq);
                let (position, outcome) = self.make(session, request.seq, op, request.again);
                if *open && fresh {
                    *self.opens.entry(outcome.attr.as_ref().expect("made").ino).or_default() += 1;
                }
                Ok(Answer::Op { position, outcome, lease: LeaseMode::None, parent_leased: false })
            }
            Call::Batch { ops, .. } => {
                let mut results = Vec::new();
                for (at, op) in ops.iter().enumerate() {
                    let seq = Seq(request.seq.0 + at as u64);
                    results.push(match name_of(op).as_bytes().starts_with(b"refused") {
                        true => Err(Failure::Refused(Refusal::Exists)),
                        false => Ok(self.make(session, seq, op, None)),
                    });
                }
                Ok(Answer::Batch(results))
            }
            Call::WriteBehind { ops, acknowledged } => {
                let each = ops.iter().zip(acknowledged).enumerate().map(|(at, (op, one))| {
                    let again = Some(Again { ino: one.ino, ..Again::default() });
                    let seq = Seq(request.seq.0 + at as u64);
                    Ok((self.make(session, seq, op, again).0, LeaseMode::Exclusive))
                });
                Ok(Answer::WriteBehind(each.collect()))
            }
            Call::Late { ops, acknowledged, .. } => {
                assert!(request.again.is_none(), "it is new to the server");
                let each = ops.iter().zip(acknowledged).enumerate().map(|(at, (op, one))| {
                    let seq = Seq(request.seq.0 + at as u64);
                    let is_other = |made: &&Made| made.name == *name_of(op) && made.session != session;
                    if self.journal.iter().any(|made| is_other(&made)) {
                        return Err(Failure::Refused(Refusal::Io));
                    }
                    if one.open {
                        self.opens.entry(one.ino).or_insert(1);
                    }
                    Ok(self.make(session, seq, op, Some(Again { ino: one.ino, ..Again::default() })))
                });
                Ok(Answer::Batch(each.collect()))
            }
            Call::Query(Query::Open { ino, .. }) => {
                *self.opens.entry(*ino).or_default() += 1;
                let lease = LeaseMode::None;
                Ok(Answer::Attr { attr: attr(*ino), lease, parent_leased: false, parent_open: false })
            }
            Call::Query(Query::GetAttr { ino }) => {
                let lease = LeaseMode::None;
                Ok(Answer::Attr { attr: attr(*ino), lease, parent_leased: false, parent_open: false })
            }
            Call::Query(Query::ReadDir { .. }) => {
                Ok(Answer::Entries { entries: Vec::new(), end: true, parent_leased: true, parent_open: true })
            }
            Call::LeaseNames { dir, .. } => {
                let attr = Attr { kind: Kind::Dir, mode: Mode(0o755), nlink: 2, ..attr(*dir) };
                let first = Ino::new(dir.shard(), 5_000);
                Ok(Answer::Names { leased: true, attr, numbers: (first, Ino(first.0 + 1_000)), now: Time(9) })
            }
            Call::Ended { session: over, .. } if self.remembers_ended => {
                self.durable = self.journal.len();
                let seqs = self.journal.iter().filter(|made| made.session == *over).map(|made| made.seq);
                let runs = seqs.map(|seq| (seq, Seq(seq.0 + 1))).collect();
                Ok(Answer::CarriedOut { runs, end: Position(1 + self.durable as u64) })
            }
            Call::Closed { inos } => {
                self.close_messages += 1;
                for ino in inos {
                    let count = self.opens.get_mut(ino).expect("only what is open is closed");
                    *count -= 1;
                    if *count == 0 {
                        self.opens.remove(ino);
                    }
                }
                Ok(Answer::Done)
            }
            Call::Reopen { opens, dirty, names, .. } => {
                self.declared = Some((opens.clone(), dirty.clone(), names.clone()));
                self.opens = opens.iter().copied().collect();
                Ok(Answer::Done)
            }
            Call::Commit { .. } => {
                self.commits += 1;
                self.durable = self.journal.len();
                self.blocks.values_mut().for_each(|durable| *durable = true);
                Ok(Answer::Done)
            }
            Call::PutBlock { block, .. } => {
                self.puts.push(block.number);
                if self.forgotten_writer == Some(block.writer) {
                    return Err(Failure::Refused(Refusal::NotPermitted));
                }
                self.blocks.entry(*block).or_default();
                Ok(Answer::Done)
            }
            _ => Ok(Answer::Done),
        }
    }
}

impl FakeWire {
    fn ask(&self, request: &Request) -> Result<Reply, ConnectionLost> {
        if let Call::WriteBehind { .. } = request.call {
            self.server.pass_door();
        }
        let mut fake = self.server.0.lock();
        let lost = || Err(ConnectionLost::new("cut by the test"));
        if fake.connection != self.connection {
            return lost();
        }
        let Some(&session) = fake.sessions.keys().next_back() else {
            return lost();
        };
        if request.again.is_some() {
            fake.puts_at_resend = fake.puts.len();
        }
        match (&request.again, &request.call) {
            (Some(_), Call::Batch { ops, .. }) => {
                fake.resends_expected = fake.resends_expected.saturating_sub(ops.len() as u32);
            }
            (Some(_), _) => fake.resends_expected = fake.resends_expected.saturating_sub(1),
            (None, Call::Op { .. } | Call::Batch { .. } | Call::Query(_)) => {
                fake.overtaken |= fake.resends_expected > 0;
            }
            _ => {}
        }
        if request.seq > Seq(0) {
            assert!(request.settled <= request.seq, "what is asked is not settled");
        }
        let fault = match request.call {
            Call::Op { .. } | Call::Batch { .. } | Call::Late { .. } => {
                fake.faults.pop_front().unwrap_or(Fault::None)
            }
            _ => Fault::None,
        };
        match fault {
            Fault::RequestLost => {
                fake.cut();
                return lost();
            }
            Fault::SessionExpires => {
                fake.expire();
                return lost();
            }
            Fault::None | Fault::ReplyLost | Fault::ServerDies | Fault::SessionExpiresBehind => {}
        }
        let result = fake.answer(session, request);
        let reply = Reply { id: request.id, epoch: Epoch(1), durable: Position(fake.durable as u64), result };
        match fault {
            Fault::ReplyLost => fake.cut(),
            Fault::ServerDies => fake.restart(),
            Fault::SessionExpiresBehind => fake.expire(),
            _ => return Ok(reply),
        }
        lost()
    }
}

impl Wire for FakeWire {
    fn call(&self, request: &Request) -> Result<Reply, ConnectionLost> {
        self.ask(request)
    }

    fn start(&self, request: &Request) -> Pending {
        Pending::ready(self.ask(request))
    }

    fn close(&self) {}
}

impl FakeRecalls {
    pub(crate) fn send(&self, recall: Recall) {
        self.state.lock().0.push_back(recall);
        self.changed.notify_all();
    }

    pub(crate) fn wait_done(&self, id: u64) {
        let mut state = self.state.lock();
        while !state.1.contains(&id) {
            self.changed.wait(&mut state);
        }
    }
}

struct FakeRecallWire(Arc<FakeRecalls>);

impl RecallWire for FakeRecallWire {
    fn next(&self) -> Result<Recall, ConnectionLost> {
        let mut state = self.0.state.lock();
        loop {
            if state.2 {
                return Err(ConnectionLost::new("closed"));
            }
            match state.0.pop_front() {
                Some(recall) => return Ok(recall),
                None => self.0.changed.wait(&mut state),
            }
        }
    }

    fn done(&self, done: RecallDone) {
        self.0.state.lock().1.push(done.id);
        self.0.changed.notify_all();
    }

    fn close(&self) {
        self.0.state.lock().2 = true;
        self.0.changed.notify_all();
    }
}

impl FakeServer {
    /// Messages of pending operations wait from now on.
    pub(crate) fn hold_pending(&self) {
        self.0.lock().holds_pending = true;
    }

    /// The server takes the operations that it held back.
    pub(crate) fn release_pending(&self) {
        self.0.lock().holds_pending = false;
        self.1.notify_all();
    }

    /// Returns when a message waits.
    pub(crate) fn wait_held(&self) {
        let mut fake = self.0.lock();
        while fake.held == 0 {
            self.1.wait(&mut fake);
        }
    }

    fn pass_door(&self) {
        let mut fake = self.0.lock();
        fake.held += 1;
        self.1.notify_all();
        while fake.holds_pending {
            self.1.wait(&mut fake);
        }
        fake.held -= 1;
    }

    fn welcome(&self, hello: &Hello) -> Welcome {
        let mut fake = self.0.lock();
        let (session, secret) = match hello.resume {
            None => {
                let of_plate = 1_000 * u64::from(fake.plate_of_two.unwrap_or(0));
                let id = SessionId(fake.next_ino + 100 + fake.connection + of_plate);
                fake.sessions.insert(id, id.0 * 7);
                (id, id.0 * 7)
            }
            Some((id, secret)) if fake.sessions.get(&id) == Some(&secret) => (id, secret),
            Some(_) => {
                return Welcome::Refused { reason: RefuseReason::SessionGone, message: "expired".into() };
            }
        };
        if hello.channel == Channel::Main {
            fake.cut();
            let restarted = fake.greeted_in != fake.boot;
            fake.resends_expected = if restarted { hello.resend_count } else { 0 };
            fake.greeted_in = fake.boot;
        }
        Welcome::Accepted {
            session,
            secret,
            epoch: Epoch(1),
            filesystem: 1,
            boot: fake.boot,
            session_ms: 30_000,
            durable: Position(fake.durable as u64),
            objects: String::new(),
            shards: 64,
            plates: if fake.plate_of_two.is_some() { 2 } else { 1 },
        }
    }
}

impl Dialer for FakeServer {
    fn dial(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn Wire>>), String> {
        let welcome = self.welcome(hello);
        let connection = self.0.lock().connection;
        Ok((welcome, Some(Arc::new(FakeWire { server: self.clone(), connection }))))
    }

    fn dial_recall(&self, hello: &Hello) -> Result<(Welcome, Option<Arc<dyn RecallWire>>), String> {
        let welcome = self.welcome(hello);
        let recalls = Arc::new(FakeRecalls::default());
        self.0.lock().recall = Some(recalls.clone());
        Ok((welcome, Some(Arc::new(FakeRecallWire(recalls)))))
    }
}
