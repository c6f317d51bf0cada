//! `chiton run --branch`: a job in a branch.
//!
//! ```text
//!   create ─ mount, in this process ─▶ command ─┬─ 0 ──▶ merge
//!                                               └─ else ▶ delete (or leave it, with --keep)
//! ```
//!
//! The command begins in the branch: in the user's working directory, if that is in the directory, otherwise at the
//! branch's root. If this process may create a mount namespace (root), the command sees the branch in the
//! directory's place; otherwise only at its mount point.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use chiton_decoupled::{Realm, User};
use chiton_fuse::{ControlRequest, GiveBack, Mount, MountOptions};

use super::Where;
use super::tree::{Tree, failure, name};
use crate::commands::policy::Given;
use crate::commands::realm::{
    Ended, MountedPath, Run, Surroundings, command, heeded, may_show, when_answering,
};
use crate::failure::{Failure, Outcome};
use crate::{reach, target};

/// How long to wait for remaining processes of the command when the branch ends.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a command in a branch; returns the exit code.
pub(crate) fn run_in_branch(args: &Run, named: &str) -> Outcome<u8> {
    let name = name(named)?;
    let given = args.policy.as_deref().map(Given::read).transpose()?;
    let at = Where {
        path: args.path.clone(),
        server: None,
        state_dir: args.state_dir.clone(),
        accept_truncated: args.accept_truncated,
        json: args.json,
    };
    let who = format!("chiton run, branch {named} of {}", args.path.display());
    let tree = Tree::find(&at, &who, None)?;
    let dir = std::fs::canonicalize(&args.path)
        .map_err(|e| Failure::failed(format!("cannot find the full name of {}: {e}", args.path.display())))?;
    if may_show() {
        MountedPath::keep_mounts(&dir)?;
    }
    let signals = heeded()?;
    let policy = given.as_ref().map(|given| given.text.as_bytes());
    let made = tree.realms.create_branch(&tree.client.caller(), tree.root, &name, policy);
    made.map_err(|error| Given::explain(given.as_ref(), failure(error)))?;
    let job = match Job::begin(&tree, named, &dir) {
        Ok(job) => job,
        Err(failure) => {
            // Nothing was done in it. If this fails, too, it is in the list.
            let _ = tree.realms.delete_branch(tree.root, &name, true);
            return Err(failure);
        }
    };
    let ended = command(args, signals, Some(&job.place(&dir)));
    let outcome = job.end(args, &tree, ended);
    job.leave();
    outcome.and_then(|code| tree.close().map(|()| code))
}

/// The mount in which the command works.
struct Job {
    mount: Mount,
    branch: Arc<Realm>,
    dir: PathBuf,
    control: PathBuf,
    /// Branch and directory, for messages.
    said: (String, String),
}

impl Job {
    fn begin(tree: &Tree, named: &str, over: &Path) -> Outcome<Job> {
        let name = name(named)?;
        let branch = tree.realms.open_branch(tree.root, &name).map_err(failure)?;
        let dir = target::own_dir()?.join(format!("run-{}", std::process::id()));
        let control = target::control_socket(rustix::process::geteuid().is_root())?;
        let options = MountOptions {
            fs_name: target::source_of_branch(&tree.address, named),
            control: Some(control.clone()),
            ..MountOptions::default()
        };
        std::fs::create_dir(&dir)
            .map_err(|e| Failure::failed(format!("cannot make {}: {e}", dir.display())))?;
        let begin = || {
            let (client, realms) = (tree.client.clone(), tree.realms.clone());
            let mount = Mount::start_branch(client, realms, &branch, &dir, options).map_err(Failure::from)?;
            let user = User { pid: std::process::id(), mountpoint: dir.clone(), control: control.clone() };
            branch.note_user(&user).map_err(failure)?;
            Ok(mount)
        };
        let said = (named.to_owned(), over.display().to_string());
        match begin() {
            Ok(mount) => Ok(Job { mount, branch, dir, control, said }),
            Err(failure) => {
                let _ = std::fs::remove_dir(&dir);
                // Else it would be in use.
                tree.realms.close();
                Err(failure)
            }
        }
    }

    /// The working directory of the command.
    fn place(&self, over: &Path) -> Surroundings {
        let here = std::env::current_dir().unwrap_or_default();
        let within = here.strip_prefix(over).unwrap_or(Path::new(""));
        // Programs with absolute paths (build directories have them) must not reach the directory itself.
        let branch = if may_show() { over.to_owned() } else { self.dir.clone() };
        let shown = (branch == over).then(|| (self.dir.clone(), over.to_owned()));
        // (To join nothing would add a slash.)
        let dir = if within == Path::new("") { branch.clone() } else { branch.join(within) };
        Surroundings { dir, branch, shown }
    }

    /// Merges, drops or keeps the changes.
    fn end(&self, args: &Run, tree: &Tree, ended: Outcome<Ended>) -> Outcome<u8> {
        let (branch, dir) = &self.said;
        let next = format!(
            "branch {branch} of {dir} still exists: chiton branch diff {dir} {branch}, then chiton branch merge or chiton branch delete"
        );
        let was_run = ended.as_ref().is_ok_and(|ended| ended.not_run.is_none());
        let code = ended.as_ref().map_or(1, |ended| ended.code);
        if code != 0 && args.keeps(self.branch.policy().on_failure) && was_run {
            chiton_runtime::log_line!("chiton: the command failed ({code}); {next}");
            return Ok(code);
        }
        let how = if code == 0 { GiveBack::Merge } else { GiveBack::Discard };
        // Remaining processes of the command may still write; the changes of a failed command are dropped all the
        // same.
        let force = how == GiveBack::Discard;
        let request = ControlRequest::GiveBack {
            ino: tree.root.0,
            how,
            force,
            on_conflict: args.on_conflict_word(),
            accept_truncated: args.accept_truncated,
        };
        let done = when_answering(&|| reach::probe(&tree.address, dir))
            .and_then(|()| MountedPath::at(tree.root.0, self.control.clone()).ask(&request));
        let done = done.map_err(|failure| {
            Failure::new(failure.class, format!("{failure}\nthe command ended with {code}; {next}"))
        })?;
        ended?.report(args, &done, &next)
    }

    /// Detaches the mount. Remaining users get errors from then on.
    fn leave(self) {
        // The mount ends with the branch. If not, the wait below reports it.
        if !self.branch.is_ended() {
            let _ = self.mount.unmounter().unmount(true);
        }
        let (sender, receiver) = mpsc::channel();
        let mount = self.mount;
        std::thread::spawn(move || sender.send(mount.wait()));
        match receiver.recv_timeout(GRACE) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => chiton_runtime::log_line!("chiton: {error}"),
            Err(_) => {
                let (branch, dir) = &self.said;
                let (at, seconds) = (self.dir.display(), GRACE.as_secs());
                chiton_runtime::log_line!(
                    "chiton: the mount of branch {branch} of {dir}, at {at}, has not ended within {seconds} s: a process may \
                     still use it, or the server is slow; it ends with this command, and programs that use it meet errors \
                     (fuser -vm {at} names them)"
                );
            }
        }
        // If it is in use it stays, empty.
        let _ = std::fs::remove_dir(&self.dir);
    }
}
