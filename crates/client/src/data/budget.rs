//! The memory for dirty data, shared by all files of a client, and the wake-ups of the thread that pushes.
//!
//! ```text
//!   write: gate ──used < max──▶ copy
//!            │ used >= max
//!            ├─ blocks are being stored: wait until one is done
//!            └─ none: ask the flusher to push everything; if that fails, the writer gets the reason
//! ```
//!
//! Invariants:
//! - Taking memory never waits: only the gate does, and it is passed before any lock is taken.
//! - A writer that waits either gets memory or an error; it never waits for something that nobody does.

use std::time::Duration;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_types::Refusal;

/// Block buffers kept for the next block: memory that is already there need not be cleared by the kernel.
const SPARE_BUFFERS_MAX: usize = 8;

#[derive(Debug, Default)]
struct State {
    used_bytes: usize,
    /// Of them in uploads that are under way, so will be given back without anybody's help.
    moving_bytes: usize,
    spare: Vec<Vec<u8>>,
    /// Runs of the flusher: how many are wanted in all, and how many are done.
    wanted_runs: u64,
    finished_runs: u64,
    running: bool,
    /// Why the last run left something behind.
    failure: Option<Refusal>,
    /// There may be dirty files where there were none.
    stirred: bool,
    /// The flusher sleeps until that is so.
    asleep: bool,
    closed: bool,
}

/// Why the flusher wakes up, and its work then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeUp {
    /// Push what is old.
    Time,
    /// Push everything: memory is short. To be answered with [`Budget::run_finished`].
    Room,
    Closed,
}

/// Counts memory and makes writers wait.
#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: usize,
    buffer_bytes: usize,
    state: Mutex<State>,
    room: Condvar,
    wake_up: Condvar,
}

impl Budget {
    /// `buffer_bytes`: capacity of the buffers that are kept.
    pub(super) fn new(bytes_max: usize, buffer_bytes: usize) -> Budget {
        let (room, wake_up) = (Condvar::new(), Condvar::new());
        Budget { bytes_max, buffer_bytes, state: Mutex::default(), room, wake_up }
    }

    /// Takes memory, also beyond the limit: it does not wait.
    pub(super) fn take(&self, bytes: usize) {
        self.state.lock().used_bytes += bytes;
    }

    pub(super) fn give(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.used_bytes = state.used_bytes.checked_sub(bytes).expect("what is given back was taken");
        self.room.notify_all();
    }

    /// An empty buffer of at least `bytes`, counted.
    pub(super) fn buffer(&self, bytes: usize) -> Vec<u8> {
        let mut state = self.state.lock();
        let buffer = match state.spare.pop() {
            Some(spare) if spare.capacity() >= bytes => spare,
            _ => Vec::with_capacity(bytes),
        };
        state.used_bytes += buffer.capacity();
        buffer
    }

    /// Gives a counted buffer back.
    pub(super) fn give_buffer(&self, mut buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        let keep = (self.buffer_bytes..=2 * self.buffer_bytes).contains(&bytes);
        {
            let mut state = self.state.lock();
            state.used_bytes = state.used_bytes.checked_sub(bytes).expect("what is given back was taken");
            self.room.notify_all();
            if keep && state.spare.len() < SPARE_BUFFERS_MAX {
                buffer.clear();
                state.spare.push(buffer);
                return;
            }
        }
        drop(buffer);
    }

    /// An upload of `bytes` begins.
    pub(super) fn moving(&self, bytes: usize) {
        self.state.lock().moving_bytes += bytes;
    }

    /// It ended, well or not.
    pub(super) fn moved(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.moving_bytes = state.moving_bytes.checked_sub(bytes).expect("an upload that ends has begun");
        self.room.notify_all();
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.state.lock().used_bytes
    }

    /// Waits until there is memory.
    ///
    /// # Errors
    /// Why dirty data could not be pushed to make room.
    pub(super) fn gate(&self) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        let mut run: Option<u64> = None;
        while state.used_bytes >= self.bytes_max && !state.closed {
            if state.moving_bytes == 0 {
                match run {
                    Some(run) if state.finished_runs < run => {}
                    Some(_) if state.failure.is_some() => return state.failure.map_or(Ok(()), Err),
                    _ => {
                        // A run that is under way may have passed the fullest file already: the next one counts.
                        let next = state.finished_runs + 1 + u64::from(state.running);
                        state.wanted_runs = state.wanted_runs.max(next);
                        run = Some(next);
                        self.wake_up.notify_all();
                    }
                }
            }
            self.room.wait(&mut state);
        }
        Ok(())
    }

    /// There is a dirty file again. Wakes the flusher, and returns true, only if it does not look after a while anyway: a program
    /// that writes one small file after the other would else wake it for each.
    pub(super) fn stir(&self) -> bool {
        let mut state = self.state.lock();
        state.stirred = true;
        let wakes = std::mem::take(&mut state.asleep);
        if wakes {
            self.wake_up.notify_all();
        }
        wakes
    }

    /// For the flusher: whether there was a dirty file again since it asked, or slept, last.
    pub(super) fn was_stirred(&self) -> bool {
        std::mem::take(&mut self.state.lock().stirred)
    }

    /// For the flusher: waits for something to do. `wait`: for how long, `None` until something is dirty.
    pub(super) fn listen(&self, wait: Option<Duration>) -> WakeUp {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return WakeUp::Closed;
            }
            if state.wanted_runs > state.finished_runs {
                state.running = true;
                return WakeUp::Room;
            }
            match wait {
                None if std::mem::take(&mut state.stirred) => return WakeUp::Time,
                None => {
                    state.asleep = true;
                    self.wake_up.wait(&mut state);
                    state.asleep = false;
                }
                Some(wait) => {
                    if self.wake_up.wait_for(&mut state, wait).timed_out() {
                        return WakeUp::Time;
                    }
                }
            }
        }
    }

    /// For the flusher: it pushed what it could.
    pub(super) fn run_finished(&self, failure: Option<Refusal>) {
        let mut state = self.state.lock();
        state.finished_runs += 1;
        state.running = false;
        state.failure = failure;
        self.room.notify_all();
    }

    /// Wakes everybody: the end.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.wake_up.notify_all();
        self.room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flusher_is_woken_once_for_many_files_that_follow_each_other() {
        let budget = Budget::new(1, 1);
        assert!(!budget.stir(), "it is not asleep");
        assert!(budget.was_stirred() && !budget.was_stirred());
        std::thread::scope(|scope| {
            let flusher = scope.spawn(|| budget.listen(None));
            while !budget.state.lock().asleep {
                std::thread::yield_now();
            }
            assert!(budget.stir(), "it is asleep");
            assert!(!budget.stir(), "it is awake already");
            assert_eq!(flusher.join().expect("it ends"), WakeUp::Time);
        });
        assert!(!budget.stir(), "it looks again by itself");
        assert!(budget.was_stirred(), "and finds that there was one");
        assert!(!budget.was_stirred(), "then there was none");
    }
}
