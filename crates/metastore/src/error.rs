//! Errors, sorted by the caller's next step.

use std::fmt;
use std::path::PathBuf;

/// Why a metadata store failed. `path` is the store's (empty for one in memory).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The disk is full: free space, open the store anew.
    NoSpace { path: PathBuf },
    /// The files changed, or a commit is missing: restore the store.
    Corrupt {
        path: PathBuf,
        /// A description of the damage.
        cause: String,
    },
    /// Another process has the store open: stop that one.
    Busy { path: PathBuf },
    /// A newer writer has the store: stop.
    Fenced { path: PathBuf },
    /// The service that keeps it cannot be reached; whether a commit landed is not known: open the store anew, then try again.
    Away { path: PathBuf, cause: String },
    /// It failed, and whether a commit landed is not known: open the store anew.
    Io { path: PathBuf, cause: String },
    /// The store was closed: a defect of the caller.
    Closed { path: PathBuf },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (StoreError::NoSpace { path }
        | StoreError::Corrupt { path, .. }
        | StoreError::Busy { path }
        | StoreError::Fenced { path }
        | StoreError::Away { path, .. }
        | StoreError::Io { path, .. }
        | StoreError::Closed { path }) = self;
        write!(f, "metadata store {}: ", path.display())?;
        match self {
            StoreError::NoSpace { .. } => f.write_str("no space left on its disk"),
            StoreError::Corrupt { cause, .. } => write!(f, "corrupt: {cause}"),
            StoreError::Busy { .. } => f.write_str("in use by another process"),
            StoreError::Fenced { .. } => f.write_str("was taken over by another server"),
            StoreError::Away { cause, .. } => write!(f, "not reached: {cause}"),
            StoreError::Io { cause, .. } => write!(f, "input/output error: {cause}"),
            StoreError::Closed { .. } => f.write_str("is closed"),
        }
    }
}

impl std::error::Error for StoreError {}
