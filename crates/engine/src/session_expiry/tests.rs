//! The end of a silent session, moment by moment.

use std::collections::BTreeMap;
use std::time::Duration;

use chiton_journal::{SegmentHeader, SegmentReader};
use chiton_model::{Body, Make, Op, XattrHow};
use chiton_namespace::Namespace;
use chiton_types::{Cred, Epoch, Ino, Mode, Name, PlateId, Plates, Position, Refusal, Seq, SessionId, Time};
use chiton_wire::{
    Again, Answer, Call, Failure, LeaseMode, Lock, LockKind, Query, RefuseReason, Reply, Request,
};

use crate::engine::Engine;
use crate::formatted::Formatted;
use crate::moment::{Health, Moment};
use crate::rows::OwnRows;
use crate::settings::Settings;
use crate::step::{Command, Progress, Step};
use crate::wait_queue::Ticket;
use crate::{POSITION_KEY, position_value};

pub(crate) const SESSION_MS: u32 = 30_000;
pub(crate) const A: SessionId = SessionId(11);
pub(crate) const B: SessionId = SessionId(12);
const FILE: &[u8] = b"file";

/// An engine on a formatted store, its journal, and the time.
pub(crate) struct World {
    pub(crate) engine: Engine,
    rows: Formatted,
    pub(crate) frames: Vec<u8>,
    pub(crate) m: Moment,
    answers: BTreeMap<Ticket, Reply>,
    dropped: Vec<(SessionId, Position)>,
    pub(crate) seq: BTreeMap<SessionId, u64>,
}

fn settings() -> Settings {
    Settings {
        session_ms: SESSION_MS,
        grace_ms: 10_000,
        gone_ms: 10_000,
        lease_entries_max: 1000,
        lease_rest_ms: 0,
        sessions_max: 10,
        dirty_rows_max: 100_000,
        epoch: Epoch(1),
        root: chiton_types::Ino::ROOT,
        shard_weights: vec![100],
        plate: PlateId(0),
        plates: Plates::one(1),
    }
}

impl World {
    /// A formatted store, and a journal of an earlier life.
    pub(crate) fn start(frames: Vec<u8>) -> World {
        let rows = Formatted::new();
        let mut own = OwnRows { marks: vec![Ino::ROOT.counter() + 1], ..OwnRows::default() };
        own.take(POSITION_KEY, &position_value(Position(0))).expect("a row");
        let m = Moment { mono: Duration::from_secs(100), now: Time(1_000), ..Moment::default() };
        let ns = Namespace::open(&rows).expect("opens");
        let engine = Engine::from_rows(settings(), ns, own, &m);
        let (answers, dropped, seq) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut world = World { engine, rows, frames: frames.clone(), m, answers, dropped, seq };
        let (first, durable) = (Position(1), Position(0));
        let header = SegmentHeader {
            is_claim: false,
            journal: 1,
            nonce: 1,
            epoch: Epoch(1),
            segment: 1,
            first,
            durable,
        };
        let mut segment = header.encode();
        let mut sealed = frames;
        chiton_journal::seal_frames(&mut sealed);
        segment.extend_from_slice(&sealed);
        for frame in SegmentReader::new(1, &segment).expect("a header") {
            let frame = frame.expect("whole frames");
            while let Err(fault) = world.engine.replay(&frame.header, frame.first, frame.payload, false, &m) {
                let crate::ReplayFault::Missing(needs) = fault else { panic!("{fault:?}") };
                world.supply(&needs);
            }
        }
        world.engine.begin(m.mono, &m);
        world.all_durable();
        world
    }

    /// Two sessions that may hold leases, and a file.
    pub(crate) fn two() -> (World, Ino) {
        let mut w = World::start(Vec::new());
        for id in [A, B] {
            w.engine.open_session(id, 7, "test", false, &w.m).expect("a session");
            w.engine.recalls_connected(id, 7, &w.m).expect("known");
        }
        let ino = w.make(A);
        w.all_durable();
        (w, ino)
    }

    fn supply(&mut self, needs: &[chiton_namespace::Need]) {
        self.rows.supply(&mut self.engine, needs);
    }

    pub(crate) fn take(&mut self) {
        loop {
            match self.engine.run(&self.m) {
                Progress::Idle => break,
                Progress::More => {}
                Progress::NeedRows(needs) => self.supply(&needs),
            }
        }
        self.frames.extend_from_slice(self.engine.frames().0);
        self.engine.frames_taken();
        for command in self.engine.take_commands() {
            match command {
                Command::Reply(ticket, reply) => drop(self.answers.insert(ticket, reply)),
                Command::DropSession(session, position) => self.dropped.push((session, position)),
                Command::Recall(..) | Command::Peer(..) | Command::Log(_) | Command::Denied(_) => {}
            }
        }
    }

