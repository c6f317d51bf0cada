//! The plan of a run, drawn from its seed before it begins: plain data, so that a failing run can be shortened.
//!
//! Swarm: each run draws which operations and which faults it knows at all, and how often, so that rare ones also
//! meet in great numbers (Groce et al. 2012).

mod appends;
mod company;
mod jobs;
mod parts;
mod paths;
mod rivals;
mod users;

use std::time::Duration;

use chiton_types::Time;

use crate::history::{Action, Handle};
use crate::random::Random;
use crate::users::User;

pub(crate) use appends::{appends_by, appends_to};
pub(crate) use company::at_home;
pub use jobs::{Job, MARK, Role, is_content_of_mark};
pub(crate) use parts::IDLE;
pub(crate) use paths::{PATHS, TOPS};

/// In place of the directory that only one life of a client uses.
pub const OWN: &str = "/own";
/// Where each client creates files that no other client creates.
pub const LOG: &str = "/log";
/// Where clients make and remove the same few names.
pub const SHARED: &str = "/shared";
/// A file whose attributes are written and read by all.
pub const BOARD: &str = "/board";
/// In paths, stands for the directory in a job's subtree where other clients create files: `/theirs` and the number
/// of the job's client.
pub const THEIRS: &str = "/theirs";
/// The part that all paths of such files have.
pub const VISITS: &str = "/theirs/x";
/// Number of things on the board.
pub const THINGS: u64 = 3;
/// Files that are written and read as a whole by all: `/note0` and on.
pub const NOTE: &str = "/note";
pub const NOTES: u64 = 2;
/// Files to which all append records: `/tail0` and on.
pub const TAIL: &str = "/tail";
pub const TAILS: u64 = 2;
/// Bytes of a note: all versions are of one length.
const NOTE_BYTES: usize = 16;

/// How stores and clocks are, for a whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    pub plates: u16,
    /// Names at which the server splits a directory over the plates, if it does.
    pub split_at: Option<u64>,
    /// Segments are objects, put whole; a second server may take over.
    pub whole: bool,
    /// The server forgets a silent session.
    pub session_ms: u32,
    /// How long a restarted server waits.
    pub grace_ms: u32,
    /// Changed rows at which a checkpoint begins.
    pub checkpoint_rows: usize,
    /// Age at which a checkpoint begins.
    pub checkpoint_age: Duration,
    /// Memory for the namespace in bytes.
    pub cache_bytes: usize,
    /// Size of journal segments in bytes.
    pub segment_bytes: usize,
    pub leases_max: usize,
    /// Files that clients make in a directory before they make more before they ask; `None`: always ask.
    pub write_behind_after: Option<u32>,
    /// Payload of a block in bytes.
    pub block_bytes: usize,
    /// Files of at most this many bytes are stored inline.
    pub inline_bytes_max: usize,
    /// Files that a client remembers after their last close.
    pub idle_files_max: usize,
    /// One in this many locks is taken late.
    pub stall_one_in: Option<u64>,
    /// How wrong clocks run: the server's, then each client's.
    pub drift_ppm: Vec<i64>,
    /// Maximum delay of a message in microseconds.
    pub delay_us_max: u64,
    /// Permissions of the directories in which clients work.
    pub own_mode: u16,
    /// The roles of the last clients, if they have special ones.
    pub roles: Vec<Role>,
}

/// One step of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub pause: Duration,
    pub user: User,
    pub action: Action,
}

