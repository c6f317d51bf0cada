//! Jobs: work on whole trees that a server does for its clients, so that a client need not wait for it or stay.
//!
//! ```text
//!   client ─ "jobs start TASK" ─▶ server ─ TreeJobs ─▶ Jobs ─ a thread ─▶ Task::perform ─▶ a client of the server, in its process
//!          ─ "jobs show ID FROM" ─▶                     └─ Job: progress, refusals, totals ◀──┘
//! ```
//!
//! | words | answer |
//! |---|---|
//! | `start TASK` | `id` |
//! | `list` | `jobs`: those of the user, to root all; without refusals |
//! | `show ID FROM` | the job, with its refusals from the number `FROM` on |
//! | `found ID FROM` | not JSON: the names that a search has found from the number `FROM` on ([`chiton_trees::Found`]); those before are dropped |
//! | `cancel ID` | the job |
//! | `yield` | nothing; the plate that is asked recalls what the client holds because it was alone. `start` does that, too |
//!
//! Invariants:
//! - A job has the rights of the user who started it, and no others: it asks by a client of this user.
//! - It ends with its process, or when that has no plate any more. Changes that it has made stay, as after Ctrl-C. The client that follows
//!   it begins another elsewhere where that does no harm.
//! - So many run at a time, so many are remembered for so long, and of each so many refusals, lines and found names: memory has a limit.
//! - A search waits for the client that takes what it finds, and ends if none does.

mod job;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chiton_auth::Credentials;
use chiton_client::{Client, ClientOptions};
use chiton_runtime::sync::Mutex;
use chiton_runtime::{SharedWorld, thread};
use chiton_server::{JOB_IDENTITY, TreeJobs};
use chiton_transport::Address;
use chiton_trees::{JobState, Task};
use chiton_types::{Capabilities, Cred, Privileges, Refusal};
use serde_json::{Value, json};

use crate::job::Job;

/// Jobs that run at a time.
pub const RUNNING_MAX: usize = 4;
/// Jobs that are remembered, those that run included.
pub const REMEMBERED_MAX: usize = 64;
/// A job that is over is remembered for so long.
pub const REMEMBERED: Duration = Duration::from_secs(3_600);
/// Numbers of jobs of a process begin at a multiple of it, so that those of the next process are others.
const NUMBERS: u64 = 1_000;
/// How long an end waits for running jobs.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// A job ends if a server is silent for so long that has a part of the tree.
const TIMEOUT: Duration = Duration::from_secs(30);

type Connect = Arc<dyn Fn(ClientOptions) -> Result<Client, String> + Send + Sync>;

/// The jobs that a server runs, and those that have ended.
pub struct Jobs {
    world: SharedWorld,
    state: Mutex<State>,
}

struct State {
    /// How a job reaches the file system; none before there is a server, and when it ends.
    connect: Option<Connect>,
    last: u64,
    /// Jobs in the order in which they were begun.
    jobs: VecDeque<Arc<Job>>,
}

impl Jobs {
    /// No jobs, of a server that does not run yet.
    pub fn new(world: SharedWorld) -> Jobs {
        let last = (1 + world.random() % 99_999) * NUMBERS;
        Jobs { world, state: Mutex::new(State { connect: None, last, jobs: VecDeque::new() }) }
    }

    /// From now on jobs may be started. Their clients connect to this server at `address`, and with `credentials` if it has TLS.
    pub fn serve(&self, address: Address, credentials: Option<Credentials>) {
        self.serve_by(move |options| {
            let options =
                ClientOptions { timeout: Some(TIMEOUT), credentials: credentials.clone(), ..options };
            Client::connect(&address, options).map_err(|e| e.to_string())
        });
    }

    /// From now on jobs may be started, whose clients come from `connect`.
    pub fn serve_by(
        &self,
        connect: impl Fn(ClientOptions) -> Result<Client, String> + Send + Sync + 'static,
    ) {
        self.state.lock().connect = Some(Arc::new(connect));
    }

