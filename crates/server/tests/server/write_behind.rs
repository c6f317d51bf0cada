//! Pending operations of write-behind: the server plans them like others, with the inode numbers that it granted, and after a
//! crash before operations that were never answered.

use crate::rig::{Asks, file, make, quiet, session, unlink, world};
use crate::socket_rig::{Client, SocketRig, never_answered, patient};
use chiton_model::{Body, Make, Op};
use chiton_types::{Attr, Ino, Kind, Position, Refusal, Time};
use chiton_wire::{Acknowledged, Again, Answer, Call, Failure, LeaseMode, Query};

/// When a client wrote, by its own clock.
const WRITTEN: Time = Time(1_900_000_000_000_000_000);

/// A time that a client may have acknowledged that got the names just now.
fn later() -> Time {
    Time(world().now().0 + 1_000_000_000)
}

fn lease(c: &Client, dir: Ino) -> (bool, Attr, (Ino, Ino)) {
    match c.try_call(Call::LeaseNames { dir, numbers: 10 }) {
        Ok(Answer::Names { leased, attr, numbers, .. }) => (leased, attr, numbers),
        other => panic!("{other:?}"),
    }
}

/// The first of the inode numbers that come with the lease.
fn first_leased_number(c: &Client, dir: Ino) -> Ino {
    let (leased, _, (from, _)) = lease(c, dir);
    assert!(leased);
    from
}

type Results = Vec<Result<(Position, LeaseMode), Failure>>;

/// Sends pending operations with these inode numbers.
fn report(c: &Client, seq: u64, again: Option<Again>, made: Vec<(Op, Ino)>) -> Result<Results, Failure> {
    report_at(c, seq, again, later(), made)
}

/// Sends pending operations with these inode numbers, made at this time.
fn report_at(
    c: &Client,
    seq: u64,
    again: Option<Again>,
    time: Time,
    made: Vec<(Op, Ino)>,
) -> Result<Results, Failure> {
    let (ops, inos): (Vec<Op>, Vec<Ino>) = made.into_iter().unzip();
    let acknowledged = inos.into_iter().map(|ino| Acknowledged { ino, time, open: false }).collect();
    let request = c.request(seq, again, Call::WriteBehind { ops, acknowledged });
    match c.connection.call(&request).expect("answered").result? {
        Answer::WriteBehind(results) => Ok(results),
        other => panic!("{other:?}"),
    }
}

fn write(ino: Ino, bytes: &[u8]) -> Op {
    let body = Body::Inline(bytes.to_vec());
    Op::Write {
        ino,
        body,
        size: bytes.len() as u64,
        mtime: WRITTEN,
        kill_setid: false,
        hold: Default::default(),
    }
}

fn refusals(results: Result<Results, Failure>) -> Vec<Option<Refusal>> {
    let refusal = |result: Result<_, Failure>| match result {
        Ok(_) => None,
        Err(Failure::Refused(refusal)) => Some(refusal),
        other => panic!("{other:?}"),
    };
    results.expect("answered").into_iter().map(refusal).collect()
}

#[test]
fn pending_operations_are_planned_with_the_numbers_and_times_that_callers_got() {
    let rig = SocketRig::start(quiet());
    let c = rig.client();
    let _recalls = rig.recalls(&c);
    let dir = c.first_dir("d");
    let n = |ino: Ino, n: u64| Ino(ino.0 + n);
    // Without a lease nothing is taken.
    assert_eq!(
        refusals(report(&c, 2, None, vec![(file(dir, "a"), n(dir, 500))])),
        [Some(Refusal::NotPermitted)]
    );
    let (leased, attr, (from, end)) = lease(&c, dir);
    assert!(leased && attr.ino == dir && end.0 - from.0 == 10);
    let time = later();
    let results = report_at(&c, 3, None, time, vec![(file(dir, "a"), from), (file(dir, "b"), n(from, 1))])
        .expect("carried out");
    assert!(results.iter().all(|result| matches!(result, Ok((_, LeaseMode::Exclusive)))), "{results:?}");
    let made = c.lookup(dir, "b").0.expect("there");
    assert_eq!((made.ino, made.ctime, made.btime), (n(from, 1), time, time));
    // A name that is there; a number that is used, passed over, another's, of another shard; not a file.
    let wrong = vec![
        (file(dir, "a"), n(from, 2)),
        (file(dir, "c"), from),
        (file(dir, "c"), end),
        (file(dir, "c"), Ino(7)),
        (make(dir, "c", Make::Node { kind: Kind::Fifo, rdev: 0 }), n(from, 3)),
        (unlink(dir, "nothing"), n(from, 3)),
        (file(Ino::ROOT, "c"), n(from, 3)),
        (file(dir, "c"), n(from, 5)),
        (file(dir, "e"), n(from, 4)),
    ];
    let no = Some(Refusal::NotPermitted);
    let none = Some(Refusal::NotFound);
    let expect = [Some(Refusal::Exists), no, no, no, no, none, no, None, no];
    assert_eq!(refusals(report(&c, 5, None, wrong)), expect);
    // Content of files that were made so, and of none that are not there.
    let content = |ino: Ino| (write(ino, b"hello"), ino);
    let results = report(&c, 14, None, vec![content(from), content(n(from, 9))]);
    assert_eq!(refusals(results), [None, Some(Refusal::Stale)]);
    let written = c.lookup(dir, "a").0.expect("there");
    assert_eq!((written.size, written.mtime, written.btime), (5, WRITTEN, time));
    // Sent again they are not carried out again.
    let again = report(&c, 3, never_answered(), vec![(file(dir, "a"), from), (file(dir, "b"), n(from, 1))]);
    assert_eq!(again.expect("carried out").len(), 2);
    assert_eq!(c.list(dir, false).len(), 3);
    // A session inside the server's process, which dies with it, gets no names.
    let inside = session(&rig.server);
    let answer = inside.try_call(Call::LeaseNames { dir, numbers: 10 });
    assert!(matches!(answer, Ok(Answer::Names { leased: false, .. })), "{answer:?}");
    assert_eq!(
        c.try_call(Call::LeaseNames { dir: from, numbers: 1 }),
        Err(Failure::Refused(Refusal::NotDir))
    );
    rig.server.shutdown().expect("ends");
}

