//! A client's journal in the server's object store, through the server: `durability: global`.
//!
//! ```text
//!   journal/<number>     segments, as in a bucket
//!   used/<position>      inode numbers used when a merge up to there began
//!   durable/<position>   up to there the journal was durable a moment ago
//! ```
//!
//! Invariants:
//! - An object is durable when the server has answered the put.
//! - The server deletes all of it when the decoupling is over.
//! - The mark of how far the journal is durable is written about once a second, and at an orderly end. It reveals
//!   missing segments at the end of the journal on any machine that resumes it, except segments of the last second.
//! - Only the client with the latest claim can write. A client that resumes the journal also fences earlier
//!   writers, as in a bucket.

use chiton_journal::{Place, PlaceError, SegmentInfo, Shape};
use chiton_objects::{ObjectError, Objects};
use chiton_server::realm_prefix;
use chiton_types::{Ino, Position, RealmId, Refusal};
use chiton_wire::{NAMES_MAX, ObjectAnswer, ObjectCall};

use crate::calls::ClaimCalls;
use crate::error::RealmError;

const SEGMENTS: &str = "journal/";
const USED: &str = "used/";
const DURABLE: &str = "durable/";

/// A journal in the server's object store.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) calls: ClaimCalls,
}

impl Remote {
    fn names(&self, prefix: &str) -> Result<Vec<(String, u64)>, RealmError> {
        let mut all: Vec<(String, u64)> = Vec::new();
        loop {
            let after = all.last().map_or_else(String::new, |(name, _)| name.clone());
            match self.calls.object(prefix, ObjectCall::List { after })? {
                ObjectAnswer::Names(page) if page.is_empty() => return Ok(all),
                ObjectAnswer::Names(page) => all.extend(page),
                _ => return Err(RealmError::nonsense("no names")),
            }
        }
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, RealmError> {
        match self.calls.object(name, ObjectCall::Get { bytes_max })? {
            ObjectAnswer::Bytes(bytes) => Ok(bytes),
            _ => Err(RealmError::nonsense("no object")),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<bool, RealmError> {
        match self.calls.object(name, ObjectCall::PutIfAbsent { bytes: bytes.to_vec() })? {
            ObjectAnswer::Put(done) => Ok(done),
            _ => Err(RealmError::nonsense("no put")),
        }
    }

    fn delete(&self, name: &str) -> Result<(), RealmError> {
        self.calls.object(name, ObjectCall::Delete).map(drop)
    }

    /// Remembers which numbers are used when a merge up to `upto` begins.
    pub(crate) fn note_used(&self, upto: Position, used: &[Ino]) -> Result<(), RealmError> {
        let before = self.names(USED)?;
        let name = format!("{USED}{:016x}", upto.0);
        let bytes: Vec<u8> = used.iter().flat_map(|ino| ino.0.to_le_bytes()).collect();
        self.put(&name, &bytes)?;
        before.iter().filter(|(other, _)| *other < name).try_for_each(|(other, _)| self.delete(other))
    }

    /// The inode numbers that were recorded last.
    pub(crate) fn used(&self) -> Result<Vec<Ino>, RealmError> {
        let Some((last, _)) = self.names(USED)?.pop() else { return Ok(Vec::new()) };
        let bytes = self.get(&last, u64::MAX)?.unwrap_or_default();
        let (numbers, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(RealmError::journal("the numbers that were used are damaged"));
        }
        Ok(numbers.iter().map(|number| Ino(u64::from_le_bytes(*number))).collect())
    }

    /// Records that the journal is durable up to `durable`; overwrites the previous record.
    pub(crate) fn note_durable(&self, durable: Position) -> Result<(), RealmError> {
        let before = self.names(DURABLE)?;
        let name = format!("{DURABLE}{:016x}", durable.0);
        self.put(&name, &durable.0.to_le_bytes())?;
        before.iter().filter(|(other, _)| *other != name).try_for_each(|(other, _)| self.delete(other))
    }

    /// How far the journal was durable, if that was recorded.
    pub(crate) fn durable(&self) -> Result<Option<Position>, RealmError> {
        Ok(self.names(DURABLE)?.iter().filter_map(|(name, _)| durable_of(name)).max())
    }

    fn key(number: u64) -> String {
        format!("{SEGMENTS}{number:016x}")
    }

    fn number(name: &str) -> Option<u64> {
        let number = u64::from_str_radix(name.strip_prefix(SEGMENTS)?, 16).ok()?;
        (Remote::key(number) == name).then_some(number)
    }
}

/// The position in the name of a mark: `durable/POSITION` below the prefix of its decoupling.
fn durable_of(name: &str) -> Option<Position> {
    u64::from_str_radix(name.strip_prefix(DURABLE)?, 16).ok().map(Position)
}

/// How far the journal of a decoupling in this object store was durable, if that was recorded. To be asked before the journal
/// is read, which may grow meanwhile.
///
/// # Errors
/// That of the object store.
pub fn durable_in_store(objects: &dyn Objects, realm: RealmId) -> Result<Option<Position>, ObjectError> {
    let prefix = realm_prefix(realm);
    let listed = objects.list(&format!("{prefix}{DURABLE}"), None, NAMES_MAX)?;
    Ok(listed.iter().filter_map(|object| durable_of(object.key.strip_prefix(&prefix)?)).max())
}

fn sort(error: RealmError) -> PlaceError {
    match error.refusal() {
        Refusal::NoSpace => PlaceError::NoSpace(error.to_string()),
        // A failure of the server's store may be temporary.
        Refusal::NotConnected | Refusal::Interrupted | Refusal::Io => {
            PlaceError::Transient(error.to_string())
        }
        _ => PlaceError::Failed(error.to_string()),
    }
}

impl Place for Remote {
    fn shape(&self) -> Shape {
        Shape::Whole
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        let info = |(name, bytes): &(String, u64)| {
            Some(SegmentInfo { number: Remote::number(name)?, bytes: *bytes })
        };
        Ok(self.names(SEGMENTS).map_err(sort)?.iter().filter_map(info).collect())
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        self.get(&Remote::key(number), bytes_max).map_err(sort)?.ok_or(PlaceError::Missing)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        // If an earlier answer was lost, the object is there already, with the same bytes.
        let done = self.put(&Remote::key(number), bytes).map_err(sort)?;
        if done || self.read(number, u64::MAX)? == bytes { Ok(()) } else { Err(PlaceError::Exists) }
    }

    fn append(&self, number: u64, _offset: u64, _bytes: &[u8]) -> Result<(), PlaceError> {
        panic!("segment {number} is an object, which is not appended to");
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        panic!("segment {number} is an object, which is durable when it is there");
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.delete(&Remote::key(number)).map_err(sort)
    }
}
