//! A client that returns when its session is over, moment by moment.

use std::time::Duration;

use chiton_model::{AttrChange, Body, Make, Op, Outcome, RenameHow};
use chiton_types::{Ino, Mode, Name, Position, SessionId, Time};
use chiton_wire::{Acknowledged, Again, Answer, Call, Content, Failure, LeaseMode, Query};

use crate::session_expiry::tests::{A, B, SESSION_MS, World};

/// The session that follows A's.
const C: SessionId = SessionId(13);

/// A client whose session ended while it was away, and the operations that a crash has taken from it.
struct Away {
    w: World,
    durable: Vec<u8>,
    ops: Vec<Op>,
    acknowledged: Vec<Acknowledged>,
    since: Position,
}

type Results = Vec<Result<(Position, Outcome), Failure>>;

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a name")
}

fn make(parent: Ino, of: &str) -> Op {
    let make = Make::File { content: Vec::new() };
    Op::Make { parent, name: name(of), make, mode: Mode(0o644) }
}

fn make_dir(of: &str) -> Op {
    Op::Make { parent: Ino::ROOT, name: name(of), make: Make::Dir, mode: Mode(0o755) }
}

fn write(ino: Ino, bytes: &str) -> Op {
    let (size, body) = (bytes.len() as u64, Body::Inline(bytes.as_bytes().to_vec()));
    Op::Write { ino, body, size, mtime: Time(5), kill_setid: false, hold: Default::default() }
}

fn rename(from: &str, to: &str) -> Op {
    let how = RenameHow::Replace;
    Op::Rename { from: Ino::ROOT, to: Ino::ROOT, how, from_name: name(from), to_name: name(to) }
}

fn unlink(of: &str) -> Op {
    Op::Unlink { parent: Ino::ROOT, name: name(of) }
}

fn chmod(ino: Ino, mode: u16) -> Op {
    let change = AttrChange { mode: Some(Mode(mode)), ..Default::default() };
    Op::SetAttr { ino, change }
}

impl World {
    /// The answer, for which all clients give back the leases that they are asked for.
    fn asks(&mut self, session: SessionId, call: Call) -> Result<Answer, Failure> {
        let ticket = match self.ask(session, None, call) {
            Ok(reply) => return reply.result,
            Err(ticket) => ticket,
        };
        for _ in 0..20 {
            [A, B, C].into_iter().for_each(|holder| self.gives_all_back(holder));
            if let Some(answer) = self.answered(ticket) {
                return answer;
            }
        }
        panic!("something is in the way")
    }

    fn gives_all_back(&mut self, holder: SessionId) {
        let Some(slot) = self.engine.clients.sessions.get(holder).map(|session| session.slot) else { return };
        for recall in self.engine.clients.leases.recalls_out(slot) {
            self.engine.recall_done(holder, recall.id, &self.m);
        }
        self.take();
    }

