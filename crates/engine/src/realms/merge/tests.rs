//! Twenty journals at once: each has its turn, and so has everybody else.

use std::collections::BTreeMap;
use std::time::Duration;

use chiton_model::{Event, Make, Op};
use chiton_namespace::Namespace;
use chiton_types::{
    Cred, Epoch, Ino, Kind, Mode, Name, PlateId, Plates, Position, RealmId, Seq, SessionId, Time,
};
use chiton_wire::{
    Answer, Call, Claim, LeaseMode, MERGE_EVENTS_MAX, MergeBatch, RealmAnswer, RealmCall, Reply, Request,
};

use super::PIECE_EVENTS;
use crate::engine::Engine;
use crate::formatted::Formatted;
use crate::moment::Moment;
use crate::rows::OwnRows;
use crate::settings::Settings;
use crate::step::{Command, Progress, Step};
use crate::wait_queue::Ticket;
use crate::{POSITION_KEY, position_value};

const JOURNALS: u64 = 20;
/// A session that has nothing to do with them.
const OTHER: SessionId = SessionId(99);
/// Bytes of an event and its share of a frame, at most.
const EVENT_BYTES: usize = 200;

struct Bench {
    engine: Engine,
    rows: Formatted,
    m: Moment,
    answers: BTreeMap<Ticket, Reply>,
    /// Sessions do not answer recalls of this inode.
    kept: Option<Ino>,
}

impl Bench {
    fn new() -> Bench {
        let rows = Formatted::new();
        let mut own = OwnRows { marks: vec![Ino::ROOT.counter() + 1], ..OwnRows::default() };
        own.take(POSITION_KEY, &position_value(Position(0))).expect("a row");
        let settings = Settings {
            session_ms: 30_000,
            grace_ms: 10_000,
            gone_ms: 10_000,
            lease_entries_max: 1_000,
            lease_rest_ms: 0,
            sessions_max: 100,
            dirty_rows_max: usize::MAX,
            epoch: Epoch(1),
            root: Ino::ROOT,
            shard_weights: vec![100],
            plate: PlateId(0),
            plates: Plates::one(1),
        };
        let m = Moment { mono: Duration::from_secs(100), now: Time(1_000), ..Moment::default() };
        let mut engine = Engine::from_rows(settings, Namespace::open(&rows).expect("opens"), own, &m);
        engine.begin(m.mono, &m);
        let mut bench = Bench { engine, rows, m, answers: BTreeMap::new(), kept: None };
        bench.settle();
        for id in (1..=JOURNALS).map(SessionId).chain([OTHER]) {
            bench.engine.open_session(id, 7, "test", false, &bench.m).expect("a session");
        }
        bench.settle();
        bench
    }

    fn supply(&mut self, needs: &[chiton_namespace::Need]) {
        self.rows.supply(&mut self.engine, needs);
    }

    fn take(&mut self) {
        self.engine.frames_taken();
        for command in self.engine.take_commands() {
            match command {
                Command::Reply(ticket, reply) => drop(self.answers.insert(ticket, reply)),
                Command::Recall(session, recall) if Some(recall.ino) != self.kept => {
                    self.engine.recall_done(session, recall.id, &self.m);
                }
                _ => {}
            }
        }
    }

    /// One run of the engine's own queue; false if there is nothing to do.
    fn run(&mut self) -> bool {
        match self.engine.run(&self.m) {
            Progress::Idle => return false,
            Progress::More => {}
            Progress::NeedRows(needs) => self.supply(&needs),
        }
        true
    }

    /// Everything is durable, and nothing is left to do.
    fn settle(&mut self) {
        self.m.durable = self.engine.position();
        self.engine.durable_advanced(&self.m);
        while self.run() {}
        self.take();
        self.m.durable = self.engine.position();
    }

