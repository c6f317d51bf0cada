//! Names and attributes that a lease lets this client believe without asking.
//!
//! ```text
//!   names: (directory, name) -> inode or absent, with the stamp of the directory
//!   dirs:  directory -> stamp, searchable by all      a recall forgets the stamp, and so all names at once
//!   attrs: inode -> attributes
//!   targets: symbolic link -> target
//!   complete: directories all of whose names are known (`complete_dirs.rs`)
//! ```
//!
//! Invariants:
//! - Nothing is learned from an answer during whose way a lease on it was recalled, or an operation of our own
//!   changed it: [`Since`] is taken before the question.
//! - Names of a directory with parts on several plates are kept by part: the lease on a part covers the names in its range, which does
//!   not change while there is a lease.
//! - Its entries may be believed until [`crate::Service::valid_until`]; the caller looks at the clock.

use std::sync::Arc;

use chiton_model::{AttrChange, NameUse, Op, Outcome, Rows};
use chiton_runtime::sync::{Mutex, MutexGuard};
use chiton_types::{Attr, Ino, Kind, Name};
use chiton_wire::{DirEntry, LeaseMode, Resolved};

use crate::complete_dirs::{CompleteDirs, Part};
use crate::generations::Generations;
use crate::plate_inodes::PlateInodes;
use crate::renames::Renames;
use crate::{Mark, PartLists, Recalls};

/// Names, attributes and directories.
pub(crate) struct Cache {
    inner: Mutex<Inner>,
    /// The changes that this client made itself.
    changes: Recalls,
    renames: Renames,
    /// There are several plates.
    are_several: bool,
    parts: Arc<PartLists>,
    /// It holds neither names nor attributes.
    is_nothing: bool,
}

/// A moment before a question.
#[derive(Clone, Copy)]
pub(crate) struct Since {
    /// In the history of recalls.
    pub(crate) recalls: Mark,
    changes: Mark,
    /// The generation of the lists of parts.
    parts: u64,
}

#[derive(Clone, Copy)]
struct Dir {
    stamp: u64,
    open: bool,
}

struct Inner {
    dirs: Generations<Ino, Dir>,
    names: Generations<(Ino, Name), (u64, Option<Ino>)>,
    attrs: Generations<Ino, (Attr, LeaseMode)>,
    targets: Generations<Ino, Arc<[u8]>>,
    complete: CompleteDirs,
    stamp: u64,
    /// How often all lists of parts were forgotten before.
    forgotten: u64,
}

/// Directories remembered, also where names are not.
const DIRS_MAX: usize = 65_536;
/// Targets of symbolic links remembered.
const TARGETS_MAX: usize = 4_096;

impl Cache {
    /// Holds at most so many names, as many attributes, and notes as many names of complete directories. 0: asking is as good (only directories are
    /// remembered, for the kernel's sake).
    pub(crate) fn new(entries_max: usize, parts: Arc<PartLists>, are_several: bool) -> Cache {
        let inner = Inner {
            dirs: Generations::new(DIRS_MAX),
            names: Generations::new(entries_max),
            attrs: Generations::new(entries_max),
            targets: Generations::new(TARGETS_MAX.min(entries_max)),
            complete: CompleteDirs::new(entries_max),
            stamp: 0,
            forgotten: parts.forgotten(),
        };
        Cache {
            inner: Mutex::new(inner),
            changes: Recalls::default(),
            renames: Renames::default(),
            are_several,
            parts,
            is_nothing: entries_max == 0,
        }
    }

    /// Whether no names and attributes are kept.
    pub(crate) fn is_nothing(&self) -> bool {
        self.is_nothing
    }

    /// To be taken before a question.
    pub(crate) fn since(&self, recalls: &Recalls) -> Since {
        Since { recalls: recalls.now(), changes: self.changes.now(), parts: self.parts.generation() }
    }

    fn holds(&self, recalls: &Recalls, since: Since, ino: Ino) -> bool {
        !recalls.recalled_since(since.recalls, ino)
            && !self.changes.recalled_since(since.changes, ino)
            && !self.renames.any_in(|| self.home(ino))
    }

