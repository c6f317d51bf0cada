//! Files that tools read: exports of journals, and dumps of trees.

use std::sync::{Arc, Mutex, PoisonError};

use chiton_admin::dump::{DumpOptions, LoadOptions, dump, load};
use chiton_admin::journal::{ExportHeader, ExportReader, ExportWriter};
use chiton_client::{Client, ClientOptions};
use chiton_journal::{MemoryPlace, Shape};
use chiton_metastore::{MemoryMetastore, Metastore};
use chiton_model::Event;
use chiton_objects::MemoryObjects;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Role, Server, ServerOptions, Stores};
use chiton_types::frame::FrameHeader;
use chiton_types::{Epoch, Position, Seq, SessionId, ShardId};

use super::{Target, as_it_is};
use crate::mutate::Random;

pub(super) const EXPORT: Target =
    Target { name: "export", run: run_export, seeds: exports, repair: as_it_is, short_run: 20_000 };
pub(super) const LOAD: Target =
    Target { name: "load", run: run_load, seeds: dumps, repair: sum_up, short_run: 150 };

fn run_export(bytes: &[u8]) -> bool {
    let Ok(mut reader) = ExportReader::new(bytes) else { return false };
    loop {
        match reader.next_record() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn exports() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for frames in [0, 1, 20] {
        let header =
            ExportHeader { journal: 7, epoch: Epoch(2), stored: Some(Position(3)), first: Position(4) };
        let mut writer = ExportWriter::new(Vec::new(), &header).expect("writes");
        let mut payload = Vec::new();
        Event::NOTHING.encode(&mut payload);
        for n in 0..frames {
            let header =
                FrameHeader { event_count: 1, shard: ShardId(0), session: SessionId(9), seq: Seq(n) };
            writer.frame(Position(4 + n), &header, &payload).expect("writes");
        }
        writer.lost(Position(100), Some(Position(120)), "a bad sector").expect("writes");
        seeds.push(writer.finish().expect("writes"));
    }
    seeds
}

/// A file system in memory for many loads, each into a new directory.
struct Site {
    _server: Arc<Server>,
    client: Client,
    loads: u32,
}

impl Site {
    fn new() -> Site {
        let world: SharedWorld = Arc::new(RealWorld);
        let (objects, place) = (Arc::new(MemoryObjects::new()), Arc::new(MemoryPlace::new(Shape::Grows)));
        let meta = Arc::new(MemoryMetastore::new());
        let stores = || Stores {
            objects: objects.clone(),
            open_meta: {
                let meta = meta.clone();
                Box::new(move || {
                    meta.crash();
                    Ok(meta.clone() as Arc<dyn Metastore>)
                })
            },
            place: place.clone(),
            objects_address: String::new(),
        };
        let options = FormatOptions { shards: 4, ..FormatOptions::default() };
        let info = Server::format_with(&[stores()], &options, &world).expect("formats");
        let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
        let server = Server::start_as(Role::serving(&info, stores()), options, world).expect("starts");
        let user = Some((0, 0, Vec::new()));
        let client = chiton_embedded::client(&server, ClientOptions { user, ..ClientOptions::default() });
        Site { _server: server, client: client.expect("a client"), loads: 0 }
    }
}

fn run_load(bytes: &[u8]) -> bool {
    static SITE: Mutex<Option<Site>> = Mutex::new(None);
    let mut site = SITE.lock().unwrap_or_else(PoisonError::into_inner);
    if site.as_ref().is_some_and(|site| site.loads == 2_000) {
        *site = None;
    }
    let Site { client, loads, .. } = site.get_or_insert_with(Site::new);
    *loads += 1;
    let root = format!("/{loads}");
    client.mkdir_all(&root).expect("a directory");
    let loaded = load(client, root.as_bytes(), &mut &bytes[..], LoadOptions::default(), &mut |_| {}).is_ok();
    let options = LoadOptions { resume: true, ..LoadOptions::default() };
    if loaded {
        // The load is complete: resuming it changes nothing.
        let again = load(client, root.as_bytes(), &mut &bytes[..], options, &mut |_| {});
        assert!(again.is_ok(), "loaded, and yet: {again:?}");
    }
    loaded
}

/// Sets the checksum in the last line.
fn sum_up(bytes: &mut [u8], random: &mut Random) {
    let Some(end) = bytes.windows(5).rposition(|at| at == b"\nend ").filter(|_| random.below(4) > 0) else {
        return;
    };
    let (before, last) = bytes.split_at_mut(end + 1);
    let Some(at) = last.windows(7).position(|at| at == b"crc32c=") else { return };
    let sum = format!("{:08x}", crc32c::crc32c(before));
    if let Some(place) = last.get_mut(at + 7..at + 15) {
        place.copy_from_slice(sum.as_bytes());
    }
}

fn dumps() -> Vec<Vec<u8>> {
    let site = Site::new();
    let client = &site.client;
    client.mkdir_all("/a/b").expect("a directory");
    client.create_file("/a/small", b"some content").expect("a file");
    client.create_file("/a/b/large", &vec![3; 20_000]).expect("a file");
    client.mkdir_all("/a name with blanks").expect("a directory");
    let mut seeds = Vec::new();
    for root in ["/", "/a"] {
        let mut text = Vec::new();
        dump(client, root.as_bytes(), &mut text, DumpOptions { content: true }, &mut |_| {}).expect("dumps");
        seeds.push(text);
    }
    seeds
}
