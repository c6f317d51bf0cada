//! Several engines, their journals, the messages between them, and clients that send again what a crash took.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chiton_model::{AttrChange, Make, Op, RenameHow};
use chiton_types::{Cred, Epoch, Ino, Mode, Name, PlateId, Plates, Position, Refusal, Seq, SessionId, Time};
use chiton_wire::{Again, Answer, Call, Failure, PeerMessage, Recall, Reply, Request};

use super::load::Load;
use super::placing::set_policy;
use super::plate::{Node, SHARDS, start};
use crate::formatted::Formatted;
use crate::step::{Command, Step};

/// Random numbers from a seed (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// An operation of a client.
pub(super) struct Sent {
    pub(super) plate: usize,
    pub(super) seq: Seq,
    pub(super) op: Op,
    /// The last answer: start, position, inode and time, or its refusal.
    pub(super) answer: Option<Result<Again, Refusal>>,
    /// The first that was none.
    pub(super) first: Option<Again>,
    /// Answered in this start of the plate, or known to be durable there.
    pub(super) is_settled: bool,
}

pub(super) struct Client {
    pub(super) sent: Vec<Sent>,
    pub(super) ops_left: usize,
}

pub(super) struct Cluster {
    pub(super) plates: Plates,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) links: BTreeMap<(usize, usize), VecDeque<PeerMessage>>,
    /// Links that lose what is sent over them.
    pub(super) down: BTreeSet<(usize, usize)>,
    /// Directories and files that clients have heard of.
    pub(super) dirs: Vec<Ino>,
    pub(super) files: Vec<Ino>,
    /// Names that were given.
    pub(super) names: Vec<(Ino, Name)>,
    pub(super) load: Load,
    pub(super) random: Random,
    pub(super) seed: u64,
    /// One step in so many is a fault, as long as faults are left.
    pub(super) fault_every: usize,
    /// How often plates had nothing to free since they heard or wrote something.
    pub(super) idle: BTreeMap<usize, usize>,
    /// Recalls that each plate has sent.
    pub(super) recalls: Vec<usize>,
}

/// An event that may happen next.
type Next = Box<dyn FnOnce(&mut Cluster)>;

/// So many directories move about: few enough to meet.
const FEW_DIRS: usize = 4;

pub(super) fn session(client: usize, plate: usize) -> SessionId {
    SessionId((plate as u64 + 1) * 1000 + client as u64)
}

impl Cluster {
    pub(super) fn new(seed: u64, plate_count: u16, clients: usize, load: Load) -> Cluster {
        let plates = Plates::new(SHARDS, plate_count).expect("plates have shards");
        let mono = Duration::from_secs(100);
        let nodes =
            plates.all().map(|plate| start(plate, plates, (Formatted::new(), Vec::new()), 1, mono)).collect();
        let mut random = Random(seed);
        let ops = if load == Load::Mixed { 6 } else { 14 };
        let clients =
            (0..clients).map(|_| Client { sent: Vec::new(), ops_left: ops + random.below(8) }).collect();
        let mut cluster = Cluster {
            plates,
            nodes,
            clients,
            links: BTreeMap::new(),
            down: BTreeSet::new(),
            dirs: vec![Ino::ROOT],
            files: Vec::new(),
            names: Vec::new(),
            load,
            random,
            seed,
            fault_every: 40,
            idle: BTreeMap::new(),
            recalls: vec![0; usize::from(plate_count)],
        };
        for at in 0..cluster.nodes.len() {
            cluster.commit_all(at);
            for client in 0..cluster.clients.len() {
                let node = &mut cluster.nodes[at];
                node.engine.open_session(session(client, at), 7, "test", false, &node.m).expect("a session");
                node.engine.recalls_connected(session(client, at), 7, &node.m).expect("known");
            }
            cluster.commit_all(at);
        }
        for at in 0..cluster.nodes.len() {
            cluster.nodes[at].engine.greet_peers(1);
            cluster.take(at);
        }
        cluster
    }

