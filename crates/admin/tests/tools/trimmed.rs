//! A check beside a server whose journal is trimmed while the check reads it.

use std::sync::Arc;

use crate::rig::Rig;
use chiton_admin::fsck::{Options, check_online};
use chiton_client::ClientOptions;
use chiton_journal::{MemoryPlace, Options as JournalOptions, Place, PlaceError, SegmentInfo, Shape};
use chiton_runtime::RealWorld;
use chiton_runtime::sync::Mutex;
use chiton_server::{Role, Server, ServerOptions, Stores};

/// A place in memory that calls a function at the next read.
struct Watched {
    inner: Arc<MemoryPlace>,
    on_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Place for Watched {
    fn shape(&self) -> Shape {
        self.inner.shape()
    }
    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        self.inner.list()
    }
    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        let on_read = self.on_read.lock().take();
        on_read.into_iter().for_each(|f| f());
        self.inner.read(number, bytes_max)
    }
    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.inner.create(number, bytes)
    }
    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        self.inner.append(number, offset, bytes)
    }
    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        self.inner.sync(number)
    }
    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.inner.remove(number)
    }
}

#[test]
fn a_checkpoint_keeps_the_segments_that_a_check_reads() {
    let rig = Rig::new();
    let place = Arc::new(Watched { inner: rig.place.clone(), on_read: Mutex::default() });
    let meta = rig.meta.clone();
    let stores = Stores {
        objects: rig.objects.clone(),
        open_meta: Box::new(move || {
            meta.crash();
            Ok(meta.clone())
        }),
        place: place.clone(),
        objects_address: String::new(),
    };
    let options = ServerOptions {
        journal: JournalOptions { segment_bytes: 256, ..JournalOptions::default() },
        log: Arc::new(|_| {}),
        ..ServerOptions::default()
    };
    let server =
        Server::start_as(Role::serving(&rig.info, stores), options, Arc::new(RealWorld)).expect("starts");
    let client = Arc::new(chiton_embedded::client(&server, ClientOptions::default()).expect("a client"));
    let segments = || place.list().expect("lists").len();
    let mut before = 0;
    let result = check_online(&client, &Options::default(), &mut |f| panic!("{f}"), &mut |progress| {
        if progress.pass == "journals" {
            for n in 0..50 {
                client.write_file(format!("file{n}"), b"some").expect("written");
                client.sync().expect("durable");
            }
            before = segments();
            let trimmer = server.clone();
            *place.on_read.lock() = Some(Box::new(move || trimmer.checkpoint().expect("a checkpoint")));
        }
    });
    result.expect("the journal is whole");
    assert!(place.on_read.lock().is_none(), "there was a checkpoint while the check read");
    assert!(before > 10 && segments() >= before, "{before} segments were kept");
    client.write_file("one more", b"some").expect("written");
    server.checkpoint().expect("a checkpoint");
    assert!(segments() < before, "the next one removes them");
    drop(client);
    server.shutdown().expect("ends in order");
}
