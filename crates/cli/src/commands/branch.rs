//! `chiton branch`: several copies of a directory side by side.
//!
//! ```text
//!   create ─▶ free ─▶ mount ─▶ its process has it ─▶ umount ─▶ free ─▶ merge | delete
//!                │                     │ asked through its control socket (user.json in the state directory)
//!                └─ diff, merge, delete: this process takes it for as long as that takes
//! ```

mod change;
mod left;
mod list;
mod mount;
mod run;
mod tree;

use std::path::PathBuf;

use chiton_policy::OnConflict;
use chiton_transport::Address;
use clap::{Args, Subcommand};

pub(crate) use self::run::run_in_branch;
use crate::commands::realm::{Side, on_conflict};
use crate::failure::Outcome;

#[derive(Debug, Args)]
#[command(
    after_help = "A branch is a copy of a directory as it is now, made in an instant, whatever its size. Its changes are visible only in the branch until it is merged; other clients continue to use the directory, and the branch does not see their changes. See docs/branches.md.\n\nExamples:\n  chiton branch create /mnt/chiton/src try1\n  chiton branch create /mnt/chiton/src try2\n  chiton branch mount /mnt/chiton/src try1 /work/try1     work in it, as in any directory\n  chiton branch diff /mnt/chiton/src try1\n  chiton branch merge /mnt/chiton/src try1\n  chiton branch delete /mnt/chiton/src try2\n  chiton branch list /mnt/chiton"
)]
pub(crate) struct BranchArgs {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a branch of a directory, as it is now.
    Create(Create),
    /// List the branches at and below a directory.
    List(List),
    /// Mount a branch on a directory.
    Mount(Mount),
    /// Show the effects that a merge would have.
    Diff(Diff),
    /// List the conflicts between the branch and others, by path.
    #[command(
        after_help = "Examples:\n  chiton branch conflicts /mnt/chiton/src try1\n  chiton branch conflicts /mnt/chiton/src try1 --json"
    )]
    Conflicts(Diff),
    /// Choose the version to keep at a path with a conflict; then merge again.
    Resolve(Resolve),
    /// Make a branch anew from the directory's present state, and repeat the branch's changes there.
    #[command(
        after_help = "No mount may use the branch. Conflicts must be resolved before.\n\nExit codes: 0 rebased, 3 in use, 4 no such branch, 5 a conflict stopped it (chiton branch conflicts lists all).\n\nExamples:\n  chiton branch rebase /mnt/chiton/src try1\n  chiton branch rebase /mnt/chiton/src try1 --json"
    )]
    Rebase(Diff),
    /// Merge the changes in a branch, and end it.
    Merge(Merge),
    /// Drop a branch and the changes in it.
    Delete(Delete),
}

