//! Tasks that a server carries out: a client starts one, asks how far it is, and may cancel it.
//!
//! ```text
//!   Job::start ─ "jobs start TASK" ─▶ a server ─ Task::perform by a client of its own
//!   Job::wait  ─ "jobs show ID FROM" ─▶ progress, refusals from FROM on, totals at the end
//!              ─ "jobs found ID FROM" ─▶ of a search, what it has found from FROM on; the server forgets what came before
//! ```
//!
//! Invariants:
//! - A job belongs to the server that has started it, and ends with it. Other servers of a cluster do not know it.
//!   [`Task::perform_there`] begins another where the task may be repeated.
//! - It does not depend on the client that has started it: that one may go.

use std::time::Duration;

use chiton_client::Client;
use chiton_runtime::thread;
use chiton_types::{PlateId, Refusal, Take, Time};
use serde_json::{Value, json};

use crate::{Found, Refused, Task, Totals, Watch};

/// Between the first questions how far a job is.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Between the later ones.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// An end is noticed after this part of the time that the job took.
const PAUSE_PART: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// The server works on it.
    Running,
    /// It is over; some of it may have been refused.
    Done,
    /// A user has ended it early. Changes that it had made by then stay.
    Cancelled,
    /// It could not continue.
    Failed,
    /// Its server stopped, or gave all its plates away. Changes that it had made by then stay.
    Stopped,
}

/// A server's report on a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    pub id: u64,
    /// The command: `chmod`, `chown`, `cp`, `du`, `find` or `rm`.
    pub kind: String,
    /// The user who has started it.
    pub uid: u32,
    /// Path at which it begins, for messages.
    pub path: String,
    /// Whether it is over.
    pub state: JobState,
    /// Names that are done.
    pub names: u64,
    /// Number of refusals so far.
    pub refused: u64,
    /// The first refusals that the answer holds. [`Job::status`] says which.
    pub refusals: Vec<Refused>,
    /// When it began, by the clock of its server.
    pub began: Time,
    /// Time since it began.
    pub age: Duration,
    /// How long it has worked.
    pub worked: Duration,
    /// Its totals, once it has ended.
    pub totals: Option<Totals>,
    /// Why it failed, in words.
    pub why: Option<String>,
}

impl JobState {
    pub const ALL: [JobState; 5] =
        [JobState::Running, JobState::Done, JobState::Cancelled, JobState::Failed, JobState::Stopped];

    /// As reports have it.
    pub fn word(self) -> &'static str {
        match self {
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Cancelled => "cancelled",
            JobState::Failed => "failed",
            JobState::Stopped => "stopped",
        }
    }
}

impl JobStatus {
    /// As a server sends it.
    pub fn to_json(&self) -> Value {
        let refusal = |refused: &Refused| {
            json!({
                "path": String::from_utf8_lossy(&refused.path),
                "doing": refused.doing,
                "code": refused.refusal as u8,
                "reason": refused.refusal.to_string(),
            })
        };
        json!({
            "id": self.id, "kind": self.kind, "uid": self.uid, "path": self.path, "state": self.state.word(),
            "names": self.names, "refused": self.refused, "began_ns": self.began.0, "age_ms": self.age.as_millis() as u64,
            "worked_ms": self.worked.as_millis() as u64,
            "refusals": self.refusals.iter().map(refusal).collect::<Vec<_>>(),
            "totals": self.totals.as_ref().map(Totals::to_json), "why": self.why,
        })
    }

    /// Reads what [`JobStatus::to_json`] makes.
    pub fn from_json(status: &Value) -> Option<JobStatus> {
        let refusal = |refused: &Value| {
            Some(Refused {
                path: refused["path"].as_str()?.as_bytes().to_vec(),
                doing: refused["doing"].as_str()?.to_owned().into(),
                refusal: Refusal::from_u8(u8::try_from(refused["code"].as_u64()?).ok()?)?,
            })
        };
        let word = status["state"].as_str()?;
        Some(JobStatus {
            id: status["id"].as_u64()?,
            kind: status["kind"].as_str()?.to_owned(),
            uid: u32::try_from(status["uid"].as_u64()?).ok()?,
            path: status["path"].as_str()?.to_owned(),
            state: JobState::ALL.into_iter().find(|state| state.word() == word)?,
            names: status["names"].as_u64()?,
            refused: status["refused"].as_u64()?,
            refusals: status["refusals"].as_array()?.iter().map(refusal).collect::<Option<_>>()?,
            began: Time(status["began_ns"].as_i64()?),
            age: Duration::from_millis(status["age_ms"].as_u64()?),
            worked: Duration::from_millis(status["worked_ms"].as_u64()?),
            totals: match &status["totals"] {
                Value::Null => None,
                totals => Some(Totals::from_json(totals)?),
            },
            why: status["why"].as_str().map(str::to_owned),
        })
    }
}

