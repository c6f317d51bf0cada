//! A crash in the midst of a repair, at each of its commits: the next repair ends healthy.

use std::ops::{Bound, Deref};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::damage::{block, check_content, content};
use crate::rig::{Hand, Rig, name};
use chiton_admin::fsck::{CheckError, Options, repair};
use chiton_engine::OwnRow;
use chiton_metastore::{Batch, Metastore, Row, StoreError, StoreStats};
use chiton_model::{Op, XattrHow};
use chiton_namespace::{StoredRow, inode_row, plate_row_key, tag};
use chiton_objects::Objects;
use chiton_types::{BlockId, Ino, Kind, ShardId, Time};

/// A store whose power fails after a number of commits; several that share the number fail at once.
pub(crate) struct Dies<S> {
    pub(crate) store: S,
    pub(crate) commits_left: Arc<AtomicUsize>,
}

impl<S: Deref<Target: Metastore> + Send + Sync> Metastore for Dies<S> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(key)
    }
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.store.get_many(keys)
    }
    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.store.scan(start, end, limit)
    }
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let left = self.commits_left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(StoreError::Closed { path: Default::default() });
        }
        self.commits_left.store(left - 1, Ordering::Relaxed);
        self.store.commit(batch)
    }
    fn stats(&self) -> Result<StoreStats, StoreError> {
        self.store.stats()
    }
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A populated file system with nearly everything wrong with it that can be repaired.
fn wrecked() -> Rig {
    let rig = Rig::populated();
    rig.serve(|server| {
        let s = Hand::new(server);
        let dirs: Vec<Ino> = (0..4).map(|n| s.dir(Ino::ROOT, &format!("d{n}"))).collect();
        for &dir in &dirs {
            for m in 0..3 {
                s.file(s.dir(dir, &format!("sub{m}")), "file", b"some");
            }
            s.file(dir, "file", b"other");
        }
        let ino = dirs[0];
        let (name, value) = (b"chiton.policy".to_vec(), b"posix".to_vec());
        s.op(Op::SetXattr { ino, name, value, how: XattrHow::Set });
    });
    let own = |row: OwnRow, value: Option<Vec<u8>>| rig.put_raw(row.encode().expect("a row").0, value);
    // Look up paths before they are broken.
    let (big, inline, deep) = (rig.find("/docs/big"), rig.find("/docs/inline"), rig.find("/docs/deep"));
    let (d2, d3, sub) = (rig.find("/d2"), rig.find("/d3"), rig.find("/d3/sub1"));
    let shared = block(&rig, 1);
    rig.put_raw(rig.entry("/docs/empty").key(), Some(b"?".to_vec()));
    rig.put_raw(rig.entry("/d1/file").key(), Some(b"?".to_vec()));
    rig.put_raw(rig.entry("/d1/sub0").key(), Some(b"?".to_vec()));
    rig.put_raw(StoredRow::Policy(rig.find("/d0"), policy_of(&rig)).key(), None);
    rig.put_raw(StoredRow::Linked(rig.find("/docs/linked"), Vec::new()).key(), None);
    rig.edit("/docs/linked", |i| (i.nlink, i.parent) = (7, Ino(1)));
    rig.edit("/docs/symlink", |i| i.node.set_bytes(1));
    rig.edit("/d0", |i| {
        i.node.set_entries(99);
        (i.nlink, i.parent) = (9, Ino(5));
    });
    let ghost = Ino::new(ShardId(1), 1 << 40);
    let StoredRow::Entry { kind, position, .. } = rig.entry("/docs/inline") else { panic!() };
    rig.put(&StoredRow::Entry { dir: Ino::ROOT, name: name("ghost"), ino: ghost, kind, position });
    rig.put(&StoredRow::Entry { dir: Ino::ROOT, name: name("twice"), ino: d2, kind: Kind::Fifo, position });
    rig.delete(&rig.entry("/docs/inline"));
    // A loop of two.
    rig.delete(&rig.entry("/d3"));
    rig.put(&StoredRow::Entry { dir: sub, name: name("up"), ino: d3, kind: Kind::Dir, position });
    rig.put_raw(inode_row(tag::INODE, deep), None);
    rig.put_raw(inode_row(tag::INODE, Ino::ROOT), None);
    rig.put(&StoredRow::Orphan(inline));
    rig.put(&StoredRow::Garbage(shared));
    rig.put(&StoredRow::References(shared, 9));
    rig.objects.put(&BlockId { writer: 1 << 50, number: 1 }.key(), &[0; 21]).expect("puts");
    let Some(StoredRow::Inode(inode)) = rig.get(&inode_row(tag::INODE, big)) else { panic!() };
    let mut inode = chiton_namespace::StoredInode { xattrs: false, ..inode };
    inode.node.set_size(10);
    rig.put(&StoredRow::Inode(inode));
    own(OwnRow::InodeMark(ShardId(2), 0), Some(0u64.to_le_bytes().to_vec()));
    own(OwnRow::InodeMark(ShardId(0), 0), Some(1u64.to_le_bytes().to_vec()));
    own(OwnRow::SessionMark(0), None);
    rig.put_raw(StoredRow::InodeCount(0).key(), None);
    rig
}

fn policy_of(rig: &Rig) -> chiton_model::PolicyChange {
    match rig.get(&plate_row_key(tag::HISTORY, &1u64.to_be_bytes())) {
        Some(StoredRow::PolicyChange(_, change)) => change,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_next_repair_ends_healthy() {
    // One commit for each finding: as many crash points as possible.
    let options = Options { commit_rows: 1, ..content() };
    let pristine = wrecked();
    let kinds: std::collections::BTreeSet<_> =
        check_content(&pristine).iter().map(|f| f.problem.name()).collect();
    assert!(kinds.len() >= 15, "{kinds:?}");
    let mut commits = 0;
    loop {
        let rig = pristine.copy();
        let store = Dies { store: &*rig.meta, commits_left: Arc::new(AtomicUsize::new(commits)) };
        let cut = repair(&store, &*rig.objects, &options, Time(7), &mut |_, _| {}, &mut |_| {});
        let whole = match cut {
            Ok(done) => {
                assert_eq!(done.left, 0);
                true
            }
            Err(CheckError::Store(StoreError::Closed { .. })) => false,
            Err(error) => panic!("{error}"),
        };
        let mut reported = Vec::new();
        let report = &mut |f: &chiton_admin::fsck::Finding, _: bool| reported.push(f.to_string());
        repair(&*rig.meta, &*rig.objects, &options, Time(8), report, &mut |_| {}).expect("repairs");
        assert_eq!(check_content(&rig), [], "cut after {commits} commits; then {reported:#?}");
        for path in ["/docs/deep/copy", "/docs/linked", "/d0/sub1/file", "/lost+found", "/docs/empty"] {
            assert!(rig.find(path) > Ino(1), "{path} after {commits} commits");
        }
        if whole {
            break;
        }
        commits += 1;
    }
    assert!(commits >= 30, "only {commits} places to crash");
    let rig = pristine.copy();
    repair(&*rig.meta, &*rig.objects, &options, Time(7), &mut |_, _| {}, &mut |_| {}).expect("repairs");
    rig.serve(|server| {
        Hand::new(server).dir(Ino::ROOT, "goes on");
    });
    assert_eq!(check_content(&rig), []);
}
