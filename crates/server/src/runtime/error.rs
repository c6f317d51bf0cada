//! Why a server does not start, or storage is not formatted: sentences that say what to do.

use std::fmt;
use std::path::PathBuf;

/// Why storage is not formatted.
#[derive(Debug)]
pub enum FormatError {
    /// There is a file system already.
    Formatted(PathBuf),
    /// The directory holds something else.
    NotEmpty(PathBuf),
    /// A number of shards that is not 1 to 65,535.
    Shards(u16),
    /// Something failed.
    Failed(String),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Formatted(path) => {
                write!(
                    f,
                    "{} holds a file system already: remove it first, or choose another",
                    path.display()
                )
            }
            FormatError::NotEmpty(path) => {
                write!(
                    f,
                    "{} is not empty and no file system of ours: choose another directory",
                    path.display()
                )
            }
            FormatError::Shards(shards) => write!(f, "{shards} shards: choose 1 to 65535"),
            FormatError::Failed(what) => write!(f, "cannot format: {what}"),
        }
    }
}

impl std::error::Error for FormatError {}

/// Why a server does not start.
#[derive(Debug)]
pub enum StartError {
    /// There is no file system.
    NotFormatted(PathBuf),
    /// Something else is there.
    Foreign(PathBuf, String),
    /// It was written by a newer version.
    Newer {
        /// Where.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// Another process has it.
    Held {
        /// Where.
        path: PathBuf,
        /// Who, as it says itself.
        holder: String,
    },
    /// What is stored is damaged.
    Corrupt(String),
    /// A store or the system failed.
    Failed(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NotFormatted(path) => {
                write!(f, "{} holds no file system: format it first (chiton format)", path.display())
            }
            StartError::Foreign(path, what) => {
                write!(f, "{} is no file system of ours: {what}", path.display())
            }
            StartError::Newer { path, found, known } => write!(
                f,
                "{} has format version {found}, this program knows {known}: use a newer program",
                path.display()
            ),
            StartError::Held { path, holder } => {
                write!(f, "{} is in use by {holder}: stop it, or take over (--take-over)", path.display())
            }
            StartError::Corrupt(what) => write!(f, "cannot recover: {what}"),
            StartError::Failed(what) => write!(f, "cannot start: {what}"),
        }
    }
}

impl std::error::Error for StartError {}
