//! Ending a realm, or the work of this client in it.

use std::sync::atomic::Ordering;

use chiton_types::Refusal;

use crate::calls::ClaimCalls;
use crate::error::RealmError;
use crate::realm::Realm;
use crate::state_dir::StateDir;

impl Realm {
    /// Drops a journal that was left to this client when the decoupling was taken from it.
    fn discard_lost(&self) -> Result<(), RealmError> {
        let _merging = self.merging.lock();
        if self.is_settled() {
            return Ok(());
        }
        let Some(dir) = &self.state_dir_path else {
            self.ended.store(true, Ordering::Release);
            return Ok(());
        };
        let state_dir = StateDir::open(dir)?.ok_or_else(|| {
            let what = format!("{} is in use: another process has the journal", dir.display());
            RealmError::new(Refusal::Busy, what, "")
        })?;
        let calls = &self.calls.calls;
        match calls.attach(self.id(), self.options.world.random(), self.journal_at.clone()) {
            Ok(granted) => ClaimCalls { calls: calls.clone(), claim: granted.claim }.end(false)?,
            Err(error) if matches!(error.refusal(), Refusal::Stale | Refusal::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.ended.store(true, Ordering::Release);
        state_dir.remove()
    }

    /// Drops unmerged changes, and the decoupling ends.
    ///
    /// # Errors
    /// Why not; then it is as before.
    pub fn discard(&self) -> Result<(), RealmError> {
        if self.is_lost() {
            return self.discard_lost();
        }
        self.check_open()?;
        let _alone = self.gate.write();
        let _merging = self.merging.lock();
        self.check_open()?;
        self.end()?;
        self.close_down(true)
    }

    /// Ends the decoupling at the server.
    pub(super) fn end(&self) -> Result<(), RealmError> {
        self.calls.end(false)
    }

    /// This client ends, the decoupling stays: another client resumes where its journal ends.
    pub(crate) fn leave(&self) -> Result<(), RealmError> {
        if self.is_lost() {
            // It has left, and the journal waits.
            return Ok(());
        }
        let _alone = self.gate.write();
        let _merging = self.merging.lock();
        self.check_open()?;
        let synced = self.client.sync();
        self.note_durable();
        self.close_down(false)?;
        synced.map_err(|refusal| RealmError::refused("writes in the subtree cannot be made durable", refusal))
    }

    /// Ends as a crash would. For tests.
    pub fn abandon(&self) {
        self.ended.store(true, Ordering::Release);
        self.server.abandon();
        self.state_dir.lock().take();
    }

    /// The engine stops. `over`: nothing stays of the decoupling.
    pub(super) fn close_down(&self, over: bool) -> Result<(), RealmError> {
        self.ended.store(true, Ordering::Release);
        let stopped = self.server.shutdown();
        let state_dir = self.state_dir.lock().take();
        if over {
            return state_dir.map_or(Ok(()), StateDir::remove);
        }
        stopped.map_err(RealmError::journal)
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        for handle in self.held.get_mut().drain(..) {
            // If the server is gone, so are the files that were held.
            let _ = self.global.release(handle);
        }
    }
}
