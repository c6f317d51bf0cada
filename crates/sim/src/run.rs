//! One run: a phase in which things go wrong, then one in which everything must heal completely, then the judges.
//!
//! ```text
//!   format ─ start ─ clients work, faults happen ─┬─ all faults end ─ every call is answered ─ nothing is left over
//!                                                 │   ─ the tree is read ─ restart ─ it is read again: the same
//! ```

mod faults;
mod heal;
mod job;
mod program;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use chiton_client::ClientOptions;
use chiton_client::data::FilesOptions;
use chiton_journal::Shape;
use chiton_model::XattrHow;
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread;
use chiton_server::{FilesystemInfo, ServerOptions};
use chiton_types::Ino;
use program::Program;

use crate::canary::Canary;
use crate::disk::Disk;
use crate::history::{Action, Answer, ClientId, History, ServerId, Violation};
use crate::judge::judge;
use crate::net::{self, Net, Weather};
use crate::part_steps::StepCounts;
use crate::party::{LiveClient, LiveServer, ServerRig, format, run_in, start_server};
use crate::perform::{Handles, perform};
use crate::plan::{BOARD, IDLE, LOG, NOTE, NOTES, PATHS, Plan, SHARED, Step, TAIL, TAILS, TOPS};
use crate::record::Recorder;
use crate::scheduler::{Party, Running, Scheduler, Stuck, scheduler};
use crate::users::User;

/// Maximum simulated time until everything is healed.
const HEAL: Duration = Duration::from_secs(600);
/// Maximum length of the phase of faults.
const WORK: Duration = Duration::from_secs(3_600);
/// So often a server is started when nothing goes wrong any more.
const STARTS_MAX: u32 = 20;
/// The client that prepares and reads.
const OBSERVER: ClientId = ClientId(999);

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    pub history: History,
    /// The same in lines, with more.
    pub lines: Vec<(Duration, String)>,
    pub violations: Vec<Violation>,
    /// A hash of the run's course.
    pub fingerprint: u64,
    pub simulated: Duration,
    /// Number of turns of threads.
    pub turns: u64,
    /// The steps by which directories were split and folded.
    pub steps: StepCounts,
}

pub fn run(plan: &Plan, canary: Option<Canary>) -> Outcome {
    let scheduler = Scheduler::begin(plan.seed);
    if let Some(locks) = plan.setup.stall_one_in {
        scheduler.stall_one_in(locks, plan.seed);
    }
    let recorder = Recorder::default();
    // Directories of jobs' clients; their journals are not in them.
    let scratch = (!plan.setup.roles.is_empty()).then(scratch);
    let scratch_path = scratch.as_ref().map_or_else(PathBuf::new, |dir| dir.path().to_owned());
    let cluster = Arc::new(Cluster::new(plan, canary, &recorder, scratch_path));
    net::enter(Some(cluster.rig.net.clone()));
    let ended = Arc::new(Mutex::new(None));
    let (c, e) = (cluster.clone(), ended.clone());
    scheduler.spawn_in(Party::OUTSIDE, "run", move || {
        let result = c.live();
        *e.lock() = Some(result);
    });
    let mut violations = Vec::new();
    match scheduler.run(WORK + HEAL, || ended.lock().is_some()) {
        Ok(()) => violations.extend(ended.lock().take().and_then(Result::err)),
        Err(stuck) => violations.push(stuck_violation(&stuck)),
    }
    // Threads of dead parties may end.
    if violations.is_empty() {
        wind_down(&scheduler);
    }
    net::enter(None);
    let (fingerprint, simulated, count) = (scheduler.fingerprint(), scheduler.now(), scheduler.count());
    let steps = cluster.rig.disk.steps();
    let (history, lines) = recorder.take();
    if !violations.is_empty() {
        // A thread in the middle of a call cannot be ended.
        std::mem::forget(cluster);
    }
    drop(scheduler);
    violations.extend(judge(&history));
    Outcome { history, lines, violations, fingerprint, simulated, turns: count, steps }
}

/// A directory in memory, if there is one.
fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a temporary directory")
}

fn wind_down(scheduler: &Running) {
    // Deadlocks among dead parties do not matter.
    let _ = scheduler.run(scheduler.now() + Duration::from_secs(30), || false);
}

