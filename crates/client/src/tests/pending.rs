//! Pending operations of a session: they are sent in order and once, and a loss is reported.

use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Make, Op, Outcome};
use chiton_types::{Cred, Epoch, Ino, Mode, Name, Position, Refusal, Seq, SessionId, Time};
use chiton_wire::{Acknowledged, Answer, Call, Failure, LeaseMode, Reply, Request};

use crate::session::{CarriedOut, Resend, Session};
use crate::write_behind::{Behind, Limits, PendingQueue};

const NOW: Duration = Duration::from_secs(5);
const DIR: Ino = Ino(9);

/// A session, and the queue that its messages come from.
struct Site {
    session: Session,
    queue: PendingQueue,
}

impl Site {
    fn new() -> Site {
        let queue = PendingQueue::new(Limits::new(1 << 20));
        queue.set_up(true);
        Site { session: Session::new(SessionId(1), 7, 1, Position(0)), queue }
    }

    fn acknowledge(&mut self, n: u64, open: bool) {
        let acknowledged = Acknowledged { ino: Ino(100 + n), time: Time(n as i64), open };
        assert!(self.enqueue(&Cred::ROOT, &file(n), acknowledged));
    }

    fn enqueue(&self, cred: &Cred, op: &Op, acknowledged: Acknowledged) -> bool {
        self.queue.enqueue(cred, op, acknowledged, DIR, NOW)
    }

    fn send_next(&mut self) -> Option<Arc<Request>> {
        self.queue.send_next(|cred, call| self.session.issue(cred, call))
    }

    fn sent(&mut self) -> Arc<Request> {
        self.send_next().expect("there is something to send")
    }

    fn answered(&mut self, request: &Request, reply: &Reply) {
        self.session.answered(request, reply);
        self.queue.answered(request.seq, false);
    }

    /// Resumes the session over a new connection.
    fn resume(&mut self, boot: u64, durable: u64) -> Vec<Resend> {
        self.queue.set_up(false);
        while self.send_next().is_some() {}
        let resends = self.session.resume(boot, Position(durable));
        self.queue.set_up(true);
        resends
    }

    fn resent(&mut self, of: u64, positions: &[Option<u64>], durable: u64) {
        let done = |position: &u64| (Position(*position), Outcome::default());
        let results: Vec<_> = positions.iter().map(|position| position.as_ref().map(done)).collect();
        self.session.resent(Seq(of), &results, Position(durable));
        self.queue.answered(Seq(of), false);
    }

    fn closed(&mut self, ino: Ino) {
        if !self.queue.close_unsent(ino) {
            self.session.closed(ino);
        }
    }

    fn take_closes(&mut self) -> Option<Arc<Request>> {
        self.session.take_closes(|inos| self.queue.part(inos))
    }

    fn is_behind(&self, behind: Behind) -> bool {
        self.queue.is_behind(behind, self.queue.last())
    }
}

fn file(n: u64) -> Op {
    let name = Name::try_from(format!("f{n}").as_str()).expect("a name");
    Op::Make { parent: DIR, name, make: Make::File { content: Vec::new() }, mode: Mode(0o644) }
}

