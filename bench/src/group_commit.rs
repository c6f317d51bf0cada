//! The limit of a journal: many waiters, one committer, and fdatasync as soon as the last one is done.
//!
//! ```text
//!   waiter ─ append record ─▶ buffer ─ swap ─▶ write + fdatasync ─▶ durable position ─▶ waiters go on
//! ```
//!
//! Invariants:
//! - A waiter has one record in flight, and continues when it is durable.
//! - No timer: records that arrive during a commit go out with the next.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;

use parking_lot::{Condvar, Mutex};

use crate::stopwatch::Stopwatch;

#[derive(Clone, Debug)]
pub struct GroupCommitOptions {
    /// Where the file is made (and removed afterwards).
    pub dir: PathBuf,
    /// Threads that each write one record at a time.
    pub waiters: usize,
    /// Bytes of a record.
    pub record_bytes: usize,
    /// Records that each waiter writes.
    pub records_per_waiter: u64,
}

impl GroupCommitOptions {
    /// 64 waiters and records of 80 bytes.
    pub fn standard(dir: PathBuf, records_per_waiter: u64) -> GroupCommitOptions {
        GroupCommitOptions { dir, waiters: 64, record_bytes: 80, records_per_waiter }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupCommitRate {
    pub records: u64,
    /// Calls of fdatasync that it took.
    pub commits: u64,
    /// Seconds until the last waiter continued.
    pub seconds: f64,
}

impl GroupCommitRate {
    /// Records made durable per second.
    pub fn records_per_second(&self) -> f64 {
        self.records as f64 / self.seconds
    }
}

#[derive(Default)]
struct State {
    pending: Vec<u8>,
    appended: u64,
    durable: u64,
    waiters_left: usize,
    failed: bool,
}

#[derive(Default)]
struct Journal {
    state: Mutex<State>,
    work: Condvar,
    progress: Condvar,
}

/// Runs the load.
///
/// # Errors
/// The file could not be made, written or synchronised.
pub fn measure(options: &GroupCommitOptions) -> io::Result<GroupCommitRate> {
    assert!(options.waiters >= 1 && options.record_bytes >= 1, "a group commit without a record");
    let path = options.dir.join(format!("group-commit.{}", std::process::id()));
    let file = File::options().append(true).create_new(true).open(&path)?;
    let outcome = measure_into(&file, options);
    std::fs::remove_file(&path)?;
    outcome
}

fn measure_into(file: &File, options: &GroupCommitOptions) -> io::Result<GroupCommitRate> {
    let journal = Journal::default();
    journal.state.lock().waiters_left = options.waiters;
    let record = vec![7u8; options.record_bytes];
    thread::scope(|scope| {
        let watch = Stopwatch::start();
        let committer = scope.spawn(|| {
            let outcome = journal.commit_all(file);
            if outcome.is_err() {
                journal.state.lock().failed = true;
                journal.progress.notify_all();
            }
            outcome
        });
        for _ in 0..options.waiters {
            scope.spawn(|| journal.write_all(&record, options.records_per_waiter));
        }
        let commits = committer.join().expect("the committer panicked")?;
        let (records, seconds) = (journal.state.lock().durable, watch.seconds());
        Ok(GroupCommitRate { records, commits, seconds })
    })
}

impl Journal {
    fn write_all(&self, record: &[u8], records: u64) {
        for _ in 0..records {
            let mut state = self.state.lock();
            state.pending.extend_from_slice(record);
            state.appended += 1;
            let mine = state.appended;
            self.work.notify_one();
            while state.durable < mine && !state.failed {
                self.progress.wait(&mut state);
            }
        }
        self.state.lock().waiters_left -= 1;
        self.work.notify_one();
    }

    /// The committer's life: how many commits it made until the last waiter had left.
    fn commit_all(&self, mut file: &File) -> io::Result<u64> {
        let (mut batch, mut commits) = (Vec::new(), 0);
        loop {
            let mut state = self.state.lock();
            while state.pending.is_empty() && state.waiters_left > 0 {
                self.work.wait(&mut state);
            }
            if state.pending.is_empty() {
                return Ok(commits);
            }
            std::mem::swap(&mut batch, &mut state.pending);
            let last = state.appended;
            drop(state);
            file.write_all(&batch)?;
            file.sync_data()?;
            batch.clear();
            commits += 1;
            self.state.lock().durable = last;
            self.progress.notify_all();
        }
    }
}
