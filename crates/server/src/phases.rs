//! How long the steps of a plate's start or end took, for the log and for metrics.

use std::fmt;
use std::time::Duration;

use chiton_runtime::World;

/// The steps so far, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Phases {
    began: Duration,
    last: Duration,
    steps: Vec<(&'static str, Duration)>,
}

impl Phases {
    pub(crate) fn begin(world: &dyn World) -> Phases {
        let now = world.monotonic();
        Phases { began: now, last: now, steps: Vec::new() }
    }

    /// The step that began with the end of the one before ends now.
    pub(crate) fn done(&mut self, step: &'static str, world: &dyn World) {
        self.done_at(step, world.monotonic());
    }

    /// The same, for a step whose end was noted.
    pub(crate) fn done_at(&mut self, step: &'static str, at: Duration) {
        self.steps.push((step, at.saturating_sub(self.last)));
        self.last = at.max(self.last);
    }

    /// Each step with its time.
    pub(crate) fn steps(&self) -> &[(&'static str, Duration)] {
        &self.steps
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms (", self.last.saturating_sub(self.began).as_millis())?;
        for (n, (step, took)) in self.steps.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{step} {}", took.as_millis())?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use chiton_runtime::SeededWorld;

    use super::*;

    #[test]
    fn each_step_counts_from_the_end_of_the_one_before() {
        let world = SeededWorld::new(1);
        let mut phases = Phases::begin(&world);
        world.advance(Duration::from_millis(20));
        phases.done("rows", &world);
        world.advance(Duration::from_millis(3));
        phases.done("journal", &world);
        assert_eq!(phases.to_string(), "23 ms (rows 20, journal 3)");
        assert_eq!(phases.steps()[1], ("journal", Duration::from_millis(3)));
    }
}