    /// Asks; the answer, or the ticket it will come under.
    pub(crate) fn ask(
        &mut self,
        session: SessionId,
        again: Option<Again>,
        call: Call,
    ) -> Result<Reply, Ticket> {
        let seq = match &call {
            Call::Op { .. } | Call::Late { .. } => {
                let last = self.seq.entry(session).or_default();
                let first = *last + 1;
                *last += call.ops().len() as u64;
                Seq(first)
            }
            _ => Seq(0),
        };
        let (cred, settled) = (Cred::ROOT, Seq(0));
        let request = Request { id: 1, seq, settled, epoch: Epoch(1), again, cred, call };
        let mut step = self.engine.request(session, request, &self.m);
        let result = loop {
            match step {
                Step::Done(reply) => break Ok(reply),
                Step::Waiting(ticket) => break Err(ticket),
                Step::NeedRows(task, needs) => {
                    self.supply(&needs);
                    step = self.engine.retry(task, &self.m);
                }
            }
        };
        self.take();
        result
    }

    pub(crate) fn make(&mut self, session: SessionId) -> Ino {
        let make = Make::File { content: Vec::new() };
        let op =
            Op::Make { parent: Ino::ROOT, name: Name::new(FILE).expect("a name"), make, mode: Mode(0o644) };
        let reply = self.ask(session, None, Call::Op { op, open: true }).expect("answered");
        match reply.result {
            Ok(Answer::Op { outcome, .. }) => outcome.attr.expect("attributes").ino,
            other => panic!("{other:?}"),
        }
    }

    /// `session` wants to write, which takes A's lease; it waits.
    pub(crate) fn wants(&mut self, session: SessionId, ino: Ino) -> Ticket {
        let call = Call::Lease { ino, mode: LeaseMode::Exclusive };
        self.ask(session, None, call).expect_err("the other holds it")
    }

    fn lock(&mut self, session: SessionId, ino: Ino) -> Result<Reply, Ticket> {
        let lock = Lock { ino, owner: 1, start: 0, end: 9, kind: LockKind::Write, pid: 1, flock: false };
        self.ask(session, None, Call::SetLock { lock, wait: true })
    }

    /// Only the others are heard from; A's time is over.
    pub(crate) fn silence(&mut self) {
        self.m.mono += Duration::from_millis(u64::from(SESSION_MS) + 1);
        self.engine.clients.heard(B, &self.m);
        // The first ends it; nothing of it may be given away by the next.
        for _ in 0..2 {
            self.engine.tick(&self.m);
            self.take();
        }
    }

    /// The journal's thread got as far as this.
    fn durable_up_to(&mut self, position: Position) {
        self.m.durable = position;
        self.engine.durable_advanced(&self.m);
        self.take();
    }

    pub(crate) fn all_durable(&mut self) {
        self.take();
        self.durable_up_to(self.engine.position());
    }

    pub(crate) fn answered(&self, ticket: Ticket) -> Option<Result<Answer, Failure>> {
        self.answers.get(&ticket).map(|reply| reply.result.clone())
    }
}

#[test]
fn a_silent_holders_lease_and_lock_are_given_away_only_when_its_end_is_durable() {
    let (mut w, ino) = World::two();
    assert!(w.lock(A, ino).expect("free").result.is_ok());
    let lease = w.wants(B, ino);
    let lock = w.lock(B, ino).expect_err("A has it");
    let before = w.engine.position();
    w.silence();
    let end = w.engine.position();
    assert_eq!(end, before.next(), "one event: the end");
    assert_eq!(w.engine.durable_wanted(), Some(end), "somebody asks for the commit");
    // A itself hears at once that it must come again, and that it is over only when a crash cannot bring it back.
    let ping = w.ask(A, None, Call::Ping).expect("answered");
    assert_eq!(ping.result, Err(Failure::SessionGone));
    assert_eq!(w.engine.resume_session(A, 7, 0, &w.m), Err(RefuseReason::NotReady));
    // The clock alone gives nothing away, nor does a commit that ends just before.
    w.m.mono += Duration::from_secs(3600);
    w.engine.clients.heard(B, &w.m);
    w.engine.tick(&w.m);
    w.durable_up_to(before);
    assert_eq!((w.answered(lease), w.answered(lock)), (None, None));
    w.durable_up_to(end);
    assert!(matches!(w.answered(lease), Some(Ok(Answer::Lease { mode: LeaseMode::Exclusive, .. }))));
    assert_eq!(w.answered(lock), Some(Ok(Answer::Done)));
    assert_eq!(w.engine.resume_session(A, 7, 0, &w.m), Err(RefuseReason::SessionGone));
    assert_eq!(w.engine.durable_wanted(), None);
}

#[test]
fn a_session_that_says_goodbye_gives_way_at_once() {
    let (mut w, ino) = World::two();
    let lease = w.wants(B, ino);
    let durable = w.m.durable;
    w.ask(A, None, Call::Bye).expect("answered").result.expect("done");
    assert!(matches!(w.answered(lease), Some(Ok(Answer::Lease { mode: LeaseMode::Exclusive, .. }))));
    assert!(w.engine.position() > durable, "its end is not durable yet");
}

