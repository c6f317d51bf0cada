//! Retries operations that may succeed later.
//!
//! Invariants:
//! - Only [`ObjectError::Transient`] is tried again, at most `attempts_max` times in all.
//! - A `put_if_absent` that gets "exists" after its own failed attempt may have met its own object. Only the caller
//!   knows its nonce, so it gets `Transient`, never a wrong `false`.
//! - Waiting is the sleeper's; here is no clock.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::SharedWorld;

use crate::{ObjectError, ObjectInfo, Objects};

/// How often and how long apart.
#[derive(Clone, Copy, Debug)]
pub struct RetryOptions {
    /// Attempts in all, at least 1.
    pub attempts_max: u32,
    /// The first pause is random up to this; each further one doubles the bound.
    pub pause_first: Duration,
    /// The bound does not grow past this.
    pub pause_max: Duration,
}

impl Default for RetryOptions {
    /// Six attempts over at most 1.6 seconds.
    fn default() -> RetryOptions {
        let (pause_first, pause_max) = (Duration::from_millis(50), Duration::from_secs(2));
        RetryOptions { attempts_max: 6, pause_first, pause_max }
    }
}

/// Waits for a duration.
pub type Sleeper = Arc<dyn Fn(Duration) + Send + Sync>;

pub struct Retry {
    inner: Arc<dyn Objects>,
    world: SharedWorld,
    sleeper: Sleeper,
    options: RetryOptions,
}

impl Retry {
    /// Retries calls to `inner`, with jitter from `world`; waits by `sleeper`.
    pub fn new(
        inner: Arc<dyn Objects>,
        world: SharedWorld,
        sleeper: Sleeper,
        options: RetryOptions,
    ) -> Retry {
        assert!(options.attempts_max >= 1, "attempts_max of a retry must be at least 1");
        Retry { inner, world, sleeper, options }
    }

    /// `op` is given the number of attempts that failed before it.
    fn run<T>(&self, mut op: impl FnMut(u32) -> Result<T, ObjectError>) -> Result<T, ObjectError> {
        let mut failed = 0;
        loop {
            match op(failed) {
                Err(e) if e.is_transient() && failed + 1 < self.options.attempts_max => {
                    (self.sleeper)(self.pause(failed));
                    failed += 1;
                }
                result => return result,
            }
        }
    }

    /// Full jitter: uniform between zero and the doubling bound, so that many clients do not come back at once.
    fn pause(&self, failed: u32) -> Duration {
        let bound = self.options.pause_first.saturating_mul(1 << failed.min(20)).min(self.options.pause_max);
        let fraction = (self.world.random() >> 11) as f64 / (1u64 << 53) as f64;
        bound.mul_f64(fraction)
    }
}

impl Objects for Retry {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        self.run(|_| self.inner.get(key, range.clone()))
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        self.run(|_| self.inner.read_into(key, offset, into))
    }

    fn will_need(&self, key: &str) -> bool {
        self.inner.will_need(key)
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        self.run(|_| self.inner.size(key))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        self.run(|_| self.inner.put(key, bytes))
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        let (won, failed) = self.run(|failed| Ok((self.inner.put_if_absent(key, bytes)?, failed)))?;
        if !won && failed > 0 {
            let cause = "is there now, perhaps by an earlier attempt of this very call; compare its content";
            return Err(ObjectError::Transient { key: key.to_owned(), cause: cause.to_owned() });
        }
        Ok(won)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.run(|_| self.inner.delete(key))
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        self.run(|_| self.inner.list(prefix, after, max))
    }

    fn sync(&self) -> Result<(), ObjectError> {
        self.run(|_| self.inner.sync())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, MemoryObjects};
    use chiton_runtime::SeededWorld;
    use parking_lot::Mutex;

    fn retry() -> (Arc<MemoryObjects>, Retry, Arc<Mutex<Vec<Duration>>>) {
        let (memory, pauses) = (Arc::new(MemoryObjects::new()), Arc::new(Mutex::new(Vec::new())));
        let log = pauses.clone();
        let sleeper: Sleeper = Arc::new(move |pause| log.lock().push(pause));
        let options = RetryOptions { attempts_max: 4, ..RetryOptions::default() };
        (memory.clone(), Retry::new(memory, Arc::new(SeededWorld::new(1)), sleeper, options), pauses)
    }

    #[test]
    fn transient_failures_are_tried_again_a_limited_number_of_times() {
        let (memory, retry, pauses) = retry();
        memory.fail_next(3, Fault::Transient);
        retry.put("a", b"x").unwrap();
        let seen: Vec<Duration> = pauses.lock().drain(..).collect();
        assert_eq!(seen.len(), 3);
        for (n, pause) in seen.into_iter().enumerate() {
            assert!(pause < Duration::from_millis(50 << n), "{n} {pause:?}");
        }
        memory.fail_next(4, Fault::Transient);
        assert!(retry.get("a", None).unwrap_err().is_transient());
        memory.fail_next(1, Fault::Io);
        assert!(matches!(retry.get("a", None), Err(ObjectError::Io { .. })));
        assert_eq!(retry.get("a", None).unwrap(), b"x");
    }

    #[test]
    fn a_put_if_absent_that_may_have_met_itself_is_transient() {
        let (memory, retry, _) = retry();
        memory.fail_next(1, Fault::LostReply);
        assert!(retry.put_if_absent("a", b"x").unwrap_err().is_transient());
        assert_eq!(retry.put_if_absent("a", b"x"), Ok(false));
        memory.fail_next(1, Fault::Transient);
        assert_eq!(retry.put_if_absent("b", b"x"), Ok(true));
    }
}
