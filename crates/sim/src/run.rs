//! One run: a phase in which things go wrong, then one in which everything must heal completely, then the judges.
//!
//! ```text
//!   format ─ start ─ clients work, faults happen ─┬─ all faults end ─ every call is answered ─ nothing is left over
//!                                                 │   ─ the tree is read ─ restart ─ it is read again: the same
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use chiton_client::ClientOptions;
use chiton_client::data::FilesOptions;
use chiton_journal::Shape;
use chiton_server::{FilesystemInfo, ServerOptions};
use chiton_world::sync::Mutex;
use chiton_world::thread;

use crate::canary::Canary;
use crate::disk::{Disk, Mood};
use crate::history::{Action, Answer, ClientId, Happened, History, ServerId, Violation};
use crate::judge::{is_of_the_outside, judge};
use crate::net::{self, Net, Weather};
use crate::party::{LiveClient, LiveServer, ServerRig, format, run_in, start_server};
use crate::perform::{Handles, perform, read_tree};
use crate::plan::{BOARD, Fault, LOG, OWN, Plan, SHARED, Step};
use crate::record::Recorder;
use crate::structure;
use crate::tree::Tree;
use crate::turns::{Party, Running, Stuck, Turns, turns};

/// What may pass before everything is healed, in simulated time.
const HEAL: Duration = Duration::from_secs(600);
/// Longest phase of faults.
const WORK: Duration = Duration::from_secs(3_600);
/// The number of the one who prepares and reads.
const OBSERVER: ClientId = ClientId(999);

/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// What happened.
    pub history: History,
    /// The same in lines, with more.
    pub lines: Vec<(Duration, String)>,
    /// What is wrong.
    pub violations: Vec<Violation>,
    /// Says which way the run went.
    pub fingerprint: u64,
    /// Simulated time.
    pub simulated: Duration,
    /// Turns of threads.
    pub turns: u64,
}

/// Runs a plan.
pub fn run(plan: &Plan, canary: Option<Canary>) -> Outcome {
    let turns = Turns::begin(plan.seed);
    let recorder = Recorder::default();
    let cluster = Arc::new(Cluster::new(plan, canary, &recorder));
    net::enter(Some(cluster.rig.net.clone()));
    let ended = Arc::new(Mutex::new(None));
    let (c, e) = (cluster.clone(), ended.clone());
    turns.spawn_in(Party::OUTSIDE, "run", move || {
        let result = c.live();
        *e.lock() = Some(result);
    });
    let mut violations = Vec::new();
    match turns.run(WORK + HEAL, || ended.lock().is_some()) {
        Ok(()) => violations.extend(ended.lock().take().and_then(Result::err)),
        Err(stuck) => violations.push(stuck_violation(&stuck)),
    }
    // Whatever is left of the dead may end.
    if violations.is_empty() {
        wind_down(&turns);
    }
    net::enter(None);
    let (fingerprint, simulated, count) = (turns.fingerprint(), turns.now(), turns.count());
    let (history, lines) = recorder.take();
    if !violations.is_empty() {
        // What is in the midst of something cannot be ended any more.
        std::mem::forget(cluster);
    }
    drop(turns);
    violations.extend(judge(&history));
    Outcome { history, lines, violations, fingerprint, simulated, turns: count }
}

fn wind_down(turns: &Running) {
    // Deadlocks among the dead are nobody's business.
    let _ = turns.run(turns.now() + Duration::from_secs(30), || false);
}

fn stuck_violation(stuck: &Stuck) -> Violation {
    let what = match stuck {
        Stuck::Panicked(what) => what.clone(),
        Stuck::Deadlock(who) => format!("nothing can go on; there are: {who}"),
        Stuck::TooLong(who) => format!("it does not end; there are: {who}"),
    };
    Violation { checker: "liveness", what }
}

fn heal_violation(what: impl Into<String>) -> Violation {
    Violation { checker: "healing", what: what.into() }
}

