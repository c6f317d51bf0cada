//! A plate with its threads, and how it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use chiton_journal::JournalError;
use chiton_metastore::StoreError;
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread::{self, JoinHandle};

use crate::checkpointer::Reason;
use crate::error::ShutdownError;
use crate::plate::Plate;

pub(crate) struct RunningPlate {
    pub(crate) plate: Arc<Plate>,
    threads: Mutex<Vec<JoinHandle>>,
}

impl RunningPlate {
    /// A plate whose threads are not started.
    pub(crate) fn new(plate: Arc<Plate>) -> RunningPlate {
        RunningPlate { plate, threads: Mutex::default() }
    }

    pub(crate) fn start_threads(&self) -> std::io::Result<()> {
        for &(name, body) in self.plate.kind.threads() {
            let plate = self.plate.clone();
            let thread = thread::spawn(name, move || body(&plate))?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Nothing is answered from now on.
    pub(crate) fn answer_no_more(&self) {
        // Under the engine's lock: a request is answered whole or finds the plate stopping.
        let _engine = self.plate.engine.lock_as_it_is();
        self.plate.condition.stopping.store(true, Ordering::Release);
    }

    /// Waits for its threads, which end because nothing is answered any more.
    pub(crate) fn join_threads(&self) {
        self.plate.wake_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                self.plate.log("a thread of the server panicked");
            }
        }
        self.plate.dismiss_waiters();
    }

    /// The plate ends: nobody waits any longer than this for a store that is away.
    pub(crate) fn end_waiting(&self, patience: Duration) {
        self.plate.condition.away.end(patience);
    }

    /// Makes everything durable, writes a checkpoint if asked to, closes the stores; its threads have ended. `done` is called after
    /// each step.
    pub(crate) fn close(
        &self,
        with_checkpoint: bool,
        done: &mut dyn FnMut(&'static str),
    ) -> Result<(), ShutdownError> {
        let _ = self.plate.wait_journal(self.plate.journal.last());
        done("commit");
        // A decoupled client's changes are in its journal only, and those of a preview are gone.
        // A read-only server has changed nothing, and needs no space to end.
        let has_checkpoints =
            with_checkpoint && self.plate.kind.has_checkpoints() && !self.plate.options.read_only;
        let checkpoint = if has_checkpoints { self.plate.checkpoint_now(Reason::Requested) } else { Ok(()) };
        done("checkpoint");
        let (journal, meta) = self.close_stores();
        done("close");
        journal.map_err(|e| ShutdownError::NotDurable(e.to_string()))?;
        checkpoint.map_err(ShutdownError::NoCheckpoint)?;
        meta.map_err(|e| ShutdownError::NoCheckpoint(e.to_string()))
    }

    /// Closes journal and rows as they are.
    pub(crate) fn close_stores(&self) -> (Result<(), JournalError>, Result<(), StoreError>) {
        (self.plate.journal.close(), self.plate.rows.meta.close())
    }

    /// Nothing more reaches the disk.
    pub(crate) fn sever(&self) {
        // A dead server does not report that the journal failed.
        self.answer_no_more();
        self.plate.place.sever();
    }

    /// Leaves the stores of a plate that was severed and whose threads have ended.
    pub(crate) fn leave_stores(&self) {
        // It cannot write any more, which is the point.
        let _ = self.plate.journal.close();
        let is_bucket = self.plate.rows.is_held && self.plate.blocks.address.is_empty();
        let listed = is_bucket.then(|| self.plate.blocks.objects.list("", None, 1));
        match listed {
            Some(Err(error)) if error.is_gone() => self.plate.rows.meta.leave(),
            _ => drop(self.plate.rows.meta.close()),
        }
    }
}
