//! The stores of a running server on one disk that keeps a log of every write, in the order in which they returned. All plates are in one
//! log.

use std::collections::BTreeSet;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::time::Duration;

use chiton_engine::PeerState;
use chiton_journal::{Place, PlaceError, SegmentInfo, Shape};
use chiton_metastore::{Batch, Metastore, Row, StoreError, StoreStats};
use chiton_namespace::StoredRow;
use chiton_objects::{ObjectError, ObjectInfo, Objects};
use chiton_runtime::thread;
use chiton_server::Stores;
use chiton_types::{Ino, PlateId};
use parking_lot::{Condvar, Mutex};

use super::disk::{Disk, PlateDisk, Segment, Tail, Write};

/// A write, and how much had begun when it was made.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) plate: PlateId,
    pub(crate) write: Write,
    pub(crate) begun: usize,
}

#[derive(Debug, Default)]
struct State {
    disk: Disk,
    log: Vec<Logged>,
    begun: usize,
    /// How often each plate has died.
    deaths: Vec<u32>,
    doom: Option<Doom>,
    /// The plate that has died.
    died: Option<PlateId>,
    /// Nobody waits for a death any more.
    is_over: bool,
    /// It runs again, with so much of its journal, of so many possible ways.
    restarted: Option<Result<(Tail, usize), String>>,
}

/// The death of one plate, while the others live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doom {
    pub(crate) plate: PlateId,
    /// After so many more writes of this plate: 1 is the next one. It is carried out, and nobody learns of it.
    pub(crate) writes: usize,
}

/// The disk of a running server, as one of its plates has it.
#[derive(Clone, Debug)]
pub(crate) struct LiveDisk {
    shared: Arc<Shared>,
    plate: PlateId,
    /// Deaths of the plate before: those who have it from an earlier life change nothing any more.
    life: u32,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A plate died, or the run is over.
    changed: Condvar,
}

/// The plate has died.
struct Dead;

/// So long all threads of a server have nothing to do before it counts as quiet.
const QUIET: Duration = Duration::from_millis(5);

/// The words of a store whose plate has died.
const DEAD: &str = "the plate has died";

impl From<Dead> for PlaceError {
    fn from(Dead: Dead) -> PlaceError {
        PlaceError::Failed(DEAD.to_owned())
    }
}

impl From<Dead> for ObjectError {
    fn from(Dead: Dead) -> ObjectError {
        ObjectError::Io { key: String::new(), cause: DEAD.to_owned() }
    }
}

impl From<Dead> for StoreError {
    fn from(Dead: Dead) -> StoreError {
        StoreError::Io { path: Default::default(), cause: DEAD.to_owned() }
    }
}

impl LiveDisk {
    /// A server's disk that holds this, as its first plate has it.
    pub(crate) fn new(disk: Disk) -> LiveDisk {
        let deaths = vec![0; disk.plates.len()];
        let state = Mutex::new(State { disk, deaths, ..State::default() });
        LiveDisk { shared: Arc::new(Shared { state, changed: Condvar::new() }), plate: PlateId(0), life: 0 }
    }

    /// The same disk as a plate has it in its present life.
    pub(crate) fn at(&self, plate: PlateId) -> LiveDisk {
        let life = self.shared.state.lock().deaths[usize::from(plate.0)];
        LiveDisk { shared: self.shared.clone(), plate, life }
    }

    /// The same disk as each plate has it.
    pub(crate) fn plates(&self) -> impl Iterator<Item = LiveDisk> {
        let count = self.shared.state.lock().disk.plates.len() as u16;
        (0..count).map(|plate| self.at(PlateId(plate)))
    }

    /// Has a plate die.
    pub(crate) fn doom(&self, doom: Doom) {
        self.shared.state.lock().doom = Some(doom);
    }

    /// Whether a plate has died.
    pub(crate) fn has_died(&self) -> bool {
        self.shared.state.lock().died.is_some()
    }

