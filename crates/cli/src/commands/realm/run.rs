//! `chiton run`: a job in a decoupled subtree, merged if it succeeds.
//!
//! ```text
//!   decouple ─▶ command ─┬─ 0 ──▶ merge
//!                        └─ else ▶ discard (or leave it, with --keep)
//! ```
//!
//! With `--branch` it is a branch (`commands/branch/run.rs`) instead of the subtree itself.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use chiton_fuse::{ControlRequest, GiveBack};
use chiton_policy::OnFailure;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{Pid, Signal, chdir, kill_process};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, unshare_unsafe};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Run;
use super::at_mount::{Done, MountedPath, is_directory};
use crate::commands::branch;
use crate::commands::policy::Given;
use crate::failure::{Failure, Outcome};
use crate::reach;

/// A shell's exit code is this plus the number of the signal that ended a command.
const SIGNALLED: u8 = 128;
/// A shell's exit codes for a command that does not exist, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;
/// How often it is looked whether a server is back.
const LOOK: Duration = Duration::from_millis(200);
/// The variable with the mount point of the command's branch.
const BRANCH: &str = "CHITON_BRANCH";

pub(crate) fn run(args: &Run) -> ExitCode {
    let ended = match &args.branch {
        Some(name) => branch::run_in_branch(args, name),
        None => decoupled(args),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            chiton_runtime::log_line!("chiton: {failure}");
            failure.exit_code()
        }
    }
}

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code that a shell would return.
    pub(crate) code: u8,
    /// It did not begin; why, in words.
    pub(crate) not_run: Option<String>,
}

fn decoupled(args: &Run) -> Outcome<u8> {
    let given = args.policy.as_deref().map(Given::read).transpose()?;
    let place = MountedPath::find(&args.path)?;
    is_directory(&args.path, "decouple")?;
    let signals = heeded()?;
    let begun = place.decouple(given.as_ref())?;
    let on_failure = begun.report["on_failure"].as_str().and_then(OnFailure::by_word);
    let keeps = args.keeps(on_failure.unwrap_or(OnFailure::DEFAULT));
    let ended = command(args, signals, None);
    let (code, at) = (ended.as_ref().map_or(NOT_RUN, |ended| ended.code), args.path.display());
    if code != 0 && keeps && ended.as_ref().is_ok_and(|ended| ended.not_run.is_none()) {
        chiton_runtime::log_line!(
            "chiton: the command failed ({code}); {at} is still decoupled: chiton diff {at}, then chiton merge or chiton discard"
        );
        return Ok(code);
    }
    let how = if code == 0 { GiveBack::Merge } else { GiveBack::Discard };
    // Remaining processes of the command may still write; the changes of a failed command are dropped all the same.
    let request = ControlRequest::GiveBack {
        ino: place.ino,
        how,
        force: how == GiveBack::Discard,
        on_conflict: args.on_conflict_word(),
        accept_truncated: args.accept_truncated,
    };
    let done = when_answering(&|| reach::answering(&args.path)).and_then(|()| place.ask(&request));
    let done = done.map_err(|failure| {
        let message = format!("{failure}\nthe command ended with {code}; {at} is still decoupled: chiton merge {at}, or chiton discard {at}");
        Failure::new(failure.class, message)
    })?;
    ended?.report(args, &done, &format!("{at} is still decoupled"))
}

impl Ended {
    /// Reports the outcome; returns the exit code. `left`: the state if a conflict stopped the merge.
    pub(crate) fn report(self, args: &Run, done: &Done, left: &str) -> Outcome<u8> {
        if let Some(why) = self.not_run {
            chiton_runtime::log_line!("chiton: {why}");
            return Ok(self.code);
        }
        if args.json {
            done.show(true)?;
            return Ok(self.code);
        }
        chiton_runtime::log_line!("chiton: {}", done.text.trim_end());
        // Printed already; a conflict that stopped the merge still is a failure.
        match done.exit_code {
            0 => Ok(self.code),
            _ => Err(Failure::conflict(left)),
        }
    }
}

/// Waits for a server that is away when the command has ended: one that restarts is back soon. A signal ends the wait.
///
/// # Errors
/// A signal came; how the server is.
pub(crate) fn when_answering(answers: &dyn Fn() -> Outcome) -> Outcome {
    let Err(failure) = answers() else { return Ok(()) };
    chiton_runtime::log_line!(
        "chiton: {failure}\nchiton: the command has ended; chiton merges or drops its changes when the server is back (Ctrl-C: leaves it)"
    );
    let mut signals = heeded()?;
    loop {
        thread::sleep(LOOK);
        if signals.pending().next().is_some() {
            return Err(failure);
        }
        if answers().is_ok() {
            return Ok(());
        }
    }
}