    /// The inode that has a name of a directory: the directory, or a part of it.
    pub(crate) fn place(&self, dir: Ino, name: &Name) -> Ino {
        self.parts.place(dir, name)
    }

    /// The same, if it was so all the time since then: an answer about the name is about this inode.
    pub(crate) fn place_since(&self, since: Since, dir: Ino, name: &Name) -> Option<Ino> {
        let place = self.place(dir, name);
        (self.parts.generation() == since.parts).then_some(place)
    }

    /// Whether a directory has no parts, as far as is known, and had none since then.
    pub(crate) fn is_whole_since(&self, since: Since, dir: Ino) -> bool {
        self.parts.of(dir).is_none() && self.parts.generation() == since.parts
    }

    /// The directory whose names an inode has; `None` if that is not known.
    pub(crate) fn home(&self, ino: Ino) -> Option<Ino> {
        self.parts.home(ino)
    }

    /// Where a name is kept that is to be changed or asked for.
    fn lock_at(&self, dir: Ino, name: &Name) -> (MutexGuard<'_, Inner>, Ino) {
        let mut inner = self.lock();
        let at = self.place(dir, name);
        // Between the two all lists may have been forgotten.
        inner.forget_places(self.parts.forgotten());
        (inner, at)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        inner.forget_places(self.parts.forgotten());
        inner
    }

    /// The inode that a name leads to (`None` inside: none), and whether everybody may search the directory.
    pub(crate) fn name(&self, parent: Ino, name: &Name) -> Option<(Option<Ino>, bool)> {
        let (mut inner, at) = self.lock_at(parent, name);
        let known = inner.name(at, name);
        let open = inner.dirs.get(&at)?.open;
        let absent = || inner.complete.lacks(at, name).then_some(None);
        known.or_else(absent).map(|ino| (ino, open))
    }

    /// True if a name is known to be absent, and nothing is asked for that may add it.
    pub(crate) fn lacks(&self, dir: Ino, name: &Name) -> bool {
        let (mut inner, at) = self.lock_at(dir, name);
        inner.complete.lacks(at, name) || (inner.complete.is_still(dir) && inner.name(at, name) == Some(None))
    }

    /// True if all names of a directory are known.
    pub(crate) fn is_complete(&self, dir: Ino) -> bool {
        self.inner.lock().complete.knows(dir)
    }

    /// Operations are about to be asked for. [`Cache::ended`] follows when they are answered.
    pub(crate) fn begins(&self, ops: &[Op]) {
        if self.are_several {
            ops.iter().for_each(|op| self.begins_between_plates(op));
        }
        let mut inner = self.inner.lock();
        ops.iter().for_each(|op| inner.complete.begins(op));
    }

    /// A rename leaves the lease on a directory of another plate here: nothing is answered by it until it ends.
    fn begins_between_plates(&self, op: &Op) {
        self.renames.begins(op);
        if let Op::Rename { from, from_name, to, to_name, .. } = op {
            for (dir, name) in [(*from, from_name), (*to, to_name)] {
                let (mut inner, at) = self.lock_at(dir, name);
                inner.names.remove(&(at, name.clone()));
                inner.attrs.remove(&dir);
                inner.attrs.remove(&at);
            }
        }
    }

    /// They are answered, and [`Cache::changed`] knows of it. `is_known`: whether the outcome of the
    /// operation at this place is known.
    pub(crate) fn ended(&self, ops: &[Op], is_known: impl Fn(usize) -> bool) {
        if self.are_several {
            let known = ops.iter().enumerate().filter(|(at, _)| is_known(*at));
            known.for_each(|(_, op)| self.renames.ended(op));
        }
        let mut inner = self.inner.lock();
        ops.iter().for_each(|op| inner.complete.ended(op));
    }

