//! How long a branch takes to be made, of trees of several sizes: `cargo run --release -p chiton-decoupled --example branches
//! [files …]`. The client is at the other end of a socket; a branch is durable when it is timed.

use std::path::Path;
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{Realms, RealmsOptions};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_types::Name;
use chiton_wire::Address;

/// Branches of each tree.
const BRANCHES: usize = 20;
/// Files of one directory.
const FILES: usize = 1_000;

fn main() {
    let given: Vec<usize> = std::env::args().skip(1).map(|n| n.parse().expect("how many files")).collect();
    let sizes = if given.is_empty() { vec![1_000, 10_000, 100_000] } else { given };
    let world: SharedWorld = Arc::new(RealWorld);
    for files in sizes {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        let uid = rustix::process::geteuid().as_raw();
        let options = FormatOptions { uid, ..FormatOptions::default() };
        Server::format(&data as &Path, &options, &world).expect("formatted");
        let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
        let server = Server::start(&data as &Path, options, world.clone()).expect("started");
        let address: Address =
            format!("unix:{}", dir.path().join("socket").display()).parse().expect("an address");
        server.serve(std::slice::from_ref(&address)).expect("listening");
        let client = Client::connect(&address, ClientOptions::default()).expect("connected");
        let client = Arc::new(client);
        let root = client.mkdir_all("/tree").expect("made").ino;
        for dir in 0..files.div_ceil(FILES) {
            let names: Vec<String> = (0..FILES.min(files - dir * FILES)).map(|n| format!("f{n}")).collect();
            client.mkdir_all(format!("/tree/d{dir}")).expect("made");
            let made = client.create_many(format!("/tree/d{dir}"), &names).expect("asked");
            assert!(made.iter().all(Result::is_ok));
        }
        client.sync().expect("durable");
        let options = RealmsOptions {
            state_dir: dir.path().join("state"),
            client: ClientOptions::default(),
            accept_truncated: false,
        };
        let realms = Realms::new(client.clone(), options);
        let mut times: Vec<f64> = (0..BRANCHES)
            .map(|n| {
                let name = Name::new(format!("b{n}").as_bytes()).expect("a name");
                let begun = world.monotonic();
                realms.create_branch(&client.caller(), root, &name, None).expect("made");
                (world.monotonic() - begun).as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{files} files: a branch in {:.2} ms (median of {BRANCHES}; fastest {:.2}, slowest {:.2})",
            times[BRANCHES / 2],
            times[0],
            times[BRANCHES - 1]
        );
        drop((realms, client));
        server.shutdown().expect("ended");
    }
}
