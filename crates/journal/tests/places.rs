//! The three places in the conformance suite, and properties of object places.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chiton_journal::{
    FENCE_NUMBERS, FilePlace, Identity, Journal, JournalError, MemoryPlace, ObjectPlace, Place, PlaceError,
    SegmentHeader, SegmentInfo, Shape, conformance,
};
use chiton_objects::{Fault, MemoryObjects, ObjectError, ObjectInfo, Objects};
use chiton_types::{Epoch, Position};
use parking_lot::{Condvar, Mutex};
use support::{append, commit, create, identity, options, read};

#[test]
fn memory_conforms() {
    conformance::suite(&|| Box::new(MemoryPlace::new(Shape::Grows)));
    conformance::suite(&|| Box::new(MemoryPlace::new(Shape::Whole)));
}

#[test]
fn files_conform() {
    let base = tempfile::tempdir().expect("a directory");
    let count = AtomicU64::new(0);
    conformance::suite(&|| {
        let path = base.path().join(format!("{}/journal", count.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir_all(&path).expect("make the directory");
        std::fs::write(path.join("1.seg"), b"no segment's name").expect("write");
        Box::new(FilePlace::open(&path).expect("open"))
    });
}

#[test]
fn objects_conform() {
    conformance::suite(&|| {
        let objects = MemoryObjects::default();
        objects.put("journal/7x", b"of another").expect("put");
        Box::new(ObjectPlace::new(Arc::new(objects), "journal/7"))
    });
}

#[test]
fn files_and_objects_carry_a_journal() {
    let base = tempfile::tempdir().expect("a directory");
    let file: Arc<dyn Place> = Arc::new(FilePlace::open(&base.path().join("journal")).expect("open"));
    let objects: Arc<dyn Place> = Arc::new(ObjectPlace::new(Arc::new(MemoryObjects::default()), "journal/7"));
    for place in [file, objects] {
        let journal = Journal::create(place.clone(), identity(1), options(300)).expect("create");
        let last = commit(&journal, 0..30);
        drop(journal);
        let (journal, recovered) = Journal::open(place.clone(), identity(2), options(300)).expect("open");
        assert_eq!((recovered.last_position, recovered.torn), (last, None));
        commit(&journal, 30..60);
        assert_eq!(read(&*place, Position(0)).0, (0..60).collect::<Vec<_>>());
    }
}

#[test]
fn a_put_whose_answer_was_lost_counts() {
    let objects = Arc::new(MemoryObjects::default());
    let place = Arc::new(ObjectPlace::new(objects.clone(), "journal/7"));
    let journal = Journal::create(place.clone(), identity(1), options(1 << 20)).expect("create");
    objects.fail_next(1, Fault::LostReply);
    let last = append(&journal, [1]);
    while let Err(error) = journal.wait_durable(last) {
        assert!(error.may_heal(), "{error}");
    }
    assert_eq!(place.list().expect("list").len(), 2);
    assert_eq!(read(&*place, Position(0)).0, [1]);
}

#[test]
fn a_newer_writer_fences_the_older() {
    let (place, older) = create(Shape::Whole, options(1 << 20));
    commit(&older, [1]);
    let newer_identity = Identity { epoch: Epoch(9), ..identity(2) };
    let (newer, _) = Journal::open(place.clone(), newer_identity, options(1 << 20)).expect("open");
    let last = append(&older, [2]);
    assert_eq!(older.wait_durable(last), Err(JournalError::Fenced { by: Epoch(9) }));
    assert_eq!(older.append(&support::frame(3).0, 1), Err(JournalError::Fenced { by: Epoch(9) }));
    commit(&newer, [4]);
    assert_eq!(read(&*place, Position(0)).0, [1, 4]);
}

/// Number of a first writer's first segment with frames.
const FIRST: u64 = 2 + FENCE_NUMBERS;

/// A writer is paused during its puts; another takes over, writes much and trims; then the first continues. It
/// confirms nothing, gets the reason as an error, and none of its late puts is ever read.
#[test]
fn late_puts_of_a_fenced_writer_are_void_for_ever() {
    let (place, older) = create(Shape::Whole, options(100));
    let kept = commit(&older, 0..3);
    let segment = place.list().expect("list").last().expect("a segment").number;
    // The bytes of its next segments.
    let twin = Arc::new(place.crash(&mut |_, _| 0));
    let (stale, durable) = (older, kept);
    let (newer, recovered) = Journal::open(place.clone(), identity(2), options(100)).expect("open");
    assert_eq!(recovered.last_position, durable);
    let last = commit(&newer, 10..40);
    newer.trim(last).expect("trim");
    assert!(place.list().expect("list").len() <= 3, "only claims and the last segment stay");
    for number in segment + 2..segment + 10 {
        let bytes = twin.read(segment, u64::MAX).expect("a segment of the older writer");
        let mut header = SegmentHeader::decode(&bytes).expect("its header");
        header.segment = number;
        header.first = durable.next();
        header.durable = durable;
        place
            .create(number, &[header.encode(), bytes[64..].to_vec()].concat())
            .expect("nobody has the number");
    }
    let position = append(&stale, [90]);
    assert!(matches!(stale.wait_durable(position), Err(JournalError::Fenced { .. })));
    assert_eq!(stale.durable(), durable);
    let after = commit(&newer, [40]);
    assert_eq!(read(&*place, last).0, [40]);
    drop(newer);
    let (third, recovered) = Journal::open(place.clone(), identity(3), options(100)).expect("open");
    assert_eq!(recovered.last_position, after);
    commit(&third, [41]);
    assert_eq!(read(&*place, last).0, [40, 41]);
    third.trim(after).expect("trim");
    assert_eq!(read(&*place, after).0, [41]);
}

/// Lets a put of one number land only on command.
struct HeldPlace {
    inner: MemoryPlace,
    held: Mutex<Option<u64>>,
    changed: Condvar,
    /// A put of the held number has come.
    holds: AtomicBool,
}

impl HeldPlace {
    fn hold(&self, number: Option<u64>) {
        *self.held.lock() = number;
        self.changed.notify_all();
    }

    fn until_there(&self, number: u64) {
        while self.inner.read(number, 1).is_err() {
            std::thread::yield_now();
        }
    }
}

impl Place for HeldPlace {
    fn shape(&self) -> Shape {
        Shape::Whole
    }
    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        self.inner.list()
    }
    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.inner.read(number, bytes_max)
    }
    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let mut held = self.held.lock();
        while *held == Some(number) {
            self.holds.store(true, Ordering::Relaxed);
            self.changed.wait(&mut held);
        }
        drop(held);
        self.inner.create(number, bytes)
    }
    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.inner.append(number, offset, bytes)
    }
    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        self.inner.sync(number)
    }
    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.inner.remove(number)
    }
}

