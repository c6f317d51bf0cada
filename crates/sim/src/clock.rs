//! The clocks of a run: one true time, and for each party a clock that may run fast, slow, or be set wrong.
//!
//! Invariants:
//! - True time only grows; a party's monotonic clock only grows with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use chiton_runtime::World;
use chiton_types::Time;

/// Wall-clock time at the beginning of each run: 2026-01-01.
const EPOCH_NS: i64 = 1_767_225_600_000_000_000;
const MILLION: i128 = 1_000_000;

/// True time since the beginning of the run.
#[derive(Debug, Default)]
pub struct TrueTime(AtomicU64);

impl TrueTime {
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }

    pub(crate) fn set(&self, now: Duration) {
        self.0.store(now.as_nanos() as u64, Relaxed);
    }
}

/// The world of one party: its clock and its random numbers.
#[derive(Debug)]
pub struct PartyWorld {
    time: Arc<TrueTime>,
    /// How fast the clock runs, in millionths.
    drift_ppm: i64,
    /// The wall clock is set wrong by so much.
    wrong_ns: AtomicI64,
    random: AtomicU64,
}

impl PartyWorld {
    /// A clock that is `drift_ppm` millionths too fast, and random numbers from `seed`.
    pub fn new(time: Arc<TrueTime>, drift_ppm: i64, seed: u64) -> PartyWorld {
        PartyWorld { time, drift_ppm, wrong_ns: AtomicI64::new(0), random: AtomicU64::new(seed) }
    }

    /// Sets the wall clock off by `ns` from now on.
    pub fn set_wrong(&self, ns: i64) {
        self.wrong_ns.store(ns, Relaxed);
    }

    /// The true time that takes `local` on this party's clock.
    pub fn true_span(&self, local: Duration) -> Duration {
        let ns = local.as_nanos() as i128 * MILLION / (MILLION + i128::from(self.drift_ppm));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl World for PartyWorld {
    fn now(&self) -> Time {
        Time(EPOCH_NS + self.monotonic().as_nanos() as i64 + self.wrong_ns.load(Relaxed))
    }

    fn monotonic(&self) -> Duration {
        let true_ns = self.time.now().as_nanos() as i128;
        // A second past the beginning: no clock that was just started shows 0.
        let ns = 1_000_000_000 + true_ns * (MILLION + i128::from(self.drift_ppm)) / MILLION;
        Duration::from_nanos(ns as u64)
    }

    fn random(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15u64;
        let mut z = self.random.fetch_add(step, Relaxed).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_gains_and_a_span_on_it_is_shorter_in_truth() {
        let time = Arc::new(TrueTime::default());
        let (right, fast) = (PartyWorld::new(time.clone(), 0, 1), PartyWorld::new(time.clone(), 10_000, 1));
        let start = fast.monotonic();
        time.set(Duration::from_secs(100));
        assert_eq!(right.monotonic(), Duration::from_secs(101));
        assert_eq!(fast.monotonic() - start, Duration::from_secs(101));
        assert_eq!(fast.true_span(Duration::from_secs(101)), Duration::from_secs(100));
        fast.set_wrong(-5_000_000_000);
        assert_eq!(fast.now().0 - right.now().0, -4_000_000_000);
    }
}