    fn ask(&mut self, session: SessionId, seq: u64, call: Call) -> Result<Reply, Ticket> {
        let (again, cred, settled) = (None, Cred::ROOT, Seq(0));
        let request = Request { id: 1, seq: Seq(seq), settled, epoch: Epoch(1), again, cred, call };
        let mut step = self.engine.request(session, request, &self.m);
        loop {
            match step {
                Step::Done(reply) => return Ok(reply),
                Step::Waiting(ticket) => return Err(ticket),
                Step::NeedRows(task, needs) => {
                    self.supply(&needs);
                    step = self.engine.retry(task, &self.m);
                }
            }
        }
    }

    fn make(&mut self, session: SessionId, seq: u64, make: Make) -> Ino {
        self.make_in(Ino::ROOT, session, seq, make)
    }

    fn make_in(&mut self, parent: Ino, session: SessionId, seq: u64, make: Make) -> Ino {
        let name = name(&format!("{}-{seq}", session.0));
        let op = Op::Make { parent, name, make, mode: Mode(0o755) };
        let reply = self.ask(session, seq, Call::Op { op, open: false }).expect("answered at once");
        match reply.result {
            Ok(Answer::Op { outcome, .. }) => outcome.attr.expect("attributes").ino,
            other => panic!("{other:?}"),
        }
    }

    /// A directory of the session's own, decoupled, and the first of its numbers.
    fn decouple(&mut self, session: SessionId) -> (Claim, Ino, Ino) {
        let root = self.make(session, 1, Make::Dir);
        let (claim, first) = self.decouple_dir(session, root);
        (claim, root, first)
    }

    fn decouple_dir(&mut self, session: SessionId, root: Ino) -> (Claim, Ino) {
        self.settle();
        self.engine.add_writer(SessionId(1_000 + session.0));
        let policy = format!("consistency: weak\ndurability: local\nallocated_inodes: {MERGE_EVENTS_MAX}\n");
        let call = RealmCall::Decouple {
            root,
            branch: None,
            nonce: session.0,
            journal_at: String::new(),
            policy: policy.into_bytes(),
        };
        let reply = match self.ask(session, 0, Call::Realm(Box::new(call))) {
            Ok(reply) => reply,
            Err(ticket) => {
                self.settle();
                self.answers.remove(&ticket).expect("it is durable")
            }
        };
        match reply.result {
            Ok(Answer::Realm(RealmAnswer::Granted(granted))) => (granted.claim, granted.ranges[0].0),
            other => panic!("{other:?}"),
        }
    }