    /// Carries out the commands of a plate's engine.
    pub(super) fn take(&mut self, at: usize) {
        self.idle.remove(&at);
        loop {
            let commands = self.nodes[at].settle();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Reply(ticket, reply) => {
                        if let Some((client, op)) = self.nodes[at].answers.remove(&ticket) {
                            self.answered(client, op, reply);
                        }
                    }
                    Command::Recall(holder, Recall { id, .. }) => {
                        self.recalls[at] += 1;
                        let node = &mut self.nodes[at];
                        node.engine.recall_done(holder, id, &node.m);
                    }
                    Command::Peer(to, _) if self.down.contains(&(at, usize::from(to.0))) => {}
                    Command::Peer(to, message) => {
                        self.links.entry((at, usize::from(to.0))).or_default().push_back(message);
                    }
                    Command::DropSession(..) => panic!("seed {}: a session ended", self.seed),
                    Command::Log(line) | Command::Denied(line) => panic!("seed {}: {line}", self.seed),
                }
            }
        }
    }

    pub(super) fn ask(&mut self, client: usize, op: usize, again: Option<Again>) {
        let Sent { plate: at, seq, op: what, .. } = &self.clients[client].sent[op];
        let (at, call) = (*at, Call::Op { op: what.clone(), open: false });
        self.trace(|| format!("client {client} asks plate {at}: {call:?} again {again:?}"));
        let (cred, settled) = (Cred::ROOT, Seq(0));
        let request = Request { id: 1, seq: *seq, settled, epoch: Epoch(1), again, cred, call };
        let node = &mut self.nodes[at];
        node.m.now = Time(node.m.now.0 + 1);
        let mut step = node.engine.request(session(client, at), request, &node.m);
        loop {
            match step {
                Step::Done(reply) => {
                    self.answered(client, op, reply);
                    break;
                }
                Step::Waiting(ticket) => {
                    self.nodes[at].answers.insert(ticket, (client, op));
                    break;
                }
                Step::NeedRows(task, needs) => {
                    let node = &mut self.nodes[at];
                    node.supply(&needs);
                    step = node.engine.retry(task, &node.m);
                }
            }
        }
        self.take(at);
    }

    fn answered(&mut self, client: usize, op: usize, reply: Reply) {
        let seed = self.seed;
        let sent = &mut self.clients[client].sent[op];
        let boot = self.nodes[sent.plate].boot;
        let trace = format!("client {client} is answered {:?}: {:?}", sent.op, reply.result);
        let answer = match reply.result {
            Ok(Answer::Op { position, outcome, .. }) => {
                let is_make = matches!(sent.op, Op::Make { .. });
                let ino = outcome.attr.filter(|_| is_make).map_or(Ino(0), |attr| attr.ino);
                Ok(Again { boot, position, ino, time: outcome.time })
            }
            Err(Failure::Refused(refusal)) => Err(refusal),
            other => panic!("seed {seed}: {other:?}"),
        };
        if let Some(Ok(before)) = &sent.answer {
            let now = answer.unwrap_or_else(|refusal| {
                panic!(
                    "seed {seed}: client {client}'s {:?} was answered, and is refused: {refusal:?}",
                    sent.op
                )
            });
            assert!(now.ino == before.ino, "seed {seed}: another number");
            let is_mkdir = matches!(sent.op, Op::Make { make: Make::Dir, .. });
            assert!(!is_mkdir || now.time == before.time, "seed {seed}: another time of birth");
        }
        if let (Ok(Again { ino, .. }), Op::Make { make: Make::Dir, .. }) = (&answer, &sent.op)
            && !self.dirs.contains(ino)
        {
            self.dirs.push(*ino);
        }
        if let (Ok(Again { ino, .. }), Op::Make { make: Make::File { .. }, .. }) = (&answer, &sent.op)
            && !self.files.contains(ino)
        {
            self.files.push(*ino);
        }
        let given = match &sent.op {
            Op::Make { parent, name, .. } | Op::Link { parent, name, .. } => Some((*parent, name.clone())),
            Op::Rename { to, to_name, .. } => Some((*to, to_name.clone())),
            _ => None,
        };
        self.names.extend(given.filter(|_| answer.is_ok()));
        sent.first = sent.first.or(answer.ok());
        sent.answer = Some(answer);
        sent.is_settled = true;
        self.trace(|| trace);
    }

    /// A client's next operation.
    fn act(&mut self, client: usize) {
        let dir = self.dirs[self.random.below(self.dirs.len())];
        let to = self.dirs[self.random.below(self.dirs.len())];
        let file = (!self.files.is_empty()).then(|| self.files[self.random.below(self.files.len())]);
        let mut name = || Name::new([b"a", b"b", b"c"][self.random.below(3)]).expect("a name");
        let (name, other) = (name(), name());
        // Often a name that was given lately.
        let known = self.names.len().saturating_sub(self.random.below(8) + 1);
        let (old_dir, old) = match self.names.get(known).filter(|_| self.random.below(4) > 0) {
            Some((dir, name)) => (*dir, name.clone()),
            None => (dir, name.clone()),
        };
        let mode = Mode(0o755);
        let how = [RenameHow::Replace, RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange]
            [self.random.below(4)];
        let mkdir = Op::Make { parent: dir, name: name.clone(), make: Make::Dir, mode };
        let rename =
            |to| Op::Rename { from: old_dir, from_name: old.clone(), to, to_name: other.clone(), how };
        let draw = self.random.below(14);
        let (load, draw) = match (self.load, draw) {
            (Load::LinkedPolicies, 4..7) => (Load::Mixed, draw),
            (Load::LinkedPolicies, 7..10) => (Load::Mixed, 8),
            (Load::LinkedPolicies, _) => (Load::Policies, draw),
            (Load::Parts | Load::Splits, 12..) => (self.load, draw),
            (Load::Trees | Load::TreesWithParts, 11..) => (self.load, draw),
            (Load::Trees | Load::TreesWithParts, 0 | 1) => (Load::Mixed, 9),
            (Load::Trees | Load::TreesWithParts, _) => (Load::Mixed, draw),
            (Load::Folds, 10..) => (self.load, draw),
            (Load::Parts | Load::Splits | Load::Folds, _) => (Load::Mixed, draw),
            all => all,
        };
        let is_first = self.clients.iter().all(|client| client.sent.is_empty());
        let op = match (load, draw, file) {
            _ if is_first && matches!(self.load, Load::Parts | Load::TreesWithParts) => {
                set_policy(Ino::ROOT, 2)
            }
            (Load::Trees | Load::TreesWithParts, 11, _) => {
                set_policy(dir, [0, 1, 3, 3][self.random.below(4)])
            }
            (Load::Trees | Load::TreesWithParts, _, _) => self.remove_tree(old_dir, old),
            (Load::Splits | Load::Folds, 13, _) => Op::Split { dir },
            (Load::Folds, 11 | 12, _) => Op::Fold { dir },
            (Load::Parts | Load::Splits | Load::Folds, _, _) => {
                let mode = Some(Mode([0o700, 0o755, 0o711][self.random.below(3)]));
                Op::SetAttr { ino: dir, change: AttrChange { mode, ..AttrChange::default() } }
            }
            (Load::Mixed, 0..4, _) => mkdir,
            (Load::Moves | Load::Policies, ..12, _) if self.dirs.len() < FEW_DIRS => mkdir,
            (Load::Policies, 1..3, _) => set_policy(dir, [0, 1, 3][self.random.below(3)]),
            (Load::Policies, 3, _) => {
                Op::Make { parent: dir, name, make: Make::File { content: Vec::new() }, mode }
            }
            (Load::Policies, 4, _) => mkdir,
            (Load::Mixed, 4 | 5, _) => {
                Op::Make { parent: dir, name, make: Make::File { content: Vec::new() }, mode }
            }
            (Load::Mixed, 6, _) => Op::Unlink { parent: old_dir, name: old },
            (Load::Mixed, 7, _) => rename(old_dir),
            (Load::Mixed, 8 | 9, Some(ino)) => Op::Link { ino, parent: dir, name },
            (Load::Mixed, 10 | 11, _) | (Load::Moves | Load::Policies, 0, _) => {
                Op::Rmdir { parent: old_dir, name: old }
            }
            _ => rename(to),
        };
        self.clients[client].ops_left -= 1;
        let op = self.placed(op);
        self.send(client, op);
    }

    /// Sends an operation to the plate that decides it. Returns its place among the client's.
    pub(super) fn send(&mut self, client: usize, op: Op) -> usize {
        let plate = usize::from(self.plates.of(op.footprint().place).expect("a plate").0);
        let sent = &mut self.clients[client].sent;
        let seq = Seq(1 + sent.iter().filter(|one| one.plate == plate).count() as u64);
        sent.push(Sent { plate, seq, op, answer: None, first: None, is_settled: false });
        let last = sent.len() - 1;
        self.ask(client, last, None);
        last
    }

    /// Makes directories in the root until one is born on the other of two plates: its name and number.
    pub(super) fn make_dir_elsewhere(&mut self) -> (Name, Ino) {
        let made = (0..8).find_map(|n| {
            let (name, mode) = (Name::new(format!("d{n}").as_bytes()).expect("a name"), Mode(0o755));
            self.send(0, Op::Make { parent: Ino::ROOT, name: name.clone(), make: Make::Dir, mode });
            self.run(0, 0);
            let last = self.dirs.last().copied();
            last.filter(|ino| self.plates.of(*ino) == Some(PlateId(1))).map(|ino| (name, ino))
        });
        made.expect("one of eight directories is born on the other plate")
    }

    pub(super) fn is_busy(&self, client: usize) -> bool {
        self.clients[client].sent.iter().any(|sent| !sent.is_settled)
    }

    /// Set CHITON_TRACE to a seed to see its schedule.
    fn trace(&self, line: impl FnOnce() -> String) {
        if std::env::var("CHITON_TRACE").is_ok_and(|seed| seed == self.seed.to_string()) {
            println!("{}", line());
        }
    }

    fn commit(&mut self, at: usize, durable: Position) {
        self.trace(|| format!("plate {at} is durable up to {durable}"));
        let node = &mut self.nodes[at];
        node.m.durable = durable;
        node.m.mono += Duration::from_millis(1);
        node.engine.durable_advanced(&node.m);
        self.take(at);
    }

    /// Everything is durable and goes to the rows, and out of memory.
    pub(super) fn checkpoint(&mut self, at: usize) {
        // Requests that waited for a commit may write more.
        while self.nodes[at].frames.last().is_some_and(|frame| frame.last > self.nodes[at].m.durable) {
            self.commit_all(at);
        }
        let node = &mut self.nodes[at];
        node.engine.namespace().checkpoint_begin();
        let mut rows = node.engine.own_rows();
        let list = node.engine.namespace().checkpoint_list();
        node.engine.namespace().checkpoint_listed(list);
        while !node.engine.namespace().checkpoint_take(100, &mut rows) {}
        node.rows.commit(rows);
        node.engine.namespace().checkpoint_done();
        node.engine.namespace().evict(0);
    }

    pub(super) fn commit_all(&mut self, at: usize) {
        self.take(at);
        let last = self.nodes[at].frames.last().map_or(Position(0), |frame| frame.last);
        self.commit(at, last);
    }

    /// A plate dies and starts anew: its journal keeps what was durable, and messages on their way are lost.
    pub(super) fn crash(&mut self, at: usize) {
        let durable = self.crash_ungreeted(at);
        self.greet_from(at, durable);
    }

    /// A plate dies and is started anew, and has not greeted the others yet. Up to where its journal was durable.
    pub(super) fn crash_ungreeted(&mut self, at: usize) -> Position {
        let dead = &mut self.nodes[at];
        let durable = dead.m.durable;
        let line = format!("PLATE {at} CRASHES, durable {durable}");
        let mut frames = std::mem::take(&mut dead.frames);
        frames.retain(|frame| frame.last <= durable);
        let rows = std::mem::replace(&mut dead.rows, Formatted::new());
        let (plate, boot, mono) = (dead.plate, dead.boot + 1, dead.m.mono + Duration::from_secs(1));
        self.links.retain(|(from, to), _| *from != at && *to != at);
        self.trace(|| line);
        self.nodes[at] = start(plate, self.plates, (rows, frames), boot, mono);
        self.commit_all(at);
        durable
    }

    /// A plate that was started anew greets the others, and clients send again the operations that it has lost: those after `durable`.
    pub(super) fn greet_from(&mut self, at: usize, durable: Position) {
        let boot = self.nodes[at].boot;
        self.nodes[at].engine.greet_peers(boot);
        self.take(at);
        for client in 0..self.clients.len() {
            let mut resends = Vec::new();
            for (op, sent) in self.clients[client].sent.iter_mut().enumerate().filter(|(_, s)| s.plate == at)
            {
                let is_lost = match sent.answer {
                    // Its first answer may be of any start; a resend is answered in the new one.
                    Some(Ok(again)) => again.boot == boot - 1 && again.position > durable,
                    Some(Err(_)) => false,
                    None => true,
                };
                if is_lost || !sent.is_settled {
                    sent.is_settled = false;
                    resends.push(op);
                }
            }
            let id = session(client, at);
            let node = &mut self.nodes[at];
            node.engine.resume_session(id, 7, resends.len() as u32, &node.m).expect("known");
            node.engine.recalls_connected(id, 7, &node.m).expect("known");
            let call = Call::Reopen { opens: vec![], locks: vec![], dirty: vec![], names: vec![] };
            let (cred, seq) = (Cred::ROOT, Seq(0));
            let request = Request { id: 1, seq, settled: Seq(0), epoch: Epoch(1), again: None, cred, call };
            let declared = node.engine.request(id, request, &node.m);
            assert!(matches!(declared, Step::Done(_)), "{declared:?}");
            for op in resends {
                let first = self.clients[client].sent[op].first;
                self.ask(client, op, Some(first.unwrap_or_default()));
            }
        }
        self.take(at);
    }

    /// A connection breaks: the last messages on their way are lost, and all that follow until it is up again. Neither end dies.
    fn cut(&mut self) {
        let from = self.random.below(self.nodes.len());
        let to = (from + 1 + self.random.below(self.nodes.len() - 1)) % self.nodes.len();
        self.trace(|| format!("LINK {from} to {to} BREAKS"));
        if let Some(queue) = self.links.get_mut(&(from, to)) {
            queue.truncate(self.random.below(queue.len() + 1));
        }
        self.down.insert((from, to));
    }

    /// One step of the schedule; false if nothing but a crash can happen any more.
    pub(super) fn step(&mut self) -> bool {
        let mut steps: Vec<Next> = Vec::new();
        for (&(from, to), queue) in &self.links {
            if !queue.is_empty() {
                steps.push(Box::new(move |cluster| {
                    let queue = cluster.links.get_mut(&(from, to)).expect("a link");
                    let message = queue.pop_front().expect("a message");
                    cluster.trace(|| format!("plate {to} receives from {from}: {message:?}"));
                    let node = &mut cluster.nodes[to];
                    node.engine.peer(PlateId(from as u16), message, &node.m);
                    cluster.take(to);
                }));
            }
        }
        for &(from, to) in &self.down {
            steps.push(Box::new(move |cluster| {
                cluster.trace(|| format!("link {from} to {to} is up"));
                cluster.down.remove(&(from, to));
                cluster.nodes[from].engine.greet_peer(PlateId(to as u16));
                cluster.take(from);
            }));
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let waiting: Vec<Position> =
                node.frames.iter().map(|frame| frame.last).filter(|last| *last > node.m.durable).collect();
            if !waiting.is_empty() {
                let durable = waiting[self.random.below(waiting.len())];
                steps.push(match self.random.below(20) {
                    0 => Box::new(move |cluster| cluster.checkpoint(at)),
                    _ => Box::new(move |cluster| cluster.commit(at, durable)),
                });
            }
        }
        for at in self.freeing() {
            steps.push(Box::new(move |cluster| cluster.free(at)));
        }
        for (client, one) in self.clients.iter().enumerate() {
            if one.ops_left > 0 && !self.is_busy(client) {
                steps.push(Box::new(move |cluster| cluster.act(client)));
            }
        }
        if steps.is_empty() {
            return false;
        }
        let chosen = self.random.below(steps.len());
        steps.swap_remove(chosen)(self);
        true
    }

    /// Runs until nothing moves, with so many crashes and broken connections on the way.
    pub(super) fn run(&mut self, mut crashes: usize, mut cuts: usize) {
        for _ in 0..20_000 {
            if cuts > 0 && self.random.below(self.fault_every) == 0 {
                cuts -= 1;
                self.cut();
            }
            if crashes > 0 && self.random.below(self.fault_every) == 0 {
                crashes -= 1;
                let at = self.random.below(self.nodes.len());
                self.crash(at);
            }
            if !self.step() {
                return;
            }
        }
        panic!("seed {}: it never comes to rest", self.seed);
    }
}
