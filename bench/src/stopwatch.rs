//! Elapsed time from the project's one clock.

use std::time::Duration;

use chiton_runtime::{RealWorld, World};

pub(crate) struct Stopwatch(Duration);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(now())
    }

    pub(crate) fn seconds(&self) -> f64 {
        (now() - self.0).as_secs_f64()
    }
}

/// The machine's monotonic clock, comparable between processes.
pub(crate) fn now() -> Duration {
    RealWorld.monotonic()
}
