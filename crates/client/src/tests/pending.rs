//! Pending operations of a session: they are sent in order and once, and a loss is reported.

use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Make, Op, Outcome};
use chiton_types::{Cred, Epoch, Ino, Mode, Name, Position, Refusal, Seq, SessionId, Time};
use chiton_wire::{Acknowledged, Answer, Call, Failure, LeaseMode, Reply, Request};

use crate::session::{CarriedOut, Session};
use crate::write_behind::Behind;

const NOW: Duration = Duration::from_secs(5);
const DIR: Ino = Ino(9);

fn new() -> Session {
    Session::new(SessionId(1), 7, 1, Position(0))
}

fn file(n: u64) -> Op {
    let name = Name::try_from(format!("f{n}").as_str()).expect("a name");
    Op::Make { parent: DIR, name, make: Make::File { content: Vec::new() }, mode: Mode(0o644) }
}

fn acknowledge(session: &mut Session, n: u64, open: bool) {
    let acknowledged = Acknowledged { ino: Ino(100 + n), time: Time(n as i64), open };
    session.acknowledge(&Cred::ROOT, file(n), acknowledged, DIR, NOW);
}

fn inos(call: &Call) -> Vec<u64> {
    match call {
        Call::WriteBehind { acknowledged, .. } => acknowledged.iter().map(|one| one.ino.0 - 100).collect(),
        _ => panic!("no pending operations: {call:?}"),
    }
}

fn reply(request: &Request, positions: &[Option<u64>], durable: u64) -> Reply {
    let result = |position: &Option<u64>| {
        let done = position.map(|position| (Position(position), LeaseMode::Exclusive));
        done.ok_or(Failure::Refused(Refusal::Exists))
    };
    Reply {
        id: request.id,
        epoch: Epoch(1),
        durable: Position(durable),
        result: Ok(Answer::WriteBehind(positions.iter().map(result).collect())),
    }
}

fn sent(session: &mut Session) -> Arc<Request> {
    session.next_message().expect("there is something to send")
}

#[test]
fn message_grows_until_it_is_sent() {
    let mut session = new();
    (1..=2).for_each(|n| acknowledge(&mut session, n, false));
    let first = sent(&mut session);
    (3..=5).for_each(|n| acknowledge(&mut session, n, false));
    assert_eq!((first.seq, inos(&first.call)), (Seq(1), vec![1, 2]));
    // What is asked meanwhile has the next number, and parts what is acknowledged before and after.
    assert_eq!(session.issue(&Cred::ROOT, Call::Op { op: file(50), open: false }).seq, Seq(6));
    acknowledge(&mut session, 6, false);
    assert_eq!(session.pending_ops(), (6, Some(NOW)));
    let upto = session.last_seq();
    let behind = |session: &Session| {
        [Behind::All, Behind::Inode(DIR), Behind::Inode(Ino(101)), Behind::Inode(Ino(8)), Behind::Nothing]
            .map(|behind| session.is_behind(behind, upto))
    };
    assert_eq!(behind(&session), [true, true, true, false, false]);
    session.answered(&first, &reply(&first, &[Some(10), Some(11)], 0));
    assert_eq!(behind(&session), [true, true, false, false, false]);
    assert!(!session.is_behind(Behind::All, Seq(2)), "those before are answered");
    let (second, third) = (sent(&mut session), sent(&mut session));
    assert_eq!((second.seq, inos(&second.call)), (Seq(3), vec![3, 4, 5]));
    assert_eq!((third.seq, inos(&third.call)), (Seq(7), vec![6]));
    assert!(session.next_message().is_none());
    // Another user's go in another message.
    acknowledge(&mut session, 7, false);
    let acknowledged = Acknowledged { ino: Ino(108), ..Acknowledged::default() };
    session.acknowledge(&Cred::new(5, 5, &[]), file(8), acknowledged, DIR, NOW);
    assert_eq!([sent(&mut session), sent(&mut session)].map(|request| request.cred.uid), [0, 5]);
}

