//! A pool of threads for work that may wait for a device or a network, in the order of submission.
//!
//! ```text
//!   submit ──▶ queue ──▶ threads
//!      └ the queue is full, or there are no threads: the caller does it itself
//! ```
//!
//! Invariants:
//! - The queue is bounded in number and in bytes.
//! - Accepted work is done, also when the pool stops.
//! - Its threads are those of [`crate::thread`]: a simulation schedules them.

use std::collections::VecDeque;
use std::io;

use crate::sync::{Condvar, Mutex};
use crate::thread::{self, JoinHandle};

/// Something to do on another thread.
pub type Task = Box<dyn FnOnce() + Send>;

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub tasks_max: usize,
    /// The sum of the sizes passed to [`Pool::submit`], in bytes.
    pub bytes_max: usize,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<(usize, Task)>,
    bytes: usize,
    is_closed: bool,
}

/// A pool of threads that runs work in the order of submission. The work may block on a device or a network.
pub struct Pool {
    limits: Limits,
    queue: Mutex<Queue>,
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of `threads` threads with this name.
    ///
    /// # Errors
    /// If the operating system has no more threads.
    pub fn start(name: &str, threads: usize, limits: Limits) -> io::Result<std::sync::Arc<Pool>> {
        let queue = Mutex::new(Queue { is_closed: threads == 0, ..Queue::default() });
        let pool = Pool { limits, queue, changed: Condvar::new(), threads: Mutex::default() };
        let pool = std::sync::Arc::new(pool);
        for _ in 0..threads {
            let worker = pool.clone();
            match thread::spawn(name, move || worker.work()) {
                Ok(thread) => pool.threads.lock().push(thread),
                Err(error) => {
                    pool.stop();
                    return Err(error);
                }
            }
        }
        Ok(pool)
    }

    /// Hands over a task that keeps so many bytes in memory until it is done.
    ///
    /// # Errors
    /// The task, if none of the threads could take it soon: the caller does it.
    pub fn submit(&self, bytes: usize, task: Task) -> Result<(), Task> {
        let mut queue = self.queue.lock();
        let is_full =
            queue.tasks.len() >= self.limits.tasks_max || queue.bytes + bytes > self.limits.bytes_max;
        if is_full || queue.is_closed {
            return Err(task);
        }
        queue.bytes += bytes;
        queue.tasks.push_back((bytes, task));
        drop(queue);
        self.changed.notify_one();
        Ok(())
    }

    /// Accepts no more tasks, and returns when all are done. Not to be called by a task.
    pub fn stop(&self) {
        self.queue.lock().is_closed = true;
        self.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A task that panicked has said so.
            let _ = thread.join();
        }
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            task();
        }
    }

    fn next(&self) -> Option<Task> {
        let mut queue = self.queue.lock();
        loop {
            if let Some((bytes, task)) = queue.tasks.pop_front() {
                queue.bytes -= bytes;
                return Some(task);
            }
            if queue.is_closed {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    const LIMITS: Limits = Limits { tasks_max: 2, bytes_max: 10 };

    #[test]
    fn accepted_tasks_are_done_before_the_pool_has_stopped() {
        let pool = Pool::start("test", 2, Limits { tasks_max: 1000, bytes_max: 0 }).expect("threads");
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let done = done.clone();
            assert!(
                pool.submit(
                    0,
                    Box::new(move || {
                        done.fetch_add(1, SeqCst);
                    })
                )
                .is_ok()
            );
        }
        pool.stop();
        assert_eq!(done.load(SeqCst), 100);
        assert!(pool.submit(0, Box::new(|| {})).is_err(), "it has stopped");
    }

    #[test]
    fn a_full_queue_gives_tasks_back() {
        let pool = Pool::start("test", 1, LIMITS).expect("a thread");
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (begun, is_begun) = std::sync::mpsc::channel();
        let wait = gate.clone();
        let blocker = move || {
            begun.send(()).expect("the test waits");
            let mut open = wait.0.lock();
            while !*open {
                wait.1.wait(&mut open);
            }
        };
        assert!(pool.submit(0, Box::new(blocker)).is_ok());
        is_begun.recv().expect("it began");
        let submit = |bytes| pool.submit(bytes, Box::new(|| {})).is_ok();
        assert!(!submit(11), "too many bytes");
        assert!(submit(6) && !submit(5) && submit(4), "ten bytes fit");
        assert!(!submit(0), "two tasks fit");
        *gate.0.lock() = true;
        gate.1.notify_all();
        pool.stop();
    }

    #[test]
    fn without_threads_the_caller_does_everything() {
        let pool = Pool::start("test", 0, LIMITS).expect("nothing to start");
        assert!(pool.submit(0, Box::new(|| {})).is_err());
    }
}