/// The location of branches.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// The directory: a path of a mount, or with --server a path in the file system.
    pub(crate) path: PathBuf,
    /// The address of the server, if PATH is not in a mount: tcp:HOST:PORT, unix:PATH.
    #[arg(long)]
    pub(crate) server: Option<Address>,
    /// Where journals are kept (default: /var/lib/chiton of root, else the user's state folder; of an existing branch, where its
    /// journal is).
    #[arg(long)]
    state_dir: Option<PathBuf>,
    /// Resume a journal that has lost durable events at its end, without these events.
    #[arg(long)]
    accept_truncated: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without --policy the branch has a journal on this machine's disk (durability: local): synced data survive a crash. With durability: global the journal is in the object store, and any machine can mount the branch.\n\nExamples:\n  chiton branch create /mnt/chiton/src try1\n  chiton branch create /mnt/chiton/src try1 --policy anywhere.yml\n  chiton branch create --server tcp:server:7117 /src try1"
)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) at: Where,
    /// The branch's name.
    name: String,
    /// A policy file or a preset's name: invisible or weak, durability local or global.
    #[arg(long)]
    policy: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton branch list /mnt/chiton\n  chiton branch list /mnt/chiton/src --json"
)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) at: Where,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The mount is a separate file system (its device number differs). chiton umount leaves the branch as it is, for the next mount. chiton diff, sync, merge and discard work on any path of it, too.\n\nExamples:\n  mkdir -p /work/try1\n  chiton branch mount /mnt/chiton/src try1 /work/try1\n  chiton branch mount /mnt/chiton/src try1 /work/try1 try2 /work/try2     one process, which ends with the last of them\n  chiton umount /work/try1"
)]
pub(crate) struct Mount {
    #[command(flatten)]
    pub(crate) at: Where,
    /// The branch's name.
    name: String,
    /// Where to mount: a directory.
    mountpoint: PathBuf,
    /// Further branches of the same directory, and where to mount them, served by the same process: NAME DIR NAME DIR …
    more: Vec<PathBuf>,
    /// Stay in the foreground, with messages on the terminal.
    #[arg(long, short)]
    foreground: bool,
    /// Nothing can be changed through this mount.
    #[arg(long)]
    read_only: bool,
    /// Let other users in (default: if root mounts).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_other: Option<bool>,
    /// Fail operations when the server has not answered for this many seconds (default: wait for ever).
    #[arg(long)]
    timeout: Option<u64>,
    /// When unmounting, end without the server if it has been silent for this many seconds.
    #[arg(long, default_value_t = 30)]
    unmount_timeout: u64,
    /// Announce on standard output that the mount is ready, in one line of JSON (the command passes this to itself
    /// when it goes to the background).
    #[arg(long, hide = true)]
    announce: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton branch diff /mnt/chiton/src try1\n  chiton branch diff /mnt/chiton/src try1 --json"
)]
pub(crate) struct Diff {
    #[command(flatten)]
    pub(crate) at: Where,
    /// The branch's name.
    name: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Within the branch's mount chiton resolve does the same, with more options.\n\nExamples:\n  chiton branch merge /mnt/chiton/src try1 --on-conflict abort      exit code 5: there are conflicts\n  chiton branch conflicts /mnt/chiton/src try1\n  chiton branch resolve /mnt/chiton/src try1 a/file --theirs\n  chiton branch resolve /mnt/chiton/src try1 b/file --merged /tmp/b\n  chiton branch merge /mnt/chiton/src try1 --on-conflict abort"
)]
pub(crate) struct Resolve {
    #[command(flatten)]
    pub(crate) at: Where,
    /// The branch's name.
    name: String,
    /// The path, from the directory that the branch is of.
    within: PathBuf,
    #[command(flatten)]
    side: Side,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A merge ends the mount of the branch.\n\nExit codes: 0 merged, 3 in use (files are open for writing), 4 no such branch, 5 a conflict stopped it (on_conflict: abort).\n\nExamples:\n  chiton branch merge /mnt/chiton/src try1\n  chiton branch merge /mnt/chiton/src try1 --on-conflict keep_both --json\n  chiton branch merge /mnt/chiton/src try1 --dry-run"
)]
pub(crate) struct Merge {
    #[command(flatten)]
    pub(crate) at: Where,
    /// The branch's name.
    name: String,
    /// How conflicts are resolved: overwrite (the branch prevails), abort (nothing is merged), keep_both, or merge (texts line by
    /// line) (default: as the branch's policy says: overwrite).
    #[arg(long, value_parser = on_conflict)]
    on_conflict: Option<OnConflict>,
    /// Only show the effects that a merge would have, as chiton branch diff does.
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Do it although files are open for writing in its mount: their descriptors answer errors from then on.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton branch delete /mnt/chiton/src try2\n  chiton branch delete /mnt/chiton/src try2 --force     although a mount uses it"
)]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) at: Where,
    /// The branch's name.
    name: String,
    /// Do it although a mount uses the branch, or its journal is on another machine.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &BranchArgs) -> Outcome {
    match &args.command {
        Command::Create(args) => change::create(args),
        Command::List(args) => list::list(args),
        Command::Mount(args) => mount::mount(args),
        Command::Diff(args) => change::diff(args),
        Command::Conflicts(args) => change::conflicts(args),
        Command::Resolve(args) => change::resolve(args),
        Command::Rebase(args) => change::rebase(args),
        Command::Merge(args) => change::merge(args),
        Command::Delete(args) => change::delete(args),
    }
}
