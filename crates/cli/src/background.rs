//! Going to the background: the command runs itself again, detached, and waits for one line.
//!
//! ```text
//!   chiton mount …            ── spawns ──▶  chiton mount --announce …   (own session, stderr to a log file)
//!        waits for a line     ◀── stdout ──  {"pid": …} once mounted, or the end of the process
//! ```

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::{Class, Failure, Outcome};

/// Runs this program again with `words`, detached; returns its announcement.
///
/// # Errors
/// What it said on stderr before it ended, with its exit code's class.
pub(crate) fn detach(words: &[OsString], log: &Path) -> Outcome<serde_json::Value> {
    let program =
        std::env::current_exe().map_err(|e| Failure::failed(format!("cannot find this program: {e}")))?;
    let log_file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .map_err(|e| Failure::failed(format!("cannot open the log {}: {e}", log.display())))?;
    let log_start = log_file.metadata().map_or(0, |m| m.len());
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
    // SAFETY: setsid is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    let mut child =
        command.spawn().map_err(|e| Failure::failed(format!("cannot start the background process: {e}")))?;
    let stdout = child.stdout.take().expect("piped above");
    let mut line = String::new();
    let read = BufReader::new(stdout).read_line(&mut line);
    if read.is_ok_and(|n| n > 0) {
        return serde_json::from_str(&line)
            .map_err(|e| Failure::failed(format!("a wrong announcement: {e}")));
    }
    let status =
        child.wait().map_err(|e| Failure::failed(format!("cannot wait for the background process: {e}")))?;
    let said = std::fs::read(log).unwrap_or_default();
    let said = String::from_utf8_lossy(said.get(log_start as usize..).unwrap_or_default()).into_owned();
    let message = said.trim().trim_start_matches("chiton: ").to_string();
    let class = match status.code() {
        Some(3) => Class::Busy,
        Some(4) => Class::Absent,
        _ => Class::Failed,
    };
    Err(Failure::new(
        class,
        if message.is_empty() { format!("the background process ended: {status}") } else { message },
    ))
}
