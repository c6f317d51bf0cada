//! Control requests to a running mount about its decoupled subtrees, through a Unix socket.
//!
//! ```text
//!   chiton merge DIR ─ getfattr chiton.control DIR ─▶ socket ─ request ─▶ Control ─▶ Realms
//!                     ◀─ progress, progress, …, done or failed ──────────────┘
//! ```
//!
//! Lines of JSON both ways ([`ControlRequest`], [`ControlReply`]), one request a connection.
//!
//! Invariants:
//! - The kernel reports the peer's user (SO_PEERCRED). Only root, the user of the mount, and the owner of the
//!   subtree may send requests.
//! - A request never takes a dispatch thread.

mod client;
mod execute;
mod message;
mod sockets;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub use self::client::{AwaitedEnd, ask_control, await_end};
pub use self::message::{ControlReply, ControlRequest, GiveBack, Progress};
pub use self::sockets::control_name;
use crate::end_notice::EndNotice;
use crate::router::Router;

/// Longest request: a policy and a little more.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of concurrent requests.
const REQUESTS_MAX: usize = 64;
/// How long a connection may stay without a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// The socket of one mount. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens at `path`, whose directory only this user may change. `for_others`: users with access to the mount
    /// may send requests, too. `taken_away` is called when the branch that the whole mount shows has ended, after
    /// the client that ended it got its answer.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub(crate) fn serve(
        path: &Path,
        router: &Arc<Router>,
        for_others: bool,
        end_notice: &EndNotice,
        taken_away: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Control> {
        let listener = sockets::bind(path)?;
        let mode = if for_others { 0o666 } else { 0o600 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        let (is_closed, under_way) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (closed, router) = (is_closed.clone(), Arc::downgrade(router));
        let taken_away = Arc::new(taken_away);
        let end_notice = end_notice.clone();
        let body = move || {
            for stream in listener.incoming() {
                if closed.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(stream), Some(router)) = (stream, router.upgrade()) else { continue };
                if under_way.fetch_add(1, Ordering::AcqRel) >= REQUESTS_MAX {
                    under_way.fetch_sub(1, Ordering::AcqRel);
                    continue;
                }
                let (ended, taken_away, end_notice) =
                    (under_way.clone(), taken_away.clone(), end_notice.clone());
                let answer = move || {
                    let was_there = router.branch().is_some_and(|branch| !branch.is_over());
                    // The client has gone, so there is no one to answer.
                    let _ = answer(&stream, &router, &end_notice);
                    if was_there && router.branch().is_some_and(|branch| branch.is_over()) {
                        taken_away();
                    }
                    ended.fetch_sub(1, Ordering::AcqRel);
                };
                let spawned = std::thread::Builder::new().name("chiton-control".to_owned()).spawn(answer);
                if spawned.is_err() {
                    under_way.fetch_sub(1, Ordering::AcqRel);
                }
            }
        };
        let thread = std::thread::Builder::new().name("chiton-listen".to_owned()).spawn(body)?;
        Ok(Control { path: path.to_owned(), is_closed, thread: Some(thread) })
    }

    /// The path that `chiton.control` returns.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        // Wakes the thread. If it cannot be reached, it ends with the process.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // It does not panic.
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer(stream: &UnixStream, router: &Router, end_notice: &EndNotice) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let reply = match serde_json::from_str::<ControlRequest>(&line) {
        Ok(ControlRequest::AwaitEnd) => {
            if end_notice.keep(stream.try_clone()?)? {
                return Ok(());
            }
            let message = "too many commands wait for the end of this mount".to_owned();
            ControlReply::Failed { message, exit_code: 1 }
        }
        Ok(request) => {
            let report = |word: ControlReply| {
                // The client may have gone; its request is carried out all the same.
                let _ = send(stream, &word);
            };
            execute::carry_out(router, &peer, &request, &report)
        }
        Err(error) => ControlReply::Failed { message: format!("not a request: {error}"), exit_code: 2 },
    };
    send(stream, &reply)
}

pub(crate) fn send(mut stream: &UnixStream, reply: &ControlReply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)
}