fn stuck_violation(stuck: &Stuck) -> Violation {
    let what = match stuck {
        Stuck::Panicked(what) => what.clone(),
        Stuck::Deadlock(who) => format!("nothing can continue; there are: {who}"),
        Stuck::TooLong(who) => format!("it does not end; there are: {who}"),
    };
    Violation { checker: "liveness", what }
}

fn heal_violation(what: impl Into<String>) -> Violation {
    Violation { checker: "healing", what: what.into() }
}

/// The present server, and the intended one.
#[derive(Default)]
struct Serving {
    live: Option<LiveServer>,
    /// A thread starts or ends it.
    busy: bool,
    lives: u32,
    servers: u32,
}

struct Cluster {
    plan: Plan,
    rig: ServerRig,
    recorder: Recorder,
    info: Mutex<Option<FilesystemInfo>>,
    serving: Mutex<Serving>,
    clients: Vec<Arc<Program>>,
    canary: Option<Canary>,
    scratch: PathBuf,
    /// Directories whose decoupling was acknowledged.
    begun: Mutex<BTreeSet<Ino>>,
    client_options: ClientOptions,
    healing: AtomicBool,
    /// Why no server starts although nothing goes wrong any more.
    no_start: Mutex<Option<String>>,
}

impl Cluster {
    fn new(plan: &Plan, canary: Option<Canary>, recorder: &Recorder, scratch: PathBuf) -> Cluster {
        let setup = &plan.setup;
        let shape = if setup.whole { Shape::Whole } else { Shape::Grows };
        let net = Net::new(plan.seed, recorder.clone(), canary);
        net.set_weather(Weather { delay_us: (30, setup.delay_us_max), cuts: 0 });
        let log = recorder.clone();
        let options = ServerOptions {
            cache_bytes: setup.cache_bytes,
            checkpoint_rows: setup.checkpoint_rows,
            checkpoint_age: setup.checkpoint_age,
            session_ms: setup.session_ms,
            grace_ms: setup.grace_ms,
            lease_entries_max: setup.leases_max,
            journal: chiton_journal::Options {
                segment_bytes: setup.segment_bytes,
                ..chiton_journal::Options::default()
            },
            log: Arc::new(move |line| log.line(format!("server: {line}"))),
            ..ServerOptions::default()
        };
        let files = FilesOptions {
            block_bytes: setup.block_bytes,
            inline_bytes_max: setup.inline_bytes_max,
            idle_files_max: setup.idle_files_max,
            dirty_bytes_max: 1 << 20,
            ..FilesOptions::default()
        };
        let client_options = ClientOptions {
            files,
            kept_bytes_max: 256 << 10,
            write_behind_after: setup.write_behind_after,
            ..ClientOptions::default()
        };
        let rig = ServerRig {
            disk: Disk::of_plates(setup.plates, shape, plan.seed, canary),
            net,
            recorder: recorder.clone(),
            options,
            drift_ppm: setup.drift_ppm.first().copied().unwrap_or(0),
            seed: plan.seed,
        };
        let program = |(n, steps): (usize, &Vec<Step>)| {
            Arc::new(Program {
                id: ClientId(n as u32),
                steps: steps.clone(),
                next: AtomicUsize::new(0),
                lives: AtomicU32::new(0),
                roots: AtomicUsize::new(0),
                live: Mutex::new(None),
                done: AtomicBool::new(false),
                apart: Mutex::default(),
            })
        };
        Cluster {
            plan: plan.clone(),
            rig,
            recorder: recorder.clone(),
            info: Mutex::new(None),
            serving: Mutex::default(),
            clients: plan.clients.iter().enumerate().map(program).collect(),
            canary,
            scratch,
            begun: Mutex::default(),
            client_options,
            healing: AtomicBool::new(false),
            no_start: Mutex::default(),
        }
    }

    /// Runs the plan from its start to the end of the healing.
    fn live(self: &Arc<Cluster>) -> Result<(), Violation> {
        *self.info.lock() = Some(format(&self.rig));
        self.start();
        self.prepare()?;
        for n in 0..self.clients.len() {
            self.begin_client(n);
        }
        let begun = scheduler().now();
        for (at, fault) in &self.plan.faults {
            let due = begun + *at;
            if due > scheduler().now() {
                thread::sleep(due - scheduler().now());
            }
            self.recorder.line(format!("fault: {fault:?}"));
            let (cluster, fault) = (self.clone(), fault.clone());
            scheduler().spawn_in(Party::OUTSIDE, "fault", move || cluster.happens(&fault));
        }
        self.heal()
    }

