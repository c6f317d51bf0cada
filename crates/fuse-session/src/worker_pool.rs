//! The threads of a session: some always, more while all of them wait.
//!
//! ```text
//!   all busy ──▶ watcher ──a tick without a request taken──▶ one thread more … which leaves when the first ones are free again
//! ```
//!
//! A request may wait for something that needs another request to be answered first: the kernel writes a mapped page back before
//! another client is given the file for which the first one waits. With a fixed number of threads such circles close.
//!
//! Invariants:
//! - A thread that waits for a request is `idle`.
//! - Threads beyond the base run only while requests wait.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long all threads must be busy with the same requests before another thread starts.
const TICK: Duration = Duration::from_millis(20);
/// Ticks with a free thread after which the watcher sleeps until all are busy again.
const CALM_TICKS: u32 = 5;
/// Most threads of a session, the first ones included.
const THREADS_MAX: usize = 64;

/// The state of the session's threads.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    /// Number of threads that always run.
    base: usize,
    threads: AtomicUsize,
    idle: AtomicUsize,
    taken: AtomicU64,
    /// The watcher is to be woken when all are busy.
    is_watched_for: AtomicBool,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    all_busy: bool,
    over: bool,
}

impl WorkerPool {
    /// Of `base` threads, which are about to be started.
    pub(crate) fn new(base: usize) -> WorkerPool {
        WorkerPool {
            base,
            threads: AtomicUsize::new(base),
            idle: AtomicUsize::new(base),
            taken: AtomicU64::new(0),
            is_watched_for: AtomicBool::new(true),
            state: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// A thread has a request.
    pub(crate) fn busy(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        if self.idle.fetch_sub(1, Ordering::Relaxed) == 1
            && self.is_watched_for.swap(false, Ordering::Relaxed)
        {
            self.state.lock().all_busy = true;
            self.wake.notify_one();
        }
    }

    /// It waits for the next one.
    pub(crate) fn free(&self) {
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    /// An extra thread has finished its request. True: it must exit, and is no longer counted.
    pub(crate) fn leaves(&self) -> bool {
        let is_more = |idle: usize| (idle > self.base).then(|| idle - 1);
        let leaves = self.idle.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_more).is_ok();
        if leaves {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
        leaves
    }

    /// The mount is gone: the watcher ends.
    pub(crate) fn end(&self) {
        self.state.lock().over = true;
        self.wake.notify_one();
    }

    /// Calls `enlist`, which starts a thread, whenever all have been busy for a while with the same requests. `false`: it could
    /// not. Until [`WorkerPool::end`].
    pub(crate) fn watch(&self, mut enlist: impl FnMut() -> bool) {
        loop {
            {
                let mut state = self.state.lock();
                while !state.all_busy && !state.over {
                    self.wake.wait(&mut state);
                }
                state.all_busy = false;
            }
            let (mut calm, mut taken) = (0, self.taken.load(Ordering::Relaxed));
            while calm < CALM_TICKS {
                {
                    let mut state = self.state.lock();
                    if !state.over {
                        self.wake.wait_for(&mut state, TICK);
                    }
                    if state.over {
                        return;
                    }
                }
                let taken_before = std::mem::replace(&mut taken, self.taken.load(Ordering::Relaxed));
                let all_busy = self.idle.load(Ordering::Relaxed) == 0;
                calm = if all_busy { 0 } else { calm + 1 };
                if all_busy && taken == taken_before && self.threads.load(Ordering::Relaxed) < THREADS_MAX {
                    self.idle.fetch_add(1, Ordering::Relaxed);
                    self.threads.fetch_add(1, Ordering::Relaxed);
                    if !enlist() {
                        self.idle.fetch_sub(1, Ordering::Relaxed);
                        self.threads.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            }
            self.is_watched_for.store(true, Ordering::Relaxed);
            // All may have become busy in between.
            if self.idle.load(Ordering::Relaxed) == 0 && self.is_watched_for.swap(false, Ordering::Relaxed) {
                self.state.lock().all_busy = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_more_comes_while_all_wait_and_leaves_when_they_are_free() {
        let pool = WorkerPool::new(2);
        let (enlisted, comes) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| pool.watch(|| enlisted.send(()).is_ok()));
            pool.busy();
            pool.busy();
            comes.recv().expect("all are busy");
            // The new one takes a request and waits, too.
            pool.busy();
            comes.recv().expect("all are busy again");
            assert_eq!(pool.threads.load(Ordering::Relaxed), 4);
            pool.free();
            pool.free();
            assert!(pool.leaves() && !pool.leaves(), "two stay");
            pool.free();
            assert!(pool.leaves());
            assert_eq!(pool.threads.load(Ordering::Relaxed), 2);
            pool.end();
        });
        assert!(comes.try_recv().is_err());
    }
}
