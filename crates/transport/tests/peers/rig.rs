//! A server, its clients, and the messages that they exchange.

use std::collections::VecDeque;
use std::future::Future;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use chiton_transport::*;
use chiton_types::{BlockId, Cred, Epoch, Ino, PlateId, Position, Seq, SessionId};
use chiton_wire::*;
use parking_lot::{Condvar, Mutex};

/// `Ping` and most else are done at once; `Commit` waits until the test lets it go; `GetBlock` gets its length in bytes;
/// `Bye` closes the connection. The test greets a peer called `later`.
#[derive(Default)]
pub(crate) struct Test {
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) parked: VecDeque<(Sender, u64)>,
    pub(crate) ungreeted: VecDeque<Sender>,
    pub(crate) recalls: Option<Sender>,
    pub(crate) recalls_done: Vec<RecallDone>,
    pub(crate) frames: Vec<(SessionId, PeerFrame)>,
    pub(crate) batches: Vec<usize>,
    pub(crate) closed: Vec<(Option<(SessionId, Channel)>, Closed)>,
}

impl Test {
    pub(crate) fn wait_until<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.state.lock();
        loop {
            match ready(&mut state) {
                Some(found) => return found,
                None => self.changed.wait(&mut state),
            }
        }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }
}

pub(crate) fn reply(id: u64, answer: Answer) -> Reply {
    Reply { id, epoch: Epoch(1), durable: Position(id), result: Ok(answer) }
}

pub(crate) fn accepted() -> Welcome {
    Welcome::Accepted {
        session: SessionId(42),
        secret: 1,
        epoch: Epoch(1),
        filesystem: 1,
        boot: 1,
        session_ms: 60_000,
        durable: Position(0),
        objects: String::new(),
        shards: 1,
        plates: 1,
    }
}

pub(crate) fn refusal() -> Welcome {
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

    fn peer(&self, server: SessionId, _: &Sender, frame: PeerFrame) {
        self.change(|state| state.frames.push((server, frame)));
    }

    fn closed(&self, _: ConnId, opened: Option<(SessionId, Channel)>, why: &Closed) {
        self.change(|state| state.closed.push((opened, why.clone())));
    }
}

pub(crate) struct Server {
    pub(crate) test: Arc<Test>,
    pub(crate) serving: Serving,
    pub(crate) address: Address,
    pub(crate) dir: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start(options: ServeOptions) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Unix(dir.path().join("socket"));
        let test = Arc::new(Test::default());
        let listener = Listener::bind(&address).unwrap();
        let serving = serve(vec![listener], test.clone(), options, None).unwrap();
        Server { test, serving, address, dir }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.address, None, &hello(Channel::Main), CONNECT_TIMEOUT).unwrap().0
    }

    pub(crate) fn raw(&self) -> UnixStream {
        UnixStream::connect(self.path()).unwrap()
    }

    /// Why the next connection is closed, in the order of closing.
    pub(crate) fn closed(&self) -> Closed {
        self.test.wait_until(|state| (!state.closed.is_empty()).then(|| state.closed.remove(0).1))
    }
}

pub(crate) fn hello(channel: Channel) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        channel,
        resume: None,
        identity: "test".to_owned(),
        resend_count: 0,
        decouples: false,
        plate: PlateId(0),
        client: 0,
        filesystem: 0,
    }
}

pub(crate) fn request(id: u64, call: Call) -> Request {
    let cred = Cred::unseen(1, 1);
    Request { id, seq: Seq(0), settled: Seq(0), epoch: Epoch(1), again: None, cred, call }
}

pub(crate) const COMMIT: Call = Call::Commit { upto: Position(0) };

pub(crate) fn get(len: u32) -> Call {
    Call::GetBlock { block: BlockId { writer: 1, number: 1 }, offset: 0, len }
}

pub(crate) fn frame(kind: FrameKind, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, kind, put).unwrap();
    out
}

pub(crate) fn hello_frame() -> Vec<u8> {
    frame(FrameKind::Hello, |out| hello(Channel::Main).encode(out))
}

/// Waits for a future without any runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
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

/// Frames from a socket, until there are so many or it closes.
pub(crate) fn frames(socket: &mut UnixStream, count: usize) -> Vec<FrameKind> {
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

pub(crate) fn descriptors_of(path: &std::path::Path) -> usize {
    // Lines of the kernel's table of Unix sockets: one for each end that the server has.
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    table.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count()
}

/// Of a message that is announced as long, the first bytes.
pub(crate) fn unfinished(kind: FrameKind, bytes: usize) -> Vec<u8> {
    let mut message = (FRAME_BYTES_MAX as u32).to_le_bytes().to_vec();
    message.push(kind as u8);
    message.resize(bytes, 0);
    message
}
