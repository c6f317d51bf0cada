//! What went wrong last, by thread: a number of the system and a sentence.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use chiton_client::ConnectError;
use chiton_decoupled::{RealmError, SubtreeError};
use chiton_server::{FormatError, StartError};
use chiton_types::Refusal;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    text: String,
}

impl Failure {
    pub(crate) fn new(refusal: Refusal, text: impl Into<String>) -> Failure {
        Failure { errno: refusal.errno().0, text: text.into() }
    }

    /// The file system refused: what was asked for, and why not.
    pub(crate) fn refused(asked: &str, path: &[u8], refusal: Refusal) -> Failure {
        let path = String::from_utf8_lossy(path);
        Failure::new(refusal, format!("{asked} {path}: {refusal}"))
    }

    /// Somebody's mistake in the library itself.
    pub(crate) fn bug() -> Failure {
        Failure::new(Refusal::Io, "a bug in the library stopped the call; standard error tells where")
    }
}

impl From<RealmError> for Failure {
    fn from(error: RealmError) -> Failure {
        Failure::new(error.refusal(), error.to_string())
    }
}

impl From<SubtreeError> for Failure {
    fn from(error: SubtreeError) -> Failure {
        Failure::new(error.refusal(), error.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        Failure::new(Refusal::NotConnected, error.to_string())
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Failure {
        let refusal = match error {
            FormatError::Formatted(_) | FormatError::NotEmpty(_) => Refusal::NotEmpty,
            FormatError::Shards(_) => Refusal::Invalid,
            FormatError::Failed(_) => Refusal::Io,
        };
        Failure::new(refusal, error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        let refusal = match error {
            StartError::NotFormatted(_) => Refusal::NotFound,
            StartError::Foreign(..) => Refusal::NotEmpty,
            StartError::Held { .. } => Refusal::Busy,
            StartError::Newer { .. } => Refusal::Unsupported,
            StartError::Damaged(..) | StartError::Corrupt(_) | StartError::Failed(_) => Refusal::Io,
        };
        Failure::new(refusal, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<(c_int, CString)> = RefCell::new((0, CString::default()));
}

/// Kept for this thread until its next failure.
pub(crate) fn keep(failure: Failure) {
    // What ends the sentence for C would cut it off.
    let text = CString::new(failure.text.replace('\0', "?")).unwrap_or_default();
    // A thread that ends has nobody who asks.
    let _ = LAST.try_with(|last| *last.borrow_mut() = (failure.errno, text));
}

/// See `chiton.h`.
#[unsafe(no_mangle)]
pub extern "C" fn chiton_errno() -> c_int {
    LAST.try_with(|last| last.borrow().0).unwrap_or(0)
}

/// See `chiton.h`.
#[unsafe(no_mangle)]
pub extern "C" fn chiton_error() -> *const c_char {
    const NONE: &CStr = c"";
    // The text stays where it is until this thread keeps another.
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(NONE.as_ptr())
}