    /// Names of a directory were listed, and there is a lease on it.
    pub(crate) fn listed(&self, recalls: &Recalls, dir: Ino, part: Part<'_>) {
        // A listing of a directory with parts is under several leases.
        if !self.is_whole_since(part.since, dir) {
            return;
        }
        let mut inner = self.lock();
        inner.complete.listed(dir, part, |since| self.holds(recalls, since, dir));
    }

    /// The attributes of an inode, if they are cached under a lease.
    pub(crate) fn attr(&self, ino: Ino) -> Option<Attr> {
        self.inner.lock().attrs.get(&ino).map(|(attr, _)| attr.clone())
    }

    /// Attributes under an exclusive lease: the server recalls it before it answers other clients.
    pub(crate) fn exclusive_attr(&self, ino: Ino) -> Option<Attr> {
        let mut inner = self.inner.lock();
        inner
            .attrs
            .get(&ino)
            .filter(|(_, lease)| *lease == LeaseMode::Exclusive)
            .map(|(attr, _)| attr.clone())
    }

    /// Attributes are not believed any more.
    pub(crate) fn forget_attr(&self, ino: Ino) {
        self.inner.lock().attrs.remove(&ino);
    }

    /// The inode behind a name, if that is known.
    pub(crate) fn named(&self, dir: Ino, name: &Name) -> Option<Ino> {
        self.name(dir, name)?.0
    }

    /// True if there is a lease on the directory, and everybody may search it.
    pub(crate) fn is_open(&self, dir: Ino) -> bool {
        self.lock().dirs.get(&dir).is_some_and(|dir| dir.open)
    }

    /// True if the inode is known to be a directory.
    pub(crate) fn is_dir(&self, ino: Ino) -> bool {
        self.inner.lock().dirs.get(&ino).is_some() || self.parts.of(ino).is_some()
    }

    /// An answer about a name said that there is a lease on its directory (or on the part of it), or not, and whether all may search it.
    pub(crate) fn learn_parent(
        &self,
        recalls: &Recalls,
        since: Since,
        (parent, name): (Ino, &Name),
        leased: bool,
        open: bool,
    ) {
        if let Some(at) = self.place_since(since, parent, name) {
            self.learn_dir(recalls, since, at, leased, open);
        }
    }

    /// An answer said that there is a lease on the directory (or not), and whether all may search it.
    pub(crate) fn learn_dir(&self, recalls: &Recalls, since: Since, dir: Ino, leased: bool, open: bool) {
        let mut inner = self.lock();
        if !leased || !self.holds(recalls, since, dir) {
            return;
        }
        inner.set_dir(dir, open);
    }

    /// An answer said what a name stands for. It counts if there is a lease on the directory.
    pub(crate) fn learn_name(
        &self,
        recalls: &Recalls,
        since: Since,
        parent: Ino,
        name: &Name,
        ino: Option<Ino>,
    ) {
        if let Some(at) = self.place_since(since, parent, name) {
            self.learn_name_at(recalls, since, at, name, ino);
        }
    }

    /// The same of a name that an inode has, which is the directory or a part of it.
    fn learn_name_at(&self, recalls: &Recalls, since: Since, at: Ino, name: &Name, ino: Option<Ino>) {
        if self.is_nothing {
            return;
        }
        let mut inner = self.lock();
        if self.holds(recalls, since, at) {
            inner.set_name(at, name, ino);
        }
    }

    /// A page of a listing said what names stand for, with attributes. They are all in one directory, or in one part of it.
    pub(crate) fn learn_page(
        &self,
        recalls: &Recalls,
        since: Since,
        dir: Ino,
        (entries, leased): (&[DirEntry], bool),
    ) {
        let at = entries.first().and_then(|first| self.place_since(since, dir, &first.name));
        if self.is_nothing {
            return;
        }
        let mut inner = self.lock();
        if let Some(at) = at.filter(|at| leased && self.holds(recalls, since, *at)) {
            entries.iter().for_each(|entry| inner.set_name(at, &entry.name, Some(entry.ino)));
        }
        for (attr, lease) in entries.iter().filter_map(|entry| entry.attr.as_ref()) {
            if *lease > LeaseMode::None && !attr.is_parted() && self.holds(recalls, since, attr.ino) {
                inner.attrs.insert(attr.ino, (attr.clone(), *lease));
            }
        }
    }

