//! A server with jobs, and its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_runtime::{RealWorld, SharedWorld, thread};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_tree_jobs::Jobs;
use chiton_trees::{Refused, Watch};
use chiton_types::Refusal;
use tempfile::TempDir;

pub(crate) const PLATES: [u16; 2] = [1, 3];

pub(crate) struct Site {
    dir: TempDir,
    jobs: Arc<Jobs>,
    _server: Arc<Server>,
}

/// Jobs wait here before they begin.
#[derive(Default)]
pub(crate) struct Gate(AtomicBool);

impl Gate {
    pub(crate) fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn pass(&self) {
        while !self.0.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Site {
    pub(crate) fn new(plates: u16) -> Site {
        let site = Site::start(plates, true);
        site.jobs.serve(site.address(), None);
        site
    }

    pub(crate) fn gated(plates: u16, gate: &Arc<Gate>) -> Site {
        let site = Site::start(plates, true);
        let (address, gate) = (site.address(), gate.clone());
        site.jobs.serve_by(move |options| {
            gate.pass();
            Client::connect(&address, options).map_err(|e| e.to_string())
        });
        site
    }

    pub(crate) fn without_jobs() -> Site {
        Site::start(1, false)
    }

    fn start(plates: u16, has_jobs: bool) -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let world: SharedWorld = Arc::new(RealWorld);
        let jobs = Arc::new(Jobs::new(world.clone()));
        let data = dir.path().join("data");
        let format = FormatOptions { plates, ..FormatOptions::default() };
        Server::format(&data, &format, &world).expect("formatted");
        let tree_jobs = has_jobs.then(|| jobs.clone() as _);
        let options = ServerOptions { tree_jobs, ..ServerOptions::default() };
        let server = Server::start(&data, options, world).expect("started");
        let site = Site { dir, jobs, _server: server };
        site._server.serve(&[site.address()]).expect("listening");
        site
    }

    pub(crate) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    fn address(&self) -> chiton_transport::Address {
        format!("unix:{}", self.dir.path().join("socket").display()).parse().expect("an address")
    }

    /// A client of this user, whoever runs the test.
    pub(crate) fn client(&self, uid: u32) -> Client {
        let options = ClientOptions {
            user: Some((uid, uid, Vec::new())),
            write_behind_after: None,
            ..ClientOptions::default()
        };
        Client::connect(&self.address(), options).expect("connected")
    }

    /// Makes directories of a hundred small files each, which belong to root.
    pub(crate) fn fill(&self, root: &str, dirs: usize) {
        let client = self.client(0);
        for dir in 0..dirs {
            let dir = format!("{root}/dir-{dir}");
            client.mkdir_all(&dir).expect("made");
            let names: Vec<String> = (0..100).map(|n| format!("file-{n}")).collect();
            assert!(client.create_many(&dir, &names).expect("asked").iter().all(Result::is_ok));
        }
        client.sync().expect("durable");
    }
}

/// Keeps what is refused, and ends the work after so many names.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) refused: Vec<(String, Refusal)>,
    pub(crate) ends_after: Option<u64>,
    pub(crate) names: u64,
}

impl Watch for Kept {
    fn refused(&mut self, refused: Refused) {
        self.refused.push((String::from_utf8_lossy(&refused.path).into_owned(), refused.refusal));
    }

    fn progress(&mut self, names: u64) {
        self.names = names;
    }

    fn is_stopped(&self) -> bool {
        self.ends_after.is_some_and(|most| self.names >= most)
    }
}
