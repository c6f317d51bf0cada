//! The three stores of a running server on one disk that keeps a log of every write, in the order in which they returned.

use std::ops::{Bound, Range};
use std::sync::Arc;

use chiton_journal::{Place, PlaceError, SegmentInfo, Shape};
use chiton_metastore::{Batch, Metastore, Row, StoreError, StoreStats};
use chiton_objects::{ObjectError, ObjectInfo, Objects};
use chiton_server::Stores;
use parking_lot::Mutex;

use super::disk::{Disk, Segment, Write};

/// A write, and how much had begun when it was made.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) write: Write,
    pub(crate) begun: usize,
}

#[derive(Debug, Default)]
struct State {
    disk: Disk,
    log: Vec<Logged>,
    begun: usize,
}

/// The disk of a running server.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveDisk(Arc<Mutex<State>>);

impl LiveDisk {
    /// A server's disk that holds this.
    pub(crate) fn new(disk: Disk) -> LiveDisk {
        LiveDisk(Arc::new(Mutex::new(State { disk, ..State::default() })))
    }

    /// From now on writes are noted with this.
    pub(crate) fn set_begun(&self, begun: usize) {
        self.0.lock().begun = begun;
    }

    pub(crate) fn log_len(&self) -> usize {
        self.0.lock().log.len()
    }

    pub(crate) fn log(&self) -> Vec<Logged> {
        self.0.lock().log.clone()
    }

    pub(crate) fn disk(&self) -> Disk {
        self.0.lock().disk.clone()
    }

    /// The stores that a server starts on.
    pub(crate) fn stores(&self) -> Stores {
        let meta: Arc<dyn Metastore> = Arc::new(self.clone());
        Stores {
            objects: Arc::new(self.clone()),
            open_meta: Box::new(move || Ok(meta.clone())),
            place: Arc::new(self.clone()),
            objects_address: String::new(),
        }
    }

    fn write(&self, write: Write) {
        let mut state = self.0.lock();
        state.disk.apply(&write);
        let begun = state.begun;
        state.log.push(Logged { write, begun });
    }

    fn read<T>(&self, f: impl FnOnce(&Disk) -> T) -> T {
        f(&self.0.lock().disk)
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
        Ok(self.read(|disk| disk.segments.iter().map(info).collect()))
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.read(|disk| {
            let bytes = &disk.segments.get(&number).ok_or(PlaceError::Missing)?.bytes;
            Ok(bytes[..bytes.len().min(usize::try_from(bytes_max).unwrap_or(usize::MAX))].to_vec())
        })
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let there = self.read(|disk| Some((disk.whole, disk.segments.get(&number)?.bytes.clone())));
        match there {
            // Of a put whose answer was lost, as the trait has it.
            Some((true, there)) if there.as_slice() == bytes => return Ok(()),
            Some(_) => return Err(PlaceError::Exists),
            None => {}
        }
        self.write(Write::Create { segment: number, bytes: bytes.into() });
        Ok(())
    }

    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let offset = usize::try_from(offset).expect("a small segment");
        let fits = self.read(|disk| disk.segments.get(&number).map(|s| offset <= s.bytes.len()));
        assert!(fits.ok_or(PlaceError::Missing)?, "append past the end of segment {number}");
        self.write(Write::Append { segment: number, offset, bytes: bytes.into() });
        Ok(())
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        if !self.read(|disk| disk.segments.contains_key(&number)) {
            return Err(PlaceError::Missing);
        }
        self.write(Write::SyncSegment { segment: number });
        Ok(())
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.write(Write::Remove { segment: number });
        Ok(())
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
        self.write(Write::Put { key: key.to_owned(), bytes: bytes.into() });
        Ok(())
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        let is_new = self.read(|disk| !disk.objects.contains_key(key));
        if is_new {
            self.write(Write::PutNew { key: key.to_owned(), bytes: bytes.into() });
        }
        Ok(is_new)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.write(Write::Delete { key: key.to_owned() });
        Ok(())
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
        self.write(Write::SyncObjects);
        Ok(())
    }
}

impl Metastore for LiveDisk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.read(|disk| disk.rows.get(key).cloned()))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        Ok(self.read(|disk| keys.iter().map(|key| disk.rows.get(*key).cloned()).collect()))
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        let is_in = |key: &[u8]| end.is_none_or(|end| key < end);
        Ok(self.read(|disk| {
            let rows = disk.rows.range::<[u8], _>((start, Bound::Unbounded));
            let rows = rows.take_while(|(key, _)| is_in(key)).take(limit);
            rows.map(|(key, value)| (key.clone(), value.clone())).collect()
        }))
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.write(Write::Commit(Arc::new(batch.clone())));
        Ok(())
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        Ok(self.read(|disk| StoreStats { disk_bytes: 0, rows_approx: disk.rows.len() as u64 }))
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ace::disk::Crash;

    #[test]
    fn a_crash_leaves_synced_changes_and_any_part_of_the_rest() {
        let live = LiveDisk::default();
        live.create(1, b"head").unwrap();
        Place::sync(&live, 1).unwrap();
        live.append(1, 4, b"abcdef").unwrap();
        live.put("blocks/x", b"1").unwrap();
        live.put("blocks/y", b"2").unwrap();
        assert!(live.put_if_absent("blocks/z", b"3").unwrap());
        live.create(2, b"next").unwrap();
        let disk = live.disk();
        let of = |crash| {
            let live = LiveDisk::new(disk.after(crash));
            let segment = |n| Place::read(&live, n, 99).map(|bytes| String::from_utf8(bytes).unwrap()).ok();
            let keys: Vec<_> =
                Objects::list(&live, "", None, 9).unwrap().into_iter().map(|info| info.key).collect();
            (segment(1), segment(2), keys.join(" "))
        };
        let some = |text: &str| Some(text.to_owned());
        let all = "blocks/x blocks/y blocks/z".to_owned();
        assert_eq!(of(Crash::Kept), (some("headabcdef"), some("next"), all.clone()));
        assert_eq!(of(Crash::Forgotten), (some("head"), None, "blocks/z".to_owned()));
        assert_eq!(of(Crash::Torn(2)), (some("headab"), some("ne"), all.clone()));
        assert_eq!(of(Crash::Zeroed).0, some("head\0\0\0\0\0\0"));
        assert_eq!(of(Crash::ObjectForgotten(0)).2, "blocks/y blocks/z");
        assert_eq!(of(Crash::JournalForgotten), (some("head"), None, all.clone()));
        assert_eq!(of(Crash::ObjectsForgotten), (some("headabcdef"), some("next"), "blocks/z".to_owned()));
        // Deleted and not synced: it may be there again.
        Objects::sync(&live).unwrap();
        live.delete("blocks/x").unwrap();
        live.remove(1).unwrap();
        let disk = live.disk();
        assert!(disk.crashes().contains(&Crash::Reappeared));
        let back = LiveDisk::new(disk.after(Crash::Forgotten));
        assert!(Objects::get(&back, "blocks/x", None).is_ok());
        let back = LiveDisk::new(disk.after(Crash::Reappeared));
        assert!(Place::read(&back, 1, 9).is_ok() && Objects::get(&back, "blocks/x", None).is_err());
    }
}