impl Step {
    /// An action of root, after a pause.
    pub fn by_root(pause: Duration, action: Action) -> Step {
        Step { pause, user: User::Root, action }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server dies, and starts again after a while.
    CrashServer {
        /// How long it is away.
        down: Duration,
    },
    /// One plate dies, and starts again after a while. The others live.
    CrashPlate {
        /// Its number, among all that there are.
        plate: u16,
        /// So long after the next step of a split or fold has begun that concerns it, if one begins soon.
        amid: Option<Duration>,
        /// How long it is away.
        down: Duration,
    },
    /// The server ends in order, and starts again.
    RestartServer {
        /// How long it is away.
        down: Duration,
    },
    /// The server is paused.
    PauseServer {
        time: Duration,
    },
    /// The server is paused and another takes over; the first resumes without knowing it.
    TakeOver {
        /// How long the first is paused afterwards.
        time: Duration,
    },
    /// A client dies, and begins anew after a while.
    CrashClient {
        client: usize,
        /// How long it is away.
        down: Duration,
        /// Whether its last messages still arrive.
        late: bool,
    },
    /// A client is paused.
    PauseClient {
        client: usize,
        time: Duration,
    },
    /// The connections of a client break.
    Cut {
        client: usize,
        /// Whether its last messages still arrive.
        late: bool,
    },
    /// A client has no network.
    Isolate {
        client: usize,
        time: Duration,
    },
    /// Messages take longer, and some are the last of their connection.
    BadWeather {
        time: Duration,
        /// Of 10,000 messages, how many break their connection.
        cuts: u32,
        /// Maximum delay of a message in microseconds.
        delay_us_max: u64,
    },
    SlowDisk {
        time: Duration,
        /// Factor by which the disk is slower.
        slowness: u32,
    },
    /// Operations of storage get no answer.
    SilentDisk {
        time: Duration,
        /// Number of affected operations, of 10,000.
        often: u32,
        /// An object store also denies access: a token has expired, or a clock is wrong.
        refuses: bool,
    },
    /// Commits to the row store fail.
    RowsFail {
        time: Duration,
        /// Number of affected operations, of 1,000.
        often: u32,
    },
    FullDisk {
        time: Duration,
    },
    /// Writes and syncs of the journal fail: a server that notices serves no client any more, and is restarted.
    JournalFails {
        time: Duration,
        /// Number of affected operations, of 1,000.
        often: u32,
    },
    /// The wall clock of the server is set.
    SetClock {
        /// The error of the clock in milliseconds.
        wrong_ms: i64,
    },
}

impl Plan {
    /// Whether any client appends to the shared files.
    pub fn appends(&self) -> bool {
        let appends = |step: &Step| matches!(step.action, Action::Append { .. });
        self.clients.iter().flatten().any(appends)
    }

    /// Whether any client uses paths that all share.
    pub fn has_paths(&self) -> bool {
        let is_shared = |path: &mut String| path.starts_with(PATHS);
        self.clients.iter().flatten().any(|step| step.action.clone().paths_mut().into_iter().any(is_shared))
    }

    /// A client's role, if it has a special one.
    pub fn role(&self, client: usize) -> Option<&Role> {
        self.setup.roles.get(client.checked_sub(self.clients.len() - self.setup.roles.len())?)
    }
}

/// The plan of a whole run, which the seed determines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// For all that is drawn while it runs.
    pub seed: u64,
    pub setup: Setup,
    /// The steps of each client.
    pub clients: Vec<Vec<Step>>,
    /// The faults and their times.
    pub faults: Vec<(Duration, Fault)>,
}

const KINDS: usize = 22;
/// With several plates, one in so many faults of a connection is a plate's death instead.
const PLATE_DIES_ONE_IN: u64 = 2;
const FAULTS: usize = 15;

/// Draws a plan with about `steps` steps over all clients, for a file system with one plate.
pub fn draw(seed: u64, steps: usize) -> Plan {
    draw_over(1, seed, steps)
}

