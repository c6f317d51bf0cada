//! Clients that want the same file at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_types::{BlockId, Ino};
use chiton_wire::LeaseMode;

use super::{Member, Rig, caller, tiny};
use crate::data::push::Scope;
use crate::data::{BlockError, BlockIo, DirectBlocks, Files, FilesOptions};
use crate::{OpenFlags, PlateInodes};

/// A gate before the store.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicBool,
}

struct GatedBlocks {
    inner: DirectBlocks,
    gate: Arc<Gate>,
}

impl BlockIo for GatedBlocks {
    fn put(&self, block: BlockId, encoded: &[u8]) -> Result<(), BlockError> {
        let mut open = self.gate.open.lock();
        self.gate.waiting.store(true, Ordering::SeqCst);
        while !*open {
            self.gate.changed.wait(&mut open);
        }
        drop(open);
        self.inner.put(block, encoded)
    }

    fn sync(&self) -> Result<(), BlockError> {
        self.inner.sync()
    }

    fn read_into(&self, block: BlockId, offset: u32, into: &mut [u8]) -> Result<(), BlockError> {
        self.inner.read_into(block, offset, into)
    }
}

/// Four threads of two clients append to one file.
pub(super) fn append_all(members: &[Member; 2]) {
    const EACH: u64 = 60;
    const RECORD: usize = 8;
    let (ino, _) = members[0].create();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let member = &members[thread as usize % 2];
            scope.spawn(move || {
                let fh = member.open(ino, OpenFlags { append: true, ..OpenFlags::WRITE });
                for n in 0..EACH {
                    member.write(fh, 0, &(thread << 32 | n).to_le_bytes());
                }
                member.files.release(fh).expect("release");
            });
        }
    });
    let fh = members[1].open(ino, OpenFlags::READ);
    let all = members[1].all(fh);
    let mut records: Vec<u64> =
        all.chunks(RECORD).map(|r| u64::from_le_bytes(r.try_into().expect("whole records"))).collect();
    for thread in 0..4 {
        let of: Vec<u64> = records.iter().copied().filter(|r| r >> 32 == thread).collect();
        assert!(of.is_sorted(), "appends of one thread are in its order");
    }
    records.sort_unstable();
    let expect: Vec<u64> = (0..4).flat_map(|t| (0..EACH).map(move |n| t << 32 | n)).collect();
    assert_eq!(records, expect);
}

/// One client writes, the other reads.
pub(super) fn write_and_read([writer, reader]: &[Member; 2]) {
    let (ino, fh) = writer.create();
    // More than a block, so that it is no inline file; each write stamps both ends.
    const LEN: usize = 40;
    writer.write(fh, 0, &[0; LEN]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=200u8 {
                writer.write(fh, 0, &[n; LEN]);
            }
            done.store(true, Ordering::SeqCst);
        });
        let fh = reader.open(ino, OpenFlags::READ);
        let mut last = 0;
        loop {
            let end = done.load(Ordering::SeqCst);
            let bytes = reader.all(fh);
            assert_eq!(bytes.len(), LEN);
            assert!(bytes.iter().all(|&b| b == bytes[0]), "one write, whole: {bytes:?}");
            assert!(bytes[0] >= last, "{} after {last}", bytes[0]);
            last = bytes[0];
            if end {
                break;
            }
        }
        assert_eq!(last, 200);
    });
}

#[test]
fn what_the_kernel_writes_back_goes_through_during_a_recall() {
    let rig = Rig::new();
    let gate = Arc::new(Gate::default());
    let io = GatedBlocks { inner: DirectBlocks::new(rig.objects.clone()), gate: gate.clone() };
    let (writer, reader) = (rig.member_with(tiny(), Arc::new(io)), rig.member(tiny()));
    let (ino, fh) = writer.create();
    writer.write(fh, 0, &[1; 40]);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let fh = reader.open(ino, OpenFlags::READ);
            reader.all(fh)
        });
        // The recall is under way once a block waits at the gate and the file is marked.
        while !(gate.waiting.load(Ordering::SeqCst)
            && writer.files.find(ino).is_some_and(|f| f.lock().recalling))
        {
            std::thread::yield_now();
        }
        let n = caller(|c| writer.files.write_back(c, fh, 40, &[2; 8]))
            .expect("the kernel's own writes go through");
        assert_eq!(n, 8);
        *gate.open.lock() = true;
        gate.changed.notify_all();
        let mut expect = vec![1; 40];
        expect.extend([2; 8]);
        assert_eq!(read.join().expect("reader"), expect);
    });
    assert_eq!(writer.files.find(ino).expect("open").lock().lease, LeaseMode::Shared);
}

