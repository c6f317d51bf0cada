//! Whole trees as jobs of the server, beside the same work by the command, and beside `cp -r` and `chmod -R` on a mount.
//!
//! All work on equal trees of small files in directories of a hundred, with one plate. The server, its job, the command and the mount share
//! this process and its processors.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use chiton_bench::report::Row;
use chiton_client::Client;
use chiton_fuse::{Mount, MountOptions};
use chiton_runtime::RealWorld;
use chiton_server::ServerOptions;
use chiton_transport::Address;
use chiton_tree_jobs::Jobs;
use chiton_trees::{Copying, Job, JobState, ModeChange, Place, Task};
use chiton_types::{Ino, Name};

use super::Plan;
use super::subject::{Subject, make_dir, timed, unmount};
use super::trees::{FirstRefusal, fill};
use crate::failure::{Failure, Outcome};

const FILES: u64 = 20_000;

/// Names a second, of each way.
#[derive(Default)]
struct Rates {
    job: Vec<f64>,
    command: Vec<f64>,
    mount: Vec<f64>,
}

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let (mut copy, mut chmod) = (Rates::default(), Rates::default());
    for round in 0..plan.rounds {
        let name = format!("tree-jobs-{round}");
        let jobs = Arc::new(Jobs::new(Arc::new(RealWorld)));
        let options = ServerOptions { tree_jobs: Some(jobs.clone()), ..ServerOptions::default() };
        let subject = Subject::start_as(plan, &name, options)?;
        let address = Address::Unix(plan.dir.join(format!("{name}.socket")));
        subject.server.serve(std::slice::from_ref(&address)).map_err(Failure::failed)?;
        jobs.serve(address, None);
        let client = subject.over_socket()?;
        let names = fill(&client, "/tree", FILES / plan.divisor)?;
        client.sync().map_err(Failure::failed)?;
        drop(client);
        // Each begins without leases, as a command does, and with none of the others' to recall.
        let rate = |work: &dyn Fn(&Client) -> Outcome| {
            let client = subject.beside(None)?;
            Ok::<f64, Failure>(names as f64 / timed(|| work(&client))?.1)
        };
        copy.command.push(rate(&|client| by_command(client, &copying(client, "command")?))?);
        copy.job.push(rate(&|client| by_job(client, &copying(client, "job")?))?);
        chmod.command.push(rate(&|client| by_command(client, &changing(client, "go-r")?))?);
        chmod.job.push(rate(&|client| by_job(client, &changing(client, "go+r")?))?);
        let dir = plan.dir.join(format!("{name}.mnt"));
        make_dir(&dir)?;
        let mounted = Arc::new(subject.beside(None)?);
        let mount = Mount::start(mounted, &dir, MountOptions::default()).map_err(Failure::from)?;
        let program = |words: &[&str]| timed(|| run(&dir, words)).map(|(_, seconds)| names as f64 / seconds);
        let on_mount = program(&["cp", "-rp", "tree", "mount"])
            .and_then(|copied| Ok((copied, program(&["chmod", "-R", "go-r", "tree"])?)));
        unmount(mount)?;
        let (copied, changed) = on_mount?;
        copy.mount.push(copied);
        chmod.mount.push(changed);
        jobs.end();
        subject.end()?;
    }
    let row = |name: &str, of: &[f64], job: &[f64]| {
        Row::new(name, "names/s", of, job).with_bound("CPU of the server, and messages of its own client")
    };
    Ok(vec![
        row("chiton cp -r as a job / with --here", &copy.command, &copy.job),
        row("chiton chmod -R as a job / with --here", &chmod.command, &chmod.job),
        row("chiton cp -r as a job / cp -rp on a mount", &copy.mount, &copy.job),
        row("chiton chmod -R as a job / chmod -R on a mount", &chmod.mount, &chmod.job),
    ])
}

fn tree(client: &Client) -> Outcome<chiton_trees::Subject> {
    let place = Place::find(client, b"/tree", b"/tree").map_err(Failure::failed)?;
    Ok(chiton_trees::Subject::from(&place))
}

fn copying(client: &Client, to: &str) -> Outcome<Task> {
    let name = Name::new(to.as_bytes()).map_err(Failure::failed)?;
    Ok(Task::Copy(vec![Copying { from: tree(client)?, into: Ino::ROOT, name, since: None }]))
}

fn changing(client: &Client, mode: &str) -> Outcome<Task> {
    let mode = ModeChange::parse(mode).map_err(Failure::failed)?;
    Ok(Task::Chmod { subjects: vec![tree(client)?], recursive: true, mode, umask: 0 })
}

fn by_command(client: &Client, task: &Task) -> Outcome {
    let mut first = FirstRefusal::default();
    task.perform(client, &mut first);
    client.sync().map_err(Failure::failed)?;
    first.0.map_or(Ok(()), |refused| Err(Failure::failed(refused)))
}

fn by_job(client: &Client, task: &Task) -> Outcome {
    let mut first = FirstRefusal::default();
    let job = Job::start(client, task).map_err(Failure::failed)?;
    let status = job.wait(&mut first).map_err(Failure::failed)?;
    match (status.state, first.0) {
        (JobState::Done, None) => Ok(()),
        (_, Some(refused)) => Err(Failure::failed(refused)),
        (state, None) => Err(Failure::failed(format!("the job is {}", state.word()))),
    }
}

fn run(dir: &Path, words: &[&str]) -> Outcome {
    let ended = Command::new(words[0]).args(&words[1..]).current_dir(dir).status();
    match ended.map_err(|e| Failure::failed(format!("cannot run {}: {e}", words[0])))? {
        status if status.success() => Ok(()),
        status => Err(Failure::failed(format!("{} on the mount failed: {status}", words.join(" ")))),
    }
}