fn draw_common(seed: u64, steps: usize) -> Plan {
    let mut random = Random::new(seed, 7);
    let clients_count = random.between(1, 4) as usize;
    let mut setup = draw_setup(&mut random, clients_count);
    // From a separate stream, so that other seeds keep their runs.
    setup.write_behind_after = *Random::new(seed, 8).pick(&[Some(0), Some(0), Some(2), None]);
    setup.idle_files_max = *Random::new(seed, 12).pick(&[0, 1, 4096]);
    setup.stall_one_in = *Random::new(seed, 13).pick(&[None, Some(1_000), Some(100), Some(10)]);
    let weights: Vec<u32> =
        (0..KINDS).map(|_| if random.chance(1, 4) { 0 } else { random.between(1, 20) as u32 }).collect();
    let pause_us = *random.pick(&[2_000, 20_000, 200_000, 1_000_000]);
    let mut clients = Vec::new();
    for n in 0..clients_count {
        let mut maker = Maker { random: Random::new(seed, 100 + n as u64), client: n, made: 0, version: 0 };
        let count = steps / clients_count + 1;
        let list = (0..count).map(|_| maker.step(&weights, pause_us)).collect();
        clients.push(list);
    }
    let span = Duration::from_micros(pause_us * (steps / clients_count) as u64 / 2);
    let faults = draw_faults(&mut random, &mut setup, clients_count, span);
    let mut plan = Plan { seed, setup, clients, faults };
    company::add(&mut plan);
    appends::add(&mut plan);
    rivals::add(&mut plan);
    plan
}

fn draw_setup(random: &mut Random, clients: usize) -> Setup {
    let session_ms = random.between(3_000, 20_000) as u32;
    // Clocks that run 3 % apart are allowed for: these are 2 % apart at most.
    let drifts = random.chance(1, 3);
    let drift = |random: &mut Random| if drifts { random.between(0, 20_000) as i64 - 10_000 } else { 0 };
    Setup {
        plates: 1,
        split_at: None,
        whole: random.chance(1, 3),
        session_ms,
        grace_ms: random.between(1_000, u64::from(session_ms)) as u32,
        checkpoint_rows: *random.pick(&[10, 100, 1_000_000]),
        checkpoint_age: Duration::from_millis(random.between(300, 10_000)),
        cache_bytes: *random.pick(&[16 << 10, 256 << 10, 64 << 20]),
        segment_bytes: *random.pick(&[1 << 10, 16 << 10, 1 << 20]),
        leases_max: *random.pick(&[4, 64, 1 << 20]),
        write_behind_after: None,
        block_bytes: *random.pick(&[4096, 65_536]),
        inline_bytes_max: *random.pick(&[0, 512, 4096]),
        idle_files_max: 4096,
        stall_one_in: None,
        drift_ppm: (0..=clients).map(|_| drift(random)).collect(),
        delay_us_max: *random.pick(&[120, 2_000, 20_000]),
        own_mode: 0o755,
        roles: Vec::new(),
    }
}

fn draw_faults(
    random: &mut Random,
    setup: &mut Setup,
    clients: usize,
    span: Duration,
) -> Vec<(Duration, Fault)> {
    let mut weights: Vec<u32> =
        (0..FAULTS).map(|_| if random.chance(1, 3) { 0 } else { random.between(1, 10) as u32 }).collect();
    // Only where stores are shared can another server take over.
    if !setup.whole {
        weights[3] = 0;
    }
    if weights.iter().sum::<u32>() == 0 {
        return Vec::new();
    }
    let count = random.below(14);
    let micros = (span.as_micros() as u64).max(1_000_000);
    let mut faults: Vec<(Duration, Fault)> = (0..count)
        .map(|_| {
            let at = Duration::from_micros(random.below(micros));
            (at, draw_fault(random, &weights, clients, setup.session_ms.into()))
        })
        .collect();
    faults.sort_by_key(|(at, _)| *at);
    faults
}