    /// Waits until a plate dies; `None`: none does.
    pub(crate) fn wait_death(&self) -> Option<PlateId> {
        let mut state = self.shared.state.lock();
        while state.died.is_none() && !state.is_over {
            self.shared.changed.wait(&mut state);
        }
        state.died
    }

    /// No plate dies any more.
    pub(crate) fn end_dying(&self) {
        let mut state = self.shared.state.lock();
        (state.doom, state.is_over) = (None, true);
        self.shared.changed.notify_all();
    }

    /// The plate that died runs again, or does not.
    pub(crate) fn set_restarted(&self, how: Result<(Tail, usize), String>) {
        self.shared.state.lock().restarted = Some(how);
    }

    pub(crate) fn restarted(&self) -> Option<Result<(Tail, usize), String>> {
        self.shared.state.lock().restarted.clone()
    }

    /// The journal of a plate that has died: the way with this number in which it may be left, and how many ways there are.
    pub(crate) fn crash_journal(&self, plate: PlateId, way: usize) -> (Tail, usize) {
        let mut state = self.shared.state.lock();
        let of_plate = &mut state.disk.plates[usize::from(plate.0)];
        let tails = of_plate.tails();
        let tail = tails[way.min(tails.len() - 1)];
        of_plate.crash(tail, false);
        (tail, tails.len())
    }

    /// From now on writes are noted with this.
    pub(crate) fn set_begun(&self, begun: usize) {
        self.shared.state.lock().begun = begun;
    }

    pub(crate) fn log_len(&self) -> usize {
        self.shared.state.lock().log.len()
    }

    /// Waits until nothing has been written for a moment.
    pub(crate) fn settle(&self) {
        let mut before = self.log_len();
        loop {
            thread::sleep(QUIET);
            let now = self.log_len();
            if now == before {
                return;
            }
            before = now;
        }
    }

    pub(crate) fn log(&self) -> Vec<Logged> {
        self.shared.state.lock().log.clone()
    }

    pub(crate) fn disk(&self) -> Disk {
        self.shared.state.lock().disk.clone()
    }

    /// The stores that a server starts on, of each plate.
    pub(crate) fn all_stores(&self) -> Vec<Stores> {
        self.plates().map(|plate| plate.stores()).collect()
    }

    /// The stores of this plate.
    pub(crate) fn stores(&self) -> Stores {
        let meta: Arc<dyn Metastore> = Arc::new(self.clone());
        Stores {
            objects: Arc::new(self.clone()),
            open_meta: Box::new(move || Ok(meta.clone())),
            place: Arc::new(self.clone()),
            objects_address: String::new(),
        }
    }

    /// A row of the plate that says that something is under way between it and another, in words: also a removed directory that still has
    /// names, because freeing one may be under way without a row that says so.
    pub(crate) fn under_way(&self) -> Option<String> {
        let of_peers = |(key, value): (&Vec<u8>, &Vec<u8>)| match PeerState::decode(key, value) {
            Ok(None | Some(PeerState::CarriedOut { .. })) => None,
            state => Some(format!("plate {} has {state:?}", self.plate)),
        };
        self.read_plate(|disk| {
            let stored = || disk.rows.iter().filter_map(|(key, value)| StoredRow::decode(key, value).ok()?);
            let removed: BTreeSet<Ino> = stored()
                .filter_map(|row| if let StoredRow::Orphan(ino) = row { Some(ino) } else { None })
                .collect();
            disk.rows.iter().find_map(of_peers).or_else(|| {
                stored().find_map(|row| match row {
                    StoredRow::Entry { dir, name, .. } if removed.contains(&dir) => Some(format!(
                        "plate {} has not freed {name:?} in the removed directory {dir}",
                        self.plate
                    )),
                    _ => None,
                })
            })
        })
    }

