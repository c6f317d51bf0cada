//! Volatile apply beside nonvolatile apply: the same journal, merged by a server that runs and by a process that opens the
//! file system for it: `cargo run --release -p chiton-decoupled --example offline [files] [rounds]`.
//!
//! Both are timed from the question to the answer that everything is durable; offline this includes the start, and the
//! checkpoint at the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{Realms, RealmsOptions};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_types::RealmId;

const POLICY: &str = "composition: append_client_journal + global_persist + nonvolatile_apply\n\
                      interfere_policy: block\nallocated_inodes: 100000\n";
/// Files of one directory.
const FILES: usize = 1_000;

struct Site {
    dir: tempfile::TempDir,
    world: SharedWorld,
}

impl Site {
    fn start(&self) -> Arc<Server> {
        let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
        Server::start(&self.dir.path().join("data"), options, self.world.clone()).expect("started")
    }

    fn realms(&self, server: &Arc<Server>, state: &str) -> (Arc<Client>, Arc<Realms>) {
        let client = Client::embedded(server.clone(), ClientOptions::default()).expect("a session");
        let client = Arc::new(client);
        let state_dir = self.dir.path().join(state);
        let options = RealmsOptions { state_dir, client: ClientOptions::default(), accept_truncated: false };
        (client.clone(), Realms::new(client, options))
    }

    /// A file system in which a job has left its journal.
    fn with_journal(files: usize) -> (Site, RealmId) {
        let world: SharedWorld = Arc::new(RealWorld);
        let site = Site { dir: tempfile::tempdir().expect("a directory"), world };
        let data = site.dir.path().join("data");
        let uid = rustix::process::geteuid().as_raw();
        let options = FormatOptions { uid, ..FormatOptions::default() };
        Server::format(&data as &Path, &options, &site.world).expect("formatted");
        let server = site.start();
        let (client, realms) = site.realms(&server, "job");
        let root = client.mkdir_all("/job").expect("made").ino;
        let realm =
            realms.decouple(&client.caller(), root, Some(POLICY.as_bytes()), None).expect("decoupled");
        for dir in 0..files.div_ceil(FILES) {
            let names: Vec<String> =
                (0..FILES.min(files - dir * FILES)).map(|n| format!("file {n}")).collect();
            realm.client().mkdir_all(format!("/d{dir}")).expect("made");
            let made = realm.client().create_many(format!("/d{dir}"), &names).expect("asked");
            assert!(made.iter().all(Result::is_ok));
        }
        let id = realm.id();
        drop(realm);
        assert_eq!(realms.close(), []);
        drop((client, realms));
        server.shutdown().expect("ended");
        (site, id)
    }

    fn merge(&self, server: &Arc<Server>, id: RealmId) -> u64 {
        let (client, realms) = self.realms(server, "tool");
        let realm = realms.adopt(id).expect("adopted");
        let report = realm.merge(&|_| {}).expect("merged");
        assert!(report.ended && report.lost_count == 0, "{report}");
        client.sync().expect("durable");
        report.events
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let files = args.next().map_or(100_000, |n| n.parse().expect("how many files"));
    let rounds = args.next().map_or(3, |n| n.parse().expect("how many rounds"));
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let (site, id) = Site::with_journal(files);
        let server = site.start();
        let begun = site.world.monotonic();
        let events = site.merge(&server, id);
        let volatile = site.world.monotonic() - begun;
        server.shutdown().expect("ended");

        let (site, id) = Site::with_journal(files);
        let begun = site.world.monotonic();
        let server = site.start();
        assert_eq!(site.merge(&server, id), events);
        server.shutdown().expect("ended");
        let nonvolatile = site.world.monotonic() - begun;

        let rate = |time: Duration| events as f64 / time.as_secs_f64();
        let ratio = nonvolatile.as_secs_f64() / volatile.as_secs_f64();
        println!(
            "{events} events: volatile apply {volatile:.2?} ({:.0}/s), nonvolatile apply {nonvolatile:.2?} ({:.0}/s): {ratio:.2} times as long",
            rate(volatile),
            rate(nonvolatile)
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of {rounds}: {:.2} times as long", ratios[ratios.len() / 2]);
}
