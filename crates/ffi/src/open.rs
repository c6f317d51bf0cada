//! Coming and going.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_transport::Address;
use chiton_types::Refusal;

use crate::border::{DONE, FAILED, carry_out, text, text_or_null};
use crate::decoupling::Decouplings;
use crate::handle::{Chiton, Filesystem};
use crate::last::Failure;
use crate::server::{self, Inside};

/// A program that has a `tracing` subscriber of its own keeps it.
fn log_to_stderr() {
    if let Err(why) = chiton_runtime::log::install() {
        chiton_runtime::log_line!("chiton: {why}");
    }
}

/// See `chiton.h`.
///
/// # Safety
/// Each argument is null or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_connect(address: *const c_char, state_dir: *const c_char) -> *mut Chiton {
    carry_out(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (address, state_dir) =
            unsafe { (text(address, "the address")?, text_or_null(state_dir, "the state directory")?) };
        let address: Address =
            address.parse().map_err(|e| Failure::new(Refusal::Invalid, format!("{address}: {e}")))?;
        log_to_stderr();
        let client = Client::connect(&address, ClientOptions::default())?;
        begin(client, None, state_dir)
    })
}

/// See `chiton.h`.
///
/// # Safety
/// Each argument is null or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_open(data: *const c_char, state_dir: *const c_char) -> *mut Chiton {
    carry_out(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (data, state_dir) =
            unsafe { (text(data, "the data directory")?, text_or_null(state_dir, "the state directory")?) };
        log_to_stderr();
        let (client, server) = server::open(data)?;
        begin(client, Some(server), state_dir)
    })
}

/// See `chiton.h`.
///
/// # Safety
/// The argument is null or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_format(data: *const c_char) -> c_int {
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        let data = unsafe { text(data, "the data directory")? };
        server::format(data)?;
        Ok(DONE)
    })
}

fn begin(client: Client, server: Option<Inside>, state_dir: Option<&str>) -> Result<*mut Chiton, Failure> {
    let client = Arc::new(client);
    let decouplings = Decouplings::new(&client, state_dir)?;
    let filesystem = Arc::new(Filesystem::new(client, decouplings, server));
    Ok(Box::into_raw(Box::new(Chiton { filesystem, job: None })))
}

/// See `chiton.h`.
///
/// # Safety
/// Null, or a handle that was not closed and that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_close(chiton: *mut Chiton) -> c_int {
    carry_out(FAILED, || {
        if chiton.is_null() {
            return Ok(DONE);
        }
        // SAFETY: it came from `Box::into_raw`, and the caller promises that this is its only end.
        let chiton = unsafe { Box::from_raw(chiton) };
        chiton.close().map(|()| DONE)
    })
}
