//! A panic while the engine is in use ends the process: its state may be half changed, and a thread that waits for its lock
//! would continue with that. (A simulation ends itself, and reports its seed.)

use std::thread;

use chiton_runtime::schedule;

/// Ends the process if it is dropped by a panic that began after it was made.
pub(crate) struct Fatal {
    was_panicking: bool,
}

impl Fatal {
    #[inline]
    pub(crate) fn guard() -> Fatal {
        Fatal { was_panicking: thread::panicking() }
    }
}

impl Drop for Fatal {
    #[inline]
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking && !schedule::is_scheduled() {
            #[expect(clippy::disallowed_methods, reason = "nobody may see the half-changed state")]
            std::process::abort();
        }
    }
}
