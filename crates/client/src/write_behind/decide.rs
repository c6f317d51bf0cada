//! Decides whether an operation is acknowledged before the server knows of it. The server's own
//! `plan` decides, over what is [`Known`] here; its refusals, and missing facts, are for the server.
//!
//! Invariants:
//! - The names of the directory are held, and no call is under way that may change that.
//! - An inode that is made has a name that is known to be absent, and a granted number.
//! - A file that is written, or given other attributes, was made under the lease that is still held: no other client has seen it.
//! - A file that is removed has no other name, and no other client caches it: it was made under that lease, or is leased
//!   exclusively.
//! - A file and the directory that has its name are on one plate: all of an operation is decided by the server that is asked later.
//! - A directory that is made is held from its first moment on; numbers are taken from its parent's shard for all below.

use std::cell::Cell;
use std::time::Duration;

use chiton_model::{Event, Make, Op, Outcome};
use chiton_namespace::{ContentIn, Context, Fault, InodeFacts, Planned, plan};
use chiton_types::{Attr, Cred, Ino, Kind, Name, Position, Time};
use chiton_wire::{Acknowledged, LeaseMode};

use super::WriteBehind;
use super::held::Held;
use super::known::Known;
use super::sender::lease_on;
use crate::core::Core;
use crate::service::Service;

/// Of the subdirectories that a directory may have at most, so many are left to those that the server is asked for.
const LINKS_SPARE: u32 = 1_000;

/// One caller's attempt to have an operation acknowledged here.
pub(super) struct Attempt<'a> {
    pub(super) core: &'a Core,
    /// That of the plate on which all of it happens.
    pub(super) write_behind: &'a WriteBehind,
    pub(super) service: &'a dyn Service,
    pub(super) cred: &'a Cred,
    pub(super) now: Duration,
    /// Groups or capabilities that `cred` does not carry decide.
    pub(super) needs_groups: Cell<bool>,
}

/// The directory whose names decide whether an operation can be acknowledged here.
pub(crate) fn dir_of(op: &Op) -> Option<Ino> {
    let is_node = matches!(op, Op::Make { make: Make::Node { .. }, .. });
    let (Op::Make { parent, .. } | Op::Unlink { parent, .. }) = op else { return None };
    Some(*parent).filter(|_| !is_node)
}

