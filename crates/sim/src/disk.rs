//! Storage of a run: segments, objects and rows in memory, with their faults.
//!
//! ```text
//!   server ─▶ DiskHandle (one life of a server) ─ slow? failing? full? cut off? ─▶ Disk (outlives all servers)
//! ```
//!
//! Invariants:
//! - When a server dies, data that were not synced are lost, kept in part, or torn, as the seed says. Synced data
//!   stay.
//! - A handle that is cut off changes nothing more, whatever its server still tries.

use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use chiton_engine::MARK;
use chiton_journal::{MemoryPlace, Place, PlaceError, SegmentInfo, Shape};
use chiton_metastore::{Batch, MemoryMetastore, Metastore, Row, StoreError, StoreStats};
use chiton_namespace::tag_of;
use chiton_objects::{MemoryObjects, ObjectError, ObjectInfo, Objects};
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::thread;
use chiton_types::{PlateId, Plates};

use crate::canary::Canary;
use crate::part_steps::{PartSteps, StepCounts};
use crate::random::Random;
use crate::scheduler::scheduler;

/// The unit that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// The present faults of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFaults {
    /// The factor by which every operation is slower.
    pub slowness: u32,
    /// Of 10,000 operations on the journal's place, how many get no answer; half of them are carried out.
    pub place_silent: u32,
    /// Of 10,000 operations on objects, how many fail and may be retried; half of them are carried out.
    pub objects_silent: u32,
    /// Of 1,000 commits of rows, how many fail; half of them are carried out. Then the store must be reopened.
    pub rows_fail: u32,
    /// Of 1,000 writes and syncs of the journal, how many fail; half of them are carried out.
    pub place_fail: u32,
    /// Access to objects, and to a journal of objects, is denied.
    pub refuses: bool,
    /// Every write fails for lack of space.
    pub full: bool,
}

impl DiskFaults {
    /// A disk without faults.
    pub const GOOD: DiskFaults = DiskFaults {
        slowness: 1,
        place_silent: 0,
        objects_silent: 0,
        rows_fail: 0,
        place_fail: 0,
        refuses: false,
        full: false,
    };
}

/// Storage that outlives servers.
pub struct Disk {
    plates: Vec<PlateDisk>,
    objects: Arc<MemoryObjects>,
    faults: Mutex<DiskFaults>,
    random: Mutex<Random>,
    canary: Option<Canary>,
    /// Counts changes of storage.
    points: AtomicU64,
    /// The power fails at this point.
    crash_at: AtomicU64,
    /// Ways in so far.
    handles: AtomicU64,
    steps: Mutex<PartSteps>,
    /// A plate has written frames.
    written: Condvar,
}

/// The stores that one plate has for itself.
struct PlateDisk {
    place: Mutex<Arc<MemoryPlace>>,
    rows: Arc<MemoryMetastore>,
    /// Openings of the row store: an older one is void where stores are shared.
    openings: AtomicU64,
    /// The youngest way in that has opened the row store: an older one must not open it again, as the records of holders in a
    /// bucket have it.
    holder: AtomicU64,
}

impl PlateDisk {
    fn new(shape: Shape) -> PlateDisk {
        PlateDisk {
            place: Mutex::new(Arc::new(MemoryPlace::new(shape))),
            rows: Arc::new(MemoryMetastore::new()),
            openings: AtomicU64::new(0),
            holder: AtomicU64::new(0),
        }
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Sync,
}

/// The result of an operation.
enum DiskReply<T> {
    Done(T),
    /// Not answered; it may have happened.
    Silent,
    /// Not carried out: no space.
    Full,
    /// The server is cut off.
    Gone,
}

impl Disk {
    pub fn new(shape: Shape, seed: u64, canary: Option<Canary>) -> Arc<Disk> {
        Disk::of_plates(1, shape, seed, canary)
    }

    /// The same with a journal and rows for each plate; all share the objects.
    pub fn of_plates(plates: u16, shape: Shape, seed: u64, canary: Option<Canary>) -> Arc<Disk> {
        Arc::new(Disk {
            plates: (0..plates).map(|_| PlateDisk::new(shape)).collect(),
            objects: Arc::new(MemoryObjects::new()),
            faults: Mutex::new(DiskFaults::GOOD),
            random: Mutex::new(Random::new(seed, 2)),
            canary,
            points: AtomicU64::new(0),
            crash_at: AtomicU64::new(u64::MAX),
            handles: AtomicU64::new(0),
            steps: Mutex::default(),
            written: Condvar::new(),
        })
    }

    /// A way in for one life of a server with one plate.
    pub fn handle(self: &Arc<Disk>) -> Arc<DiskHandle> {
        self.handle_of(PlateId(0))
    }

