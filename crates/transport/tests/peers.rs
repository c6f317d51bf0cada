//! Both ends together, and each against a peer that misbehaves.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

use std::collections::VecDeque;
use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use chiton_transport::*;
use chiton_types::{BlockId, Cred, Epoch, Ino, Position, Put, Seq, SessionId, Take};
use chiton_wire::*;
use parking_lot::{Condvar, Mutex};

/// `Ping` and most else are done at once; `Commit` waits until the test lets it go; `GetBlock` gets its length in bytes;
/// `Bye` closes the connection. Who is called `later` is greeted by the test.
#[derive(Default)]
struct Test {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    parked: VecDeque<(Sender, u64)>,
    ungreeted: VecDeque<Sender>,
    recalls: Option<Sender>,
    recalls_done: Vec<RecallDone>,
    batches: Vec<usize>,
    closed: Vec<(Option<(SessionId, Channel)>, Closed)>,
}

impl Test {
    fn wait_until<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.state.lock();
        loop {
            match ready(&mut state) {
                Some(found) => return found,
                None => self.changed.wait(&mut state),
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }
}

fn reply(id: u64, answer: Answer) -> Reply {
    Reply { id, epoch: Epoch(1), durable: Position(id), result: Ok(answer) }
}

fn accepted() -> Welcome {
    Welcome::Accepted {
        session: SessionId(42),
        secret: 1,
        epoch: Epoch(1),
        filesystem: 1,
        boot: 1,
        session_ms: 60_000,
        durable: Position(0),
        objects: String::new(),
    }
}

fn refusal() -> Welcome {
    Welcome::Refused { reason: RefuseReason::NotReady, message: "come back later".to_owned() }
}

impl Service for Test {
    fn open(&self, hello: Hello, sender: &Sender) -> Option<Welcome> {
        if hello.identity == "nobody" {
            return Some(refusal());
        }
        if hello.channel == Channel::Recall && hello.identity.is_empty() {
            let message = "a recall connection belongs to a session".to_owned();
            return Some(Welcome::Refused { reason: RefuseReason::SessionGone, message });
        }
        if hello.identity == "later" {
            self.change(|state| state.ungreeted.push_back(sender.clone()));
            return None;
        }
        if hello.channel == Channel::Recall {
            // Before the welcome, on purpose: it must come out after it.
            sender.recall(&Recall { id: 1, ino: Ino(7), keep: LeaseMode::None, grown: None }).unwrap();
            self.change(|state| state.recalls = Some(sender.clone()));
        }
        Some(accepted())
    }

    fn requests(&self, _: SessionId, sender: &Sender, batch: &mut Vec<Request>) {
        self.change(|state| state.batches.push(batch.len()));
        for request in batch.drain(..) {
            match request.call {
                Call::Commit { .. } => {
                    self.change(|state| state.parked.push_back((sender.clone(), request.id)));
                }
                Call::GetBlock { len, .. } => {
                    let _ = sender.send(&reply(request.id, Answer::Bytes(vec![3; len as usize])));
                }
                Call::Bye => sender.close(),
                _ => {
                    let _ = sender.send(&reply(request.id, Answer::Done));
                }
            }
        }
    }

    fn recall_done(&self, _: SessionId, _: &Sender, done: RecallDone) {
        self.change(|state| state.recalls_done.push(done));
    }

    fn closed(&self, _: ConnId, opened: Option<(SessionId, Channel)>, why: &Closed) {
        self.change(|state| state.closed.push((opened, why.clone())));
    }
}

struct Server {
    test: Arc<Test>,
    serving: Serving,
    address: Address,
    dir: tempfile::TempDir,
}

impl Server {
    fn start(options: ServeOptions) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Unix(dir.path().join("socket"));
        let test = Arc::new(Test::default());
        let listener = Listener::bind(&address).unwrap();
        let serving = serve(vec![listener], test.clone(), options).unwrap();
        Server { test, serving, address, dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn connect(&self) -> Connection {
        Connection::open(&self.address, &hello(Channel::Main), CONNECT_TIMEOUT).unwrap().0
    }

    fn raw(&self) -> UnixStream {
        UnixStream::connect(self.path()).unwrap()
    }

    /// Why the next connection is closed, in the order of closing.
    fn closed(&self) -> Closed {
        self.test.wait_until(|state| (!state.closed.is_empty()).then(|| state.closed.remove(0).1))
    }
}

fn hello(channel: Channel) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        channel,
        resume: None,
        identity: "test".to_owned(),
        resend_count: 0,
        decouples: false,
    }
}

