//! In place of a server inside the library, where the feature `embedded` is off: every call is refused.

use chiton_client::Client;

use crate::last::Failure;

/// Has no value, since no server runs in this process.
pub(crate) enum Inside {}

pub(crate) fn open(_data: &str) -> Result<(Client, Inside), Failure> {
    Err(refused("chiton_open"))
}

pub(crate) fn format(_data: &str) -> Result<(), Failure> {
    Err(refused("chiton_format"))
}

fn refused(call: &str) -> Failure {
    Failure::absent(call, "embedded", "connect to a server (chiton_connect)")
}

impl Inside {
    pub(crate) fn shut_down(&self) -> Result<(), Failure> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use crate::{chiton_errno, chiton_error, chiton_format, chiton_open};

    #[test]
    fn opening_and_formatting_are_refused() {
        let failed = || {
            // SAFETY: the text is this thread's, and nothing fails before it is read.
            let text = unsafe { CStr::from_ptr(chiton_error()) }.to_str().expect("text");
            assert!(text.contains("\"embedded\""), "{text}");
            assert_eq!(chiton_errno(), 95);
        };
        let data = c"/nowhere/data";
        // SAFETY: both end with NUL, or are null.
        assert!(unsafe { chiton_open(data.as_ptr(), std::ptr::null()) }.is_null());
        failed();
        // SAFETY: as above.
        assert_eq!(unsafe { chiton_format(data.as_ptr()) }, -1);
        failed();
    }
}
