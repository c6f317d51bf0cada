//! Waiting for locks, away from the dispatch threads.
//!
//! ```text
//!   SETLKW ─ try ─ granted ────────────────────────▶ reply
//!              └─ thread: client.setlk(wait) ──────▶ reply
//!                              ▲ cancel
//!                 watcher ─────┘ every 100 ms: has the caller a signal, is it gone (EINTR)?
//! ```
//!
//! Invariants:
//! - A dispatch thread never waits for a lock.
//! - At most [`WAITS_MAX`] threads wait; the next caller gets ENOLCK.
//! - The kernel names the owner of a lock by the address of an object, which the next owner may have while the kernel's word that the
//!   former one is gone is still under way. Locks of flock(2) belong to their open file instead, whose number is not used again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chiton_client::{CancelToken, Client};
use chiton_fuse_session::{FileHandle, ReplyEmpty};
use chiton_types::{Ino, Refusal};
use chiton_wire::{Lock, LockKind};
use parking_lot::{Condvar, Mutex};

use crate::attr::errno;
use crate::proc_status::{self, Waiting};
use crate::range_lock;
use crate::router::Router;

const WAITS_MAX: usize = 1024;
/// How often the callers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) struct LockWaits {
    router: Arc<Router>,
    /// Owners that may hold locks.
    owners: Mutex<BTreeMap<Owner, Through>>,
    state: Mutex<State>,
    changed: Condvar,
}

/// An owner of locks of one sort on one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    ino: Ino,
    flock: bool,
    owner: u64,
}

/// The open files through which an owner requested its locks.
type Through = BTreeSet<u64>;

#[derive(Default)]
struct State {
    waits: BTreeMap<u64, Wait>,
    next: u64,
    has_watcher: bool,
    closed: bool,
}

struct Wait {
    /// The caller's thread.
    thread: u32,
    token: CancelToken,
    /// The client through which the lock was requested.
    client: Arc<Client>,
}

impl LockWaits {
    pub(crate) fn new(router: Arc<Router>) -> Arc<LockWaits> {
        Arc::new(LockWaits {
            router,
            owners: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Sets, changes or drops a lock for the thread `thread`, which requested it through the open file `fh`.
    /// Replies at once, or when the lock is granted.
    pub(crate) fn set(
        self: &Arc<LockWaits>,
        lock: Lock,
        fh: FileHandle,
        wait: bool,
        thread: u32,
        reply: ReplyEmpty,
    ) {
        match self.set_noting(lock, Some(fh), None) {
            Ok(()) => reply.ok(),
            Err(Refusal::WouldBlock) if wait => self.wait(lock, fh, thread, reply),
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    /// A lock that conflicts with this one.
    pub(crate) fn held(&self, lock: Lock) -> Result<Option<Lock>, Refusal> {
        self.router.client_of(lock.ino).getlk(lock)
    }

    fn wait(self: &Arc<LockWaits>, lock: Lock, fh: FileHandle, thread: u32, reply: ReplyEmpty) {
        let token = CancelToken::new();
        let mut state = self.state.lock();
        if state.waits.len() >= WAITS_MAX || state.closed {
            drop(state);
            return reply.error(errno(Refusal::NoLocks));
        }
        let id = state.next;
        state.next += 1;
        let client = self.router.client_of(lock.ino);
        state.waits.insert(id, Wait { thread, token: token.clone(), client });
        if !state.has_watcher {
            let weak = Arc::downgrade(self);
            let spawned =
                std::thread::Builder::new().name("chiton-lockwatch".to_owned()).spawn(move || watch(&weak));
            state.has_watcher = spawned.is_ok();
        }
        drop(state);
        let waits = self.clone();
        let spawned = std::thread::Builder::new().name("chiton-lockwait".to_owned()).spawn(move || {
            let result = waits.set_noting(lock, Some(fh), Some(&token));
            waits.state.lock().waits.remove(&id);
            match result {
                Ok(()) => reply.ok(),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
        if spawned.is_err() {
            // The reply went down with the closure and answered EIO.
            self.state.lock().waits.remove(&id);
        }
    }

    /// A descriptor of the file is closed: the ranges of its process go, as fcntl(2) has it.
    pub(crate) fn drop_ranges(&self, ino: Ino, owner: u64) {
        self.drop_owner(Owner { ino, flock: false, owner });
    }

    /// The last descriptor of an open file is closed, so its lock of flock(2) ends, and ranges that belong to the open file
    /// (`F_OFD_SETLK`). The kernel does not name these ranges. Ranges of a process ended earlier, when that process closed its
    /// descriptor.
    pub(crate) fn drop_handle(&self, ino: Ino, fh: FileHandle) {
        let mut gone = vec![Owner { ino, flock: true, owner: fh.0 }];
        {
            let mut owners = self.owners.lock();
            let of_file = |owner| Owner { ino, flock: false, owner };
            for (owner, through) in owners.range_mut(of_file(0)..=of_file(u64::MAX)) {
                // The last one stays noted until the server has dropped the locks.
                if through.contains(&fh.0) && through.len() > 1 {
                    through.remove(&fh.0);
                } else if through.contains(&fh.0) {
                    gone.push(*owner);
                }
            }
        }
        for owner in gone {
            self.drop_owner(owner);
        }
    }

    /// Drops an owner's locks; sends no message if it holds none.
    fn drop_owner(&self, owner: Owner) {
        if self.owners.lock().contains_key(&owner) {
            // The owner is gone. If the server cannot be reached, it drops the lock with the session.
            let _ = self.set_noting(range_lock::all_of(owner.ino, owner.flock, owner.owner), None, None);
        }
    }

    fn set_noting(
        &self,
        lock: Lock,
        through: Option<FileHandle>,
        wait: Option<&CancelToken>,
    ) -> Result<(), Refusal> {
        let key = Owner { ino: lock.ino, flock: lock.flock, owner: lock.owner };
        if let Some(fh) = through.filter(|_| lock.kind != LockKind::Unlock) {
            // Before the grant is reported: the caller may close the file immediately afterwards.
            self.owners.lock().entry(key).or_default().insert(fh.0);
        }
        let result = self.router.client_of(lock.ino).setlk(lock, wait);
        let all = range_lock::all_of(lock.ino, lock.flock, lock.owner);
        if (Lock { pid: 0, ..lock }) == all && result.is_ok() {
            self.owners.lock().remove(&key);
        }
        result
    }

    /// Ends all waits: the mount is going.
    pub(crate) fn close(&self) {
        let waits: Vec<(Arc<Client>, CancelToken)> = {
            let mut state = self.state.lock();
            state.closed = true;
            self.changed.notify_all();
            state.waits.values().map(|wait| (wait.client.clone(), wait.token.clone())).collect()
        };
        for (client, token) in waits {
            client.cancel(&token);
        }
    }

    /// Cancels the waits of callers that have a signal to handle. `false`: no waits remain.
    fn look(&self) -> bool {
        let waits: Vec<(u32, CancelToken, Arc<Client>)> = {
            let mut state = self.state.lock();
            if state.waits.is_empty() || state.closed {
                state.has_watcher = false;
                return false;
            }
            self.changed.wait_for(&mut state, LOOK_EVERY);
            let all = state.waits.values();
            all.map(|wait| (wait.thread, wait.token.clone(), wait.client.clone())).collect()
        };
        for (thread, token, client) in waits {
            if matches!(proc_status::look(thread), Waiting::Signalled | Waiting::Gone) {
                client.cancel(&token);
            }
        }
        true
    }
}

fn watch(waits: &Weak<LockWaits>) {
    while waits.upgrade().is_some_and(|waits| waits.look()) {}
}
