//! Exhaustive small worlds, after CrashMonkey and ACE (Mohan et al., OSDI 2018). They run every sequence of a few
//! operations of a vocabulary on a small tree, crash at every write to the disk, in every way in which a crash may
//! end there, and start the real server on the result. The crash oracle judges each result.
//!
//! ```text
//!   steps ─▶ machine: real client, real server ─▶ log of writes ─▶ for each: crash, in several ways
//!                                     history ─▶ judge ◀─ tree ◀─ real server, recovering
//! ```
//!
//! Invariants:
//! - A workload ends with a sync and a checkpoint, so that all its changes reach the disk, write by write.
//! - Of a workload only the crashes from its last step on are judged: those before belong to a shorter one.

mod disk;
mod live;
mod machine;
mod one_plate;
mod perform;
mod step;
mod tree;
mod workload;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use chiton_journal::Shape;
use chiton_runtime::{RealWorld, World};
use parking_lot::Mutex;

use machine::Base;
use step::{Step, vocabulary};
use workload::{Done, Workload};

pub use disk::Canary;
pub use workload::Failure;

#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum number of steps in a sequence.
    pub length: usize,
    /// Of the sequences of each length, the distance between those that run; 1: all run. One entry for each length,
    /// the last for all longer ones.
    pub strides: Vec<u64>,
    pub threads: usize,
    /// Stop to begin workloads after this many failures.
    pub failures_max: usize,
    /// The rule that the disk breaks.
    pub canary: Option<Canary>,
    /// The journal is made of objects, as on S3, instead of files that grow.
    pub journal_of_objects: bool,
    /// Number of plates, 1 or 2.
    pub plates: u16,
    /// Over two plates: each directory is split when it has two names.
    pub splits: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            length: 3,
            strides: vec![1],
            threads: 1,
            failures_max: 20,
            canary: None,
            journal_of_objects: false,
            plates: 1,
            splits: false,
        }
    }
}

/// Counts and failures of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub workloads: u64,
    /// Writes at which a crash was tried.
    pub crash_points: u64,
    /// Crashes that were judged: points times ways.
    pub crashes: u64,
    /// Different disks that a server was started on.
    pub recoveries: u64,
    pub failures: Vec<Failure>,
    pub elapsed: Duration,
}

/// How far a run is: workloads done, and all.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Number of steps in the vocabulary of these options.
pub fn vocabulary_len(options: &Options) -> usize {
    vocabulary(options.plates, options.splits).len()
}

/// A workload in words: its steps by their place in the vocabulary.
pub fn describe(steps: &[usize], options: &Options) -> String {
    shown(steps, vocabulary(options.plates, options.splits))
}

fn shown(steps: &[usize], vocabulary: &[Step]) -> String {
    let words: Vec<String> = steps.iter().map(|&n| vocabulary[n].to_string()).collect();
    words.join("; ")
}

/// Runs one workload, given by places in the vocabulary, on the disk of the options.
///
/// # Errors
/// In words, if the small tree cannot be made, or a place is none.
pub fn run_one(steps: &[usize], options: &Options) -> Result<Report, String> {
    let known = vocabulary_len(options);
    if let Some(n) = steps.iter().find(|n| **n >= known) {
        return Err(format!("step {n}: the vocabulary has 0 to {}", known - 1));
    }
    let base = Base::new(options.shape(), options.plates, options.splits)?;
    let clock = RealWorld;
    let begun = clock.monotonic();
    let mut report = Report::default();
    report.add(Workload::new(&base, steps, options.canary).run());
    report.elapsed = clock.monotonic() - begun;
    Ok(report)
}

/// Runs all workloads of the options.
///
/// # Errors
/// In words, if the small tree cannot be made.
pub fn run(options: &Options, progress: Progress<'_>) -> Result<Report, String> {
    let base = Base::new(options.shape(), options.plates, options.splits)?;
    let clock = RealWorld;
    let begun = clock.monotonic();
    let total: u64 = (1..=options.length).map(|length| options.count(length)).sum();
    let next = AtomicU64::new(0);
    let report = Mutex::new(Report::default());
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= total || report.lock().failures.len() >= options.failures_max {
                return;
            }
            let done = Workload::new(&base, &options.nth(n), options.canary).run();
            let mut report = report.lock();
            report.add(done);
            progress(report.workloads, total);
        }
    };
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut report = report.into_inner();
    report.elapsed = clock.monotonic() - begun;
    Ok(report)
}

impl Options {
    fn shape(&self) -> Shape {
        if self.journal_of_objects { Shape::Whole } else { Shape::Grows }
    }

    fn stride(&self, length: usize) -> u64 {
        let last = self.strides.last().copied().unwrap_or(1);
        self.strides.get(length - 1).copied().unwrap_or(last).max(1)
    }

    /// Number of workloads of a length.
    fn count(&self, length: usize) -> u64 {
        (vocabulary_len(self) as u64).pow(length as u32).div_ceil(self.stride(length))
    }

    /// The n-th workload: shorter ones first, so that the shortest failure is the first.
    fn nth(&self, mut n: u64) -> Vec<usize> {
        let mut length = 1;
        while n >= self.count(length) {
            n -= self.count(length);
            length += 1;
        }
        let mut code = n * self.stride(length);
        let steps = vocabulary_len(self) as u64;
        (0..length)
            .map(|_| {
                let step = code % steps;
                code /= steps;
                step as usize
            })
            .collect()
    }
}

impl Report {
    fn add(&mut self, done: Done) {
        self.workloads += 1;
        self.crash_points += done.crash_points;
        self.crashes += done.crashes;
        self.recoveries += done.recoveries;
        self.failures.extend(done.failure);
    }
}

#[cfg(test)]
mod tests;