#[test]
fn only_contiguous_objects_are_confirmed() {
    let held = HeldPlace {
        inner: MemoryPlace::new(Shape::Whole),
        held: Mutex::new(None),
        changed: Condvar::new(),
        holds: AtomicBool::new(false),
    };
    let place = Arc::new(held);
    let journal = Journal::create(place.clone(), identity(1), options(1 << 20)).expect("create");
    let first = commit(&journal, [0]);
    place.hold(Some(FIRST + 1));
    append(&journal, [1]);
    journal.request_commit();
    while !place.holds.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    // Later puts overtake it, so they are not confirmed …
    let mut last = first;
    for n in [2, 3] {
        last = append(&journal, [n]);
        journal.request_commit();
    }
    place.until_there(FIRST + 2);
    assert_eq!(journal.durable(), first);
    // … and are void for a process that opens the journal after a crash now. The older writer's late puts change
    // nothing.
    let crashed = Arc::new(place.inner.crash(&mut |_, _| 0));
    let late: Vec<u8> = crashed.read(FIRST + 2, u64::MAX).expect("read");
    let (next, recovered) = Journal::open(crashed.clone(), identity(2), options(1 << 20)).expect("open");
    assert_eq!(recovered.last_position, first);
    assert!(recovered.torn.is_some());
    commit(&next, [7]);
    commit(&next, [8]);
    let later = [&[0u8][..], &late].concat();
    for number in FIRST + 1..FIRST + 1 + FENCE_NUMBERS {
        // It lands or is refused; it is void in both cases.
        let _ = crashed.create(number, &later);
    }
    assert_eq!(read(&*crashed, Position(0)).0, [0, 7, 8]);
    // Without a crash, all is confirmed once the gap is closed.
    place.hold(None);
    journal.wait_durable(last).expect("durable");
    assert_eq!(read(&*place, Position(0)).0, [0, 1, 2, 3]);
}

/// An object store in which a read returns only when as many are under way as `together` says, at the same time or before.
#[derive(Default)]
struct Together {
    inner: MemoryObjects,
    together: AtomicU64,
    state: Mutex<Reads>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Reads {
    under_way: u64,
    most: u64,
    all: u64,
}

impl Together {
    fn reads(&self) -> Reads {
        *self.state.lock()
    }
}

impl Objects for Together {
    fn get(&self, key: &str, range: Option<std::ops::Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        let mut state = self.state.lock();
        state.under_way += 1;
        state.all += 1;
        state.most = state.most.max(state.under_way);
        self.changed.notify_all();
        let enough = |state: &Reads| state.most >= self.together.load(Ordering::Relaxed);
        while !enough(&state) && !self.changed.wait_for(&mut state, Duration::from_secs(20)).timed_out() {}
        state.under_way -= 1;
        drop(state);
        self.inner.get(key, range)
    }
    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        self.inner.read_into(key, offset, into)
    }
    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        panic!("the list said how large {key} is")
    }
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        self.inner.put(key, bytes)
    }
    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        self.inner.put_if_absent(key, bytes)
    }
    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.inner.delete(key)
    }
    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        self.inner.list(prefix, after, max)
    }
    fn sync(&self) -> Result<(), ObjectError> {
        self.inner.sync()
    }
}

#[test]
fn objects_are_read_several_at_a_time_each_once() {
    let objects = Arc::new(Together::default());
    let place: Arc<dyn Place> = Arc::new(ObjectPlace::new(objects.clone(), "journal/7"));
    let journal = Journal::create(place.clone(), identity(1), options(1 << 20)).expect("create");
    for n in 0..100 {
        commit(&journal, [n]);
    }
    journal.close().expect("close");
    let segments = place.list().expect("list").len() as u64;
    assert!(segments > 100);
    *objects.state.lock() = Reads::default();
    objects.together.store(8, Ordering::Relaxed);
    let (journal, _) = Journal::open(place.clone(), identity(2), options(1 << 20)).expect("opens");
    let opened = objects.reads();
    assert!((8..=16).contains(&opened.most), "{} at a time", opened.most);
    // All headers, and the end of the journal.
    assert!(opened.all <= segments + 5, "{} reads of {segments} segments", opened.all);
    *objects.state.lock() = Reads::default();
    let (numbers, replayed) = read(&*place, Position(0));
    assert_eq!((numbers.len(), replayed.map(|_| ())), (100, Ok(())));
    let replayed = objects.reads();
    assert!((8..=16).contains(&replayed.most), "{} at a time", replayed.most);
    // All headers, and all segments.
    assert!(replayed.all <= 2 * (segments + 1), "{} reads of {segments} segments", replayed.all);
    drop(journal);
}
