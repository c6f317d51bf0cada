//! Repair of a file system with several plates: damage on one plate, and rows of two plates that do not fit each other.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::crash::Dies;
use crate::rig::name;
use chiton_admin::RowsOfPlates;
use chiton_admin::fsck::{CheckError, Finding, Offline, Options, check_plates, repair_plates};
use chiton_engine::{OwnRow, mark_key};
use chiton_metastore::{Batch, MemoryMetastore, Metastore, StoreError};
use chiton_model::{Body, Extent, Make, Op, PolicyChange, XattrHow};
use chiton_namespace::{StoredInode, StoredRow, entry_row_key, inode_row, plate_row_key, rows_with_tag, tag};
use chiton_objects::{MemoryObjects, Objects, encode_block};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{EmbeddedSession, FormatOptions, Server, ServerOptions};
use chiton_types::{BlockId, Cred, Ino, Kind, Mode, Name, PlateId, Plates, Position, ShardId, Time};
use chiton_wire::{Answer, Call};

pub(crate) const PLATES: u16 = 2;
pub(crate) const SHARDS: u16 = 4;

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

fn plates() -> Plates {
    Plates::new(SHARDS, PLATES).expect("fits")
}

pub(crate) fn plate_of(ino: Ino) -> PlateId {
    plates().of(ino).expect("a plate")
}

fn of_plate(ino: Ino) -> usize {
    usize::from(plate_of(ino).0)
}

/// Sessions with a server, one at each plate.
pub(crate) struct Hands(Vec<EmbeddedSession>);

impl Hands {
    pub(crate) fn begin(server: &Server) -> Hands {
        let begin = |plate| server.session_embedded_at(plate, "test", Box::new(|_| {})).expect("a session");
        Hands(plates().all().map(begin).collect())
    }

