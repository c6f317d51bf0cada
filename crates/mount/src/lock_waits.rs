//! Waiting for locks, away from the dispatch threads.
//!
//! ```text
//!   SETLKW ─ try ─ granted ────────────────────────▶ reply
//!              └─ thread: client.setlk(wait) ──────▶ reply
//!                              ▲ cancel
//!                 watcher ─────┘ every 100 ms: has the caller a signal, is it gone (EINTR)?
//!                                is only its own process in the way, still (EDEADLK)?
//! ```
//!
//! Invariants:
//! - A dispatch thread never waits for a lock.
//! - At most [`WAITS_MAX`] threads wait; the next caller gets ENOLCK.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chiton_client::{CancelToken, Client};
use chiton_proto::{Lock, LockKind};
use chiton_types::{Ino, Refusal};
use fuser::ReplyEmpty;
use parking_lot::{Condvar, Mutex};

use crate::attr::errno;
use crate::proc_status::{self, Waiting};
use crate::range_lock;
use crate::router::Router;

const WAITS_MAX: usize = 1024;
/// How often the callers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So many looks must find only the caller's own process in the way. Not one: the kernel tells of a closed file, which
/// drops its flock, only after close(2) has returned.
const OWN_WAY_LOOKS: u32 = 5;

/// The waits of one mount.
pub(crate) struct LockWaits {
    router: Arc<Router>,
    /// Who may hold a lock on which file.
    owners: Mutex<BTreeSet<(Ino, u64)>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waits: BTreeMap<u64, Wait>,
    next: u64,
    has_watcher: bool,
    closed: bool,
}

struct Wait {
    lock: Lock,
    /// The caller's.
    thread: u32,
    token: CancelToken,
    /// Whom it waits for.
    client: Arc<Client>,
    /// Looks in a row that found only the caller's own process in the way.
    own_way_looks: u32,
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

    /// Sets, changes or drops a lock for the caller `thread` and answers, now or when it is granted.
    pub(crate) fn set(self: &Arc<LockWaits>, lock: Lock, wait: bool, thread: u32, reply: ReplyEmpty) {
        match self.set_noting(lock, None) {
            Ok(()) => reply.ok(),
            Err(Refusal::WouldBlock) if wait => self.wait(lock, thread, reply),
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    /// What is in the way of a lock.
    pub(crate) fn held(&self, lock: Lock) -> Result<Option<Lock>, Refusal> {
        self.router.client_of(lock.ino).getlk(lock)
    }

    /// Whether the caller's own process holds what is in the way, under another owner (flock(2) and fcntl(2) locks
    /// have different ones), wherever something is in the way. Waiting for that would not end.
    fn is_own_way(&self, lock: &Lock) -> bool {
        let (mut rest, mut found) = (*lock, false);
        while let Ok(Some(held)) = self.held(rest) {
            // Process ids are those of one machine: the owner says whether it is of this mount.
            let is_ours = self.owners.lock().contains(&(held.ino, held.owner));
            if held.pid != lock.pid || !is_ours {
                return false;
            }
            found = true;
            if held.end >= lock.end || held.end < rest.start {
                break;
            }
            rest.start = held.end + 1;
        }
        found
    }

    fn wait(self: &Arc<LockWaits>, lock: Lock, thread: u32, reply: ReplyEmpty) {
        let token = CancelToken::new();
        let mut state = self.state.lock();
        if state.waits.len() >= WAITS_MAX || state.closed {
            drop(state);
            return reply.error(errno(Refusal::NoLocks));
        }
        let id = state.next;
        state.next += 1;
        let client = self.router.client_of(lock.ino);
        state.waits.insert(id, Wait { lock, thread, token: token.clone(), client, own_way_looks: 0 });
        if !state.has_watcher {
            let weak = Arc::downgrade(self);
            let spawned =
                std::thread::Builder::new().name("chiton-lockwatch".to_owned()).spawn(move || watch(&weak));
            state.has_watcher = spawned.is_ok();
        }
        drop(state);
        let waits = self.clone();
        let spawned = std::thread::Builder::new().name("chiton-lockwait".to_owned()).spawn(move || {
            let result = waits.set_noting(lock, Some(&token));
            let wait = waits.state.lock().waits.remove(&id);
            match result {
                Ok(()) => reply.ok(),
                Err(Refusal::Interrupted) if wait.is_some_and(|wait| wait.own_way_looks >= OWN_WAY_LOOKS) => {
                    reply.error(errno(Refusal::Deadlock));
                }
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
        if spawned.is_err() {
            // The reply went down with the closure and answered EIO.
            self.state.lock().waits.remove(&id);
        }
    }

    /// Drops what `owner` holds on the file, if it holds anything: no message otherwise.
    pub(crate) fn drop_owner(&self, ino: Ino, owner: u64) {
        if self.owners.lock().contains(&(ino, owner)) {
            // The owner is gone; if the server cannot be told, it drops the lock with the session.
            let _ = self.set_noting(range_lock::all_of(ino, owner), None);
        }
    }

    fn set_noting(&self, lock: Lock, wait: Option<&CancelToken>) -> Result<(), Refusal> {
        let key = (lock.ino, lock.owner);
        if lock.kind != LockKind::Unlock {
            // Before it is granted: who is told so may close the file at once.
            self.owners.lock().insert(key);
        }
        let result = self.router.client_of(lock.ino).setlk(lock, wait);
        if lock == range_lock::all_of(lock.ino, lock.owner) && result.is_ok() {
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

    /// Cancels the waits of callers that have a signal to act on, or that wait for themselves. `false`: nobody waits
    /// any more.
    fn look(&self) -> bool {
        let waits: Vec<(u64, Lock, u32, CancelToken, Arc<Client>)> = {
            let mut state = self.state.lock();
            if state.waits.is_empty() || state.closed {
                state.has_watcher = false;
                return false;
            }
            self.changed.wait_for(&mut state, LOOK_EVERY);
            let all = state.waits.iter();
            all.map(|(id, wait)| (*id, wait.lock, wait.thread, wait.token.clone(), wait.client.clone()))
                .collect()
        };
        for (id, lock, thread, token, client) in waits {
            let is_over = matches!(proc_status::look(thread), Waiting::Signalled | Waiting::Gone);
            if is_over || self.waits_for_itself(id, &lock) {
                client.cancel(&token);
            }
        }
        true
    }

    fn waits_for_itself(&self, id: u64, lock: &Lock) -> bool {
        let is_own_way = self.is_own_way(lock);
        let mut state = self.state.lock();
        state.waits.get_mut(&id).is_some_and(|wait| {
            wait.own_way_looks = if is_own_way { wait.own_way_looks + 1 } else { 0 };
            wait.own_way_looks >= OWN_WAY_LOOKS
        })
    }
}

fn watch(waits: &Weak<LockWaits>) {
    while waits.upgrade().is_some_and(|waits| waits.look()) {}
}
