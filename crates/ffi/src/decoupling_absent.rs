//! In place of decoupled subtrees, where the feature `decoupled` is off: to begin one is refused, so there is none.

use std::sync::Arc;

use chiton_client::Client;

use crate::last::Failure;

/// Has no value, since no decoupling begins.
pub(crate) enum Job {}

pub(crate) struct Decouplings;

impl Decouplings {
    pub(crate) fn new(_client: &Arc<Client>, _state_dir: Option<&str>) -> Result<Decouplings, Failure> {
        Ok(Decouplings)
    }

    pub(crate) fn begin(&self, _path: &[u8], _policy: Option<&str>) -> Result<Job, Failure> {
        Err(Failure::absent("chiton_decouple", "decoupled", "use the file system's handle"))
    }

    pub(crate) fn close(&self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Job {
    pub(crate) fn call<R>(&self, _call: impl FnOnce(&Client) -> R) -> R {
        match *self {}
    }

    pub(crate) fn sync(&self) -> Result<(), Failure> {
        match *self {}
    }

    pub(crate) fn sync_mode(&self, _on: bool) -> Result<(), Failure> {
        match *self {}
    }

    pub(crate) fn is_synchronous(&self) -> bool {
        match *self {}
    }

    pub(crate) fn discard(&self) -> Result<(), Failure> {
        match *self {}
    }

    pub(crate) fn close(&self) -> Result<(), Failure> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::sync::Arc;

    use chiton_runtime::{RealWorld, SharedWorld};
    use chiton_server::{FormatOptions, Server, ServerOptions};
    use chiton_transport::Address;

    use crate::{
        chiton_close, chiton_connect, chiton_decouple, chiton_errno, chiton_mkdir, chiton_read, chiton_write,
    };

    #[test]
    fn files_of_a_server_elsewhere_are_there_and_decoupling_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let world: SharedWorld = Arc::new(RealWorld);
        let owner = FormatOptions { uid: rustix::process::geteuid().as_raw(), ..FormatOptions::default() };
        let data = dir.path().join("data");
        Server::format(&data, &owner, &world).expect("formatted");
        let server = Server::start(&data, ServerOptions::default(), world).expect("started");
        let address = format!("unix:{}", dir.path().join("socket").display());
        server.serve(&[address.parse::<Address>().expect("an address")]).expect("listening");
        let address = CString::new(address).expect("no NUL");
        let mut buffer = [0; 8];
        // SAFETY: every text ends with NUL, the handle is open, and the buffer has as many bytes as is said.
        unsafe {
            let chiton = chiton_connect(address.as_ptr(), std::ptr::null());
            assert!(!chiton.is_null());
            assert_eq!(chiton_mkdir(chiton, c"/job".as_ptr()), 0);
            assert_eq!(chiton_write(chiton, c"/job/a".as_ptr(), b"42".as_ptr().cast(), 2), 0);
            let (into, room) = (buffer.as_mut_ptr().cast(), buffer.len());
            assert_eq!(chiton_read(chiton, c"/job/a".as_ptr(), 0, into, room), 2);
            assert!(chiton_decouple(chiton, c"/job".as_ptr(), std::ptr::null()).is_null());
            assert_eq!(chiton_errno(), 95);
            assert_eq!(chiton_close(chiton), 0);
        }
        assert_eq!(&buffer[..2], b"42");
        server.shutdown().expect("shut down");
    }
}
