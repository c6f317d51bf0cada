//! A server that breaks the rules: a socket before a real one, which changes its replies.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use chiton_runtime::thread;
use chiton_transport::{Address, FrameKind, FrameReader, put_frame};
use chiton_types::Take;
use chiton_wire::Reply;

/// Changes a reply.
pub(crate) type Fault = fn(&mut Reply);

/// Listens beside `server`'s socket, and lets a fault change what it replies.
pub(crate) fn before(server: &Address, fault: Fault) -> Address {
    let Address::Unix(behind) = server.clone() else { panic!("a Unix socket") };
    let path = behind.with_extension("faulty");
    let listener = UnixListener::bind(&path).expect("listening");
    let accept = move || {
        for client in listener.incoming() {
            connect(client.expect("a connection"), &behind, fault);
        }
    };
    drop(thread::spawn("faulty", accept).expect("a thread"));
    Address::Unix(path)
}

fn connect(client: UnixStream, behind: &PathBuf, fault: Fault) {
    let server = UnixStream::connect(behind).expect("connected");
    let (mut requests, mut to_server) =
        (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
    let there = move || {
        // Either end may leave.
        let _ = std::io::copy(&mut requests, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    };
    drop(thread::spawn("faulty-requests", there).expect("a thread"));
    let back = move || {
        pass_replies(server, &client, fault);
        let _ = client.shutdown(Shutdown::Both);
    };
    drop(thread::spawn("faulty-replies", back).expect("a thread"));
}

fn pass_replies(mut server: UnixStream, mut client: &UnixStream, fault: Fault) {
    let (mut frames, mut bytes) = (FrameReader::new(), vec![0; 1 << 16]);
    loop {
        let mut out = Vec::new();
        while let Some((kind, body)) = frames.next_frame().expect("frames of a real server") {
            let changed = match kind {
                FrameKind::Reply => {
                    let mut reply = Reply::decode(&mut Take::new(body)).expect("a reply");
                    fault(&mut reply);
                    let mut changed = Vec::new();
                    reply.encode(&mut changed);
                    changed
                }
                _ => body.to_vec(),
            };
            put_frame(&mut out, kind, |out| out.extend_from_slice(&changed)).expect("it fits");
        }
        if client.write_all(&out).is_err() {
            return;
        }
        match server.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => frames.push(&bytes[..count]),
        }
    }
}