/// A job of a server.
pub struct Job<'a> {
    client: &'a Client,
    id: u64,
    /// Asked first: its server has started the job.
    plate: PlateId,
    /// Of a search: takes what it finds. A server gives that to one client.
    takes: bool,
}

impl<'a> Job<'a> {
    /// Has the server that owns the first inode of a task carry it out, with the rights of the client's user.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] or [`Refusal::Invalid`]: the server has no jobs; [`Refusal::NotPermitted`]: this client may have
    /// none; [`Refusal::Busy`]: as many as may be run at once. Then [`Task::perform`] does the same from here.
    pub fn start(client: &'a Client, task: &Task) -> Result<Job<'a>, Refusal> {
        let plate = task.subjects().first().map_or(PlateId(0), |first| client.plate_of(first.ino));
        for other in (0..client.plates()).map(PlateId).filter(|other| *other != plate) {
            // The job will need what this client holds there. Without an answer it waits for each.
            let _ = ask(client, other, "yield");
        }
        let started = ask(client, plate, &format!("start {}", task.to_json()))?;
        Ok(Job { client, id: started["id"].as_u64().ok_or(Refusal::Io)?, plate, takes: true })
    }

    /// The job with a number.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: no server knows it, or not any more; [`Refusal::NotPermitted`]: it is another user's.
    pub fn find(client: &'a Client, id: u64) -> Result<Job<'a>, Refusal> {
        let mut job = Job { client, id, plate: PlateId(0), takes: false };
        job.plate = job.ask_around(&format!("show {id} {}", u64::MAX), json_of)?.0;
        Ok(job)
    }

    /// The same of a search, for the one client that takes what it finds: then [`Job::wait`] gives that to the watch.
    ///
    /// # Errors
    /// As [`Job::find`].
    pub fn find_to_take(client: &'a Client, id: u64) -> Result<Job<'a>, Refusal> {
        Ok(Job { takes: true, ..Job::find(client, id)? })
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// How far it is, with the refusals after the first `from`.
    ///
    /// # Errors
    /// As [`Job::find`].
    pub fn status(&self, from: u64) -> Result<JobStatus, Refusal> {
        let (_, status) = self.ask_around(&format!("show {} {from}", self.id), json_of)?;
        JobStatus::from_json(&status).ok_or(Refusal::Io)
    }

    /// Ends it early; its work so far stays. A job that is over does not change.
    ///
    /// # Errors
    /// As [`Job::find`].
    pub fn cancel(&self) -> Result<(), Refusal> {
        self.ask_around(&format!("cancel {}", self.id), json_of).map(drop)
    }

    /// Waits for its end; the watch is notified of its progress, its refusals and the names that
    /// it finds, and can cancel it. The status at the end. All that was changed is durable then.
    ///
    /// # Errors
    /// As [`Job::find`]: the job ended with its server.
    pub fn wait(&self, watch: &mut dyn Watch) -> Result<JobStatus, Refusal> {
        self.follow(watch, &mut None)
    }

    /// The same; `last` gets the number of names that were done when the server was last asked, and when the job began.
    pub(crate) fn follow(
        &self,
        watch: &mut dyn Watch,
        last: &mut Option<(u64, Time)>,
    ) -> Result<JobStatus, Refusal> {
        let (mut seen, mut taken, mut waited, mut is_cancelled) = (0, 0, Duration::ZERO, false);
        loop {
            if watch.is_stopped() && !is_cancelled {
                self.cancel()?;
                is_cancelled = true;
            }
            let mut status = self.status(seen)?;
            seen += status.refusals.len() as u64;
            status.refusals.drain(..).for_each(|refused| watch.refused(refused));
            *last = Some((status.names, status.began));
            // The status came before: of a job that is over nothing more is found.
            let before = taken;
            while self.takes && status.kind == "find" && self.take_found(&mut taken, watch)? {}
            watch.progress(status.names);
            if status.state != JobState::Running {
                return Ok(status);
            }
            let pause = match taken > before {
                true => PAUSE_MIN,
                false => (waited / PAUSE_PART).clamp(PAUSE_MIN, PAUSE_MAX),
            };
            thread::sleep(pause);
            waited += pause;
        }
    }

    /// Gives the watch what was found after the first `taken`. False if that was nothing.
    fn take_found(&self, taken: &mut u64, watch: &mut dyn Watch) -> Result<bool, Refusal> {
        let all = |bytes: &[u8]| {
            let (mut from, mut all) = (Take::new(bytes), Vec::new());
            while !from.is_empty() {
                all.push(Found::take(&mut from).ok()?);
            }
            Some(all)
        };
        let (_, found) = self.ask_around(&format!("found {} {taken}", self.id), all)?;
        *taken += found.len() as u64;
        let is_some = !found.is_empty();
        found.into_iter().for_each(|found| watch.found(found));
        Ok(is_some && !watch.is_stopped())
    }

    /// Asks the server that has started it, and then all others: its plates may have moved meanwhile.
    fn ask_around<T>(&self, words: &str, read: impl Fn(&[u8]) -> Option<T>) -> Result<(PlateId, T), Refusal> {
        let others = (0..self.client.plates()).map(PlateId).filter(|plate| *plate != self.plate);
        let mut failure = Refusal::NotFound;
        for plate in std::iter::once(self.plate).chain(others) {
            match self.client.admin_at(plate, &format!("jobs {words}")) {
                Ok(answer) => return Ok((plate, read(&answer).ok_or(Refusal::Io)?)),
                Err(Refusal::NotFound) => {}
                Err(refusal) => failure = refusal,
            }
        }
        Err(failure)
    }
}

/// The jobs of all servers, the youngest last: those of the client's user, of root's all. A server remembers those that are over for a
/// while.
///
/// # Errors
/// As [`Job::start`].
pub fn jobs(client: &Client) -> Result<Vec<JobStatus>, Refusal> {
    let mut all: Vec<JobStatus> = Vec::new();
    for plate in (0..client.plates()).map(PlateId) {
        let listed = ask(client, plate, "list")?;
        for job in listed["jobs"].as_array().into_iter().flatten() {
            let job = JobStatus::from_json(job).ok_or(Refusal::Io)?;
            if all.iter().all(|known| known.id != job.id) {
                all.push(job);
            }
        }
    }
    // Ages are measured one after the other, and jobs may begin within less time than that takes.
    all.sort_by_key(|job| (job.began, job.id));
    Ok(all)
}

fn ask(client: &Client, plate: PlateId, words: &str) -> Result<Value, Refusal> {
    let answer = client.admin_at(plate, &format!("jobs {words}"))?;
    json_of(&answer).ok_or(Refusal::Io)
}

fn json_of(answer: &[u8]) -> Option<Value> {
    serde_json::from_slice(answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Changed;

    #[test]
    fn a_status_survives_its_way() {
        let refused =
            Refused { path: b"/a/b".to_vec(), doing: "chmod".into(), refusal: Refusal::NotPermitted };
        for state in JobState::ALL {
            let status = JobStatus {
                id: 71_000_001,
                kind: "chmod".to_owned(),
                uid: 1000,
                path: "/a".to_owned(),
                state,
                names: 3,
                refused: 1,
                refusals: vec![refused.clone()],
                began: Time(1_700_000_000_000_000_000),
                age: Duration::from_millis(1_500),
                worked: Duration::from_millis(200),
                totals: (state != JobState::Running).then(|| Totals::Changed(Changed::default())),
                why: (state == JobState::Failed).then(|| "the server stops".to_owned()),
            };
            assert_eq!(JobStatus::from_json(&status.to_json()), Some(status));
        }
    }
}
