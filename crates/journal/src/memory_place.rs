//! Segments in memory: the reference, with the failures that tests need.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::place::{Place, PlaceError, SegmentInfo, Shape};

/// A place that forgets with its process.
#[derive(Debug)]
pub struct MemoryPlace {
    shape: Shape,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    segments: BTreeMap<u64, Segment>,
    trouble: Option<PlaceError>,
    sync_count: u64,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    bytes: Vec<u8>,
    synced_bytes: usize,
}

impl MemoryPlace {
    pub fn new(shape: Shape) -> MemoryPlace {
        MemoryPlace { shape, state: Mutex::new(State::default()) }
    }

    /// From now on every create, append and sync fails with this error; `None` heals.
    pub fn set_trouble(&self, trouble: Option<PlaceError>) {
        self.state.lock().trouble = trouble;
    }

    /// The place after a crash at this moment: each segment has its synced bytes, and `keep` more (called with its
    /// number and the count of unsynced bytes).
    pub fn crash(&self, keep: &mut dyn FnMut(u64, usize) -> usize) -> MemoryPlace {
        let mut segments = self.state.lock().segments.clone();
        for (&number, segment) in &mut segments {
            let unsynced = segment.bytes.len() - segment.synced_bytes;
            segment.bytes.truncate(segment.synced_bytes + keep(number, unsynced).min(unsynced));
            segment.synced_bytes = segment.bytes.len();
        }
        let state = State { segments, ..State::default() };
        MemoryPlace { shape: self.shape, state: Mutex::new(state) }
    }

    /// Replaces a segment's bytes.
    pub fn set_bytes(&self, number: u64, bytes: Vec<u8>) {
        let synced_bytes = bytes.len();
        self.state.lock().segments.insert(number, Segment { bytes, synced_bytes });
    }

    /// How often a segment was made durable so far.
    pub fn sync_count(&self) -> u64 {
        self.state.lock().sync_count
    }
}

impl State {
    fn healthy(&self) -> Result<(), PlaceError> {
        self.trouble.clone().map_or(Ok(()), Err)
    }
}

impl Place for MemoryPlace {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        let state = self.state.lock();
        let info =
            |(&number, segment): (&u64, &Segment)| SegmentInfo { number, bytes: segment.bytes.len() as u64 };
        Ok(state.segments.iter().map(info).collect())
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        let state = self.state.lock();
        let bytes = &state.segments.get(&number).ok_or(PlaceError::Missing)?.bytes;
        let end = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(bytes.len());
        Ok(bytes[..end].to_vec())
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let mut state = self.state.lock();
        state.healthy()?;
        let whole = self.shape == Shape::Whole;
        match state.segments.get(&number) {
            Some(segment) if whole && segment.bytes == bytes => return Ok(()),
            Some(_) => return Err(PlaceError::Exists),
            None => {}
        }
        let synced_bytes = if whole { bytes.len() } else { 0 };
        state.sync_count += u64::from(whole);
        state.segments.insert(number, Segment { bytes: bytes.to_vec(), synced_bytes });
        Ok(())
    }

    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        assert_eq!(self.shape, Shape::Grows, "whole segments are not appended to");
        let mut state = self.state.lock();
        state.healthy()?;
        let segment = state.segments.get_mut(&number).ok_or(PlaceError::Missing)?;
        let offset = offset as usize;
        assert!(
            (segment.synced_bytes..=segment.bytes.len()).contains(&offset),
            "append at {offset} of segment {number}, synced up to {}, ended at {}",
            segment.synced_bytes,
            segment.bytes.len()
        );
        segment.bytes.truncate(offset);
        segment.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        assert_eq!(self.shape, Shape::Grows, "whole segments are durable when they are there");
        let mut state = self.state.lock();
        state.healthy()?;
        state.sync_count += 1;
        let segment = state.segments.get_mut(&number).ok_or(PlaceError::Missing)?;
        segment.synced_bytes = segment.bytes.len();
        Ok(())
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.state.lock().segments.remove(&number);
        Ok(())
    }
}
