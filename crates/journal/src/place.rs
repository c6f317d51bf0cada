//! Where segments live: a directory of files that grow, or numbered objects that are put whole.
//!
//! ```text
//!   Shape::Grows   create(n, header) ─ append(n, …) ─ append(n, …) ─ sync(n)
//!   Shape::Whole   create(n, header + frames + mark)
//! ```
//!
//! Invariants of every place:
//! - `create` has exactly one winner for a number. Where segments are whole, a winner whose answer was lost wins
//!   again when it comes with the same bytes (they hold its nonce).
//! - Bytes survive a crash once `create` (whole) or `sync` (growing) has returned. Of bytes appended later, any
//!   part may survive.
//! - `remove` is durable or may be repeated; a missing segment is no error there.

use std::fmt;

/// How segments of a place come to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Created, then appended to and synced.
    Grows,
    /// Put as a whole, durable at once, never changed.
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub number: u64,
    pub bytes: u64,
}

pub trait Place: Send + Sync {
    /// How its segments come to be.
    fn shape(&self) -> Shape;

    /// All segments, ascending by number. Other names are ignored.
    ///
    /// # Errors
    /// Any but [`PlaceError::Exists`] and [`PlaceError::Missing`].
    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError>;

    /// Whether there is a segment of this number: asked after each commit.
    ///
    /// # Errors
    /// As [`Place::list`].
    fn holds(&self, number: u64) -> Result<bool, PlaceError> {
        match self.list() {
            Ok(segments) => Ok(segments.iter().any(|segment| segment.number == number)),
            Err(PlaceError::Missing) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The first bytes of a segment: all, or `bytes_max` if it is longer.
    ///
    /// # Errors
    /// [`PlaceError::Missing`] if there is no such segment.
    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError>;

    /// The first bytes of several segments as they were listed, in the order asked: of each what [`Place::read`] gives. A
    /// place that is far away reads several at a time.
    fn read_each(&self, segments: &[SegmentInfo], bytes_max: u64) -> Vec<Result<Vec<u8>, PlaceError>> {
        segments.iter().map(|segment| self.read(segment.number, bytes_max)).collect()
    }

    /// Makes a new segment of these bytes. Durable on return if whole, with the next `sync` if growing.
    /// After an error nothing of it stays, but where a put may have landed unseen.
    ///
    /// # Errors
    /// [`PlaceError::Exists`] if the number is taken by other bytes.
    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError>;

    /// Makes a new segment of these bytes that is durable on return, whole or not there at all: for tools that
    /// replace segments. (Growing places that survive a crash must do better than this default.)
    ///
    /// # Errors
    /// [`PlaceError::Exists`] if the number is taken.
    fn publish(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.create(number, bytes)?;
        if self.shape() == Shape::Grows { self.sync(number) } else { Ok(()) }
    }

    /// Writes at `offset`, which is at most the segment's end and not below the synced length. Growing places only.
    ///
    /// # Errors
    /// After one, the bytes from `offset` on are unknown until they were written again.
    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError>;

    /// Makes all of a segment durable. Growing places only.
    ///
    /// # Errors
    /// After one, nothing since the last success may be taken for durable.
    fn sync(&self, number: u64) -> Result<(), PlaceError>;

    /// # Errors
    /// Any but [`PlaceError::Exists`] and [`PlaceError::Missing`].
    fn remove(&self, number: u64) -> Result<(), PlaceError>;
}

/// An error of a place, sorted by the caller's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceError {
    /// The number is taken: read the segment to see by which writer.
    Exists,
    /// No such segment: list again.
    Missing,
    /// No space: try again when there is some.
    NoSpace(String),
    /// Not reached, may have happened: try the same again.
    Transient(String),
    /// Access is denied until an administrator changes that: retry.
    Denied(String),
    /// Failed: do not rely on anything since the last success.
    Failed(String),
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Exists => write!(f, "segment exists"),
            PlaceError::Missing => write!(f, "no such segment"),
            PlaceError::NoSpace(what) => write!(f, "no space: {what}"),
            PlaceError::Transient(what) => write!(f, "not reached: {what}"),
            PlaceError::Denied(what) => write!(f, "not let in: {what}"),
            PlaceError::Failed(what) => write!(f, "failed: {what}"),
        }
    }
}

impl std::error::Error for PlaceError {}
