//! One job: how far it is, and the thread that works.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_client::Client;
use chiton_runtime::sync::Mutex;
use chiton_runtime::{SharedWorld, thread};
use chiton_trees::{Found, JobState, JobStatus, Refused, Task, Totals, Watch};
use chiton_types::{Refusal, Time};

/// Refusals that are kept. All are counted.
pub(crate) const REFUSALS_MAX: usize = 1_000;
/// Lines of `du` that are kept.
pub(crate) const LINES_MAX: usize = 10_000;
/// Bytes of names that a search has found and no client has taken: then it waits.
const UNTAKEN_BYTES_MAX: usize = 1 << 20;
/// Bytes of one answer, about.
const PIECE_BYTES: usize = 256 << 10;
/// How long it waits.
pub(crate) const UNTAKEN_PATIENCE: Duration = Duration::from_secs(60);
const UNTAKEN_PAUSE: Duration = Duration::from_micros(500);

pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) uid: u32,
    kind: &'static str,
    path: String,
    world: SharedWorld,
    /// By the clock that files get their times from, and by one that never jumps.
    began_at: Time,
    began: Duration,
    is_cancelled: AtomicBool,
    /// The server stops, or has no plate any more.
    is_stopped: AtomicBool,
    progress: Mutex<Progress>,
    untaken: Mutex<Untaken>,
}

/// Names that a search has found and no client has taken, encoded.
#[derive(Default)]
struct Untaken {
    /// The number of the first name.
    first: u64,
    /// Each is an answer.
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// When a client last asked, if one ever did.
    asked: Option<Duration>,
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

#[derive(Default)]
struct Piece {
    names: u64,
    bytes: Vec<u8>,
    /// It was answered, so that it gets no more names.
    is_closed: bool,
}

impl Untaken {
    fn add(&mut self, found: &Found) {
        let is_full = |piece: &Piece| piece.is_closed || piece.bytes.len() >= PIECE_BYTES;
        if self.pieces.back().is_none_or(is_full) {
            self.pieces.push_back(Piece::default());
        }
        let Some(piece) = self.pieces.back_mut() else { return };
        let before = piece.bytes.len();
        found.put(&mut piece.bytes);
        piece.names += 1;
        self.bytes += piece.bytes.len() - before;
    }
}

impl Job {
    pub(crate) fn new(id: u64, uid: u32, task: &Task, world: SharedWorld) -> Job {
        let subjects = task.subjects();
        let path = match subjects.split_first() {
            None => String::new(),
            Some((first, [])) => String::from_utf8_lossy(&first.path).into_owned(),
            Some((first, more)) => {
                format!("{} and {} more", String::from_utf8_lossy(&first.path), more.len())
            }
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
        let (began_at, began) = (world.now(), world.monotonic());
        Job {
            id,
            uid,
            kind: task.kind(),
            path,
            world,
            began_at,
            began,
            is_cancelled: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            progress: Mutex::new(progress),
            untaken: Mutex::new(Untaken::default()),
        }
    }

    pub(crate) fn state(&self) -> JobState {
        self.progress.lock().state
    }

    /// Monotonic time at which it was over.
    pub(crate) fn ended(&self) -> Option<Duration> {
        self.progress.lock().ended
    }

    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Its server stops, or has no plate any more.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn is_to_end(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed) || self.is_stopped.load(Ordering::Relaxed)
    }

    /// The names that it has found after the first `from`, as far as one answer holds them. Those before are dropped.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] if another client has taken that, or it is not found yet.
    pub(crate) fn found(&self, from: u64) -> Result<Vec<u8>, Refusal> {
        let mut untaken = self.untaken.lock();
        untaken.asked = Some(self.world.monotonic());
        while untaken.first < from
            && untaken.pieces.front().is_some_and(|piece| piece.is_closed)
            && let Some(taken) = untaken.pieces.pop_front()
        {
            untaken.first += taken.names;
            untaken.bytes -= taken.bytes.len();
        }
        if untaken.first != from {
            return Err(Refusal::Invalid);
        }
        let Some(next) = untaken.pieces.front_mut() else { return Ok(Vec::new()) };
        next.is_closed = true;
        Ok(next.bytes.clone())
    }

    /// Keeps it until a client takes it. False if none does.
    fn keep(&self, found: &Found) -> bool {
        let mut began = None;
        loop {
            let mut untaken = self.untaken.lock();
            if untaken.bytes < UNTAKEN_BYTES_MAX {
                untaken.add(found);
                return true;
            }
            let began = *began.get_or_insert_with(|| self.world.monotonic());
            let since = untaken.asked.map_or(began, |asked| asked.max(began));
            drop(untaken);
            if self.is_to_end() {
                return true;
            }
            if self.world.monotonic().saturating_sub(since) > UNTAKEN_PATIENCE {
                return false;
            }
            thread::sleep(UNTAKEN_PAUSE);
        }
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
            began: self.began_at,
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

    fn end_with_server(&self, totals: Option<Totals>) {
        let why = "its server stopped, or gave all its plates away: start it again";
        self.end(JobState::Stopped, totals, Some(why.to_owned()));
    }

    /// Does the work, on the thread that calls.
    pub(crate) fn run(&self, task: &Task, connect: impl FnOnce() -> Result<Client, String>) {
        // Should the work panic.
        let _ends = Ends(self);
        let client = match connect() {
            Ok(client) => client,
            Err(_) if self.is_stopped.load(Ordering::Relaxed) => return self.end_with_server(None),
            Err(why) => return self.fail(format!("the server cannot ask itself: {why}")),
        };
        let mut follower = Follower { job: self, is_lost: false, is_untaken: false };
        let totals = match self.is_stopped.load(Ordering::Relaxed) {
            // Before it began: nothing is done.
            true => None,
            false => Some(task.perform(&client, &mut follower)),
        };
        let Follower { is_lost, is_untaken, .. } = follower;
        if self.is_stopped.load(Ordering::Relaxed) {
            return self.end_with_server(totals);
        }
        if is_untaken {
            return self.end(
                JobState::Failed,
                totals,
                Some("no client took the names that it found".to_owned()),
            );
        }
        match client.sync() {
            Err(refusal) if is_lost || refusal == Refusal::NotConnected => {
                let why = "the server stops, or does not reach another one that has a part of the tree";
                return self.end(JobState::Failed, totals, Some(why.to_owned()));
            }
            Err(refusal) => {
                let why = format!(
                    "some of the changes may be lost: they could not be made durable: {refusal}; look at the tree and start again"
                );
                return self.end(JobState::Failed, totals, Some(why));
            }
            Ok(()) => {}
        }
        match totals {
            Some(Totals::Usage(lines)) if lines.len() > LINES_MAX => self.fail(format!(
                "{} directories have totals of their own, and a job keeps {LINES_MAX}: ask for less depth",
                lines.len()
            )),
            totals if self.is_cancelled.load(Ordering::Relaxed) => {
                self.end(JobState::Cancelled, totals, None);
            }
            totals => self.end(JobState::Done, totals, None),
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
    is_untaken: bool,
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

    fn found(&mut self, found: Found) {
        self.is_untaken = self.is_untaken || !self.job.keep(&found);
    }

    fn is_stopped(&self) -> bool {
        self.is_lost || self.is_untaken || self.job.is_to_end()
    }
}
