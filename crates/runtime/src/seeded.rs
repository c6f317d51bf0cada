//! A world from a seed: time moves only on command, and random numbers repeat.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use chiton_types::Time;

use crate::World;

/// Deterministic clock and randomness for tests and simulation.
#[derive(Debug)]
pub struct SeededWorld {
    now_ns: AtomicI64,
    state: AtomicU64,
}

impl SeededWorld {
    /// Starts at one second past the Unix epoch.
    pub fn new(seed: u64) -> SeededWorld {
        SeededWorld { now_ns: AtomicI64::new(1_000_000_000), state: AtomicU64::new(seed) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        self.now_ns.fetch_add(by.as_nanos() as i64, Ordering::Relaxed);
    }
}

impl World for SeededWorld {
    fn now(&self) -> Time {
        Time(self.now_ns.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Relaxed) as u64)
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn random(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15u64;
        let mut z = self.state.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_world() {
        let (a, b) = (SeededWorld::new(7), SeededWorld::new(7));
        let draw = |w: &SeededWorld| (0..5).map(|_| w.random()).collect::<Vec<_>>();
        assert_eq!(draw(&a), draw(&b));
        assert_ne!(draw(&a), draw(&SeededWorld::new(8)));
        a.advance(Duration::from_millis(5));
        assert_eq!(a.monotonic() - b.monotonic(), Duration::from_millis(5));
    }
}
