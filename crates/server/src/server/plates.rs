//! Plates of a server that start and end while the others live: take-over, hand-over, crash.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chiton_types::PlateId;

use super::{END_PATIENCE, Server};
use crate::phases::Phases;
use crate::role::Part;
use crate::running::RunningPlate;
use crate::waiting_greetings::Greeting;
use crate::{ShutdownError, StartError, Stores};

impl Server {
    /// The plates that run here, and whether another server has taken each over already.
    pub fn running_plates(&self) -> Vec<(PlateId, bool)> {
        self.table.all().iter().map(|running| (running.plate.plate, running.plate.is_fenced())).collect()
    }

    /// Prepares the end of a plate while the plate serves: writes a checkpoint, and empties the log of the metadata store. The next start
    /// then replays only the changes that came after.
    ///
    /// # Errors
    /// In words. The plate can be stopped all the same, and its next start takes longer.
    pub fn settle_plate(&self, plate: PlateId) -> Result<(), String> {
        let Some(running) = self.table.get(plate) else { return Ok(()) };
        running.plate.settle()
    }

    /// Ends one plate in order, while the others live: makes everything durable, so that another server can start it at once. It writes
    /// a checkpoint only if that start would have much to replay. Clients that come back wait for their answer until
    /// [`Server::await_plates`] says that the plate has gone, or it runs here again.
    ///
    /// # Errors
    /// See [`ShutdownError`]. The plate has ended all the same.
    pub fn stop_plate(&self, plate: PlateId) -> Result<(), ShutdownError> {
        self.table.waiting_greetings().await_also(plate);
        let Some(running) = self.table.take(plate) else { return Ok(()) };
        let world = running.plate.world.clone();
        let mut phases = Phases::begin(&*world);
        running.answer_no_more();
        running.plate.waiters.channels.close_connections();
        running.end_waiting(END_PATIENCE);
        self.builder.peers().leave(plate);
        running.join_threads();
        phases.done("freeze", &*world);
        self.end_jobs_without_plates();
        let closed = running.close(running.plate.needs_checkpoint(), &mut |step| phases.done(step, &*world));
        running.plate.log(&format!("plate {plate} stopped in {phases}"));
        closed
    }

    /// Ends one plate as a crash would, while the others live: nothing more of it reaches its stores, and the messages to and from it
    /// that have not arrived are lost.
    pub fn crash_plate(&self, plate: PlateId) {
        let Some(running) = self.table.take(plate) else { return };
        self.builder.peers().leave(plate);
        running.end_waiting(Duration::ZERO);
        running.sever();
        running.plate.waiters.channels.close_connections();
        running.join_threads();
        running.leave_stores();
        self.end_jobs_without_plates();
    }

    fn end_jobs_without_plates(&self) {
        if let Some(jobs) = self.builder.tree_jobs().filter(|_| self.table.all().is_empty()) {
            jobs.has_no_plates();
        }
    }

    /// Starts a plate that does not run here, from its stores.
    ///
    /// # Errors
    /// See [`StartError`].
    ///
    /// # Panics
    /// If the plate runs.
    pub fn start_plate(&self, plate: PlateId, stores: Stores) -> Result<(), StartError> {
        assert!(self.table.get(plate).is_none(), "plate {plate} runs");
        let part = Part::Serving { info: self.info.clone(), plate, stores };
        let running = Arc::new(RunningPlate::new(self.builder.clone().build(part)?));
        self.introduce(&running.plate);
        self.table.put(running.clone());
        running.start_threads().map_err(|e| StartError::Failed(format!("a thread: {e}")))?;
        running.plate.with_engine(|engine, _| engine.greet_peers(running.plate.boot));
        self.table.waiting_greetings().has_come(plate).into_iter().for_each(Greeting::answer);
        Ok(())
    }

    /// The plates that are about to start here, or have stopped and not yet gone to another server. Clients that come back to one of
    /// them are answered when it runs; those that wait for others are sent on now.
    pub fn await_plates(&self, plates: BTreeSet<PlateId>) {
        self.table.waiting_greetings().await_only(plates).into_iter().for_each(Greeting::answer);
    }

    /// Has clients that have waited too long for a plate try again. To be called several times a second.
    pub fn refuse_late(&self) {
        let now = self.builder.world().monotonic();
        self.table.waiting_greetings().late(now).into_iter().for_each(Greeting::refuse);
    }
}
