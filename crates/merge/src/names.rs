//! Further names, and names less.

use chiton_model::merge::{ConflictKind, MergeMap, Place, Resolution, Settled};
use chiton_model::{Event, LINKS_MAX, NameChange};
use chiton_namespace::{Fault, Inode, Known};
use chiton_types::{Ino, Kind, Refusal};

use crate::locate::{Located, known_names};
use crate::{Merge, MergeStep, Skipped, found};

impl<'a> Merge<'a> {
    pub(crate) fn merge_link(&mut self, event: &mut Event) -> Result<MergeStep, Fault> {
        let Event::Link { parent, name, ino, time, .. } = event else { unreachable!("asked for a link") };
        *parent = self.map.translate(*parent);
        *ino = self.map.translate(*ino);
        let dir = found!(self.merge_dir(*parent, *time));
        let inode = match self.locate(*ino)? {
            Located::Live(inode) if inode.kind() == Kind::Dir => {
                return Ok(MergeStep::Skip(Skipped::Invalid("a further name of a directory")));
            }
            Located::Live(inode) => inode,
            Located::Removed(inode) if inode.kind() != Kind::Dir => {
                if self.has_replaced_name(inode)? {
                    return self.link_replaced(event, dir, inode);
                }
                return self.bring_back(inode, ConflictKind::EditDelete, *time, self.ctx.is_open);
            }
            Located::Removed(_) | Located::Gone => return Ok(MergeStep::Skip(Skipped::Gone)),
            Located::Outside => return Ok(MergeStep::Skip(Skipped::Outside)),
        };
        if inode.nlink >= LINKS_MAX {
            return Err(Refusal::TooManyLinks.into());
        }
        match self.state.entry(dir, name)? {
            Known::Absent => {
                self.map.vouch(*ino);
                Ok(MergeStep::Emit)
            }
            Known::Present(slot) if slot.ino == *ino => {
                self.map.note_agreed(*ino, dir.ino, name, slot.position);
                Ok(MergeStep::Skip(Skipped::Needless))
            }
            Known::Present(slot) => self.displace(dir, name, slot, (false, false), *time),
        }
    }

    pub(crate) fn merge_touch(&mut self, event: &mut Event) -> Result<MergeStep, Fault> {
        let Event::Touch { ino, .. } = event else { unreachable!("asked for a touch") };
        *ino = self.map.translate(*ino);
        Ok(match self.locate(*ino)? {
            Located::Live(dir) if dir.kind() == Kind::Dir => MergeStep::Emit,
            Located::Live(_) => MergeStep::Skip(Skipped::Invalid("names in an inode that is no directory")),
            // No trace is left of the changes in it.
            Located::Removed(_) | Located::Gone => MergeStep::Skip(Skipped::Gone),
            Located::Outside => MergeStep::Skip(Skipped::Outside),
        })
    }

    pub(crate) fn merge_unlink(&mut self, event: &mut Event) -> Result<MergeStep, Fault> {
        let Event::Unlink { parent, name, ino, time, orphan, .. } = event else {
            unreachable!("asked for an unlink")
        };
        *parent = self.map.translate(*parent);
        *ino = self.map.translate(*ino);
        let dir = match self.locate(*parent)? {
            Located::Live(dir) if dir.kind() == Kind::Dir => dir,
            Located::Outside => return Ok(MergeStep::Skip(Skipped::Outside)),
            _ => return Ok(MergeStep::Skip(Skipped::Needless)),
        };
        let (victim, slot) = match self.state.entry(dir, name)? {
            Known::Present(slot) if slot.ino == *ino => (self.state.inode(slot.ino)?, slot),
            Known::Present(slot) => {
                let other = self.state.inode(slot.ino)?;
                // Theirs moved here what ours has elsewhere.
                let moved = other.kind() != Kind::Dir && other.nlink <= 1 && self.map.may_know(other.ino);
                return match self.unlink_elsewhere(event)? {
                    None if !moved => self.unlink_other(dir, other, event),
                    step => Ok(step.unwrap_or(MergeStep::Skip(Skipped::Needless))),
                };
            }
            Known::Absent => {
                let step = self.unlink_elsewhere(event)?;
                return Ok(step.unwrap_or(MergeStep::Skip(Skipped::Needless)));
            }
        };
        let kind = if victim.kind() == Kind::Dir {
            (victim.entries() > 0).then_some(ConflictKind::DeleteFilled)
        } else {
            // A file that theirs changed stays under another name if ours alone gave it this one.
            let is_further = victim.nlink > 1 && self.map.is_own(slot.position);
            // Ours has the content that theirs gave this file, in a file of its own: taken over after a conflict, for instance.
            let is_same = self.map.settled(victim.ino, victim.position) == Some(Settled::Same);
            (self.is_changed(victim) && !is_further && !is_same).then_some(ConflictKind::DeleteEdit)
        };
        if let Some(kind) = kind {
            let path = self.path_of(dir.ino, Some(name))?;
            match self.conflict(kind, path, victim.ino, None) {
                Resolution::Ours => {}
                Resolution::Aborted => return Ok(MergeStep::Stop),
                _ => {
                    if victim.kind() == Kind::Dir {
                        self.map.note_standing(victim.ino);
                    }
                    return Ok(MergeStep::Skip(Skipped::Theirs));
                }
            }
        }
        let (place, time, is_kept) = ((dir.ino, name.clone()), *time, *orphan);
        // An earlier merge put what ours has under this name elsewhere. Theirs brought it back here since: that other name is this one.
        if self.map.is_gone(place.0, &place.1)
            && let Some(other) = self.map.contested.last_except(*ino, Some(&place)).cloned()
        {
            self.map.contested.forget(*ino, &other);
        }
        // An inode that is open on our side lives on: the client that still uses it opens it here.
        let ctx = self.ctx;
        let is_open = |ino: Ino| is_kept || (ctx.is_open)(ino);
        *event = found!(self.removal(victim, place, time, &is_open));
        Ok(MergeStep::Emit)
    }

