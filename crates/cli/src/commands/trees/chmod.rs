//! `chiton chmod` and `chiton chown`.

use chiton_trees::{ModeChange, Subject, Task, Totals};
use clap::Args;
use rustix::fs::Mode;
use serde_json::json;

use super::report::{AGAIN, Report};
use super::users::Users;
use super::work::{another_answer, repeat};
use super::{Here, Paths, carry_out, place};
use crate::failure::{Failure, Outcome};

#[derive(Debug, Args)]
#[command(
    after_help = "MODE is octal (644) or symbolic (u+rwX,go-w), as chmod(1) has it. Symbolic links are neither followed nor changed. chiton chmod skips files that have the mode already. It names each refused file, and then exits with 1. With -R the server does the work as a job (chiton jobs), which Ctrl-C cancels; --here does it in this process. It is not atomic.\n\nExamples:\n  chiton chmod -R u+rwX,go-w /mnt/chiton/share\n  chiton chmod 750 /mnt/chiton/home/alice\n  chiton chmod -R a+r --server tcp:server:7117 /public --json"
)]
pub(crate) struct Chmod {
    /// Change everything in directories, too.
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// The mode.
    #[arg(allow_hyphen_values = true, value_parser = ModeChange::parse)]
    pub(crate) mode: ModeChange,
    #[command(flatten)]
    pub(crate) paths: Paths,
    #[command(flatten)]
    pub(crate) here: Here,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Names of users and groups are those of this machine. Symbolic links are changed themselves, never their targets. chiton chown skips files that have the owner already. It names each refused file, and then exits with 1. With -R the server does the work as a job (chiton jobs), which Ctrl-C cancels; --here does it in this process. It is not atomic.\n\nExamples:\n  chiton chown -R alice:staff /mnt/chiton/home/alice\n  chiton chown :staff /mnt/chiton/share\n  chiton chown -R 1000:1000 --server tcp:server:7117 /home/alice --json"
)]
pub(crate) struct Chown {
    /// Change everything in directories, too.
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// OWNER, OWNER:GROUP or :GROUP, by name or number.
    pub(crate) owner: String,
    #[command(flatten)]
    pub(crate) paths: Paths,
    #[command(flatten)]
    pub(crate) here: Here,
}

pub(crate) fn chmod(args: &Chmod) -> Outcome {
    let (recursive, umask) = (args.recursive, umask());
    let task = |subjects| Task::Chmod { subjects, recursive, mode: args.mode.clone(), umask };
    let mode = &args.mode;
    let left = || match mode.may_repeat(umask) {
        true => repeat(),
        false => format!(
            "part of the tree has its new mode, and {mode} would change it once more: see which with chiton find and chiton ls -l, then \
             give the tree a mode that does not build on the present one, like 750 or u=rwX,g=rX,o="
        ),
    };
    run(&args.paths, "chmod", recursive && !args.here.here, task, &left)
}

pub(crate) fn chown(args: &Chown) -> Outcome {
    let (uid, gid) = Users::read().parse(&args.owner).map_err(Failure::failed)?;
    let recursive = args.recursive;
    let task = |subjects| Task::Chown { subjects, recursive, uid, gid };
    run(&args.paths, "chown", recursive && !args.here.here, task, &repeat)
}

fn run(
    paths: &Paths,
    command: &str,
    is_job: bool,
    task: impl FnOnce(Vec<Subject>) -> Task,
    left: &dyn Fn() -> String,
) -> Outcome {
    let Paths { paths, at } = paths;
    let (client, said) = place::open(at, paths, command)?;
    let mut report = Report::begin("changed", at.json)?;
    let mut subjects = Vec::new();
    for said in &said {
        match said.place(&client) {
            Ok(place) => subjects.push(Subject::from(&place)),
            Err(failure) => report.failed(failure),
        }
    }
    let Totals::Changed(done) = carry_out(&client, &task(subjects), is_job, &mut report, left)? else {
        return Err(another_answer());
    };
    let totals = json!({ "names": done.names, "changed": done.changed });
    report.end(totals, &format!("{} of {} are changed", done.changed, done.names), AGAIN)
}

/// This process's umask.
fn umask() -> u16 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits() as u16
}
