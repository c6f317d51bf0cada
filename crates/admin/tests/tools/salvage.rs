//! A file system too damaged to start is served read-only, as far as it can be read.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use chiton_admin::salvage;
use chiton_client::{Client, ClientOptions};
use chiton_metastore::{FjallMetastore, FjallOptions};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{DataAddress, FormatOptions, Server, ServerOptions};
use chiton_types::Refusal;

use crate::unreadable::largest;

const DIRS: usize = 20;
const FILES: usize = 2_000;

/// A data directory, and the log of its servers.
struct Site {
    dir: tempfile::TempDir,
    log: Arc<Mutex<Vec<String>>>,
}

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

fn content(n: usize) -> Vec<u8> {
    // Some are in blocks of their own.
    let bytes = if n.is_multiple_of(100) { 100_000 } else { 20 };
    format!("what file {n} holds ").into_bytes().into_iter().cycle().take(bytes).collect()
}

fn path(n: usize) -> String {
    format!("/dir {}/file {n}", n % DIRS)
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        Server::format(dir.path(), &FormatOptions::default(), &world()).expect("formats");
        Site { dir, log: Arc::default() }
    }

    fn options(&self) -> ServerOptions {
        let log = self.log.clone();
        let log = move |line: &str| log.lock().expect("whole").push(line.to_owned());
        ServerOptions { log: Arc::new(log), ..ServerOptions::default() }
    }

    fn data(&self) -> DataAddress {
        self.dir.path().into()
    }

    fn start(&self) -> Result<Arc<Server>, chiton_server::StartError> {
        Server::start(self.dir.path(), self.options(), world())
    }

    fn salvage(&self) -> (Arc<Server>, Client) {
        let server = salvage::serve(&self.data(), self.options(), world()).expect("serves what there is");
        let client = client(&server);
        (server, client)
    }

    fn said(&self) -> String {
        self.log.lock().expect("whole").join("\n")
    }

    /// All rows in one table; the table.
    fn settled(&self) -> fs::File {
        let meta = self.dir.path().join("meta");
        FjallMetastore::open(&meta, FjallOptions::default()).expect("opens").settle().expect("settles");
        let table = largest(&meta.join("rows")).expect("a table");
        fs::File::options().read(true).write(true).open(&table).expect("opens")
    }
}

fn client(server: &Arc<Server>) -> Client {
    let user = Some((0, 0, Vec::new()));
    chiton_embedded::client(server, ClientOptions { user, ..ClientOptions::default() }).expect("a session")
}

fn fill(server: &Arc<Server>, files: std::ops::Range<usize>) {
    let client = client(server);
    for n in 0..DIRS {
        client.mkdir_all(format!("/dir {n}")).expect("made");
    }
    for n in files {
        client.create_file(path(n), &content(n)).expect("made");
    }
    client.sync().expect("durable");
}

fn flip(file: &fs::File, at: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("reads");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("writes");
}

/// Number of files with their original content; the others get EIO.
fn readable(client: &Client, files: std::ops::Range<usize>) -> usize {
    let whole = |n: &usize| match client.read_file(path(*n)) {
        Ok(found) => {
            assert!(found == content(*n), "file {n} holds something else");
            true
        }
        Err(Refusal::Io) => false,
        Err(other) => panic!("file {n} is {other}"),
    };
    files.filter(whole).count()
}

/// Bytes of everything but the metadata store, which its library touches when it opens it.
fn bytes_below(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut dirs = vec![dir.join("journal"), dir.join("objects")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                all.push((path.display().to_string(), fs::read(&path).expect("read")));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn a_store_without_its_first_block_is_served_but_for_that() {
    let site = Site::new();
    let server = site.start().expect("starts");
    fill(&server, 0..FILES);
    server.shutdown().expect("ends");
    drop(server);
    let table = site.settled();
    let bytes = table.metadata().expect("metadata").len();
    // The first block has the journal's position and the root directory; others have names and inodes.
    for at in [1_000, bytes / 4, bytes / 2] {
        flip(&table, at);
        if at == 1_000 {
            let said = site.start().map(|_| ()).expect_err("no start without that").to_string();
            assert!(said.contains("chiton mount --salvage"), "{said}");
        }
        let before = bytes_below(site.dir.path());
        let (server, client) = site.salvage();
        let whole = readable(&client, 0..FILES);
        let least = if at == 1_000 { 0 } else { FILES - 500 };
        assert!((least..=FILES).contains(&whole), "{whole} of {FILES} at {at}: {}", site.said());
        assert!(whole == FILES || site.said().contains("orrupt"), "{}", site.said());
        // Nothing can be changed.
        let refused = |result: Result<(), Refusal>| match result.expect_err("refused") {
            Refusal::ReadOnly => {}
            other => assert!(at == 1_000 && other == Refusal::Io, "{other} at {at}"),
        };
        refused(client.create_file("/new", b"").map(drop));
        refused(client.mkdir_all("/new").map(drop));
        refused(client.remove(path(1)).map(drop));
        drop(client);
        server.shutdown().expect("ends");
        drop(server);
        assert!(bytes_below(site.dir.path()) == before, "something was changed");
        flip(&table, at);
    }
    let server = site.start().expect("it is whole again");
    assert_eq!(readable(&self::client(&server), 0..FILES), FILES);
}

#[test]
fn a_damaged_journal_is_shown_up_to_the_damage() {
    let site = Site::new();
    let server = site.start().expect("starts");
    fill(&server, 0..100);
    server.checkpoint().expect("a checkpoint");
    let client = self::client(&server);
    for n in 100..300 {
        client.create_file(path(n), &content(n)).expect("made");
        client.sync().expect("durable");
    }
    drop(client);
    server.abandon();
    drop(server);
    let journal = site.dir.path().join("journal");
    let segments = fs::read_dir(&journal).expect("listed").map(|entry| entry.expect("an entry").path());
    let last = segments.max().expect("a segment");
    let used = fs::read(&last).expect("read");
    let file = fs::File::options().read(true).write(true).open(last).expect("opens");
    let used = used.iter().rposition(|byte| *byte != 0).expect("frames") as u64;
    flip(&file, used / 2);
    let said = site.start().map(|_| ()).expect_err("no start over that").to_string();
    assert!(said.contains("--salvage"), "{said}");
    let before = bytes_below(site.dir.path());
    let (server, client) = site.salvage();
    assert_eq!(readable(&client, 0..100), 100);
    let shown = (100..300).take_while(|n| client.stat(path(*n)).is_ok()).count();
    assert!((1..200).contains(&shown), "{shown}: {}", site.said());
    assert_eq!(readable(&client, 100..100 + shown), shown);
    assert!((100 + shown..300).all(|n| client.stat(path(n)).map(drop) == Err(Refusal::NotFound)));
    assert!(site.said().contains("are not shown"), "{}", site.said());
    drop(client);
    server.shutdown().expect("ends");
    assert!(bytes_below(site.dir.path()) == before, "something was changed");
}