#[test]
fn after_a_crash_pending_operations_come_before_unanswered_ones() {
    let mut rig = SocketRig::start(patient());
    // The other's session is the older one: by sessions alone, it would come first.
    let (other, c) = (rig.client(), rig.client());
    let _recalls = rig.recalls(&c);
    let dir = c.first_dir("d");
    let from = first_leased_number(&c, dir);
    c.commit();
    rig.crash_and_restart();
    std::thread::scope(|scope| {
        // It asked for the name and waited for the lease; another client had acknowledged it before.
        let other2 = rig.resume(&other, 1);
        let asks = scope.spawn(move || other2.numbered(1, never_answered(), file(dir, "f")));
        let c2 = rig.resume(&c, 2);
        c2.send(1, never_answered(), make(Ino::ROOT, "d", Make::Dir));
        c2.connection.flush();
        assert_eq!(refusals(report(&c2, 2, never_answered(), vec![(file(dir, "f"), from)])), [None]);
        assert_eq!(asks.join().expect("joined"), Err(Failure::Refused(Refusal::Exists)));
        assert_eq!(c2.lookup(dir, "f").0.expect("there").ino, from);
    });
    rig.server.shutdown().expect("ends");
}

#[test]
fn impossible_times_are_moved_to_the_nearest_possible() {
    let mut rig = SocketRig::start(quiet());
    let c = rig.client();
    let _recalls = rig.recalls(&c);
    let dir = c.first_dir("d");
    let granted = world().now();
    let from = first_leased_number(&c, dir);
    let hour = 3_600_000_000_000;
    let slack = 120_000_000_000;
    let cases = [
        ("past", Time(granted.0 - hour), 0),
        ("longest past", Time(i64::MIN), 0),
        ("future", Time(granted.0 + hour), slack),
        ("end of times", Time(i64::MAX), slack),
    ];
    for (n, (name, claimed, most)) in (0u64..).zip(cases) {
        let made = vec![(file(dir, name), Ino(from.0 + n))];
        let results = report_at(&c, 2 + n, None, claimed, made).expect("carried out");
        // The client must not cache what it believes of it.
        assert!(matches!(results[..], [Ok((_, LeaseMode::None))]), "{name}: {results:?}");
        let made = c.lookup(dir, name).0.expect("there");
        let now = world().now();
        for time in [made.btime, made.ctime, made.mtime] {
            assert!(time >= granted && time.0 <= now.0 + most, "{name}: {time:?} of {granted:?} to {now:?}");
        }
    }
    let of_dir = c.lookup(Ino::ROOT, "d").0.expect("there");
    assert!(of_dir.mtime.0 <= world().now().0 + slack, "{of_dir:?}");
    c.commit();
    // After a restart, too, and of operations that are asked for one by one.
    rig.crash_and_restart();
    let c2 = rig.resume(&c, 2);
    let absurd = Some(Again { time: Time(i64::MAX), ..never_answered().expect("some") });
    let made = vec![(file(dir, "pending"), Ino(from.0 + 4))];
    // All resends that were declared arrive before any is carried out.
    c2.send(7, absurd, file(dir, "asked"));
    c2.connection.flush();
    assert_eq!(refusals(report_at(&c2, 6, never_answered(), Time(i64::MAX), made)), [None]);
    for name in ["pending", "asked"] {
        let made = c2.lookup(dir, name).0.expect("there");
        assert!(made.btime.0 <= world().now().0 + slack, "{name}: {made:?}");
    }
    rig.server.shutdown().expect("ends");
}

#[test]
fn maker_of_a_directory_holds_its_names_and_others_wait_to_look_there() {
    let rig = SocketRig::start(quiet());
    let (c, other) = (rig.client(), rig.client());
    let (recalls, _theirs) = (rig.recalls(&c), rig.recalls(&other));
    let dir = c.first_dir("d");
    let from = first_leased_number(&c, dir);
    let n = |n: u64| Ino(from.0 + n);
    let link = make(n(0), "link", Make::Symlink { target: b"to".to_vec() });
    let made = vec![(make(dir, "sub", Make::Dir), n(0)), (file(n(0), "f"), n(1)), (link, n(2))];
    let results = report(&c, 2, None, made).expect("carried out");
    let leases: Vec<LeaseMode> = results.into_iter().map(|result| result.expect("made").1).collect();
    assert_eq!(leases[..2], [LeaseMode::Exclusive; 2]);
    assert!(leases[2] >= LeaseMode::Shared);
    // The other knows the file by its number only: the holder, which removed it, sends that first.
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| other.query(Query::GetAttr { ino: n(1) }));
        let recall = recalls.next().expect("asked");
        assert_eq!((recall.ino, recall.keep), (n(0), LeaseMode::Shared));
        assert_eq!(refusals(report(&c, 5, None, vec![(unlink(n(0), "f"), n(1))])), [None]);
        recalls.done(chiton_wire::RecallDone { id: recall.id }).expect("said");
        assert_eq!(asks.join().expect("joined"), Err(Failure::Refused(Refusal::Stale)));
    });
    assert_eq!(other.list(n(0), false).len(), 1);
    rig.server.shutdown().expect("ends");
}
