//! The thread that pushes what was dirty for long, and everything when memory is short.
//!
//! Invariants:
//! - It sleeps while nothing is dirty. A caller that writes small files one after the other does not wake it for each: after one it
//!   looks again later, and sleeps when there was none since.
//! - It keeps the files alive only while it pushes.

use std::sync::Weak;
use std::time::Duration;

use super::budget::{Budget, WakeUp};
use super::files::Files;
use super::push::Scope;

/// Until the budget is closed.
pub(super) fn run(files: &Weak<Files>, budget: &Budget) {
    let mut wait: Option<Duration> = None;
    loop {
        let wake_up = budget.listen(wait);
        let Some(files) = files.upgrade() else { return };
        match wake_up {
            WakeUp::Closed => return,
            WakeUp::Room => {
                let half = files.options.dirty_bytes_max / 2;
                let result = files.push_dirty(Scope::All, || budget.used_bytes() >= half);
                budget.run_finished(result.err());
            }
            // A failure is kept for those who have the file open.
            WakeUp::Time => drop(files.push_old()),
        }
        let stays_awake = budget.was_stirred() || files.has_dirty();
        wait = stays_awake.then_some(files.options.flush_interval / 4);
    }
}

impl Files {
    /// Pushes what was dirty for longer than the flush interval.
    ///
    /// # Errors
    /// The last failure; the handles of that file report it.
    pub fn push_old(&self) -> Result<(), chiton_types::Refusal> {
        let until = self.world.monotonic().saturating_sub(self.options.flush_interval);
        self.push_dirty(Scope::Until(until), || true)
    }
}
