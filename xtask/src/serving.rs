//! A server process for mounts that connect to it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::run::{Result, captured};
use crate::stopwatch::Stopwatch;

/// `chiton serve` on a fresh file system, ended when dropped.
pub(crate) struct Serving {
    process: Child,
    /// The socket on which it listens.
    pub(crate) socket: PathBuf,
}

impl Serving {
    /// Formats `data` and serves it, with `more` arguments.
    pub(crate) fn start(programs: &Path, more: &[&str], data: &Path) -> Result<Serving> {
        Serving::of_plates(programs, 1, more, data)
    }

    /// The same of a file system with several plates.
    pub(crate) fn of_plates(programs: &Path, plates: u16, more: &[&str], data: &Path) -> Result<Serving> {
        let chiton = programs.join("chiton");
        captured(Command::new(&chiton).args(["format", "--plates", &plates.to_string()]).arg(data))?;
        let mut command = Command::new(&chiton);
        command.arg("serve").arg("--data").arg(data).args(more).stdin(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(|e| format!("cannot start chiton serve: {e}"))?;
        let serving = Serving { process, socket: data.join("socket") };
        let clock = Stopwatch::start();
        while std::os::unix::net::UnixStream::connect(&serving.socket).is_err() {
            if clock.seconds() > 30.0 {
                return Err("chiton serve does not listen".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(serving)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
