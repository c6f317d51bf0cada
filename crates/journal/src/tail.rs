//! The end of the journal in memory: frames that are appended and not yet durable, the waiters, and errors.
//!
//! ```text
//!   durable ≤ taken ≤ last          wanted: the position of a waiter
//!      │ being written │ pending │
//! ```
//!
//! Invariants:
//! - `durable` only grows, and only to positions that the place has confirmed.
//! - A permanent error stays: every later append and wait returns it.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chiton_runtime::sync::{Condvar, Mutex, MutexGuard};
use chiton_types::Position;

use crate::error::JournalError;
use crate::frame::seal_frames;
use crate::hooks::Hooks;
use crate::options::Options;

/// Segments' worth of memory that a buffer may have and is kept for the next batch. While a disk is slow, batches are long:
/// a buffer that grew anew for each would be copied, and touched for the first time, again and again.
const KEPT_SEGMENTS: usize = 4;

/// Shared by callers and committer.
pub(crate) struct Tail {
    pub(crate) options: Options,
    pub(crate) hooks: Hooks,
    durable: AtomicU64,
    state: Mutex<State>,
    /// For the committer: there may be something to do.
    work: Condvar,
    /// There is trouble in the state.
    in_trouble: AtomicBool,
    /// For waiters, which are many and wake up together: `durable` or `in_trouble` changed. Its lock is not the
    /// state's, so that they do not queue before threads that append.
    gate: Mutex<()>,
    news: Condvar,
    /// Wakes appenders when there may be room.
    room: Condvar,
    /// For pauses between attempts: the journal is being closed.
    stop: Condvar,
}

/// Under the tail's lock.
pub(crate) struct State {
    pending: Vec<u8>,
    /// An emptied buffer, to spare the next batch its allocations.
    spare: Vec<u8>,
    last: Position,
    taken: Position,
    /// Bytes that the committer holds.
    taken_bytes: usize,
    wanted: Position,
    trouble: Option<JournalError>,
    pub(crate) closing: bool,
    committer_sleeps: bool,
}

/// The frames of one commit.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) frames: Vec<u8>,
    pub(crate) last: Position,
    events: u64,
}

impl Batch {
    /// Fills in the frames' checksums: here, since appenders hold locks of their own.
    ///
    /// # Panics
    /// If what was appended is not whole frames of as many events as was said.
    pub(crate) fn seal(&mut self) {
        let events = seal_frames(&mut self.frames);
        assert_eq!(events, self.events, "events of the frames appended");
    }
}

impl Tail {
    pub(crate) fn new(options: Options, last: Position) -> Tail {
        let state = State {
            pending: Vec::new(),
            spare: Vec::new(),
            last,
            taken: last,
            taken_bytes: 0,
            wanted: Position(0),
            trouble: None,
            closing: false,
            committer_sleeps: false,
        };
        Tail {
            options,
            hooks: Hooks::default(),
            durable: AtomicU64::new(last.0),
            in_trouble: AtomicBool::new(false),
            state: Mutex::new(state),
            gate: Mutex::new(()),
            work: Condvar::new(),
            news: Condvar::new(),
            room: Condvar::new(),
            stop: Condvar::new(),
        }
    }

    pub(crate) fn durable(&self) -> Position {
        Position(self.durable.load(Ordering::Acquire))
    }

    /// Bytes that were appended and are not durable.
    pub(crate) fn pending_bytes(&self) -> usize {
        let state = self.state.lock();
        state.pending.len() + state.taken_bytes
    }

    pub(crate) fn last(&self) -> Position {
        self.state.lock().last
    }

