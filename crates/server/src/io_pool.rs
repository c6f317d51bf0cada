//! Requests that need a store and no decision: rows, blocks, objects of decoupled subtrees, reports, and
//! the syncing of blocks before a commit. The pool's threads do it, so that a slow store holds up nobody whose connection
//! shares a serving thread.
//!
//! ```text
//!   serving thread ─ submit ─▶ pool ─▶ metadata store, object store ─▶ answer
//!                  └ too much is waiting: does it itself, and reads nothing meanwhile
//! ```
//!
//! Invariants:
//! - Tasks of one client may overtake each other; a client that needs an order waits for the answers.
//! - When the server stops, waiting tasks are answered.

use std::io;
use std::sync::Arc;

use chiton_runtime::pool::{Limits, Pool};

use crate::fatal::Fatal;
use crate::plate::Plate;

/// Limits of the tasks that wait: most of the bytes are blocks that are to be stored.
const LIMITS: Limits = Limits { tasks_max: 1024, bytes_max: 64 << 20 };

/// The pool of a process that serves clients. Its threads sleep in the stores, not on a processor.
pub(crate) fn start(threads: usize) -> io::Result<Arc<Pool>> {
    Pool::start("chiton-io", threads, LIMITS)
}

/// The pool of a process in which the callers' threads do everything.
pub(crate) fn none() -> Arc<Pool> {
    Pool::start("chiton-io", 0, LIMITS).expect("it starts no thread")
}

impl Plate {
    /// Does something on a thread of the pool, or on this one if none can take it. `bytes`: how much memory it keeps.
    pub(crate) fn submit_io(self: &Arc<Self>, bytes: usize, work: impl FnOnce(&Plate) + Send + 'static) {
        let plate = self.clone();
        let task = Box::new(move || {
            let _fatal = Fatal::guard();
            work(&plate);
        });
        if let Err(task) = self.pool.submit(bytes, task) {
            task();
        }
    }
}
