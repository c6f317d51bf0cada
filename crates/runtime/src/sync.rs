//! Locks and waits: `parking_lot`'s, or turns of a [`Schedule`](crate::schedule::Schedule).
//!
//! Invariants:
//! - A free lock costs as much as `parking_lot`'s, plus one check of a flag.
//! - Guards are `parking_lot`'s own.

use std::fmt;
use std::time::Duration;

use parking_lot::lock_api::RawMutex as _;
pub use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::schedule::{self, Schedule};

/// How soon a scheduled thread looks again at a lock that is held, at first and at last.
const LOOK_FIRST: Duration = Duration::from_micros(1);
const LOOK_LAST: Duration = Duration::from_millis(1);

/// Under a schedule: looks until `try_lock` gives something.
#[cold]
fn look<G>(schedule: &dyn Schedule, mut try_lock: impl FnMut() -> Option<G>) -> G {
    let mut pause = LOOK_FIRST;
    loop {
        schedule.sleep(pause);
        if let Some(guard) = try_lock() {
            return guard;
        }
        pause = (pause * 2).min(LOOK_LAST);
    }
}

#[derive(Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        schedule::pass();
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.lock_slow(),
        }
    }

    #[cold]
    fn lock_slow(&self) -> MutexGuard<'_, T> {
        match schedule::current() {
            Some(schedule) => look(&*schedule, || self.0.try_lock()),
            None => self.0.lock(),
        }
    }

    /// The lock, if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// The value; `&mut` proves that no other thread has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value that one may change or many may read.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(parking_lot::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds the lock.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        schedule::pass();
        match self.0.try_read() {
            Some(guard) => guard,
            None => match schedule::current() {
                Some(schedule) => look(&*schedule, || self.0.try_read()),
                None => self.0.read(),
            },
        }
    }

    /// As [`RwLock::read`], but does not wait for a waiting writer: for a thread that reads already and for which
    /// that writer waits.
    #[inline]
    #[track_caller]
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        schedule::pass();
        match self.0.try_read_recursive() {
            Some(guard) => guard,
            None => match schedule::current() {
                Some(schedule) => look(&*schedule, || self.0.try_read_recursive()),
                None => self.0.read_recursive(),
            },
        }
    }

    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        schedule::pass();
        match self.0.try_write() {
            Some(guard) => guard,
            None => match schedule::current() {
                Some(schedule) => look(&*schedule, || self.0.try_write()),
                None => self.0.write(),
            },
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of the type behind, which knows whether it is locked.
        f.debug_tuple("RwLock").field(&self.0.is_locked()).finish()
    }
}

/// How a wait with a limit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    timed_out: bool,
}

impl Waited {
    /// True if the time had passed.
    pub fn timed_out(self) -> bool {
        self.timed_out
    }
}

/// Something to wait for, with a lock that is free meanwhile.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// The key by which a schedule knows it.
    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Waits until woken; the lock is free meanwhile.
    #[inline]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match schedule::current() {
            Some(schedule) => drop(self.wait_scheduled(&*schedule, guard, None)),
            None => self.0.wait(guard),
        }
    }

    /// The same, for at most `at_most`.
    #[inline]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, at_most: Duration) -> Waited {
        let timed_out = match schedule::current() {
            Some(schedule) => !self.wait_scheduled(&*schedule, guard, Some(at_most)),
            None => self.0.wait_for(guard, at_most).timed_out(),
        };
        Waited { timed_out }
    }

    #[cold]
    fn wait_scheduled<T: ?Sized>(
        &self,
        schedule: &dyn Schedule,
        guard: &mut MutexGuard<'_, T>,
        at_most: Option<Duration>,
    ) -> bool {
        unlocked(schedule, guard, || schedule.wait(self.key(), at_most))
    }

    #[inline]
    pub fn notify_one(&self) {
        match schedule::current() {
            Some(schedule) => schedule.wake(self.key(), false),
            None => drop(self.0.notify_one()),
        }
    }

    #[inline]
    pub fn notify_all(&self) {
        match schedule::current() {
            Some(schedule) => schedule.wake(self.key(), true),
            None => drop(self.0.notify_all()),
        }
    }
}

/// Runs `f` while the lock of `guard` is free, and takes it again.
pub fn without_lock<T: ?Sized, R>(guard: &mut MutexGuard<'_, T>, f: impl FnOnce() -> R) -> R {
    match schedule::current() {
        Some(schedule) => unlocked(&*schedule, guard, f),
        None => MutexGuard::unlocked(guard, f),
    }
}

fn unlocked<T: ?Sized, R>(
    schedule: &dyn Schedule,
    guard: &mut MutexGuard<'_, T>,
    f: impl FnOnce() -> R,
) -> R {
    /// Takes the lock again also when `f` panics: the guard will free it.
    struct Relock<'a>(&'a parking_lot::RawMutex, &'a dyn Schedule);
    impl Drop for Relock<'_> {
        fn drop(&mut self) {
            if !self.0.try_lock() {
                look(self.1, || self.0.try_lock().then_some(()));
            }
        }
    }
    // SAFETY: the guard proves that this thread holds the lock. It is borrowed until the end, so it is unused while
    // the lock is free, and `Relock` holds the lock again before that.
    let raw = unsafe { MutexGuard::mutex(guard).raw() };
    unsafe { raw.unlock() };
    let _relock = Relock(raw, schedule);
    f()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::thread;

    #[test]
    fn without_a_schedule_threads_wait_for_each_other() {
        let shared = Arc::new((Mutex::new(0), Condvar::new(), RwLock::new(1)));
        let other = shared.clone();
        let thread = thread::spawn("other", move || {
            let mut count = other.0.lock();
            while *count < 1 {
                other.1.wait(&mut count);
            }
            *count += *other.2.read();
            other.1.notify_all();
        })
        .expect("a thread starts");
        assert!(!thread.is_current());
        let mut count = shared.0.lock();
        *shared.2.write() = 41;
        *count = 1;
        shared.1.notify_all();
        while *count < 42 {
            shared.1.wait(&mut count);
        }
        assert_eq!(without_lock(&mut count, || shared.0.try_lock().map(|count| *count)), Some(42));
        assert!(shared.0.try_lock().is_none());
        assert!(shared.1.wait_for(&mut count, Duration::from_millis(1)).timed_out());
        drop(count);
        thread.join().expect("it ended well");
    }
}
