//! Where a task runs: on the server as a job, or in this command.
//!
//! Invariants:
//! - Ctrl-C cancels the job, and the command waits until it has ended.
//! - Where the server has no jobs, or none to spare, the command does the work, and says nothing of it.
//! - If the job's server dies, the command has another server begin again where that does no harm, and says so.

use chiton_client::Client;
use chiton_trees::{JobState, JobStatus, Task, Totals, Unfollowed, Watch};
use chiton_types::Refusal;
use clap::Args;

use super::report::{AGAIN, Report};
use crate::failure::{Failure, Outcome};

/// Where the work is done.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Here {
    /// Do the work in this process, not as a job of the server.
    #[arg(long)]
    pub(crate) here: bool,
}

/// Carries a task out. All that it has changed is durable then. `left` says of a task that must
/// not be repeated how things stand when a job has ended with its server, and the next step.
pub(super) fn carry_out(
    client: &Client,
    task: &Task,
    is_job: bool,
    report: &mut Report,
    left: &dyn Fn() -> String,
) -> Outcome<Totals> {
    let rest = match is_job {
        false => task.clone(),
        true => match by_server(client, task, report, left)? {
            Done::There(totals) => return Ok(totals),
            Done::NotThere(rest) => rest,
        },
    };
    let totals = rest.perform(client, report);
    report.make_durable(client);
    Ok(totals)
}

enum Done {
    There(Totals),
    /// The command has to do this.
    NotThere(Task),
}

/// The totals of a job at its end. Where there was none, and of `du` that was too long for a job, the command does the work itself.
fn by_server(client: &Client, task: &Task, report: &mut Report, left: &dyn Fn() -> String) -> Outcome<Done> {
    let status = match task.perform_there(client, report) {
        Ok(status) => status,
        Err(Unfollowed::NotStarted { refusal: Refusal::NotConnected, .. }) => {
            return Err(Failure::absent("the server does not answer any more: no job was begun"));
        }
        // The server has no jobs, or none to spare, or gives this client none.
        Err(Unfollowed::NotStarted { task, .. }) => return Ok(Done::NotThere(*task)),
        Err(ended @ Unfollowed::Ended { .. }) if report.is_stopped() => {
            let next = if task.again(None).is_some() { AGAIN.to_owned() } else { left() };
            return Err(Failure::failed(format!("interrupted: {ended}; {next}")));
        }
        Err(ended @ Unfollowed::Ended { .. }) => return Err(Failure::failed(format!("{ended}: {}", left()))),
        Err(Unfollowed::Unanswered { id, refusal: Refusal::NotConnected }) => {
            return Err(Failure::absent(format!(
                "the server does not answer any more, and job {id} has ended with it unless only the connection is lost: chiton jobs \
                 show {id} TARGET says which when it is back"
            )));
        }
        Err(unanswered @ Unfollowed::Unanswered { .. }) => {
            return Err(Failure::failed(format!("{unanswered}; chiton jobs lists those that are known")));
        }
    };
    let JobStatus { id, state, kind, refused, totals, why, .. } = status;
    report.refused_in_all(refused);
    match (state, totals) {
        (JobState::Cancelled, Some(totals)) => {
            report.stop();
            Ok(Done::There(totals))
        }
        (JobState::Done, Some(totals)) => Ok(Done::There(totals)),
        (_, None) if kind == "du" => Ok(Done::NotThere(task.clone())),
        (_, _) => Err(Failure::failed(format!(
            "job {id} failed: {}",
            why.as_deref().unwrap_or("it does not say why")
        ))),
    }
}

/// The failure of a command whose server answers as to another one.
pub(super) fn another_answer() -> Failure {
    Failure::failed("the server's answer is that to another command: it has another version")
}

/// How things stand after the last of several tries of a task that may be repeated.
pub(super) fn repeat() -> String {
    "it was begun again several times, and its server ended each time: part of the work is done; look at the server's log, then run the \
     command again, or with --here"
        .to_owned()
}