/// The server at present, and what it should be.
#[derive(Default)]
struct Serving {
    live: Option<LiveServer>,
    /// Being started or ended by somebody.
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
    clients: Vec<Program>,
    client_options: ClientOptions,
    healing: AtomicBool,
}

/// What one client does over all its lives.
struct Program {
    id: ClientId,
    steps: Vec<Step>,
    next: AtomicUsize,
    lives: AtomicU32,
    /// Directories of its own so far.
    roots: AtomicUsize,
    live: Mutex<Option<Arc<LiveClient>>>,
    done: AtomicBool,
}

impl Cluster {
    fn new(plan: &Plan, canary: Option<Canary>, recorder: &Recorder) -> Cluster {
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
            dirty_bytes_max: 1 << 20,
            ..FilesOptions::default()
        };
        let client_options = ClientOptions { files, kept_bytes_max: 256 << 10, ..ClientOptions::default() };
        let rig = ServerRig {
            disk: Disk::new(shape, plan.seed, canary),
            net,
            recorder: recorder.clone(),
            options,
            drift_ppm: setup.drift_ppm.first().copied().unwrap_or(0),
            seed: plan.seed,
        };
        let program = |(n, steps): (usize, &Vec<Step>)| Program {
            id: ClientId(n as u32),
            steps: steps.clone(),
            next: AtomicUsize::new(0),
            lives: AtomicU32::new(0),
            roots: AtomicUsize::new(0),
            live: Mutex::new(None),
            done: AtomicBool::new(false),
        };
        Cluster {
            plan: plan.clone(),
            rig,
            recorder: recorder.clone(),
            info: Mutex::new(None),
            serving: Mutex::default(),
            clients: plan.clients.iter().enumerate().map(program).collect(),
            client_options,
            healing: AtomicBool::new(false),
        }
    }

    /// The whole run.
    fn live(self: &Arc<Cluster>) -> Result<(), Violation> {
        *self.info.lock() = Some(format(&self.rig));
        self.start();
        self.prepare()?;
        for n in 0..self.clients.len() {
            self.begin_client(n);
        }
        let begun = turns().now();
        for (at, fault) in &self.plan.faults {
            let due = begun + *at;
            if due > turns().now() {
                thread::sleep(due - turns().now());
            }
            self.recorder.line(format!("fault: {fault:?}"));
            let (cluster, fault) = (self.clone(), fault.clone());
            turns().spawn_in(Party::OUTSIDE, "fault", move || cluster.happens(&fault));
        }
        self.heal()
    }

    fn info(&self) -> FilesystemInfo {
        self.info.lock().clone().expect("formatted at the beginning")
    }

    /// Starts a server, if there is none; tries until it succeeds.
    fn start(&self) {
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

    /// Directories that everybody uses.
    fn prepare(self: &Arc<Cluster>) -> Result<(), Violation> {
        self.observe(|client| {
            let mut handles = Handles::new();
            let mut actions: Vec<Action> =
                [LOG, SHARED].iter().map(|path| Action::Mkdir { path: (*path).to_owned() }).collect();
            actions.push(Action::Create { path: BOARD.to_owned(), content: Vec::new() });
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

    fn begin_client(self: &Arc<Cluster>, n: usize) {
        let program = &self.clients[n];
        let life = program.lives.fetch_add(1, SeqCst);
        let drift = self.plan.setup.drift_ppm.get(n + 1).copied().unwrap_or(0);
        let live = LiveClient::new(program.id, life, drift, self.plan.seed);
        *program.live.lock() = Some(live.clone());
        let cluster = self.clone();
        turns().spawn_in(live.party, "program", move || cluster.work(n, &live));
    }

    /// What a client does in one life.
    fn work(&self, n: usize, live: &Arc<LiveClient>) {
        let program = &self.clients[n];
        let Some(client) = live.connect(&self.rig.net, &self.client_options) else { return };
        self.recorder.push(Happened::ClientStarted { client: program.id });
        let mut handles = Handles::new();
        let mut root = None;
        let mut losses = 0;
        while !live.is_over() {
            let at = program.next.load(SeqCst);
            let Some(step) = program.steps.get(at) else { break };
            program.next.store(at + 1, SeqCst);
            if !self.healing.load(SeqCst) {
                thread::sleep(step.pause);
            }
            let lost = self.recorder.losses(live.id, live.life);
            if lost != losses {
                // What was answered and not durable may be lost: go on elsewhere.
                losses = lost;
                root = None;
                self.let_go(&client, &mut handles);
            }
            if root.is_none() {
                let number = program.roots.fetch_add(1, SeqCst);
                let path = format!("{OWN}{}-{number}", program.id.0);
                let answer = self.act(live, &client, &mut handles, &Action::Mkdir { path: path.clone() });
                if !matches!(answer, Answer::Attr(_)) {
                    continue;
                }
                root = Some(path);
            }
            let action = in_root(&step.action, root.as_deref().expect("made above"));
            if !fits(&action, &handles) {
                continue;
            }
            let answer = self.act(live, &client, &mut handles, &action);
            if let Answer::Refused(refusal) = answer
                && is_of_the_outside(refusal)
            {
                // What became of it is not known: go on elsewhere.
                root = None;
                self.let_go(&client, &mut handles);
            }
        }
        if live.is_over() {
            return;
        }
        for name in handles.keys().copied().collect::<Vec<_>>() {
            self.act(live, &client, &mut handles, &Action::Close { handle: name });
        }
        // Who leaves before everything is durable has nobody to send it again.
        while self.act(live, &client, &mut handles, &Action::Sync) != Answer::Done && !live.is_over() {
            thread::sleep(Duration::from_millis(500));
        }
        if !live.is_over() {
            drop(client);
            live.end();
            program.done.store(true, SeqCst);
        }
    }

    /// Closes what is open, unrecorded. Errors are those of the calls before.
    fn let_go(&self, client: &chiton_client::Client, handles: &mut Handles) {
        for fh in std::mem::take(handles).into_values() {
            let _ = client.release(fh);
        }
    }

    /// One call, recorded.
    fn act(
        &self,
        live: &LiveClient,
        client: &chiton_client::Client,
        handles: &mut Handles,
        action: &Action,
    ) -> Answer {
        let call = self.recorder.next_call();
        if !live.is_over() {
            self.recorder.push(Happened::Invoked { client: live.id, call, action: action.clone() });
        }
        let answer = perform(client, handles, action);
        if !live.is_over() {
            self.recorder.push(Happened::Returned { client: live.id, call, answer: answer.clone() });
        }
        answer
    }

    /// A fault, from its beginning to its end.
    fn happens(self: &Arc<Cluster>, fault: &Fault) {
        let disk = &self.rig.disk;
        match fault {
            Fault::CrashServer { down } => {
                self.crash_server();
                thread::sleep(*down);
                self.start();
            }
            Fault::RestartServer { down } => {
                let live = self.serving.lock().live.take();
                if let Some(live) = live {
                    self.serving.lock().busy = true;
                    turns().pause(live.party, false);
                    if let Err(why) = live.shutdown(&self.rig) {
                        self.recorder.line(format!("shutdown: {why}"));
                    }
                    if !self.plan.setup.whole {
                        self.rig.disk.crash();
                    }
                    self.serving.lock().busy = false;
                }
                thread::sleep(*down);
                self.start();
            }
            Fault::PauseServer { time } => {
                let found = self.serving.lock().live.as_ref().map(|live| (live.party, live.id));
                if let Some((party, server)) = found {
                    turns().pause(party, true);
                    self.recorder.push(Happened::ServerPaused { server });
                    thread::sleep(*time);
                    turns().pause(party, false);
                    self.recorder.push(Happened::ServerResumed { server });
                }
            }
            Fault::TakeOver { time } => self.take_over(*time),
            Fault::CrashClient { client, down, late } => {
                let program = &self.clients[*client];
                let live = program.live.lock().take();
                let Some(live) = live.filter(|live| !live.is_over()) else { return };
                live.crash(&self.rig.net, &self.recorder, *late);
                thread::sleep(*down);
                self.begin_client(*client);
            }
            Fault::PauseClient { client, time } => {
                let party = self.clients[*client].live.lock().as_ref().map(|live| live.party);
                if let Some(party) = party {
                    turns().pause(party, true);
                    thread::sleep(*time);
                    turns().pause(party, false);
                }
            }
            Fault::Cut { client, late } => self.rig.net.cut_client(ClientId(*client as u32), *late),
            Fault::Isolate { client, time } => {
                self.rig.net.set_isolated(ClientId(*client as u32), true);
                thread::sleep(*time);
                self.rig.net.set_isolated(ClientId(*client as u32), false);
            }
            Fault::BadWeather { time, cuts, delay_us_max } => {
                self.rig.net.set_weather(Weather { delay_us: (30, *delay_us_max), cuts: *cuts });
                thread::sleep(*time);
                self.good_weather();
            }
            Fault::SlowDisk { time, slowness } => {
                self.for_a_while(*time, Mood { slowness: *slowness, ..disk.mood() })
            }
            Fault::SilentDisk { time, often } => {
                self.for_a_while(*time, Mood { place_silent: *often, objects_silent: *often, ..disk.mood() });
            }
            Fault::RowsFail { time, often } => {
                self.for_a_while(*time, Mood { rows_fail: *often, ..disk.mood() })
            }
            Fault::FullDisk { time } => self.for_a_while(*time, Mood { full: true, ..disk.mood() }),
            Fault::SetClock { wrong_ms } => {
                self.recorder.push(Happened::ClockSet);
                if let Some(live) = &self.serving.lock().live {
                    live.world.set_wrong(wrong_ms * 1_000_000);
                }
            }
        }
    }

    fn good_weather(&self) {
        self.rig.net.set_weather(Weather { delay_us: (30, self.plan.setup.delay_us_max), cuts: 0 });
    }

    fn for_a_while(&self, time: Duration, mood: Mood) {
        self.rig.disk.set_mood(mood);
        thread::sleep(time);
        self.rig.disk.set_mood(Mood::GOOD);
    }

    /// The server stands still, and another one takes its place.
    fn take_over(&self, time: Duration) {
        let first = {
            let mut serving = self.serving.lock();
            let Some(live) = serving.live.take() else { return };
            serving.servers += 1;
            live
        };
        turns().pause(first.party, true);
        self.recorder.push(Happened::ServerPaused { server: first.id });
        self.rig.net.hide();
        self.start();
        thread::sleep(time);
        turns().pause(first.party, false);
        self.recorder.push(Happened::ServerResumed { server: first.id });
        // Whoever still has a connection to it asks it; it may answer, but acknowledge nothing.
        thread::sleep(Duration::from_secs(2));
        first.crash(&self.rig);
    }

    /// All faults end; everything must come right.
    fn heal(self: &Arc<Cluster>) -> Result<(), Violation> {
        let all_done = |cluster: &Cluster| cluster.clients.iter().all(|program| program.done.load(SeqCst));
        let patience = turns().now() + WORK / 2;
        // Long programs are cut short by time, not by number.
        while !all_done(self) && turns().now() < patience {
            thread::sleep(Duration::from_millis(200));
            if self.plan.faults.iter().all(|(at, _)| *at < turns().now()) {
                break;
            }
        }
        // The last faults come to their ends.
        thread::sleep(Duration::from_secs(45));
        self.healing.store(true, SeqCst);
        self.recorder.line("healing begins".to_owned());
        self.rig.disk.set_mood(Mood::GOOD);
        self.good_weather();
        let deadline = turns().now() + HEAL;
        while !all_done(self) {
            if turns().now() > deadline {
                return Err(heal_violation(format!(
                    "calls are not answered {} s after the last fault: {}",
                    HEAL.as_secs(),
                    self.unanswered()
                )));
            }
            if self.is_failed() {
                // An administrator starts a server anew whose journal failed.
                self.crash_server();
            }
            self.start();
            thread::sleep(Duration::from_millis(500));
        }
        self.start();
        self.wait_quiet(deadline)?;
        let before = self.observe(read_tree)?;
        self.recorder.push(Happened::Observed { tree: before.clone() });
        self.wait_quiet(deadline)?;
        self.shut_down()?;
        let strays = self.plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::TakeOver { .. }));
        structure::check(&self.rig.disk, strays)?;
        self.start();
        let after = self.observe(read_tree)?;
        self.shut_down()?;
        same(&before, &after)
    }

    fn shut_down(&self) -> Result<(), Violation> {
        let live = self.serving.lock().live.take().ok_or_else(|| heal_violation("there is no server"))?;
        live.shutdown(&self.rig).map_err(|why| heal_violation(format!("the server does not end well: {why}")))
    }

    fn status(&self) -> Option<serde_json::Value> {
        let (party, server) =
            self.serving.lock().live.as_ref().map(|live| (live.party, live.server.clone()))?;
        let text = run_in(party, "status", move || server.report("status"))?;
        serde_json::from_str(&text).ok()
    }

    fn is_failed(&self) -> bool {
        self.status().is_some_and(|status| status["health"] == "failed")
    }

    /// Calls that are under way, of each client.
    fn unanswered(&self) -> String {
        let waiting = self.clients.iter().filter(|program| !program.done.load(SeqCst)).map(|program| {
            let at = program.next.load(SeqCst);
            let step = program.steps.get(at.saturating_sub(1));
            format!("client {} at step {at}: {:?}", program.id.0, step.map(|step| &step.action))
        });
        waiting.collect::<Vec<_>>().join("; ")
    }

    /// Waits until nothing is left over: no session of a client, no orphan, no recall.
    fn wait_quiet(&self, deadline: Duration) -> Result<(), Violation> {
        loop {
            let status = self.status();
            let left = |name: &str| {
                let figure = status.as_ref().and_then(|status| status.get(name));
                figure.and_then(|value| value.as_u64().or_else(|| value.as_array().map(|a| a.len() as u64)))
            };
            let names =
                ["orphans", "sessions", "recalls", "parked", "open_inodes", "ended_sessions_to_sweep"];
            if status.is_some() && names.iter().all(|name| left(name).is_none_or(|count| count == 0)) {
                return Ok(());
            }
            if turns().now() > deadline {
                return Err(heal_violation(format!("something is left over: {status:?}")));
            }
            thread::sleep(Duration::from_millis(500));
        }
    }
}

/// The action with its own paths in `root`.
fn in_root(action: &Action, root: &str) -> Action {
    let mut action = action.clone();
    for path in action.paths_mut() {
        if let Some(rest) = path.strip_prefix(OWN) {
            *path = format!("{root}{rest}");
        }
    }
    action
}

/// Whether the handle that an action needs is open.
fn fits(action: &Action, handles: &Handles) -> bool {
    match action {
        Action::Write { handle, .. }
        | Action::PunchHole { handle, .. }
        | Action::Read { handle, .. }
        | Action::Fsync { handle }
        | Action::Close { handle } => handles.contains_key(handle),
        _ => true,
    }
}

fn same(before: &Tree, after: &Tree) -> Result<(), Violation> {
    if before == after {
        return Ok(());
    }
    let paths = before.nodes.keys().chain(after.nodes.keys());
    let differs = paths.clone().find(|path| before.nodes.get(*path) != after.nodes.get(*path));
    let path = differs.map_or("?", String::as_str);
    Err(heal_violation(format!(
        "after an orderly restart {path} is {:?}, was {:?}",
        after.nodes.get(path),
        before.nodes.get(path)
    )))
}
