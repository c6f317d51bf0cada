//! A server with jobs, and its clients.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_runtime::{RealWorld, SharedWorld, World, thread};
use chiton_server::{FormatOptions, Server, ServerOptions, TreeJobs};
use chiton_transport::Address;
use chiton_tree_jobs::Jobs;
use chiton_trees::{Found, Refused, Watch};
use chiton_types::{Refusal, Time};
use tempfile::TempDir;

pub(crate) const PLATES: [u16; 2] = [1, 3];

pub(crate) struct Site {
    dir: TempDir,
    jobs: Arc<Jobs>,
    server: Arc<Server>,
    clock: Arc<Clock>,
}

/// The clock of jobs, which a test can put forward.
#[derive(Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn put_forward(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl World for Clock {
    fn now(&self) -> Time {
        RealWorld.now()
    }

    fn monotonic(&self) -> Duration {
        RealWorld.monotonic() + Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn random(&self) -> u64 {
        RealWorld.random()
    }
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
        let clock = Arc::new(Clock::default());
        let jobs = Arc::new(Jobs::new(clock.clone()));
        let world: SharedWorld = Arc::new(RealWorld);
        let data = dir.path().join("data");
        let format = FormatOptions { plates, ..FormatOptions::default() };
        Server::format(&data, &format, &world).expect("formatted");
        let server = serve(&dir, has_jobs.then_some(&jobs));
        Site { dir, jobs, server, clock }
    }

    /// The server ends, and with it its jobs, of which the next one knows nothing.
    pub(crate) fn restart(&mut self) {
        let jobs = Arc::new(Jobs::new(self.clock.clone()));
        self.server.shutdown().expect("it ends");
        std::mem::replace(&mut self.jobs, jobs).has_no_plates();
        self.server = serve(&self.dir, Some(&self.jobs));
        self.jobs.serve(self.address(), None);
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// For a way to connect, which the jobs hold themselves.
    pub(crate) fn shared_jobs(&self) -> Weak<Jobs> {
        Arc::downgrade(&self.jobs)
    }

    pub(crate) fn address(&self) -> Address {
        address(&self.dir)
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

fn address(dir: &TempDir) -> Address {
    format!("unix:{}", dir.path().join("socket").display()).parse().expect("an address")
}

fn serve(dir: &TempDir, jobs: Option<&Arc<Jobs>>) -> Arc<Server> {
    let options = ServerOptions { tree_jobs: jobs.map(|jobs| jobs.clone() as _), ..ServerOptions::default() };
    let server = Server::start(&dir.path().join("data"), options, Arc::new(RealWorld)).expect("started");
    server.serve(&[address(dir)]).expect("listening");
    server
}

/// Keeps what is refused and found, and ends the work after so many names.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) refused: Vec<(String, Refusal)>,
    pub(crate) ends_after: Option<u64>,
    pub(crate) names: u64,
    pub(crate) found: Vec<Found>,
    /// The jobs that ended with their server.
    pub(crate) ended: Vec<u64>,
}

impl Watch for Kept {
    fn refused(&mut self, refused: Refused) {
        self.refused.push((String::from_utf8_lossy(&refused.path).into_owned(), refused.refusal));
    }

    fn found(&mut self, found: Found) {
        self.found.push(found);
    }

    fn restarted(&mut self, id: u64, _names: u64) {
        self.ended.push(id);
    }

    fn progress(&mut self, names: u64) {
        self.names = names;
    }

    fn is_stopped(&self) -> bool {
        self.ends_after.is_some_and(|most| self.names >= most)
    }
}
