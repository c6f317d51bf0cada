//! Plates with the messages between them, and clients with one call each: the steps that can be next, and the effect of each.
//!
//! Invariants:
//! - A step changes one plate. Beyond that it only adds messages at the ends of links. So two steps at different plates can change
//!   places, and all that a plate is follows from the order of its own steps.

use std::collections::{BTreeMap, VecDeque};

use chiton_engine::{Command, Step as Asked};
use chiton_model::Op;
use chiton_types::{Cred, Epoch, Ino, PlateId, Plates, Refusal, Seq, SessionId};
use chiton_wire::{Answer, Call, Failure, PeerMessage, Query, Recall, Reply, Request, TOKEN};

use super::plate::{Plate, SHARDS};
use super::{Broken, Commits};

/// Something that can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The plate `to` receives the first message of the link from `from`.
    Deliver { from: usize, to: usize },
    /// All that a plate has written becomes durable.
    Commit(usize),
    /// The client of this call sends it.
    Ask(usize),
}

/// A call of a client.
pub(super) struct Sent {
    pub(super) call: Call,
    plate: usize,
    seq: Seq,
    /// Its client sends it when this one is answered.
    after: Option<usize>,
    /// The moment at which it was sent.
    pub(super) begun: Option<u64>,
    /// The moment of the answer, and the inode that it shows.
    pub(super) ended: Option<(u64, Result<Option<Ino>, Refusal>)>,
}

pub(super) struct World {
    plates: Plates,
    pub(super) nodes: Vec<Plate>,
    pub(super) calls: Vec<Sent>,
    links: BTreeMap<(usize, usize), VecDeque<PeerMessage>>,
    /// Calls so far, those included that made the tree.
    added: u64,
    commits: Commits,
    broken: Option<Broken>,
    /// The present time: the number of steps so far.
    pub(super) now: u64,
    /// All that happened, if it is to be shown.
    pub(super) trace: Option<Vec<String>>,
    /// Against a promise of the engine.
    pub(super) wrong: Option<String>,
}

/// Of the client of a call, with a plate. The tree is made by calls of a client of its own.
fn session(call: usize, plate: usize) -> SessionId {
    SessionId((plate as u64 + 1) * 1000 + call as u64)
}

impl World {
    /// An empty file system, with sessions for so many calls.
    pub(super) fn new(plate_count: u16, calls: usize, commits: Commits, broken: Option<Broken>) -> World {
        let plates = Plates::new(SHARDS, plate_count).expect("as many shards");
        let nodes: Vec<Plate> = plates.all().map(|plate| Plate::new(plate, plates)).collect();
        let mut world = World {
            plates,
            nodes,
            calls: Vec::new(),
            links: BTreeMap::new(),
            added: 0,
            commits: Commits::AtOnce,
            broken: None,
            now: 0,
            trace: None,
            wrong: None,
        };
        for at in 0..world.nodes.len() {
            world.take(at);
            for call in 0..calls {
                let Plate { engine, m, .. } = &mut world.nodes[at];
                engine.open_session(session(call, at), 7, "orders", false, m).expect("a new session");
                engine.recalls_connected(session(call, at), 7, m).expect("the session");
            }
            world.take(at);
        }
        for at in 0..world.nodes.len() {
            world.nodes[at].engine.greet_peers(1);
            world.take(at);
        }
        world.rest();
        (world.commits, world.broken) = (commits, broken);
        world
    }

    /// The plate that owns an inode.
    pub(super) fn plate_of(&self, ino: Ino) -> usize {
        usize::from(self.plates.of(ino).expect("an inode number").0)
    }

    /// A call that is to be sent, at any time or after another call. Returns its number.
    pub(super) fn add(&mut self, call: Call, after: Option<usize>) -> usize {
        let place = match &call {
            Call::Op { op, .. } => op.footprint().place,
            Call::Query(Query::Lookup { parent, .. }) => *parent,
            other => panic!("no scenario has {other:?}"),
        };
        let plate = self.plate_of(place);
        self.added += 1;
        let seq = if let Call::Op { .. } = call { Seq(self.added) } else { Seq(0) };
        self.calls.push(Sent { call, plate, seq, after, begun: None, ended: None });
        self.calls.len() - 1
    }

    /// Carries out a call to its end, and all that follows from it.
    pub(super) fn run(&mut self, op: Op) -> Result<Option<Ino>, Refusal> {
        let commits = std::mem::replace(&mut self.commits, Commits::AtOnce);
        let call = self.add(Call::Op { op, open: false }, None);
        self.step(Step::Ask(call));
        self.rest();
        self.commits = commits;
        let sent = self.calls.pop().expect("added above");
        sent.ended.expect("all that it waits for is done").1
    }

    fn rest(&mut self) {
        while let Some(step) = self.next().first() {
            self.step(*step);
        }
    }

    /// Everything that can happen next.
    pub(super) fn next(&self) -> Vec<Step> {
        let links = self.links.iter().filter(|(_, queue)| !queue.is_empty());
        let deliveries = links.map(|(&(from, to), _)| Step::Deliver { from, to });
        let nodes = self.nodes.iter().enumerate();
        let commits = nodes.filter(|(_, node)| !node.is_durable()).map(|(at, _)| Step::Commit(at));
        let calls = self.calls.iter().enumerate();
        let may_ask = |sent: &Sent| {
            sent.begun.is_none() && sent.after.is_none_or(|before| self.calls[before].ended.is_some())
        };
        let asks = calls.filter(|(_, sent)| may_ask(sent)).map(|(call, _)| Step::Ask(call));
        deliveries.chain(commits).chain(asks).collect()
    }