fn draw_fault(random: &mut Random, weights: &[u32], clients: usize, session_ms: u64) -> Fault {
    let client = random.below(clients as u64) as usize;
    let short = Duration::from_millis(random.between(10, 2_000));
    // Sometimes long enough for sessions to expire.
    let long = Duration::from_millis(random.between(10, session_ms * 2));
    let late = random.chance(1, 2);
    match random.weighted(weights) {
        0 => Fault::CrashServer { down: short },
        1 => Fault::RestartServer { down: short },
        2 => Fault::PauseServer { time: short },
        3 => Fault::TakeOver { time: long },
        4 => Fault::CrashClient { client, down: short, late },
        5 => Fault::PauseClient { client, time: long },
        6 => Fault::Cut { client, late },
        7 => Fault::Isolate { client, time: long },
        8 => Fault::BadWeather {
            time: short,
            cuts: random.between(1, 500) as u32,
            delay_us_max: random.between(200, 100_000),
        },
        9 => Fault::SlowDisk { time: short, slowness: random.between(2, 100) as u32 },
        10 => {
            let often = random.between(10, 3_000) as u32;
            Fault::SilentDisk { time: short, often, refuses: often.is_multiple_of(3) }
        }
        11 => Fault::RowsFail { time: short, often: random.between(10, 900) as u32 },
        12 => Fault::FullDisk { time: short },
        13 => Fault::JournalFails { time: short, often: random.between(10, 900) as u32 },
        _ => Fault::SetClock { wrong_ms: random.between(0, 20_000) as i64 - 10_000 },
    }
}

/// Draws a plan for a file system with several plates. No client decouples subtrees there.
pub fn draw_over(plates: u16, seed: u64, steps: usize) -> Plan {
    let mut plan = draw_common(seed, steps);
    if plates > 1 {
        plan.setup.plates = plates;
        paths::add(&mut plan);
        let mut random = Random::new(seed, 14);
        for (_, fault) in &mut plan.faults {
            if let Fault::Cut { .. } | Fault::CrashServer { .. } | Fault::PauseServer { .. } = fault
                && random.chance(1, PLATE_DIES_ONE_IN)
            {
                let down = Duration::from_millis(random.between(10, 2_000));
                *fault = Fault::CrashPlate { plate: random.below(plates.into()) as u16, amid: None, down };
            }
        }
    } else {
        jobs::add(&mut plan, steps);
    }
    users::add(&mut plan);
    parts::add(&mut plan);
    plan
}

struct Maker {
    random: Random,
    client: usize,
    made: u64,
    version: u64,
}

impl Maker {
    fn step(&mut self, weights: &[u32], pause_us: u64) -> Step {
        let pause = Duration::from_micros(self.random.below(pause_us));
        Step::by_root(pause, self.action(weights))
    }

    fn own(&mut self) -> String {
        let n = self.random.below(6);
        match self.random.below(3) {
            0 => format!("{OWN}/d{}/f{n}", self.random.below(2)),
            _ => format!("{OWN}/f{n}"),
        }
    }

    fn own_dir(&mut self) -> String {
        format!("{OWN}/d{}", self.random.below(3))
    }

    fn shared(&mut self) -> String {
        format!("{SHARED}/x{}", self.random.below(3))
    }

    fn handle(&mut self) -> Handle {
        Handle(self.random.below(3) as u32)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = *self.random.pick(&[1, 10, 300, 5_000, 20_000]);
        let len = self.random.between(1, len);
        let byte = self.random.between(1, 255) as u8;
        vec![byte; len as usize]
    }

    fn offset(&mut self) -> u64 {
        let most = *self.random.pick(&[1, 600, 10_000, 200_000]);
        self.random.below(most)
    }

