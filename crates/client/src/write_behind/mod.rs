//! Write-behind: operations that the client acknowledges before the server knows of them, in directories whose names it holds
//! exclusively.
//!
//! ```text
//!   create ─ create ─ LeaseNames ─▶ held ── create ✓ write ✓ create ✓ … (pending; the sender sends them)
//!                                    │
//!        recall, numbers used up, … ──┴▶ not held; asked for again after a while
//!
//!   held.rs     directories, files made in them, inode numbers, the server's clock
//!   known.rs    what the client knows, as the server's `plan` reads it
//!   decide.rs   acknowledge, or ask the server
//!   queue.rs    pending operations until the server has answered them
//!   behind.rs   which of them a call must wait for
//!   sender.rs   the thread that sends them
//!   several.rs  one write-behind for each plate
//! ```
//!
//! Invariants:
//! - The client acknowledges an operation only if the server could not refuse it: see [`decide`].
//! - An operation is queued under the lock that a recall takes before it waits for pending operations: none comes after.

mod behind;
mod decide;
mod held;
mod known;
mod queue;
mod sender;
mod several;

pub(crate) use behind::Behind;
pub(crate) use decide::dir_of;
pub(crate) use queue::{Limits, PendingQueue};
pub(crate) use several::{Pauses, WriteBehinds};

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Body, NameUse, Op, Outcome, Role, Rows};
use chiton_namespace::{ContentIn, Fault, InodeFacts, permission};
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread::JoinHandle;
use chiton_types::{Attr, Cred, Ino, Time};
use chiton_wire::{Answer, Call};

use crate::cache::Cache;
use crate::client::Client;
use crate::connected::Link;
use crate::core::Core;
use crate::service::{Caller, Service};
use decide::Attempt;
use held::Held;
use known::Known;

/// Write-behind of one session: held names, granted numbers, pending operations and the thread that sends them. The link and the
/// client's core share it.
pub(crate) struct WriteBehind {
    is_on: bool,
    held: Mutex<Held>,
    pub(crate) queue: PendingQueue,
    sender: Mutex<Option<JoinHandle>>,
}

/// A call is under way beside which nothing is acknowledged by write-behind.
pub(crate) struct Pause(Arc<WriteBehind>);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.held.lock().pauses -= 1;
    }
}

impl WriteBehind {
    /// The client asks for the names of a directory after it has changed `after` of them one by one; `None`: never.
    pub(crate) fn new(after: Option<u32>, limits: Limits) -> WriteBehind {
        WriteBehind {
            is_on: after.is_some(),
            held: Mutex::new(Held::new(after.unwrap_or(u32::MAX))),
            queue: PendingQueue::new(limits),
            sender: Mutex::default(),
        }
    }

    /// Of a client that asks the server for each operation.
    pub(crate) fn off() -> WriteBehind {
        WriteBehind::new(None, Limits::new(0))
    }

    /// Whether operations may be acknowledged before the server knows of them.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Starts the sender, over a link that is up.
    pub(crate) fn start(&self, link: &Arc<Link>) {
        if self.is_on {
            self.queue.has_sender();
            self.queue.set_up(true);
            *self.sender.lock() = Some(sender::spawn(link));
        }
    }

    /// Ends the sender, and waits for it. Operations that are still pending are not sent.
    pub(crate) fn stop(&self) {
        self.queue.stop();
        if let Some(sender) = self.sender.lock().take() {
            drop(sender.join());
        }
    }

    /// Returns when the server has answered all pending operations on names in a directory, or on an inode (`None`: all), and leases
    /// that turned out weaker are given up; or their session is over.
    pub(crate) fn flush(&self, dir: Option<Ino>) {
        if self.is_on {
            self.queue.wait_answered(dir.map_or(Behind::All, Behind::Inode), true);
        }
    }

    /// The server changed a name of a directory, because this client asked.
    pub(crate) fn asked_change(&self, dir: Ino) {
        self.held.lock().count_change(dir);
    }

