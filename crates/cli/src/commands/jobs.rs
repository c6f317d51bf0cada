//! `chiton jobs`: the work on whole trees that servers do for their clients.

use chiton_client::Client;
use chiton_trees::{Job, JobState, JobStatus, Totals, jobs};
use chiton_types::{Refusal, counted};
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::failure::{Class, Failure, Outcome};
use crate::{duration, size, target};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "chiton chmod -R, chown -R, cp -r, du, find and rm -r --each have the server work; each such work is a job. TARGET is a mount point or anything in a mount, the data directory of a server that runs, or a server's address. You see and cancel your own jobs, root those of all users. A job continues if its command ends, but a find without a reader ends. A job ends with its server; the command that waits for it then has another server begin again. Servers remember the last 64 jobs for an hour.\n\nExit codes: 0 done, 1 failed or not yours, 2 wrong usage, 4 no such job, or no server that runs jobs.\n\nExamples:\n  chiton jobs /mnt/chiton\n  chiton jobs show 71000001 /mnt/chiton\n  chiton jobs cancel 71000001 tcp:server:7117 --json"
)]
pub(crate) struct JobsArgs {
    #[command(subcommand)]
    command: Option<JobsCommand>,
    /// A mount point, a data directory, or a server's address.
    target: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum JobsCommand {
    /// List the jobs that run, and those that are over.
    #[command(
        after_help = "Examples:\n  chiton jobs list /mnt/chiton\n  chiton jobs list tcp:server:7117 --json"
    )]
    List(On),
    /// Show how far a job is, and the refused names.
    #[command(
        after_help = "Examples:\n  chiton jobs show 71000001 /mnt/chiton\n  chiton jobs show 71000001 /srv/chiton --json"
    )]
    Show(One),
    /// End a job early. Changes that it has made stay.
    #[command(
        after_help = "Examples:\n  chiton jobs cancel 71000001 /mnt/chiton\n  chiton jobs cancel 71000001 tcp:server:7117 --json"
    )]
    Cancel(One),
}

/// Which servers are asked.
#[derive(Debug, Args)]
struct On {
    /// A mount point, a data directory, or a server's address.
    target: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A job.
#[derive(Debug, Args)]
struct One {
    /// The number of the job.
    id: u64,
    #[command(flatten)]
    on: On,
}

pub(crate) fn run(args: &JobsArgs) -> Outcome {
    match &args.command {
        None => match &args.target {
            Some(target) => list(target, args.json),
            None => Err(Failure::new(
                Class::Usage,
                "name a mount point, a data directory, or a server's address: chiton jobs /mnt/chiton",
            )),
        },
        Some(JobsCommand::List(on)) => list(&on.target, on.json),
        Some(JobsCommand::Show(one)) => {
            let client = target::client(&one.on.target)?;
            let status = found(&client, one)?.status(0).map_err(|refusal| failure(refusal, Some(one)))?;
            show(&status, one.on.json);
            Ok(())
        }
        Some(JobsCommand::Cancel(one)) => {
            let client = target::client(&one.on.target)?;
            let job = found(&client, one)?;
            job.cancel().map_err(|refusal| failure(refusal, Some(one)))?;
            // Answered when what is under way is done.
            let status = job.wait(&mut Silent).map_err(|refusal| failure(refusal, Some(one)))?;
            show(&status, one.on.json);
            Ok(())
        }
    }
}

struct Silent;

impl chiton_trees::Watch for Silent {
    fn refused(&mut self, _refused: chiton_trees::Refused) {}
}

fn found<'a>(client: &'a Client, one: &One) -> Outcome<Job<'a>> {
    Job::find(client, one.id).map_err(|refusal| failure(refusal, Some(one)))
}

fn failure(refusal: Refusal, one: Option<&One>) -> Failure {
    match (refusal, one) {
        (Refusal::NotFound, Some(one)) => Failure::absent(format!(
            "no server of {} has a job {}: it ended long ago, or with its server; chiton jobs {} lists those that are known",
            one.on.target, one.id, one.on.target
        )),
        (Refusal::NotPermitted, Some(one)) => Failure::failed(format!(
            "job {} is another user's, or this certificate may see no jobs: only its user and root see and cancel it",
            one.id
        )),
        (Refusal::NotPermitted, None) => Failure::failed(
            "this certificate may see no jobs: use one of the whole file system that may write",
        ),
        (Refusal::Unsupported | Refusal::Invalid, _) => Failure::absent(
            "the server runs no jobs: one inside a mount (chiton mount --data) does not, and commands do their work themselves",
        ),
        (refusal, _) => {
            Failure::failed(format!("the server does not answer about its jobs: {refusal}; try again"))
        }
    }
}

fn list(target: &str, json: bool) -> Outcome {
    let all = jobs(&target::client(target)?).map_err(|refusal| failure(refusal, None))?;
    if json {
        println!("{}", json!({ "jobs": all.iter().map(in_json).collect::<Vec<_>>() }));
        return Ok(());
    }
    if all.is_empty() {
        println!("no jobs");
        return Ok(());
    }
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["job", "command", "path", "user", "state", "names", "refused", "worked", "age"]);
    for job in &all {
        table.add_row([
            job.id.to_string(),
            job.kind.clone(),
            job.path.clone(),
            job.uid.to_string(),
            job.state.word().to_owned(),
            job.names.to_string(),
            job.refused.to_string(),
            duration::human(job.worked.as_millis() as u64),
            duration::human(job.age.as_millis() as u64),
        ]);
    }
    println!("{}", table.trim_fmt());
    Ok(())
}

/// As the server has it, without numbers that mean something to programs of Chiton only.
fn in_json(job: &JobStatus) -> Value {
    let mut value = job.to_json();
    for refusal in value["refusals"].as_array_mut().into_iter().flatten() {
        refusal.as_object_mut().map(|fields| fields.remove("code"));
    }
    value
}

fn show(job: &JobStatus, json: bool) {
    if json {
        println!("{}", in_json(job));
        return;
    }
    let worked = duration::human(job.worked.as_millis() as u64);
    let is_over = if job.state == JobState::Running { "for" } else { "after" };
    println!("job {}: {} {} for user {}", job.id, job.kind, job.path, job.uid);
    let names = counted(job.names, "name");
    println!("{} {is_over} {worked}: {names}, {} refused", job.state.word(), job.refused);
    match &job.totals {
        Some(Totals::Changed(done)) => println!("{} of {} are changed", done.changed, done.names),
        Some(Totals::Copied(done)) => println!(
            "copied: {} ({}) and {}",
            counted(done.files, "file"),
            size::human(done.bytes),
            counted(done.dirs, "directory")
        ),
        Some(Totals::Removed(done)) => {
            println!("removed: {} and {}", counted(done.files, "file"), counted(done.dirs, "directory"))
        }
        Some(Totals::Searched(done)) => println!("found: {} of {}", done.found, counted(done.names, "name")),
        Some(Totals::Usage(lines)) => lines.iter().filter(|line| line.depth == 0).for_each(|line| {
            println!("{} in {}", size::human(line.bytes), String::from_utf8_lossy(&line.path))
        }),
        None => {}
    }
    if let Some(why) = &job.why {
        println!("{why}");
    }
    job.refusals.iter().for_each(|refused| println!("{refused}"));
    let unlisted = job.refused.saturating_sub(job.refusals.len() as u64);
    if unlisted > 0 && !job.refusals.is_empty() {
        println!("… and {unlisted} more");
    }
}