    fn action(&mut self, weights: &[u32]) -> Action {
        let kind = if weights.iter().sum::<u32>() == 0 { 20 } else { self.random.weighted(weights) };
        match kind {
            0 => Action::Mkdir { path: self.own_dir(), mode: 0o755 },
            1 => {
                // Small content is created with its inode by one operation.
                let mut content = self.bytes();
                content.truncate(4_000);
                Action::Create { path: self.own(), content }
            }
            2 => Action::Symlink { path: self.own(), target: "f1".to_owned() },
            3 => Action::Link { from: self.own(), to: self.own() },
            4 => Action::Unlink { path: self.own() },
            5 => Action::Rmdir { path: self.own_dir() },
            6 if self.random.chance(1, 4) => Action::Rename { from: self.own_dir(), to: self.own_dir() },
            6 => Action::Rename { from: self.own(), to: self.own() },
            7 => {
                let (from, to) = (self.own(), self.own());
                // By the name, so that the numbers drawn are the same for all.
                match from.ends_with('1') {
                    true => Action::Whiteout { from, to },
                    false => Action::Exchange { from, to },
                }
            }
            8 => {
                let value = if self.random.chance(1, 4) { Vec::new() } else { self.bytes() };
                Action::SetXattr { path: self.own(), name: "user.a".to_owned(), value }
            }
            9 => Action::Chmod { path: self.own(), mode: *self.random.pick(&[0o600, 0o644, 0o755]) },
            10 => {
                let time = Time(self.random.below(2_000_000_000) as i64 * 1_000_000_000);
                Action::SetTimes { path: self.own(), time }
            }
            11 => Action::Truncate { path: self.own(), size: self.offset() },
            12 => {
                let (create, truncate) = (self.random.chance(1, 2), self.random.chance(1, 4));
                Action::Open { path: self.own(), create, truncate, handle: self.handle() }
            }
            13 => Action::Write { handle: self.handle(), offset: self.offset(), bytes: self.bytes() },
            14 => Action::PunchHole { handle: self.handle(), offset: self.offset(), len: 1 + self.offset() },
            15 => Action::Read { handle: self.handle(), offset: self.offset(), len: 30_000 },
            16 => match self.random.below(3) {
                0 => Action::Fsync { handle: self.handle() },
                1 => Action::FsyncDir,
                _ => Action::Sync,
            },
            17 => Action::Close { handle: self.handle() },
            18 => {
                let path = self.shared();
                match self.random.below(5) {
                    0 | 1 => Action::Create { path, content: Vec::new() },
                    2 => Action::Unlink { path },
                    3 => Action::Rename { from: path, to: self.shared() },
                    _ => Action::Stat { path },
                }
            }
            19 => {
                let name = format!("user.t{}", self.random.below(THINGS));
                if self.random.chance(1, 3) {
                    self.version += 1;
                    let value = format!("{}-{}", self.client, self.version).into_bytes();
                    Action::SetXattr { path: BOARD.to_owned(), name, value }
                } else {
                    Action::GetXattr { path: BOARD.to_owned(), name }
                }
            }
            21 => {
                let path = format!("{NOTE}{}", self.random.below(NOTES));
                if self.random.chance(1, 2) {
                    self.version += 1;
                    let mut bytes = format!("{}-{}", self.client, self.version).into_bytes();
                    bytes.resize(NOTE_BYTES, b' ');
                    Action::WriteFile { path, bytes }
                } else {
                    Action::ReadFile { path }
                }
            }
            _ => {
                self.made += 1;
                let path = format!("{LOG}/c{}-{}", self.client, self.made);
                Action::Create { path, content: self.made.to_string().into_bytes() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual(plan: &Plan) -> usize {
        plan.clients.len() - plan.setup.roles.len()
    }

    #[test]
    fn a_seed_repeats_and_seeds_differ() {
        assert_eq!(draw(1, 100), draw(1, 100));
        let shapes: std::collections::BTreeSet<_> =
            (0..50).map(|seed| draw(seed, 100)).map(|plan| (usual(&plan), plan.setup.whole)).collect();
        assert_eq!(shapes.len(), 8, "one to four clients, both shapes");
        let roles = |seed| draw(seed, 100).setup.roles.len();
        let jobs: std::collections::BTreeSet<_> = (0..50).map(roles).collect();
        assert_eq!(jobs, [0, 2, 3].into(), "no, one or two jobs, and somebody who looks on");
    }
}
