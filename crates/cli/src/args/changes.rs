//! Which commands change a file system, and by which paths they reach it.
//!
//! Most commands ask the server, past the mount that their path is in. So that a read-only mount is one for them, too, they are
//! refused here before they begin.

use std::path::{Path, PathBuf};

use super::Command;
use crate::commands::branch::{self, Where};
use crate::commands::policy::PolicyCommand;
use crate::commands::trees::{At, Huge};
use crate::failure::Outcome;
use crate::{reach, target};

/// A path by which a command changes a file system.
#[derive(Debug, PartialEq, Eq)]
enum Changed<'a> {
    /// The entry of this name: a symbolic link itself.
    Entry(&'a Path),
    /// The object that the path leads to.
    Object(&'a Path),
}

use Changed::{Entry, Object};

impl Command {
    /// Refuses a command that would change a file system by a path in a read-only mount of it.
    pub(crate) fn check_mounts(&self) -> Outcome {
        self.changes().into_iter().try_for_each(|changed| match changed {
            Entry(path) => reach::writable(path, false),
            Object(path) => reach::writable(path, true),
        })
    }

    /// The one table. The system itself refuses changes that a command makes through a mount, such as those of `bench`.
    fn changes(&self) -> Vec<Changed<'_>> {
        match self {
            Command::Policy(args) => match &args.what {
                PolicyCommand::Set(args) => vec![Object(&args.path)],
                PolicyCommand::Rm(args) => vec![Object(&args.path)],
                PolicyCommand::Get(_)
                | PolicyCommand::List(_)
                | PolicyCommand::Explain(_)
                | PolicyCommand::Presets(_) => Vec::new(),
            },
            Command::Decouple(args) => vec![Object(&args.path)],
            Command::Sync(args) => vec![Object(&args.path)],
            Command::Resolve(args) => vec![Object(&args.path)],
            Command::Merge(args) if args.dry_run => Vec::new(),
            Command::Merge(args) => vec![Object(&args.path)],
            Command::Discard(args) => vec![Object(&args.path)],
            Command::Recouple(args) => of_target(&args.path),
            Command::Run(args) => vec![Object(&args.path)],
            Command::Branch(args) => match &args.command {
                branch::Command::Create(args) => of_branch(&args.at),
                branch::Command::Resolve(args) => of_branch(&args.at),
                branch::Command::Rebase(args) => of_branch(&args.at),
                branch::Command::Merge(args) if args.dry_run => Vec::new(),
                branch::Command::Merge(args) => of_branch(&args.at),
                branch::Command::Delete(args) => of_branch(&args.at),
                // The mount of a branch is another file system, read-only or not.
                branch::Command::Mount(_)
                | branch::Command::List(_)
                | branch::Command::Diff(_)
                | branch::Command::Conflicts(_) => Vec::new(),
            },
            Command::Huge(args) => match &args.what {
                Huge::Split(paths) | Huge::Fold(paths) => of_tree(&paths.at, &paths.paths),
                Huge::Status(_) => Vec::new(),
            },
            Command::Rm(args) if args.dry_run => Vec::new(),
            Command::Rm(args) => of_tree(&args.paths.at, &args.paths.paths),
            Command::Cp(args) => of_tree(&args.at, [&args.to]),
            Command::Chmod(args) => of_tree(&args.paths.at, &args.paths.paths),
            Command::Chown(args) => of_tree(&args.paths.at, &args.paths.paths),
            Command::Load(args) => of_target(Path::new(&args.target)),
            Command::Fsck(args) if args.repair || args.rebuild => of_target(Path::new(&args.target)),
            Command::Fsck(_)
            | Command::Format(_)
            | Command::Serve(_)
            | Command::Mount(_)
            | Command::Umount(_)
            | Command::Status(_)
            | Command::Df(_)
            | Command::Top(_)
            | Command::Flush(_)
            | Command::Diff(_)
            | Command::Conflicts(_)
            | Command::Decoupled(_)
            | Command::Recover(_)
            | Command::View(_)
            | Command::Cluster(_)
            | Command::Auth(_)
            | Command::Journal(_)
            | Command::Ls(_)
            | Command::Find(_)
            | Command::Du(_)
            | Command::Jobs(_)
            | Command::Dump(_)
            | Command::Conformance(_)
            | Command::Bench(_)
            | Command::Completions(_) => Vec::new(),
        }
    }
}

/// The paths of a command on trees, which may be those of a server.
fn of_tree<'a>(at: &'a At, paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<Changed<'a>> {
    match &at.server {
        Some(server) => of_target(Path::new(server)),
        None => paths.into_iter().map(|path| Entry(path)).collect(),
    }
}

fn of_branch(at: &Where) -> Vec<Changed<'_>> {
    if at.server.is_some() { Vec::new() } else { vec![Object(&at.path)] }
}

/// A mount point or anything in a mount, or else an address or a bucket.
fn of_target(target: &Path) -> Vec<Changed<'_>> {
    let is_path = target.to_str().is_none_or(target::is_path);
    if is_path { vec![Object(target)] } else { Vec::new() }
}
