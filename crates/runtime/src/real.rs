//! The world of a real process.

use std::time::Duration;

use chiton_types::Time;
use rustix::time::{ClockId, clock_gettime};

use crate::World;

/// System clock and the kernel's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealWorld;

impl World for RealWorld {
    fn now(&self) -> Time {
        let t = clock_gettime(ClockId::Realtime);
        Time::from_parts(t.tv_sec, t.tv_nsec as u32)
    }

    fn monotonic(&self) -> Duration {
        let t = clock_gettime(ClockId::Monotonic);
        Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
    }

    fn random(&self) -> u64 {
        let mut bytes = [0u8; 8];
        let n = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        assert_eq!(n, Ok(8), "the kernel's random source gave no 8 bytes");
        u64::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance_and_randomness_varies() {
        let w = RealWorld;
        let (a, b) = (w.monotonic(), w.monotonic());
        assert!(b >= a);
        assert!(w.now().secs() > 1_700_000_000);
        assert_ne!(w.random(), w.random());
    }
}
