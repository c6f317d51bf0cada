//! Latencies of single operations.

use crate::Result;
use crate::setting::now;

/// Times of operations, in seconds, in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<f64>);

impl Latencies {
    /// Reserves memory for this many, so that no operation waits for memory.
    pub(crate) fn with_room(operations: usize) -> Latencies {
        Latencies(Vec::with_capacity(operations))
    }

    pub(crate) fn time<T>(&mut self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        self.time_of_each(1, operation)
    }

    /// Carries out several at once, and records the time of each one's share.
    pub(crate) fn time_of_each<T>(
        &mut self,
        operations: usize,
        batch: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let begun = now();
        let made = batch()?;
        self.note((now() - begun).as_secs_f64() / operations as f64);
        Ok(made)
    }

    /// One that was timed elsewhere, in seconds.
    pub(crate) fn note(&mut self, seconds: f64) {
        self.0.push(seconds);
    }

    pub(crate) fn join(&mut self, others: Latencies) {
        self.0.extend(others.0);
    }

    /// The time in microseconds within which so large a share of them was over (0.99: p99), by the nearest rank. 0 of none.
    pub(crate) fn us(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.max(1) - 1).map_or(0.0, |seconds| seconds * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rank() {
        let of = |seconds: &[f64], share| Latencies(seconds.to_vec()).us(share);
        let hundred: Vec<f64> = (1..=100).rev().map(|us| f64::from(us) / 1e6).collect();
        for (share, us) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)] {
            assert!((of(&hundred, share) - us).abs() < 1e-6, "{share}");
        }
        assert_eq!((of(&[], 0.5), of(&[2.0], 0.01)), (0.0, 2e6));
    }

    #[test]
    fn one_s_share_of_a_batch() {
        let mut took = Latencies::with_room(2);
        took.time_of_each(1_000_000_000, || Ok(())).expect("nothing fails");
        assert!(took.us(1.0) < 1.0);
        took.join(Latencies(vec![3.0]));
        assert!((took.us(1.0) - 3e6).abs() < 1e-6);
        assert!(took.time(|| Err::<(), _>("no".into())).is_err());
    }
}
