//! File systems made for one test.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use chiton_client::{Client, ClientOptions};
use chiton_fuse::{Mount, MountError, MountOptions};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use tempfile::TempDir;

use super::library::Library;
use super::mounted::Mounted;
use super::subject::FsUnderTest;

/// A server with its own directory.
pub(crate) struct Served {
    pub(crate) server: Arc<Server>,
    pub(crate) scratch: TempDir,
}

impl Served {
    pub(crate) fn new() -> Served {
        Served::with_plates(1)
    }

    /// Of a file system with so many plates.
    pub(crate) fn with_plates(plates: u16) -> Served {
        static UMASK: Once = Once::new();
        // SAFETY: changes a number of this process; no test wants another one.
        UMASK.call_once(|| unsafe {
            libc::umask(0);
        });
        let scratch = TempDir::new_in("/tmp").expect("a scratch directory");
        open_to_all(scratch.path());
        let data = scratch.path().join("data");
        let world: SharedWorld = Arc::new(RealWorld);
        let options = FormatOptions { plates, ..FormatOptions::default() };
        Server::format(&data, &options, &world).expect("a fresh directory can be formatted");
        let server = Server::start(&data, ServerOptions::default(), world).expect("a server starts");
        Served { server, scratch }
    }

    pub(crate) fn embedded(&self) -> Arc<Client> {
        Arc::new(chiton_embedded::client(&self.server, ClientOptions::default()).expect("an embedded client"))
    }

    /// A fresh directory to mount on.
    pub(crate) fn mountpoint(&self, name: &str) -> PathBuf {
        let dir = self.scratch.path().join(name);
        std::fs::create_dir(&dir).expect("a mount point");
        open_to_all(&dir);
        dir
    }
}

fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("own directory");
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.shutdown().expect("a clean end");
    }
}

/// A file system mounted by this process. Unmounts, then stops the server.
pub(crate) struct MountedHere {
    pub(crate) fs: Mounted,
    mount: Option<Mount>,
    // Dropped last.
    _served: Served,
}

impl MountedHere {
    pub(crate) fn new() -> MountedHere {
        let served = Served::new();
        let dir = served.mountpoint("mnt");
        let mount = Mount::start(served.embedded(), &dir, MountOptions::default()).expect("a mount");
        MountedHere { fs: Mounted { dir }, mount: Some(mount), _served: served }
    }
}

impl Drop for MountedHere {
    fn drop(&mut self) {
        drop(self.mount.take());
    }
}

/// Unmounts. A test beside this one that starts a program has all open files in the new process for a moment.
pub(crate) fn unmount(mut mount: Mount) {
    for _ in 0..100 {
        match mount.unmount() {
            Ok(()) => return,
            Err((MountError::Busy(_), Some(again))) => mount = again,
            Err((error, _)) => panic!("{error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("the mount is in use for 10 s");
}

/// Runs a test over the library, and over a mount.
pub(crate) fn over_both(test: impl Fn(&dyn FsUnderTest)) {
    let served = Served::new();
    let library = Library::new(served.embedded());
    test(&library);
    drop(library);
    drop(served);
    let mounted = MountedHere::new();
    test(&mounted.fs);
}
