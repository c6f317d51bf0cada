//! The same work many times, on a few threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::sync::Mutex;
use crate::thread;

/// Calls `work` with each number below `count`, on at most `threads_max` threads at a time, and returns the results in order. The
/// calling thread is one of them, and does all of it if there can be no others.
///
/// # Panics
/// If `work` does.
pub fn map<T: Send + 'static>(
    name: &str,
    threads_max: usize,
    count: usize,
    work: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let shared = Arc::new(Shared {
        work,
        next: AtomicUsize::new(0),
        count,
        done: Mutex::new(Vec::with_capacity(count)),
    });
    let others: Vec<_> = (1..threads_max.min(count))
        .map_while(|_| {
            let shared = shared.clone();
            thread::spawn(name, move || shared.run()).ok()
        })
        .collect();
    shared.run();
    for thread in others {
        thread.join().expect("a part of the work panicked");
    }
    let mut done = std::mem::take(&mut *shared.done.lock());
    done.sort_unstable_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

struct Shared<T, F> {
    work: F,
    next: AtomicUsize,
    count: usize,
    done: Mutex<Vec<(usize, T)>>,
}

impl<T, F: Fn(usize) -> T> Shared<T, F> {
    fn run(&self) {
        loop {
            let n = self.next.fetch_add(1, Relaxed);
            if n >= self.count {
                return;
            }
            let result = (self.work)(n);
            self.done.lock().push((n, result));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Condvar;

    #[test]
    fn results_come_in_order_whatever_ends_first() {
        for (threads, count) in [(1, 5), (4, 0), (4, 1), (4, 3), (3, 1_000)] {
            let found = map("test", threads, count, |n| n * n);
            assert_eq!(found, (0..count).map(|n| n * n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn as_many_are_under_way_as_there_may_be() {
        let (arrived, changed) = (Mutex::new(0_usize), Condvar::new());
        let work = move |n| {
            let mut arrived = arrived.lock();
            *arrived += 1;
            changed.notify_all();
            // None passes before all four of its round are there.
            let until = arrived.div_ceil(4) * 4;
            while *arrived < until {
                changed.wait(&mut arrived);
            }
            n
        };
        assert_eq!(map("test", 4, 8, work), (0..8).collect::<Vec<_>>());
    }
}
