//! A journal's place that can be cut off: from then on nothing more reaches the disk, as after a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chiton_journal::{Place, PlaceError, SegmentInfo, Shape};

use crate::metered_place::MeteredPlace;

pub(crate) struct Severable {
    place: MeteredPlace,
    severed: AtomicBool,
}

impl Severable {
    pub(crate) fn new(place: Arc<dyn Place>) -> Severable {
        Severable { place: MeteredPlace::new(place), severed: AtomicBool::new(false) }
    }

    /// The place, which counts the calls since it was opened.
    pub(crate) fn metered(&self) -> &MeteredPlace {
        &self.place
    }

    pub(crate) fn sever(&self) {
        self.severed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_severed(&self) -> bool {
        self.severed.load(Ordering::SeqCst)
    }

    fn check(&self) -> Result<(), PlaceError> {
        if self.is_severed() {
            Err(PlaceError::Failed("the server was abandoned".to_owned()))
        } else {
            Ok(())
        }
    }
}

impl Place for Severable {
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
        self.check()?;
        self.place.create(number, bytes)
    }

    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.check()?;
        self.place.append(number, offset, bytes)
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        self.check()?;
        self.place.sync(number)
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.check()?;
        self.place.remove(number)
    }
}
