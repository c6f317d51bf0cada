//! The seam for simulation: runs threads instead of the operating system.
//!
//! Invariants:
//! - Without a schedule on this thread, everything is the operating system's, at the cost of one look at a flag, and
//!   that only where a thread takes a lock, waits, wakes another, or starts one.
//! - Under a schedule one thread runs at a time: its actions between two waits, or two locks that it takes, are
//!   atomic.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

/// Runs threads in turn.
pub trait Schedule {
    /// A new thread; returns its number. It runs when its turn comes.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce()>) -> u64;
    /// The number of the thread that runs.
    fn current(&self) -> u64;
    /// Waits for the end of a thread.
    fn join(&self, thread: u64);
    /// Waits until another thread wakes `key`, or for `at_most`; false if that time has passed.
    fn wait(&self, key: usize, at_most: Option<Duration>) -> bool;
    /// Wakes the longest waiting thread of `key`, or all.
    fn wake(&self, key: usize, all: bool);
    fn sleep(&self, time: Duration);
    /// A thread is about to take a lock here: others may run before.
    fn pass(&self, at: &'static Location<'static>);
}

thread_local! {
    static IS_SCHEDULED: Cell<bool> = const { Cell::new(false) };
    static SCHEDULE: RefCell<Option<Rc<dyn Schedule>>> = const { RefCell::new(None) };
}

/// The schedule of this thread until dropped.
#[must_use = "the schedule ends when this is dropped"]
pub struct Installed(());

/// Lets `schedule` run all threads that this thread starts from now on.
///
/// # Panics
/// If this thread has a schedule already.
pub fn install(schedule: Rc<dyn Schedule>) -> Installed {
    SCHEDULE.with_borrow_mut(|now| {
        assert!(now.is_none(), "a thread has one schedule at a time");
        *now = Some(schedule);
    });
    IS_SCHEDULED.set(true);
    Installed(())
}

impl Drop for Installed {
    fn drop(&mut self) {
        IS_SCHEDULED.set(false);
        SCHEDULE.with_borrow_mut(|now| *now = None);
    }
}

/// True if a schedule runs this thread.
#[inline]
pub fn is_scheduled() -> bool {
    IS_SCHEDULED.get()
}

/// Lets a schedule run other threads.
#[inline]
#[track_caller]
pub(crate) fn pass() {
    if is_scheduled() {
        pass_scheduled(Location::caller());
    }
}

#[cold]
fn pass_scheduled(at: &'static Location<'static>) {
    if let Some(schedule) = current() {
        schedule.pass(at);
    }
}

#[inline]
pub(crate) fn current() -> Option<Rc<dyn Schedule>> {
    if is_scheduled() { SCHEDULE.with_borrow(Clone::clone) } else { None }
}
