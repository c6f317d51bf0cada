//! One job: how far it is, and the thread that works.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_client::Client;
use chiton_runtime::SharedWorld;
use chiton_runtime::sync::Mutex;
use chiton_trees::{JobState, JobStatus, Refused, Task, Totals, Watch};
use chiton_types::Refusal;

/// Refusals that are kept. All are counted.
pub(crate) const REFUSALS_MAX: usize = 1_000;
/// Lines of `du` that are kept.
pub(crate) const LINES_MAX: usize = 10_000;

/// See the module.
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) uid: u32,
    kind: &'static str,
    path: String,
    world: SharedWorld,
    began: Duration,
    is_cancelled: AtomicBool,
    progress: Mutex<Progress>,
}

struct Progress {
    state: JobState,
    names: u64,
    refused: u64,
    refusals: Vec<Refused>,
    totals: Option<Totals>,
    why: Option<String>,
    ended: Option<Duration>,
}

impl Job {
    pub(crate) fn new(id: u64, uid: u32, task: &Task, world: SharedWorld) -> Job {
        let subjects = task.subjects();
        let path = match subjects.split_first() {
            None => String::new(),
            Some((first, [])) => first.path.clone(),
            Some((first, more)) => format!("{} and {} more", first.path, more.len()),
        };
        let progress = Progress {
            state: JobState::Running,
            names: 0,
            refused: 0,
            refusals: Vec::new(),
            totals: None,
            why: None,
            ended: None,
        };
        let began = world.monotonic();
        let (is_cancelled, progress) = (AtomicBool::new(false), Mutex::new(progress));
        Job { id, uid, kind: task.kind(), path, world, began, is_cancelled, progress }
    }

    pub(crate) fn state(&self) -> JobState {
        self.progress.lock().state
    }

    /// When it was over.
    pub(crate) fn ended(&self) -> Option<Duration> {
        self.progress.lock().ended
    }

    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// With the refusals after the first `from`.
    pub(crate) fn status(&self, from: u64) -> JobStatus {
        let progress = self.progress.lock();
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(progress.refusals.len());
        let now = self.world.monotonic();
        JobStatus {
            id: self.id,
            kind: self.kind.to_owned(),
            uid: self.uid,
            path: self.path.clone(),
            state: progress.state,
            names: progress.names,
            refused: progress.refused,
            refusals: progress.refusals[from..].to_vec(),
            age: now.saturating_sub(self.began),
            worked: progress.ended.unwrap_or(now).saturating_sub(self.began),
            totals: progress.totals.clone(),
            why: progress.why.clone(),
        }
    }

    pub(crate) fn fail(&self, why: String) {
        self.end(JobState::Failed, None, Some(why));
    }

    fn end(&self, state: JobState, totals: Option<Totals>, why: Option<String>) {
        let mut progress = self.progress.lock();
        if progress.state == JobState::Running {
            let ended = Some(self.world.monotonic());
            let Progress { names, refused, .. } = *progress;
            let refusals = std::mem::take(&mut progress.refusals);
            *progress = Progress { state, names, refused, refusals, totals, why, ended };
        }
    }

    /// Does the work, on the thread that calls.
    pub(crate) fn run(&self, task: &Task, connect: impl FnOnce() -> Result<Client, String>) {
        // Should the work panic.
        let _ends = Ends(self);
        let client = match connect() {
            Ok(client) => client,
            Err(why) => return self.fail(format!("the server cannot ask itself: {why}")),
        };
        let mut follower = Follower { job: self, is_lost: false };
        let totals = task.perform(&client, &mut follower);
        let is_lost = follower.is_lost;
        match client.sync() {
            Err(refusal) if is_lost || refusal == Refusal::NotConnected => {
                let why = "the server stops, or does not reach another one that has a part of the tree";
                return self.end(JobState::Failed, Some(totals), Some(why.to_owned()));
            }
            Err(refusal) => {
                let why = format!(
                    "some of the changes may be lost: they could not be made durable: {refusal}; look at the tree and start again"
                );
                return self.end(JobState::Failed, Some(totals), Some(why));
            }
            Ok(()) => {}
        }
        match totals {
            Totals::Usage(lines) if lines.len() > LINES_MAX => self.fail(format!(
                "{} directories have totals of their own, and a job keeps {LINES_MAX}: ask for less depth",
                lines.len()
            )),
            totals if self.is_cancelled.load(Ordering::Relaxed) => {
                self.end(JobState::Cancelled, Some(totals), None);
            }
            totals => self.end(JobState::Done, Some(totals), None),
        }
    }
}

/// Ends a job whose thread ends.
struct Ends<'a>(&'a Job);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0
            .fail("it ended early: a mistake in Chiton, of which the log of the server has more".to_owned());
    }
}

/// Keeps what a job has to say.
struct Follower<'a> {
    job: &'a Job,
    is_lost: bool,
}

impl Watch for Follower<'_> {
    fn refused(&mut self, refused: Refused) {
        if refused.refusal == Refusal::NotConnected && std::mem::replace(&mut self.is_lost, true) {
            return;
        }
        let mut progress = self.job.progress.lock();
        progress.refused += 1;
        if progress.refusals.len() < REFUSALS_MAX {
            progress.refusals.push(refused);
        }
    }

    fn progress(&mut self, names: u64) {
        self.job.progress.lock().names = names;
    }

    fn is_stopped(&self) -> bool {
        self.is_lost || self.job.is_cancelled.load(Ordering::Relaxed)
    }
}
