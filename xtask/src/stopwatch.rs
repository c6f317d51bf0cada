//! How long a step took.

/// Elapsed time of a step; automation may look at the clock.
pub(crate) struct Stopwatch(std::time::SystemTime);

#[expect(clippy::disallowed_methods, reason = "automation measures its steps by the real clock")]
impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(std::time::SystemTime::now())
    }

    pub(crate) fn seconds(&self) -> f64 {
        std::time::SystemTime::now().duration_since(self.0).map_or(0.0, |d| d.as_secs_f64())
    }
}
