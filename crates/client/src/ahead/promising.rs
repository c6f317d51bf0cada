//! What may be promised: operations that the server could not refuse.
//!
//! Invariants:
//! - The names of the directory are held, and nothing is under way that may end that.
//! - What is made has a name that is known to be absent, and a number; mode and owner of the directory allow it.
//! - What is written is a file that was made under the lease that is still held: nobody else has seen it.
//! - What the outcome is, is what the server will make of the operation (`chiton_namespace`'s `plan` and `apply`).

use chiton_namespace::{Body, INLINE_BYTES_MAX, Make, Op, Outcome};
use chiton_proto::{Foretold, LeaseMode};
use chiton_types::{Attr, Cred, Ino, Kind, Mode, Position, Time, access};

use super::{Dir, Inner};
use crate::core::Core;
use crate::service::Service;

/// Somebody who wants something done now.
pub(super) struct Promising<'a> {
    pub(super) core: &'a Core,
    pub(super) service: &'a dyn Service,
    pub(super) cred: &'a Cred,
    pub(super) now: std::time::Duration,
}

/// The directory whose names decide whether an operation can be promised.
pub(super) fn dir_of(op: &Op) -> Option<Ino> {
    match op {
        Op::Make { parent, make: Make::File { .. }, .. } => Some(*parent),
        _ => None,
    }
}

impl Promising<'_> {
    /// Promises an operation on a name, if it can be.
    pub(super) fn operate(&self, op: &Op, open: bool) -> Option<Outcome> {
        match op {
            Op::Make { parent, make: Make::File { content }, .. } if content.len() <= INLINE_BYTES_MAX => {
                self.make(op, *parent, (Kind::File, content.len() as u64), open)
            }
            _ => None,
        }
    }

    fn make(&self, op: &Op, parent: Ino, (kind, size): (Kind, u64), open: bool) -> Option<Outcome> {
        let Op::Make { name, mode, .. } = op else { return None };
        let inner = &mut *self.core.ahead.0.lock();
        let (gid, mode) = may_make(self.held(inner, parent)?, self.cred, *mode)?;
        if !self.core.cache.lacks(parent, name) {
            return None;
        }
        let ino = inner.number(parent)?;
        let time = inner.time(self.now);
        let attr = Attr {
            ino,
            kind,
            mode,
            nlink: 1,
            uid: self.cred.uid,
            gid,
            rdev: 0,
            size,
            allocated: size,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            parent,
            // News, whatever position the server gives it.
            position: Position(0),
        };
        let outcome = Outcome { attr: Some(attr), gone: None, time: Time(0) };
        if !self.promise(op, Foretold { ino, time, open }, parent, &outcome) {
            return None;
        }
        inner.use_number(ino);
        inner.last_time = time;
        let lease = inner.held.get(&parent).map_or(0, |dir| dir.lease);
        inner.files.insert(ino, (parent, lease));
        Some(outcome)
    }

    /// Promises new content of a small file: its attributes then.
    pub(super) fn write(&self, op: &Op, known: &Attr) -> Option<Attr> {
        let Op::Write { ino, body: Body::Inline(bytes), size, mtime, kill_setid } = op else { return None };
        let inner = &mut *self.core.ahead.0.lock();
        let (parent, lease) = *inner.files.get(ino)?;
        if self.held(inner, parent)?.lease != lease || bytes.len() > INLINE_BYTES_MAX {
            return None;
        }
        // What else was changed of it is known there.
        let before = self.core.cache.attr(*ino).filter(|attr| attr.position >= known.position)?;
        let mode = if *kill_setid { before.mode.without_setid(before.kind) } else { before.mode };
        let attr = Attr {
            mode,
            size: *size,
            allocated: bytes.len() as u64,
            mtime: *mtime,
            ctime: before.ctime.max(*mtime),
            // Later than all that is known of it, and not later than where the server will put it.
            position: before.position.next(),
            ..before
        };
        let outcome = Outcome { attr: Some(attr), gone: None, time: Time(0) };
        let told = Foretold { ino: *ino, time: inner.time(self.now), open: false };
        if !self.promise(op, told, parent, &outcome) {
            return None;
        }
        outcome.attr
    }

    /// The directory, if its names are held.
    fn held<'a>(&self, inner: &'a Inner, dir: Ino) -> Option<&'a Dir> {
        inner.held.get(&dir).filter(|_| inner.overturning == 0)
    }

    /// Keeps an operation to be sent, and takes note of what it does. False if nothing is to be promised now.
    fn promise(&self, op: &Op, told: Foretold, dir: Ino, outcome: &Outcome) -> bool {
        let (cache, recalls) = (&self.core.cache, self.service.recalls());
        let outline = self.core.outline(op);
        let ops = std::slice::from_ref(&outline);
        cache.begins(ops);
        // Under the lock that a recall takes before it forgets what is cached.
        let since = cache.since(recalls);
        let promised = self.service.promise(self.cred, op, told, dir);
        if promised {
            cache.changed(recalls, since, std::iter::once((&outline, outcome, LeaseMode::Exclusive)));
        }
        cache.ended(ops);
        promised
    }
}

/// Group and mode of what is made in a directory, if its mode and owner allow that, and nothing else decides.
fn may_make(dir: &Dir, cred: &Cred, mode: Mode) -> Option<(u32, Mode)> {
    if !may_change(dir, cred) {
        return None;
    }
    let mode = Mode(mode.0 & 0o7777);
    // Whether the group's bit stays is the server's matter.
    if mode.has(Mode::SETGID) {
        return None;
    }
    Some((if dir.mode.has(Mode::SETGID) { dir.gid } else { cred.gid }, mode))
}

/// Whether somebody may change the names of a directory, as far as that can be told here.
fn may_change(dir: &Dir, cred: &Cred) -> bool {
    let want = access::WRITE | access::EXEC;
    access::check(cred, Kind::Dir, dir.mode, dir.uid, dir.gid, want) == Some(true)
}