    /// Adds frames with `events` events by `put`; returns the position of the last one.
    pub(crate) fn append(
        &self,
        events: u64,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Position, JournalError> {
        let mut state = self.state.lock();
        loop {
            if let Some(error) = state.refusal() {
                return Err(error);
            }
            if state.pending.len() + state.taken_bytes < self.options.pending_bytes_max {
                break;
            }
            if let Some(trouble) = &state.trouble {
                return Err(trouble.clone());
            }
            state.wanted = state.last;
            self.wake_committer(&state);
            self.room.wait(&mut state);
        }
        let was_empty = state.pending.is_empty();
        put(&mut state.pending);
        state.last = Position(state.last.0.checked_add(events).expect("positions below 2^64"));
        if was_empty || state.pending.len() >= self.options.segment_bytes / 4 || state.wanted > state.taken {
            self.wake_committer(&state);
        }
        Ok(state.last)
    }

    /// Asks for a commit of all that was appended.
    pub(crate) fn request(&self) {
        let mut state = self.state.lock();
        state.wanted = state.last;
        self.wake_committer(&state);
    }

    /// Asks for a commit up to a position at least; nothing happens if one that goes so far was asked for.
    pub(crate) fn request_upto(&self, position: Position) {
        let mut state = self.state.lock();
        if position > state.wanted {
            state.wanted = position;
            self.wake_committer(&state);
        }
    }

    pub(crate) fn wait_durable(&self, position: Position) -> Result<(), JournalError> {
        self.wait(position, &|_| false)
    }

    /// Continues to wait while the place is away, as long as `waits_on` returns true. It is called repeatedly.
    pub(crate) fn wait_through(
        &self,
        position: Position,
        waits_on: &dyn Fn(&JournalError) -> bool,
    ) -> Result<(), JournalError> {
        self.wait(position, &|trouble| trouble.is_away() && waits_on(trouble))
    }

    /// The error that delays commits.
    pub(crate) fn trouble(&self) -> Option<JournalError> {
        self.in_trouble.load(Ordering::Acquire).then(|| self.state.lock().trouble.clone()).flatten()
    }

    fn wait(&self, position: Position, waits_on: &dyn Fn(&JournalError) -> bool) -> Result<(), JournalError> {
        if self.durable() >= position {
            return Ok(());
        }
        self.request_upto(position);
        let mut gate = self.gate.lock();
        loop {
            if self.durable() >= position {
                return Ok(());
            }
            match self.trouble() {
                None => self.news.wait(&mut gate),
                Some(trouble) if waits_on(&trouble) => {
                    self.news.wait_for(&mut gate, self.options.retry_interval);
                }
                Some(trouble) => return Err(trouble),
            }
        }
    }

    /// Refuses appends from now on and lets the committer finish.
    pub(crate) fn begin_close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        self.wake_committer(&state);
        self.stop.notify_all();
        self.room.notify_all();
    }

