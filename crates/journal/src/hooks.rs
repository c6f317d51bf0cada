//! Hooks that callers register for commits.
//!
//! Invariants:
//! - All run on the committer's thread, one at a time, without the tail's lock.
//! - A hook that was set is asked from the next commit on.

use chiton_runtime::sync::Mutex;
use chiton_types::Position;

use crate::error::JournalError;
use crate::place::PlaceError;

/// Asked before frames up to a position are written.
pub(crate) type Barrier = Box<dyn Fn(Position) -> Result<(), String> + Send>;
/// Called with the durable position of a commit.
pub(crate) type Listener = Box<dyn Fn(Position) + Send>;
/// Records the durable position of a commit before it is acknowledged.
pub(crate) type Witness = Box<dyn Fn(Position) -> Result<(), PlaceError> + Send>;

#[derive(Default)]
pub(crate) struct Hooks {
    barrier: Mutex<Option<Barrier>>,
    witness: Mutex<Option<Witness>>,
    listeners: Mutex<Vec<Listener>>,
}

impl Hooks {
    pub(crate) fn set_barrier(&self, barrier: Barrier) {
        *self.barrier.lock() = Some(barrier);
    }

    pub(crate) fn set_witness(&self, witness: Witness) {
        *self.witness.lock() = Some(witness);
    }

    pub(crate) fn add_listener(&self, listener: Listener) {
        self.listeners.lock().push(listener);
    }

    /// Failed for good if the barrier fails: like a page after a failed fsync, the data that it guards may be lost.
    pub(crate) fn before_commit(&self, last: Position) -> Result<(), JournalError> {
        match &*self.barrier.lock() {
            Some(barrier) => {
                barrier(last).map_err(|why| JournalError::Failed(format!("barrier before commit: {why}")))
            }
            None => Ok(()),
        }
    }

    /// Everything up to `durable` is on the place, and no waiter knows it yet. The commit has failed if this fails.
    pub(crate) fn witness(&self, durable: Position) -> Result<(), JournalError> {
        match &*self.witness.lock() {
            Some(witness) => Ok(witness(durable)?),
            None => Ok(()),
        }
    }

    pub(crate) fn on_durable(&self, durable: Position) {
        for listener in &*self.listeners.lock() {
            listener(durable);
        }
    }
}