fn inos(call: &Call) -> Vec<u64> {
    match call {
        Call::WriteBehind { acknowledged, .. } | Call::Late { acknowledged, .. } => {
            acknowledged.iter().map(|one| one.ino.0 - 100).collect()
        }
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

#[test]
fn message_grows_until_it_is_sent() {
    let mut site = Site::new();
    (1..=2).for_each(|n| site.acknowledge(n, false));
    let first = site.sent();
    (3..=5).for_each(|n| site.acknowledge(n, false));
    assert_eq!((first.seq, inos(&first.call)), (Seq(1), vec![1, 2]));
    let behind = |site: &Site| {
        [Behind::All, Behind::Inode(DIR), Behind::Inode(Ino(101)), Behind::Inode(Ino(8)), Behind::Nothing]
            .map(|behind| site.is_behind(behind))
    };
    let before_the_last = site.queue.last();
    site.acknowledge(6, false);
    assert_eq!(behind(&site), [true, true, true, false, false]);
    site.answered(&first, &reply(&first, &[Some(10), Some(11)], 0));
    assert_eq!(behind(&site), [true, true, false, false, false]);
    // Calls are numbered in the order in which they are sent.
    assert_eq!(site.session.issue(&Cred::ROOT, Call::Op { op: file(50), open: false }).seq, Seq(3));
    let second = site.sent();
    assert_eq!((second.seq, inos(&second.call)), (Seq(4), vec![3, 4, 5, 6]));
    assert!(site.send_next().is_none());
    site.acknowledge(7, false);
    site.answered(&second, &reply(&second, &[Some(12), Some(13), Some(14), Some(15)], 0));
    assert!(!site.queue.is_behind(Behind::All, before_the_last), "a call waits only for those before it");
    assert!(site.is_behind(Behind::All));
    // Operations of another user go in another message.
    let acknowledged = Acknowledged { ino: Ino(108), ..Acknowledged::default() };
    assert!(site.enqueue(&Cred::new(5, 5, &[]), &file(8), acknowledged));
    assert_eq!([site.sent(), site.sent()].map(|request| request.cred.uid), [0, 5]);
}

#[test]
fn queue_takes_operations_while_the_link_is_up_and_within_its_limits() {
    let mut site = Site::new();
    let acknowledged = Acknowledged { ino: Ino(101), ..Acknowledged::default() };
    let takes = |site: &Site| site.enqueue(&Cred::ROOT, &file(1), acknowledged);
    site.queue.note_kept((1 << 20) + 1);
    assert!(!takes(&site), "the session keeps too much");
    site.queue.note_kept(0);
    assert!(takes(&site));
    let first = site.sent();
    site.queue.refused(Refusal::NoSpace);
    assert!(!takes(&site), "the server takes none");
    site.answered(&first, &reply(&first, &[Some(10)], 0));
    assert!(takes(&site));
    let later = NOW + Duration::from_secs(1);
    assert!(!site.queue.enqueue(&Cred::ROOT, &file(2), acknowledged, DIR, later), "the oldest is too old");
    site.queue.set_up(false);
    assert!(!takes(&site), "the link is down");
    site.queue.set_up(true);
    assert!(takes(&site));
    site.queue.leave();
    assert!(!takes(&site), "the client leaves");
    assert_eq!(inos(&site.sent().call).len(), 2, "and sends what is pending");
}

#[test]
fn refused_message_is_pending_until_it_is_taken() {
    let mut site = Site::new();
    site.acknowledge(1, false);
    let first = site.sent();
    site.acknowledge(2, false);
    site.queue.refused(Refusal::NoSpace);
    assert_eq!((site.queue.stuck(), site.is_behind(Behind::All)), (Some(Refusal::NoSpace), true));
    site.answered(&first, &reply(&first, &[Some(10)], 0));
    assert_eq!((site.queue.stuck(), inos(&site.sent().call)), (None, vec![2]));
}

#[test]
fn restart_sends_pending_operations_again_as_acknowledged() {
    let mut site = Site::new();
    (1..=2).for_each(|n| site.acknowledge(n, n == 2));
    let first = site.sent();
    site.answered(&first, &reply(&first, &[Some(10), Some(11)], 10));
    site.acknowledge(3, true);
    site.sent();
    (4..=5).for_each(|n| site.acknowledge(n, true));
    site.closed(Ino(105));
    let resends = site.resume(2, 10);
    assert_eq!(site.session.resend_count(), 5);
    assert!(site.send_next().is_none(), "all are sent again");
    let opened = |call: &Call| match call {
        Call::WriteBehind { acknowledged, .. } => {
            acknowledged.iter().map(|one| (one.ino.0 - 100, one.open)).collect::<Vec<_>>()
        }
        Call::Op { open, .. } => vec![(0, *open)],
        _ => panic!("{call:?}"),
    };
    let calls: Vec<_> = resends.iter().map(|resend| opened(&resend.request.call)).collect();
    // Answered operations come one by one. A file that has been closed since is not opened again.
    assert_eq!(calls, [vec![(0, false)], vec![(0, true)], vec![(3, true)], vec![(4, true), (5, false)]]);
    let again = resends[1].request.again.expect("sent again");
    assert_eq!((again.position, again.ino, again.time), (Position(11), Ino(102), Time(2)));
    assert!(site.is_behind(Behind::Inode(DIR)));
    site.resent(1, &[Some(12), Some(13)], 10);
    site.resent(3, &[Some(14)], 10);
    site.resent(4, &[Some(15), Some(16)], 16);
    assert!(!site.is_behind(Behind::All));
    assert_eq!((site.session.kept_count(), site.session.take_lost()), (0, false));
}

#[test]
fn refused_pending_operation_fails_the_next_commit() {
    // Refused.
    let mut site = Site::new();
    (1..=2).for_each(|n| site.acknowledge(n, false));
    let request = site.sent();
    site.answered(&request, &reply(&request, &[Some(10), None], 10));
    assert!(site.session.take_lost() && !site.session.take_lost());
    assert_eq!(site.session.kept_count(), 0);
    // Refused when it is sent again.
    site.acknowledge(3, false);
    site.sent();
    site.resume(2, 10);
    site.resent(3, &[None], 10);
    assert!(site.session.take_lost());
    // Gone with the session, although it was never sent.
    site.acknowledge(4, false);
    site.resume(2, 10);
    let next = Session::new(SessionId(2), 7, 2, Position(10));
    assert_eq!(site.session.expire(next, &CarriedOut::default()), [], "nobody waits for the answer");
    site.queue.clear();
    assert!(site.session.take_lost());
    assert!(!site.is_behind(Behind::All));
    // The server says that it was carried out.
    site.acknowledge(1, false);
    site.sent();
    let carried_out = CarriedOut { runs: Some(vec![(Seq(1), Seq(2))]), end: Some(Position(20)) };
    let next = Session::new(SessionId(3), 7, 2, Position(10));
    assert_eq!(site.session.expire(next, &carried_out), []);
    assert!(!site.session.take_lost(), "nothing is lost");
    // The server says that it was not, and where the session ended.
    site.queue.clear();
    (5..=6).for_each(|n| site.acknowledge(n, true));
    site.sent();
    let carried_out = CarriedOut { runs: Some(Vec::new()), end: Some(Position(30)) };
    let next = Session::new(SessionId(4), 7, 2, Position(10));
    assert_eq!(site.session.expire(next, &carried_out), []);
    assert!(!site.session.take_lost(), "nothing is lost yet");
    let late = site.session.next_late().expect("it is sent in the next session");
    let Call::Late { since, ops, acknowledged } = &late.call else { panic!("{late:?}") };
    assert_eq!((*since, late.seq, late.again), (Position(30), Seq(1), None));
    assert_eq!((inos(&late.call), ops.len()), (vec![5, 6], 2));
    assert!(acknowledged.iter().all(|one| one.open), "they are open still");
    assert_eq!(site.session.resend_count(), 0, "the window of another start does not wait for them");
}

#[test]
fn file_that_the_server_has_not_made_is_not_closed_there() {
    let mut site = Site::new();
    (1..=2).for_each(|n| site.acknowledge(n, true));
    let request = site.sent();
    site.closed(Ino(101));
    assert!(site.take_closes().is_none());
    site.answered(&request, &reply(&request, &[Some(10), Some(11)], 0));
    let closes = site.take_closes().expect("the first is made");
    assert_eq!(closes.call, Call::Closed { inos: vec![Ino(101)] });
    assert_eq!(site.session.closes_waiting(), 0);
}

#[test]
fn file_that_is_closed_before_its_message_is_sent_is_not_opened_there() {
    let mut site = Site::new();
    (1..=3).for_each(|n| site.acknowledge(n, true));
    [101, 102].into_iter().for_each(|ino| site.closed(Ino(ino)));
    let opened = |request: &Request| match &request.call {
        Call::WriteBehind { acknowledged, .. } | Call::Late { acknowledged, .. } => {
            acknowledged.iter().map(|one| one.open).collect::<Vec<_>>()
        }
        call => panic!("{call:?}"),
    };
    let first = site.sent();
    assert_eq!((opened(&first), site.session.closes_waiting()), (vec![false, false, true], 0));
    site.closed(Ino(103));
    assert_eq!(site.session.closes_waiting(), 1);
    site.answered(&first, &reply(&first, &[Some(10), Some(11), Some(12)], 0));
    // A removal does not hold the close back that is to come before it.
    let unlink = Op::Unlink { parent: DIR, name: Name::try_from("f3").expect("a name") };
    assert!(site.enqueue(&Cred::ROOT, &unlink, Acknowledged { ino: Ino(103), ..Acknowledged::default() }));
    let closes = site.take_closes().expect("it is made");
    assert_eq!(closes.call, Call::Closed { inos: vec![Ino(103)] });
}

#[test]
fn only_made_files_are_opened_when_operations_are_sent_again() {
    let mut site = Site::new();
    site.acknowledge(1, true);
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
    assert!(site.enqueue(&Cred::ROOT, &write, acknowledged));
    let request = site.sent();
    let opens = |site: &mut Site, boot| -> Vec<bool> {
        let resends = site.resume(boot, 0);
        let open = |call: &Call| match call {
            Call::WriteBehind { acknowledged, .. } | Call::Late { acknowledged, .. } => {
                acknowledged.iter().map(|one| one.open).collect()
            }
            Call::Op { open, .. } => vec![*open],
            call => panic!("{call:?}"),
        };
        resends.iter().flat_map(|resend| open(&resend.request.call)).collect()
    };
    assert_eq!(opens(&mut site, 1), [true, false]);
    site.answered(&request, &reply(&request, &[Some(10), Some(11)], 0));
    assert_eq!(opens(&mut site, 2), [true, false]);
}
