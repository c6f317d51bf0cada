//! Peers that break the rules lose their connection.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread::{self};

use chiton_transport::*;
use chiton_types::{Put, Take};
use chiton_wire::*;

use crate::rig::*;

#[test]
fn hostile_clients_lose_their_connection_and_nobody_else_does() {
    let server = Server::start(ServeOptions::default());
    let witness = server.connect();
    let mut next = 1;
    let mut check = |bytes: &[u8], expect: &str| {
        let mut socket = server.raw();
        // The server may close before it has taken everything.
        let _ = socket.write_all(bytes);
        let _ = socket.read_to_end(&mut Vec::new());
        match server.closed() {
            Closed::Malformed(why) => assert!(why.contains(expect), "{expect}: {why}"),
            other => panic!("{expect}: {other:?}"),
        }
        next += 1;
        assert!(witness.call(&request(next, Call::Ping)).is_ok(), "{expect}");
    };
    check(b"GET / HTTP/1.1\r\n\r\n", "length");
    check(&[0; 8], "length 0");
    check(&(FRAME_BYTES_MAX as u32 + 1).to_le_bytes(), "length");
    check(&[2, 0, 0, 0, 99, 0], "unknown kind 99");
    check(&frame(FrameKind::Request, |out| request(1, Call::Ping).encode(out)), "begins with Request");
    check(&frame(FrameKind::Hello, |out| out.put_u16(1)), "4 bytes");
    check(&frame(FrameKind::Hello, |out| out.put_u32(PROTOCOL_VERSION)), "a byte");
    let after_hello = |more: &[u8]| [&hello_frame()[..], more].concat();
    check(&after_hello(&hello_frame()), "Hello on the Main channel");
    check(
        &after_hello(&frame(FrameKind::RecallDone, |out| RecallDone { id: 1 }.encode(out))),
        "RecallDone on",
    );
    check(&after_hello(&frame(FrameKind::Request, |out| out.put_u64(1))), "header");
    let trailing = frame(FrameKind::Request, |out| {
        request(1, Call::Ping).encode(out);
        out.put_u8(0);
    });
    check(&after_hello(&trailing), "the end");

    // Another version gets an answer that it can read.
    let mut socket = server.raw();
    let other = Hello { version: 77, ..hello(Channel::Main) };
    socket.write_all(&frame(FrameKind::Hello, |out| other.encode(out))).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let welcome = Welcome::decode(&mut Take::new(&answer[5..])).unwrap();
    assert!(matches!(welcome, Welcome::Refused { reason: RefuseReason::Version, .. }), "{welcome:?}");
    assert_eq!(server.closed(), Closed::Refused);
    let nobody = Hello { identity: "nobody".to_owned(), ..hello(Channel::Main) };
    match Connection::open(&server.address, None, &nobody, CONNECT_TIMEOUT) {
        Err(OpenError::Refused { reason: RefuseReason::NotReady, message }) => {
            assert_eq!(message, "come back later");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn hostile_servers_lose_their_clients() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let address = Address::Unix(path);
    let welcome = frame(FrameKind::Welcome, |out| {
        accepted().encode(out);
    });
    let check = |at_hello: &[u8], at_request: &[u8], expect: &str| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = listener.accept().unwrap();
                let mut buf = [0; 4096];
                assert!(socket.read(&mut buf).unwrap() > 0);
                socket.write_all(at_hello).unwrap();
                // Nothing to read if the client was not pleased.
                if socket.read(&mut buf).unwrap_or(0) > 0 {
                    socket.write_all(at_request).unwrap();
                }
            });
            let text = match Connection::open(&address, None, &hello(Channel::Main), CONNECT_TIMEOUT) {
                Err(e) => e.to_string(),
                Ok((connection, _)) => connection.call(&request(1, Call::Ping)).unwrap_err().to_string(),
            };
            assert!(text.contains(expect), "{expect}: {text}");
        });
    };
    check(b"220 smtp ready\r\n", b"", "length");
    check(&hello_frame(), b"", "Hello");
    check(&frame(FrameKind::Welcome, |out| out.put_u8(9)), b"", "a welcome");
    check(&welcome, &[0xff; 64], "length");
    check(&welcome, &frame(FrameKind::Request, |_| ()), "Request where replies are due");
    check(&welcome, &frame(FrameKind::Reply, |out| out.put_u64(1)), "header");
    check(&welcome, b"", "closed the connection");
}
