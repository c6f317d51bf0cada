//! What may be promised: operations that the server could not refuse.
//!
//! Invariants:
//! - The names of the directory are held, and nothing is under way that may end that.
//! - What is made has a name that is known to be absent, and a number; mode and owner of the directory allow it.
//! - What is written, or given other attributes, is a file that was made under the lease that is still held: nobody else
//!   has seen it.
//! - What is removed has no other name, and is nobody else's to believe anything of: it was made so, or is leased exclusively.
//! - A directory that is made is held from its first moment on; numbers are taken from its parent's shard for all below.
//! - Who may do it, with which mode and group, is decided by the functions that the server asks
//!   (`chiton_namespace::permission`); the outcome is that of its `plan` and `apply`.

use std::cell::Cell;

use chiton_model::{
    AttrChange, Body, Gone, INLINE_BYTES_MAX, LINKS_MAX, Make, Op, Outcome, SYMLINK_BYTES_MAX,
};
use chiton_namespace::permission::{self, Birth, Changed, Newborn};
use chiton_namespace::{ContentIn, Fault, InodeFacts};
use chiton_types::{Attr, Cred, Ino, Kind, Mode, Name, Position, Time};
use chiton_wire::{Foretold, LeaseMode};

use super::{Dir, Inner, NothingElse, lease_on};
use crate::core::Core;
use crate::service::Service;

/// Of the names that a directory may have at most, so many are left to those that are asked for.
const LINKS_SPARE: u32 = 1_000;

/// Somebody who wants something done now.
pub(super) struct Promising<'a> {
    pub(super) core: &'a Core,
    pub(super) service: &'a dyn Service,
    /// Without the umask.
    pub(super) cred: &'a Cred,
    pub(super) umask: u16,
    pub(super) now: std::time::Duration,
    /// Groups or capabilities that `cred` does not carry decide.
    pub(super) needs_cred: Cell<bool>,
}

/// The directory whose names decide whether an operation can be promised.
pub(crate) fn dir_of(op: &Op) -> Option<Ino> {
    match op {
        Op::Make { make: Make::Node { .. }, .. } => None,
        Op::Make { parent, .. } | Op::Unlink { parent, .. } => Some(*parent),
        _ => None,
    }
}

impl Promising<'_> {
    /// Promises an operation on a name, if it can be.
    pub(super) fn operate(&self, op: &Op, open: bool) -> Option<Outcome> {
        match op {
            Op::Make { parent, make, .. } => self.make(op, *parent, kind_and_size(make)?, open),
            Op::Unlink { parent, name } => self.unlink(op, *parent, name),
            _ => None,
        }
    }

    fn make(&self, op: &Op, parent: Ino, (kind, size): (Kind, u64), open: bool) -> Option<Outcome> {
        let Op::Make { name, mode, make, .. } = op else { return None };
        let inner = &mut *self.core.write_behind.0.lock();
        let dir = self.held(inner, parent)?;
        let (gid, mode) = self.decided(born(dir, (self.cred, self.umask), kind, *mode))??;
        if !self.core.cache.lacks(parent, name) {
            return None;
        }
        let ino = inner.number(parent)?;
        let time = inner.time(self.now);
        let attr = Attr {
            ino,
            kind,
            mode,
            nlink: if kind == Kind::Dir { 2 } else { 1 },
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
            lists: 0,
            // News, whatever position the server gives it.
            position: Position(0),
        };
        let outcome = Outcome { attr: Some(attr), gone: None, other: None, time: Time(0) };
        // There is no default list, and nobody makes one before this is with the server: the umask holds, and the mode
        // that it leaves is what the server is asked for. (The mode that the caller asked for without the umask's bits would
        // be another question: whether a set-group-id bit stays depends on them.)
        let op = &Op::Make { parent, name: name.clone(), make: make.clone(), mode };
        if !self.promise(op, Foretold { ino, time, open }, parent, &outcome) {
            return None;
        }
        inner.use_number(ino);
        inner.last_time = time;
        let dir = inner.held.get_mut(&parent)?;
        if let (Kind::Dir, Some(attr)) = (kind, &outcome.attr) {
            dir.facts.nlink += 1;
            inner.hold(attr);
        } else {
            let lease = dir.lease;
            inner.files.insert(ino, (parent, lease));
        }
        Some(outcome)
    }

    fn unlink(&self, op: &Op, parent: Ino, name: &Name) -> Option<Outcome> {
        let inner = &mut *self.core.write_behind.0.lock();
        let dir = self.held(inner, parent)?;
        let (facts, lease) = (dir.facts, dir.lease);
        self.decided(permission::may_change_names(&NothingElse, self.cred, &facts))?;
        let cache = &self.core.cache;
        let ino = cache.named(parent, name)?;
        let attr = match inner.files.get(&ino) {
            Some(made) if *made == (parent, lease) => cache.attr(ino),
            _ => cache.exclusive_attr(ino),
        }?;
        if attr.kind == Kind::Dir || attr.nlink != 1 {
            return None;
        }
        self.decided(permission::may_remove(self.cred, &facts, &InodeFacts::new(&attr, ContentIn::Nothing)))?;
        let time = inner.time(self.now);
        let outcome = Outcome { attr: None, gone: Some(Gone { ino, orphan: false }), other: None, time };
        if !self.promise(op, Foretold { ino, time, open: false }, parent, &outcome) {
            return None;
        }
        inner.last_time = time;
        inner.files.remove(&ino);
        Some(outcome)
    }

    /// Promises new content of a small file: its attributes then.
    pub(super) fn write(&self, op: &Op, known: &Attr) -> Option<Attr> {
        let Op::Write { ino, body: Body::Inline(bytes), size, mtime, kill_setid, .. } = op else {
            return None;
        };
        let inner = &mut *self.core.write_behind.0.lock();
        let (parent, before) = self.made_here(inner, known)?;
        if bytes.len() > INLINE_BYTES_MAX {
            return None;
        }
        let mode = permission::written(&InodeFacts::new(&before, ContentIn::Nothing), *kill_setid)
            .unwrap_or(before.mode);
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
        let outcome = Outcome { attr: Some(attr), gone: None, other: None, time: Time(0) };
        let told = Foretold { ino: *ino, time: inner.time(self.now), open: false };
        if !self.promise(op, told, parent, &outcome) {
            return None;
        }
        outcome.attr
    }

    /// Promises other attributes of a file, but no other size: all of them then.
    pub(super) fn set_attr(&self, op: &Op, known: &Attr) -> Option<Attr> {
        let Op::SetAttr { ino, change } = op else { return None };
        let inner = &mut *self.core.write_behind.0.lock();
        let (parent, before) = self.made_here(inner, known)?;
        let time = inner.time(self.now);
        let attr = self.decided(changed(before, change, self.cred, time))??;
        let outcome = Outcome { attr: Some(attr), gone: None, other: None, time: Time(0) };
        if !self.promise(op, Foretold { ino: *ino, time, open: false }, parent, &outcome) {
            return None;
        }
        inner.last_time = time;
        outcome.attr
    }

    /// What was decided. A refusal is the server's to give; with all credentials the answer may be another.
    fn decided<R>(&self, decision: Result<R, Fault>) -> Option<R> {
        if decision.as_ref().is_err_and(|denial| *denial == Fault::NeedGroups) {
            self.needs_cred.set(true);
        }
        decision.ok()
    }

    /// The directory of a file that was made under the lease on its names that is still held, and its attributes as the
    /// server knows them or will. `known`: what is known of it by whoever asks.
    fn made_here(&self, inner: &mut Inner, known: &Attr) -> Option<(Ino, Attr)> {
        let (parent, lease) = *inner.files.get(&known.ino)?;
        if self.held(inner, parent)?.lease != lease {
            return None;
        }
        // What else was changed of it is known there.
        let before = self.core.cache.attr(known.ino).filter(|attr| attr.position >= known.position)?;
        Some((parent, before))
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
            // A directory's is one on its names; on itself it is a shared one.
            let is_dir = matches!(op, Op::Make { make: Make::Dir, .. });
            let lease = if is_dir { LeaseMode::Shared } else { lease_on(op) };
            cache.changed(recalls, since, std::iter::once((&outline, outcome, lease)));
        }
        cache.ended(ops);
        promised
    }
}

