//! Checks by `chiton fsck` beside the servers, one after the other, during load and faults. None may report a problem. A check whose
//! server dies, or whose plates move, ends with an error.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Result;
use crate::cluster::Tool;

/// Between two checks: operations over several plates wait while one begins.
const PAUSE: Duration = Duration::from_secs(2);
/// Exit codes of `chiton fsck`.
const CLEAN: i32 = 0;
const FAILED: i32 = 8;

pub(crate) struct Checks {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

/// The results of all checks.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) clean: usize,
    /// Why others had no result: a fault cut them off.
    pub(crate) cut_off: Vec<String>,
    /// Problems that were reported, in words.
    pub(crate) wrong: Vec<String>,
}

impl Checks {
    /// Begins to check the cluster of this monitor.
    pub(crate) fn start(tool: Tool, monitor: &str) -> Checks {
        let is_over = Arc::<AtomicBool>::default();
        let (over, monitor) = (is_over.clone(), monitor.to_owned());
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !over.load(Ordering::SeqCst) {
                if let Err(why) = check(&tool, &monitor, &mut seen) {
                    seen.wrong.push(why);
                }
                std::thread::sleep(PAUSE);
            }
            seen
        });
        Checks { is_over, thread }
    }

    /// Waits for the check under way.
    pub(crate) fn end(self) -> Result<Seen> {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| "the checks panicked".to_owned())
    }
}

fn check(tool: &Tool, monitor: &str, seen: &mut Seen) -> Result<()> {
    let program: PathBuf = tool.program().to_owned();
    let out = tool
        .command_of(&program)
        .args(["fsck", monitor])
        .output()
        .map_err(|e| format!("cannot run {}: {e}", program.display()))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match out.status.code() {
        Some(CLEAN) => seen.clean += 1,
        Some(FAILED) => seen.cut_off.push(said(&out.stderr)),
        code => {
            let lines = format!("{}\n{}", said(&out.stdout), said(&out.stderr));
            seen.wrong.push(format!("chiton fsck ends with {code:?} while the cluster works: {lines}"));
        }
    }
    Ok(())
}