    fn write(&self, write: Write) -> Result<(), Dead> {
        let mut state = self.shared.state.lock();
        self.lives(&state)?;
        state.disk.apply(self.plate, &write);
        let begun = state.begun;
        state.log.push(Logged { plate: self.plate, write, begun });
        if let Some(doom) = state.doom.as_mut().filter(|doom| doom.plate == self.plate) {
            doom.writes -= 1;
            if doom.writes == 0 {
                state.doom = None;
                state.died = Some(self.plate);
                state.deaths[usize::from(self.plate.0)] += 1;
                self.shared.changed.notify_all();
                return Err(Dead);
            }
        }
        Ok(())
    }

    fn lives(&self, state: &State) -> Result<(), Dead> {
        match state.deaths[usize::from(self.plate.0)] == self.life {
            true => Ok(()),
            false => Err(Dead),
        }
    }

    fn check_lives(&self) -> Result<(), Dead> {
        self.lives(&self.shared.state.lock())
    }

    fn read<T>(&self, f: impl FnOnce(&Disk) -> T) -> T {
        f(&self.shared.state.lock().disk)
    }

    fn read_plate<T>(&self, f: impl FnOnce(&PlateDisk) -> T) -> T {
        self.read(|disk| f(&disk.plates[usize::from(self.plate.0)]))
    }
}

impl Place for LiveDisk {
    fn shape(&self) -> Shape {
        if self.read(|disk| disk.whole) { Shape::Whole } else { Shape::Grows }
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        let info = |(number, segment): (&u64, &Segment)| SegmentInfo {
            number: *number,
            bytes: segment.bytes.len() as u64,
        };
        Ok(self.read_plate(|disk| disk.segments.iter().map(info).collect()))
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.read_plate(|disk| {
            let bytes = &disk.segments.get(&number).ok_or(PlaceError::Missing)?.bytes;
            Ok(bytes[..bytes.len().min(usize::try_from(bytes_max).unwrap_or(usize::MAX))].to_vec())
        })
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let there = self.read_plate(|disk| Some(disk.segments.get(&number)?.bytes.clone()));
        match there {
            // Of a put whose answer was lost, as the trait has it.
            Some(there) if self.shape() == Shape::Whole && there.as_slice() == bytes => return Ok(()),
            Some(_) => return Err(PlaceError::Exists),
            None => {}
        }
        Ok(self.write(Write::Create { segment: number, bytes: bytes.into() })?)
    }

    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.check_lives()?;
        let offset = usize::try_from(offset).expect("a small segment");
        let fits = self.read_plate(|disk| disk.segments.get(&number).map(|s| offset <= s.bytes.len()));
        assert!(fits.ok_or(PlaceError::Missing)?, "append past the end of segment {number}");
        Ok(self.write(Write::Append { segment: number, offset, bytes: bytes.into() })?)
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        if !self.read_plate(|disk| disk.segments.contains_key(&number)) {
            return Err(PlaceError::Missing);
        }
        Ok(self.write(Write::SyncSegment { segment: number })?)
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        Ok(self.write(Write::Remove { segment: number })?)
    }
}

impl Objects for LiveDisk {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        let not_found = || ObjectError::NotFound { key: key.to_owned() };
        let bytes = self.read(|disk| disk.objects.get(key).cloned()).ok_or_else(not_found)?;
        let Some(range) = range else { return Ok(bytes.to_vec()) };
        let part = bytes.get(range.start as usize..range.end as usize);
        part.map(<[u8]>::to_vec).ok_or_else(|| ObjectError::Corrupt {
            key: key.to_owned(),
            cause: format!("bytes {}..{} asked of {}", range.start, range.end, bytes.len()),
        })
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        into.copy_from_slice(&Objects::get(self, key, Some(offset..offset + into.len() as u64))?);
        Ok(())
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        Ok(Objects::get(self, key, None)?.len() as u64)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        Ok(self.write(Write::Put { key: key.to_owned(), bytes: bytes.into() })?)
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        let is_new = self.read(|disk| !disk.objects.contains_key(key));
        if is_new {
            self.write(Write::PutNew { key: key.to_owned(), bytes: bytes.into() })?;
        }
        Ok(is_new)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        Ok(self.write(Write::Delete { key: key.to_owned() })?)
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        Ok(self.read(|disk| {
            let all = disk.objects.range::<str, _>((start, Bound::Unbounded));
            all.take_while(|(key, _)| key.starts_with(prefix))
                .take(max)
                .map(|(key, bytes)| ObjectInfo { key: key.clone(), bytes: bytes.len() as u64 })
                .collect()
        }))
    }

    fn sync(&self) -> Result<(), ObjectError> {
        Ok(self.write(Write::SyncObjects)?)
    }
}

