//! A server on stores in memory that outlive it, and short words for the requests of the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_journal::{MemoryPlace, Shape};
use chiton_metastore::{Fault, MemoryMetastore, Metastore};
use chiton_model::{Make, Op, Outcome};
use chiton_objects::MemoryObjects;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{EmbeddedSession, FilesystemInfo, FormatOptions, Role, Server, ServerOptions, Stores};
use chiton_types::{Attr, Cred, Ino, Mode, Name, Position, Refusal};
use chiton_wire::{Answer, Call, Failure, LeaseMode, Query};

/// Stores of one file system.
pub(crate) struct Rig {
    pub(crate) objects: Arc<MemoryObjects>,
    pub(crate) meta: Arc<MemoryMetastore>,
    pub(crate) place: Arc<MemoryPlace>,
    pub(crate) info: FilesystemInfo,
    /// The metadata store has no space, also after it was opened anew.
    pub(crate) full: Arc<AtomicBool>,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig::with_segments(Shape::Grows)
    }

    /// With a journal as a directory, or as an object store, has it.
    pub(crate) fn with_segments(shape: Shape) -> Rig {
        let objects = Arc::new(MemoryObjects::new());
        let meta = Arc::new(MemoryMetastore::new());
        let place = Arc::new(MemoryPlace::new(shape));
        let info =
            FilesystemInfo { version: 1, filesystem: 0, shards: 0, plates: 1, created: 0, monitor: None };
        let mut rig = Rig { objects, meta, place, info, full: Arc::default() };
        let options = FormatOptions { shards: 4, ..FormatOptions::default() };
        rig.info = Server::format_with(&[rig.stores()], &options, &world()).expect("formats");
        rig
    }

    pub(crate) fn stores(&self) -> Stores {
        let (meta, full) = (self.meta.clone(), self.full.clone());
        let open_meta = move || -> Result<Arc<dyn Metastore>, chiton_metastore::StoreError> {
            meta.crash();
            if full.load(Ordering::SeqCst) {
                meta.fail_next(usize::MAX, Fault::NoSpace);
            }
            Ok(meta.clone())
        };
        Stores {
            objects: self.objects.clone(),
            open_meta: Box::new(open_meta),
            place: self.place.clone(),
            objects_address: String::new(),
        }
    }

    pub(crate) fn start(&self, options: ServerOptions) -> Arc<Server> {
        Server::start_as(Role::serving(&self.info, self.stores()), options, world()).expect("starts")
    }

    /// The server dies, and with it all that was not synced.
    pub(crate) fn crash(&mut self, server: &Server) {
        server.abandon();
        self.place = Arc::new(self.place.crash(&mut |_, _| 0));
        self.objects.crash();
    }
}

pub(crate) fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

/// Options under which nothing happens automatically within a test.
pub(crate) fn quiet() -> ServerOptions {
    ServerOptions {
        checkpoint_rows: usize::MAX,
        checkpoint_age: Duration::from_secs(3600),
        log: Arc::new(|_| {}),
        ..ServerOptions::default()
    }
}

/// A session that returns its leases at once.
pub(crate) fn session(server: &Server) -> EmbeddedSession {
    server.session_embedded("test", Box::new(|_| {})).expect("a session")
}

pub(crate) fn name(text: &str) -> Name {
    Name::try_from(text).expect("a name")
}

pub(crate) fn make(parent: Ino, text: &str, make: Make) -> Op {
    Op::Make { parent, name: name(text), make, mode: Mode(0o755) }
}

pub(crate) fn file(parent: Ino, text: &str) -> Op {
    make(parent, text, Make::File { content: Vec::new() })
}

pub(crate) fn unlink(parent: Ino, text: &str) -> Op {
    Op::Unlink { parent, name: name(text) }
}

pub(crate) fn refused(result: Result<Answer, Failure>) -> Refusal {
    match result {
        Err(Failure::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// Requests to a session.
pub(crate) trait Asks {
    fn try_call(&self, call: Call) -> Result<Answer, Failure>;

    fn op(&self, op: Op) -> (Position, Outcome) {
        match self.try_call(Call::Op { op, open: false }) {
            Ok(Answer::Op { position, outcome, .. }) => (position, outcome),
            other => panic!("{other:?}"),
        }
    }

    fn mkdir(&self, parent: Ino, text: &str) -> Ino {
        self.op(make(parent, text, Make::Dir)).1.attr.expect("made").ino
    }

    fn create(&self, parent: Ino, text: &str) -> Ino {
        self.op(file(parent, text)).1.attr.expect("made").ino
    }

    fn query(&self, query: Query) -> Result<Answer, Failure> {
        self.try_call(Call::Query(query))
    }

    /// The inode under a name; whether the name may be cached.
    fn lookup(&self, parent: Ino, text: &str) -> (Option<Attr>, bool) {
        match self.query(Query::Lookup { parent, name: name(text) }) {
            Ok(Answer::Attr { attr, parent_leased, .. }) => (Some(attr), parent_leased),
            Ok(Answer::Absent { parent_leased, .. }) => (None, parent_leased),
            other => panic!("{other:?}"),
        }
    }

    fn getattr(&self, ino: Ino) -> Result<(Attr, LeaseMode), Failure> {
        match self.query(Query::GetAttr { ino })? {
            Answer::Attr { attr, lease, .. } => Ok((attr, lease)),
            other => panic!("{other:?}"),
        }
    }

    /// All names of a directory, in the order of their cookies.
    fn list(&self, dir: Ino, plus: bool) -> Vec<(String, Ino)> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let answer = self.query(Query::ReadDir { dir, cookie, entries_max: 500, plus, part_end: None });
            let Ok(Answer::Entries { entries, end, .. }) = answer else { panic!("{answer:?}") };
            for entry in entries {
                assert!(entry.cookie > cookie || names.last().is_some(), "cookies ascend");
                assert_eq!(entry.attr.is_some(), plus);
                cookie = entry.cookie;
                names.push((entry.name.to_string(), entry.ino));
            }
            if end {
                return names;
            }
        }
    }

    fn commit(&self) {
        let answer = self.try_call(Call::Commit { upto: Position(0) });
        assert_eq!(answer, Ok(Answer::Done));
    }
}

impl Asks for EmbeddedSession {
    fn try_call(&self, call: Call) -> Result<Answer, Failure> {
        self.ask(&Cred::ROOT, call)
    }
}

/// Waits until `what` is true.
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if is_true() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}

/// A figure of the server's status, by its JSON path.
pub(crate) fn figure(server: &Server, path: &str) -> u64 {
    let text = server.report("status").expect("a status");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("no {path} in {text}"))
}
