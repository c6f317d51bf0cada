//! The border: arguments come in as pointers, and panics must not go out.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use chiton_types::Refusal;

use crate::last::{Failure, keep};

/// The result for C of a call without another result.
pub(crate) const DONE: c_int = 0;
/// And of one that failed.
pub(crate) const FAILED: c_int = -1;

/// Carries out a call: `failed` is the result for C if it fails, and the thread remembers why.
pub(crate) fn carry_out<R>(failed: R, call: impl FnOnce() -> Result<R, Failure>) -> R {
    // State that a panic leaves half done is behind locks that do not care, as in every thread of the client that ends so.
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(result)) => return result,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            // Dropping it may panic.
            std::mem::forget(payload);
            Failure::bug()
        }
    };
    keep(failure);
    failed
}

/// The object that a handle points to.
///
/// # Safety
/// Null, or a pointer to a `T` that lives for `'a` and that nobody changes meanwhile.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::new(Refusal::Invalid, "the handle is NULL"))
}

/// Bytes that end with NUL, without it: a path is nothing else.
///
/// # Safety
/// Null, or a pointer to bytes that end with NUL and that nobody changes for `'a`.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_char, what: &str) -> Result<&'a [u8], Failure> {
    if pointer.is_null() {
        return Err(Failure::new(Refusal::Invalid, format!("{what} is NULL")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Text; `None` if it is null.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn text_or_null<'a>(
    pointer: *const c_char,
    what: &str,
) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(pointer, what) }?;
    let text = std::str::from_utf8(bytes);
    text.map(Some).map_err(|_| Failure::new(Refusal::Invalid, format!("{what} is not UTF-8")))
}

/// Text that must be there.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    let text = unsafe { text_or_null(pointer, what) }?;
    text.ok_or_else(|| Failure::new(Refusal::Invalid, format!("{what} is NULL")))
}

/// Checks a buffer of the caller's: null only if it is empty, and not longer than memory can be.
pub(crate) fn check_buffer<T>(pointer: *const T, len: usize) -> Result<(), Failure> {
    if pointer.is_null() && len > 0 {
        return Err(Failure::new(Refusal::Invalid, "the buffer is NULL"));
    }
    if len > isize::MAX as usize {
        return Err(Failure::new(Refusal::Invalid, format!("a buffer of {len} bytes is impossible")));
    }
    Ok(())
}
