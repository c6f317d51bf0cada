//! A server answers only while its lease has time left.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chiton_runtime::SharedWorld;
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_transport::Gate;

/// The share of a lease for which it may answer: 2 of 3. The rest covers clocks that do not run alike, and answers that are under way.
const SHARE: (u32, u32) = (2, 3);
/// How long a thread waits before it looks at the clock again.
const LOOK: Duration = Duration::from_millis(100);

/// Closed at first.
pub(crate) struct LeaseGate {
    world: SharedWorld,
    /// Nanoseconds of the world's monotonic time.
    open_until: AtomicU64,
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl LeaseGate {
    pub(crate) fn new(world: SharedWorld) -> LeaseGate {
        LeaseGate {
            world,
            open_until: AtomicU64::new(0),
            is_over: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// The lease was renewed, at the earliest at `since`.
    pub(crate) fn renewed(&self, since: Duration, lease: Duration) {
        let (share, of) = SHARE;
        let until = since + lease * share / of;
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.open_until.fetch_max(nanos, Ordering::SeqCst);
        let _is_over = self.is_over.lock();
        self.changed.notify_all();
    }

    /// It does not open again, and nobody waits for it.
    pub(crate) fn end(&self) {
        *self.is_over.lock() = true;
        self.open_until.store(0, Ordering::SeqCst);
        self.changed.notify_all();
    }

    pub(crate) fn is_open(&self) -> bool {
        let now = u64::try_from(self.world.monotonic().as_nanos()).unwrap_or(u64::MAX);
        now < self.open_until.load(Ordering::SeqCst)
    }
}

impl Gate for LeaseGate {
    fn pass(&self) -> bool {
        if self.is_open() {
            return true;
        }
        let mut is_over = self.is_over.lock();
        while !*is_over && !self.is_open() {
            self.changed.wait_for(&mut is_over, LOOK);
        }
        !*is_over
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chiton_runtime::{SeededWorld, World, thread};

    use super::*;

    #[test]
    fn it_closes_before_the_lease_ends_and_opens_with_the_next() {
        let world = Arc::new(SeededWorld::new(1));
        let start = world.monotonic();
        let gate = Arc::new(LeaseGate::new(world.clone()));
        assert!(!gate.is_open());
        gate.renewed(start, Duration::from_secs(3));
        world.advance(Duration::from_millis(1_999));
        assert!(gate.is_open() && gate.pass());
        world.advance(Duration::from_millis(1));
        assert!(!gate.is_open());
        let waiting = gate.clone();
        let waiter = thread::spawn("waiter", move || assert!(waiting.pass())).expect("a thread");
        // It counts from the moment before it was asked for.
        gate.renewed(start + Duration::from_secs(1), Duration::from_secs(3));
        waiter.join().expect("it passed");
        // An answer that comes late does not shorten it.
        gate.renewed(start, Duration::from_secs(1));
        assert!(gate.is_open());
        gate.end();
        assert!(!gate.pass());
    }
}