#[test]
fn a_message_is_gathered_while_it_is_the_next_and_can_take_more() {
    let mut session = new();
    assert_eq!(session.gathering(), None);
    (1..=2).for_each(|n| acknowledge(&mut session, n, false));
    assert_eq!(session.gathering(), Some((Seq(1), NOW, 2)));
    // Another caller's need a message of their own: the first takes no more.
    let acknowledged = Acknowledged { ino: Ino(103), ..Acknowledged::default() };
    session.acknowledge(&Cred { uid: 7, ..Cred::ROOT }, file(3), acknowledged, DIR, NOW);
    assert_eq!(session.gathering(), None);
    sent(&mut session);
    assert_eq!(session.gathering(), Some((Seq(3), NOW, 1)));
    let request = sent(&mut session);
    assert_eq!(session.gathering(), None);
    session.put_back(&request, Refusal::NoSpace);
    assert_eq!(session.gathering(), None, "it is sent as it was");
}

#[test]
fn what_the_server_does_not_take_now_is_sent_again_as_it_was() {
    let mut session = new();
    acknowledge(&mut session, 1, false);
    let first = sent(&mut session);
    acknowledge(&mut session, 2, false);
    session.put_back(&first, Refusal::NoSpace);
    assert_eq!(session.stuck(), Some(Refusal::NoSpace));
    assert_eq!(sent(&mut session), first, "nothing is added to what may be carried out in part");
    session.answered(&first, &reply(&first, &[Some(10)], 0));
    assert_eq!((session.stuck(), inos(&sent(&mut session).call)), (None, vec![2]));
}

#[test]
fn restart_sends_pending_operations_again_as_acknowledged() {
    let mut session = new();
    (1..=2).for_each(|n| acknowledge(&mut session, n, n == 2));
    let first = sent(&mut session);
    session.answered(&first, &reply(&first, &[Some(10), Some(11)], 10));
    acknowledge(&mut session, 3, true);
    sent(&mut session);
    (4..=5).for_each(|n| acknowledge(&mut session, n, true));
    session.closed(Ino(105));
    assert_eq!(session.resend_count(), 5);
    let resends = session.resume(2, Position(10));
    assert!(session.next_message().is_none(), "all are sent again");
    let opened = |call: &Call| match call {
        Call::WriteBehind { acknowledged, .. } => {
            acknowledged.iter().map(|one| (one.ino.0 - 100, one.open)).collect::<Vec<_>>()
        }
        Call::Op { open, .. } => vec![(0, *open)],
        _ => panic!("{call:?}"),
    };
    let calls: Vec<_> = resends.iter().map(|resend| opened(&resend.request.call)).collect();
    // What was answered comes one by one; what has been closed since is not opened again.
    assert_eq!(calls, [vec![(0, false)], vec![(0, true)], vec![(3, true)], vec![(4, true), (5, false)]]);
    let again = resends[1].request.again.expect("sent again");
    assert_eq!((again.position, again.ino, again.time), (Position(11), Ino(102), Time(2)));
    let done = |positions: &[u64]| -> Vec<Option<(Position, Outcome)>> {
        positions.iter().map(|position| Some((Position(*position), Outcome::default()))).collect()
    };
    assert!(session.is_behind(Behind::Inode(DIR), session.last_seq()));
    session.resent(Seq(1), &done(&[12, 13]), Position(10));
    session.resent(Seq(3), &done(&[14]), Position(10));
    session.resent(Seq(4), &done(&[15, 16]), Position(16));
    assert!(!session.is_behind(Behind::All, session.last_seq()));
    assert_eq!((session.kept_count(), session.take_lost()), (0, false));
}

