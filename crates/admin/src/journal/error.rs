//! Why a journal tool did not do it.

use std::fmt;

use chiton_journal::JournalError;
use chiton_metastore::StoreError;

/// An error of the journal tools, sorted by the caller's next step.
#[derive(Debug)]
pub enum JournalToolError {
    Journal(JournalError),
    Store(StoreError),
    /// Reading or writing a file failed.
    File(std::io::Error),
    /// The command would do harm; the sentence says what to do instead.
    Refused(String),
    /// A file is not a whole export.
    NotAnExport(String),
}

impl fmt::Display for JournalToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalToolError::Journal(JournalError::Damaged(damage)) => write!(
                f,
                "{damage}; export the undamaged events (chiton journal export), then reset it (chiton journal reset)"
            ),
            JournalToolError::Journal(error) => error.fmt(f),
            JournalToolError::Store(error) => error.fmt(f),
            JournalToolError::File(error) => write!(f, "reading or writing the export failed: {error}"),
            JournalToolError::Refused(why) => f.write_str(why),
            JournalToolError::NotAnExport(why) => write!(
                f,
                "the file is not a whole export of a journal: {why}; make it again with chiton journal export"
            ),
        }
    }
}

impl std::error::Error for JournalToolError {}

impl From<JournalError> for JournalToolError {
    fn from(error: JournalError) -> JournalToolError {
        JournalToolError::Journal(error)
    }
}

impl From<StoreError> for JournalToolError {
    fn from(error: StoreError) -> JournalToolError {
        JournalToolError::Store(error)
    }
}

impl From<std::io::Error> for JournalToolError {
    fn from(error: std::io::Error) -> JournalToolError {
        JournalToolError::File(error)
    }
}
