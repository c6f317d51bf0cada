//! Commands about decoupled subtrees. Those of a mount are asked of it through its control socket, by
//! anything in the subtree; the rest are asked of the server.

mod at_mount;
mod list;
mod merged;
mod recover;
mod resolve;
mod run;
mod text;

use std::path::PathBuf;

use chiton_policy::{OnConflict, OnFailure};
use chiton_server::DataAddress;
use clap::Args;

pub(crate) use self::at_mount::{Done, MountedPath, is_directory};
pub(crate) use self::at_mount::{decouple, diff, discard, merge, recouple, sync};
pub(crate) use self::list::{decoupled, held};
pub(crate) use self::merged::Merged;
pub(crate) use self::recover::{recover, state_dir};
pub(crate) use self::resolve::{Resolve, Side, conflicts, resolve};
pub(crate) use self::run::{Ended, Surroundings, command, heeded, may_show, run, when_answering};
pub(crate) use self::text::{conflicts as conflicts_text, diff as diff_text, merge_report};

#[derive(Debug, Args)]
#[command(
    after_help = "This mount then works below the directory alone, in its memory and its own journal, until the changes are merged or discarded. Other clients are treated as the policy's interfere_policy says. A subtree whose policy asks for it (chiton policy set DIR batchfs) is decoupled by its first change, without this command.\n\nExamples:\n  chiton decouple /mnt/chiton/job                     as the policy of the directory says\n  chiton decouple /mnt/chiton/job --policy deltafs    as this preset says, for this time\n  chiton decouple /mnt/chiton/job --policy my.yml --json\n  chiton decouple /mnt/chiton/job --verbose           each stage, and how long it took"
)]
pub(crate) struct Decouple {
    /// A directory of a mount.
    pub(crate) path: PathBuf,
    /// A policy file or a preset's name, for this time (default: the policy of the directory).
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// Print each stage and how long it took. (JSON always contains that.)
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `chiton sync`, `diff` and `conflicts`.
#[derive(Debug, Args)]
pub(crate) struct Within {
    /// Anything in a decoupled subtree of a mount.
    pub(crate) path: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 merged, 3 in use (files are open for writing), 4 not decoupled here, 5 a conflict, which the policy (on_conflict: abort) forbids.\n\nExamples:\n  chiton merge /mnt/chiton/job\n  chiton merge /mnt/chiton/job --dry-run    show its effects and its conflicts\n  chiton merge /mnt/chiton/job --dry-run --on-conflict keep_both\n  chiton merge /mnt/chiton/job --json       with each conflict: base, ours, theirs, resolution"
)]
pub(crate) struct Merge {
    /// Anything in a decoupled subtree of a mount.
    pub(crate) path: PathBuf,
    /// Only show the effects that a merge would have, as chiton diff does.
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// How conflicts are resolved this time: overwrite, abort, keep_both or merge (default: as the policy says).
    #[arg(long, value_parser = on_conflict)]
    pub(crate) on_conflict: Option<OnConflict>,
    /// Merge a journal that has lost durable events at its end, without these events.
    #[arg(long)]
    pub(crate) accept_truncated: bool,
    /// Do it although files are open for writing there: their descriptors answer EIO from then on.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton discard /mnt/chiton/job            the subtree is again as it was, with synced changes\n  chiton discard /mnt/chiton/job --force"
)]
pub(crate) struct Discard {
    /// Anything in a decoupled subtree of a mount.
    pub(crate) path: PathBuf,
    /// Do it although files are open for writing there: their descriptors answer EIO from then on.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A weak subtree is merged. For an invisible one, add --merge or --discard.\n\nWith --force an administrator also ends the decoupling of another client, which may be gone: all clients may use the directory immediately, that client's mount answers EIO below it, and the changes that it has not merged wait as a branch (chiton branch list; chiton recover --as-branch NAME on its machine). With --discard they are dropped for good. The command shows how old the decoupling is and how many events are not merged, and asks; where standard input is no terminal it ends nothing unless --yes is given.\n\nExamples:\n  chiton recouple /mnt/chiton/job\n  chiton recouple /mnt/chiton/job --discard\n  chiton recouple /mnt/chiton/job --force         whichever client has it\n  chiton recouple /mnt/chiton --id 7 --force      by the number that chiton decoupled shows\n  chiton recouple /mnt/chiton/job --force --yes   from a script"
)]
pub(crate) struct Recouple {
    /// Anything in a decoupled subtree of a mount; with --id: a mount point, a data directory or a server's address.
    pub(crate) path: PathBuf,
    /// The number of the decoupling.
    #[arg(long, requires = "force")]
    pub(crate) id: Option<u32>,
    /// Merge the changes, whatever the policy says.
    #[arg(long, conflicts_with = "discard")]
    pub(crate) merge: bool,
    /// Drop the changes, whatever the policy says.
    #[arg(long)]
    pub(crate) discard: bool,
    /// Merge a journal that has lost durable events at its end, without these events.
    #[arg(long)]
    pub(crate) accept_truncated: bool,
    /// Do it although files are open for writing, or another client has it.
    #[arg(long)]
    pub(crate) force: bool,
    /// End the decoupling of another client without asking. (Required where standard input is no terminal.)
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  chiton decoupled /mnt/chiton\n  chiton decoupled tcp:server:7117 --json"
)]
pub(crate) struct Decoupled {
    /// A mount point (or anything in a mount), a data directory, or a server's address.
    pub(crate) target: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("source").required(true),
    after_help = "A mount that died leaves the journals of its decoupled subtrees in its state directory (durability: local). The next mount with that directory resumes them automatically; without one, this command merges or drops them.\n\nExamples:\n  chiton recover --server tcp:server:7117            list them\n  chiton recover --server tcp:server:7117 --merge\n  chiton recover --data /srv/chiton --discard\n  chiton recover --server tcp:server:7117 --id 7 --merge    its journal is in the object store (durability: global)\n  chiton recover --server tcp:server:7117 --as-branch rescued    a decoupling that was ended by force becomes a branch\n  chiton recover --data /srv/chiton --offline        nonvolatile_apply: no server runs"
)]
pub(crate) struct Recover {
    /// The data directory or s3://BUCKET/PREFIX of the file system.
    #[arg(long, group = "source", value_name = "DIR|s3://BUCKET/PREFIX")]
    pub(crate) data: Option<DataAddress>,
    /// The address of its server.
    #[arg(long, group = "source", value_name = "ADDRESS")]
    pub(crate) server: Option<chiton_transport::Address>,
    /// Where mounts of this user leave their journals.
    #[arg(long)]
    pub(crate) state_dir: Option<PathBuf>,
    /// A decoupling whose journal is in the object store, by its number: from any machine. May be repeated.
    #[arg(long)]
    pub(crate) id: Vec<u32>,
    /// Without a server: merge into the metadata store the journals that policies with nonvolatile_apply have left
    /// in the object store (with --id only that one; with --discard drop them). No server may serve the file system
    /// meanwhile.
    #[arg(long, requires = "data")]
    pub(crate) offline: bool,
    /// Make a branch of this name of a decoupling that was ended from elsewhere (chiton recouple --force), or that --id
    /// names: chiton branch diff, mount and merge do the rest.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["merge", "discard", "offline"])]
    pub(crate) as_branch: Option<String>,
    /// Resume journals that have lost durable events at their end, without these events.
    #[arg(long)]
    pub(crate) accept_truncated: bool,
    /// List the journals (the default).
    #[arg(long, conflicts_with_all = ["merge", "discard", "id", "offline", "as_branch"])]
    pub(crate) list: bool,
    /// Merge all journals.
    #[arg(long, conflicts_with = "discard")]
    pub(crate) merge: bool,
    /// Drop all journals.
    #[arg(long)]
    pub(crate) discard: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Decouples the directory, runs the command, and merges the changes if the command ends with 0; otherwise drops them. Its exit code is the command's (128 + the signal's number if one killed it, 127 if there is no such command, 126 if it cannot be run).\n\nWith --branch the command works in a branch of the directory, which is mounted for it: it begins there (where you are, if that is in the directory, else at the top), and $CHITON_BRANCH is the branch's path. For root's commands that is the directory's own path, where only they see the branch. For commands of other users the directory's path leads to the directory: name files by relative paths.\n\nExamples:\n  chiton run --policy batchfs --path /mnt/chiton/job -- tar xf data.tar -C /mnt/chiton/job\n  chiton run --policy deltafs --path /mnt/chiton/src -- make -C /mnt/chiton/src\n  chiton run --path /mnt/chiton/job --keep -- ./job.sh      if it fails, leave it to look at\n  chiton run --branch try1 --path /mnt/chiton/src -- make"
)]
pub(crate) struct Run {
    /// A policy file or a preset's name (default: the policy of the directory; of a branch: a journal on this machine).
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// A directory of a mount.
    #[arg(long)]
    pub(crate) path: PathBuf,
    /// Make a branch of the directory, of this name, and run the command in that.
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,
    /// Where the branch's journal is kept (default: /var/lib/chiton of root, else the user's state folder).
    #[arg(long, requires = "branch")]
    pub(crate) state_dir: Option<PathBuf>,
    /// If the command fails, keep its changes: see chiton diff, then chiton merge or discard; for a branch chiton
    /// branch diff, merge or delete.
    #[arg(long)]
    pub(crate) keep: bool,
    /// If the command fails, drop its changes, whatever the policy (on_failure) says.
    #[arg(long, conflicts_with = "keep")]
    pub(crate) discard: bool,
    /// How conflicts are resolved when the command's changes are merged: overwrite, abort, keep_both or merge
    /// (default: as the policy says).
    #[arg(long, value_parser = on_conflict)]
    pub(crate) on_conflict: Option<OnConflict>,
    /// Merge a journal that has lost durable events at its end, without these events (otherwise the directory stays
    /// decoupled, and the command fails).
    #[arg(long)]
    pub(crate) accept_truncated: bool,
    /// Print the outcome as JSON, in the last line of standard output (default: as text on standard error).
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, num_args = 1..)]
    pub(crate) command: Vec<std::ffi::OsString>,
}

impl Run {
    /// Whether the changes of a failed command are kept; `policy`: the policy's setting.
    pub(crate) fn keeps(&self, policy: OnFailure) -> bool {
        self.keep || (policy == OnFailure::Keep && !self.discard)
    }

    /// `--on-conflict`, as a mount is asked.
    pub(crate) fn on_conflict_word(&self) -> Option<String> {
        self.on_conflict.map(|on_conflict| on_conflict.word().to_owned())
    }
}

/// Parses a value of `on_conflict`.
pub(crate) fn on_conflict(word: &str) -> Result<OnConflict, String> {
    OnConflict::by_word(word).ok_or_else(|| "use overwrite, abort, keep_both or merge".to_owned())
}
