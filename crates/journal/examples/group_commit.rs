//! Durable frames a second with 64 waiting threads, beside a bare loop of the same shape.
//!
//! `cargo run --release -p chiton-journal --example group_commit [directory]`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use chiton_journal::{FilePlace, Identity, Journal, Options};
use chiton_runtime::{RealWorld, World};
use chiton_types::frame::{FrameHeader, encode_frame};
use chiton_types::{Epoch, Seq, SessionId, ShardId};
use parking_lot::{Condvar, Mutex};

const THREADS: u64 = 64;
const ROUNDS: usize = 3;
const RUN: Duration = Duration::from_secs(1);

fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = base.join(format!("chiton-group-commit-{}", std::process::id()));
    let (mut ours, mut bare) = (0.0, 0.0);
    // In turns, so that a disk that changes its mood meets both.
    for round in 0..ROUNDS {
        ours += journal(&directory.join(format!("journal-{round}")));
        bare += bare_loop(&directory.join(format!("bare-{round}")));
    }
    println!("ratio {:.2}", ours / bare);
    std::fs::remove_dir_all(&directory).expect("remove the scratch directory");
}

/// Runs `work` on all threads until the time is over; returns calls per second.
fn measure(work: impl Fn(u64) + Sync) -> f64 {
    let world = RealWorld;
    let stop = AtomicBool::new(false);
    let count = AtomicU64::new(0);
    let start = world.monotonic();
    thread::scope(|scope| {
        for id in 0..THREADS {
            let (stop, count, work) = (&stop, &count, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    work(id);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(RUN);
        stop.store(true, Ordering::Relaxed);
    });
    count.into_inner() as f64 / (world.monotonic() - start).as_secs_f64()
}

fn journal(path: &Path) -> f64 {
    let place = Arc::new(FilePlace::open(path).expect("open the directory"));
    let identity = Identity { journal: 1, epoch: Epoch(1), nonce: RealWorld.random() };
    let journal = Journal::create(place, identity, Options::default()).expect("create the journal");
    let commits = Arc::new(AtomicU64::new(0));
    let counter = commits.clone();
    journal.on_durable(Box::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    let rate = measure(|id| {
        let mut frame = Vec::with_capacity(96);
        let header = FrameHeader { event_count: 1, shard: ShardId(0), session: SessionId(id), seq: Seq(1) };
        encode_frame(&mut frame, &header, &[0x5a; 66]);
        let position = journal.append(&frame, 1).expect("append");
        journal.wait_durable(position).expect("wait");
    });
    let per_commit = journal.durable().0 as f64 / commits.load(Ordering::Relaxed) as f64;
    println!("journal    {rate:>8.0} durable frames/s, {per_commit:.1} frames a commit");
    rate
}

/// Waiters of the bare loop: how many wait for the next batch, how many batches were taken and are done.
#[derive(Default)]
struct Waiters {
    waiting: u64,
    taken: u64,
    done: u64,
    stop: bool,
}

/// One thread writes 80 bytes for each of the 64 waiters and syncs; the waiters wait on a condition variable.
fn bare_loop(path: &Path) -> f64 {
    let file = File::create(path).expect("create the file");
    let waiters = Mutex::new(Waiters::default());
    let (work, done) = (Condvar::new(), Condvar::new());
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut offset, mut batches) = (0, 0u64);
            let mut state = waiters.lock();
            loop {
                while state.waiting == 0 && !state.stop {
                    work.wait(&mut state);
                }
                if state.waiting == 0 {
                    return offset as f64 / 80.0 / batches as f64;
                }
                let bytes = vec![0x5a; state.waiting as usize * 80];
                state.waiting = 0;
                state.taken += 1;
                drop(state);
                file.write_all_at(&bytes, offset).expect("write");
                file.sync_data().expect("sync");
                offset += bytes.len() as u64;
                batches += 1;
                waiters.lock().done += 1;
                done.notify_all();
                state = waiters.lock();
            }
        });
        let rate = measure(|_| {
            let mut state = waiters.lock();
            state.waiting += 1;
            if state.waiting == 1 {
                work.notify_one();
            }
            let mine = state.taken + 1;
            while state.done < mine {
                done.wait(&mut state);
            }
        });
        waiters.lock().stop = true;
        work.notify_one();
        let per_commit = writer.join().expect("the writer ends");
        println!("bare loop  {rate:>8.0} durable frames/s, {per_commit:.1} frames a commit");
        rate
    })
}
