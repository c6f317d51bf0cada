//! A file system in memory with some of everything in it, made by a real server.

use std::sync::Arc;
use std::time::Duration;

use chiton_journal::{MemoryPlace, Place, Shape};
use chiton_metastore::{Batch, MemoryMetastore, Metastore};
use chiton_model::{Body, Extent, Make, Op, XattrHow};
use chiton_namespace::{StoredInode, StoredRow, inode_row, tag};
use chiton_objects::{MemoryObjects, Objects, encode_block};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{EmbeddedSession, FilesystemInfo, FormatOptions, Role, Server, ServerOptions, Stores};
use chiton_types::{BlockId, Cred, Ino, Kind, Mode, Name, Position, Time};
use chiton_wire::{Answer, Call, Query};

pub(crate) struct Rig {
    pub(crate) meta: Arc<MemoryMetastore>,
    pub(crate) objects: Arc<MemoryObjects>,
    pub(crate) place: Arc<MemoryPlace>,
    pub(crate) info: FilesystemInfo,
}

pub(crate) fn name(text: &str) -> Name {
    Name::try_from(text).expect("a name")
}

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let info =
            FilesystemInfo { version: 1, filesystem: 0, shards: 0, plates: 1, created: 0, monitor: None };
        let (meta, objects) = (Arc::new(MemoryMetastore::new()), Arc::new(MemoryObjects::new()));
        let place = Arc::new(MemoryPlace::new(Shape::Grows));
        let mut rig = Rig { meta, objects, place, info };
        let options = FormatOptions { shards: 4, ..FormatOptions::default() };
        rig.info = Server::format_with(&[rig.stores()], &options, &world()).expect("formats");
        rig.meta.crash();
        rig
    }

    fn stores(&self) -> Stores {
        let meta = self.meta.clone();
        Stores {
            objects: self.objects.clone(),
            open_meta: Box::new(move || {
                meta.crash();
                Ok(meta.clone())
            }),
            place: self.place.clone(),
            objects_address: String::new(),
        }
    }

    /// Lets a server run for as long as `f` does, and ends it in order.
    pub(crate) fn serve<T>(&self, f: impl FnOnce(&Arc<Server>) -> T) -> T {
        let options = ServerOptions {
            checkpoint_rows: usize::MAX,
            checkpoint_age: Duration::from_secs(3600),
            log: Arc::new(|_| {}),
            ..ServerOptions::default()
        };
        let server =
            Server::start_as(Role::serving(&self.info, self.stores()), options, world()).expect("starts");
        let result = f(&server);
        server.shutdown().expect("ends in order");
        drop(server);
        self.meta.crash();
        result
    }

    /// A tree with some of everything.
    pub(crate) fn populated() -> Rig {
        let rig = Rig::new();
        rig.serve(|server| populate(server));
        rig
    }

    /// The same, without making it anew.
    pub(crate) fn copy(&self) -> Rig {
        let (meta, objects) = (Arc::new(MemoryMetastore::new()), Arc::new(MemoryObjects::new()));
        let rows = self.rows().into_iter().map(|(key, value)| (key, Some(value)));
        meta.commit(&rows.collect()).expect("commits");
        for object in self.objects.list("", None, 1_000).expect("lists") {
            let bytes = self.objects.get(&object.key, None).expect("reads");
            objects.put(&object.key, &bytes).expect("puts");
        }
        let place = Arc::new(MemoryPlace::new(Shape::Grows));
        for segment in self.place.list().expect("lists") {
            let bytes = self.place.read(segment.number, u64::MAX).expect("reads");
            place.publish(segment.number, &bytes).expect("publishes");
        }
        Rig { meta, objects, place, info: self.info.clone() }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<StoredRow> {
        let value = self.meta.get(key).expect("reads")?;
        StoredRow::decode(key, &value).expect("decodes")
    }

    pub(crate) fn put(&self, row: &StoredRow) {
        self.put_raw(row.key(), Some(row.value()));
    }

    pub(crate) fn put_raw(&self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.meta.commit(&Batch::from_iter([(key, value)])).expect("commits");
    }

    pub(crate) fn delete(&self, row: &StoredRow) {
        self.put_raw(row.key(), None);
    }

    pub(crate) fn rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.meta.scan(std::ops::Bound::Unbounded, None, usize::MAX).expect("scans")
    }

    /// The inode at a path.
    pub(crate) fn find(&self, path: &str) -> Ino {
        path.split('/').filter(|part| !part.is_empty()).fold(Ino::ROOT, |dir, part| {
            match self.get(&chiton_namespace::entry_row_key(dir, &name(part))) {
                Some(StoredRow::Entry { ino, .. }) => ino,
                other => panic!("{path}: {other:?}"),
            }
        })
    }

    pub(crate) fn edit(&self, path: &str, f: impl FnOnce(&mut StoredInode)) {
        let ino = self.find(path);
        let Some(StoredRow::Inode(mut inode)) = self.get(&inode_row(tag::INODE, ino)) else {
            panic!("{path} has no inode")
        };
        f(&mut inode);
        self.put(&StoredRow::Inode(inode));
    }

    pub(crate) fn entry(&self, path: &str) -> StoredRow {
        let (dir, last) = path.rsplit_once('/').expect("a path");
        self.get(&chiton_namespace::entry_row_key(self.find(dir), &name(last))).expect("an entry")
    }
}