    /// The user that carries out a user's calls.
    fn acting(&self, user: User) -> User {
        if self.canary == Some(Canary::CallersAreRoot) { User::Root } else { user }
    }

    fn info(&self) -> FilesystemInfo {
        self.info.lock().clone().expect("formatted at the beginning")
    }

    /// Starts a server, if there is none; tries until it succeeds, or for as long as a start may take when nothing goes
    /// wrong any more.
    fn start(&self) {
        let mut healthy = 0;
        loop {
            let (id, life) = {
                let mut serving = self.serving.lock();
                if serving.live.is_some() || serving.busy {
                    return;
                }
                serving.busy = true;
                serving.lives += 1;
                (ServerId(serving.servers), serving.lives)
            };
            let started = start_server(&self.rig, &self.info(), id, life);
            let mut serving = self.serving.lock();
            serving.busy = false;
            match started {
                Ok(live) => {
                    serving.live = Some(live);
                    return;
                }
                Err(why) => {
                    drop(serving);
                    self.recorder.line(format!("no start: {why}"));
                    healthy += u32::from(self.healing.load(SeqCst));
                    if healthy == STARTS_MAX {
                        *self.no_start.lock() = Some(why);
                        return;
                    }
                    thread::sleep(Duration::from_millis(500));
                }
            }
        }
    }

    fn crash_server(&self) {
        let live = self.serving.lock().live.take();
        if let Some(live) = live {
            live.crash(&self.rig);
            self.rig.disk.crash();
        }
    }

    /// Creates the shared directories.
    fn prepare(self: &Arc<Cluster>) -> Result<(), Violation> {
        // Only in runs that use them, so that other seeds keep their runs.
        let tails = if self.plan.appends() { TAILS } else { 0 };
        let tops = if self.plan.has_paths() { TOPS } else { 0 };
        let split_at = self.plan.setup.split_at;
        if split_at.is_some() {
            self.recorder.splits();
            self.rig.disk.count_steps(self.info().plates());
        }
        self.observe(move |client| {
            let mut handles = Handles::new();
            if let Some(names) = split_at {
                let policy = format!("huge: threshold\nhuge_threshold: {names}");
                let (me, name) = (client.caller(), b"chiton.policy");
                let set = client.setxattr(&me, Ino::ROOT, name, policy.as_bytes(), XattrHow::Set);
                set.map_err(|refusal| format!("the policy is refused: {refusal}"))?;
            }
            let dirs = [LOG.to_owned(), SHARED.to_owned()].into_iter();
            let dirs = dirs.chain((tops > 0).then(|| PATHS.to_owned()));
            let dirs = dirs.chain((0..tops).map(|n| format!("{PATHS}/t{n}")));
            let mut actions: Vec<Action> = dirs.map(|path| Action::Mkdir { path, mode: 0o755 }).collect();
            let notes = (0..NOTES).map(|n| format!("{NOTE}{n}"));
            let tails = (0..tails).map(|n| format!("{TAIL}{n}"));
            let idle = split_at.map_or(0, |_| IDLE);
            let idle = (0..idle).map(|n| format!("{SHARED}/idle{n}"));
            let files = notes.chain([BOARD.to_owned()]).chain(tails).chain(idle);
            actions.extend(files.map(|path| Action::Create { path, content: Vec::new() }));
            actions.push(Action::Sync);
            for action in actions {
                if let Answer::Refused(refusal) = perform(client, &mut handles, &action) {
                    return Err(format!("{action:?} is refused: {refusal}"));
                }
            }
            Ok(())
        })
    }

    /// Does something with a fresh client.
    fn observe<T: Send + 'static>(
        self: &Arc<Cluster>,
        body: impl FnOnce(&chiton_client::Client) -> Result<T, String> + Send + 'static,
    ) -> Result<T, Violation> {
        let life = {
            let mut serving = self.serving.lock();
            serving.lives += 1;
            serving.lives
        };
        let live = LiveClient::new(OBSERVER, life, 0, self.plan.seed);
        let (net, options) = (self.rig.net.clone(), self.client_options.clone());
        let result = run_in(live.party, "observer", move || {
            let client = live.connect(&net, &options).ok_or_else(|| "no connection".to_owned())?;
            let result = body(&client);
            drop(client);
            live.end();
            result
        });
        result.map_err(heal_violation)
    }
}
