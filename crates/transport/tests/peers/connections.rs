//! Requests, replies, recalls and probes between peers that keep the rules.

use std::future::Future;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread::{self};
use std::time::Duration;

use chiton_transport::*;
use chiton_types::{BlockId, Ino, PlateId, Seq, SessionId};
use chiton_wire::*;

use crate::rig::*;

#[test]
fn replies_find_their_callers_in_any_order() {
    let server = Server::start(ServeOptions::default());
    let connection = server.connect();
    // From one thread, waited for backwards, short and long replies mixed.
    for id in 1..=64 {
        connection.send(&request(id, get(id as u32 * 1000)));
    }
    for id in (1..=64).rev() {
        let got = connection.wait(id).unwrap();
        assert_eq!((got.id, got.result), (id, Ok(Answer::Bytes(vec![3; id as usize * 1000]))));
    }
    // Parked requests of many threads, answered backwards by yet another, while a caller continues.
    thread::scope(|scope| {
        for id in 101..=108 {
            let connection = &connection;
            scope.spawn(move || {
                assert_eq!(connection.call(&request(id, COMMIT)).unwrap().id, id);
                for n in 0..200 {
                    let id = id * 1000 + n;
                    assert_eq!(connection.call(&request(id, Call::Ping)).unwrap().id, id);
                }
            });
        }
        server.test.wait_until(|state| (state.parked.len() == 8).then_some(()));
        assert_eq!(connection.call(&request(1, Call::Ping)).unwrap().id, 1);
        let parked: Vec<_> = server.test.state.lock().parked.drain(..).collect();
        for (sender, id) in parked.into_iter().rev() {
            sender.send(&reply(id, Answer::Done)).unwrap();
        }
    });
}

#[test]
fn requests_sent_together_are_handed_over_together() {
    let server = Server::start(ServeOptions::default());
    let connection = server.connect();
    for id in 1..=50 {
        connection.send(&request(id, Call::Ping));
    }
    (1..=50).for_each(|id| assert!(connection.wait(id).is_ok()));
    assert_eq!(server.test.state.lock().batches, [50]);
}

