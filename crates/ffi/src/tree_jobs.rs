//! Whole trees as jobs of the server: started, asked about, waited for, cancelled.

use std::ffi::{c_char, c_int, c_void};

use chiton_client::Client;
use chiton_trees::{Copying, Job, JobState, JobStatus, ModeChange, Place, Removal, Subject, Task, Totals};
use chiton_types::Refusal;

use crate::border::{DONE, FAILED, bytes, carry_out, check_buffer, handle};
use crate::handle::Chiton;
use crate::last::Failure;
use crate::trees::{Follower, SAME, TreeFn, Usage};

/// A function that has started no job returns this.
pub(crate) const NO_JOB: u64 = 0;

/// `struct chiton_tree_job`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TreeJob {
    /// Number of the job on its server.
    pub id: u64,
    /// Names that are done.
    pub names: u64,
    /// Number of refusals so far.
    pub refused: u64,
    /// Time since it began, in milliseconds.
    pub age_ms: u64,
    /// Of a job of `chiton_start_usage` that is done.
    pub usage: Usage,
    /// User id of the user who started it.
    pub uid: u32,
    /// `CHITON_JOB_RUNNING` and the others.
    pub state: c_int,
}

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle; both paths are null or end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_start_copy_tree(
    chiton: *const Chiton,
    from: *const c_char,
    to: *const c_char,
) -> u64 {
    let asked = "chiton_start_copy_tree";
    carry_out(NO_JOB, || {
        // SAFETY: the caller's promise.
        let (chiton, from, to) =
            unsafe { (handle(chiton)?, bytes(from, "the path")?, bytes(to, "the new path")?) };
        chiton.whole()?;
        let target = chiton.ask(asked, to, |client| Place::new_name(client, to))?;
        let (into, name) = target.ok_or_else(|| Failure::refused(asked, to, Refusal::Exists))?;
        start(chiton, asked, from, |place| {
            let from = Subject::from(place);
            Some(Task::Copy(vec![Copying { from, into, name, since: None }]))
        })
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_start_copy_tree`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_start_chmod_tree(
    chiton: *const Chiton,
    path: *const c_char,
    mode: u32,
) -> u64 {
    carry_out(NO_JOB, || {
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        chiton.whole()?;
        // Five digits: directories do not keep set-id bits that are not named.
        let mode = ModeChange::parse(&format!("{:05o}", mode & 0o7777))
            .map_err(|why| Failure::new(Refusal::Invalid, why))?;
        start(chiton, "chiton_start_chmod_tree", path, |place| {
            let subjects = vec![Subject::from(place)];
            Some(Task::Chmod { subjects, recursive: true, mode, umask: 0 })
        })
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_start_copy_tree`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_start_chown_tree(
    chiton: *const Chiton,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> u64 {
    let new = |id: u32| Some(id).filter(|id| *id != SAME);
    carry_out(NO_JOB, || {
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        chiton.whole()?;
        start(chiton, "chiton_start_chown_tree", path, |place| {
            let subjects = vec![Subject::from(place)];
            Some(Task::Chown { subjects, recursive: true, uid: new(uid), gid: new(gid) })
        })
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_start_copy_tree`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_start_usage(chiton: *const Chiton, path: *const c_char) -> u64 {
    carry_out(NO_JOB, || {
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        chiton.whole()?;
        start(chiton, "chiton_start_usage", path, |place| {
            Some(Task::Usage { subjects: vec![Subject::from(place)], depth: 0 })
        })
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_start_copy_tree`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_start_remove_tree(chiton: *const Chiton, path: *const c_char) -> u64 {
    carry_out(NO_JOB, || {
        // SAFETY: the caller's promise.
        let (chiton, path) = unsafe { (handle(chiton)?, bytes(path, "the path")?) };
        chiton.whole()?;
        start(chiton, "chiton_start_remove_tree", path, |place| Some(Task::Remove(vec![Removal::of(place)?])))
    })
}

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle; `job` is null or one may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_tree_job(chiton: *const Chiton, id: u64, job: *mut TreeJob) -> c_int {
    carry_out(FAILED, || {
        check_buffer(job, 1)?;
        // SAFETY: the caller's promise.
        let chiton = unsafe { handle(chiton)? };
        let status = on_job(chiton, "chiton_tree_job", id, |found| found.status(u64::MAX))?;
        // SAFETY: it is not null, and the caller promises the rest.
        unsafe { job.write(TreeJob::from(&status)) };
        Ok(DONE)
    })
}

/// See `chiton.h`.
///
/// # Safety
/// As [`chiton_tree_job`]; `job` may be null; `follow` is null or may be called with `arg`, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_wait_tree_job(
    chiton: *const Chiton,
    id: u64,
    job: *mut TreeJob,
    follow: Option<TreeFn>,
    arg: *mut c_void,
) -> c_int {
    let asked = "chiton_wait_tree_job";
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        let chiton = unsafe { handle(chiton)? };
        let mut follower = Follower::new(follow, arg);
        let status = on_job(chiton, asked, id, |found| found.wait(&mut follower))?;
        if !job.is_null() {
            // SAFETY: the caller's promise.
            unsafe { job.write(TreeJob::from(&status)) };
        }
        let shown = status.path.clone().into_bytes();
        match status.state {
            JobState::Failed | JobState::Stopped | JobState::Cancelled => {
                Err(ended_early(asked, id, &status))
            }
            JobState::Running | JobState::Done => follower.result(asked, &shown),
        }
    })
}

/// See `chiton.h`.
///
/// # Safety
/// `chiton` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chiton_cancel_tree_job(chiton: *const Chiton, id: u64) -> c_int {
    carry_out(FAILED, || {
        // SAFETY: the caller's promise.
        on_job(unsafe { handle(chiton)? }, "chiton_cancel_tree_job", id, |found| found.cancel())?;
        Ok(DONE)
    })
}

/// Starts a job that begins at a path; [`Refusal::Busy`] if there is no task, which is so at the root only.
pub(crate) fn start(
    chiton: &Chiton,
    asked: &str,
    path: &[u8],
    task: impl FnOnce(&Place) -> Option<Task>,
) -> Result<u64, Failure> {
    chiton.ask(asked, path, |client| {
        let place = Place::find(client, path, path)?;
        Job::start(client, &task(&place).ok_or(Refusal::Busy)?).map(|job| job.id())
    })
}

/// The failure of a call that has waited for a job.
pub(crate) fn ended_early(asked: &str, id: u64, status: &JobStatus) -> Failure {
    match status.state {
        JobState::Cancelled => Failure::refused(asked, status.path.as_bytes(), Refusal::Interrupted),
        // As a job whose server is gone.
        JobState::Stopped => Failure::new(
            Refusal::NotFound,
            format!("{asked} {id}: the job has ended with its server: start it again"),
        ),
        JobState::Failed | JobState::Running | JobState::Done => Failure::new(
            Refusal::Io,
            format!("{asked} {id}: {}", status.why.as_deref().unwrap_or("the job failed")),
        ),
    }
}

fn on_job<R>(
    chiton: &Chiton,
    asked: &str,
    id: u64,
    call: impl FnOnce(&Job<'_>) -> Result<R, Refusal>,
) -> Result<R, Failure> {
    chiton.whole()?;
    let find = |client: &Client| call(&Job::find(client, id)?);
    chiton.ask(asked, id.to_string().as_bytes(), find)
}

impl From<&JobStatus> for TreeJob {
    fn from(status: &JobStatus) -> TreeJob {
        let usage = match &status.totals {
            Some(Totals::Usage(lines)) => lines.iter().map(Usage::from).fold(Usage::default(), Usage::and),
            Some(Totals::Changed(_) | Totals::Copied(_) | Totals::Removed(_) | Totals::Searched(_))
            | None => Usage::default(),
        };
        TreeJob {
            id: status.id,
            names: status.names,
            refused: status.refused,
            age_ms: status.age.as_millis() as u64,
            usage,
            uid: status.uid,
            state: match status.state {
                JobState::Running => 0,
                JobState::Done => 1,
                JobState::Cancelled => 2,
                JobState::Failed => 3,
                JobState::Stopped => 4,
            },
        }
    }
}