/// Pages that a mapping wrote under a shared lease are pushed without a stronger lease: the server might grant that one only to the
/// client that waits for these pages.
#[test]
fn what_the_kernel_writes_back_under_a_shared_lease_is_pushed() {
    let rig = Rig::new();
    let members = [rig.member(tiny()), rig.member(tiny())];
    let (ino, fh) = members[0].create();
    members[0].write(fh, 0, &[1; 40]);
    let other = members[1].open(ino, OpenFlags::READ_WRITE);
    assert_eq!(members[1].all(other), [1; 40]);
    let lease = |member: &Member| member.files.find(ino).expect("open").lock().lease;
    while lease(&members[1]) != LeaseMode::Shared {
        members[1].all(other);
    }
    let n = caller(|c| members[1].files.write_back(c, other, 8, &[2; 8])).expect("write back");
    assert_eq!((n, lease(&members[1])), (8, LeaseMode::Shared));
    assert!(!members[1].files.find(ino).expect("open").lock().is_dirty(), "it is with the server");
    let expect = [[1; 8], [2; 8], [1; 8], [1; 8], [1; 8]].concat();
    assert_eq!(members[0].all(fh), expect);
    assert_eq!(members[1].all(other), expect);
}

#[test]
fn a_recall_of_a_file_that_is_not_known_returns() {
    let rig = Rig::new();
    rig.member(tiny()).files.recall(Ino(77), LeaseMode::None);
}

/// Four threads of two clients copy and cut two files.
pub(super) fn copy_and_truncate(members: &[Member; 2]) {
    let (a, _) = members[0].create();
    let (b, _) = members[1].create();
    std::thread::scope(|scope| {
        for m in 0..4usize {
            let member = &members[m % 2];
            let (from, to) = if m % 2 == 0 { (a, b) } else { (b, a) };
            scope.spawn(move || {
                let (fh_in, fh_out) =
                    (member.open(from, OpenFlags::READ_WRITE), member.open(to, OpenFlags::READ_WRITE));
                for n in 0..40u64 {
                    member.write(fh_in, n, &[1; 50]);
                    caller(|c| member.files.copy_range(c, fh_in, 0, fh_out, n, 64)).expect("copy");
                    caller(|c| member.files.truncate(c, to, Some(fh_out), n * 2)).expect("truncate");
                }
                member.files.release(fh_in).expect("release");
                member.files.release(fh_out).expect("release");
            });
        }
    });
    let (x, y) = (members[0].open(a, OpenFlags::READ), members[1].open(a, OpenFlags::READ));
    assert_eq!(members[0].all(x), members[1].all(y));
}

fn two() -> [Member; 2] {
    let rig = Rig::new();
    [rig.member(tiny()), rig.member(tiny())]
}

#[test]
fn appends_of_two_clients_lose_nothing() {
    append_all(&two());
}

#[test]
fn a_reader_never_goes_back_in_time() {
    write_and_read(&two());
}

#[test]
fn truncations_and_copies_in_opposite_directions_end() {
    copy_and_truncate(&two());
}

/// A file that is being turned from inline content into blocks is read: the server's map is older than the change under way.
#[test]
fn what_is_read_during_a_push_is_not_believed_after_it() {
    let rig = Rig::new();
    let gate = Arc::new(Gate::default());
    let io = GatedBlocks { inner: DirectBlocks::new(rig.objects.clone()), gate: gate.clone() };
    // Nothing is stored before the push.
    let member = rig.member_with(FilesOptions { block_bytes: 64, ..tiny() }, Arc::new(io));
    let (_, fh) = member.create();
    member.write(fh, 0, &[1; 20]);
    member.files.fsync(fh, false).expect("inline");
    let mut expected = vec![1; 20];
    member.write(fh, 5, &[2; 30]);
    expected.resize(35, 0);
    expected[5..].fill(2);
    std::thread::scope(|scope| {
        let push = scope.spawn(|| member.files.fsync(fh, false));
        while !gate.waiting.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // As after a restart of the server: the client fetches anew the maps that it had.
        member.files.forget(&PlateInodes::all(), None);
        assert_eq!(member.all(fh), expected, "while it is under way");
        *gate.open.lock() = true;
        gate.changed.notify_all();
        push.join().expect("no panic").expect("stored");
    });
    assert_eq!(member.all(fh), expected, "afterwards");
}

