//! Errors, sorted by the caller's next step.

use std::fmt;

use crate::{Condition, MapError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorError {
    /// There is no map yet: initialize the cluster.
    Uninitialized,
    /// There is a map already, of this file system.
    Initialized { filesystem: u64 },
    /// A server with this id lives: stop it, or wait until its lease ends.
    Registered { id: u64, generation: u64 },
    /// The lease has ended: stop answering, and register anew.
    Expired { id: u64 },
    /// The store does not answer, or refuses to, in words: try again.
    Unavailable(String),
    /// The store has something that this version cannot read.
    Corrupt(String),
    /// The request breaks a rule of the map: a mistake of the caller.
    Refused(MapError),
}

impl fmt::Display for MonitorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MonitorError::Uninitialized => {
                f.write_str("the monitor has no map yet: make a cluster first (chiton cluster init)")
            }
            MonitorError::Initialized { filesystem } => write!(
                f,
                "the monitor already has the map of file system {filesystem:016x}; use another monitor for a new one"
            ),
            MonitorError::Registered { id, generation } => write!(
                f,
                "server {id} lives already (generation {generation}); stop it, or wait until its lease has ended"
            ),
            MonitorError::Expired { id } => {
                write!(f, "the lease of server {id} has ended; register it anew")
            }
            MonitorError::Unavailable(why) => write!(f, "the monitor does not answer: {why}"),
            MonitorError::Corrupt(why) => write!(f, "the monitor has data that cannot be read: {why}"),
            MonitorError::Refused(error) => write!(f, "the monitor refused the request: {error}"),
        }
    }
}

impl std::error::Error for MonitorError {}

impl From<MapError> for MonitorError {
    fn from(error: MapError) -> MonitorError {
        MonitorError::Refused(error)
    }
}

/// Why a change did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The map is of this epoch, not of the expected one: decide again on the new map.
    Outdated(u64),
    /// This condition does not hold: decide again.
    Condition(Condition),
    Failed(MonitorError),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::Outdated(epoch) => {
                write!(f, "the map has changed since it was read, to epoch {epoch}; read it again")
            }
            ChangeError::Condition(Condition::Gone(id)) => {
                write!(f, "server {id} still lives; read the map and the living servers again")
            }
            ChangeError::Condition(Condition::Alive(id, generation)) => write!(
                f,
                "server {id} of generation {generation} does not live any more; read the map and the living servers again"
            ),
            ChangeError::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ChangeError {}

impl<E: Into<MonitorError>> From<E> for ChangeError {
    fn from(error: E) -> ChangeError {
        ChangeError::Failed(error.into())
    }
}