    /// Asks the plate of `at`.
    pub(crate) fn op(&self, at: Ino, op: Op) -> Ino {
        match self.0[of_plate(at)].ask(&Cred::ROOT, Call::Op { op, open: false }) {
            Ok(Answer::Op { outcome, .. }) => outcome.attr.map_or(Ino(0), |attr| attr.ino),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn make(&self, parent: Ino, text: &str, make: Make) -> Ino {
        self.op(parent, Op::Make { parent, name: name(text), make, mode: Mode(0o755) })
    }

    pub(crate) fn file(&self, parent: Ino, text: &str, content: &[u8]) -> Ino {
        self.make(parent, text, Make::File { content: content.to_vec() })
    }

    fn policy(&self, ino: Ino, text: &str) {
        let (name, value) = (b"chiton.policy".to_vec(), text.as_bytes().to_vec());
        self.op(ino, Op::SetXattr { ino, name, value, how: XattrHow::Set });
    }

    /// A file with a block, and another with a clone of it.
    fn cloned(&self, dir: Ino) {
        let big = self.file(dir, "big", b"");
        let session = &self.0[of_plate(big)];
        let block = BlockId { writer: session.session().0, number: 1 };
        session.objects().put(&block.key(), &encode_block(&[&[7; 100_000]])).expect("puts");
        let extent = Extent { offset: 0, len: 100_000, block, block_offset: 0, shared: false };
        let (body, hold) = (Body::Extents(vec![extent]), Default::default());
        self.op(big, Op::Write { ino: big, body, size: 100_000, mtime: Time(1), kill_setid: false, hold });
        let to = self.file(dir, "copy", b"");
        self.op(big, Op::Clone { from: big, from_offset: 0, to, to_offset: 0, len: 65_536 });
    }
}

/// The stores of a file system with two plates, in memory.
struct Two {
    stores: Vec<Arc<MemoryMetastore>>,
    objects: Arc<MemoryObjects>,
    /// A directory of each plate, in the root, with everything in it.
    near: Ino,
    far: Ino,
    /// The same with a policy, and with nothing in it.
    policed: [Ino; 2],
}

impl Two {
    /// Made by a real server.
    fn populated() -> Two {
        let tmp = tempfile::tempdir().expect("a directory");
        let options = FormatOptions { shards: SHARDS, plates: PLATES, ..FormatOptions::default() };
        Server::format(tmp.path(), &options, &world()).expect("formats");
        let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
        let server = Server::start(tmp.path(), options, world()).expect("starts");
        let hands = Hands::begin(&server);
        // They are spread over the plates.
        let mut dirs: Vec<Ino> =
            (0..20).map(|n| hands.make(Ino::ROOT, &format!("dir{n}"), Make::Dir)).collect();
        dirs.sort();
        let (near, far) = (dirs[0], dirs[dirs.len() - 1]);
        assert_eq!((plate_of(near), plate_of(far)), (PlateId(0), PlateId(1)));
        for (dir, other) in [(near, far), (far, near)] {
            let file = hands.file(dir, "file", b"some");
            hands.op(other, Op::Link { ino: file, parent: other, name: name("of the other") });
            hands.file(dir, "single", b"some");
            hands.file(dir, "empty", b"");
            hands.make(dir, "sub", Make::Dir);
            hands.cloned(dir);
        }
        let policed = [dirs[1], dirs[dirs.len() - 2]];
        assert_eq!(policed.map(plate_of), [PlateId(0), PlateId(1)]);
        for dir in policed {
            hands.policy(dir, "posix");
        }
        // Policies of directories that have ended may be left on other plates.
        let ended = hands.make(Ino::ROOT, "ended", Make::Dir);
        hands.policy(ended, "posix");
        hands.op(Ino::ROOT, Op::Rmdir { parent: Ino::ROOT, name: name("ended") });
        drop(hands);
        server.shutdown().expect("ends in order");
        drop(server);
        let open = Offline::open(&tmp.path().into(), world(), &mut |_, _| {}).expect("opens");
        let objects = copy_of_objects(&*open.objects());
        drop(open);
        let mut stores = Vec::new();
        for plate in plates().all() {
            let plate = chiton_server::Offline::open(&tmp.path().into(), plate, world()).expect("opens");
            stores.push(copy_of(plate.meta()));
        }
        Two { stores, objects, near, far, policed }
    }

    fn copy(&self) -> Two {
        let stores = self.stores.iter().map(|store| copy_of(&**store)).collect();
        Two { stores, objects: copy_of_objects(&*self.objects), ..*self }
    }

    fn rows(&self) -> RowsOfPlates {
        RowsOfPlates::new(plates(), self.stores.iter().map(|s| s.clone() as Arc<dyn Metastore>).collect())
    }

    fn check(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        check_plates(&self.rows(), &*self.objects, &options(), &mut |f| found.push(f), &mut |_| {})
            .expect("checks");
        found
    }

    fn repair(&self, rows: &RowsOfPlates) -> Result<u64, CheckError> {
        let (report, progress) = (&mut |_: &Finding, _: bool| {}, &mut |_| {});
        let done = repair_plates(rows, &*self.objects, &options(), Time(7), report, progress)?;
        Ok(done.left)
    }

    fn get(&self, key: &[u8]) -> Option<StoredRow> {
        let value = self.rows().get(key).expect("reads")?;
        StoredRow::decode(key, &value).expect("decodes")
    }

    fn set(&self, plate: u16, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.stores[usize::from(plate)].commit(&Batch::from_iter([(key, value)])).expect("commits");
    }

    /// Writes a row of an inode where it belongs.
    fn put(&self, of: Ino, row: &StoredRow) {
        self.set(plate_of(of).0, row.key(), Some(row.value()));
    }

    fn inode(&self, ino: Ino) -> StoredInode {
        match self.get(&inode_row(tag::INODE, ino)) {
            Some(StoredRow::Inode(inode)) => inode,
            other => panic!("{ino}: {other:?}"),
        }
    }

    fn edit(&self, ino: Ino, f: impl FnOnce(&mut StoredInode)) {
        let mut inode = self.inode(ino);
        f(&mut inode);
        self.put(ino, &StoredRow::Inode(inode));
    }

    /// The inode that a name stands for.
    fn find(&self, dir: Ino, text: &str) -> Ino {
        match self.get(&entry_row_key(dir, &name(text))) {
            Some(StoredRow::Entry { ino, .. }) => ino,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// The name of a directory in the root.
    fn name_in_root(&self, ino: Ino) -> Name {
        let (start, end) = rows_with_tag(ShardId(0), tag::ENTRY);
        let rows = self.rows().scan(Bound::Included(&start), Some(&end), 1000).expect("scans");
        let named = rows.into_iter().find_map(|(key, value)| match StoredRow::decode(&key, &value) {
            Ok(Some(StoredRow::Entry { dir: Ino::ROOT, name, ino: target, .. })) if target == ino => {
                Some(name)
            }
            _ => None,
        });
        named.expect("a name")
    }

    fn unlink(&self, dir: Ino, text: &Name) {
        self.set(plate_of(dir).0, entry_row_key(dir, text), None);
    }

    fn block_of(&self, dir: Ino) -> BlockId {
        let key = StoredRow::Chunk(self.find(dir, "big"), 0, Default::default()).key();
        match self.get(&key) {
            Some(StoredRow::Chunk(_, _, chunk)) => chunk.extents()[0].block,
            other => panic!("{other:?}"),
        }
    }
}

fn options() -> Options {
    // One commit for each finding: as many crash points as possible.
    Options { content: true, commit_rows: 1, shards: Some(SHARDS), ..Options::default() }
}

fn copy_of(store: &dyn Metastore) -> Arc<MemoryMetastore> {
    let copy = MemoryMetastore::new();
    let rows = store.scan(Bound::Unbounded, None, usize::MAX).expect("scans").into_iter();
    copy.commit(&rows.map(|(key, value)| (key, Some(value))).collect()).expect("commits");
    Arc::new(copy)
}

fn copy_of_objects(objects: &dyn Objects) -> Arc<MemoryObjects> {
    let copy = MemoryObjects::new();
    for object in objects.list("blocks/", None, 1_000).expect("lists") {
        copy.put(&object.key, &objects.get(&object.key, None).expect("reads")).expect("puts");
    }
    Arc::new(copy)
}

fn own(row: OwnRow) -> (Vec<u8>, Vec<u8>) {
    row.encode().expect("a plain row")
}

type Damage = fn(&Two);
/// The problem that is found, and the damage.
type Case = (&'static str, Damage);

/// Rows of two plates that do not fit each other, and rows that each plate has of its own.
const CASES: &[Case] = &[
    // The inode on the other plate is gone, with all that was in it.
    ("dangling-entry", |two| {
        let (dir, ino) = (two.far, two.find(two.far, "sub"));
        let position = two.inode(dir).position;
        let row = StoredRow::Entry { dir: Ino::ROOT, name: name("ghost"), ino, kind: Kind::Dir, position };
        two.set(plate_of(ino).0, inode_row(tag::INODE, ino), None);
        two.unlink(dir, &name("sub"));
        two.put(Ino::ROOT, &row);
    }),
    ("lost-inode", |two| two.set(1, inode_row(tag::INODE, two.far), None)),
    ("orphan", |two| two.unlink(two.far, &name("single"))),
    ("unreachable-directory", |two| two.unlink(Ino::ROOT, &two.name_in_root(two.far))),
    ("extra-directory-entry", |two| {
        let position = two.inode(two.near).position;
        let (dir, ino, kind) = (two.near, two.far, Kind::Dir);
        two.put(dir, &StoredRow::Entry { dir, name: name("twin"), ino, kind, position });
    }),
    ("directory-loop", |two| {
        let sub = two.find(two.near, "sub");
        let position = two.inode(two.near).position;
        for (ino, dir) in [(two.far, sub), (two.near, two.far)] {
            two.unlink(Ino::ROOT, &two.name_in_root(ino));
            two.put(dir, &StoredRow::Entry { dir, name: name("up"), ino, kind: Kind::Dir, position });
        }
    }),
    ("wrong-parent", |two| two.edit(two.far, |i| i.parent = two.near)),
    ("wrong-link-count", |two| two.edit(two.find(two.near, "of the other"), |i| i.nlink = 7)),
    ("wrong-subdirectory-count", |two| two.edit(Ino::ROOT, |i| i.nlink = 3)),
    ("wrong-entry-count", |two| two.edit(two.far, |i| i.node.set_entries(1))),
    ("wrong-hard-links", |two| {
        let file = two.find(two.near, "of the other");
        two.put(file, &StoredRow::Linked(file, vec![two.near; 2]));
    }),
    ("wrong-entry-type", |two| {
        let (text, position) = (two.name_in_root(two.far), two.inode(Ino::ROOT).position);
        let (dir, ino, kind) = (Ino::ROOT, two.far, Kind::File);
        two.put(dir, &StoredRow::Entry { dir, name: text, ino, kind, position });
    }),
    // An entry that does not decode; the directory on the other plate lacks a name.
    ("bad-row", |two| {
        two.set(0, entry_row_key(Ino::ROOT, &two.name_in_root(two.far)), Some(b"?".to_vec()));
    }),
    // A copy that a start of the plate reads.
    ("bad-row", |two| two.set(0, inode_row(tag::POLICY, two.policed[1]), Some(b"?".to_vec()))),
    ("bad-row", |two| two.set(0, inode_row(tag::LINKED, two.far), Some(b"?".to_vec()))),
    // The sum of all plates is right.
    ("wrong-inode-count", |two| {
        for (plate, less) in [(0u16, 1u64), (1, 0)] {
            let key = StoredRow::InodeCount(0).key();
            let value = two.stores[usize::from(plate)].get(&key).expect("reads").expect("a count");
            let Ok(Some(StoredRow::InodeCount(count))) = StoredRow::decode(&key, &value) else { panic!() };
            let row = StoredRow::InodeCount(count + 1 - 2 * less);
            two.set(plate, key, Some(row.value()));
        }
    }),
    ("low-inode-counter", |two| {
        let (key, value) = own(OwnRow::InodeMark(two.far.shard(), 1));
        two.set(1, key, Some(value));
    }),
    ("low-inode-counter", |two| two.set(0, mark_key(two.far.shard()), None)),
    // That of the other plate is higher.
    ("low-session-counter", |two| {
        let (key, value) = own(OwnRow::SessionMark(1));
        two.set(0, key, Some(value));
    }),
    ("low-session-counter", |two| two.set(1, own(OwnRow::SessionMark(1)).0, None)),
    ("wrong-reference-count", |two| {
        let row = StoredRow::References(two.block_of(two.far), 9);
        two.set(1, row.key(), Some(row.value()));
    }),
    // The count is on a plate that does not need it.
    ("wrong-reference-count", |two| {
        let row = StoredRow::References(two.block_of(two.far), 2);
        two.set(0, row.key(), Some(row.value()));
    }),
    ("garbage-in-use", |two| {
        let row = StoredRow::Garbage(two.block_of(two.far));
        two.set(0, row.key(), Some(row.value()));
    }),
    ("leaked-block", |two| {
        let writer = (1 << PlateId::SESSION_SHIFT) + (1 << 40);
        two.objects.put(&BlockId { writer, number: 1 }.key(), &encode_block(&[b"some"])).expect("puts");
    }),
    ("wrong-policy", |two| two.set(1, inode_row(tag::POLICY, two.policed[1]), None)),
    ("stale-policy", |two| two.set(0, inode_row(tag::POLICY, two.policed[1]), None)),
    ("stale-policy", |two| {
        let [of, from] = two.policed.map(|ino| inode_row(tag::POLICY, ino));
        let other = two.stores[1].get(&from).expect("reads");
        two.set(1, of, other);
    }),
    ("wrong-policy-history", |two| two.set(0, plate_row_key(tag::HISTORY, &1u64.to_be_bytes()), None)),
];

#[test]
fn each_kind_of_damage_is_found_and_repaired() {
    let healthy = Two::populated();
    assert_eq!(healthy.check(), []);
    for (at, (problem, damage)) in CASES.iter().enumerate() {
        let two = healthy.copy();
        damage(&two);
        let found = two.check();
        let names: BTreeSet<_> = found.iter().map(|f| f.problem.name()).collect();
        assert!(names.contains(problem), "case {at}, {problem}: {found:?}");
        assert_eq!(two.repair(&two.rows()).expect("repairs"), 0, "case {at}, {problem}");
        assert_eq!(two.check(), [], "case {at}, {problem}");
        assert!(positions_fit(&two, &healthy), "case {at}, {problem}");
    }
}

/// No row is newer than its plate's journal.
fn positions_fit(two: &Two, before: &Two) -> bool {
    two.stores.iter().zip(&before.stores).all(|(store, before)| {
        let (key, _) = own(OwnRow::Position(Position(0)));
        let stored = before.get(&key).expect("reads").expect("a position");
        let Ok(Some(OwnRow::Position(stored))) = OwnRow::decode(&key, &stored) else { panic!() };
        let rows = store.scan(Bound::Unbounded, None, usize::MAX).expect("scans");
        rows.iter().all(|(key, value)| match StoredRow::decode(key, value) {
            Ok(Some(StoredRow::Entry { position, .. })) => position <= stored,
            Ok(Some(StoredRow::Inode(inode))) => inode.position <= stored,
            _ => true,
        })
    })
}

#[test]
fn files_without_a_name_are_found_in_lost_and_found() {
    let two = Two::populated();
    let (file, sub) = (two.find(two.far, "single"), two.find(two.far, "sub"));
    two.unlink(two.far, &name("single"));
    two.unlink(Ino::ROOT, &two.name_in_root(two.far));
    assert_eq!(two.repair(&two.rows()).expect("repairs"), 0);
    let lost = two.find(Ino::ROOT, "lost+found");
    assert_eq!(two.find(lost, &format!("#{file}")), file);
    assert_eq!(two.find(lost, &format!("#{}", two.far)), two.far);
    assert_eq!(two.find(two.far, "sub"), sub);
    assert_eq!((plate_of(lost), plate_of(file)), (PlateId(0), PlateId(1)));
}

#[test]
fn a_name_that_cannot_be_read_is_given_back_to_a_directory_of_another_plate() {
    let two = Two::populated();
    let text = two.name_in_root(two.far);
    two.set(0, entry_row_key(Ino::ROOT, &text), Some(b"?".to_vec()));
    assert_eq!(two.repair(&two.rows()).expect("repairs"), 0);
    assert_eq!(two.name_in_root(two.far), text);
}

#[test]
fn a_policy_is_the_same_on_all_plates_after_a_repair() {
    let two = Two::populated();
    let key = inode_row(tag::POLICY, two.policed[1]);
    let carried = |plate: usize| -> PolicyChange {
        let value = two.stores[plate].get(&key).expect("reads").expect("a policy");
        match StoredRow::decode(&key, &value) {
            Ok(Some(StoredRow::Policy(_, change))) => change,
            other => panic!("{other:?}"),
        }
    };
    let good = carried(1);
    for plate in [0, 1] {
        two.set(plate, key.clone(), None);
        assert_eq!(two.repair(&two.rows()).expect("repairs"), 0);
        assert_eq!((carried(0), carried(1)), (good.clone(), good.clone()), "lost on plate {plate}");
    }
}

#[test]
fn the_row_that_says_from_where_to_replay_is_missed_on_each_plate() {
    for plate in [0, 1] {
        let two = Two::populated();
        two.set(plate, own(OwnRow::Position(Position(0))).0, None);
        let found = two.check();
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!((only.problem.name(), only.plate), ("bad-row", Some(PlateId(plate))));
        assert!(only.to_string().contains(&format!("plate {plate}: ")), "{only}");
    }
}

#[test]
fn after_a_crash_at_any_commit_the_next_repair_ends_clean() {
    let healthy = Two::populated();
    let (mut commits, mut is_whole) = (0, false);
    while !is_whole {
        let two = healthy.copy();
        let (file, far) = (two.find(two.far, "single"), two.far);
        // One after the other, some of them on rows that the others have damaged.
        for wanted in [
            "wrong-policy",
            "wrong-inode-count",
            "wrong-hard-links",
            "orphan",
            "wrong-reference-count",
            "garbage-in-use",
            "low-session-counter",
            "low-inode-counter",
            "directory-loop",
            "dangling-entry",
            "lost-inode",
        ] {
            for (_, damage) in CASES.iter().filter(|(problem, _)| *problem == wanted) {
                damage(&two);
            }
        }
        let commits_left = Arc::new(AtomicUsize::new(commits));
        let dies = two.stores.iter().map(|store| {
            let (store, commits_left) = (store.clone(), commits_left.clone());
            Arc::new(Dies { store, commits_left }) as Arc<dyn Metastore>
        });
        match two.repair(&RowsOfPlates::new(plates(), dies.collect())) {
            Ok(left) => {
                assert_eq!(left, 0);
                is_whole = true;
            }
            Err(CheckError::Store(StoreError::Closed { .. })) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(two.repair(&two.rows()).expect("repairs"), 0, "after {commits} commits");
        assert_eq!(two.check(), [], "after {commits} commits");
        let lost = two.find(Ino::ROOT, "lost+found");
        assert_eq!(two.find(lost, &format!("#{file}")), file, "after {commits} commits");
        assert_eq!(two.find(far, "file"), two.find(two.near, "of the other"), "after {commits} commits");
        commits += 1;
    }
    assert!(commits >= 30, "only {commits} places to crash");
}
