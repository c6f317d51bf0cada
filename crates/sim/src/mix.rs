//! Several clients change one subtree at once: a job that has decoupled it, branches of it, and others who change
//! the global namespace. A rule for each entry judges the merges, whichever machine dies meanwhile.
//!
//! ```text
//!   seed ─▶ case: actions, merges, and each victim's last write ─▶ stage: a server, clients, their disks
//!             ▲                                                                   │ trees before and after each merge
//!             └── made shorter while it still fails ◀── wrong ◀── judge ◀─────────┘
//! ```
//!
//! Invariants:
//! - No client acts during a merge, but machines may die. So both sides are known.
//! - The judge knows no events, positions or rows: only trees, and which side touched which entry.

mod acts;
mod case;
pub mod cells;
mod driver;
mod judge;
mod merges;
mod side;
mod stage;
mod view;

use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::sync::Mutex;

use crate::net;
use crate::random::Random;
use crate::record::Recorder;
use crate::scheduler::{Party, Scheduler, Stuck};

pub use case::{Actor, Arm, Case, Deed, OfDisk, SideSetup, Step, Victim};
use driver::Driver;
use stage::{Purpose, Stage};

/// Longest case, in simulated time.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Counts of a case's events, which show whether the cases test anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Number of judged merges.
    pub merges: u64,
    /// Number of merges with conflicts.
    pub contradicted: u64,
    pub conflicts: u64,
    /// Merges that `abort` stopped.
    pub stopped: u64,
    /// Machines that died, while something was merged or recovered.
    pub deaths: u64,
    /// Decouplings that a later life resumed.
    pub recoveries: u64,
    /// Merges that a later life ended.
    pub handed_over: u64,
    /// Merges that continued after their conflicts were resolved one by one.
    pub resolved: u64,
    /// Jobs that were ended by force and continued as branches.
    pub rescued: u64,
}

impl std::ops::AddAssign for Met {
    fn add_assign(&mut self, more: Met) {
        self.merges += more.merges;
        self.contradicted += more.contradicted;
        self.conflicts += more.conflicts;
        self.stopped += more.stopped;
        self.deaths += more.deaths;
        self.recoveries += more.recoveries;
        self.handed_over += more.handed_over;
        self.resolved += more.resolved;
        self.rescued += more.rescued;
    }
}

/// The result of a case.
#[derive(Debug)]
pub struct Outcome {
    pub wrong: Option<String>,
    pub met: Met,
    /// The events, one line each.
    pub lines: Vec<(Duration, String)>,
}

pub fn run(case: &Case) -> Outcome {
    let played = case.clone();
    let (wrong, met, lines) = on_stage(case, Purpose::default(), move |stage| {
        let mut driver = Driver::new(stage.clone(), played);
        let result = driver.play();
        (result.err(), driver.met())
    });
    Outcome { wrong, met, lines }
}

/// Plays on a stage; returns the violation, further results, and the events as lines.
fn on_stage<T: Default + Send + 'static>(
    case: &Case,
    purpose: Purpose,
    body: impl FnOnce(&Arc<Stage>) -> (Option<String>, T) + Send + 'static,
) -> (Option<String>, T, Vec<(Duration, String)>) {
    let scheduler = Scheduler::begin(case.seed);
    if let Some(locks) = *Random::new(case.seed, 23).pick(&[None, Some(100), Some(10)]) {
        scheduler.stall_one_in(locks, case.seed);
    }
    let recorder = Recorder::default();
    let memory = std::path::Path::new("/dev/shm");
    let scratch = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let scratch = scratch.expect("a temporary directory");
    let stage = Stage::new(case, &recorder, scratch.path(), purpose);
    net::enter(Some(stage.net()));
    let ended = Arc::new(Mutex::new(None));
    let (put, on) = (ended.clone(), stage.clone());
    scheduler.spawn_in(Party::OUTSIDE, "case", move || {
        let result = body(&on);
        *put.lock() = Some(result);
    });
    let (wrong, reported) = match scheduler.run(LONGEST, || ended.lock().is_some()) {
        Ok(()) => ended.lock().take().expect("it has ended"),
        Err(Stuck::Panicked(what)) => (Some(what), T::default()),
        Err(Stuck::Deadlock(who)) => (Some(format!("nothing can continue; there are: {who}")), T::default()),
        Err(Stuck::TooLong(who)) => (Some(format!("it does not end; there are: {who}")), T::default()),
    };
    stage.is_over();
    if wrong.is_none() {
        // Threads of dead parties may end.
        let _ = scheduler.run(scheduler.now() + Duration::from_secs(30), || false);
    }
    net::enter(None);
    let (_, lines) = recorder.take();
    if wrong.is_some() {
        // A thread in the middle of a call cannot be ended.
        std::mem::forget(stage);
    }
    drop(scheduler);
    (wrong, reported, lines)
}

/// The shortest case found that still fails in the same words: steps are left out as long as that keeps it failing so.
pub fn shrink(case: &Case, wrong: &str, tries_max: usize) -> Case {
    let mut short = case.clone();
    let said = plain_words(wrong);
    let mut tries = 0;
    let mut size = short.steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let before = short.steps.len();
        while at < short.steps.len() && tries < tries_max {
            let mut less = short.clone();
            less.steps.drain(at..(at + size).min(less.steps.len()));
            tries += 1;
            let is_same = run(&less).wrong.is_some_and(|wrong| plain_words(&wrong) == said);
            if is_same { short = less } else { at += size }
        }
        if tries >= tries_max || (size == 1 && short.steps.len() == before) {
            return short;
        }
        size = size.div_ceil(2).max(1);
    }
}

/// A failure's message without steps, paths and values.
fn plain_words(wrong: &str) -> Vec<&str> {
    let words = wrong.split_whitespace().map(|word| word.trim_end_matches([',', ':', ';']));
    words.filter(|word| word.bytes().all(|b| b.is_ascii_lowercase())).collect()
}