/// The thread that pushes a file when its last handle ends may be late, and the file open again by then.
#[test]
fn a_late_push_does_not_take_what_was_written_since_for_pushed() {
    let member = Rig::new().member(FilesOptions { idle_files_max: 0, ..tiny() });
    let (ino, fh) = member.create();
    member.write(fh, 0, b"first");
    let before = member.files.find(ino).expect("it is open");
    member.files.release(fh).expect("release");
    let fh = member.open(ino, OpenFlags::READ_WRITE);
    member.write(fh, 0, b"second");
    member.files.push(&before, Scope::All).expect("nothing to push");
    member.files.note_clean(&before);
    member.files.sync().expect("sync");
    assert_eq!(member.calls.stat(ino).size, 6);
    assert!(!member.files.has_dirty());
}

/// The server's answer about a file is old if another thread has opened, written and closed the file since.
#[test]
fn an_open_that_was_answered_before_a_file_was_written_and_forgotten_is_not_believed() {
    let rig = Rig::new();
    let (session, io) = (rig.server.session(), Arc::new(DirectBlocks::new(rig.objects.clone())));
    let options = FilesOptions { idle_files_max: 0, ..tiny() };
    let files = Files::new(session.clone(), io, Arc::new(chiton_runtime::RealWorld), options);
    session.attach(&files);
    let member = Member { files: files.clone(), calls: session.clone() };
    let (ino, fh) = member.create();
    files.release(fh).expect("release");
    let open_after = |what: &dyn Fn()| {
        let changes = files.changes();
        let (attr, lease, mark) = session.ask_open(ino);
        what();
        let flags = OpenFlags::READ_WRITE;
        let fh = caller(|c| files.open(c, attr, lease, (mark, changes), flags, None)).expect("open");
        let all = member.all(fh);
        files.release(fh).expect("release");
        all
    };
    let written = open_after(&|| {
        let fh = member.open(ino, OpenFlags::READ_WRITE);
        member.write(fh, 0, b"written");
        files.release(fh).expect("release");
    });
    assert_eq!(written, b"written");
    let cut = open_after(&|| {
        caller(|c| files.truncate(c, ino, None, 3)).expect("truncate");
    });
    assert_eq!(cut, b"wri");
}

/// While the size of a file is set that is not open here, nobody opens it by an earlier answer of the server.
#[test]
fn who_opens_a_file_whose_size_is_being_set_waits() {
    let member = Rig::new().member(FilesOptions { idle_files_max: 0, ..tiny() });
    let (ino, fh) = member.create();
    member.files.release(fh).expect("release");
    let opened = AtomicBool::new(false);
    std::thread::scope(|scope| {
        member.files.resize(
            ino,
            |_| panic!("it has no state"),
            || {
                scope.spawn(|| {
                    let fh = member.open(ino, OpenFlags::READ);
                    opened.store(true, Ordering::SeqCst);
                    member.files.release(fh).expect("release");
                });
                std::thread::sleep(Duration::from_millis(20));
                assert!(!opened.load(Ordering::SeqCst));
            },
        );
    });
    assert!(opened.load(Ordering::SeqCst));
}

/// A file whose size is being set keeps its state, so that a thread that opens it meanwhile has the same.
#[test]
fn a_file_whose_size_is_being_set_is_not_forgotten() {
    let member = Rig::new().member(FilesOptions { idle_files_max: 0, ..tiny() });
    let (ino, fh) = member.create();
    member.files.resize(
        ino,
        |file| {
            member.files.release(fh).expect("release");
            let again = member.open(ino, OpenFlags::READ);
            assert!(Arc::ptr_eq(file, &member.files.find(ino).expect("it is open")));
            member.files.release(again).expect("release");
        },
        || panic!("it is open"),
    );
    assert!(member.files.find(ino).is_none());
}