    /// A way in for one life of a plate.
    pub fn handle_of(self: &Arc<Disk>, plate: PlateId) -> Arc<DiskHandle> {
        let number = self.handles.fetch_add(1, SeqCst) + 1;
        Arc::new(DiskHandle { disk: self.clone(), plate, number, is_cut: AtomicBool::new(false) })
    }

    /// The plates whose stores it has.
    pub fn plates(&self) -> impl Iterator<Item = PlateId> + use<> {
        (0..self.plates.len() as u16).map(PlateId)
    }

    fn plate(&self, plate: PlateId) -> &PlateDisk {
        &self.plates[usize::from(plate.0)]
    }

    /// Counts from now on the steps by which directories are split over these plates, and folded.
    pub fn count_steps(&self, plates: Plates) {
        self.steps.lock().watch(plates);
    }

    /// Those that were counted.
    pub fn steps(&self) -> StepCounts {
        self.steps.lock().counts()
    }

    /// Waits until a plate is in the middle of a split or fold; `false`: the time is over.
    pub fn await_step(&self, plate: PlateId, time: Duration) -> bool {
        let end = scheduler().now() + time;
        let mut steps = self.steps.lock();
        while !steps.are_under_way_at(plate) && scheduler().now() < end {
            self.written.wait_for(&mut steps, end - scheduler().now());
        }
        steps.are_under_way_at(plate)
    }

    /// How it behaves from now on.
    pub fn set_faults(&self, faults: DiskFaults) {
        *self.faults.lock() = faults;
    }

    pub fn faults(&self) -> DiskFaults {
        *self.faults.lock()
    }

    /// Number of changes of storage.
    pub fn points(&self) -> u64 {
        self.points.load(SeqCst)
    }

    /// Lets the power fail just after the change number `point` (from 1): nothing changes any more.
    pub fn set_crash_at(&self, point: u64) {
        self.crash_at.store(point, SeqCst);
    }

    /// True if the power has failed.
    pub fn is_down(&self) -> bool {
        self.points() >= self.crash_at.load(SeqCst)
    }

    /// The power returns, or the only server of this storage died: unsynced data are lost, all or in part.
    pub fn crash(&self) {
        self.crash_at.store(u64::MAX, SeqCst);
        let mut random = self.random.lock();
        self.plates.iter().for_each(|plate| plate.crash(&mut random));
        self.plates().for_each(|plate| self.steps.lock().died(plate));
        self.objects.crash_keeping(|_| random.chance(1, 2));
    }

    /// One plate died, while the others live: of its own journal and rows unsynced data are lost. Objects stay, since their
    /// server does.
    pub fn crash_plate(&self, plate: PlateId) {
        self.plate(plate).crash(&mut self.random.lock());
        self.steps.lock().died(plate);
    }

    /// The segments of a plate's journal as they are.
    pub fn remains_place(&self, plate: PlateId) -> Arc<MemoryPlace> {
        self.plate(plate).place.lock().clone()
    }

    /// The objects, and each plate's rows, for inspection while no server runs.
    pub fn remains(&self) -> (Arc<MemoryObjects>, Vec<Arc<MemoryMetastore>>) {
        self.plates.iter().for_each(|plate| plate.rows.crash());
        (self.objects.clone(), self.plates.iter().map(|plate| plate.rows.clone()).collect())
    }
}

impl PlateDisk {
    fn crash(&self, random: &mut Random) {
        let mut place = self.place.lock();
        let mut torn = Vec::new();
        let after = place.crash(&mut |number, unsynced| {
            let keep = match random.below(3) {
                0 => 0,
                1 => unsynced,
                _ => random.below(unsynced as u64 + 1) as usize,
            };
            if keep > 0 && random.chance(1, 3) {
                torn.push((number, keep));
            }
            keep
        });
        for (number, keep) in torn {
            // A sector in the middle of the unsynced data is missing.
            if let Ok(mut bytes) = after.read(number, u64::MAX) {
                let end = bytes.len();
                let unsynced = end - keep;
                let sector = (unsynced + random.below(keep as u64) as usize) / SECTOR_BYTES * SECTOR_BYTES;
                bytes[sector.max(unsynced)..end.min(sector + SECTOR_BYTES)].fill(0);
                after.set_bytes(number, bytes);
            }
        }
        *place = Arc::new(after);
        self.rows.crash();
    }
}

/// The access of one life of a plate to storage.
pub struct DiskHandle {
    disk: Arc<Disk>,
    plate: PlateId,
    number: u64,
    is_cut: AtomicBool,
}

impl DiskHandle {
    /// Nothing of this server reaches storage any more.
    pub fn cut(&self) {
        self.is_cut.store(true, SeqCst);
    }

