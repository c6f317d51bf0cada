//! Directories that another client moved while a process of this machine works in them.
//!
//! The kernel follows `..` along its cached names without a request. A working directory that another mount moved
//! would keep its old parent until a process looks it up at its new place. So this module looks it up there:
//!
//! ```text
//!   chdir(2) ─▶ ACCESS ─┐
//!   recall of its lease ┴▶ queue ─▶ thread: is there a lease? is the parent not the one that the kernel knows?
//!                                      └─▶ path of the directory, by names ─▶ lstat(2) of it ─▶ LOOKUP ─▶ the kernel moves it
//! ```
//!
//! Invariants:
//! - No request waits for this: the recall is acknowledged first, since the move happens after that.
//! - No descriptor of the mount is kept, which would keep it from being unmounted.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chiton_client::{Caller, Client, Groups};
use chiton_types::{Ino, Refusal};
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};

/// Pauses between looks at a directory after chdir(2) and after a recall; the move may still wait for other
/// clients. While there is no lease, whose recall would announce a move, looks continue with the last pause.
const LOOKS: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(50), Duration::from_millis(500)];
/// Most directories that wait to be looked at; past it recalls are not followed.
const QUEUE_MAX: usize = 1024;
/// Maximum number of directories on a path.
const DEPTH_MAX: usize = 4096;
const PAGE: u32 = 1000;

/// Directories that processes of this machine may work in.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Directories that processes may work in, with the parents that the kernel knows.
    entered: Mutex<HashMap<Ino, Ino>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Ino>,
    /// How many looks each in the queue has had.
    looks: BTreeMap<Ino, usize>,
    is_closed: bool,
}

impl Moves {
    /// A process may be about to work in a directory, which is in `parent`.
    pub(crate) fn entered(&self, dir: Ino, parent: Ino) {
        self.entered.lock().insert(dir, parent);
        self.queue(dir, 0);
    }

    /// The kernel has forgotten an inode, of any type.
    pub(crate) fn forgotten(&self, ino: Ino) {
        self.entered.lock().remove(&ino);
    }

    /// The lease on an inode of any type is being released: another client is about to change it.
    pub(crate) fn recalled(&self, ino: Ino) {
        if self.entered.lock().contains_key(&ino) {
            self.queue(ino, 0);
        }
    }

    fn queue(&self, ino: Ino, look: usize) {
        let mut state = self.state.lock();
        if state.looks.contains_key(&ino) || state.queue.len() < QUEUE_MAX {
            if state.looks.insert(ino, look).is_none() {
                state.queue.push_back(ino);
            }
            self.changed.notify_all();
        }
    }

    /// Serves until [`Moves::close`]. `dir`: where the file system of `client` is mounted.
    pub(crate) fn run(&self, client: &Client, dir: &Path) {
        while let Some((ino, look)) = self.next() {
            let is_last = look + 1 >= LOOKS.len();
            let again = match self.look(client, dir, ino) {
                Ok(Found::InPlace { is_leased }) => !is_last || !is_leased,
                Ok(Found::Moved) => true,
                // The process may be in chdir(2) still.
                Ok(Found::Unwatched) if !is_last => true,
                Ok(Found::Unwatched) | Err(Refusal::Stale | Refusal::NotConnected) => {
                    self.forgotten(ino);
                    false
                }
                Err(refusal) => {
                    tracing::warn!(
                        "the new path of directory {ino}, which another client moved, cannot be found: {refusal}"
                    );
                    false
                }
            };
            // Unless a recall has begun the looks anew meanwhile.
            if again && !self.state.lock().looks.contains_key(&ino) {
                self.queue(ino, look + 1);
            }
        }
    }

    /// Ends [`Moves::run`], which then starts no further move.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// The next to be looked at, after its pause, and how many looks it has had.
    fn next(&self) -> Option<(Ino, usize)> {
        let mut state = self.state.lock();
        loop {
            let Some(&ino) = state.queue.front().filter(|_| !state.is_closed) else {
                if state.is_closed {
                    return None;
                }
                self.changed.wait(&mut state);
                continue;
            };
            // Those behind it wait for this pause, too: none is longer than half a second.
            let pause = LOOKS[state.looks[&ino].min(LOOKS.len() - 1)];
            if !self.changed.wait_for(&mut state, pause).timed_out() {
                // Closed, or something else is in a hurry: the pause begins anew, as the order is.
                continue;
            }
            state.queue.pop_front();
            let look = state.looks.remove(&ino).expect("all in the queue have a count");
            return Some((ino, look));
        }
    }

