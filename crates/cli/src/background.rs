//! Going to the background: the command runs itself again, detached, and waits for one line.
//!
//! ```text
//!   chiton mount …            ── spawns ──▶  chiton mount --announce …   (own session, stderr to a log file)
//!        shows a bar          ◀── stdout ──  {"replaying": …} while it recovers
//!        waits for a line     ◀── stdout ──  {"pid": …} once mounted, or the end of the process
//! ```

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use chiton_journal::Progress;
use serde_json::json;

use crate::failure::{Class, Failure, Outcome};
use crate::log_file;
use crate::progress::Work;

/// Runs this program again with `words`, detached; returns its announcement.
///
/// # Errors
/// The standard error of a process that failed, with the class of its exit code.
pub(crate) fn detach(words: &[OsString], log: &Path) -> Outcome<serde_json::Value> {
    let program = std::env::current_exe().map_err(|e| {
        Failure::failed(format!(
            "cannot find the file of this program, /proc/self/exe: {e}; mount proc on /proc"
        ))
    })?;
    let log_file = log_file::open(log)?;
    let log_start = log_file.metadata().map_or(0, |m| m.len());
    let mut command = Command::new(program);
    command.envs(crate::identity::file().map(|file| (crate::identity::VARIABLE, file)));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
    // SAFETY: setsid is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    let mut child =
        command.spawn().map_err(|e| Failure::failed(format!("cannot start the background process: {e}")))?;
    let stdout = child.stdout.take().expect("piped above");
    let mut work = None;
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let value: serde_json::Value = serde_json::from_str(&line).map_err(|e| {
            Failure::failed(format!(
                "the background process did not announce the mount ({e}); read the log {}",
                log.display()
            ))
        })?;
        match progress(&value) {
            Some(progress) => {
                work.get_or_insert_with(|| Work::begin("replaying the journal")).report(progress);
            }
            None => return Ok(value),
        }
    }
    drop(work);
    let status =
        child.wait().map_err(|e| Failure::failed(format!("cannot wait for the background process: {e}")))?;
    let said = std::fs::read(log).unwrap_or_default();
    let said = String::from_utf8_lossy(said.get(log_start as usize..).unwrap_or_default()).into_owned();
    let message = said.trim().trim_start_matches("chiton: ").to_string();
    let class = Class::of(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or_default());
    Err(Failure::new(
        class,
        if message.is_empty() {
            format!("the background process ended ({status}) without a message; try again with --foreground")
        } else {
            message
        },
    ))
}

/// The line of JSON about the progress of replaying the journal.
pub(crate) fn replaying(progress: Progress) -> serde_json::Value {
    json!({ "replaying": { "bytes_done": progress.bytes_done, "bytes_total": progress.bytes_total } })
}

fn progress(line: &serde_json::Value) -> Option<Progress> {
    let replaying = line.get("replaying")?;
    let of = |name: &str| replaying.get(name)?.as_u64();
    Some(Progress { bytes_done: of("bytes_done")?, bytes_total: of("bytes_total")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_lines_differ_from_the_announcement() {
        let said = Progress { bytes_done: 3, bytes_total: 5 };
        assert_eq!(progress(&replaying(said)), Some(said));
        assert_eq!(progress(&json!({ "pid": 1 })), None);
    }
}
