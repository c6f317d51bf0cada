//! File handles of the kernel (open_by_handle_at(2)), for the tests of several crates.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const HANDLE_BYTES_MAX: u32 = 128;

/// A `file_handle` of name_to_handle_at(2).
pub(crate) struct Handle(Vec<u32>);

impl Handle {
    pub(crate) fn of(path: &Path) -> Handle {
        let name = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        let mut words = vec![0u32; 2 + HANDLE_BYTES_MAX as usize / 4];
        words[0] = HANDLE_BYTES_MAX;
        let mut mount = 0i32;
        // SAFETY: a live string, a handle with as much room as it says, a live number.
        let said = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                name.as_ptr(),
                words.as_mut_ptr(),
                &mut mount,
                0,
            )
        };
        assert_eq!(said, 0, "{}", std::io::Error::last_os_error());
        Handle(words)
    }

    pub(crate) fn open(&self, mount: &File, flags: i32) -> std::io::Result<File> {
        // SAFETY: a live descriptor and a live handle.
        let fd =
            unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), self.0.as_ptr(), flags) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: fresh, and ours.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }
}

/// Makes the kernel forget unused names and inodes.
pub(crate) fn forget_inodes() {
    std::fs::write("/proc/sys/vm/drop_caches", "2").expect("root may");
}
