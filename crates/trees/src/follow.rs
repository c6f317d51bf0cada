//! A task that a server carries out as a job, over the deaths of servers.
//!
//! ```text
//!   start ─▶ job ─▶ done
//!     ▲       └──── its server dies, stops, or gives its plates away ─▶ does another task complete this one? ─ no ─▶ Unfollowed::Ended
//!     └──────────── at the server that took over ◀────────────────────────────────────────────────── yes ─┘
//! ```
//!
//! Invariants:
//! - A task begins again only if its result is then that of one time ([`Task::again`]).
//! - A job that ends its servers does not end all of them: so many are begun for a task.

use std::fmt;
use std::time::Duration;

use chiton_client::Client;
use chiton_runtime::thread;
use chiton_types::Refusal;

use crate::{Job, JobState, JobStatus, Task, Watch};

/// Jobs that are begun for a task.
const JOBS_MAX: u32 = 5;
/// The server that takes over, or the one that stops, may have no jobs for a moment: it is asked again for so long.
const START_PATIENCE: Duration = Duration::from_secs(5);
const START_PAUSE: Duration = Duration::from_millis(50);

/// Why a task was not followed to the end of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfollowed {
    /// No server began it.
    NotStarted {
        /// The task that [`Task::perform`] has to carry out from here: the one that was given, or another that completes it.
        task: Box<Task>,
        /// [`Refusal::Unsupported`] or [`Refusal::Invalid`] without jobs, [`Refusal::NotPermitted`] for this client,
        /// [`Refusal::Busy`] if as many run as may.
        refusal: Refusal,
    },
    /// The job ended with its server, and nothing completes the task, or that was tried often enough. A part of it is done.
    Ended {
        /// The number of the job.
        id: u64,
        /// Names that were done, at least.
        names: u64,
    },
    /// No server answers about the job.
    Unanswered {
        /// The number of the job.
        id: u64,
        refusal: Refusal,
    },
}

impl fmt::Display for Unfollowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfollowed::NotStarted { refusal, .. } => write!(f, "no server began a job: {refusal}"),
            Unfollowed::Ended { id, names } => {
                write!(f, "job {id} has ended with its server, after {names} names or a few more")
            }
            Unfollowed::Unanswered { id, refusal } => {
                write!(f, "no server answers about job {id}: {refusal}")
            }
        }
    }
}

impl Task {
    /// Has the server carry it out as a job ([`Job::start`]) and waits for the end ([`Job::wait`]). If the job's server dies meanwhile, stops,
    /// or gives its plates away, and another task completes this one ([`Task::again`]), the server that took over begins that: the watch hears of that
    /// by [`Watch::restarted`].
    ///
    /// # Errors
    /// See [`Unfollowed`].
    pub fn perform_there(&self, client: &Client, watch: &mut dyn Watch) -> Result<JobStatus, Unfollowed> {
        let mut job = Job::start(client, self).map_err(|refusal| self.not_started(refusal))?;
        // When the first job began: a copy that is resumed has made all files that are younger.
        let mut began = None;
        for begun in 1.. {
            let mut last = None;
            match job.follow(watch, &mut last) {
                Ok(status) if status.state != JobState::Stopped => return Ok(status),
                Ok(_) | Err(Refusal::NotFound) => {}
                Err(refusal) => return Err(Unfollowed::Unanswered { id: job.id(), refusal }),
            }
            let names = last.map_or(0, |(names, _)| names);
            began = began.or(last.map(|(_, began)| began));
            let again = self.again(began).filter(|_| !watch.is_stopped() && begun < JOBS_MAX);
            let Some(again) = again else { return Err(Unfollowed::Ended { id: job.id(), names }) };
            watch.restarted(job.id(), names);
            job = again.start_again(client, watch)?;
        }
        unreachable!("the last job is followed and not begun again")
    }

    fn not_started(&self, refusal: Refusal) -> Unfollowed {
        Unfollowed::NotStarted { task: Box::new(self.clone()), refusal }
    }

    fn start_again<'a>(&self, client: &'a Client, watch: &dyn Watch) -> Result<Job<'a>, Unfollowed> {
        let mut left = START_PATIENCE;
        loop {
            match Job::start(client, self) {
                Ok(job) => return Ok(job),
                Err(Refusal::Unsupported | Refusal::Busy) if !left.is_zero() && !watch.is_stopped() => {}
                Err(refusal) => return Err(self.not_started(refusal)),
            }
            thread::sleep(START_PAUSE);
            left = left.saturating_sub(START_PAUSE);
        }
    }
}
