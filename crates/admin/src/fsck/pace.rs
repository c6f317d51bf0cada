//! How fast a check may read, so that a running system has its disk for itself.

use std::time::Duration;

/// Rests shorter than this are saved up.
const REST_MIN: Duration = Duration::from_millis(10);

/// Limits the rate of reads. Unused time is not saved for later.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes that may be read in a second.
    rate: u64,
    /// From when on `bytes` count, on the monotonic clock.
    begun: Duration,
    bytes: u64,
}

impl Pace {
    /// At most `rate` bytes a second, from now on.
    pub(crate) fn new(rate: u64, now: Duration) -> Pace {
        Pace { rate: rate.max(1), begun: now, bytes: 0 }
    }

    /// So much was read; how long to rest before reading more.
    pub(crate) fn spend(&mut self, bytes: u64, now: Duration) -> Duration {
        self.bytes = self.bytes.saturating_add(bytes);
        let passed = now.saturating_sub(self.begun);
        let due = Duration::from_secs_f64(self.bytes as f64 / self.rate as f64);
        if due <= passed {
            *self = Pace::new(self.rate, now);
        }
        let rest = due.saturating_sub(passed);
        if rest < REST_MIN { Duration::ZERO } else { rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_than_its_share() {
        let ms = Duration::from_millis;
        let mut pace = Pace::new(1_000_000, ms(500));
        assert_eq!(pace.spend(1_000, ms(500)), Duration::ZERO, "too short a rest");
        assert_eq!(pace.spend(99_000, ms(500)), ms(100), "and it is not forgotten");
        assert_eq!(pace.spend(100_000, ms(600)), ms(100));
        // Ten idle seconds are no reason to read ten million bytes at once.
        assert_eq!(pace.spend(100_000, ms(10_600)), Duration::ZERO);
        assert_eq!(pace.spend(2_000_000, ms(10_600)), ms(2_000));
    }
}
