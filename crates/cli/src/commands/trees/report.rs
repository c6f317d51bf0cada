//! Messages of a command on a tree while it runs and at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chiton_client::Client;
use chiton_trees::{Found, Refused, Watch};
use chiton_types::Refusal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::find::Printer;
use crate::failure::{Class, Failure, Outcome};

/// The advice where a command may be repeated.
pub(super) const AGAIN: &str = "the same command does the rest";
/// Refusals that a report in JSON lists. All are counted.
const LISTED_MAX: usize = 10_000;

/// Prints refusals as they come, or keeps them for a report; shows progress on a terminal; ends the work at a signal.
pub(super) struct Report {
    json: bool,
    bar: ProgressBar,
    refused: u64,
    /// Those of them that came by [`Watch`].
    from_watch: u64,
    class: Option<Class>,
    listed: Vec<Value>,
    stopped: Arc<AtomicBool>,
    /// The server does not answer any more.
    is_lost: bool,
    /// Prints what a search finds.
    printer: Option<Printer>,
}

impl Report {
    /// Begins. `what` is the word for the names that are counted: `removed`.
    pub(super) fn begin(what: &'static str, json: bool) -> Outcome<Report> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second one ends the process at once.
            signal_hook::flag::register_conditional_default(signal, stopped.clone())
                .and_then(|_| signal_hook::flag::register(signal, stopped.clone()))
                .map_err(|e| Failure::failed(format!("cannot take the signal {signal}: {e}")))?;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix} {human_pos} names {spinner} {per_sec}");
        bar.set_style(style.expect("a valid template"));
        bar.set_prefix(what);
        Ok(Report {
            json,
            bar,
            refused: 0,
            from_watch: 0,
            class: None,
            listed: Vec::new(),
            stopped,
            is_lost: false,
            printer: None,
        })
    }

    /// From now on it prints what is found.
    pub(super) fn print_by(&mut self, printer: Printer) {
        self.printer = Some(printer);
    }

    /// The printer, when all is found.
    pub(super) fn take_printer(&mut self) -> Option<Printer> {
        self.printer.take()
    }

    /// Something of the command line that is not there, or not for this command.
    pub(super) fn failed(&mut self, failure: Failure) {
        self.refused += 1;
        self.class = Some(self.class.unwrap_or(failure.class));
        if self.json {
            self.list(json!({ "reason": failure.message }));
        } else {
            self.bar.suspend(|| chiton_runtime::log_line!("chiton: {failure}"));
        }
    }

    /// So much was refused in all, of which the first came one by one.
    pub(super) fn refused_in_all(&mut self, refused: u64) {
        let unlisted = refused.saturating_sub(self.from_watch);
        self.refused += unlisted;
        if unlisted > 0 && !self.json {
            self.bar.suspend(|| {
                chiton_runtime::log_line!("chiton: {unlisted} more were refused: --here names all of them");
            });
        }
    }

    /// Another client has ended the work.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn list(&mut self, line: Value) {
        if self.listed.len() < LISTED_MAX {
            self.listed.push(line);
        }
    }

    /// Waits until all that was changed is durable: no client is left then that could send it again to a server that crashed.
    pub(super) fn make_durable(&mut self, client: &Client) {
        if self.is_lost {
            return;
        }
        match client.sync() {
            Ok(()) => {}
            Err(Refusal::NotConnected) => self.is_lost = true,
            Err(refusal) => self.failed(Failure::failed(format!(
                "some of the changes may be lost: they could not be made durable: {refusal}; look at the tree and repeat the command"
            ))),
        }
    }

    /// Prints the totals, in JSON with the refusals, and says whether the command succeeded. `done` is what stands, in words, and
    /// `next` what leads on after an interruption.
    pub(super) fn end(mut self, totals: Value, done: &str, next: &str) -> Outcome {
        self.bar.finish_and_clear();
        if self.json {
            let mut totals = totals;
            totals["refused"] = json!(self.refused);
            totals["refusals"] = Value::Array(std::mem::take(&mut self.listed));
            totals["interrupted"] = json!(self.is_stopped());
            println!("{totals}");
        }
        self.result(done, next)
    }

    /// Whether the command succeeded.
    pub(super) fn result(self, done: &str, next: &str) -> Outcome {
        self.bar.finish_and_clear();
        if self.is_lost {
            return Err(Failure::absent(format!(
                "the server does not answer any more: {done}; when it is back: {next}"
            )));
        }
        if self.is_stopped() {
            return Err(Failure::failed(format!("interrupted: {done}; {next}")));
        }
        match self.refused {
            0 => Ok(()),
            1 => Err(Failure::new(self.class.unwrap_or(Class::Failed), format!("{done}; one was refused"))),
            n => Err(Failure::failed(format!("{done}; {n} were refused"))),
        }
    }
}

impl Watch for Report {
    fn refused(&mut self, refused: Refused) {
        if refused.refusal == Refusal::NotConnected && std::mem::replace(&mut self.is_lost, true) {
            return;
        }
        self.refused += 1;
        self.from_watch += 1;
        if self.json {
            let path = String::from_utf8_lossy(&refused.path).into_owned();
            self.list(json!({ "path": path, "doing": refused.doing, "reason": refused.refusal.to_string() }));
        } else {
            self.bar.suspend(|| chiton_runtime::log_line!("chiton: {refused}"));
        }
    }

    fn found(&mut self, found: Found) {
        if let Some(printer) = &mut self.printer {
            printer.print(&found);
        }
    }

    fn progress(&mut self, names: u64) {
        self.bar.set_position(names);
        if let Some(printer) = &mut self.printer {
            printer.flush();
        }
    }

    fn restarted(&mut self, id: u64, names: u64) {
        self.refused -= std::mem::take(&mut self.from_watch);
        // Those of the command line name no path of their own.
        self.listed.retain(|line| line["path"].is_null());
        if let Some(printer) = &mut self.printer {
            printer.begin_again();
        }
        self.bar.suspend(|| {
            chiton_runtime::log_line!(
                "chiton: job {id} has ended with its server, after {names} names or a few more: a server begins again"
            );
        });
    }

    fn is_stopped(&self) -> bool {
        let is_unread = self.printer.as_ref().is_some_and(Printer::has_failed);
        self.is_lost || is_unread || self.stopped.load(Ordering::Relaxed)
    }
}
