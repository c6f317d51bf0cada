//! Peers that use a server's socket directly: well-behaved ones, and raw ones that send any bytes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_transport::{Address, Connection, FrameKind, FrameReader, put_frame};
use chiton_types::{Cred, Epoch, Ino, Mode, Name, PlateId, Seq, SessionId, Take};
use chiton_wire::{Answer, Call, Channel, Failure, Hello, PROTOCOL_VERSION, Query, Reply, Request, Welcome};

/// How long a peer waits for bytes that take no time on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The message that begins or resumes a session.
pub(crate) fn hello(channel: Channel, resume: Option<(SessionId, u64)>, identity: &str) -> Hello {
    let identity = identity.to_owned();
    Hello {
        version: PROTOCOL_VERSION,
        channel,
        resume,
        identity,
        resend_count: 0,
        decouples: false,
        plate: PlateId(0),
        client: 0,
        filesystem: 0,
    }
}

/// A request of root.
pub(crate) fn request(id: u64, seq: u64, call: Call) -> Request {
    Request { id, seq: Seq(seq), settled: Seq(0), epoch: Epoch(0), again: None, cred: Cred::ROOT, call }
}

/// That makes an empty file in the root.
pub(crate) fn make_file(name: &str) -> Call {
    let name = Name::try_from(name).expect("a name");
    let make = Make::File { content: Vec::new() };
    Call::Op { op: Op::Make { parent: Ino::ROOT, name, make, mode: Mode(0o644) }, open: false }
}

pub(crate) fn find(name: &str) -> Call {
    Call::Query(Query::Lookup { parent: Ino::ROOT, name: Name::try_from(name).expect("a name") })
}

pub(crate) fn framed(kind: FrameKind, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, kind, encode).expect("it fits");
    out
}

pub(crate) struct Peer {
    connection: Connection,
    seq: u64,
}

impl Peer {
    pub(crate) fn begin(socket: &Path, identity: &str) -> Peer {
        let address: Address = format!("unix:{}", socket.display()).parse().expect("an address");
        let opened = Connection::open(&address, None, &hello(Channel::Main, None, identity), PATIENCE);
        let (connection, welcome) = opened.expect("served");
        assert!(matches!(welcome, Welcome::Accepted { .. }), "{welcome:?}");
        Peer { connection, seq: 0 }
    }

    pub(crate) fn ask(&self, call: Call) -> Result<Answer, Failure> {
        let reply = self.connection.call(&request(self.connection.next_id(), 0, call));
        reply.expect("the connection stays").result
    }

    /// Makes a file, and finds it.
    pub(crate) fn make_and_find(&mut self, name: &str) {
        self.seq += 1;
        let made = request(self.connection.next_id(), self.seq, make_file(name));
        let made = self.connection.call(&made).expect("the connection stays").result;
        assert!(matches!(made, Ok(Answer::Op { .. })), "{made:?}");
        let found = self.ask(find(name));
        assert!(matches!(found, Ok(Answer::Attr { .. })), "{found:?}");
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let Ok(Answer::Bytes(json)) = self.ask(Call::Admin { what: "status".to_owned() }) else {
            panic!("no status")
        };
        serde_json::from_slice(&json).expect("JSON")
    }

    pub(crate) fn goodbye(self) {
        let answer = self.ask(Call::Bye);
        assert!(matches!(answer, Ok(Answer::Done) | Err(Failure::SessionGone)), "{answer:?}");
    }
}

/// A socket and the frames that come out of it.
pub(crate) struct Raw {
    stream: UnixStream,
    frames: FrameReader,
}

impl Raw {
    pub(crate) fn connect(socket: &Path) -> Raw {
        let stream = UnixStream::connect(socket).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time-out");
        Raw { stream, frames: FrameReader::new() }
    }

    /// Sends; false if the server has closed the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        match self.stream.write_all(bytes) {
            Ok(()) => true,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("the server reads nothing"),
            Err(_) => false,
        }
    }

    /// The next frame; `None` if the server has closed the connection.
    pub(crate) fn frame(&mut self) -> Option<(FrameKind, Vec<u8>)> {
        let mut buf = vec![0; 64 << 10];
        loop {
            if let Some((kind, body)) = self.frames.next_frame().expect("the server sends frames") {
                return Some((kind, body.to_vec()));
            }
            match self.stream.read(&mut buf) {
                Ok(0) => return None,
                Ok(n) => self.frames.push(&buf[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("the server says nothing"),
                Err(_) => return None,
            }
        }
    }

    /// Begins a session.
    pub(crate) fn shake(&mut self) -> Welcome {
        let hello = hello(Channel::Main, None, "raw");
        assert!(self.send(&framed(FrameKind::Hello, |out| hello.encode(out))));
        let (kind, body) = self.frame().expect("a welcome");
        assert_eq!(kind, FrameKind::Welcome);
        Welcome::decode(&mut Take::new(&body)).expect("a welcome")
    }

    pub(crate) fn reply(&mut self) -> Reply {
        let (kind, body) = self.frame().expect("a reply");
        assert_eq!(kind, FrameKind::Reply);
        Reply::decode(&mut Take::new(&body)).expect("a reply")
    }

    /// Closes its sending side, and waits until the server has closed.
    pub(crate) fn finish(mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        while self.frame().is_some() {}
    }
}
