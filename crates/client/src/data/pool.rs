//! A few threads for jobs that wait for the object store.
//!
//! Invariants:
//! - No thread before the first job; never more than `threads_max`.
//! - Jobs never hold what owns the pool, so a pool is never dropped by its own thread.
//! - Dropping the pool finishes the job of each thread and forgets the others.

use std::collections::VecDeque;
use std::sync::Arc;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::thread::{self, JoinHandle};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
    threads: Vec<JoinHandle>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

/// The threads and their queue.
pub(super) struct Pool {
    name: &'static str,
    threads_max: usize,
    jobs_max: usize,
    shared: Arc<Shared>,
}

impl Pool {
    /// A pool that refuses jobs when `jobs_max` are waiting.
    pub(super) fn new(name: &'static str, threads_max: usize, jobs_max: usize) -> Pool {
        Pool { name, threads_max, jobs_max, shared: Arc::default() }
    }

    /// Queues a job. `false`: it was not taken, because too many wait or no thread can be had.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.shared.state.lock();
        if state.jobs.len() >= self.jobs_max {
            return false;
        }
        if state.idle <= state.jobs.len() && state.threads.len() < self.threads_max {
            let shared = self.shared.clone();
            match thread::spawn(self.name, move || work(&shared)) {
                Ok(thread) => state.threads.push(thread),
                Err(_) if state.threads.is_empty() => return false,
                Err(_) => {}
            }
        }
        state.jobs.push_back(Box::new(job));
        self.shared.more.notify_one();
        true
    }
}

fn work(shared: &Shared) {
    let mut state = shared.state.lock();
    loop {
        if state.closed {
            return;
        }
        match state.jobs.pop_front() {
            Some(job) => {
                drop(state);
                job();
                state = shared.state.lock();
            }
            None => {
                state.idle += 1;
                shared.more.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let threads = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            state.jobs.clear();
            std::mem::take(&mut state.threads)
        };
        self.shared.more.notify_all();
        for thread in threads {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