    /// Events of each journal that are merged.
    fn merged(&mut self, realms: &[RealmId]) -> Vec<u64> {
        let ns = self.engine.namespace();
        let done = |id: &RealmId| {
            let state = ns.decoupling(*id).expect("there").state;
            state.batch.map_or(state.merged.0, |(_, done)| done)
        };
        realms.iter().map(done).collect()
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn merge_call(claim: Claim, root: Ino, first: Ino) -> Call {
    merge_call_of(MERGE_EVENTS_MAX as u64, claim, root, first)
}

/// So many files are made.
fn merge_call_of(count: u64, claim: Claim, root: Ino, first: Ino) -> Call {
    let mut events = Vec::new();
    for n in 0..count {
        let event = Event::Make {
            parent: root,
            name: name(&format!("f{n}")),
            ino: Ino(first.0 + n),
            kind: Kind::File,
            mode: Mode(0o644),
            uid: 0,
            gid: 0,
            rdev: 0,
            time: Time(5),
            content: Vec::new(),
        };
        event.encode(&mut events);
    }
    let batch = MergeBatch { after: Position(0), upto: Position(count) };
    let count = count as u32;
    Call::Realm(Box::new(RealmCall::Merge { claim, batch, from: 0, count, events, last: true, blind: false }))
}

#[test]
fn twenty_merges_take_turns_and_others_wait_for_one_piece_at_most() {
    let mut bench = Bench::new();
    let granted: Vec<_> = (1..=JOURNALS).map(|n| bench.decouple(SessionId(n))).collect();
    let realms: Vec<RealmId> = granted.iter().map(|(claim, ..)| claim.realm).collect();
    let mut tickets = Vec::new();
    for (n, (claim, root, first)) in (1..=JOURNALS).zip(&granted) {
        let call = merge_call(*claim, *root, *first);
        tickets.push(bench.ask(SessionId(n), 0, call).expect_err("it has more than one piece"));
        bench.take();
    }
    let all = MERGE_EVENTS_MAX as u64;
    let left: u64 = bench.merged(&realms).iter().map(|done| (all - done).div_ceil(PIECE_EVENTS)).sum();
    let (mut pieces, mut answered) = (0, 0);
    loop {
        // A request between two pieces is answered at once.
        answered += 1;
        bench.make(OTHER, answered, Make::File { content: Vec::new() });
        let before = bench.merged(&realms);
        if !bench.run() {
            break;
        }
        let after = bench.merged(&realms);
        let gone_on = || before.iter().zip(&after).filter(|(before, after)| before != after);
        assert!(gone_on().count() <= 1, "{before:?}, {after:?}: one piece in a run");
        assert!(gone_on().all(|(before, after)| after - before <= PIECE_EVENTS));
        pieces += gone_on().count() as u64;
        let (least, most) = (after.iter().min().expect("twenty"), after.iter().max().expect("twenty"));
        assert!(most - least <= PIECE_EVENTS, "{after:?}: nobody is more than a piece ahead");
        let frames = bench.engine.frames().0.len();
        assert!(frames <= (PIECE_EVENTS as usize + 2) * EVENT_BYTES, "{frames} bytes of frames");
        bench.take();
    }
    bench.take();
    assert_eq!(bench.merged(&realms), vec![all; JOURNALS as usize]);
    assert!(left > JOURNALS * 5, "{left} pieces were left to do in turns");
    assert_eq!(pieces, left);
    assert!(answered > pieces);
    assert!(tickets.iter().all(|ticket| bench.answers.contains_key(ticket)));
}

/// S70: a merge puts a directory back that another client removed. It is not answered before clients know that its parent has changed,
/// which nobody could foresee.
#[test]
fn merge_is_answered_when_all_leases_on_what_it_changed_are_given_back() {
    let mut bench = Bench::new();
    let (session, seq) = (SessionId(1), 1);
    let root = bench.make(session, seq, Make::Dir);
    let dir = bench.make_in(root, session, seq + 1, Make::Dir);
    let (claim, first) = bench.decouple_dir(session, root);
    // The first session holds everything until the second one asks.
    for id in [SessionId(2), OTHER] {
        bench.engine.recalls_connected(id, 7, &bench.m).expect("connected");
        bench.settle();
    }
    let rmdir = Op::Rmdir { parent: root, name: name("1-2") };
    bench.ask(OTHER, 1, Call::Op { op: rmdir, open: false }).expect("at once").result.expect("removed");
    let lease = bench.ask(OTHER, 0, Call::Lease { ino: root, mode: LeaseMode::Shared }).expect("at once");
    assert!(matches!(lease.result, Ok(Answer::Lease { mode: LeaseMode::Shared, .. })), "{lease:?}");
    bench.kept = Some(root);
    let ticket = bench.ask(session, 0, merge_call_of(1, claim, dir, first)).expect_err("leases are out");
    // Those are given back that the server could foresee.
    for _ in 0..3 {
        bench.settle();
    }
    assert_eq!(bench.merged(&[claim.realm]), [1]);
    assert!(
        !bench.answers.contains_key(&ticket),
        "the other client still believes that there is no such name"
    );
    bench.engine.end_session(OTHER, &bench.m);
    bench.settle();
    let answer = &bench.answers[&ticket];
    assert!(matches!(&answer.result, Ok(Answer::Realm(RealmAnswer::Merged(_)))), "{answer:?}");
}