impl Metastore for LiveDisk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.read_plate(|disk| disk.rows.get(key).cloned()))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        Ok(self.read_plate(|disk| keys.iter().map(|key| disk.rows.get(*key).cloned()).collect()))
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        let is_in = |key: &[u8]| end.is_none_or(|end| key < end);
        Ok(self.read_plate(|disk| {
            let rows = disk.rows.range::<[u8], _>((start, Bound::Unbounded));
            let rows = rows.take_while(|(key, _)| is_in(key)).take(limit);
            rows.map(|(key, value)| (key.clone(), value.clone())).collect()
        }))
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        Ok(self.write(Write::Commit(Arc::new(batch.clone())))?)
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        Ok(self.read_plate(|disk| StoreStats { disk_bytes: 0, rows_approx: disk.rows.len() as u64 }))
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ace::disk::{Crash, Lost, Tail};

    #[test]
    fn a_crash_leaves_synced_changes_and_any_part_of_the_rest() {
        let live = LiveDisk::new(Disk::new(Shape::Grows, 1));
        live.create(1, b"head").unwrap();
        Place::sync(&live, 1).unwrap();
        live.append(1, 4, b"abcdef").unwrap();
        live.put("blocks/x", b"1").unwrap();
        live.put("blocks/y", b"2").unwrap();
        assert!(live.put_if_absent("blocks/z", b"3").unwrap());
        live.create(2, b"next").unwrap();
        let disk = live.disk();
        let of = |tail, objects| {
            let live = LiveDisk::new(disk.after(&Crash::of_all(1, tail, objects)));
            let segment = |n| Place::read(&live, n, 99).map(|bytes| String::from_utf8(bytes).unwrap()).ok();
            let keys: Vec<_> =
                Objects::list(&live, "", None, 9).unwrap().into_iter().map(|info| info.key).collect();
            (segment(1), segment(2), keys.join(" "))
        };
        let some = |text: &str| Some(text.to_owned());
        let all = "blocks/x blocks/y blocks/z".to_owned();
        assert_eq!(of(Tail::Kept, Lost::Nothing), (some("headabcdef"), some("next"), all.clone()));
        assert_eq!(of(Tail::Forgotten, Lost::All), (some("head"), None, "blocks/z".to_owned()));
        assert_eq!(of(Tail::Torn(2), Lost::Nothing), (some("headab"), some("ne"), all.clone()));
        assert_eq!(of(Tail::Zeroed, Lost::Nothing).0, some("head\0\0\0\0\0\0"));
        assert_eq!(of(Tail::Kept, Lost::One(0)).2, "blocks/y blocks/z");
        assert_eq!(of(Tail::Forgotten, Lost::Nothing), (some("head"), None, all.clone()));
        assert_eq!(of(Tail::Kept, Lost::All), (some("headabcdef"), some("next"), "blocks/z".to_owned()));
        // Deleted and not synced: it may be there again.
        Objects::sync(&live).unwrap();
        live.delete("blocks/x").unwrap();
        live.remove(1).unwrap();
        let disk = live.disk();
        let reappeared = Crash { reappeared: true, ..Crash::kept(1) };
        assert!(disk.crashes().contains(&reappeared));
        let back = LiveDisk::new(disk.after(&Crash::forgotten(1)));
        assert!(Objects::get(&back, "blocks/x", None).is_ok());
        let back = LiveDisk::new(disk.after(&reappeared));
        assert!(Place::read(&back, 1, 9).is_ok() && Objects::get(&back, "blocks/x", None).is_err());
    }
}
