//! A thread's wake-up call.

use std::time::Duration;

use chiton_runtime::sync::{Condvar, Mutex};

/// Rung by anybody, waited for by one.
#[derive(Default)]
pub(crate) struct WakeUp {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl WakeUp {
    pub(crate) fn wake(&self) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until it rings, or so long; true if it rang.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        let mut rung = self.rung.lock();
        if !*rung {
            self.changed.wait_for(&mut rung, at_most);
        }
        std::mem::take(&mut *rung)
    }
}
