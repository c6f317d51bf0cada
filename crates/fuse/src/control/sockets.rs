//! Where the sockets of mounts are: in one directory, each with the number of its process in its name. A mount that is
//! killed leaves its socket; the next one that comes removes it.
//!
//! Invariants:
//! - A socket is removed only if no process listens there, and none has its number. (A process of another namespace
//!   listens with a number that means nothing here; the number of a process that exited may be reused.)
//! - Readers of the directory and creators of sockets hold its lock, so no socket appears between a look and a
//!   removal.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;

use crate::proc_status;

const BEFORE: &str = "mount-";
const AFTER: &str = ".socket";

/// The name of the socket of the next mount in this process, which may have several.
pub fn control_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let process = std::process::id();
    match NEXT.fetch_add(1, Ordering::Relaxed) {
        0 => format!("{BEFORE}{process}{AFTER}"),
        n => format!("{BEFORE}{process}.{n}{AFTER}"),
    }
}

/// Makes the socket `path`, and removes those beside it whose mounts are gone.
///
/// # Errors
/// The socket cannot be created.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let held = File::open(dir)?;
    rustix::fs::flock(&held, FlockOperation::LockExclusive)?;
    // Entries that cannot be read stay.
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        let process = entry.file_name().to_str().and_then(process_of);
        if is_socket && process.is_some_and(is_gone) && is_refused(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    // A socket with this process's number belongs to a dead mount.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

fn process_of(name: &str) -> Option<Pid> {
    let numbers = name.strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
    let (process, mount) = numbers.split_once('.').unwrap_or((numbers, "0"));
    let _: u32 = mount.parse().ok()?;
    Pid::from_raw(process.parse().ok()?)
}

/// Also a zombie, which in a container may stay for ever.
fn is_gone(process: Pid) -> bool {
    let status = proc_status::read(process.as_raw_pid() as u32);
    let has_ended = |status: String| {
        proc_status::field(&status, "State").is_some_and(|state| state.starts_with(['Z', 'X']))
    };
    rustix::process::test_kill_process(process) == Err(Errno::SRCH) || status.is_some_and(has_ended)
}

/// Whether no process listens; does not wait for one that does.
fn is_refused(path: &Path) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (Ok(socket), Ok(address)) = (socket, SocketAddrUnix::new(path)) else { return false };
    rustix::net::connect(&socket, &address) == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The number of a process that is gone.
    fn gone() -> u32 {
        let mut child = Command::new("true").spawn().expect("started");
        child.wait().expect("it ends");
        child.id()
    }

    #[test]
    fn only_sockets_of_killed_mounts_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let socket_of = |process: u32| at(&format!("{BEFORE}{process}{AFTER}"));
        let left = |path: &Path| drop(UnixListener::bind(path).expect("bound"));

        let (killed, elsewhere, file) = (gone(), gone(), gone());
        left(&socket_of(killed));
        left(&at(&format!("{BEFORE}{killed}.3{AFTER}")));
        left(&at(&format!("{BEFORE}{killed}.x{AFTER}")));
        let mut unasked = Command::new("true").spawn().expect("started");
        left(&socket_of(unasked.id()));
        while !is_gone(Pid::from_child(&unasked)) {
            std::thread::yield_now();
        }
        let _listens = UnixListener::bind(socket_of(elsewhere)).expect("bound");
        left(&socket_of(1));
        std::fs::write(socket_of(file), "").expect("written");
        left(&at("mount-of-somebody.socket"));
        left(&at(&format!("{killed}.socket")));
        let own = at(&control_name());
        left(&own);

        let _own = bind(&own).expect("bound");
        unasked.wait().expect("it has ended");
        assert!(!is_refused(&own), "nobody listens at the new one");
        let mut stay = vec![
            socket_of(elsewhere),
            socket_of(1),
            socket_of(file),
            at("mount-of-somebody.socket"),
            at(&format!("{BEFORE}{killed}.x{AFTER}")),
            at(&format!("{killed}.socket")),
            own,
        ];
        stay.sort();
        let entries = std::fs::read_dir(dir.path()).expect("listed");
        let mut found: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        found.sort();
        assert_eq!(found, stay);
    }
}
