//! Work on whole trees that this process does for clients. A client of this server does it: see the crate `tree-jobs`.

use chiton_types::{Cred, Refusal};
use chiton_wire::{Answer, Failure};

use crate::plate::Plate;

/// How a call of an administrator begins that is about jobs.
pub(crate) const JOBS: &str = "jobs ";

/// Carries out jobs on whole trees.
pub trait TreeJobs: Send + Sync {
    /// Answers what a user asks about jobs, with JSON.
    ///
    /// # Errors
    /// [`Refusal::Invalid`]: the words mean nothing; [`Refusal::NotFound`]: there is no such job; [`Refusal::NotPermitted`]: it is
    /// another user's; [`Refusal::Busy`]: too many run.
    fn ask(&self, cred: &Cred, words: &str) -> Result<Vec<u8>, Refusal>;
}

impl Plate {
    pub(crate) fn jobs(&self, cred: &Cred, words: &str) -> Result<Answer, Failure> {
        let jobs = self.options.tree_jobs.as_ref().ok_or(Refusal::Unsupported);
        jobs.and_then(|jobs| jobs.ask(cred, words)).map(Answer::Bytes).map_err(Failure::Refused)
    }
}
