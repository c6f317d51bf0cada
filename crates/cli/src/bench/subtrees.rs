//! Subtrees with semantics of their own, as a user has them: the program itself, its mounts and commands.
//!
//! ```text
//!   mount ─ policy set job batchfs ─ files in job ─ merge ─ branches of the merged tree
//!                                                    └ meanwhile: creates elsewhere, one at a time, each timed
//! ```
//!
//! The trivial file system and the subtree take short turns, several in a round, and each turn is a ratio: where other
//! work shares the processors, a stretch of seconds is fast or slow by which of them the scheduler puts side by side, and
//! one turn of each measures that.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use chiton_bench::report::Row;
use chiton_bench::trivial_mount::TrivialMount;
use chiton_runtime::{RealWorld, World};

use super::subject::{make_dir, timed};
use super::{Plan, loads};
use crate::failure::{Failure, Outcome};

/// Files of mdtest, in all turns of a round together.
const FILES: u64 = 20_000;
/// Turns of a round.
const TURNS: u64 = 5;
/// Small files with content: as many bytes each.
const SMALL_BYTES: usize = 4_096;
/// Files that are made decoupled, and merged.
const MERGED: u64 = 200_000;
/// Files of a directory among them.
const DIR_FILES: u64 = 1_000;
/// How long the creates elsewhere are timed while nothing else happens.
const IDLE: Duration = Duration::from_secs(2);
/// The aimed maximum time of `chiton branch create`.
const BRANCH_SECONDS: f64 = 0.01;

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let (files, merged) = (FILES / plan.divisor, MERGED / plan.divisor);
    let (mut floors, mut ours) = (Rates::default(), Rates::default());
    let (mut idle, mut merging) = (Vec::new(), Vec::new());
    let mut branches = Vec::new();
    let floor_dir = plan.dir.join("subtree-floor");
    make_dir(&floor_dir)?;
    let floor = TrivialMount::spawn(&floor_dir).map_err(Failure::failed)?;
    for round in 0..plan.rounds {
        let mount = Mounted::start(&plan.dir, round)?;
        let (job, elsewhere) = (mount.dir.join("job"), mount.dir.join("elsewhere"));
        make_dir(&job)?;
        make_dir(&elsewhere)?;
        mount.chiton(&["policy", "set"], &job, &["batchfs"])?;
        for _ in 0..TURNS {
            floors.add(floor.dir(), files / TURNS)?;
            ours.add(&job, files / TURNS)?;
        }
        fill(&job, merged)?;
        let (before, during) = creates_elsewhere(&elsewhere, || mount.chiton(&["merge"], &job, &[]))?;
        idle.push(1.0 / p99(before).as_secs_f64());
        merging.push(1.0 / p99(during).as_secs_f64());
        // A branch is durable when it is made; not the merge's writing is to be measured.
        mount.chiton(&["flush"], &mount.dir, &[])?;
        for n in 0..5 {
            let name = format!("branch{n}");
            let ((), seconds) = timed(|| mount.chiton(&["branch", "create"], &job, &[&name]))?;
            branches.push(1.0 / seconds);
        }
        mount.end()?;
    }
    floor.unmount().map_err(Failure::failed)?;
    let most = vec![1.0 / BRANCH_SECONDS; branches.len()];
    let row = |what: &str, floor: &[f64], ours: &[f64]| {
        let name = format!("mounted {what} in a decoupled subtree (batchfs), 1 proc / trivial FUSE");
        Row::new(&name, "ops/s", floor, ours)
    };
    Ok(vec![
        row("creates", &floors.create, &ours.create).with_target(0.9).with_bound("CPU: FUSE crossings"),
        row("removes", &floors.remove, &ours.remove).with_target(0.9).with_bound("CPU: FUSE crossings"),
        row("creates with 4 KiB", &floors.create_small, &ours.create_small).with_bound(
            "CPU: FUSE crossings, of which the kernel's question for security.capability is one more; memory",
        ),
        Row::new(
            "creates elsewhere, 99th of 100: while a subtree is merged / idle (1/s)",
            "1/s",
            &idle,
            &merging,
        )
        .with_target(1.0 / 3.0)
        .with_bound("CPU: merge, server and these creates on the same processors"),
        Row::new(
            &format!("branch create, a tree of {merged} files, with the command's start / 10 ms"),
            "1/s",
            &most,
            &branches,
        )
        .with_target(1.0)
        .with_bound("the start of a process, two fsyncs"),
    ])
}

