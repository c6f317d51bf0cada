//! The last error, by thread: a number of the system and a sentence.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use chiton_client::ConnectError;
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

    /// The file system refused: the request, and the reason.
    pub(crate) fn refused(asked: &str, path: &[u8], refusal: Refusal) -> Failure {
        let path = String::from_utf8_lossy(path);
        Failure::new(refusal, format!("{asked} {path}: {refusal}"))
    }

    /// The library was built without what a call needs.
    #[cfg(not(all(feature = "embedded", feature = "decoupled")))]
    pub(crate) fn absent(call: &str, feature: &str, instead: &str) -> Failure {
        let text = format!(
            "{call}: this libchiton was built without the feature \"{feature}\"; {instead}, or link one that has it"
        );
        Failure::new(Refusal::Unsupported, text)
    }

    /// A mistake in the library itself.
    pub(crate) fn bug() -> Failure {
        Failure::new(Refusal::Io, "a bug in the library stopped the call; standard error shows where")
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        Failure::new(Refusal::NotConnected, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<(c_int, CString)> = RefCell::new((0, CString::default()));
}

/// Kept for this thread until its next failure.
pub(crate) fn keep(failure: Failure) {
    // A zero byte would end the sentence for C there.
    let text = CString::new(failure.text.replace('\0', "?")).unwrap_or_default();
    // A thread that ends has no caller that asks.
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