    fn own(&self) -> &PlateDisk {
        self.disk.plate(self.plate)
    }

    fn is_gone(&self) -> bool {
        self.is_cut.load(SeqCst) || self.disk.is_down()
    }

    /// Carries out an operation with the present faults.
    fn suffer<T>(&self, kind: Kind, silent: u32, of: u32, act: impl FnOnce() -> T) -> DiskReply<T> {
        if self.is_gone() {
            return DiskReply::Gone;
        }
        let (before, after, mute, happens, full) = {
            let faults = *self.disk.faults.lock();
            let mut random = self.disk.random.lock();
            let span = match kind {
                Kind::Read => random.between(20, 200),
                Kind::Write => random.between(5, 50),
                Kind::Sync => random.between(200, 3_000),
            };
            let micros = span * u64::from(faults.slowness);
            let before = random.below(micros);
            let mute = silent > 0 && random.chance(silent.into(), of.into());
            (before, micros - before, mute, random.chance(1, 2), faults.full)
        };
        thread::sleep(Duration::from_micros(before));
        if self.is_gone() {
            return DiskReply::Gone;
        }
        scheduler().mix(kind as u64 + before);
        let result = match (mute && !happens, full && kind == Kind::Write) {
            (_, true) => DiskReply::Full,
            (true, _) => DiskReply::Silent,
            _ => {
                let done = act();
                if kind != Kind::Read {
                    self.disk.points.fetch_add(1, SeqCst);
                }
                if mute { DiskReply::Silent } else { DiskReply::Done(done) }
            }
        };
        thread::sleep(Duration::from_micros(after));
        if self.is_gone() { DiskReply::Gone } else { result }
    }

    fn in_place<T>(
        &self,
        kind: Kind,
        act: impl FnOnce(&MemoryPlace) -> Result<T, PlaceError>,
    ) -> Result<T, PlaceError> {
        // Of a growing segment that did not answer nothing may be believed; a whole one is put again.
        let faults = self.disk.faults();
        let failing = if kind == Kind::Read { 0 } else { faults.place_fail * 10 };
        let silent = match self.shape() {
            Shape::Whole => faults.place_silent,
            Shape::Grows => 0,
        };
        let place = self.own().place.lock().clone();
        if faults.refuses && self.shape() == Shape::Whole && !self.is_gone() {
            thread::sleep(Duration::from_micros(50));
            return Err(PlaceError::Denied("the token has expired".to_owned()));
        }
        match self.suffer(kind, failing.max(silent), 10_000, || act(&place)) {
            DiskReply::Done(result) => result,
            DiskReply::Silent if failing > 0 => Err(PlaceError::Failed("input/output error".to_owned())),
            DiskReply::Silent => Err(PlaceError::Transient("no answer".to_owned())),
            DiskReply::Full => Err(PlaceError::NoSpace("the disk is full".to_owned())),
            DiskReply::Gone => Err(PlaceError::Failed("the machine is gone".to_owned())),
        }
    }

    fn in_objects<T>(
        &self,
        key: &str,
        kind: Kind,
        act: impl FnOnce(&MemoryObjects) -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        let DiskFaults { objects_silent: silent, refuses, .. } = self.disk.faults();
        if refuses && !self.is_gone() {
            thread::sleep(Duration::from_micros(50));
            return Err(ObjectError::Denied {
                key: key.to_owned(),
                cause: "the token has expired".to_owned(),
            });
        }
        match self.suffer(kind, silent, 10_000, || act(&self.disk.objects)) {
            DiskReply::Done(result) => result,
            DiskReply::Silent => {
                Err(ObjectError::Transient { key: key.to_owned(), cause: "no answer".to_owned() })
            }
            DiskReply::Full => Err(ObjectError::NoSpace { key: key.to_owned() }),
            DiskReply::Gone => {
                Err(ObjectError::Io { key: key.to_owned(), cause: "the machine is gone".to_owned() })
            }
        }
    }

