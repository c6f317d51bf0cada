//! Declarations of clients after a restart, moment by moment.

use std::time::Duration;

use chiton_model::{Body, Hold, Make, Op};
use chiton_types::{Ino, Mode, Name, Position, Refusal, Seq, Time};
use chiton_wire::{Acknowledged, Again, Answer, Call, Content, Failure, LeaseMode, Query, RefuseReason};

use crate::Ticket;
use crate::session_expiry::tests::{A, B, SESSION_MS, World};

/// Two sessions and a file, restarted.
fn restarted() -> (World, Ino) {
    let (mut w, ino) = World::two();
    w.all_durable();
    let mut w = World::start(w.frames);
    w.m.mono += Duration::from_millis(10);
    (w, ino)
}

fn declaration(dirty: &[Ino], names: &[Ino]) -> Call {
    Call::Reopen { opens: Vec::new(), locks: Vec::new(), dirty: dirty.to_vec(), names: names.to_vec() }
}

impl World {
    /// A session comes back, and can be asked for leases.
    fn back(&mut self, session: chiton_types::SessionId, resends: u32) {
        self.engine.resume_session(session, 7, resends, &self.m).expect("known");
        self.engine.recalls_connected(session, 7, &self.m).expect("known");
    }

    fn declares(&mut self, session: chiton_types::SessionId, dirty: &[Ino], names: &[Ino]) {
        let reply = self.ask(session, None, declaration(dirty, names)).expect("answered");
        assert_eq!(reply.result, Ok(Answer::Done));
    }

    /// Gives back all that the session is asked for.
    fn gives_back(&mut self, session: chiton_types::SessionId) -> usize {
        let slot = self.engine.clients.sessions.get(session).expect("there").slot;
        let recalls = self.engine.clients.leases.recalls_out(slot);
        for recall in &recalls {
            self.engine.recall_done(session, recall.id, &self.m);
        }
        self.take();
        recalls.len()
    }
}

fn write(ino: Ino, bytes: &[u8]) -> Call {
    let (size, body) = (bytes.len() as u64, Body::Inline(bytes.to_vec()));
    Call::Op {
        op: Op::Write { ino, body, size, mtime: Time(5), kill_setid: false, hold: Default::default() },
        open: false,
    }
}

fn answered_at(position: u64) -> Option<Again> {
    Some(Again { boot: 1, position: Position(position), ..Again::default() })
}

fn is_ok(answer: Option<Result<Answer, Failure>>) -> bool {
    matches!(answer, Some(Ok(_)))
}

/// S2: the content is lent to nobody before the declarer has handed over what it had buffered.
#[test]
fn a_declared_file_is_lent_to_others_only_when_its_declarer_gives_it_back() {
    let (mut w, ino) = restarted();
    w.back(A, 0);
    w.back(B, 0);
    w.declares(A, &[ino], &[]);
    let lease =
        w.ask(B, None, Call::Lease { ino, mode: LeaseMode::Exclusive }).expect_err("the window is open");
    let read = w.ask(B, None, Call::Query(Query::Map { ino, offset: 0, len: 10 })).expect_err("as above");
    w.declares(B, &[], &[]);
    w.take();
    assert!(w.engine.recovery.is_none(), "all have declared");
    assert_eq!((w.answered(lease), w.answered(read)), (None, None));
    // A pushes, as its recall asks, and is not held up by waiting requests.
    let pushed = w.ask(A, None, write(ino, b"appended")).expect("answered");
    assert!(pushed.result.is_ok(), "{pushed:?}");
    assert!(w.gives_back(A) > 0);
    assert!(is_ok(w.answered(lease)) || is_ok(w.answered(read)));
}

#[test]
fn the_window_ends_when_all_have_declared_and_not_when_they_were_greeted() {
    let (mut w, ino) = restarted();
    w.back(A, 0);
    w.back(B, 0);
    let look = w.ask(B, None, Call::Query(Query::GetAttr { ino })).expect_err("the window is open");
    w.ask(A, None, Call::Ping).expect("answered");
    w.declares(B, &[], &[]);
    assert_eq!(w.answered(look), None, "A has said something, but not what it holds");
    w.declares(A, &[], &[]);
    w.take();
    assert!(is_ok(w.answered(look)));
}