#[test]
fn refused_pending_operation_fails_the_next_commit() {
    // Refused.
    let mut session = new();
    (1..=2).for_each(|n| acknowledge(&mut session, n, false));
    let request = sent(&mut session);
    session.answered(&request, &reply(&request, &[Some(10), None], 10));
    assert!(session.take_lost() && !session.take_lost());
    assert_eq!(session.kept_count(), 0);
    // Refused when it is sent again.
    acknowledge(&mut session, 3, false);
    sent(&mut session);
    session.resume(2, Position(10));
    session.resent(Seq(3), &[None], Position(10));
    assert!(session.take_lost());
    // Gone with the session.
    acknowledge(&mut session, 4, false);
    let next = Session::new(SessionId(2), 7, 2, Position(10));
    assert_eq!(session.expire(next, &CarriedOut::default()), [], "nobody waits for the answer");
    assert!(session.take_lost());
    assert_eq!(session.pending_ops(), (0, None));
    // The server says that it was carried out.
    acknowledge(&mut session, 1, false);
    let carried_out = CarriedOut(vec![(Seq(1), Seq(2))]);
    let next = Session::new(SessionId(3), 7, 2, Position(10));
    assert_eq!(session.expire(next, &carried_out), []);
    assert!(!session.take_lost(), "nothing is lost");
}

#[test]
fn what_is_not_made_yet_is_not_closed() {
    let mut session = new();
    (1..=2).for_each(|n| acknowledge(&mut session, n, true));
    let request = sent(&mut session);
    acknowledge(&mut session, 3, true);
    [101, 103].into_iter().for_each(|ino| session.closed(Ino(ino)));
    assert!(session.take_closes().is_none());
    session.answered(&request, &reply(&request, &[Some(10), Some(11)], 0));
    let closes = session.take_closes().expect("the first is made");
    assert_eq!(closes.call, Call::Closed { inos: vec![Ino(101)] });
    assert_eq!(session.closes_waiting(), 1);
}

#[test]
fn what_is_closed_before_the_server_hears_of_it_is_not_opened_there() {
    let mut session = new();
    (1..=3).for_each(|n| acknowledge(&mut session, n, true));
    [101, 102].into_iter().for_each(|ino| session.closed(Ino(ino)));
    let opened = |request: &Request| match &request.call {
        Call::WriteBehind { acknowledged, .. } => acknowledged.iter().map(|one| one.open).collect::<Vec<_>>(),
        call => panic!("{call:?}"),
    };
    let first = sent(&mut session);
    assert_eq!((opened(&first), session.closes_waiting()), (vec![false, false, true], 0));
    // Sent once more it is as it was.
    session.closed(Ino(103));
    session.put_back(&first, Refusal::NoSpace);
    assert_eq!((sent(&mut session), session.closes_waiting()), (first.clone(), 1));
    session.answered(&first, &reply(&first, &[Some(10), Some(11), Some(12)], 0));
    // A removal does not hold the close back that is to come before it.
    let unlink = Op::Unlink { parent: DIR, name: Name::try_from("f3").expect("a name") };
    session.acknowledge(
        &Cred::ROOT,
        unlink,
        Acknowledged { ino: Ino(103), ..Acknowledged::default() },
        DIR,
        NOW,
    );
    let closes = session.take_closes().expect("it is made");
    assert_eq!(closes.call, Call::Closed { inos: vec![Ino(103)] });
}

#[test]
fn only_what_is_made_is_opened_when_it_is_sent_again() {
    let mut session = new();
    acknowledge(&mut session, 1, true);
    let body = chiton_model::Body::Inline(b"hello".to_vec());
    let write = Op::Write {
        ino: Ino(101),
        body,
        size: 5,
        mtime: Time(9),
        kill_setid: false,
        hold: Default::default(),
    };
    let acknowledged = Acknowledged { ino: Ino(101), time: Time(1), open: false };
    session.acknowledge(&Cred::ROOT, write, acknowledged, DIR, NOW);
    let request = sent(&mut session);
    let opens = |session: &mut Session, boot| -> Vec<bool> {
        let resends = session.resume(boot, Position(0));
        let open = |call: &Call| match call {
            Call::WriteBehind { acknowledged, .. } => acknowledged.iter().map(|one| one.open).collect(),
            Call::Op { open, .. } => vec![*open],
            call => panic!("{call:?}"),
        };
        resends.iter().flat_map(|resend| open(&resend.request.call)).collect()
    };
    assert_eq!(opens(&mut session, 1), [true, false]);
    session.answered(&request, &reply(&request, &[Some(10), Some(11)], 0));
    assert_eq!(opens(&mut session, 2), [true, false]);
}