    /// The server has changed something at this time: by our clock it may be earlier, and acknowledged operations come later.
    pub(crate) fn seen(&self, time: Time) {
        self.held.lock().clock.seen(time);
    }

    /// The server gave a directory other attributes, because this client asked.
    pub(crate) fn dir_changed(&self, attr: &Attr) {
        let mut held = self.held.lock();
        // Of two changes under way the one whose answer comes last need not be the last.
        if held.pauses > 1 {
            held.release(attr.ino);
        }
        if let Some(dir) = held.any_dir(attr.ino) {
            let nlink = dir.facts.nlink;
            dir.facts = InodeFacts { nlink, ..InodeFacts::new(attr, ContentIn::Nothing) };
        }
    }

    /// Whether the caller may search a directory, if its names are held: its attributes change with each name.
    pub(crate) fn may_search(&self, cache: &Cache, dir: Ino, cred: &Cred) -> Option<bool> {
        let facts = self.held.lock().any_dir(dir)?.facts;
        match permission::may_search(&Known::one(cache, facts), cred, &facts) {
            Ok(()) => Some(true),
            Err(Fault::Refused(_)) => Some(false),
            Err(Fault::NeedGroups | Fault::Missing(_) | Fault::Elsewhere(_) | Fault::Realm(_)) => None,
        }
    }

    /// Whether a file was made here, and no client can have given it extended attributes.
    pub(crate) fn has_no_xattrs(&self, ino: Ino) -> bool {
        self.held.lock().made_here(ino).is_some()
    }

    /// The server made a directory in another, because this client asked.
    pub(crate) fn made_subdirectory(&self, parent: Ino) {
        if let Some(dir) = self.held.lock().any_dir(parent) {
            dir.facts.nlink += 1;
        }
    }

    /// A lease ends: on the names of a directory, or on a file. Then `forget` drops what is cached under it. True if those names
    /// were held.
    pub(crate) fn release(&self, ino: Ino, now: Duration, forget: impl FnOnce()) -> bool {
        let mut held = self.held.lock();
        let was_held = held.release(ino);
        if was_held {
            held.rest(ino, now);
        }
        held.forget_file(ino);
        forget();
        was_held
    }

    /// The client is about to send a call. If the call may change the facts on which write-behind rests (permissions
    /// of a directory, its existence, the inodes of names), nothing is acknowledged until the answer is known here.
    pub(crate) fn pause_for(self: &Arc<Self>, call: &Call) -> Option<Pause> {
        let ops = match call {
            Call::Op { op, .. } => std::slice::from_ref(op),
            Call::Batch { ops, .. } => ops,
            Call::Realm(_) => {
                self.held.lock().pauses += 1;
                return Some(Pause(self.clone()));
            }
            _ => return None,
        };
        let pauses = ops.iter().any(disturbs);
        if !pauses && !ops.iter().any(|op| maps(op).is_some()) {
            return None;
        }
        let mut held = self.held.lock();
        ops.iter().filter_map(maps).for_each(|ino| held.mapped(ino));
        if !pauses {
            return None;
        }
        held.pauses += 1;
        // A file that may get a name elsewhere, or other access lists, may be seen by other clients.
        if let Call::Op { op, .. } = call {
            let footprint = op.footprint();
            let gets_name = footprint.names().any(|name| name.how == NameUse::Given);
            let seen = footprint.inodes().iter().filter(|touch| touch.role == Role::Subject);
            seen.filter(|touch| gets_name || touch.writes.has_any(Rows::XATTRS))
                .for_each(|touch| held.forget_file(touch.ino));
        }
        if matches!(call, Call::Op { op: Op::Rename { .. }, .. } | Call::Batch { .. }) {
            held.forget_files();
        }
        Some(Pause(self.clone()))
    }

    /// All leases are void, and the numbers with them.
    pub(crate) fn clear(&self) {
        self.held.lock().clear();
    }

    /// The names of a directory are leased. `holds` says whether that is still so.
    fn granted(
        &self,
        attr: &Attr,
        (first, end): (Ino, Ino),
        (shown, at): (Time, Duration),
        holds: impl FnOnce() -> bool,
    ) {
        let mut held = self.held.lock();
        if !holds() {
            return;
        }
        held.clock.set(shown, at);
        held.numbers.grant(first, end);
        held.hold(attr);
    }
}

