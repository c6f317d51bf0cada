//! Several engines, their journals, the messages between them, and clients that send again what a crash took: random schedules from
//! seeds, with crashes of plates at any moment.
//!
//! When all has come to rest: each operation that was answered with success stands in one journal, once; those that were refused in
//! none; the tree fits over plates; nothing is guarded, owed or under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chiton_journal::{SegmentHeader, SegmentReader};
use chiton_model::{Make, Op, RenameHow, XattrHow};
use chiton_namespace::{Fault, Namespace, Need};
use chiton_types::{
    Attr, Cred, Epoch, Ino, Kind, Mode, Name, PlateId, Plates, Position, Refusal, Seq, SessionId, Time,
};
use chiton_wire::{Again, Answer, Call, Failure, PeerMessage, Recall, Reply, Request};

use crate::engine::Engine;
use crate::formatted::Formatted;
use crate::moment::Moment;
use crate::rows::OwnRows;
use crate::settings::Settings;
use crate::step::{Command, Progress, Step};
use crate::wait_queue::Ticket;
use crate::{POSITION_KEY, position_value};

/// Random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// A frame of a journal.
struct Written {
    session: SessionId,
    seq: Seq,
    bytes: Vec<u8>,
    last: Position,
}

/// A plate, and what is left of it after a crash.
struct Node {
    plate: PlateId,
    engine: Engine,
    rows: Formatted,
    frames: Vec<Written>,
    m: Moment,
    boot: u64,
    answers: BTreeMap<Ticket, (usize, usize)>,
}

/// An operation of a client.
struct Sent {
    plate: usize,
    seq: Seq,
    op: Op,
    /// The last answer: start, position, inode and time, or its refusal.
    answer: Option<Result<Again, Refusal>>,
    /// The first that was none.
    first: Option<Again>,
    /// Answered in this start of the plate, or known to be durable there.
    is_settled: bool,
}

struct Client {
    sent: Vec<Sent>,
    ops_left: usize,
}

struct Cluster {
    plates: Plates,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    links: BTreeMap<(usize, usize), VecDeque<PeerMessage>>,
    /// Links that lose what is sent over them.
    down: BTreeSet<(usize, usize)>,
    /// Directories that clients have heard of.
    dirs: Vec<Ino>,
    random: Random,
    seed: u64,
}

/// What may happen next.
type Next = Box<dyn FnOnce(&mut Cluster)>;

const SHARDS: u16 = 4;

/// Of a segment that begins at this position.
fn header(first: Position) -> SegmentHeader {
    SegmentHeader {
        is_claim: false,
        journal: 1,
        nonce: 1,
        epoch: Epoch(1),
        segment: 1,
        first,
        durable: Position(0),
    }
}

fn session(client: usize, plate: usize) -> SessionId {
    SessionId((plate as u64 + 1) * 1000 + client as u64)
}

fn start(
    plate: PlateId,
    plates: Plates,
    (rows, frames): (Formatted, Vec<Written>),
    boot: u64,
    mono: Duration,
) -> Node {
    let mut marks = vec![1; usize::from(SHARDS)];
    marks[0] = Ino::ROOT.counter() + 1;
    let mut own = OwnRows { marks, ..OwnRows::default() };
    own.take(POSITION_KEY, &position_value(Position(0))).expect("a row");
    for (key, value) in rows.rows() {
        own.take(key, value).expect("rows that an engine wrote");
    }
    let stored = own.position;
    let durable = frames.last().map_or(Position(0), |frame| frame.last);
    let m = Moment { mono, now: Time(1_000 + boot as i64), durable, ..Moment::default() };
    let ns = Namespace::open(&rows, SHARDS).expect("opens");
    let settings = Settings {
        session_ms: 30_000,
        grace_ms: 10_000,
        lease_entries_max: 1000,
        lease_rest_ms: 0,
        sessions_max: 10,
        dirty_rows_max: 100_000,
        epoch: Epoch(1),
        root: Ino::ROOT,
        shard_weights: vec![100; usize::from(SHARDS)],
        plate,
        plates,
    };
    let engine = Engine::from_rows(settings, ns, own, &m);
    let mut node = Node { plate, engine, rows, frames, m, boot, answers: BTreeMap::new() };
    let header = header(Position(1));
    let mut segment = header.encode();
    let mut sealed: Vec<u8> = node.frames.iter().flat_map(|frame| frame.bytes.clone()).collect();
    chiton_journal::seal_frames(&mut sealed);
    segment.extend_from_slice(&sealed);
    for frame in SegmentReader::new(1, &segment).expect("a header") {
        let frame = frame.expect("whole frames");
        if frame.first <= stored {
            continue;
        }
        while let Err(fault) = node.engine.replay(&frame.header, frame.first, frame.payload, false, &m) {
            let crate::ReplayFault::Missing(needs) = fault else { panic!("plate {plate}: {fault:?}") };
            node.supply(&needs);
        }
    }
    node.engine.begin(&m);
    node
}