    /// Ours removed a name under which there is something else now.
    fn unlink_other(&mut self, dir: &Inode, other: &Inode, event: &mut Event) -> Result<MergeStep, Fault> {
        let Event::Unlink { name, ino, orphan, .. } = event else { unreachable!("asked for an unlink") };
        let is_dir = other.kind() == Kind::Dir;
        let kind = if is_dir { ConflictKind::DeleteDir } else { ConflictKind::DeleteFile };
        // Where ours made the same there afterwards, it takes the place of theirs; of a directory, the two become one.
        let resolution = match self.map.is_same(other.ino, other.attrs_changed()) {
            true if is_dir => return Ok(MergeStep::Skip(Skipped::Theirs)),
            true => Resolution::Ours,
            false => {
                let path = self.path_of(dir.ino, Some(name))?;
                self.conflict(kind, path, other.ino, None)
            }
        };
        Ok(match resolution {
            Resolution::Ours => {
                *ino = other.ino;
                *orphan = self.stays_as_orphan(other, self.ctx.is_open);
                MergeStep::Emit
            }
            Resolution::Aborted => MergeStep::Stop,
            _ => MergeStep::Skip(Skipped::Theirs),
        })
    }

    /// Ours removed a name under which it is not: theirs moved it, or a merge put it elsewhere. `None`: neither, as both
    /// removed it.
    fn unlink_elsewhere(&mut self, event: &mut Event) -> Result<Option<MergeStep>, Fault> {
        let Event::Unlink { parent, name, ino, time, .. } = event else {
            unreachable!("asked for an unlink")
        };
        let Located::Live(moved) = self.locate(*ino)? else {
            return Ok(None);
        };
        let place = (*parent, name.clone());
        let is_dir = moved.kind() == Kind::Dir;
        // A file with several names may have lost this one only: which of the others was it? None.
        let single = is_dir || (moved.nlink == 1 && !self.map.contested.has_other(*ino, &place));
        let at = if single && *ino != self.map.root() { known_names(self.state, moved)?.pop() } else { None };
        let Some((at, since)) = at else { return Ok(None) };
        let by_theirs = self.map.is_foreign(since);
        let by_merge = self.map.is_own(since) && !self.map.contested.holds(*ino, &place);
        if !by_theirs && !by_merge {
            return Ok(None);
        }
        let contradicts = by_theirs || (!is_dir && self.is_changed(moved));
        let kind = match (is_dir && moved.entries() > 0, contradicts) {
            (true, _) => Some(ConflictKind::DeleteFilled),
            (false, true) => Some(ConflictKind::DeleteRename),
            (false, false) => None,
        };
        if let Some(kind) = kind {
            let path = self.path_of(moved.parent, Some(&at))?;
            match self.conflict(kind, path, moved.ino, None) {
                Resolution::Ours => {}
                Resolution::Aborted => return Ok(Some(MergeStep::Stop)),
                _ => return Ok(Some(MergeStep::Skip(Skipped::Theirs))),
            }
        }
        let orphan = self.stays_as_orphan(moved, self.ctx.is_open);
        *event = Event::Unlink {
            parent: moved.parent,
            name: at,
            ino: *ino,
            orphan,
            kind: moved.kind(),
            time: *time,
        };
        Ok(Some(MergeStep::Emit))
    }
}

/// The names that ours drops by an event, as the server knows their inodes and directories.
pub(crate) fn given_up(event: &Event, map: &MergeMap) -> Vec<(Ino, Place)> {
    let footprint = event.footprint();
    let given_up = |change: NameChange<'_>| Some((map.translate(change.before?), place(&change, map)));
    footprint.names().filter_map(given_up).collect()
}

/// The names that ours gives by an event, as the server knows their directories.
pub(crate) fn gained(event: &Event, map: &MergeMap) -> Vec<Place> {
    // A client brings nothing back.
    if !map.has_names_apart() || matches!(event, Event::Restore { .. }) {
        return Vec::new();
    }
    let footprint = event.footprint();
    footprint.names().filter(|change| change.after.is_some()).map(|change| place(&change, map)).collect()
}

fn place(change: &NameChange<'_>, map: &MergeMap) -> Place {
    (map.translate(change.dir), change.name.clone())
}
