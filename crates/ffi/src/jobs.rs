//! Subtrees in which a job works alone, and the fate of its changes.

use std::ffi::{c_char, c_int};

use crate::border::{DONE, FAILED, bytes, carry_out, handle, text_or_null};
use crate::decoupling::Job;
use crate::handle::Chiton;
use crate::last::Failure;

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle; `path` and `policy` are null or end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_decouple(
    chiton: *const Chiton,
    path: *const c_char,
    policy: *const c_char,
) -> *mut Chiton {
    carry_out(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (chiton, path, policy) =
            unsafe { (handle(chiton)?, bytes(path, "the path")?, text_or_null(policy, "the policy")?) };
        // Paths of a job begin elsewhere, and nothing can be decoupled inside a decoupled subtree.
        chiton.whole()?;
        let job = chiton.filesystem.decouplings.begin(path, policy)?;
        let job = Chiton { filesystem: chiton.filesystem.clone(), job: Some(job) };
        Ok(Box::into_raw(Box::new(job)))
    })
}

/// See `chiton.h`.
///
/// # Safety
/// `job` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_sync(job: *const Chiton) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_job(job, Job::sync) }
}

/// See `chiton.h`.
///
/// # Safety
/// `job` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_sync_mode(job: *const Chiton, on: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_job(job, |job| job.sync_mode(on != 0)) }
}

/// See `chiton.h`.
///
/// # Safety
/// `job` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_is_synchronous(job: *const Chiton) -> c_int {
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        let job = unsafe { handle(job) }?.job()?;
        Ok(c_int::from(job.is_synchronous()))
    })
}

/// See `chiton.h`.
///
/// # Safety
/// `job` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_merge(job: *const Chiton) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { chiton_sync_mode(job, 1) }
}

/// See `chiton.h`.
///
/// # Safety
/// `job` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_discard(job: *const Chiton) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_job(job, Job::discard) }
}

/// # Safety
/// `job` is null or a handle.
unsafe fn on_job(job: *const Chiton, call: impl FnOnce(&Job) -> Result<(), Failure>) -> c_int {
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        call(unsafe { handle(job) }?.job()?)?;
        Ok(DONE)
    })
}