impl Node {
    fn supply(&mut self, needs: &[Need]) {
        let generation = self.engine.namespace().generation();
        for need in needs {
            let fetched = Namespace::fetch(&self.rows, need).expect("cannot fail");
            self.engine.namespace().install(fetched, generation).expect("decodes");
        }
    }

    /// Lets the engine's queues go on, and writes its frames to the journal.
    fn settle(&mut self) -> Vec<Command> {
        loop {
            match self.engine.run(&self.m) {
                Progress::Idle => break,
                Progress::More => {}
                Progress::NeedRows(needs) => self.supply(&needs),
            }
        }
        let (bytes, events) = self.engine.frames();
        if events > 0 {
            let first = self.frames.last().map_or(Position(1), |frame| frame.last.next());
            let header = header(first);
            let mut at = 0;
            let mut segment = header.encode();
            let from = segment.len();
            segment.extend_from_slice(bytes);
            chiton_journal::seal_frames(&mut segment[from..]);
            let mut reader = SegmentReader::new(1, &segment).expect("a header");
            while let Some(frame) = reader.next() {
                let frame = frame.expect("whole frames");
                let end = reader.offset() as usize - from;
                let last = Position(frame.first.0 + u64::from(frame.header.event_count) - 1);
                let (session, seq) = (frame.header.session, frame.header.seq);
                self.frames.push(Written { session, seq, bytes: bytes[at..end].to_vec(), last });
                at = end;
            }
        }
        self.engine.frames_taken();
        self.engine.take_commands()
    }

    fn attr(&mut self, ino: Ino) -> Result<Attr, Refusal> {
        loop {
            match self.engine.namespace().attr(ino) {
                Ok(attr) => return Ok(attr),
                Err(Fault::Missing(needs)) => self.supply(&needs),
                Err(Fault::Refused(refusal)) => return Err(refusal),
                Err(fault) => panic!("{fault:?}"),
            }
        }
    }

    fn entries(&mut self, dir: Ino) -> Vec<(Name, Ino, Kind)> {
        loop {
            match self.engine.namespace().readdir(dir, 0, 1000) {
                Ok(listing) => {
                    return listing
                        .entries
                        .into_iter()
                        .map(|(name, ino, kind, _)| (name, ino, kind))
                        .collect();
                }
                Err(Fault::Missing(needs)) => self.supply(&needs),
                Err(fault) => panic!("{fault:?}"),
            }
        }
    }
}

