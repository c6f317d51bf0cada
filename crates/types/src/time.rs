//! Points in time.

/// Nanoseconds since the Unix epoch (negative before it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

const SECOND: i64 = 1_000_000_000;

impl Time {
    /// From seconds and nanoseconds as `timespec` has them. Saturates at the years 1677 and 2262.
    pub fn from_parts(secs: i64, nanos: u32) -> Time {
        Time(secs.saturating_mul(SECOND).saturating_add(i64::from(nanos)))
    }

    /// Whole seconds, rounded down.
    pub fn secs(self) -> i64 {
        self.0.div_euclid(SECOND)
    }

    /// Nanoseconds within the second, 0 to 999,999,999.
    pub fn subsec_nanos(self) -> u32 {
        self.0.rem_euclid(SECOND) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_round_trip_on_both_sides_of_the_epoch() {
        for (secs, nanos) in [(0, 0), (1, 999_999_999), (-1, 1), (-5, 0)] {
            let t = Time::from_parts(secs, nanos);
            assert_eq!((t.secs(), t.subsec_nanos()), (secs, nanos));
        }
    }
}
