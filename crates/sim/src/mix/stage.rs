//! The stage of a case: a server, the machines of clients, their disks, and a thread that waits for the write after
//! which a machine dies.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use chiton_client::data::FilesOptions;
use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{Journals, Realms, RealmsOptions};
use chiton_journal::{Place, Shape};
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread;
use chiton_server::{FilesystemInfo, ServerOptions};

use super::case::{Arm, Case, OfDisk, Victim};
use crate::canary::Canary;
use crate::disk::{Disk, DiskHandle};
use crate::history::{ClientId, ServerId};
use crate::net::{Net, Weather};
use crate::party::{LiveClient, LiveServer, ServerRig, format, run_in, start_server};
use crate::random::Random;
use crate::record::Recorder;
use crate::scheduler::{Party, scheduler};
use crate::structure;

/// The purpose of a stage.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Purpose {
    /// Clients decouple subtrees automatically if the policy says so.
    pub(super) decouples: bool,
    /// Whether writes of a client's journal are counted from its first one, if there is no journal yet.
    pub(super) awaits_journals: bool,
    /// A rule that the disks break.
    pub(super) canary: Option<Canary>,
}

/// Interval between checks for a death.
const LOOK: Duration = Duration::from_micros(30);
/// Pause before an operation is repeated that failed because of a death.
pub(super) const PAUSE: Duration = Duration::from_millis(300);
/// Most tries until nothing is left over.
const QUIET: u32 = 400;
/// The number of the client that changes the global namespace.
const THEIRS: u32 = 900;

/// A client at work.
pub(super) struct Desk {
    pub(super) live: Arc<LiveClient>,
    pub(super) client: Arc<Client>,
    pub(super) realms: Arc<Realms>,
}

type Disks = Arc<Mutex<BTreeMap<PathBuf, Arc<Disk>>>>;

struct Machine {
    live: Option<Arc<LiveClient>>,
    /// The disks of its local journals, by directory.
    disks: Disks,
    /// The next disk fails after this many changes.
    fails_at: Arc<AtomicU64>,
    lives: u32,
}

impl Machine {
    fn new() -> Machine {
        let fails_at = Arc::new(AtomicU64::new(u64::MAX));
        Machine { live: None, disks: Disks::default(), fails_at, lives: 0 }
    }
}

pub(super) struct Stage {
    purpose: Purpose,
    rig: ServerRig,
    info: Mutex<Option<FilesystemInfo>>,
    serving: Mutex<Option<LiveServer>>,
    server_lives: AtomicU32,
    machines: Vec<Mutex<Machine>>,
    arms: Mutex<VecDeque<Arm>>,
    deaths: AtomicU64,
    over: AtomicBool,
    scratch: PathBuf,
    options: ClientOptions,
    random: Mutex<Random>,
}

