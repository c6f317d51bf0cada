//! How fast a decoupled client creates: by batches and one by one, with its journal in memory and on the local disk, and
//! beside it a strong client with one operation in flight.
//!
//! ```text
//!   cargo run --release -p chiton-decoupled --example creates [-- COUNT]
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_journal::{FilePlace, MemoryPlace, Place, Shape};
use chiton_namespace::{Fetched, Namespace, Need};
use chiton_policy::Policy;
use chiton_runtime::{RealWorld, SharedWorld, World};
use chiton_server::{Base, FormatOptions, RealmStart, Server, ServerOptions};
use chiton_types::{Ino, Mode, Position, SessionId, ShardId};
use chiton_wire::Address;

const BATCH: usize = 1_000;
/// Directories, so that none is larger than what a job makes.
const DIRS: usize = 100;

/// An empty directory, and numbers without end.
struct Empty {
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    next: AtomicU64,
}

impl Base for Empty {
    fn fetch(&self, needs: &[Need]) -> Result<Vec<Fetched>, String> {
        let found = |need: &Need| match need {
            Need::Inode(Ino::ROOT) => self.rows[..1].to_vec(),
            _ => Vec::new(),
        };
        let fetched = |need: &Need| Fetched {
            need: need.clone(),
            rows: found(need),
            exhausted: true,
            unreadable: false,
        };
        Ok(needs.iter().map(fetched).collect())
    }

    fn grant(&self, shard: ShardId, count: u64) -> Result<Vec<(Ino, Ino)>, String> {
        let first = self.next.fetch_add(count, Ordering::SeqCst);
        Ok(vec![(Ino::new(shard, first), Ino::new(shard, first + count))])
    }

    fn sync_blocks(&self) -> Result<(), String> {
        Ok(())
    }
}

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

fn decoupled(place: Arc<dyn Place>, count: usize) -> (Arc<Server>, Client) {
    let user = rustix::process::geteuid().as_raw();
    let rows = Namespace::format_rows(RealWorld.now(), user, 0);
    let rows = rows.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let base = Empty { rows, next: AtomicU64::new(1 << 41) };
    let ranges = vec![(Ino::new(ShardId(0), 1 << 40), Ino::new(ShardId(0), (1 << 40) + 2 * count as u64))];
    let server = Server::start_realm(RealmStart {
        filesystem: 1,
        journal: 2,
        shards: 64,
        root: Ino::ROOT,
        policy: Policy::default(),
        inode_count: 1,
        writer: SessionId(9),
        ranges,
        borders: Vec::new(),
        used: Vec::new(),
        merged: Position(0),
        base: Arc::new(base),
        place,
        options: ServerOptions::default(),
        world: world(),
    });
    let server = server.expect("starts");
    let client = Client::embedded(server.clone(), ClientOptions::default()).expect("a session");
    (server, client)
}

fn dirs(client: &Client) -> Vec<Ino> {
    (0..DIRS).map(|n| client.mkdir_all(format!("/d{n}")).expect("made").ino).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("file.mdtest.{:02}.{n}", n % 16)).collect()
}

fn timed(what: &str, count: usize, body: impl FnOnce()) -> f64 {
    let (begun, cpu) = (RealWorld.monotonic(), cpu_time());
    body();
    let (wall, cpu) = (RealWorld.monotonic() - begun, cpu_time() - cpu);
    let rate = count as f64 / wall.as_secs_f64();
    println!(
        "{what:44} {rate:>12.0}/s    {:>7.0} ns of CPU each, all threads",
        cpu.as_nanos() as f64 / count as f64
    );
    rate
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn by_batches(client: &Client, names: &[String]) {
    let dirs = dirs(client);
    let caller = client.caller();
    for (n, some) in names.chunks(BATCH).enumerate() {
        let made = client.create_in(&caller, dirs[n % DIRS], some, Mode(0o644)).expect("asked");
        assert!(made.iter().all(Result::is_ok));
    }
}

fn one_by_one(client: &Client, names: &[String]) {
    let dirs = dirs(client);
    let caller = client.caller();
    for (n, name) in names.iter().enumerate() {
        let pending = client.start_create(&caller, dirs[n / BATCH % DIRS], name.as_bytes(), Mode(0o644));
        pending.wait().expect("made");
    }
}

fn local(dir: &Path) -> Arc<dyn Place> {
    Arc::new(FilePlace::open(dir).expect("a place"))
}

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    let names = names(count);
    let dir = std::env::temp_dir().join(format!("chiton-creates-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");

    let (server, client) = decoupled(Arc::new(MemoryPlace::new(Shape::Grows)), count);
    timed("append, by batches of 1000", count, || by_batches(&client, &names));
    assert!(server.has_unapplied(), "nobody has looked yet");
    let bytes: u64 = server.journal_place().list().expect("listed").iter().map(|s| s.bytes).sum();
    server.wait_durable(server.last()).expect("durable");
    println!("{:44} {:>12.1}", "journal bytes per create", bytes as f64 / count as f64);
    drop((client, server));

    let (server, client) = decoupled(Arc::new(MemoryPlace::new(Shape::Grows)), count);
    let alone = timed("append, one by one", count, || one_by_one(&client, &names));
    drop((client, server));

    let (server, client) = decoupled(local(&dir.join("a")), count);
    timed("append + local persist, by batches of 1000", count, || {
        by_batches(&client, &names);
        client.sync().expect("durable");
    });
    drop((client, server));
    let (server, client) = decoupled(local(&dir.join("b")), count);
    timed("append + local persist, one by one", count, || {
        one_by_one(&client, &names);
        client.sync().expect("durable");
    });
    drop((client, server));

    let few = &names[..count.min(50_000)];
    let user = rustix::process::geteuid().as_raw();
    let options = FormatOptions { uid: user, ..FormatOptions::default() };
    Server::format(&dir.join("data"), &options, &world()).expect("formatted");
    let server = Server::start(&dir.join("data"), ServerOptions::default(), world()).expect("started");
    let address: Address = format!("unix:{}", dir.join("socket").display()).parse().expect("an address");
    server.serve(std::slice::from_ref(&address)).expect("listening");
    let asking = ClientOptions { ahead_after: None, ..ClientOptions::default() };
    let client = Client::connect(&address, asking).expect("connected");
    let strong = timed("rpcs, one in flight, over a Unix socket", few.len(), || one_by_one(&client, few));
    println!("{:44} {:>12.1}", "decoupled against rpcs, one by one", alone / strong);
    drop(client);
    server.shutdown().expect("ends in order");
    std::fs::remove_dir_all(&dir).expect("removed");
}