/// S26: a client that has not declared by then has lost its session.
#[test]
fn a_session_that_does_not_declare_in_time_is_over() {
    let (mut w, ino) = restarted();
    w.back(A, 0);
    w.back(B, 0);
    w.declares(B, &[ino], &[]);
    w.m.mono += Duration::from_secs(11);
    w.engine.clients.heard(B, &w.m);
    w.engine.tick(&w.m);
    w.take();
    assert_eq!(w.engine.resume_session(A, 7, 0, &w.m), Err(RefuseReason::NotReady), "its end is not durable");
    w.all_durable();
    assert_eq!(w.engine.resume_session(A, 7, 0, &w.m), Err(RefuseReason::SessionGone));
    let late = w.ask(A, None, declaration(&[ino], &[])).expect("answered");
    assert_eq!(late.result, Err(Failure::SessionGone), "a later declaration is refused");
    assert!(w.engine.recovery.is_none());
}

/// S4, S26: answered operations took place before all declared ones; unanswered operations wait as new ones do.
#[test]
fn answered_resends_pass_a_declared_lease_and_unanswered_ones_wait_for_it() {
    let (mut w, ino) = restarted();
    w.back(A, 0);
    w.back(B, 2);
    let chmod = |mode: u16| {
        let change = chiton_model::AttrChange { mode: Some(Mode(mode)), ..Default::default() };
        Call::Op { op: Op::SetAttr { ino, change }, open: false }
    };
    let answered = w.ask(B, answered_at(90), chmod(0o600)).expect_err("collected");
    let unanswered = w.ask(B, Some(Again::default()), chmod(0o640)).expect_err("collected");
    w.declares(A, &[ino], &[]);
    w.declares(B, &[], &[]);
    w.take();
    assert!(is_ok(w.answered(answered)), "{:?}", w.answered(answered));
    assert_eq!(w.answered(unanswered), None);
    assert!(
        w.engine.recovery.is_none() && w.engine.clients.resends.tasks.is_empty(),
        "the window does not wait for it"
    );
    assert_eq!(w.gives_back(A), 1);
    assert!(is_ok(w.answered(unanswered)));
}

/// S1, S4: no other client gets the names of pending operations, also when these were sent again.
#[test]
fn directory_with_pending_operations_stays_its_declarers_after_they_are_sent_again() {
    let (mut w, _) = restarted();
    w.back(A, 1);
    w.back(B, 0);
    w.declares(B, &[], &[]);
    let name = Name::new(b"pending").expect("a name");
    let make = Make::File { content: Vec::new() };
    let op = Op::Make { parent: Ino::ROOT, name: name.clone(), make, mode: Mode(0o644) };
    let mark = w.engine.shards.marks_at_start[0];
    let acknowledged =
        Acknowledged { ino: Ino::new(Ino::ROOT.shard(), mark - 1), time: Time(1_000), open: false };
    let pending = Call::WriteBehind { ops: vec![op.clone()], acknowledged: vec![acknowledged] };
    w.declares(A, &[], &[Ino::ROOT]);
    let pending = w.ask_numbered(A, Seq(9), Some(Again::default()), pending);
    let look = w.ask(B, None, Call::Query(Query::Lookup { parent: Ino::ROOT, name }));
    w.take();
    assert!(is_ok(w.answered(pending)), "{:?}", w.answered(pending));
    let look = look.expect_err("A has not heard yet that its operation is carried out");
    assert_eq!(w.answered(look), None);
    assert!(w.gives_back(A) > 0);
    assert!(matches!(w.answered(look), Some(Ok(Answer::Attr { .. }))));
}