#[test]
fn a_crash_before_the_end_is_durable_finds_one_holder() {
    let (mut w, ino) = World::two();
    assert!(w.lock(A, ino).expect("free").result.is_ok());
    w.all_durable();
    let durable = w.frames.clone();
    let lock = w.lock(B, ino).expect_err("A has it");
    w.silence();
    assert_eq!(w.answered(lock), None);
    // Only durable state is left; A comes back and declares its leases.
    let mut w = World::start(durable);
    w.engine.resume_session(A, 7, 0, &w.m).expect("known again");
    let held = Lock { ino, owner: 1, start: 0, end: 9, kind: LockKind::Write, pid: 1, flock: false };
    let declared = w.ask(
        A,
        None,
        Call::Reopen { opens: vec![(ino, 1)], locks: vec![held], dirty: vec![], names: vec![] },
    );
    assert_eq!(declared.expect("answered").result, Ok(Answer::Done));
    w.engine.resume_session(B, 7, 0, &w.m).expect("known again");
    w.take();
    w.lock(B, ino).expect_err("A has it, and only A");
}

#[test]
fn an_orphan_that_a_silent_session_has_open_is_freed_only_when_its_end_is_durable() {
    let (mut w, ino) = World::two();
    let op = Op::Unlink { parent: Ino::ROOT, name: Name::new(FILE).expect("a name") };
    let ticket = w.ask(B, None, Call::Op { op, open: false });
    let ticket = ticket.expect_err("A holds the lease on the new file");
    let slot = w.engine.clients.sessions.get(A).expect("A").slot;
    for recall in w.engine.clients.leases.recalls_out(slot) {
        w.engine.recall_done(A, recall.id, &w.m);
    }
    w.take();
    assert!(matches!(w.answered(ticket), Some(Ok(_))));
    w.all_durable();
    w.silence();
    for _ in 0..3 {
        assert_eq!(w.engine.run_background(&w.m), Progress::Idle);
    }
    assert_eq!(w.engine.shards.orphans.len(), 1);
    w.all_durable();
    while w.engine.run_background(&w.m) != Progress::Idle {}
    assert_eq!(w.engine.shards.orphans.len(), 0);
    let gone = w.ask(B, None, Call::Query(Query::GetAttr { ino })).expect("answered");
    assert_eq!(gone.result, Err(Failure::Refused(Refusal::Stale)));
}

#[test]
fn blocks_of_an_ended_session_are_looked_at_only_past_its_end() {
    let (mut w, ino) = World::two();
    let op = Op::Write {
        ino,
        body: Body::Inline(b"x".to_vec()),
        size: 1,
        mtime: Time(5),
        kill_setid: false,
        hold: Default::default(),
    };
    let _ = w.ask(A, None, Call::Op { op, open: false });
    let before = w.engine.position();
    w.silence();
    assert_eq!(w.dropped, [(A, before.next())]);
}

#[test]
fn a_session_that_misses_the_recovery_window_keeps_it_closed_until_its_end_is_durable() {
    let (mut w, ino) = World::two();
    w.all_durable();
    let mut w = World::start(w.frames);
    w.engine.resume_session(B, 7, 0, &w.m).expect("known");
    let nothing = Call::Reopen { opens: vec![], locks: vec![], dirty: vec![], names: vec![] };
    w.ask(B, None, nothing).expect("declared");
    let lock = w.lock(B, ino).expect_err("the window is open");
    w.m.mono += Duration::from_secs(11);
    let before = w.engine.position();
    w.engine.tick(&w.m);
    w.take();
    assert_eq!(w.engine.position(), before.next(), "A ended");
    w.engine.tick(&w.m);
    w.take();
    assert_eq!((w.engine.position(), w.answered(lock)), (before.next(), None));
    w.all_durable();
    assert_eq!(w.answered(lock), Some(Ok(Answer::Done)));
}

#[test]
fn on_a_journal_that_failed_nobody_waits_for_an_end() {
    let (mut w, ino) = World::two();
    let lease = w.wants(B, ino);
    w.silence();
    w.m.health = Health::Full;
    w.engine.tick(&w.m);
    w.take();
    assert_eq!(w.answered(lease), None, "there may be space again");
    w.m.health = Health::Failed;
    w.engine.tick(&w.m);
    w.take();
    assert_eq!(w.answered(lease), Some(Err(Failure::Refused(Refusal::Io))));
}

#[test]
fn who_waits_to_be_answered_what_he_sends_again_is_not_silent() {
    let (mut w, ino) = World::two();
    w.m.health = Health::Full;
    let op = Op::SetXattr { ino, name: b"user.a".to_vec(), value: b"1".to_vec(), how: XattrHow::Set };
    let again = Some(Again { position: w.engine.position(), ..Again::default() });
    let waits = w.ask(A, again, Call::Op { op, open: false }).expect_err("there is no space for it");
    w.silence();
    assert_eq!(w.answered(waits), None);
    assert!(w.engine.resume_session(A, 7, 1, &w.m).is_ok(), "known");
    w.m.mono += Duration::from_millis(u64::from(SESSION_MS) + 1);
    w.engine.tick(&w.m);
    w.take();
    assert!(w.engine.resume_session(B, 7, 0, &w.m).is_err(), "B was silent");
    assert!(w.engine.resume_session(A, 7, 1, &w.m).is_ok(), "still known");
}
