//! Who carries a task out: the server as a job, or this command.
//!
//! Invariants:
//! - Ctrl-C cancels the job, and the command waits until it has ended.
//! - Where the server has no jobs, or none to spare, the command does the work, and says nothing of it.

use chiton_client::Client;
use chiton_trees::{Job, JobState, JobStatus, Task, Totals};
use chiton_types::Refusal;
use clap::Args;

use super::report::Report;
use crate::failure::{Failure, Outcome};

/// Where the work is done.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Here {
    /// Do the work in this process, not as a job of the server.
    #[arg(long)]
    pub(crate) here: bool,
}

/// Carries a task out. All that it has changed is durable then.
pub(super) fn carry_out(client: &Client, task: &Task, is_job: bool, report: &mut Report) -> Outcome<Totals> {
    if is_job {
        match Job::start(client, task) {
            Ok(job) => {
                if let Some(totals) = follow(&job, report)? {
                    return Ok(totals);
                }
            }
            Err(Refusal::NotConnected) => {
                return Err(Failure::absent("the server does not answer any more: nothing was begun"));
            }
            // The server has no jobs, or none to spare, or gives this client none.
            Err(_) => {}
        }
    }
    let totals = task.perform(client, report);
    report.make_durable(client);
    Ok(totals)
}

/// The totals of a job at its end; none of `du` that was too long for a job, which the command then does itself.
fn follow(job: &Job<'_>, report: &mut Report) -> Outcome<Option<Totals>> {
    let id = job.id();
    let JobStatus { state, kind, refused, totals, why, .. } = job.wait(report).map_err(|refusal| match refusal {
        Refusal::NotFound => Failure::failed(format!(
            "job {id} has ended with its server, which was started again: part of the work may be done; run the command again \
             (after cp, remove the copy first)"
        )),
        Refusal::NotConnected => Failure::absent(format!(
            "the server does not answer any more, and job {id} has ended with it unless only the connection is lost: chiton jobs \
             show {id} TARGET says which when it is back"
        )),
        refusal => Failure::failed(format!("cannot follow job {id}: {refusal}; chiton jobs show {id} TARGET tries again")),
    })?;
    report.refused_in_all(refused);
    match (state, totals) {
        (JobState::Cancelled, Some(totals)) => {
            report.stop();
            Ok(Some(totals))
        }
        (JobState::Done, Some(totals)) => Ok(Some(totals)),
        (_, None) if kind == "du" => Ok(None),
        (_, _) => Err(Failure::failed(format!(
            "job {id} failed: {}",
            why.as_deref().unwrap_or("it does not say why")
        ))),
    }
}