/// An operation was carried out, others were answered on top of it, and its own answer was lost: it is sent again as one that was
/// never answered, and goes before those that rest on it.
#[test]
fn an_answered_resend_finds_the_unanswered_one_that_it_rests_on() {
    let (mut w, _) = World::two();
    let name = || Name::new(b"x").expect("a name");
    let make = |mode| {
        let make = Make::File { content: Vec::new() };
        Call::Op { op: Op::Make { parent: Ino::ROOT, name: name(), make, mode: Mode(mode) }, open: false }
    };
    assert!(w.ask(A, None, make(0o600)).expect("answered").result.is_ok());
    w.all_durable();
    let mut w = World::start(w.frames);
    w.back(A, 1);
    w.back(B, 1);
    let made = w.ask_numbered(A, Seq(9), answered_at(90), make(0o644));
    let removal = Call::Op { op: Op::Unlink { parent: Ino::ROOT, name: name() }, open: false };
    let removed = w.ask_numbered(B, Seq(10), Some(Again { boot: 1, ..Again::default() }), removal);
    w.declares(A, &[], &[]);
    w.declares(B, &[], &[]);
    w.take();
    let (made, removed) = (w.answered(made), w.answered(removed));
    assert!(is_ok(made.clone()) && is_ok(removed.clone()), "each as it was: {made:?}, {removed:?}");
    let look = w.ask(B, None, Call::Query(Query::Lookup { parent: Ino::ROOT, name: name() }));
    match look.expect("answered").result {
        Ok(Answer::Attr { attr, .. }) => assert_eq!(attr.mode, Mode(0o644), "it is A's"),
        other => panic!("{other:?}"),
    }
}

/// S81: an operation that was answered before a crash, and is refused after it because its file was lost,
/// stays refused when the refusal does not reach its client. Else it would undo what others have done since.
#[test]
fn a_refused_resend_is_not_carried_out_when_it_is_sent_once_more() {
    let (mut w, _) = restarted();
    let name = |name: &[u8]| Name::new(name).expect("a name");
    let removal = |of: &[u8]| Op::Unlink { parent: Ino::ROOT, name: name(of) };
    let answered = Call::Op { op: removal(b"x"), open: false };
    let acknowledged = vec![Acknowledged { ino: Ino(0), time: Time(1_000), open: false }];
    let pending = Call::WriteBehind { ops: vec![removal(b"y")], acknowledged };
    w.back(A, 2);
    w.back(B, 0);
    let first = w.ask_numbered(A, Seq(9), answered_at(90), answered.clone());
    let second = w.ask_numbered(A, Seq(10), Some(Again::default()), pending.clone());
    w.declares(A, &[], &[]);
    w.declares(B, &[], &[]);
    w.take();
    assert_eq!(w.answered(first), Some(Err(Failure::Refused(Refusal::NotFound))));
    let gone = Failure::Refused(Refusal::NotFound);
    assert_eq!(w.answered(second), Some(Ok(Answer::WriteBehind(vec![Err(gone)]))));
    for of in [b"x", b"y"] {
        let make = Make::File { content: Vec::new() };
        let op = Op::Make { parent: Ino::ROOT, name: name(of), make, mode: Mode(0o644) };
        let made = w.ask(B, None, Call::Op { op, open: false }).expect("answered");
        assert!(made.result.is_ok(), "{made:?}");
    }
    let lost = || Failure::Refused(Refusal::Io);
    w.engine.resume_session(A, 7, 2, &w.m).expect("known");
    let again = w.again(A, Seq(9), answered_at(90), answered.clone());
    assert_eq!(again, Err(lost()));
    let again = w.again(A, Seq(10), Some(Again::default()), pending.clone());
    assert_eq!(again, Ok(Answer::WriteBehind(vec![Err(lost())])));
    // Another crash: the files that B has made are there, and stay.
    w.all_durable();
    let mut w = World::start(w.frames);
    w.back(A, 2);
    w.back(B, 0);
    let first = w.ask_numbered(A, Seq(9), answered_at(90), answered);
    let second = w.ask_numbered(A, Seq(10), Some(Again::default()), pending);
    w.declares(A, &[], &[]);
    w.declares(B, &[], &[]);
    w.take();
    assert_eq!(w.answered(first), Some(Err(lost())));
    assert_eq!(w.answered(second), Some(Ok(Answer::WriteBehind(vec![Err(lost())]))));
    let look = w.ask(B, None, Call::Query(Query::Lookup { parent: Ino::ROOT, name: name(b"x") }));
    assert!(matches!(look.expect("answered").result, Ok(Answer::Attr { .. })));
}

#[test]
fn what_a_declarer_held_is_free_when_its_end_is_durable() {
    let (mut w, ino) = restarted();
    w.back(A, 0);
    w.back(B, 0);
    w.declares(A, &[ino], &[]);
    w.declares(B, &[], &[]);
    w.take();
    let lease = w.wants(B, ino);
    w.silence();
    assert_eq!(w.answered(lease), None, "silent for {SESSION_MS} ms, and its end is not durable");
    w.all_durable();
    assert!(is_ok(w.answered(lease)));
}

