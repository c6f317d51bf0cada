//! What the protocol costs: a service that answers at once, against two threads that echo the same bytes through a
//! bare socket. Unix socket; one client thread.
//!
//! `cargo run --release -p chiton-wire --example echo [seconds per row]`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Make, Op, Outcome};
use chiton_runtime::{RealWorld, World};
use chiton_types::{Attr, Cred, Epoch, Ino, Kind, Mode, Name, Position, Seq, SessionId, Take, Time};
use chiton_wire::{
    Address, Answer, CONNECT_TIMEOUT, Call, Channel, Closed, ConnId, Connection, FrameKind, Hello, Listener,
    PROTOCOL_VERSION, RecallDone, Reply, Request, Sender, ServeOptions, Service, Welcome, put_frame, serve,
};

const IN_FLIGHT: usize = 64;
const BATCH: usize = 1000;

struct Echo;

impl Service for Echo {
    fn open(&self, _: Hello, _: &Sender) -> Option<Welcome> {
        Some(Welcome::Accepted {
            session: SessionId(1),
            secret: 1,
            epoch: Epoch(1),
            filesystem: 1,
            boot: 1,
            session_ms: 60_000,
            durable: Position(0),
            objects: String::new(),
        })
    }

    fn requests(&self, _: SessionId, sender: &Sender, batch: &mut Vec<Request>) {
        for request in batch.drain(..) {
            // An error means that the client is gone; `closed` follows.
            let _ = sender.send(&answer(&request));
        }
    }

    fn recall_done(&self, _: SessionId, _: &Sender, _: RecallDone) {}

    fn closed(&self, _: ConnId, _: Option<(SessionId, Channel)>, _: &Closed) {}
}

fn answer(request: &Request) -> Reply {
    let answer = match &request.call {
        Call::Batch { ops, .. } => {
            let outcome = Outcome { attr: Some(attr()), gone: None, other: None, time: Time(0) };
            Answer::Batch(ops.iter().map(|_| Ok((Position(7), outcome.clone()))).collect())
        }
        _ => Answer::Done,
    };
    Reply { id: request.id, epoch: Epoch(1), durable: Position(5), result: Ok(answer) }
}

fn attr() -> Attr {
    Attr {
        ino: Ino(12345),
        kind: Kind::File,
        mode: Mode(0o644),
        nlink: 1,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        size: 0,
        allocated: 0,
        atime: Time(1),
        mtime: Time(1),
        ctime: Time(1),
        btime: Time(1),
        parent: Ino::ROOT,
        lists: 0,
        position: Position(7),
    }
}

fn create(i: usize) -> Op {
    Op::Make {
        parent: Ino::ROOT,
        name: Name::try_from(format!("file-{i:08}").as_str()).expect("a name"),
        make: Make::File { content: Vec::new() },
        mode: Mode(0o644),
    }
}

fn request(id: u64, call: Call) -> Request {
    let cred = Cred::unseen(1000, 1000);
    Request { id, seq: Seq(id), settled: Seq(0), epoch: Epoch(1), again: None, cred, call }
}

fn batch(id: u64) -> Request {
    request(id, Call::Batch { ops: (0..BATCH).map(create).collect(), stop_on_failure: false })
}

/// Operations a second in the best of the slices: other work on the machine spoils some of them. `turn` answers how
/// many operations it did.
fn rate(seconds: f64, mut turn: impl FnMut() -> usize) -> f64 {
    rates(seconds, &mut [&mut turn])[0]
}

/// The same of several, slice by slice in turns, so that they meet the same machine.
fn rates(seconds: f64, turns: &mut [&mut dyn FnMut() -> usize]) -> Vec<f64> {
    let slice = Duration::from_millis(20);
    let mut best = vec![0.0; turns.len()];
    for _ in 0..((seconds / slice.as_secs_f64()) as usize).max(1) {
        for (turn, best) in turns.iter_mut().zip(&mut best) {
            let (start, mut done, mut passed) = (RealWorld.monotonic(), 0, Duration::ZERO);
            while passed < slice {
                for _ in 0..16 {
                    done += turn();
                }
                passed = RealWorld.monotonic() - start;
            }
            *best = f64::max(*best, done as f64 / passed.as_secs_f64());
        }
    }
    best
}

/// A peer that answers every `ask` bytes with `tell` bytes, as many at a time as a read brings.
fn bare(ask: usize, tell: usize) -> UnixStream {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("bare");
    let listener = UnixListener::bind(&path).expect("bind");
    let client = UnixStream::connect(&path).expect("connect");
    let (mut server, _) = listener.accept().expect("accept");
    std::thread::spawn(move || {
        let mut buf = vec![0; 256 << 10];
        let out = vec![0; (256 << 10) / ask.max(1) * tell + tell];
        let mut have = 0;
        while let Ok(n @ 1..) = server.read(&mut buf) {
            have += n;
            if server.write_all(&out[..have / ask * tell]).is_err() {
                return;
            }
            have %= ask;
        }
    });
    client
}