/// Rates of one process, one for each turn.
#[derive(Default)]
struct Rates {
    create: Vec<f64>,
    remove: Vec<f64>,
    create_small: Vec<f64>,
}

impl Rates {
    /// One turn, in a directory.
    fn add(&mut self, dir: &Path, files: u64) -> Outcome {
        let empty = loads::files(dir, 1, files, 0)?;
        self.create.push(loads::creates(&empty));
        self.remove.push(loads::removes(&empty));
        self.create_small.push(loads::creates(&loads::files(dir, 1, files, SMALL_BYTES)?));
        Ok(())
    }
}

/// Makes empty files in directories of moderate size.
fn fill(dir: &Path, files: u64) -> Outcome {
    for n in 0..files {
        let below = dir.join(format!("d{}", n / DIR_FILES));
        if n % DIR_FILES == 0 {
            make_dir(&below)?;
        }
        let path = below.join(format!("f{n}"));
        File::create(&path).map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?;
    }
    Ok(())
}

/// How long creates took, one at a time, while nothing else happened and while `work` was done.
fn creates_elsewhere(dir: &Path, work: impl FnOnce() -> Outcome) -> Outcome<(Vec<Duration>, Vec<Duration>)> {
    let before = timed_creates(dir, "idle", |since| since < IDLE)?;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let during = scope.spawn(|| timed_creates(dir, "busy", |_| !is_done.load(Ordering::Acquire)));
        let worked = work();
        is_done.store(true, Ordering::Release);
        let during = during.join().map_err(|_| Failure::failed("a creating thread panicked"))??;
        worked.map(|()| (before, during))
    })
}

fn timed_creates(dir: &Path, prefix: &str, has_time: impl Fn(Duration) -> bool) -> Outcome<Vec<Duration>> {
    let begun = RealWorld.monotonic();
    let mut took = Vec::new();
    let mut last = begun;
    while has_time(last - begun) || took.is_empty() {
        let path = dir.join(format!("{prefix}.{}", took.len()));
        File::create(&path).map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?;
        let now = RealWorld.monotonic();
        took.push(now - last);
        last = now;
    }
    Ok(took)
}

/// The 99th percentile.
fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[(took.len() - 1) * 99 / 100]
}

/// Directory of the data of a round.
fn data_dir(plan_dir: &Path, round: usize) -> PathBuf {
    plan_dir.join(format!("subtrees-data-{round}"))
}

/// A mount of the program itself.
pub(super) struct Mounted {
    program: PathBuf,
    pub(super) dir: PathBuf,
    state: PathBuf,
}

impl Mounted {
    pub(super) fn start(plan_dir: &Path, round: usize) -> Outcome<Mounted> {
        let program = std::env::current_exe().map_err(|e| Failure::failed(format!("this program: {e}")))?;
        let (dir, state) = (plan_dir.join("subtrees"), plan_dir.join("subtrees-state"));
        make_dir(&dir)?;
        let mounted = Mounted { program, dir, state };
        let data = data_dir(plan_dir, round).display().to_string();
        mounted.chiton(&["mount", "--format", "--data", &data], &mounted.dir, &[])?;
        Ok(mounted)
    }

    /// A second mount of the file system of this round's mount.
    pub(super) fn beside(&self, plan_dir: &Path, round: usize) -> Outcome<Mounted> {
        let (dir, state) = (plan_dir.join("subtrees-beside"), plan_dir.join("subtrees-beside-state"));
        make_dir(&dir)?;
        let mounted = Mounted { program: self.program.clone(), dir, state };
        let server = data_dir(plan_dir, round).join("socket").display().to_string();
        mounted.chiton(&["mount", "--server", &server], &mounted.dir, &[])?;
        Ok(mounted)
    }

    /// Runs a command that takes a path, with the state directory of this mount.
    pub(super) fn chiton(&self, words: &[&str], path: &Path, more: &[&str]) -> Outcome {
        let mut command = Command::new(&self.program);
        command.args(words).arg(path).args(more).stdin(Stdio::null());
        if ["mount", "branch"].contains(&words[0]) {
            command.arg("--state-dir").arg(&self.state);
        }
        let output = command.output().map_err(|e| Failure::failed(format!("{}: {e}", words[0])))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Failure::failed(format!(
                "chiton {}: {}",
                words.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }

    pub(super) fn end(self) -> Outcome {
        self.chiton(&["umount"], &self.dir, &[])
    }
}