/// S26: a client whose session is over learns which of its operations were carried out, also from the next server.
#[test]
fn an_ended_session_is_remembered_with_what_was_carried_out() {
    let (mut w, ino) = World::two();
    assert!(w.ask(A, None, write(ino, b"1")).expect("answered").result.is_ok());
    w.all_durable();
    let ended = |secret| Call::Ended { session: A, secret };
    let asks = |w: &mut World, secret| w.ask(B, None, ended(secret)).expect("answered").result;
    let unknown = Err(Failure::Refused(Refusal::NotFound));
    assert_eq!(asks(&mut w, 7), unknown, "it lives");
    w.silence();
    assert_eq!(asks(&mut w, 7), unknown, "its end is not durable");
    w.all_durable();
    let both = Ok(Answer::CarriedOut { runs: vec![(Seq(1), Seq(3))], end: w.m.durable });
    assert_eq!((asks(&mut w, 7), asks(&mut w, 8)), (both.clone(), unknown));
    let mut w = World::start(w.frames);
    w.back(B, 0);
    w.declares(B, &[], &[]);
    assert_eq!(asks(&mut w, 7), both);
}

fn append(ino: Ino, end: u64, all: &[u8]) -> Call {
    let (size, body) = (all.len() as u64, Body::Inline(all.to_vec()));
    let hold = Hold::Appended(end);
    Call::Op { op: Op::Write { ino, body, size, mtime: Time(5), kill_setid: false, hold }, open: false }
}

/// S16: appended bytes go to the end that the file has when they are pushed; lost bytes leave no hole.
#[test]
fn a_push_of_what_was_appended_is_placed_at_the_end_of_the_file() {
    let (mut w, ino) = World::two();
    let mut content = |call: Call| {
        assert!(w.ask(A, None, call).expect("answered").result.is_ok());
        let map = w.ask(A, None, Call::Query(Query::Map { ino, offset: 0, len: 100 })).expect("answered");
        match map.result {
            Ok(Answer::Map { attr, content: Content::Inline(bytes), .. }) => {
                assert_eq!(attr.size, bytes.len() as u64);
                bytes
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(content(append(ino, 0, b"one ")), b"one ");
    assert_eq!(content(append(ino, 4, b"one two ")), b"one two ");
    // Its client had seen what a client that died had appended, and nobody has now.
    assert_eq!(content(append(ino, 14, b"one two lost  three")), b"one two three");
}

#[test]
fn a_push_by_a_client_that_holds_the_file_no_more_is_refused_if_others_do() {
    let (mut w, ino) = World::two();
    let lease = w.wants(B, ino);
    assert!(w.gives_back(A) > 0);
    assert!(is_ok(w.answered(lease)));
    let pushed = w.ask(A, None, append(ino, 0, b"late")).expect("answered");
    assert_eq!(pushed.result, Err(Failure::Refused(Refusal::NotPermitted)));
    let pushed = w.ask(B, None, append(ino, 0, b"mine")).expect("answered");
    assert!(pushed.result.is_ok());
}

impl World {
    /// Asks under this number, after the window.
    fn again(
        &mut self,
        session: chiton_types::SessionId,
        seq: Seq,
        again: Option<Again>,
        call: Call,
    ) -> Result<Answer, Failure> {
        let (epoch, cred) = (chiton_types::Epoch(1), chiton_types::Cred::ROOT);
        let request = chiton_wire::Request { id: 1, seq, settled: Seq(0), epoch, again, cred, call };
        match self.engine.request(session, request, &self.m) {
            crate::Step::Done(reply) => reply.result,
            other => panic!("{other:?}"),
        }
    }

    /// Asks under this number, in the window.
    fn ask_numbered(
        &mut self,
        session: chiton_types::SessionId,
        seq: Seq,
        again: Option<Again>,
        call: Call,
    ) -> Ticket {
        let request = chiton_wire::Request {
            id: 1,
            seq,
            settled: Seq(0),
            epoch: chiton_types::Epoch(1),
            again,
            cred: chiton_types::Cred::ROOT,
            call,
        };
        match self.engine.request(session, request, &self.m) {
            crate::Step::Waiting(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }
}