    /// An answer carried attributes and a lease on them.
    pub(crate) fn learn_attr(&self, recalls: &Recalls, since: Since, attr: &Attr, lease: LeaseMode) {
        // Those of a directory with parts are a sum, on which there is no lease.
        if self.is_nothing || lease == LeaseMode::None || attr.is_parted() {
            return;
        }
        let mut inner = self.inner.lock();
        if self.holds(recalls, since, attr.ino) {
            inner.attrs.insert(attr.ino, (attr.clone(), lease));
        }
    }

    /// An answer listed the inodes that a path leads over, with the leases on them.
    pub(crate) fn learn_path(&self, recalls: &Recalls, since: Since, path: &Resolved) {
        for (attr, lease) in &path.inodes {
            if attr.kind == Kind::Dir {
                self.learn_dir(recalls, since, attr.ino, *lease >= LeaseMode::Shared, attr.is_open());
            }
            self.learn_attr(recalls, since, attr, *lease);
        }
        for (dir, name, ino) in &path.names {
            self.learn_name_at(recalls, since, *dir, name, Some(*ino));
        }
        if let (Some(name), Some((dir, _))) = (&path.absent, path.inodes.last()) {
            self.learn_name_at(recalls, since, dir.ino, name, None);
        }
        for (ino, target) in &path.targets {
            self.learn_target(*ino, target);
        }
    }

    /// A symbolic link was read. Its target never changes, and its number is never another's: this needs no lease.
    fn learn_target(&self, ino: Ino, target: &[u8]) {
        if !self.is_nothing {
            self.inner.lock().targets.insert(ino, target.into());
        }
    }

    /// The target of a symbolic link.
    pub(crate) fn target(&self, ino: Ino) -> Option<Arc<[u8]>> {
        self.inner.lock().targets.get(&ino).cloned()
    }

    /// Operations of our own were carried out, by one call.
    pub(crate) fn changed<'a>(
        &self,
        recalls: &Recalls,
        since: Since,
        done: impl Iterator<Item = (&'a Op, &'a Outcome, LeaseMode)>,
    ) {
        let mut inner = self.lock();
        let mut touched: Vec<Ino> = Vec::new();
        for (op, outcome, lease) in done {
            let holds = |ino: Ino| self.holds(recalls, since, ino);
            let place = |dir, name: &Name| (self.place(dir, name), self.parts.generation() == since.parts);
            inner.changed((op, outcome, lease), holds, place, &mut touched);
        }
        // Noted at the end, so that the operations of one call do not doubt each other.
        touched.sort_unstable();
        touched.dedup();
        for ino in touched {
            self.changes.note(ino);
        }
    }

    /// A lease was given up.
    pub(crate) fn recalled(&self, ino: Ino) {
        let mut inner = self.inner.lock();
        inner.dirs.remove(&ino);
        inner.attrs.remove(&ino);
        inner.complete.forget(ino);
    }

    /// All leases on the inodes of a plate are void.
    pub(crate) fn void(&self, inodes: &PlateInodes) {
        let mut inner = self.inner.lock();
        inner.dirs.retain(|dir| !inodes.has(*dir));
        inner.names.retain(|(dir, _)| !inodes.has(*dir));
        inner.attrs.retain(|ino| !inodes.has(*ino));
        inner.complete.void(inodes);
    }
}

impl Inner {
    /// It is not known any more where the names of directories with parts are.
    fn forget_places(&mut self, forgotten: u64) {
        if std::mem::replace(&mut self.forgotten, forgotten) != forgotten {
            self.dirs.clear();
        }
    }

