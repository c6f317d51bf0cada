//! Tests of file data over a double of the server.

mod contention;
mod double;
mod embedded;
mod faults;
mod histories;
mod modes;
mod shapes;

use std::sync::Arc;
use std::time::Duration;

use chiton_objects::MemoryObjects;
use chiton_runtime::RealWorld;
use chiton_types::{Attr, Ino};

use super::{BlockIo, DirectBlocks, Files, FilesOptions};
use crate::{Caller, Groups, OpenFlags};
use double::Double;

const ALICE: u32 = 1000;

/// Runs `f` as an ordinary user.
fn caller<R>(f: impl FnOnce(&Caller<'_>) -> R) -> R {
    let groups: Arc<[u32]> = Arc::new([]);
    f(&Caller { uid: ALICE, gid: ALICE, groups: Groups::Known(&groups) })
}

/// Blocks of 16 bytes, files inline up to 24, nothing in the background.
fn tiny() -> FilesOptions {
    FilesOptions {
        block_bytes: 16,
        inline_bytes_max: 24,
        flush_interval: Duration::from_secs(3600),
        ..FilesOptions::default()
    }
}

/// A server, a store, and clients.
struct Rig {
    objects: Arc<MemoryObjects>,
    server: Arc<Double>,
}

/// The calls that make and open files: of the double, or of a client.
trait FileCalls: Send + Sync {
    /// A new file, open for reading and writing.
    fn create(&self, files: &Files) -> (Ino, u64);
    fn open(&self, files: &Files, ino: Ino, flags: OpenFlags) -> u64;
    /// Attributes for which writers were asked to write back.
    fn stat(&self, ino: Ino) -> Attr;
}

struct Member {
    files: Arc<Files>,
    calls: Arc<dyn FileCalls>,
}

impl Rig {
    fn new() -> Rig {
        let objects = Arc::new(MemoryObjects::new());
        Rig { server: Double::new(objects.clone()), objects }
    }

    fn member(&self, options: FilesOptions) -> Member {
        self.member_with(options, Arc::new(DirectBlocks::new(self.objects.clone())))
    }

    fn member_with(&self, options: FilesOptions, io: Arc<dyn BlockIo>) -> Member {
        let session = self.server.session();
        let files = Files::new(session.clone(), io, Arc::new(RealWorld), options);
        session.attach(&files);
        Member { files, calls: session }
    }
}

impl Member {
    fn open(&self, ino: Ino, flags: OpenFlags) -> u64 {
        self.calls.open(&self.files, ino, flags)
    }

    fn create(&self) -> (Ino, u64) {
        self.calls.create(&self.files)
    }

    fn write(&self, fh: u64, offset: u64, bytes: &[u8]) {
        let n = caller(|c| self.files.write(c, fh, offset, bytes)).expect("write");
        assert_eq!(n as usize, bytes.len());
    }

    /// All of a file.
    fn all(&self, fh: u64) -> Vec<u8> {
        self.files.read(fh, 0, 1 << 20).expect("read")
    }
}