    fn look(&self, client: &Client, dir: &Path, ino: Ino) -> Result<Found, Refusal> {
        let known = self.entered.lock().get(&ino).copied();
        let Some(known) = known.filter(|_| is_worked_in(dir)) else { return Ok(Found::Unwatched) };
        let here = client.getattr(ino, None)?;
        let parent = here.attr.parent;
        if parent == known {
            return Ok(Found::InPlace { is_leased: !here.attr_ttl.is_zero() });
        }
        let path = path_of(client, ino)?;
        // The kernel looks up each name of the path, and then has the directory at its new place. If it moves
        // again, there is another recall.
        let _ = fs::symlink_metadata(dir.join(path));
        self.entered.lock().insert(ino, parent);
        Ok(Found::Moved)
    }
}

/// The result of a look.
enum Found {
    /// It was moved, and the kernel knows now.
    Moved,
    /// It is where it was; a move will be noticed if there is a lease.
    InPlace { is_leased: bool },
    /// No process works in the mount, or the kernel has forgotten the directory.
    Unwatched,
}

/// Whether a process has its working directory below `dir`, as far as `/proc` shows.
fn is_worked_in(dir: &Path) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let numbers = processes.flatten().filter(|entry| entry.file_name().as_bytes()[0].is_ascii_digit());
    // The link is text: reading it asks no file system.
    let mut places = numbers.filter_map(|entry| fs::read_link(entry.path().join("cwd")).ok());
    places.any(|place| place != dir && place.starts_with(dir))
}

/// The path of a directory from the root on.
fn path_of(client: &Client, dir: Ino) -> Result<PathBuf, Refusal> {
    let groups: Arc<[u32]> = Arc::new([]);
    let root = Caller { uid: 0, gid: 0, groups: Groups::Known(&groups) };
    let (mut names, mut at) = (Vec::new(), dir);
    while at != client.root() {
        if names.len() == DEPTH_MAX {
            return Err(Refusal::NameTooLong);
        }
        let parent = client.getattr(at, None)?.attr.parent;
        // Of a part of a directory these are the directory's.
        let parent = client.getattr(parent, None)?.attr.ino;
        names.push(name_in(client, &root, parent, at)?);
        at = parent;
    }
    Ok(names.iter().rev().map(|name| OsStr::from_bytes(name)).collect())
}

/// The name of a directory in its parent.
fn name_in(client: &Client, caller: &Caller<'_>, parent: Ino, dir: Ino) -> Result<Vec<u8>, Refusal> {
    let mut cookie = 0;
    loop {
        let (entries, is_end) = client.readdir(caller, parent, cookie, PAGE, false)?;
        if let Some(found) = entries.iter().find(|entry| entry.ino == dir) {
            return Ok(found.name.as_bytes().to_vec());
        }
        match entries.last() {
            Some(last) if !is_end => cookie = last.cookie,
            _ => return Err(Refusal::NotFound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_that_were_entered_are_looked_at() {
        let moves = Moves::default();
        moves.entered(Ino(5), Ino(1));
        assert_eq!(moves.next(), Some((Ino(5), 0)));
        moves.entered(Ino(6), Ino(1));
        assert_eq!(moves.next(), Some((Ino(6), 0)));
        moves.forgotten(Ino(6));
        for ino in [6, 7, 5, 5] {
            moves.recalled(Ino(ino));
        }
        assert_eq!(moves.next(), Some((Ino(5), 0)));
        moves.queue(Ino(5), 2);
        moves.recalled(Ino(5));
        assert_eq!(moves.next(), Some((Ino(5), 0)), "a recall begins the looks anew");
        moves.close();
        assert_eq!(moves.next(), None);
    }

    #[test]
    fn a_process_in_a_directory_is_seen() {
        let here = std::env::current_dir().expect("a working directory");
        assert!(is_worked_in(here.parent().expect("not the root")));
        assert!(!is_worked_in(Path::new("/nowhere/at/all")));
    }
}
