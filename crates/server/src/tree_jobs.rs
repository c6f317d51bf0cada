//! Work on whole trees that this process does for clients. A client of this server does it: see the crate `tree-jobs`.

use chiton_types::{Cred, Refusal, SessionId};
use chiton_wire::{Answer, Failure};

use crate::plate::Plate;

/// How a call of an administrator begins that is about jobs.
pub(crate) const JOBS: &str = "jobs ";

/// How the identities of the clients begin that carry out jobs. They run inside the server.
pub const JOB_IDENTITY: &str = "job ";

/// A job of another plate begins.
const YIELD: &str = "yield";
/// How the words for a new job begin.
const START: &str = "start ";

/// Carries out jobs on whole trees.
pub trait TreeJobs: Send + Sync {
    /// Answers what a user asks about jobs, with JSON.
    ///
    /// # Errors
    /// [`Refusal::Invalid`]: the words mean nothing; [`Refusal::NotFound`]: there is no such job; [`Refusal::NotPermitted`]: it is
    /// another user's; [`Refusal::Busy`]: too many run.
    fn ask(&self, cred: &Cred, words: &str) -> Result<Vec<u8>, Refusal>;

    /// The process has no plate any more: no client reaches its jobs, which end, and may begin again at another server.
    fn has_no_plates(&self);
}

impl Plate {
    /// Answers a session, and makes way for its job: see [`chiton_engine::Engine::yield_leases`].
    pub(crate) fn jobs(&self, session: SessionId, cred: &Cred, words: &str) -> Result<Answer, Failure> {
        let jobs = self.options.tree_jobs.as_ref().ok_or(Failure::Refused(Refusal::Unsupported))?;
        if words == YIELD || words.starts_with(START) {
            self.with_engine(|engine, m| engine.yield_leases(session, m));
        }
        if words == YIELD {
            return Ok(Answer::Bytes(b"{}".to_vec()));
        }
        jobs.ask(cred, words).map(Answer::Bytes).map_err(Failure::Refused)
    }
}
