//! What is answered without a question under a lease on the names of a directory, and what is not: beside a server that is
//! told nothing.

use std::sync::Arc;
use std::time::Duration;

use chiton_namespace::{Body, Make, Op, RenameHow};
use chiton_proto::{Answer, Call, Foretold, LeaseMode, Query};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_types::{Attr, Cred, Ino, Mode, Position, Refusal, SessionId};
use chiton_world::sync::Mutex;
use chiton_world::{RealWorld, SharedWorld, World};
use tempfile::TempDir;

use crate::data::{BlockIo, DirectBlocks};
use crate::embedded::Embedded;
use crate::handler::Handler;
use crate::{CallError, Client, ClientOptions, OpenFlags, Recalls, Service, Underway};

/// First of the numbers that are granted.
const FIRST: u64 = 1 << 40;
const FLAGS: OpenFlags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };

/// A server in this process that is treated as one far away. It gives leases on names, and takes promises, of which it
/// does nothing.
struct Silent {
    inner: Embedded,
    asked: Mutex<Vec<Call>>,
    promised: Mutex<Vec<(Op, Foretold, Ino)>>,
}

impl Service for Silent {
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        if let Call::LeaseNames { dir, .. } = &call {
            let Answer::Attr { attr, .. } =
                self.inner.call(cred, Call::Query(Query::GetAttr { ino: *dir }))?
            else {
                panic!("no attributes")
            };
            let first = Ino::new(dir.shard(), FIRST);
            let numbers = (first, Ino(first.0 + 1_000));
            return Ok(Answer::Names { leased: true, attr, numbers, now: RealWorld.now() });
        }
        self.asked.lock().push(call.clone());
        self.inner.call(cred, call)
    }
    fn promise(&self, _cred: &Cred, op: &Op, told: Foretold, dir: Ino) -> bool {
        self.promised.lock().push((op.clone(), told, dir));
        true
    }
    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        self.inner.start(cred, call)
    }
    fn session(&self) -> SessionId {
        self.inner.session()
    }
    fn durable(&self) -> Position {
        self.inner.durable()
    }
    fn commit(&self, upto: Position) -> Result<(), Refusal> {
        self.inner.commit(upto)
    }
    fn closed(&self, _ino: Ino) {}
    fn valid_until(&self) -> Duration {
        Duration::MAX
    }
    fn recalls(&self) -> &Recalls {
        self.inner.recalls()
    }
    fn is_embedded(&self) -> bool {
        false
    }
}

struct Site {
    _dir: TempDir,
    _server: Arc<Server>,
    client: Client,
    service: Arc<Silent>,
    /// A directory that was made here.
    dir: Ino,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let world: SharedWorld = Arc::new(RealWorld);
        let data = dir.path().join("data");
        let owner = FormatOptions { uid: rustix::process::geteuid().as_raw(), ..FormatOptions::default() };
        Server::format(&data, &owner, &world).expect("formatted");
        let server = Server::start(&data, ServerOptions::default(), world).expect("started");
        let inner = Embedded::begin(&server, "told").expect("a session");
        let service = Arc::new(Silent { inner, asked: Mutex::default(), promised: Mutex::default() });
        let blocks: Arc<dyn BlockIo> = Arc::new(DirectBlocks::new(server.objects()));
        let options = ClientOptions { ahead_after: Some(0), ..ClientOptions::default() };
        let client = Client::over(service.clone(), Some(blocks), 1, options);
        let handler: Arc<dyn Handler> = client.core.clone();
        service.inner.heard().handler.set(Arc::downgrade(&handler));
        let dir_ino = client.mkdir_all("dir").expect("made").ino;
        service.asked.lock().clear();
        Site { _dir: dir, _server: server, client, service, dir: dir_ino }
    }

    fn create(&self, name: &str) -> (Attr, u64) {
        let caller = self.client.caller();
        let made = self.client.create(&caller, self.dir, name.as_bytes(), Mode(0o640), FLAGS);
        made.map(|(entry, fh)| (entry.attr, fh)).expect("made")
    }

    fn write(&self, fh: u64, at: u64, bytes: &[u8]) {
        self.client.write(&self.client.caller(), fh, at, bytes).expect("written");
    }

    /// What was promised since it was last asked for, in words.
    fn promised(&self) -> Vec<String> {
        let in_words = |(op, told, dir): (Op, Foretold, Ino)| {
            assert_eq!(dir, self.dir);
            let n = told.ino.counter() - FIRST;
            match op {
                Op::Make { name, make: Make::File { .. }, .. } => format!("file {name} {n}"),
                Op::Write { ino, body: Body::Inline(bytes), size, .. } => {
                    assert_eq!((ino, size), (told.ino, bytes.len() as u64));
                    format!("write {size} {n}")
                }
                op => format!("{op:?}"),
            }
        };
        std::mem::take(&mut *self.service.promised.lock()).into_iter().map(in_words).collect()
    }

    /// How often the server was asked since this was last asked for.
    fn asked(&self) -> usize {
        std::mem::take(&mut *self.service.asked.lock()).len()
    }
}