    /// The plate that a step changes.
    pub(super) fn plate_at(&self, step: Step) -> usize {
        match step {
            Step::Deliver { to, .. } => to,
            Step::Commit(at) => at,
            Step::Ask(call) => self.calls[call].plate,
        }
    }

    /// All that a step brings to its plate, and of the calls that it sends those that were answered before: they must take effect
    /// first.
    pub(super) fn input(&self, step: Step) -> String {
        match step {
            Step::Deliver { from, to } => format!("{step:?} {:?}", self.links[&(from, to)].front()),
            Step::Commit(_) => format!("{step:?}"),
            Step::Ask(_) => {
                let answered: Vec<bool> = self.calls.iter().map(|sent| sent.ended.is_some()).collect();
                format!("{step:?} after {answered:?}")
            }
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    pub(super) fn step(&mut self, step: Step) {
        self.now += 1;
        match step {
            Step::Deliver { from, to } => {
                let queue = self.links.get_mut(&(from, to)).expect("a link");
                let message = queue.pop_front().expect("a message");
                self.note(|| format!("plate {to} receives from plate {from}: {message:?}"));
                let Plate { engine, m, .. } = &mut self.nodes[to];
                engine.peer(PlateId(from as u16), message, m);
                self.take(to);
            }
            Step::Commit(at) => {
                self.note(|| format!("plate {at} commits"));
                self.nodes[at].commit();
                self.take(at);
            }
            Step::Ask(call) => self.ask(call),
        }
    }

    fn ask(&mut self, call: usize) {
        let (at, now) = (self.calls[call].plate, self.now);
        let sent = &mut self.calls[call];
        sent.begun = Some(now);
        let (what, seq) = (sent.call.clone(), sent.seq);
        self.note(|| format!("client {call} asks plate {at}: {what:?}"));
        let id = session(call, at);
        let Plate { engine, m, .. } = &mut self.nodes[at];
        let request = Request {
            id: 1,
            seq,
            settled: Seq(0),
            epoch: Epoch(1),
            again: None,
            cred: Cred::ROOT,
            call: what,
        };
        let mut step = engine.request(id, request, m);
        loop {
            match step {
                Asked::Done(reply) => {
                    self.answered(call, reply);
                    break;
                }
                Asked::Waiting(ticket) => {
                    self.nodes[at].waiting.insert(ticket, call);
                    break;
                }
                Asked::NeedRows(task, needs) => {
                    let node = &mut self.nodes[at];
                    node.supply(&needs);
                    step = node.engine.retry(task, &node.m);
                }
            }
        }
        self.take(at);
    }

    fn answered(&mut self, call: usize, reply: Reply) {
        self.now += 1;
        let answer = match reply.result {
            Ok(Answer::Op { outcome, .. }) => Ok(outcome.attr.map(|attr| attr.ino)),
            Ok(Answer::Attr { attr, .. }) => Ok(Some(attr.ino)),
            Ok(Answer::Elsewhere { ino, .. }) => Ok(Some(ino)),
            Ok(Answer::Absent { .. }) => Ok(None),
            Err(Failure::Refused(refusal)) => Err(refusal),
            other => {
                self.wrong.get_or_insert_with(|| format!("call {call} is answered {other:?}"));
                Ok(None)
            }
        };
        self.note(|| format!("client {call} is answered: {answer:?}"));
        self.calls[call].ended = Some((self.now, answer));
    }

    /// Carries out the commands of a plate.
    fn take(&mut self, at: usize) {
        loop {
            let commands = self.nodes[at].settle();
            let commits = self.commits == Commits::AtOnce && !self.nodes[at].is_durable();
            if commits {
                self.nodes[at].commit();
            }
            if commands.is_empty() && !commits {
                return;
            }
            for command in commands {
                match command {
                    Command::Reply(ticket, reply) => {
                        if let Some(call) = self.nodes[at].waiting.remove(&ticket) {
                            self.answered(call, reply);
                        }
                    }
                    Command::Recall(holder, Recall { id, .. }) => {
                        let Plate { engine, m, .. } = &mut self.nodes[at];
                        engine.recall_done(holder, id, m);
                    }
                    Command::Peer(to, message) => self.send(at, to, message),
                    Command::DropSession(..) => {
                        self.wrong.get_or_insert_with(|| format!("plate {at} ended a session"));
                    }
                    Command::Log(line) | Command::Denied(line) => {
                        self.wrong.get_or_insert_with(|| format!("plate {at} reports: {line}"));
                    }
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: PlateId, message: PeerMessage) {
        let lost = match &message {
            PeerMessage::Granted { key, ino, row, .. } => {
                let is_token = *ino == TOKEN;
                let is_left_out = match self.broken {
                    None => false,
                    Some(Broken::TokenLeftOut) => is_token,
                    Some(Broken::GuardsLeftOut) => !is_token && row.is_some(),
                };
                is_left_out.then_some(*key)
            }
            _ => None,
        };
        self.links.entry((from, usize::from(to.0))).or_default().push_back(message);
        if let Some(key) = lost {
            let Plate { engine, m, .. } = &mut self.nodes[from];
            engine.peer(to, PeerMessage::Release { key }, m);
        }
    }
}