fn request(id: u64, call: Call) -> Request {
    let cred = Cred::unseen(1, 1);
    Request { id, seq: Seq(0), settled: Seq(0), epoch: Epoch(1), again: None, cred, call }
}

const COMMIT: Call = Call::Commit { upto: Position(0) };

fn get(len: u32) -> Call {
    Call::GetBlock { block: BlockId { writer: 1, number: 1 }, offset: 0, len }
}

fn frame(kind: FrameKind, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, kind, put).unwrap();
    out
}

fn hello_frame() -> Vec<u8> {
    frame(FrameKind::Hello, |out| hello(Channel::Main).encode(out))
}

/// Waits for a future without any runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(found) => return found,
            Poll::Pending => thread::park(),
        }
    }
}

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
    // Parked requests of many threads, answered backwards by yet another, while a caller goes on.
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
    // Those parked are told that there is nobody to answer.
    let (sender, id) = server.test.state.lock().parked.pop_front().unwrap();
    assert!(sender.send(&reply(id, Answer::Done)).is_err());

    // The other way round: the client closes by itself.
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
        RecallChannel::open(&server.address, &hello(Channel::Recall), CONNECT_TIMEOUT).unwrap();
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
    match Connection::open(&server.address, &nobody, CONNECT_TIMEOUT) {
        Err(OpenError::Refused { reason: RefuseReason::NotReady, message }) => {
            assert_eq!(message, "come back later");
        }
        other => panic!("{other:?}"),
    }
}

/// Of a server that is there, of one that is stuck, and of none.
#[test]
fn a_probe_says_whether_a_server_answers() {
    let server = Server::start(ServeOptions::default());
    probe(&server.address, CONNECT_TIMEOUT).unwrap();
    assert_eq!(server.closed(), Closed::Refused, "it leaves nothing behind");
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("socket"));
    let kind = |limit| match probe(&address, limit) {
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
            let text = match Connection::open(&address, &hello(Channel::Main), CONNECT_TIMEOUT) {
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

/// What a socket says until it was so many frames, or closes.
fn frames(socket: &mut UnixStream, count: usize) -> Vec<FrameKind> {
    let (mut reader, mut buf) = (FrameReader::new(), [0; 4096]);
    let mut seen = Vec::new();
    while seen.len() < count {
        let n = socket.read(&mut buf).unwrap();
        if n == 0 {
            break;
        }
        reader.push(&buf[..n]);
        while let Some((kind, _)) = reader.next_frame().unwrap() {
            seen.push(kind);
        }
    }
    seen
}

#[test]
fn who_is_greeted_later_keeps_nobody_and_is_not_heard_before() {
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
fn who_does_not_read_is_not_read() {
    let options = ServeOptions { out_bytes_max: 1 << 20, in_flight_max: 10, ..ServeOptions::default() };
    let server = Server::start(options);
    // 4 GiB of answers asked for by a client that never reads: memory is bounded by what is let through.
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

fn descriptors_of(path: &std::path::Path) -> usize {
    // Lines of the kernel's table of Unix sockets: one for each end that the server has.
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    table.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count()
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
    let serving = serve(vec![listener], test.clone(), options).unwrap();
    let (connection, _) = Connection::open(&address, &hello(Channel::Main), CONNECT_TIMEOUT).unwrap();
    for id in 1..=20 {
        assert_eq!(connection.call(&request(id, Call::Ping)).unwrap().id, id);
    }
    match Connection::open(&address, &hello(Channel::Main), CONNECT_TIMEOUT) {
        Err(OpenError::Refused { reason: RefuseReason::Full, .. } | OpenError::Io(_)) => {}
        other => panic!("{other:?}"),
    }
    serving.stop();
    assert!(connection.call(&request(21, Call::Ping)).is_err());
}

/// Of a message that is announced as long, the first bytes.
fn unfinished(kind: FrameKind, bytes: usize) -> Vec<u8> {
    let mut message = (FRAME_BYTES_MAX as u32).to_le_bytes().to_vec();
    message.push(kind as u8);
    message.resize(bytes, 0);
    message
}

#[test]
fn who_has_not_greeted_costs_a_few_hundred_bytes_each_and_only_some_of_them_stay() {
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
    // Others are greeted all the while, and what they send behind the hello is not lost.
    let mut quick = server.raw();
    let ping = frame(FrameKind::Request, |out| request(1, Call::Ping).encode(out));
    quick.write_all(&[&hello_frame()[..], &ping.repeat(100)].concat()).unwrap();
    assert_eq!(frames(&mut quick, 101).len(), 101);
    drop(sockets);
}

#[test]
fn who_does_not_greet_in_time_is_closed() {
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
