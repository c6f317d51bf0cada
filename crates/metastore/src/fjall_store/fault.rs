//! The library's errors and panics in our words.
//!
//! Invariants: every error names the store's path.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::StoreError;

/// Runs `op`. A panic inside, which the library has in places where a file was damaged, becomes `Corrupt`.
pub(super) fn guarded<T>(path: &Path, op: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    // The library poisons its state when a lock's holder panics.
    catch_unwind(AssertUnwindSafe(op)).unwrap_or_else(|panic| {
        let cause = format!("the library gave up: {}", text(&*panic));
        Err(StoreError::Corrupt { path: path.to_owned(), cause })
    })
}

fn text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no reason given",
    }
}

fn sort_io(path: &Path, e: &io::Error) -> StoreError {
    let (path, cause) = (path.to_owned(), e.to_string());
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::NoSpace { path },
        // Files that are truncated, missing, or cannot be parsed.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::NotFound => {
            StoreError::Corrupt { path, cause }
        }
        _ => StoreError::Io { path, cause },
    }
}

/// Sorts the library's error by the caller's next step.
pub(super) fn sort_error(path: &Path, e: fjall::Error) -> StoreError {
    let owned = path.to_owned();
    match e {
        fjall::Error::Io(e) => sort_io(path, &e),
        fjall::Error::Storage(fjall::LsmError::Io(e)) => sort_io(path, &e),
        fjall::Error::Locked => StoreError::Busy { path: owned },
        fjall::Error::Poisoned => {
            let cause = "an earlier write failed, see the log; open the store anew".to_owned();
            StoreError::Io { path: owned, cause }
        }
        other => StoreError::Corrupt { path: owned, cause: other.to_string() },
    }
}