impl Stage {
    pub(super) fn new(case: &Case, recorder: &Recorder, scratch: &Path, purpose: Purpose) -> Arc<Stage> {
        let mut random = Random::new(case.seed, 21);
        let net = Net::new(case.seed, recorder.clone(), None);
        net.set_weather(Weather { delay_us: (30, *random.pick(&[120, 2_000])), cuts: 0 });
        let log = recorder.clone();
        let session_ms = random.between(3_000, 10_000) as u32;
        let options = ServerOptions {
            cache_bytes: *random.pick(&[16 << 10, 256 << 10, 64 << 20]),
            checkpoint_rows: *random.pick(&[10, 100, 1_000_000]),
            checkpoint_age: Duration::from_millis(random.between(300, 10_000)),
            session_ms,
            grace_ms: session_ms,
            journal: chiton_journal::Options {
                segment_bytes: *random.pick(&[1 << 10, 16 << 10, 1 << 20]),
                ..chiton_journal::Options::default()
            },
            log: Arc::new(move |line| log.line(format!("server: {line}"))),
            ..ServerOptions::default()
        };
        let files = FilesOptions {
            block_bytes: 4096,
            inline_bytes_max: *random.pick(&[0, 20, 4096]),
            dirty_bytes_max: 1 << 20,
            idle_files_max: *Random::new(case.seed, 22).pick(&[0, 4096]),
            ..FilesOptions::default()
        };
        let shape = if random.chance(1, 3) { Shape::Whole } else { Shape::Grows };
        let rig = ServerRig {
            disk: Disk::of_plates(case.plates, shape, case.seed, purpose.canary),
            net,
            recorder: recorder.clone(),
            options,
            drift_ppm: 0,
            seed: case.seed,
        };
        Arc::new(Stage {
            purpose,
            rig,
            info: Mutex::new(None),
            serving: Mutex::new(None),
            server_lives: AtomicU32::new(0),
            machines: case.sides.iter().map(|_| Mutex::new(Machine::new())).collect(),
            arms: Mutex::default(),
            deaths: AtomicU64::new(0),
            over: AtomicBool::new(false),
            scratch: scratch.to_owned(),
            options: ClientOptions {
                files,
                write_behind_after: None,
                decouples: purpose.decouples,
                ..ClientOptions::default()
            },
            random: Mutex::new(random),
        })
    }

    pub(super) fn net(&self) -> Net {
        self.rig.net.clone()
    }

    pub(super) fn line(&self, line: String) {
        // Messages name files in it, and it has another name in each run.
        self.rig.recorder.line(line.replace(&*self.scratch.to_string_lossy(), "SCRATCH"));
    }

    pub(super) fn is_over(&self) {
        self.over.store(true, SeqCst);
    }

    /// Number of machines that died.
    pub(super) fn deaths(&self) -> u64 {
        self.deaths.load(SeqCst)
    }

    pub(super) fn disk(&self) -> &Arc<Disk> {
        &self.rig.disk
    }

    /// Starts the first server and the watching thread.
    pub(super) fn begin(self: &Arc<Stage>) -> Result<(), String> {
        *self.info.lock() = Some(format(&self.rig));
        self.start()?;
        let stage = self.clone();
        scheduler().spawn_in(Party::OUTSIDE, "watch", move || stage.watch());
        Ok(())
    }

    pub(super) fn start(&self) -> Result<(), String> {
        let life = self.server_lives.fetch_add(1, SeqCst) + 1;
        let info = self.info.lock().clone().expect("formatted at the beginning");
        let live = start_server(&self.rig, &info, ServerId(0), life)?;
        *self.serving.lock() = Some(live);
        Ok(())
    }

    pub(super) fn shut_down(&self) -> Result<(), String> {
        let live = self.serving.lock().take().ok_or("there is no server")?;
        live.shutdown(&self.rig)
    }

    /// The server's status.
    pub(super) fn status(&self) -> Option<serde_json::Value> {
        let (party, server) = self.serving.lock().as_ref().map(|live| (live.party, live.server.clone()))?;
        let text = run_in(party, "status", move || server.report("status"))?;
        serde_json::from_str(&text).ok()
    }

    /// From here on they die, one after the other.
    pub(super) fn arm(&self, arms: &[Arm]) {
        self.arms.lock().extend(arms);
    }

