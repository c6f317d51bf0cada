//! How a mount ends, for the commands that wait for its end.
//!
//! ```text
//!   chiton umount ─ AwaitEnd ─▶ control socket ─▶ EndNotice      (acknowledged, and the connection is kept)
//!   chiton umount ─ umount(2) ─▶ kernel ─▶ the mount pushes, commits, ends its server ─▶ Done or Failed
//! ```
//!
//! Invariants:
//! - Each connection gets one last word, after everything that the mount could make durable is. A connection that ends
//!   without one means that the process died.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::control::{ControlReply, send};

/// Maximum number of waiting connections.
const WAITING_MAX: usize = 64;
/// Exit code of a command after a failure.
const FAILED: u8 = 1;

/// The failures at the end of a mount, and the connections that wait for its result.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndNotice(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<UnixStream>,
    undone: Vec<String>,
}

impl EndNotice {
    /// Acknowledges a connection, and keeps it until the end of the mount; false if too many wait.
    ///
    /// # Errors
    /// The command is gone.
    pub(crate) fn keep(&self, stream: UnixStream) -> io::Result<bool> {
        let mut state = self.0.lock();
        let has_room = state.waiting.len() < WAITING_MAX;
        if has_room {
            // Under the lock: the command unmounts as soon as it reads this, and the mount may then end at once.
            send(&stream, &ControlReply::Text(String::new()))?;
            state.waiting.push(stream);
        }
        Ok(has_room)
    }

    /// Records a failure at the end of the mount.
    pub(crate) fn note(&self, undone: String) {
        self.0.lock().undone.push(undone);
    }

    /// Sends the result to all connections, and returns the recorded failures.
    pub(crate) fn send_result(&self) -> Vec<String> {
        let State { waiting, undone } = std::mem::take(&mut *self.0.lock());
        let word = match undone.is_empty() {
            true => ControlReply::Done { report: Value::Null, exit_code: 0 },
            false => ControlReply::Failed { message: undone.join("\n"), exit_code: FAILED },
        };
        for stream in waiting {
            // A command that is gone misses it.
            let _ = send(&stream, &word);
        }
        undone
    }
}