    /// Opens the row store.
    ///
    /// # Errors
    /// If the server is cut off, or was replaced.
    pub fn open_rows(self: &Arc<DiskHandle>) -> Result<Arc<dyn Metastore>, StoreError> {
        if self.is_gone() {
            return Err(io_error("the machine is gone"));
        }
        thread::sleep(Duration::from_millis(2));
        if self.own().holder.fetch_max(self.number, SeqCst) > self.number {
            return Err(StoreError::Fenced { path: PathBuf::new() });
        }
        let opening = self.own().openings.fetch_add(1, SeqCst) + 1;
        Ok(Arc::new(RowStore { disk_handle: self.clone(), opening, is_broken: AtomicBool::new(false) }))
    }
}

impl Place for DiskHandle {
    fn shape(&self) -> Shape {
        self.own().place.lock().shape()
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        self.in_place(Kind::Read, |place| place.list())
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.in_place(Kind::Read, |place| place.read(number, bytes_max))
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let ignores_fence = self.disk.canary == Some(Canary::FenceIgnored);
        self.in_place(Kind::Write, |place| match place.create(number, bytes) {
            // Another writer has this number; the canary ignores that.
            Err(PlaceError::Exists) if ignores_fence => Ok(()),
            Ok(()) if place.shape() == Shape::Whole => {
                self.disk.steps.lock().put(self.plate, number, bytes);
                self.disk.written.notify_all();
                Ok(())
            }
            result => result,
        })
    }

    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.in_place(Kind::Write, |place| {
            place.append(number, offset, bytes)?;
            self.disk.steps.lock().appended(self.plate, bytes);
            self.disk.written.notify_all();
            Ok(())
        })
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        let skips = self.disk.canary == Some(Canary::FsyncSkipped);
        self.in_place(Kind::Sync, |place| {
            if !skips {
                place.sync(number)?;
                self.disk.steps.lock().synced(self.plate);
            }
            Ok(())
        })
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.in_place(Kind::Read, |place| place.remove(number))
    }
}

impl Objects for DiskHandle {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        self.in_objects(key, Kind::Read, |objects| objects.get(key, range))
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        self.in_objects(key, Kind::Read, |objects| objects.read_into(key, offset, into))
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        self.in_objects(key, Kind::Read, |objects| objects.size(key))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        let drops = self.disk.canary == Some(Canary::BlockDropped);
        self.in_objects(key, Kind::Write, |objects| if drops { Ok(()) } else { objects.put(key, bytes) })
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        self.in_objects(key, Kind::Write, |objects| objects.put_if_absent(key, bytes))
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        let keeps = self.disk.canary == Some(Canary::GarbageKept);
        self.in_objects(key, Kind::Read, |objects| if keeps { Ok(()) } else { objects.delete(key) })
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        self.in_objects(prefix, Kind::Read, |objects| objects.list(prefix, after, max))
    }

    fn sync(&self) -> Result<(), ObjectError> {
        self.in_objects("", Kind::Sync, |objects| objects.sync())
    }
}

/// The row store as it was opened once.
struct RowStore {
    disk_handle: Arc<DiskHandle>,
    opening: u64,
    is_broken: AtomicBool,
}

fn io_error(cause: &str) -> StoreError {
    StoreError::Io { path: PathBuf::new(), cause: cause.to_owned() }
}

impl RowStore {
    fn run<T>(
        &self,
        kind: Kind,
        act: impl FnOnce(&MemoryMetastore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.is_broken.load(SeqCst) {
            return Err(io_error("an earlier commit failed"));
        }
        let disk = &self.disk_handle.disk;
        let failing = if kind == Kind::Sync { disk.faults().rows_fail } else { 0 };
        let reply = self.disk_handle.suffer(kind, failing, 1_000, || {
            let own = self.disk_handle.own();
            // A later opening has fenced this one.
            if own.openings.load(SeqCst) != self.opening && kind == Kind::Sync {
                return Err(StoreError::Fenced { path: PathBuf::new() });
            }
            act(&own.rows)
        });
        match reply {
            DiskReply::Done(result) => result,
            DiskReply::Silent => {
                self.is_broken.store(true, SeqCst);
                Err(io_error("no answer"))
            }
            DiskReply::Full => Err(StoreError::NoSpace { path: PathBuf::new() }),
            DiskReply::Gone => Err(io_error("the machine is gone")),
        }
    }
}

impl Metastore for RowStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.run(Kind::Read, |rows| rows.get(key))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.run(Kind::Read, |rows| rows.get_many(keys))
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.run(Kind::Read, |rows| rows.scan(start, end, limit))
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        if self.disk_handle.disk.faults().full {
            self.is_broken.store(true, SeqCst);
            return Err(StoreError::NoSpace { path: PathBuf::new() });
        }
        if self.disk_handle.disk.canary == Some(Canary::InodesReused) {
            // The marks below which numbers are given out stay as they were.
            let is_mark = |key: &[u8]| tag_of(key) == Some(MARK) && self.disk_handle.disk.points() >= 64;
            let left: Batch = batch.rows().filter(|(key, _)| !is_mark(key)).collect();
            return self.run(Kind::Sync, |rows| rows.commit(&left));
        }
        self.run(Kind::Sync, |rows| rows.commit(batch))
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        self.run(Kind::Read, |rows| rows.stats())
    }

    fn close(&self) -> Result<(), StoreError> {
        self.is_broken.store(true, SeqCst);
        Ok(())
    }
}