    /// No more machines die.
    pub(super) fn disarm(&self) {
        self.arms.lock().clear();
        self.machines.iter().for_each(|machine| machine.lock().fails_at.store(u64::MAX, SeqCst));
        // A machine that is about to die does so.
        thread::sleep(Duration::from_millis(5));
        while self.serving.lock().is_none() {
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn watch(self: &Arc<Stage>) {
        let mut armed: Option<(Arm, Arc<Disk>, u64)> = None;
        while !self.over.load(SeqCst) {
            let Some((arm, disk, at)) = armed.clone() else {
                let next = self.arms.lock().front().copied();
                armed = next.and_then(|arm| self.set(arm));
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            if disk.points() >= at {
                self.strike(arm);
                self.arms.lock().pop_front();
                armed = None;
            } else if self.arms.lock().front() != Some(&arm) {
                // No more machines die.
                disk.set_crash_at(u64::MAX);
                armed = None;
            } else {
                thread::sleep(LOOK);
            }
        }
    }

    /// The disk whose writes are counted, and the count at which they die.
    fn set(&self, arm: Arm) -> Option<(Arm, Arc<Disk>, u64)> {
        let disk = match arm.of {
            OfDisk::Server => Some(self.rig.disk.clone()),
            OfDisk::Side(n) => self.disks(n).pop(),
        };
        let fails_at = |n: usize| self.machines[n].lock().fails_at.clone();
        let Some(disk) = disk else {
            match (arm.victim, arm.of) {
                (Victim::Side(_) | Victim::Both(_), OfDisk::Side(n)) if self.purpose.awaits_journals => {
                    fails_at(n).store(arm.after, SeqCst);
                }
                _ => drop(self.arms.lock().pop_front()),
            }
            return None;
        };
        let at = match arm.of {
            OfDisk::Side(n) if fails_at(n).swap(u64::MAX, SeqCst) != u64::MAX => arm.after,
            _ => disk.points() + arm.after,
        };
        let is_own = match (arm.victim, arm.of) {
            (Victim::Server | Victim::Both(_), OfDisk::Server) => true,
            (Victim::Side(n) | Victim::Both(n), OfDisk::Side(of)) => n == of,
            _ => false,
        };
        if is_own {
            // Not one write more.
            disk.set_crash_at(at);
        }
        Some((arm, disk, at))
    }

    fn strike(self: &Arc<Stage>, arm: Arm) {
        self.line(format!("dies: {arm:?}"));
        self.dies(arm.victim);
    }

    /// It dies now; the server is back, a moment later, when this returns.
    pub(super) fn dies(self: &Arc<Stage>, victim: Victim) {
        self.deaths.fetch_add(1, SeqCst);
        let (server, side) = match victim {
            Victim::Server => (true, None),
            Victim::Side(n) => (false, Some(n)),
            Victim::Both(n) => (true, Some(n)),
        };
        if let Some(n) = side {
            self.kill(n);
        }
        if server {
            let live = self.serving.lock().take();
            if let Some(live) = live {
                live.crash(&self.rig);
            }
            self.rig.disk.crash();
            let down = self.random.lock().between(1, 1_000);
            thread::sleep(Duration::from_millis(down));
            while let Err(why) = self.start() {
                self.line(format!("no start: {why}"));
                thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// The machine of a side's client loses its power.
    pub(super) fn kill(&self, n: usize) {
        let live = self.machines[n].lock().live.take();
        let late = self.random.lock().chance(1, 2);
        if let Some(live) = live {
            live.crash(&self.rig.net, &self.rig.recorder, late);
        }
        self.disks(n).iter().for_each(|disk| disk.crash());
    }

    /// Changes of a disk so far, of a client's all that it has.
    pub(super) fn points(&self, of: OfDisk) -> u64 {
        match of {
            OfDisk::Server => self.rig.disk.points(),
            OfDisk::Side(n) => self.disks(n).iter().map(|disk| disk.points()).sum(),
        }
    }

    /// Nothing is left over: sessions, orphans, decouplings …
    pub(super) fn quiet(&self) -> Result<(), String> {
        let names = [
            "orphans",
            "sessions",
            "recalls",
            "waiting",
            "open_inodes",
            "ended_sessions_to_sweep",
            "decouplings",
        ];
        let mut status = None;
        for _ in 0..QUIET {
            status = self.status();
            let left = |name: &&str| {
                let figure = status.as_ref().and_then(|status| status.get(*name));
                figure.and_then(|value| value.as_u64().or_else(|| value.as_array().map(|a| a.len() as u64)))
            };
            if status.is_some() && names.iter().all(|name| left(name).is_none_or(|count| count == 0)) {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        Err(format!("something is left over: {status:?}"))
    }

    /// Ends the server in order, and checks the stores.
    pub(super) fn ends_whole(&self) -> Result<(), String> {
        self.quiet()?;
        // Objects of ended decouplings are removed in the background.
        thread::sleep(Duration::from_secs(2));
        self.shut_down()?;
        let reported = |violation: crate::history::Violation| violation.what;
        structure::check(self.disk(), false).map_err(reported)?;
        let plates = self.info.lock().as_ref().expect("formatted at the beginning").plates();
        structure::check_realms(self.disk(), plates, false).map_err(reported)
    }

    fn disks(&self, n: usize) -> Vec<Arc<Disk>> {
        let disks = self.machines[n].lock().disks.clone();
        let disks = disks.lock();
        disks.values().cloned().collect()
    }

    /// A client that changes the global namespace.
    pub(super) fn others(&self) -> Result<Desk, String> {
        let live =
            LiveClient::new(ClientId(THEIRS), self.server_lives.fetch_add(1, SeqCst), 0, self.rig.seed);
        self.desk(live, &self.scratch.join("theirs"), None)
    }

    /// A side's client, in a new life. `elsewhere`: on a machine without the data of the earlier life.
    pub(super) fn machine(&self, n: usize, elsewhere: bool) -> Result<Desk, String> {
        let life = {
            let mut machine = self.machines[n].lock();
            machine.lives += 1;
            machine.lives
        };
        let live = LiveClient::new(ClientId(n as u32), life, 0, self.rig.seed);
        let number = if elsewhere { life } else { 0 };
        let desk = self.desk(live, &self.scratch.join(format!("side{n}-{number}")), Some(n))?;
        self.machines[n].lock().live = Some(desk.live.clone());
        Ok(desk)
    }

    fn desk(&self, live: Arc<LiveClient>, dir: &Path, of: Option<usize>) -> Result<Desk, String> {
        let (net, options) = (self.rig.net.clone(), live.options(&self.options));
        let (theirs, dir) = (live.clone(), dir.to_owned());
        let handles: Arc<Mutex<Vec<Arc<DiskHandle>>>> = Arc::default();
        let journals = of.map(|n| self.journals(n, &handles));
        let realms_options =
            RealmsOptions { state_dir: dir, client: options.clone(), accept_truncated: false };
        let made = run_in(live.party, "connect", move || {
            let client = theirs.connect(&net, &options)?;
            let realms = match journals {
                Some(journals) => Realms::with_journals(client.clone(), realms_options, journals),
                None => Realms::new(client.clone(), realms_options),
            };
            Some((client, realms))
        });
        let (client, realms) = made.ok_or("no connection")?;
        let (dying, party) = (Arc::downgrade(&realms), live.party);
        live.when_it_dies(move || {
            handles.lock().iter().for_each(|disk_handle| disk_handle.cut());
            if let Some(realms) = dying.upgrade() {
                scheduler()
                    .spawn_in(party, "grave", move || realms.list().iter().for_each(|realm| realm.abandon()));
            }
        });
        Ok(Desk { live, client, realms })
    }

    /// The places of the journals of a machine.
    fn journals(&self, n: usize, handles: &Arc<Mutex<Vec<Arc<DiskHandle>>>>) -> Journals {
        let (handles, seed, canary) = (handles.clone(), self.rig.seed ^ n as u64, self.purpose.canary);
        let (disks, fails_at) = {
            let machine = self.machines[n].lock();
            (machine.disks.clone(), machine.fails_at.clone())
        };
        Arc::new(move |dir: &Path| {
            let mut disks = disks.lock();
            let disk = disks.entry(dir.to_owned()).or_insert_with(|| {
                let disk = Disk::new(Shape::Grows, seed, canary);
                disk.set_crash_at(fails_at.load(SeqCst));
                disk
            });
            let disk_handle = disk.handle();
            handles.lock().push(disk_handle.clone());
            Ok(disk_handle as Arc<dyn Place>)
        })
    }
}