    /// `holds`: no other change of that inode was under way. `place`: where a name is, and whether it was there all the time.
    fn changed(
        &mut self,
        (op, outcome, lease): (&Op, &Outcome, LeaseMode),
        holds: impl Fn(Ino) -> bool,
        place: impl Fn(Ino, &Name) -> (Ino, bool),
        touched: &mut Vec<Ino>,
    ) {
        let ino = outcome.attr.as_ref().map(|attr| attr.ino);
        let first = touched.len();
        // Of what is new nobody can have asked before it was there: no other answer is doubted.
        let is_new = op.makes_inode();
        touched.extend(ino.filter(|_| !is_new));
        touched.extend(outcome.gone.map(|gone| gone.ino));
        touched.extend(outcome.other);
        let footprint = op.footprint();
        for name in footprint.names() {
            let (at, is_sure) = place(name.dir, name.name);
            if at != name.dir {
                touched.push(at);
            }
            let holds = |ino| is_sure && holds(ino);
            match name.how {
                NameUse::Given => self.now_named(at, name.name, ino, holds),
                NameUse::Removed | NameUse::RemovedDir => self.now_named(at, name.name, None, holds),
                // Which inode is where now depends on how, and on whether both were one file: ask.
                NameUse::Left | NameUse::Taken => drop(self.names.remove(&(at, name.name.clone()))),
            }
        }
        let written = footprint.inodes().iter().filter(|touch| touch.writes != Rows::NONE);
        touched.extend(written.map(|touch| touch.ino));
        if let Op::SetAttr { ino, change } = op
            && narrows(change)
        {
            // Its names lead to the same inodes.
            let known = outcome.attr.as_ref().filter(|attr| attr.kind == Kind::Dir && holds(attr.ino));
            match (known, self.dirs.get(ino).copied()) {
                (Some(attr), Some(dir)) => {
                    self.dirs.insert(*ino, Dir { open: attr.is_open(), ..dir });
                }
                _ => drop(self.dirs.remove(ino)),
            }
        }
        // The attributes afterwards are as good as an answer, unless another change was under way meanwhile.
        let before = outcome.attr.as_ref().filter(|_| !is_new).and_then(|attr| self.attrs.get(&attr.ino));
        let lease = lease.max(before.map_or(LeaseMode::None, |(_, lease)| *lease));
        let learned = outcome.attr.as_ref().filter(|attr| lease > LeaseMode::None && holds(attr.ino));
        for ino in &touched[first..] {
            self.attrs.remove(ino);
        }
        if let Some(gone) = outcome.gone {
            self.complete.forget(gone.ino);
        }
        if let Some(attr) = learned {
            if is_new && attr.kind == Kind::Dir && lease > LeaseMode::None {
                self.set_dir(attr.ino, attr.is_open());
                self.complete.made(attr.ino);
            }
            self.attrs.insert(attr.ino, (attr.clone(), lease));
        }
    }

    /// The inode by the names that were learned.
    fn name(&mut self, parent: Ino, name: &Name) -> Option<Option<Ino>> {
        let stamp = self.dirs.get(&parent)?.stamp;
        self.names.get(&(parent, name.clone())).filter(|(of, _)| *of == stamp).map(|(_, ino)| *ino)
    }

    fn set_dir(&mut self, dir: Ino, open: bool) {
        if self.dirs.get(&dir).is_none_or(|known| known.open != open) {
            self.stamp += 1;
            self.dirs.insert(dir, Dir { stamp: self.stamp, open });
        }
    }

    fn now_named(&mut self, parent: Ino, name: &Name, ino: Option<Ino>, holds: impl Fn(Ino) -> bool) {
        if holds(parent) {
            self.set_name(parent, name, ino);
        } else {
            self.names.remove(&(parent, name.clone()));
        }
    }

    fn set_name(&mut self, parent: Ino, name: &Name, ino: Option<Ino>) {
        if let Some(&Dir { stamp, .. }) = self.dirs.get(&parent) {
            self.names.insert((parent, name.clone()), (stamp, ino));
        }
    }
}

/// Whether a change can take search rights on a directory away.
pub(crate) fn narrows(change: &AttrChange) -> bool {
    change.mode.is_some() || change.uid.is_some() || change.gid.is_some()
}