    /// How it stands once the committer has ended.
    pub(crate) fn verdict(&self) -> Result<(), JournalError> {
        match &self.state.lock().trouble {
            Some(error) if *error != JournalError::Closed => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn wake_committer(&self, state: &State) {
        if state.committer_sleeps {
            self.work.notify_one();
        }
    }
}

impl Tail {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Sleeps until woken, or until the flush interval has passed; true if it has.
    pub(crate) fn sleep(&self, state: &mut MutexGuard<'_, State>, timed: bool) -> bool {
        state.committer_sleeps = true;
        let timed_out = if timed {
            self.work.wait_for(state, self.options.flush_interval).timed_out()
        } else {
            state.shrink(self.options.segment_bytes);
            self.work.wait(state);
            false
        };
        state.committer_sleeps = false;
        timed_out
    }

    /// Pauses before trying again; ends early at the close.
    pub(crate) fn pause(&self) {
        let mut state = self.state.lock();
        if !state.closing {
            self.stop.wait_for(&mut state, self.options.retry_interval);
        }
    }

    /// Wakes the committer from outside the lock.
    pub(crate) fn poke(&self) {
        self.wake_committer(&self.state.lock());
    }

    /// Confirms everything up to `durable`, and frees `bytes` of memory. Wakes the waiters concerned.
    pub(crate) fn confirm(&self, durable: Position, bytes: usize, emptied: Option<Vec<u8>>) {
        let mut state = self.state.lock();
        assert!(
            durable >= self.durable() && durable <= state.last,
            "durable position {durable} out of order"
        );
        self.durable.store(durable.0, Ordering::Release);
        tracing::debug!(durable = durable.0, bytes, "the journal is durable");
        state.taken_bytes -= bytes;
        // Of several that are being put, one may have failed for good before those in front of it are confirmed.
        if !state.failed() {
            state.trouble = None;
            self.in_trouble.store(false, Ordering::Release);
        }
        if let Some(mut emptied) = emptied
            && emptied.capacity() <= KEPT_SEGMENTS * self.options.segment_bytes
        {
            emptied.clear();
            state.spare = emptied;
        }
        drop(state);
        self.tell_waiters();
        self.room.notify_all();
        self.hooks.on_durable(durable);
    }

    fn tell_waiters(&self) {
        // A waiter that has checked and does not sleep yet holds the gate.
        drop(self.gate.lock());
        self.news.notify_all();
    }

    /// Reports an error to all waiters.
    pub(crate) fn report(&self, error: JournalError) {
        let mut state = self.state.lock();
        // The first one that cannot heal stays.
        if state.trouble.as_ref().is_none_or(JournalError::may_heal) {
            state.trouble = Some(error);
            self.in_trouble.store(true, Ordering::Release);
        }
        drop(state);
        self.tell_waiters();
        self.room.notify_all();
        self.poke();
    }
}

impl State {
    fn refusal(&self) -> Option<JournalError> {
        match &self.trouble {
            Some(error) if !error.may_heal() => Some(error.clone()),
            _ if self.closing => Some(JournalError::Closed),
            _ => None,
        }
    }

    /// True if something failed for good.
    pub(crate) fn failed(&self) -> bool {
        self.trouble.as_ref().is_some_and(|error| !error.may_heal())
    }

    /// Whether nothing is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether pending frames should be written now, whatever the time.
    pub(crate) fn is_due(&self, options: &Options) -> bool {
        !self.pending.is_empty()
            && (self.wanted > self.taken || self.closing || self.pending.len() >= options.segment_bytes / 4)
    }

    /// Nothing is pending, and maybe nothing will be for long: gives back the memory of buffers longer than `bytes`.
    fn shrink(&mut self, bytes: usize) {
        for buffer in [&mut self.pending, &mut self.spare] {
            if buffer.is_empty() && buffer.capacity() > bytes {
                *buffer = Vec::new();
            }
        }
    }

    /// Takes all pending frames.
    pub(crate) fn take(&mut self) -> Batch {
        let spare = mem::take(&mut self.spare);
        let frames = mem::replace(&mut self.pending, spare);
        self.taken_bytes += frames.len();
        let events = self.last.0 - self.taken.0;
        self.taken = self.last;
        Batch { frames, last: self.last, events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permanent_failure_stays_when_earlier_frames_are_confirmed() {
        let tail = Tail::new(Options::default(), Position(0));
        let first = tail.append(1, |pending| pending.extend([1; 8])).expect("appended");
        let second = tail.append(1, |pending| pending.extend([2; 8])).expect("appended");
        drop(tail.lock().take());
        tail.report(JournalError::Unreachable("for a moment".to_owned()));
        tail.confirm(Position(0), 0, None);
        assert_eq!(tail.wait_durable(Position(0)), Ok(()));
        let fenced = JournalError::Fenced { by: chiton_types::Epoch(7) };
        tail.report(fenced.clone());
        tail.confirm(first, 8, None);
        assert_eq!(tail.wait_durable(first), Ok(()));
        assert_eq!(tail.wait_durable(second), Err(fenced.clone()));
        assert_eq!(tail.append(1, |_| {}), Err(fenced.clone()));
        assert_eq!(tail.verdict(), Err(fenced));
    }

    #[test]
    fn a_long_buffer_is_kept_while_there_is_something_to_do() {
        const SEGMENT: usize = 1 << 10;
        let options = Options { segment_bytes: SEGMENT, ..Options::default() };
        let tail = Tail::new(options, Position(0));
        let mut position = Position(0);
        let mut batch_of = |bytes: usize| {
            position = tail.append(1, |pending| pending.extend(vec![7; bytes])).expect("appended");
            let batch = tail.lock().take();
            assert_eq!(batch.frames.len(), bytes);
            tail.confirm(batch.last, bytes, Some(batch.frames));
        };
        let check = |least: usize, most: usize| {
            let state = tail.lock();
            let held = state.spare.capacity().max(state.pending.capacity());
            assert!((least..=most).contains(&held), "{held} bytes are held, not {least} to {most}");
        };
        batch_of(3 * SEGMENT);
        check(3 * SEGMENT, KEPT_SEGMENTS * SEGMENT);
        tail.lock().shrink(SEGMENT);
        check(0, 0);
        batch_of(SEGMENT / 2);
        tail.lock().shrink(SEGMENT);
        check(SEGMENT / 2, SEGMENT);
        batch_of((KEPT_SEGMENTS + 1) * SEGMENT);
        check(0, SEGMENT);
    }
}