/// `in_flight` asked, then as many answered, `parts` messages to a write. Answers for how many operations.
fn bare_turn(ask: usize, tell: usize, in_flight: usize, parts: usize, ops: usize) -> impl FnMut() -> usize {
    let mut socket = bare(ask, tell);
    let out = vec![1; ask * parts];
    let mut buf = vec![0; (tell * in_flight).max(256 << 10)];
    move || {
        for _ in 0..in_flight / parts {
            socket.write_all(&out).expect("write");
        }
        let mut have = 0;
        while have < tell * in_flight {
            have += socket.read(&mut buf).expect("read");
        }
        in_flight * ops
    }
}

fn frame_bytes(request: &Request) -> (usize, usize) {
    let (mut ask, mut tell) = (Vec::new(), Vec::new());
    put_frame(&mut ask, FrameKind::Request, |out| request.encode(out)).expect("fits");
    put_frame(&mut tell, FrameKind::Reply, |out| answer(request).encode(out)).expect("fits");
    (ask.len(), tell.len())
}

fn codec(seconds: f64) {
    let (big, mut bytes) = (batch(1), Vec::new());
    let encode = rate(seconds, || {
        bytes.clear();
        big.encode(&mut bytes);
        BATCH
    });
    let decode = rate(seconds, || match Request::decode(&mut Take::new(&bytes)).map(|r| r.call) {
        Ok(Call::Batch { ops, .. }) => ops.len(),
        other => panic!("{other:?}"),
    });
    let (reply, mut bytes) = (answer(&big), Vec::new());
    let encode_reply = rate(seconds, || {
        bytes.clear();
        reply.encode(&mut bytes);
        BATCH
    });
    let decode_reply = rate(seconds, || match Reply::decode(&mut Take::new(&bytes)).map(|r| r.result) {
        Ok(Ok(Answer::Batch(results))) => results.len(),
        other => panic!("{other:?}"),
    });
    println!("codec, batch of {BATCH} creates, million operations/s:");
    println!(
        "  request encode {:.1} decode {:.1}   reply encode {:.1} decode {:.1}",
        encode / 1e6,
        decode / 1e6,
        encode_reply / 1e6,
        decode_reply / 1e6
    );
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1.0);
    codec(seconds);

    let dir = tempfile::tempdir().expect("a directory");
    let address = Address::Unix(dir.path().join("echo"));
    let listener = Listener::bind(&address).expect("bind");
    let serving = serve(vec![listener], Arc::new(Echo), ServeOptions::default()).expect("serve");
    let hello = Hello {
        version: PROTOCOL_VERSION,
        channel: Channel::Main,
        resume: None,
        identity: "echo".to_owned(),
        resend_count: 0,
        decouples: false,
    };
    let (connection, _) = Connection::open(&address, &hello, CONNECT_TIMEOUT).expect("open");

    let row = |name: &str, bare: f64, ours: f64| {
        println!("{name:<36}{bare:>11.0} bare{ours:>11.0} ours   ratio {:.2}", ours / bare);
    };
    let (ask, tell) = frame_bytes(&request(1, Call::Ping));
    let mut ours = || {
        connection.call(&request(connection.next_id(), Call::Ping)).expect("a reply");
        1
    };
    let found = rates(seconds, &mut [&mut bare_turn(ask, tell, 1, 1, 1), &mut ours]);
    row("one at a time, calls/s", found[0], found[1]);

    let mut ours = || {
        let ids: [u64; IN_FLIGHT] = std::array::from_fn(|_| connection.next_id());
        for id in ids {
            connection.send(&request(id, Call::Ping));
        }
        for id in ids {
            connection.wait(id).expect("a reply");
        }
        IN_FLIGHT
    };
    let mut each = bare_turn(ask, tell, IN_FLIGHT, 1, 1);
    let mut whole = bare_turn(ask, tell, IN_FLIGHT, IN_FLIGHT, 1);
    let found = rates(seconds, &mut [&mut each, &mut whole, &mut ours]);
    row("64 in flight, calls/s", found[0], found[2]);
    row("  bare: 64 messages as one string", found[1], found[2]);

    let mut big = batch(1);
    let (ask, tell) = frame_bytes(&big);
    let mut ours = || {
        big.id = connection.next_id();
        connection.call(&big).expect("a reply");
        BATCH
    };
    let found = rates(seconds, &mut [&mut bare_turn(ask, tell, 1, 1, BATCH), &mut ours]);
    row("batches of 1,000, ops/s", found[0], found[1]);
    println!("  ({ask} bytes ask, {tell} bytes tell; ours includes making 1,000 results and both codecs)");
    drop(connection);
    serving.stop();
}