    fn does(&mut self, session: SessionId, op: Op) -> Outcome {
        match self.asks(session, Call::Op { op, open: false }) {
            Ok(Answer::Op { outcome, .. }) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn makes(&mut self, session: SessionId, of: &str) -> Ino {
        self.does(session, make(Ino::ROOT, of)).attr.expect("attributes").ino
    }

    fn bearer_in(&mut self, parent: Ino, of: &str) -> Option<Ino> {
        let lookup = Query::Lookup { parent, name: name(of) };
        match self.asks(B, Call::Query(lookup)) {
            Ok(Answer::Attr { attr, .. }) => Some(attr.ino),
            Ok(Answer::Absent { .. }) => None,
            other => panic!("{other:?}"),
        }
    }

    fn bearer(&mut self, of: &str) -> Option<Ino> {
        self.bearer_in(Ino::ROOT, of)
    }

    fn content(&mut self, ino: Ino) -> String {
        let map = Query::Map { ino, offset: 0, len: 100 };
        match self.asks(B, Call::Query(map)) {
            Ok(Answer::Map { content: Content::Inline(bytes), .. }) => {
                String::from_utf8(bytes).expect("text")
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Away {
    /// Begins with `w`, all of which is made durable.
    fn new(mut w: World) -> Away {
        w.all_durable();
        let durable = w.frames.clone();
        Away { w, durable, ops: Vec::new(), acknowledged: Vec::new(), since: Position(0) }
    }

    /// A file system with these files.
    fn with(files: &[&str]) -> (Away, Vec<Ino>) {
        let (mut w, _) = World::two();
        let inos = files.iter().map(|of| w.makes(B, of)).collect();
        (Away::new(w), inos)
    }

    /// A is answered, and the crash takes the operation. Returns the inode that it made.
    fn loses(&mut self, op: Op) -> Ino {
        let outcome = self.w.does(A, op.clone());
        let made = outcome.attr.filter(|_| matches!(op, Op::Make { .. })).map_or(Ino(0), |attr| attr.ino);
        self.ops.push(op);
        self.acknowledged.push(Acknowledged { ino: made, time: outcome.time, open: false });
        made
    }

    /// The server dies, comes back, and waits for A in vain.
    fn crash(&mut self) {
        let numbers = std::mem::take(&mut self.w.seq);
        self.w = World::start(self.durable.clone());
        self.w.seq = numbers;
        self.w.engine.resume_session(B, 7, 0, &self.w.m).expect("known");
        self.w.engine.recalls_connected(B, 7, &self.w.m).expect("known");
        let nothing = Call::Reopen { opens: vec![], locks: vec![], dirty: vec![], names: vec![] };
        self.w.ask(B, None, nothing).expect("answered").result.expect("declared");
        self.w.m.mono += Duration::from_secs(11);
        self.w.engine.clients.heard(B, &self.w.m);
        self.w.engine.tick(&self.w.m);
        self.w.all_durable();
        assert!(self.w.engine.recovery.is_none());
    }

    /// A's client begins another session.
    fn comes_back(&mut self) {
        self.w.engine.open_session(C, 7, "test", false, &self.w.m).expect("a session");
        let ended = self.w.ask(C, None, Call::Ended { session: A, secret: 7 }).expect("answered");
        match ended.result {
            Ok(Answer::CarriedOut { end, .. }) => self.since = end,
            other => panic!("{other:?}"),
        }
    }

    fn call(&self) -> Call {
        let (ops, acknowledged) = (self.ops.clone(), self.acknowledged.clone());
        Call::Late { since: self.since, ops, acknowledged }
    }

    /// It sends what was lost.
    fn sends(&mut self) -> Results {
        let call = self.call();
        results(self.w.asks(C, call))
    }

    fn returns(&mut self) -> Vec<bool> {
        self.comes_back();
        self.sends().iter().map(Result::is_ok).collect()
    }
}

fn results(answer: Result<Answer, Failure>) -> Results {
    match answer {
        Ok(Answer::Batch(results)) => results,
        other => panic!("{other:?}"),
    }
}

#[test]
fn lost_operations_that_nobody_contradicted_are_carried_out_as_they_were_answered() {
    let (mut away, old) = Away::with(&["old", "other"]);
    let a = away.loses(make(Ino::ROOT, "a"));
    away.loses(write(a, "one"));
    away.loses(rename("a", "b"));
    let dir = away.loses(make_dir("d"));
    let x = away.loses(make(dir, "x"));
    away.loses(write(x, "two"));
    away.loses(rename("b", "old"));
    away.loses(chmod(old[1], 0o600));
    away.crash();
    assert_eq!((away.w.bearer("old"), away.w.bearer("d")), (Some(old[0]), None), "lost");
    let z = away.w.makes(B, "z");
    assert!(![a, dir, x].contains(&z), "no number is used twice");
    away.comes_back();
    let first = away.sends();
    for (result, acknowledged) in first.iter().zip(&away.acknowledged) {
        let (_, outcome) = result.as_ref().expect("carried out");
        assert_eq!(outcome.time, acknowledged.time);
        assert!(
            acknowledged.ino == Ino(0)
                || outcome.attr.as_ref().is_some_and(|attr| attr.ino == acknowledged.ino)
        );
    }
    let w = &mut away.w;
    assert_eq!((w.bearer("old"), w.bearer("d"), w.bearer_in(dir, "x")), (Some(a), Some(dir), Some(x)));
    assert_eq!((w.content(a), w.content(x)), ("one".into(), "two".into()));
    assert_eq!((w.bearer("a"), w.bearer("b"), w.bearer("z")), (None, None, Some(z)));
}

/// S26: the connection breaks before the answer comes, or the server dies.
#[test]
fn late_operations_that_are_sent_twice_happen_once() {
    let (mut away, _) = Away::with(&[]);
    let a = away.loses(make(Ino::ROOT, "a"));
    away.loses(rename("a", "b"));
    away.loses(make(Ino::ROOT, "a"));
    away.crash();
    away.comes_back();
    let first = away.sends();
    let position = away.w.engine.position();
    away.w.seq.insert(C, 0);
    let again = away.sends();
    let positions =
        |results: &Results| results.iter().map(|r| r.as_ref().expect("done").0).collect::<Vec<_>>();
    assert_eq!(positions(&first), positions(&again));
    assert_eq!(away.w.engine.position(), position, "nothing happens");
    // Durable, and the server dies.
    away.w.all_durable();
    away.durable = away.w.frames.clone();
    away.w.seq.insert(C, 0);
    let (call, seq) = (away.call(), away.w.seq.clone());
    away.w = World::start(away.durable.clone());
    away.w.seq = seq;
    for session in [B, C] {
        away.w.engine.resume_session(session, 7, 0, &away.w.m).expect("known");
        let nothing = Call::Reopen { opens: vec![], locks: vec![], dirty: vec![], names: vec![] };
        away.w.ask(session, None, nothing).expect("answered").result.expect("declared");
    }
    let again = results(away.w.asks(C, call));
    assert_eq!(positions(&first), positions(&again));
    assert_eq!(away.w.bearer("b"), Some(a));
}

/// A new request waits until everything is sent again; late operations are no exception.
#[test]
fn late_operations_come_after_those_that_are_sent_again_in_the_window() {
    let (mut away, _) = Away::with(&[]);
    away.loses(make(Ino::ROOT, "a"));
    away.crash();
    away.comes_back();
    away.w.all_durable();
    let call = away.call();
    away.w = World::start(away.w.frames.clone());
    let nothing = Call::Reopen { opens: vec![], locks: vec![], dirty: vec![], names: vec![] };
    away.w.engine.resume_session(B, 7, 1, &away.w.m).expect("known");
    away.w.engine.resume_session(C, 7, 0, &away.w.m).expect("known");
    away.w.ask(C, None, nothing.clone()).expect("answered").result.expect("declared");
    let late = away.w.ask(C, None, call).expect_err("the window is open");
    let answered = Again { boot: 1, position: Position(90), ..Again::default() };
    let op = Call::Op { op: make(Ino::ROOT, "a"), open: false };
    away.w.seq.insert(B, 50);
    let resend = away.w.ask(B, Some(answered), op).expect_err("the window is open");
    away.w.ask(B, None, nothing).expect("answered").result.expect("declared");
    away.w.take();
    assert!(matches!(away.w.answered(resend), Some(Ok(Answer::Op { .. }))));
    assert!(results(away.w.answered(late).expect("answered"))[0].is_err());
}

#[test]
fn nothing_that_others_have_changed_since_is_overwritten() {
    type Change = fn(&mut World, Ino) -> Outcome;
    type Lost = fn(Ino) -> Op;
    let cases: &[(&str, Lost, Change)] = &[
        ("write after write", |f| write(f, "late"), |w, f| w.does(B, write(f, "kept"))),
        ("write after chmod", |f| write(f, "late"), |w, f| w.does(B, chmod(f, 0o640))),
        ("chmod after chmod", |f| chmod(f, 0o600), |w, f| w.does(B, chmod(f, 0o640))),
        ("unlink after write", |_| unlink("f"), |w, f| w.does(B, write(f, "kept"))),
        (
            "unlink after replacement",
            |_| unlink("f"),
            |w, _| {
                w.does(B, unlink("f"));
                w.does(B, make(Ino::ROOT, "f"))
            },
        ),
        ("rename over what was written", |_| rename("g", "f"), |w, f| w.does(B, write(f, "kept"))),
        ("rename after removal", |_| rename("g", "h"), |w, _| w.does(B, unlink("g"))),
        ("make after make", |_| make(Ino::ROOT, "n"), |w, _| w.does(B, make(Ino::ROOT, "n"))),
        ("rename after make", |_| rename("g", "n"), |w, _| w.does(B, make(Ino::ROOT, "n"))),
        (
            "make in a directory of another mode",
            |_| make(Ino::ROOT, "n"),
            |w, _| w.does(B, chmod(Ino::ROOT, 0o2777)),
        ),
    ];
    for (what, lost, change) in cases {
        let (mut away, inos) = Away::with(&["f", "g"]);
        away.w.does(B, chmod(Ino::ROOT, 0o777));
        away = Away::new(away.w);
        away.loses(lost(inos[0]));
        away.crash();
        change(&mut away.w, inos[0]);
        let position = away.w.engine.position();
        let before: Vec<_> = ["f", "g", "h", "n"].map(|of| away.w.bearer(of)).to_vec();
        assert_eq!(away.returns(), [false], "{what}");
        let after: Vec<_> = ["f", "g", "h", "n"].map(|of| away.w.bearer(of)).to_vec();
        assert_eq!(before, after, "{what}");
        // The session began, and the operation is refused for good.
        assert_eq!(away.w.engine.position(), Position(position.0 + 2), "{what}");
    }
}

#[test]
fn what_rests_on_a_contradicted_operation_is_lost_and_the_rest_is_not() {
    let (mut away, old) = Away::with(&["old", "log"]);
    let tmp = away.loses(make(Ino::ROOT, "tmp"));
    away.loses(write(tmp, "new"));
    let free = away.loses(make(Ino::ROOT, "free"));
    away.loses(write(old[1], "late"));
    away.loses(rename("tmp", "log"));
    // It would be the only copy.
    away.loses(unlink("old"));
    away.loses(write(free, "kept"));
    away.loses(make(Ino::ROOT, "more"));
    away.loses(unlink("free"));
    away.crash();
    away.w.does(B, write(old[1], "other"));
    assert_eq!(away.returns(), [true, true, true, false, false, false, true, true, true]);
    let w = &mut away.w;
    assert_eq!((w.bearer("log"), w.bearer("old"), w.bearer("tmp")), (Some(old[1]), Some(old[0]), Some(tmp)));
    assert_eq!(w.content(old[1]), "other");
    assert_eq!((w.bearer("free"), w.bearer("more").is_some()), (None, true));
}

/// The refusal does not reach the client, and the obstacle is removed meanwhile.
#[test]
fn contradicted_operation_stays_refused() {
    let (mut away, _) = Away::with(&[]);
    away.loses(make(Ino::ROOT, "a"));
    away.crash();
    away.w.makes(B, "a");
    assert_eq!(away.returns(), [false]);
    away.w.does(B, unlink("a"));
    away.w.seq.insert(C, 0);
    assert!(away.sends()[0].is_err());
    assert_eq!(away.w.bearer("a"), None);
}

/// A holder of an exclusive lease returns it first, with its buffered content.
#[test]
fn late_operation_waits_for_the_leases_of_others() {
    let (mut away, inos) = Away::with(&["f"]);
    away.loses(write(inos[0], "late"));
    away.crash();
    let lease = Call::Lease { ino: inos[0], mode: LeaseMode::Exclusive };
    assert!(away.w.ask(B, None, lease).expect("answered").result.is_ok());
    away.comes_back();
    let call = away.call();
    let late = away.w.ask(C, None, call).expect_err("B holds the content");
    away.w.does(B, write(inos[0], "kept"));
    away.w.gives_all_back(B);
    assert!(results(away.w.answered(late).expect("answered"))[0].is_err());
    assert_eq!(away.w.content(inos[0]), "kept");
}

/// A number of this start may still be granted to another client.
#[test]
fn file_whose_number_cannot_be_had_again_is_lost() {
    let (mut w, _) = World::two();
    w.all_durable();
    w.m.mono += Duration::from_millis(u64::from(SESSION_MS) + 1);
    w.engine.clients.heard(B, &w.m);
    w.engine.tick(&w.m);
    w.all_durable();
    let mut away = Away::new(w);
    let ino = Ino::new(Ino::ROOT.shard(), 1 << 19);
    away.ops.push(make(Ino::ROOT, "pending"));
    away.acknowledged.push(Acknowledged { ino, time: Time(1_000), open: false });
    assert_eq!(away.returns(), [false]);
    assert_eq!(away.w.bearer("pending"), None);
}
