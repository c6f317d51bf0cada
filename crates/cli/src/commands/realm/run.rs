//! `chiton run`: a job in a subtree of its own, merged if it succeeds.
//!
//! ```text
//!   decouple ─▶ command ─┬─ 0 ──▶ merge
//!                        └─ else ▶ discard (or leave it, with --keep)
//! ```

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

use chiton_mount::{ControlRequest, GiveBack};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Run;
use super::at_mount::{Done, Place};
use crate::commands::policy::read_policy;
use crate::failure::{Failure, Outcome};

/// What a shell adds to the number of a signal that ended a command.
const SIGNALLED: u8 = 128;

pub(crate) fn run(args: &Run) -> ExitCode {
    match decoupled(args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("chiton: {failure}");
            failure.exit_code()
        }
    }
}

fn decoupled(args: &Run) -> Outcome<u8> {
    let policy = args.policy.as_deref().map(read_policy).transpose()?;
    let place = Place::find(&args.path)?;
    // From here on a signal does not end this process: somebody has to give the subtree back.
    let signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP])
        .map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")))?;
    place.ask(&ControlRequest::Decouple { ino: place.ino, policy })?;
    let ended = command(args, signals);
    let code = match &ended {
        Ok(status) => code(*status),
        Err(_) => SIGNALLED - 1,
    };
    let at = args.path.display();
    if code != 0 && args.keep {
        eprintln!(
            "chiton: the command failed ({code}); {at} is still decoupled: chiton diff {at}, then chiton merge or chiton discard"
        );
        return ended.map(|_| code);
    }
    let how = if code == 0 { GiveBack::Merge } else { GiveBack::Discard };
    // What the command left running may still write; what failed is dropped all the same.
    let request =
        ControlRequest::GiveBack { ino: place.ino, how, force: how == GiveBack::Discard, on_conflict: None };
    let done = place.ask(&request).map_err(|failure| {
        let message = format!("{failure}\nthe command ended with {code}; {at} is still decoupled: chiton merge {at}, or chiton discard {at}");
        Failure::new(failure.class, message)
    })?;
    ended?;
    tell(args, &done, code)?;
    Ok(code)
}

fn tell(args: &Run, done: &Done, code: u8) -> Outcome {
    if args.json {
        return done.show(true);
    }
    eprintln!("chiton: {}", done.text.trim_end());
    // Printed already; a conflict that stopped the merge still is a failure.
    match (done.exit_code, code) {
        (0, _) => Ok(()),
        _ => Err(Failure::conflict(format!("{} is still decoupled", args.path.display()))),
    }
}

fn command(args: &Run, mut signals: Signals) -> Outcome<ExitStatus> {
    let program = &args.command[0];
    let mut child = Command::new(program)
        .args(&args.command[1..])
        .spawn()
        .map_err(|e| Failure::failed(format!("cannot run {}: {e}", program.display())))?;
    let pid = Pid::from_child(&child);
    let handle = signals.handle();
    let forwarding = thread::spawn(move || {
        for signal in signals.forever() {
            // The terminal has told the command itself.
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
    status
}

/// Whether this process is what the terminal talks to.
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