#[test]
fn futures_need_no_runtime_and_mix_with_waiting_threads() {
    let server = Server::start(ServeOptions::default());
    let connection = server.connect();
    for round in 0..50 {
        let id = |n: u64| round * 100 + n;
        let pending: Vec<Pending> = (1..=20).map(|n| connection.start(&request(id(n), Call::Ping))).collect();
        thread::scope(|scope| {
            scope.spawn(|| assert!(connection.call(&request(id(50), Call::Ping)).is_ok()));
            for (n, pending) in (1..=20).zip(pending) {
                let got = if n % 3 == 0 { pending.wait() } else { block_on(pending) };
                assert_eq!(got.unwrap().id, id(n));
            }
        });
    }
    // A future that is polled once and then waited for by its thread, and one that is dropped.
    let mut polled = Box::pin(connection.start(&request(9001, COMMIT)));
    assert!(polled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(connection.start(&request(9002, Call::Ping)));
    let (sender, id) = server.test.wait_until(|state| state.parked.pop_front());
    thread::scope(|scope| {
        scope.spawn(move || sender.send(&reply(id, Answer::Done)).unwrap());
        assert_eq!(Pending::wait(*std::pin::Pin::into_inner(polled)).unwrap().id, 9001);
    });
    assert_eq!(connection.call(&request(9002, Call::Ping)).unwrap().id, 9002);
}

#[test]
fn promises_are_answers_within_a_process() {
    let (promise, pending) = Pending::promise();
    thread::scope(|scope| {
        scope.spawn(|| promise.fulfil(Ok(reply(5, Answer::Done))));
        assert_eq!(block_on(pending).unwrap().id, 5);
    });
    let (promise, pending) = Pending::promise();
    drop(promise);
    assert!(pending.wait().is_err());
    assert_eq!(Pending::ready(Ok(reply(6, Answer::Done))).wait().unwrap().id, 6);
}

#[test]
fn a_cut_connection_wakes_everyone() {
    let server = Server::start(ServeOptions::default());
    let connection = server.connect();
    thread::scope(|scope| {
        for id in 1..=4 {
            let connection = &connection;
            scope.spawn(move || assert!(connection.call(&request(id, COMMIT)).is_err()));
        }
        let pending = connection.start(&request(5, COMMIT));
        scope.spawn(|| assert!(block_on(pending).is_err()));
        server.test.wait_until(|state| (state.parked.len() == 5).then_some(()));
        connection.send(&request(6, Call::Bye));
        assert!(connection.wait(6).is_err());
    });
    let lost = connection.lost().unwrap();
    assert_eq!(connection.call(&request(7, Call::Ping)), Err(lost));
    assert_eq!(server.closed(), Closed::End);
    // The senders of parked requests report that there is nobody to answer.
    let (sender, id) = server.test.state.lock().parked.pop_front().unwrap();
    assert!(sender.send(&reply(id, Answer::Done)).is_err());

    // The other way round: the client closes the connection.
    let connection = server.connect();
    thread::scope(|scope| {
        scope.spawn(|| assert!(connection.call(&request(1, COMMIT)).is_err()));
        server.test.wait_until(|state| (state.parked.len() == 5).then_some(()));
        connection.close();
    });
    // And the server stops.
    let connection = server.connect();
    thread::scope(|scope| {
        scope.spawn(|| assert!(connection.call(&request(1, COMMIT)).is_err()));
        server.test.wait_until(|state| (state.parked.len() == 6).then_some(()));
        server.serving.stop();
    });
    assert!(!server.dir.path().join("socket").exists());
}

#[test]
fn recalls_come_after_the_welcome_and_are_acknowledged() {
    let server = Server::start(ServeOptions::default());
    let (channel, _) =
        RecallChannel::open(&server.address, None, &hello(Channel::Recall), CONNECT_TIMEOUT).unwrap();
    assert_eq!(channel.next(), Ok(Recall { id: 1, ino: Ino(7), keep: LeaseMode::None, grown: None }));
    let second = Recall { id: 2, ino: Ino(8), keep: LeaseMode::Shared, grown: None };
    let sender = server.test.state.lock().recalls.take().unwrap();
    sender.recall(&second).unwrap();
    assert_eq!(channel.next(), Ok(second));
    channel.done(RecallDone { id: 2 }).unwrap();
    channel.done(RecallDone { id: 1 }).unwrap();
    let done = server
        .test
        .wait_until(|state| (state.recalls_done.len() == 2).then(|| std::mem::take(&mut state.recalls_done)));
    assert_eq!(done, [RecallDone { id: 2 }, RecallDone { id: 1 }]);
    thread::scope(|scope| {
        scope.spawn(|| assert!(channel.next().is_err()));
        sender.close();
    });
    assert_eq!(server.closed(), Closed::End);
}

#[test]
fn messages_between_plates_arrive_in_order_and_the_sender_hears_of_the_end() {
    let server = Server::start(ServeOptions::default());
    let speaker = Hello { resume: Some((SessionId(3), 9)), ..hello(Channel::Peer) };
    let channel = PeerChannel::open(&server.address, None, &speaker, CONNECT_TIMEOUT).unwrap();
    let frame = |upto| {
        let (from, to) = (PlateId(1), PlateId(2));
        // Some are long: they are sent in several parts.
        let events = vec![7; if upto % 10 == 0 { 100_000 } else { 3 }];
        let key = OpKey { session: SessionId(1), seq: Seq(upto) };
        PeerFrame { from, to, message: PeerMessage::Effect { number: upto, key, count: 1, events } }
    };
    channel.send((1..=60).map(frame)).unwrap();
    channel.send([frame(61)]).unwrap();
    channel.send([]).unwrap();
    let arrived =
        server.test.wait_until(|state| (state.frames.len() == 61).then(|| std::mem::take(&mut state.frames)));
    for ((server, arrived), upto) in arrived.into_iter().zip(1..) {
        // The test's server accepts everybody as the same.
        assert!((server, arrived) == (SessionId(42), frame(upto)), "message {upto}");
    }
    thread::scope(|scope| {
        scope.spawn(|| channel.wait_for_end());
        server.serving.stop();
    });
}

/// Of a server that is there, of one that is stuck, and of none.
#[test]
fn a_probe_says_whether_a_server_answers() {
    let server = Server::start(ServeOptions::default());
    probe(&server.address, None, CONNECT_TIMEOUT).unwrap();
    assert_eq!(server.closed(), Closed::Refused, "it leaves nothing behind");
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("socket"));
    let kind = |limit| match probe(&address, None, limit) {
        Err(OpenError::Io(error)) => error.kind(),
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(CONNECT_TIMEOUT), std::io::ErrorKind::NotFound);
    let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    assert_eq!(kind(Duration::from_millis(20)), std::io::ErrorKind::TimedOut);
    drop(listener);
    assert_eq!(kind(CONNECT_TIMEOUT), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_request_in_single_bytes_is_served() {
    let server = Server::start(ServeOptions::default());
    let mut socket = server.raw();
    let bytes = [hello_frame(), frame(FrameKind::Request, |out| request(9, Call::Ping).encode(out))].concat();
    for byte in bytes {
        socket.write_all(&[byte]).unwrap();
    }
    assert_eq!(frames(&mut socket, 2), [FrameKind::Welcome, FrameKind::Reply]);
}

#[test]
fn two_hundred_connections_come_and_go_without_a_trace() {
    let server = Server::start(ServeOptions::default());
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let connections: Vec<Connection> = (0..200).map(|_| server.connect()).collect();
    let idle: Vec<UnixStream> = (0..50).map(|_| server.raw()).collect();
    for (id, connection) in (1..).zip(&connections) {
        connection.send(&request(id, COMMIT));
        connection.flush();
    }
    server.test.wait_until(|state| (state.parked.len() == 200).then_some(()));
    assert!(descriptors_of(&server.path()) >= 250, "the count sees connections");
    assert!(threads() < 150, "threads do not grow with connections");
    drop((connections, idle));
    server.test.wait_until(|state| (state.closed.len() == 250).then_some(()));
    // The senders of parked requests are still held: they must not hold descriptors.
    assert_eq!(server.test.state.lock().parked.len(), 200);
    assert_eq!((server.serving.connections(), descriptors_of(&server.path())), (0, 1));
}

#[test]
fn tcp_works_and_a_full_server_says_so() {
    let test = Arc::new(Test::default());
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().clone();
    let options = ServeOptions { connections_max: 1, ..ServeOptions::default() };
    let serving = serve(vec![listener], test.clone(), options, None).unwrap();
    let (connection, _) = Connection::open(&address, None, &hello(Channel::Main), CONNECT_TIMEOUT).unwrap();
    for id in 1..=20 {
        assert_eq!(connection.call(&request(id, Call::Ping)).unwrap().id, id);
    }
    match Connection::open(&address, None, &hello(Channel::Main), CONNECT_TIMEOUT) {
        Err(OpenError::Refused { reason: RefuseReason::Full, .. } | OpenError::Io(_)) => {}
        other => panic!("{other:?}"),
    }
    serving.stop();
    assert!(connection.call(&request(21, Call::Ping)).is_err());
}

#[test]
fn long_requests_and_replies_pass_and_too_long_ones_are_answered_in_place() {
    let server = Server::start(ServeOptions::default());
    let connection = server.connect();
    let block = BlockId { writer: 1, number: 1 };
    // Many long ones each way at once: both ends must read while they write.
    for id in 1..=8 {
        connection.send(&request(id, Call::PutBlock { block, bytes: vec![1; 3 << 20] }));
        connection.send(&request(100 + id, get(3 << 20)));
    }
    for id in 1..=8 {
        assert_eq!(connection.wait(id).unwrap().result, Ok(Answer::Done));
        assert_eq!(connection.wait(100 + id).unwrap().result, Ok(Answer::Bytes(vec![3; 3 << 20])));
    }
    let over = FRAME_BYTES_MAX as u32;
    let long = connection.call(&request(200, get(over))).unwrap();
    assert!(matches!(long.result, Err(Failure::Malformed(_))), "{:?}", long.id);
    let put = Call::PutBlock { block, bytes: vec![1; over as usize] };
    let long = connection.call(&request(201, put)).unwrap();
    assert!(matches!(long.result, Err(Failure::Malformed(_))), "{:?}", long.id);
    assert!(connection.call(&request(202, Call::Ping)).is_ok());
}
