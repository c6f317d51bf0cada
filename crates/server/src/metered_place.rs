//! Counts what the journal does at its place, for `status`. In a bucket each creation is one put.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chiton_journal::{Place, PlaceError, SegmentInfo, Shape};

/// A place that counts what succeeds, since it was made.
pub(crate) struct MeteredPlace {
    place: Arc<dyn Place>,
    pub(crate) created: AtomicU64,
    pub(crate) appends: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) removed: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
}

impl MeteredPlace {
    pub(crate) fn new(place: Arc<dyn Place>) -> MeteredPlace {
        let zero = AtomicU64::default;
        MeteredPlace {
            place,
            created: zero(),
            appends: zero(),
            syncs: zero(),
            removed: zero(),
            written_bytes: zero(),
        }
    }

    fn wrote(&self, calls: &AtomicU64, bytes: &[u8]) {
        calls.fetch_add(1, Relaxed);
        self.written_bytes.fetch_add(bytes.len() as u64, Relaxed);
    }
}

impl Place for MeteredPlace {
    fn shape(&self) -> Shape {
        self.place.shape()
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        self.place.list()
    }

    fn holds(&self, number: u64) -> Result<bool, PlaceError> {
        self.place.holds(number)
    }

    fn read_each(&self, segments: &[SegmentInfo], bytes_max: u64) -> Vec<Result<Vec<u8>, PlaceError>> {
        self.place.read_each(segments, bytes_max)
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.place.read(number, bytes_max)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.place.create(number, bytes)?;
        self.wrote(&self.created, bytes);
        Ok(())
    }

    fn publish(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.place.publish(number, bytes)?;
        self.wrote(&self.created, bytes);
        Ok(())
    }

    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.place.append(number, offset, bytes)?;
        self.wrote(&self.appends, bytes);
        Ok(())
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        self.place.sync(number)?;
        self.syncs.fetch_add(1, Relaxed);
        Ok(())
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.place.remove(number)?;
        self.removed.fetch_add(1, Relaxed);
        Ok(())
    }
}
