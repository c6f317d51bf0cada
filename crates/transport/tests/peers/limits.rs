//! Limits of what peers may leave unread, unfinished or ungreeted.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use chiton_transport::*;
use chiton_types::SessionId;
use chiton_wire::*;

use crate::rig::*;

#[test]
fn a_client_that_is_greeted_later_delays_no_other_and_is_not_read_before() {
    let server = Server::start(ServeOptions { threads: 1, ..ServeOptions::default() });
    let other = server.connect();
    let later = || {
        let mut socket = server.raw();
        let hello = Hello { identity: "later".to_owned(), ..hello(Channel::Main) };
        let hello = frame(FrameKind::Hello, |out| hello.encode(out));
        let ping = frame(FrameKind::Request, |out| request(9, Call::Ping).encode(out));
        socket.write_all(&[hello, ping].concat()).unwrap();
        let sender = server.test.wait_until(|state| state.ungreeted.pop_front());
        (socket, sender)
    };
    let (mut greeted, greeted_sender) = later();
    let (mut refused, refused_sender) = later();
    let (gone, gone_sender) = later();
    for id in 1..100 {
        other.call(&request(id, Call::Ping)).unwrap();
    }
    assert_eq!(server.test.state.lock().batches.len(), 99, "nothing of those who wait is handed over");
    drop(gone);
    server.test.wait_until(|state| state.closed.pop());
    assert!(gone_sender.welcome(accepted()).is_err(), "nobody is there any more");
    greeted_sender.welcome(accepted()).unwrap();
    assert_eq!(frames(&mut greeted, 2), [FrameKind::Welcome, FrameKind::Reply]);
    refused_sender.welcome(refusal()).unwrap();
    assert_eq!(frames(&mut refused, 2), [FrameKind::Welcome], "and then the end");
    assert_eq!(server.test.wait_until(|state| state.closed.pop()), (None, Closed::Refused));
    drop(greeted);
    let opened = Some((SessionId(42), Channel::Main));
    assert_eq!(server.test.wait_until(|state| state.closed.pop()), (opened, Closed::End));
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let options = ServeOptions { out_bytes_max: 1 << 20, in_flight_max: 10, ..ServeOptions::default() };
    let server = Server::start(options);
    // 4 GiB of answers asked for by a client that never reads: memory is bounded by the limits.
    let mut greedy = server.raw();
    greedy.write_all(&hello_frame()).unwrap();
    greedy.set_nonblocking(true).unwrap();
    let ask = frame(FrameKind::Request, |out| request(1, get(1 << 20)).encode(out));
    for _ in 0..4096 {
        if greedy.write(&ask).is_err() {
            break;
        }
    }
    // A patient one with more in flight than is allowed gets everything in the end.
    let connection = server.connect();
    for id in 1..=200 {
        connection.send(&request(id, COMMIT));
    }
    connection.flush();
    for _ in 0..200 {
        let (sender, id) = server.test.wait_until(|state| state.parked.pop_front());
        sender.send(&reply(id, Answer::Done)).unwrap();
    }
    for id in 1..=200 {
        assert!(connection.wait(id).is_ok());
    }
    let asked: usize = server.test.state.lock().batches.iter().sum();
    assert!(asked < 200 + 500, "{asked} requests were taken in");
    drop(greedy);
    assert_eq!(server.closed(), Closed::End);
}