impl Cluster {
    fn new(seed: u64, plate_count: u16, clients: usize) -> Cluster {
        let plates = Plates::new(SHARDS, plate_count).expect("plates have shards");
        let mono = Duration::from_secs(100);
        let nodes =
            plates.all().map(|plate| start(plate, plates, (Formatted::new(), Vec::new()), 1, mono)).collect();
        let mut random = Random(seed);
        let clients =
            (0..clients).map(|_| Client { sent: Vec::new(), ops_left: 6 + random.below(8) }).collect();
        let mut cluster = Cluster {
            plates,
            nodes,
            clients,
            links: BTreeMap::new(),
            down: BTreeSet::new(),
            dirs: vec![Ino::ROOT],
            random,
            seed,
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

    /// What the engine of a plate has to say.
    fn take(&mut self, at: usize) {
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
                        let node = &mut self.nodes[at];
                        node.engine.recall_done(holder, id, &node.m);
                    }
                    Command::Peer(to, _) if self.down.contains(&(at, usize::from(to.0))) => {}
                    Command::Peer(to, message) => {
                        self.links.entry((at, usize::from(to.0))).or_default().push_back(message);
                    }
                    Command::DropSession(..) => panic!("seed {}: a session ended", self.seed),
                    Command::Log(line) => panic!("seed {}: {line}", self.seed),
                }
            }
        }
    }

    fn ask(&mut self, client: usize, op: usize, again: Option<Again>) {
        let Sent { plate: at, seq, op: what, .. } = &self.clients[client].sent[op];
        let (at, call) = (*at, Call::Op { op: what.clone(), open: false });
        self.trace(|| format!("client {client} asks plate {at}: {call:?} again {again:?}"));
        let (cred, settled) = (Cred::ROOT, Seq(0));
        let request = Request { id: 1, seq: *seq, settled, epoch: Epoch(1), again, cred, call };
        let node = &mut self.nodes[at];
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
        }
        if let (Ok(Again { ino, .. }), Op::Make { make: Make::Dir, .. }) = (&answer, &sent.op)
            && !self.dirs.contains(ino)
        {
            self.dirs.push(*ino);
        }
        sent.first = sent.first.or(answer.ok());
        sent.answer = Some(answer);
        sent.is_settled = true;
        self.trace(|| trace);
    }

    /// A client's next operation.
    fn act(&mut self, client: usize) {
        let dir = self.dirs[self.random.below(self.dirs.len())];
        let mut name = || Name::new([b"a", b"b", b"c"][self.random.below(3)]).expect("a name");
        let (name, other) = (name(), name());
        let mode = Mode(0o755);
        let op = match self.random.below(9) {
            0..4 => Op::Make { parent: dir, name, make: Make::Dir, mode },
            4 => Op::Make { parent: dir, name, make: Make::File { content: Vec::new() }, mode },
            5 => Op::Unlink { parent: dir, name },
            6 => Op::Rename { from: dir, from_name: name, to: dir, to_name: other, how: RenameHow::Replace },
            _ => Op::Rmdir { parent: dir, name },
        };
        let plate = usize::from(self.plates.of(dir).expect("a plate").0);
        let sent = &mut self.clients[client].sent;
        let seq = Seq(1 + sent.iter().filter(|one| one.plate == plate).count() as u64);
        sent.push(Sent { plate, seq, op, answer: None, first: None, is_settled: false });
        let last = sent.len() - 1;
        self.clients[client].ops_left -= 1;
        self.ask(client, last, None);
    }

    fn is_busy(&self, client: usize) -> bool {
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
    fn checkpoint(&mut self, at: usize) {
        self.commit_all(at);
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

    fn commit_all(&mut self, at: usize) {
        self.take(at);
        let last = self.nodes[at].frames.last().map_or(Position(0), |frame| frame.last);
        self.commit(at, last);
    }

    /// A plate dies and starts anew: its journal keeps what was durable, and messages on their way are lost.
    fn crash(&mut self, at: usize) {
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
    fn step(&mut self) -> bool {
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

    fn check(&mut self) {
        let seed = self.seed;
        for (at, client) in self.clients.iter().enumerate() {
            let waiting: Vec<_> = self.nodes.iter().map(|node| node.engine.queue.waiting.waits()).collect();
            assert!(
                !self.is_busy(at) && client.ops_left == 0,
                "seed {seed}: client {at} waits for ever: {waiting:?}"
            );
        }
        for node in &self.nodes {
            let peers = node.engine.peers.as_ref().expect("several plates");
            let plate = node.plate;
            assert!(peers.guards.is_empty(), "seed {seed}: plate {plate} guards {:?}", peers.guards.keys());
            assert!(peers.crossings.is_empty(), "seed {seed}: plate {plate}: {:?}", peers.crossings.keys());
            assert!(peers.others.values().all(|peer| peer.owed.is_empty()), "seed {seed}: {plate} owes");
            assert!(
                peers.tasks.is_empty() && node.engine.queue.waiting.len() == 0,
                "seed {seed}: {plate} waits"
            );
        }
        for (at, client) in self.clients.iter().enumerate() {
            for sent in &client.sent {
                let id = session(at, sent.plate);
                let frames = self.nodes[sent.plate].frames.iter();
                let count = frames.filter(|frame| (frame.session, frame.seq) == (id, sent.seq)).count();
                let is_change = match &sent.answer {
                    Some(Ok(again)) => again.position != Position(0),
                    _ => false,
                };
                let what = &sent.op;
                assert_eq!(count, usize::from(is_change), "seed {seed}: {what:?}: {:?}", sent.answer);
            }
        }
        self.check_tree();
    }

    /// Every name has its inode, which knows its directory; no inode is without a name.
    fn check_tree(&mut self) {
        let seed = self.seed;
        let mut seen = BTreeSet::from([Ino::ROOT]);
        let mut todo = vec![Ino::ROOT];
        while let Some(dir) = todo.pop() {
            let at = usize::from(self.plates.of(dir).expect("a plate").0);
            let attr = self.nodes[at].attr(dir).expect("it was reached");
            let entries = self.nodes[at].entries(dir);
            let subdirectories = entries.iter().filter(|(_, _, kind)| *kind == Kind::Dir).count();
            assert_eq!(attr.nlink as usize, 2 + subdirectories, "seed {seed}: links of {dir}");
            for (name, ino, kind) in entries {
                let owner = usize::from(self.plates.of(ino).expect("a plate").0);
                let attr = self.nodes[owner].attr(ino);
                let attr = attr
                    .unwrap_or_else(|_| panic!("seed {seed}: {name:?} in {dir} bears {ino}, which is gone"));
                assert_eq!((attr.kind, attr.parent), (kind, dir), "seed {seed}: {name:?} in {dir}");
                assert!(seen.insert(ino), "seed {seed}: {ino} has two names");
                if kind == Kind::Dir {
                    todo.push(ino);
                }
            }
        }
        // A file over which another was renamed stays a while for those that have just looked it up.
        let named = |node: &mut Node| {
            let ns = node.engine.namespace();
            ns.inode_count() - ns.orphans().len() as u64
        };
        let count: u64 = self.nodes.iter_mut().map(named).sum();
        // Each plate's rows of an empty file system count the root, which the first owns.
        let roots = self.nodes.len() as u64 - 1;
        assert_eq!(count - roots, seen.len() as u64, "seed {seed}: an inode has no name");
    }

    /// Runs until nothing moves, with so many crashes and broken connections on the way.
    fn run(&mut self, mut crashes: usize, mut cuts: usize) {
        for _ in 0..20_000 {
            if cuts > 0 && self.random.below(40) == 0 {
                cuts -= 1;
                self.cut();
            }
            if crashes > 0 && self.random.below(40) == 0 {
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

fn check(seeds: std::ops::Range<u64>, plates: u16, clients: usize, (crashes, cuts): (usize, usize)) {
    for seed in seeds {
        let mut cluster = Cluster::new(seed, plates, clients);
        cluster.run(crashes, cuts);
        cluster.check();
    }
}

/// S117.
#[test]
fn operations_over_two_plates_are_whole() {
    check(0..300, 2, 1, (0, 0));
    check(300..600, 2, 3, (0, 0));
}

/// S117.
#[test]
fn operations_over_plates_are_whole_through_crashes() {
    check(1_000..2_000, 2, 1, (3, 0));
    check(80_000..84_000, 2, 3, (4, 0));
    check(200_000..202_000, 4, 3, (5, 0));
}

/// S117. The plates of several servers lose their connections without dying.
#[test]
fn operations_over_plates_are_whole_through_broken_connections() {
    check(300_000..302_000, 2, 3, (0, 6));
    check(400_000..402_000, 3, 3, (3, 6));
}

/// The effect brings the access lists with the inode.
#[test]
fn a_directory_born_elsewhere_inherits_the_default_list() {
    let mut cluster = Cluster::new(1, 2, 1);
    let mut list = 2u32.to_le_bytes().to_vec();
    // Owner, user 1000, group, mask, others.
    for (tag, permissions, id) in
        [(1u16, 7u16, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)]
    {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let set = Op::SetXattr {
        ino: Ino::ROOT,
        how: XattrHow::Set,
        name: b"system.posix_acl_default".to_vec(),
        value: list.clone(),
    };
    let name = |n: u8| Name::new(&[b'a' + n]).expect("a name");
    let make = |n| Op::Make { parent: Ino::ROOT, name: name(n), make: Make::Dir, mode: Mode(0o755) };
    for (at, op) in [set].into_iter().chain((0..8).map(make)).enumerate() {
        let sent = &mut cluster.clients[0].sent;
        sent.push(Sent {
            plate: 0,
            seq: Seq(at as u64 + 1),
            op,
            answer: None,
            first: None,
            is_settled: false,
        });
        cluster.ask(0, at, None);
        cluster.clients[0].ops_left = 0;
        cluster.run(0, 0);
    }
    cluster.check();
    let elsewhere: Vec<Ino> =
        cluster.dirs.iter().copied().filter(|ino| cluster.plates.of(*ino) == Some(PlateId(1))).collect();
    assert!(!elsewhere.is_empty(), "some of eight names are born on the other plate");
    for ino in elsewhere {
        let node = &mut cluster.nodes[1];
        let stored = loop {
            match node.engine.namespace().xattr(&Cred::ROOT, ino, b"system.posix_acl_default") {
                Err(Fault::Missing(needs)) => node.supply(&needs),
                stored => break stored,
            }
        };
        assert_eq!(stored, Ok(list.clone()), "{ino}");
    }
}

/// The answer to a mkdir is lost with its connection: sent again, it is answered with the same directory, wherever that is.
#[test]
fn a_repeated_mkdir_is_answered_with_its_directory() {
    let mut cluster = Cluster::new(1, 2, 1);
    cluster.clients[0].ops_left = 0;
    for n in 0..8 {
        let name = Name::new(&[b'a' + n]).expect("a name");
        let op = Op::Make { parent: Ino::ROOT, name, make: Make::Dir, mode: Mode(0o750) };
        let seq = Seq(u64::from(n) + 1);
        let sent = Sent { plate: 0, seq, op, answer: None, first: None, is_settled: false };
        cluster.clients[0].sent.push(sent);
        cluster.ask(0, usize::from(n), None);
        cluster.run(0, 0);
        // The answer must be the first again: the harness compares the numbers.
        cluster.ask(0, usize::from(n), Some(Again::default()));
    }
    let is_elsewhere = |ino: &Ino| cluster.plates.of(*ino) == Some(PlateId(1));
    assert!(cluster.dirs.iter().any(is_elsewhere), "some of eight names are born on the other plate");
    cluster.check();
}