/// Creates inodes of every kind.
pub(crate) fn populate(server: &Server) {
    let s = Hand::new(server);
    let docs = s.dir(Ino::ROOT, "docs");
    let deep = s.dir(docs, "deep");
    s.dir(deep, "deeper");
    s.file(docs, "inline", b"a few bytes");
    s.file(docs, "empty", b"");
    let linked = s.file(docs, "linked", b"x");
    s.op(Op::Link { ino: linked, parent: deep, name: name("second name") });
    s.make(docs, "symlink", Make::Symlink { target: b"../docs/inline".to_vec() });
    s.make(deep, "fifo", Make::Node { kind: Kind::Fifo, rdev: 0 });
    let big = s.file(docs, "big", b"");
    s.write(big, &[(0, 100_000, 1), (200_000, 50_000, 2)], 300_000);
    let copy = s.file(deep, "copy", b"");
    s.write(copy, &[(0, 1_000, 3)], 1_000);
    s.op(Op::Clone { from: big, from_offset: 0, to: copy, to_offset: 4_096, len: 150_000 });
    s.op(Op::SetXattr {
        ino: big,
        name: b"user.colour".to_vec(),
        value: b"green".to_vec(),
        how: XattrHow::Set,
    });
}

/// A session with short method names.
pub(crate) struct Hand {
    session: EmbeddedSession,
}

impl Hand {
    pub(crate) fn new(server: &Server) -> Hand {
        Hand { session: server.session_embedded("test", Box::new(|_| {})).expect("a session") }
    }

    pub(crate) fn op(&self, op: Op) -> Ino {
        match self.session.ask(&Cred::ROOT, Call::Op { op, open: false }) {
            Ok(Answer::Op { outcome, .. }) => outcome.attr.map_or(Ino(0), |attr| attr.ino),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn sync(&self) {
        let answer = self.session.ask(&Cred::ROOT, Call::Commit { upto: Position(0) });
        assert_eq!(answer, Ok(Answer::Done));
    }

    pub(crate) fn names(&self, dir: Ino) -> Vec<String> {
        let query = Query::ReadDir { dir, cookie: 0, entries_max: 1000, plus: false, part_end: None };
        match self.session.ask(&Cred::ROOT, Call::Query(query)) {
            Ok(Answer::Entries { entries, .. }) => entries.iter().map(|e| e.name.to_string()).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn make(&self, parent: Ino, text: &str, make: Make) -> Ino {
        self.op(Op::Make { parent, name: name(text), make, mode: Mode(0o755) })
    }

    pub(crate) fn dir(&self, parent: Ino, text: &str) -> Ino {
        self.make(parent, text, Make::Dir)
    }

    pub(crate) fn file(&self, parent: Ino, text: &str, content: &[u8]) -> Ino {
        self.make(parent, text, Make::File { content: content.to_vec() })
    }

    /// Puts blocks (offset, bytes, number) into a file of this size.
    pub(crate) fn write(&self, ino: Ino, parts: &[(u64, u32, u64)], size: u64) {
        let extents = parts.iter().map(|&(offset, len, number)| {
            let block = BlockId { writer: self.session.session().0, number };
            let bytes: Vec<u8> = (0..len).map(|i| (u64::from(i) * 31 + number) as u8).collect();
            self.session.objects().put(&block.key(), &encode_block(&[&bytes])).expect("puts");
            Extent { offset, len, block, block_offset: 0, shared: false }
        });
        let body = Body::Extents(extents.collect());
        self.op(Op::Write { ino, body, size, mtime: Time(1), kill_setid: false, hold: Default::default() });
    }
}
