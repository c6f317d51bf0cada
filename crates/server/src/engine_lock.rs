//! The lock of the engine.
//!
//! Invariant: whoever takes it finds everything in memory that was answered, but for those who say that they do not
//! look ([`EngineLock::lock_as_it_is`]).

use chiton_runtime::sync::{Mutex, MutexGuard};

use chiton_engine::Engine;

/// See the module.
pub(crate) struct EngineLock(Mutex<Engine>);

impl EngineLock {
    pub(crate) fn new(engine: Engine) -> EngineLock {
        EngineLock(Mutex::new(engine))
    }

    /// For everything.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        let mut engine = self.0.lock();
        engine.apply_pending();
        engine
    }

    /// For what does not look at files and directories: some may be in the journal only.
    #[inline]
    pub(crate) fn lock_as_it_is(&self) -> MutexGuard<'_, Engine> {
        self.0.lock()
    }
}