#[test]
fn clients_that_have_not_greeted_cost_a_few_hundred_bytes_each_and_only_some_of_them_stay() {
    let server = Server::start(ServeOptions { half_open_max: 8, ..ServeOptions::default() });
    // A long greeting is refused before it is read.
    let mut long = server.raw();
    let _ = long.write_all(&unfinished(FrameKind::Hello, 1 << 20));
    let _ = long.read_to_end(&mut Vec::new());
    match server.closed() {
        Closed::Malformed(why) => assert!(why.contains("before the greeting is answered"), "{why}"),
        other => panic!("{other:?}"),
    }
    // Of a short one that never ends little is kept; and of many of them only the last stay.
    let part = &hello_frame()[..20];
    let sockets: Vec<UnixStream> = (0..150)
        .map(|_| {
            let mut socket = server.raw();
            let _ = socket.write_all(part);
            socket
        })
        .collect();
    server.test.wait_until(|state| (state.closed.len() >= 142).then_some(()));
    assert!(server.test.state.lock().closed.iter().all(|(_, why)| *why == Closed::Ungreeted));
    let (unread, unfinished) = server.serving.held_bytes();
    assert!(unread == 0 && unfinished <= 8 * (4 + GREETING_BYTES_MAX), "{unread} {unfinished}");
    assert!(server.serving.connections() <= 8);
    // Others are greeted all the while, and their messages behind the hello are not lost.
    let mut quick = server.raw();
    let ping = frame(FrameKind::Request, |out| request(1, Call::Ping).encode(out));
    quick.write_all(&[&hello_frame()[..], &ping.repeat(100)].concat()).unwrap();
    assert_eq!(frames(&mut quick, 101).len(), 101);
    drop(sockets);
}

#[test]
fn a_client_that_does_not_greet_in_time_is_closed() {
    let greet_within = Duration::from_millis(40);
    let server = Server::start(ServeOptions { greet_within, ..ServeOptions::default() });
    let connection = server.connect();
    let mut silent = server.raw();
    silent.write_all(&hello_frame()[..5]).unwrap();
    assert_eq!(silent.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert_eq!(server.closed(), Closed::Ungreeted);
    assert!(connection.call(&request(1, Call::Ping)).is_ok(), "who has greeted stays");
}

#[test]
fn answers_that_nobody_reads_are_limited_for_all_together_and_in_time() {
    const LIMIT: usize = 8 << 20;
    let options = ServeOptions { unread_bytes_max: LIMIT, ..ServeOptions::default() };
    let server = Server::start(options);
    let witness = server.connect();
    let ask = frame(FrameKind::Request, |out| request(1, get(1 << 20)).encode(out));
    // Each alone would be allowed 32 MiB.
    let greedy: Vec<UnixStream> = (0..6)
        .map(|_| {
            let mut socket = server.raw();
            let _ = socket.write_all(&[&hello_frame()[..], &ask.repeat(40)].concat());
            socket
        })
        .collect();
    let closed = server.closed();
    assert_eq!(closed, Closed::Behind);
    let (unread, _) = server.serving.held_bytes();
    assert!(unread <= 2 * LIMIT + (8 << 20), "{unread} bytes are held");
    assert!(witness.call(&request(1, Call::Ping)).is_ok());
    drop(greedy);

    let unread_within = Duration::from_millis(40);
    let server = Server::start(ServeOptions { unread_within, ..ServeOptions::default() });
    let mut greedy = server.raw();
    greedy.write_all(&[&hello_frame()[..], &ask.repeat(4)].concat()).unwrap();
    assert_eq!(server.closed(), Closed::Behind);
    assert_eq!(server.serving.held_bytes().0, 0);
}

#[test]
fn messages_that_are_not_finished_are_limited_for_all_together() {
    const LIMIT: usize = 4 << 20;
    let server = Server::start(ServeOptions { unfinished_bytes_max: LIMIT, ..ServeOptions::default() });
    let witness = server.connect();
    let part = [&hello_frame()[..], &unfinished(FrameKind::Request, 2 << 20)].concat();
    let sockets: Vec<UnixStream> = (0..8)
        .map(|_| {
            let mut socket = server.raw();
            let _ = socket.write_all(&part);
            socket
        })
        .collect();
    assert_eq!(server.closed(), Closed::Behind);
    let (_, unfinished) = server.serving.held_bytes();
    assert!(unfinished <= 2 * LIMIT + (4 << 20), "{unfinished} bytes are held");
    assert!(witness.call(&request(1, Call::Ping)).is_ok());
    drop(sockets);
}