impl Attempt<'_> {
    /// Acknowledges an operation on a name, if possible.
    pub(super) fn operate(&self, op: &Op, open: bool) -> Option<Outcome> {
        let held = &mut *self.write_behind.held.lock();
        let dir = dir_of(op)?;
        if let Op::Unlink { name, .. } = op {
            self.unlink(held, op, dir, name)
        } else {
            self.make(held, op, dir, open)
        }
    }

    fn make(&self, held: &mut Held, op: &Op, parent: Ino, open: bool) -> Option<Outcome> {
        let Op::Make { name, make, .. } = op else { return None };
        let facts = held.dir(parent)?.facts;
        let dir = InodeFacts { nlink: facts.nlink.saturating_add(LINKS_SPARE), ..facts };
        let (time, offered) = (held.clock.now(self.now), held.numbers.next(parent.shard()));
        let known = Known::one(&self.core.cache, dir);
        let (event, _) = self.plan(&known, op, offered.unwrap_or(Ino(0)), time)?;
        let Some(ino) = offered else {
            held.numbers_used_up(parent);
            return None;
        };
        // New, whatever position the server gives it.
        let attr = event.born(Position(0))?;
        // The request carries the mode that was decided, and no umask: so operations of one caller travel in one message. (The
        // mode that the caller asked for without the umask's bits would be another question: whether a set-group-id bit stays
        // depends on them.)
        let op = &Op::Make { parent, name: name.clone(), make: make.clone(), mode: attr.mode };
        let outcome = Outcome { attr: Some(attr), gone: None, other: None, time: Time(0) };
        if !self.queue(op, Acknowledged { ino, time, open }, parent, &outcome) {
            return None;
        }
        held.numbers.take(ino);
        held.clock.seen(time);
        match &outcome.attr {
            Some(attr) if attr.kind == Kind::Dir => {
                held.any_dir(parent)?.facts.nlink += 1;
                held.hold(attr);
            }
            _ => held.made(ino, parent),
        }
        Some(outcome)
    }

    fn unlink(&self, held: &mut Held, op: &Op, parent: Ino, name: &Name) -> Option<Outcome> {
        let dir = held.dir(parent)?.facts;
        let cache = &self.core.cache;
        let ino = cache.named(parent, name)?;
        if !self.core.write_behind.is_near(ino, parent) {
            return None;
        }
        let attr = match held.made_here(ino) {
            Some(made) if made.dir == parent => cache.attr(ino),
            _ => cache.exclusive_attr(ino),
        }?;
        if attr.kind == Kind::Dir || attr.nlink != 1 {
            return None;
        }
        // The server decides whether it lives on as an orphan, because it knows where the content is and which clients have it open.
        let victim = InodeFacts::new(&attr, ContentIn::Nothing);
        let time = held.clock.now(self.now);
        let (_, planned) = self.plan(&Known::two(cache, dir, victim), op, Ino(0), time)?;
        let outcome = Outcome { attr: None, gone: planned.gone, other: planned.other, time };
        if !self.queue(op, Acknowledged { ino, time, open: false }, parent, &outcome) {
            return None;
        }
        held.clock.seen(time);
        held.forget_file(ino);
        Some(outcome)
    }

    /// Acknowledges new content of a small file, if possible: its attributes then.
    pub(super) fn write(&self, op: &Op, known: &Attr) -> Option<Attr> {
        let held = &mut *self.write_behind.held.lock();
        let time = held.clock.now(self.now);
        self.change(held, op, known, time)
    }

    /// Acknowledges other attributes of a file, but no other size, if possible: all of them then.
    pub(super) fn set_attr(&self, op: &Op, known: &Attr) -> Option<Attr> {
        let held = &mut *self.write_behind.held.lock();
        let time = held.clock.now(self.now);
        let attr = self.change(held, op, known, time)?;
        held.clock.seen(time);
        Some(attr)
    }

    /// A change of a file that was made under a lease on its name that is
    /// still held. `known`: the state of the file as the caller knows it.
    fn change(&self, held: &mut Held, op: &Op, known: &Attr, time: Time) -> Option<Attr> {
        let made = held.made_here(known.ino)?;
        // The cache knows what else was changed.
        let before = self.core.cache.attr(known.ino).filter(|attr| attr.position >= known.position)?;
        if before.kind != Kind::File {
            return None;
        }
        let content = match made.is_mapped {
            true => ContentIn::Blocks,
            false if before.allocated > 0 => ContentIn::Inline,
            false => ContentIn::Nothing,
        };
        let facts = InodeFacts::new(&before, content);
        let (event, _) = self.plan(&Known::one(&self.core.cache, facts), op, Ino(0), time)?;
        // Later than all that is known of it, and not later than where the server will put it.
        let attr = event.changed(&before, before.position.next())?;
        let outcome = Outcome { attr: Some(attr), gone: None, other: None, time: Time(0) };
        let acknowledged = Acknowledged { ino: known.ino, time, open: false };
        if self.queue(op, acknowledged, made.dir, &outcome) { outcome.attr } else { None }
    }

    /// The one event that carries an operation out, if the server could not refuse it.
    fn plan(&self, known: &Known<'_>, op: &Op, offered: Ino, now: Time) -> Option<(Event, Planned)> {
        let context = Context { cred: self.cred, now, offered, is_open: &|_| false, frees: false };
        let mut events = Vec::with_capacity(1);
        match plan(known, op, &context, &mut events) {
            Ok(planned) => events.pop().filter(|_| events.is_empty()).map(|event| (event, planned)),
            Err(fault) => {
                self.needs_groups.set(self.needs_groups.get() || fault == Fault::NeedGroups);
                None
            }
        }
    }

    /// Queues an operation for the server, and records what it does. False if the queue takes none now.
    fn queue(&self, op: &Op, acknowledged: Acknowledged, dir: Ino, outcome: &Outcome) -> bool {
        let (cache, recalls) = (&self.core.cache, self.service.recalls());
        let outline = self.core.outline(op);
        let ops = std::slice::from_ref(&outline);
        cache.begins(ops);
        // Under the lock that a recall takes before it forgets what is cached.
        let since = cache.since(recalls);
        let cred = Cred { umask: 0, ..self.cred.clone() };
        let queue = &self.write_behind.queue;
        let is_queued = queue.enqueue(&cred, op, acknowledged, dir, self.core.world.monotonic());
        if is_queued {
            // The exclusive lease on a directory is one on its names; on its attributes it is shared.
            let is_dir = matches!(op, Op::Make { make: Make::Dir, .. });
            let lease = if is_dir { LeaseMode::Shared } else { lease_on(op) };
            cache.changed(recalls, since, std::iter::once((&outline, outcome, lease)));
        }
        cache.ended(ops, |_| true);
        is_queued
    }
}