/// A file's attributes after a change, if this caller may make it.
fn changed(before: Attr, change: &AttrChange, cred: &Cred, time: Time) -> Result<Option<Attr>, Fault> {
    if change.size.is_some() || before.kind != Kind::File {
        return Ok(None);
    }
    let Changed { mode, atime, mtime } =
        permission::change(&NothingElse, cred, &InodeFacts::new(&before, ContentIn::Nothing), change, time)?;
    Ok(Some(Attr {
        mode: mode.unwrap_or(before.mode),
        uid: change.uid.unwrap_or(before.uid),
        gid: change.gid.unwrap_or(before.gid),
        atime: atime.unwrap_or(before.atime),
        mtime: mtime.unwrap_or(before.mtime),
        ctime: before.ctime.max(time),
        // As after a write.
        position: before.position.next(),
        ..before
    }))
}

/// Group and mode of what is made in a directory, if its mode and owner allow that.
fn born(
    dir: &Dir,
    (cred, umask): (&Cred, u16),
    kind: Kind,
    mode: Mode,
) -> Result<Option<(u32, Mode)>, Fault> {
    if kind == Kind::Dir && dir.facts.nlink >= LINKS_MAX - LINKS_SPARE {
        return Ok(None);
    }
    permission::may_change_names(&NothingElse, cred, &dir.facts)?;
    let newborn = Newborn { kind, rdev: 0, mode, umask };
    let Birth { mode, gid, .. } = permission::birth(
        cred,
        &dir.facts,
        permission::default_list(&NothingElse, &dir.facts)?.as_ref(),
        newborn,
    )?;
    Ok(Some((gid, mode)))
}

/// What is made, and its size, if it is something that can be made so at all.
fn kind_and_size(make: &Make) -> Option<(Kind, u64)> {
    match make {
        Make::File { content } => {
            (content.len() <= INLINE_BYTES_MAX).then_some((Kind::File, content.len() as u64))
        }
        Make::Symlink { target } => {
            let may_be = (1..=SYMLINK_BYTES_MAX).contains(&target.len()) && !target.contains(&0);
            may_be.then_some((Kind::Symlink, target.len() as u64))
        }
        Make::Dir => Some((Kind::Dir, 0)),
        Make::Node { .. } => None,
    }
}
