//! Why the journal did not do it.

use std::fmt;

use chiton_types::{Epoch, Position};

use crate::damage::Damage;
use crate::place::PlaceError;

/// An error of the journal, sorted by the caller's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// Not durable for want of space. The frames are kept and tried again; ask again later.
    NoSpace(String),
    /// Not durable because the place cannot be reached. The frames are kept and tried again; ask again later.
    Unreachable(String),
    /// Not durable because the place does not let us in. The frames are kept and tried again; ask again later.
    Denied(String),
    /// Failed for good: events that were not durable are lost. Open the journal again.
    Failed(String),
    /// A newer writer has the journal: stop.
    Fenced {
        /// The newer writer's epoch.
        by: Epoch,
    },
    Damaged(Damage),
    /// There is no journal here: create one.
    Absent,
    /// There is a journal here already: open it.
    Present,
    /// The requested events are trimmed or lost.
    Trimmed {
        /// The first requested position.
        asked: Position,
        /// The first available position.
        first: Position,
    },
    Closed,
}

impl JournalError {
    /// True if the frames are kept and being tried again.
    pub fn may_heal(&self) -> bool {
        matches!(self, JournalError::NoSpace(_)) || self.is_away()
    }

    /// Whether the place cannot be used for now. Waiters continue to wait.
    pub fn is_away(&self) -> bool {
        matches!(self, JournalError::Unreachable(_) | JournalError::Denied(_))
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::NoSpace(what) => write!(f, "journal has no space: {what}"),
            JournalError::Unreachable(what) => write!(f, "journal cannot be reached: {what}"),
            JournalError::Denied(what) => write!(f, "journal's place does not let us in: {what}"),
            JournalError::Failed(what) => write!(f, "journal failed: {what}"),
            JournalError::Fenced { by } => write!(f, "journal was taken over by epoch {by}"),
            JournalError::Damaged(damage) => damage.fmt(f),
            JournalError::Absent => write!(
                f,
                "there is no journal here: name the data of a file system, or make one with chiton format"
            ),
            JournalError::Present => write!(f, "a journal is here already"),
            JournalError::Trimmed { asked, first } => {
                write!(f, "journal begins with position {first}, asked for {asked}")
            }
            JournalError::Closed => write!(f, "journal is closed"),
        }
    }
}

impl std::error::Error for JournalError {}

impl From<Damage> for JournalError {
    fn from(damage: Damage) -> JournalError {
        JournalError::Damaged(damage)
    }
}

impl From<PlaceError> for JournalError {
    fn from(error: PlaceError) -> JournalError {
        match error {
            PlaceError::NoSpace(what) => JournalError::NoSpace(what),
            PlaceError::Transient(what) => JournalError::Unreachable(what),
            PlaceError::Denied(what) => JournalError::Denied(what),
            PlaceError::Failed(what) => JournalError::Failed(what),
            PlaceError::Exists | PlaceError::Missing => {
                JournalError::Failed(format!("segments changed under the journal: {error}"))
            }
        }
    }
}
