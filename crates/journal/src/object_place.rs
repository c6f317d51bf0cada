//! Segments as numbered objects under a prefix: `journal/7/0000000000000001`.
//!
//! Invariants:
//! - A segment is put if absent, as a whole, and is durable then.
//! - "Exists" is success if the object has the same bytes: they contain the writer's nonce, and a put that timed
//!   out may have landed.

use std::sync::Arc;

use chiton_objects::{ObjectError, Objects};
use chiton_runtime::parallel;

use crate::place::{Place, PlaceError, SegmentInfo, Shape};

const PAGE_OBJECTS: usize = 1000;
/// Objects that are read at a time.
const READS_MAX: usize = 16;

/// A prefix of an object store.
pub struct ObjectPlace {
    objects: Arc<dyn Objects>,
    prefix: String,
}

impl ObjectPlace {
    /// The objects `<prefix>/<number>`; `prefix` comes without a slash at its end.
    pub fn new(objects: Arc<dyn Objects>, prefix: &str) -> ObjectPlace {
        ObjectPlace { objects, prefix: format!("{prefix}/") }
    }

    fn key(&self, number: u64) -> String {
        format!("{}{number:016x}", self.prefix)
    }

    fn number(&self, key: &str) -> Option<u64> {
        let number = u64::from_str_radix(key.strip_prefix(&self.prefix)?, 16).ok()?;
        (self.key(number) == key).then_some(number)
    }
}

fn sort(error: ObjectError) -> PlaceError {
    match error {
        ObjectError::NotFound { .. } => PlaceError::Missing,
        ObjectError::NoSpace { .. } => PlaceError::NoSpace(error.to_string()),
        ObjectError::Transient { .. } => PlaceError::Transient(error.to_string()),
        ObjectError::Denied { .. } => PlaceError::Denied(error.to_string()),
        _ => PlaceError::Failed(error.to_string()),
    }
}

impl Place for ObjectPlace {
    fn shape(&self) -> Shape {
        Shape::Whole
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        let mut segments = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.objects.list(&self.prefix, after.as_deref(), PAGE_OBJECTS).map_err(sort)?;
            let Some(last) = page.last() else { return Ok(segments) };
            after = Some(last.key.clone());
            let infos = page.iter().filter_map(|object| {
                Some(SegmentInfo { number: self.number(&object.key)?, bytes: object.bytes })
            });
            segments.extend(infos);
        }
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        let key = self.key(number);
        if bytes_max == u64::MAX {
            return self.objects.get(&key, None).map_err(sort);
        }
        let bytes = self.objects.size(&key).map_err(sort)?;
        self.objects.get(&key, Some(0..bytes.min(bytes_max))).map_err(sort)
    }

    fn read_each(&self, segments: &[SegmentInfo], bytes_max: u64) -> Vec<Result<Vec<u8>, PlaceError>> {
        // An object never changes, so its length is the one that was listed.
        let part = |segment: &SegmentInfo| (segment.bytes > bytes_max).then_some(0..bytes_max);
        let asked: Vec<_> =
            segments.iter().map(|segment| (self.key(segment.number), part(segment))).collect();
        let objects = self.objects.clone();
        parallel::map("journal-read", READS_MAX, asked.len(), move |n| {
            let (key, part) = &asked[n];
            objects.get(key, part.clone()).map_err(sort)
        })
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let key = self.key(number);
        if self.objects.put_if_absent(&key, bytes).map_err(sort)?
            || self.objects.get(&key, None).map_err(sort)? == bytes
        {
            return Ok(());
        }
        Err(PlaceError::Exists)
    }

    fn append(&self, number: u64, _offset: u64, _bytes: &[u8]) -> Result<(), PlaceError> {
        panic!("segment {number} is an object, which is not appended to");
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        panic!("segment {number} is an object, which is durable when it is there");
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.objects.delete(&self.key(number)).map_err(sort)
    }
}