/// Whether an operation may change the permissions or the existence of a directory whose names are held, or the inodes of names.
fn disturbs(op: &Op) -> bool {
    // An operation that is not known to leave them alone may change them.
    !matches!(op, Op::Make { .. } | Op::Write { .. })
}

/// The file whose content is in blocks after an operation.
fn maps(op: &Op) -> Option<Ino> {
    let (Op::Write { ino, body: Body::Extents(_), .. } | Op::Clone { to: ino, .. }) = op else { return None };
    Some(*ino)
}

impl Core {
    /// An attempt to acknowledge something about an inode, or about names in it, if the session allows it now.
    fn attempt<'a>(&'a self, service: &'a dyn Service, cred: &'a Cred, ino: Ino) -> Option<Attempt<'a>> {
        if !self.write_behind.is_on() {
            return None;
        }
        let now = self.world.monotonic();
        let needs_groups = Cell::new(false);
        let write_behind = self.write_behind.of(ino);
        let attempt = Attempt { core: self, write_behind, service, cred, now, needs_groups };
        (service.valid_until(ino) > now).then_some(attempt)
    }

    /// Writes all of a small file by write-behind: its attributes then, if that is possible. `known`: its known attributes, under
    /// an exclusive lease.
    pub(crate) fn write_locally(
        &self,
        service: &dyn Service,
        cred: &Cred,
        op: &Op,
        known: &Attr,
    ) -> Option<Attr> {
        self.attempt(service, cred, known.ino)?.write(op, known)
    }
}

impl Client {
    /// Carries out an operation by write-behind. `None`: the server is to be asked.
    pub(crate) fn operate_locally(&self, caller: &Caller<'_>, op: &Op, open: bool) -> Option<Outcome> {
        let dir = dir_of(op)?;
        let cred = caller.cred();
        let attempt = self.core.attempt(&*self.service, &cred, dir)?;
        self.lease_names(caller, dir, attempt.now);
        self.run(caller, &attempt, dir, |attempt| attempt.operate(op, open))
    }

    /// Runs an attempt; once more with groups and capabilities if they decide.
    fn run<R>(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        ino: Ino,
        run: impl Fn(&Attempt<'_>) -> Option<R>,
    ) -> Option<R> {
        let done = run(attempt);
        if done.is_some() || !attempt.needs_groups.get() {
            return done;
        }
        run(&self.core.attempt(&*self.service, &caller.full_cred(), ino)?)
    }

    /// The same for a change of attributes, but not of the size: the attributes then. Earlier writes are sent, or
    /// pending.
    pub(crate) fn set_attr_locally(&self, caller: &Caller<'_>, op: &Op, ino: Ino) -> Option<Attr> {
        let cred = caller.cred();
        let attempt = self.core.attempt(&*self.service, &cred, ino)?;
        let mut known = self.core.cache.exclusive_attr(ino)?;
        self.files.overlay(&mut known);
        self.run(caller, &attempt, ino, |attempt| attempt.set_attr(op, &known))
    }

    /// Asks for the names of a directory, if this client changes one after the other.
    fn lease_names(&self, caller: &Caller<'_>, dir: Ino, now: Duration) {
        let core = &self.core;
        let write_behind = core.write_behind.of(dir);
        let Some(numbers) = write_behind.held.lock().numbers_to_ask_for(dir, now) else { return };
        if !core.cache.is_complete(dir) {
            return;
        }
        let mark = self.service.recalls().now();
        // If the server refuses this, it refuses the operation itself, too.
        if let Ok(Answer::Names { leased: true, attr, numbers, now }) =
            self.ask(caller, Call::LeaseNames { dir, numbers })
        {
            let clock = (now, core.world.monotonic());
            let holds = || !self.service.recalls().recalled_since(mark, dir);
            write_behind.granted(&attr, numbers, clock, holds);
        }
    }
}