#[test]
fn a_small_file_is_made_written_read_and_closed_without_a_question() {
    let site = Site::new();
    let (made, fh) = site.create("a");
    site.write(fh, 0, b"hello");
    site.client.flush(fh).expect("closed");
    assert_eq!(site.promised(), ["file a 0", "write 5 0"]);
    // Written again it is told again, as a whole.
    site.write(fh, 5, b" world");
    assert_eq!(site.client.read(fh, 0, 100).expect("read"), b"hello world");
    let open = site.client.getattr(made.ino, None).expect("known").attr;
    assert_eq!(open.size, 11);
    site.client.release(fh).expect("closed");
    assert_eq!(site.promised(), ["write 11 0"]);
    let closed = site.client.getattr(made.ino, None).expect("known").attr;
    assert_eq!((closed.size, closed.allocated, closed.mtime), (11, 11, open.mtime));
    assert!(closed.mtime >= made.mtime.min(open.mtime) && closed.ctime >= closed.mtime);
    assert_eq!((closed.ino, closed.mode, closed.btime), (made.ino, Mode(0o640), made.btime));
    assert_eq!(site.asked(), 0);
}

#[test]
fn what_others_may_have_seen_is_written_by_asking() {
    type Ends = fn(&Site, Ino);
    let ends: [(&str, Ends); 4] = [
        ("recalled", |site, ino| site.client.core.recall(ino, LeaseMode::Shared)),
        ("the directory is", |site, _| site.client.core.recall(site.dir, LeaseMode::Shared)),
        ("linked", |site, ino| {
            let linked = site.client.link(&site.client.caller(), ino, Ino::ROOT, b"elsewhere");
            assert_eq!(linked.map(drop), Err(Refusal::Stale), "the server was told nothing");
        }),
        ("moved", |site, _| {
            let (caller, how) = (site.client.caller(), RenameHow::Replace);
            let moved = site.client.rename(&caller, site.dir, b"a", Ino::ROOT, b"a", how);
            assert_eq!(moved, Err(Refusal::NotFound), "the server was told nothing");
        }),
    ];
    for (what, end) in ends {
        let site = Site::new();
        let (made, fh) = site.create("a");
        end(&site, made.ino);
        site.asked();
        let written = site.client.write(&site.client.caller(), fh, 0, b"hello");
        let closed = written.and_then(|_| site.client.flush(fh));
        assert_eq!(closed, Err(Refusal::Stale), "{what}: the server was told nothing");
        assert_eq!(site.promised(), ["file a 0"], "{what}");
        assert!(site.asked() > 0, "{what}");
    }
}

#[test]
fn what_is_large_is_written_by_asking() {
    let site = Site::new();
    let (_, fh) = site.create("large");
    site.write(fh, 0, &[7; 100_000]);
    assert_eq!(site.client.flush(fh), Err(Refusal::Stale), "the server was told nothing");
    assert_eq!(site.promised(), ["file large 0"]);
}