    /// Begins no more jobs, stops those that run, and waits a little for their end.
    pub fn end(&self) {
        let jobs: Vec<Arc<Job>> = {
            let mut state = self.state.lock();
            state.connect = None;
            state.jobs.iter().cloned().collect()
        };
        jobs.iter().for_each(|job| job.stop());
        let began = self.world.monotonic();
        while jobs.iter().any(|job| job.is_running())
            && self.world.monotonic().saturating_sub(began) < END_PATIENCE
        {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn start(&self, cred: &Cred, task: Task) -> Result<Value, Refusal> {
        // A client of its own asks as a user; rights that differ from the user's are not passed on.
        if cred.privileges.as_ref() != Some(&Privileges::of_user(cred.uid)) {
            return Err(Refusal::Unsupported);
        }
        let groups = cred.groups.as_ref().ok_or(Refusal::Unsupported)?.to_vec();
        let (job, connect) = {
            let mut state = self.state.lock();
            let connect = state.connect.clone().ok_or(Refusal::Unsupported)?;
            self.forget(&mut state);
            if state.jobs.iter().filter(|job| job.is_running()).count() >= RUNNING_MAX {
                return Err(Refusal::Busy);
            }
            state.last += 1;
            let job = Arc::new(Job::new(state.last, cred.uid, &task, self.world.clone()));
            state.jobs.push_back(job.clone());
            (job, connect)
        };
        let options = ClientOptions {
            identity: format!("{JOB_IDENTITY}{}: {} for user {}", job.id, task.kind(), cred.uid),
            user: Some((cred.uid, cred.gid, groups)),
            // Operations go in batches, each with its result.
            write_behind_after: None,
            ..ClientOptions::default()
        };
        let work = job.clone();
        let spawned = thread::spawn("chiton-job", move || work.run(&task, || connect(options)));
        if let Err(error) = spawned {
            job.fail(format!("the server has no thread for it: {error}"));
        }
        Ok(json!({ "id": job.id }))
    }

    /// Drops jobs that are over: those of long ago, and the oldest if there are too many.
    fn forget(&self, state: &mut State) {
        let now = self.world.monotonic();
        state.jobs.retain(|job| job.ended().is_none_or(|ended| now.saturating_sub(ended) < REMEMBERED));
        while state.jobs.len() >= REMEMBERED_MAX
            && let Some(oldest) = state.jobs.iter().position(|job| !job.is_running())
        {
            state.jobs.remove(oldest);
        }
    }

    /// Those that a user may see.
    fn list(&self, cred: &Cred) -> Value {
        let mut state = self.state.lock();
        self.forget(&mut state);
        let seen = state.jobs.iter().filter(|job| may_see(cred, job));
        json!({ "jobs": seen.map(|job| job.status(u64::MAX).to_json()).collect::<Vec<_>>() })
    }

    fn find(&self, cred: &Cred, id: &str) -> Result<Arc<Job>, Refusal> {
        let id: u64 = id.parse().map_err(|_| Refusal::Invalid)?;
        let state = self.state.lock();
        let job = state.jobs.iter().find(|job| job.id == id).ok_or(Refusal::NotFound)?;
        if may_see(cred, job) { Ok(job.clone()) } else { Err(Refusal::NotPermitted) }
    }
}

fn may_see(cred: &Cred, job: &Job) -> bool {
    cred.uid == job.uid || cred.everywhere(Capabilities::SYS_ADMIN) == Some(true)
}

impl TreeJobs for Jobs {
    fn ask(&self, cred: &Cred, words: &str) -> Result<Vec<u8>, Refusal> {
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        let answer = match word {
            "start" => {
                let task = serde_json::from_str(rest).ok().and_then(|task| Task::from_json(&task));
                self.start(cred, task.ok_or(Refusal::Invalid)?)?
            }
            "list" => self.list(cred),
            "show" => {
                let (id, from) = rest.split_once(' ').ok_or(Refusal::Invalid)?;
                let from = from.parse().map_err(|_| Refusal::Invalid)?;
                self.find(cred, id)?.status(from).to_json()
            }
            "found" => {
                let (id, from) = rest.split_once(' ').ok_or(Refusal::Invalid)?;
                let from = from.parse().map_err(|_| Refusal::Invalid)?;
                return self.find(cred, id)?.found(from);
            }
            "cancel" => {
                let job = self.find(cred, rest)?;
                job.cancel();
                job.status(u64::MAX).to_json()
            }
            _ => return Err(Refusal::Invalid),
        };
        Ok(answer.to_string().into_bytes())
    }

    fn has_no_plates(&self) {
        self.state.lock().jobs.iter().for_each(|job| job.stop());
    }
}

impl Job {
    fn is_running(&self) -> bool {
        self.state() == JobState::Running
    }
}