/// From here on a signal does not end this process, which must end the decoupling first.
pub(crate) fn heeded() -> Outcome<Signals> {
    Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP])
        .map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")))
}

/// The branch in which a command works.
pub(crate) struct Surroundings {
    /// The branch's path for the command.
    pub(crate) branch: PathBuf,
    /// The command's working directory.
    pub(crate) dir: PathBuf,
    /// A mount that only the command sees in another place: the mount of the branch, and the directory.
    pub(crate) shown: Option<(PathBuf, PathBuf)>,
}

/// Whether this process may show a command something in another place.
pub(crate) fn may_show() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// The command will see `mounted` at `at`, and begin in `dir`. It sees later mounts elsewhere; no other process
/// sees its mounts.
///
/// In a chroot the root directory is usually no mount point, so the propagation of all mounts cannot be changed at once. Then
/// each mount that this process sees is changed; the one around `at` must be among them.
fn show(command: &mut Command, mounted: &Path, at: &Path, dir: &Path) -> Outcome {
    let c_path = |path: &Path| {
        CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Failure::failed(format!("{} is no path: it contains a NUL", path.display())))
    };
    let around = reach::mount_around(at)?.ok_or_else(|| {
        Failure::absent(format!("{} is not in a mount of Chiton any more; mount it again", at.display()))
    })?;
    let around = c_path(&around.dir)?;
    let seen = reach::mount_points()?.iter().map(|dir| c_path(dir)).collect::<Outcome<Vec<CString>>>()?;
    let (mounted, at, dir) = (c_path(mounted)?, c_path(at)?, c_path(dir)?);
    let enter = move || {
        // SAFETY: mounts alone are parted; nothing of this process is looked up by where it is mounted.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        match mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC) {
            Err(Errno::INVAL) => {
                for point in &seen {
                    // A mount that is hidden, or that ended meanwhile, is skipped.
                    let _ = mount_change(point.as_c_str(), MountPropagationFlags::DOWNSTREAM);
                }
                mount_change(around.as_c_str(), MountPropagationFlags::DOWNSTREAM)?;
            }
            changed => changed?,
        }
        mount_bind(mounted.as_c_str(), at.as_c_str())?;
        // The former working directory is now hidden.
        Ok(chdir(dir.as_c_str())?)
    };
    // SAFETY: between fork and exec only system calls are made, on memory that existed before.
    unsafe { command.pre_exec(enter) };
    Ok(())
}

/// Runs the command to its end, and passes signals on to it.
pub(crate) fn command(args: &Run, mut signals: Signals, at: Option<&Surroundings>) -> Outcome<Ended> {
    let program = &args.command[0];
    let mut command = Command::new(program);
    command.args(&args.command[1..]);
    if let Some(at) = at {
        if let Some((mounted, over)) = &at.shown {
            show(&mut command, mounted, over, &at.dir)?;
        }
        command.current_dir(&at.dir).env(BRANCH, &at.branch).env("PWD", &at.dir);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            let code = if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
            return Ok(Ended { code, not_run: Some(format!("cannot run {}: {e}", program.display())) });
        }
    };
    let pid = Pid::from_child(&child);
    let handle = signals.handle();
    let forwarding = thread::spawn(move || {
        for signal in signals.forever() {
            // The terminal has signalled the command itself.
            if matches!(signal, SIGINT | SIGQUIT) && is_in_foreground() {
                continue;
            }
            if let Some(signal) = Signal::from_named_raw(signal) {
                // It may have ended.
                let _ = kill_process(pid, signal);
            }
        }
    });
    let status = child.wait().map_err(|e| Failure::failed(format!("cannot wait for the command: {e}")));
    // The handlers stay: a signal that comes during the merge does not end it.
    handle.close();
    // It does not panic.
    let _ = forwarding.join();
    Ok(Ended { code: code(status?), not_run: None })
}

/// Whether this process is in the terminal's foreground.
fn is_in_foreground() -> bool {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(&terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => SIGNALLED.saturating_add(signal.unwrap_or(0) as u8),
    }
}
