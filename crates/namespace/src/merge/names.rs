//! Further names, and names less.

use chiton_model::Event;
use chiton_model::LINKS_MAX;
use chiton_model::merge::MergeMap;
use chiton_model::merge::Settled;
use chiton_model::merge::{Conflict, ConflictKind, Resolution};
use chiton_types::{Ino, Kind, Refusal};

use super::foreign::is_changed;
use super::locate::Located;
use super::{MergeContext, MergeStep, Skipped, found};
use crate::fault::Fault;
use crate::inode::Inode;
use crate::namespace::{Known, Namespace};

impl Namespace {
    pub(super) fn merge_link(
        &self,
        event: &mut Event,
        map: &mut MergeMap,
        ctx: &MergeContext<'_>,
        report: &mut Vec<Conflict>,
    ) -> Result<MergeStep, Fault> {
        let Event::Link { parent, name, ino, time } = event else { unreachable!("asked for a link") };
        *parent = map.translate(*parent);
        *ino = map.translate(*ino);
        let dir = found!(self.merge_dir(*parent, map, *time, ctx.is_open, report));
        let inode = match self.locate(*ino, map)? {
            Located::Live(inode) if inode.kind == Kind::Dir => {
                return Ok(MergeStep::Skip(Skipped::Invalid("a further name of a directory")));
            }
            Located::Live(inode) => inode,
            Located::Removed(inode) if inode.kind != Kind::Dir => {
                return self.bring_back(inode, ConflictKind::EditDelete, map, *time, ctx.is_open, report);
            }
            Located::Removed(_) | Located::Gone => return Ok(MergeStep::Skip(Skipped::Gone)),
            Located::Outside => return Ok(MergeStep::Skip(Skipped::Outside)),
        };
        if inode.nlink >= LINKS_MAX {
            return Err(Refusal::TooManyLinks.into());
        }
        match self.entry(dir, name)? {
            Known::Absent => {
                map.vouch(*ino);
                Ok(MergeStep::Emit)
            }
            Known::Present(slot) if slot.ino == *ino => {
                map.note_agreed(*ino, dir.ino, name, slot.position);
                Ok(MergeStep::Skip(Skipped::Needless))
            }
            Known::Present(slot) => {
                self.displace(dir, name, slot, (false, false), *time, map, ctx.is_open, report)
            }
        }
    }

    pub(super) fn merge_touch(&self, event: &mut Event, map: &mut MergeMap) -> Result<MergeStep, Fault> {
        let Event::Touch { ino, .. } = event else { unreachable!("asked for a touch") };
        *ino = map.translate(*ino);
        Ok(match self.locate(*ino, map)? {
            Located::Live(dir) if dir.kind == Kind::Dir => MergeStep::Emit,
            Located::Live(_) => MergeStep::Skip(Skipped::Invalid("names in what is no directory")),
            // Nothing is left of what happened in it.
            Located::Removed(_) | Located::Gone => MergeStep::Skip(Skipped::Gone),
            Located::Outside => MergeStep::Skip(Skipped::Outside),
        })
    }

    pub(super) fn merge_unlink(
        &self,
        event: &mut Event,
        map: &mut MergeMap,
        ctx: &MergeContext<'_>,
        report: &mut Vec<Conflict>,
    ) -> Result<MergeStep, Fault> {
        let Event::Unlink { parent, name, ino, time, orphan } = event else {
            unreachable!("asked for an unlink")
        };
        *parent = map.translate(*parent);
        *ino = map.translate(*ino);
        let dir = match self.locate(*parent, map)? {
            Located::Live(dir) if dir.kind == Kind::Dir => dir,
            Located::Outside => return Ok(MergeStep::Skip(Skipped::Outside)),
            _ => return Ok(MergeStep::Skip(Skipped::Needless)),
        };
        let (victim, slot) = match self.entry(dir, name)? {
            Known::Present(slot) if slot.ino == *ino => (self.inode(slot.ino)?, slot),
            Known::Present(slot) => {
                let other = self.inode(slot.ino)?;
                // Theirs moved here what ours has elsewhere.
                let moved = other.kind != Kind::Dir && other.nlink <= 1 && map.may_know(other.ino);
                return match self.unlink_elsewhere(event, map, ctx, report)? {
                    None if !moved => self.unlink_other(dir, other, event, map, ctx, report),
                    step => Ok(step.unwrap_or(MergeStep::Skip(Skipped::Needless))),
                };
            }
            Known::Absent => {
                let step = self.unlink_elsewhere(event, map, ctx, report)?;
                return Ok(step.unwrap_or(MergeStep::Skip(Skipped::Needless)));
            }
        };
        let kind = if victim.kind == Kind::Dir {
            (victim.extra > 0).then_some(ConflictKind::DeleteFilled)
        } else {
            // What theirs did stays under another name if ours alone gave it this one.
            let is_further = victim.nlink > 1 && map.is_own(slot.position);
            // Ours has the content that theirs gave this file, in a file of its own: taken over after a conflict, for instance.
            let is_same = map.settled(victim.ino, victim.position) == Some(Settled::Same);
            (is_changed(map, victim) && !is_further && !is_same).then_some(ConflictKind::DeleteEdit)
        };
        if let Some(kind) = kind {
            let path = self.path_of(dir.ino, Some(name), map)?;
            match self.conflict(kind, path, victim.ino, None, map, report) {
                Resolution::Ours => {}
                Resolution::Aborted => return Ok(MergeStep::Stop),
                _ => {
                    if victim.kind == Kind::Dir {
                        map.note_standing(victim.ino);
                    }
                    return Ok(MergeStep::Skip(Skipped::Theirs));
                }
            }
        }
        let (place, time, is_kept) = ((dir.ino, name.clone()), *time, *orphan);
        // What is open on our side lives on: whoever goes on with it opens it here.
        let is_open = |ino: Ino| is_kept || (ctx.is_open)(ino);
        *event = found!(self.removal(victim, place, time, map, &is_open, report));
        Ok(MergeStep::Emit)
    }

    /// Ours removed a name under which there is something else now.
    fn unlink_other(
        &self,
        dir: &Inode,
        other: &Inode,
        event: &mut Event,
        map: &mut MergeMap,
        ctx: &MergeContext<'_>,
        report: &mut Vec<Conflict>,
    ) -> Result<MergeStep, Fault> {
        let Event::Unlink { name, ino, orphan, .. } = event else { unreachable!("asked for an unlink") };
        let is_dir = other.kind == Kind::Dir;
        let kind = if is_dir { ConflictKind::DeleteDir } else { ConflictKind::DeleteFile };
        // Where ours made the same there afterwards, it takes the place of theirs.
        let resolution = match map.settled(other.ino, other.position) == Some(Settled::Same) {
            true => Resolution::Ours,
            false => {
                let path = self.path_of(dir.ino, Some(name), map)?;
                self.conflict(kind, path, other.ino, None, map, report)
            }
        };
        Ok(match resolution {
            Resolution::Ours => {
                *ino = other.ino;
                *orphan = self.stays_as_orphan(other, map, ctx.is_open);
                MergeStep::Emit
            }
            Resolution::Aborted => MergeStep::Stop,
            _ => MergeStep::Skip(Skipped::Theirs),
        })
    }

    /// Ours removed a name under which it is not: theirs moved it, or a merge put it elsewhere. `None`: neither, as both
    /// removed it.
    fn unlink_elsewhere(
        &self,
        event: &mut Event,
        map: &mut MergeMap,
        ctx: &MergeContext<'_>,
        report: &mut Vec<Conflict>,
    ) -> Result<Option<MergeStep>, Fault> {
        let Event::Unlink { parent, name, ino, time, .. } = event else {
            unreachable!("asked for an unlink")
        };
        let Located::Live(moved) = self.locate(*ino, map)? else {
            return Ok(None);
        };
        let place = (*parent, name.clone());
        let is_dir = moved.kind == Kind::Dir;
        // A file with several names may have lost this one only: which of the others was it? None.
        let single = is_dir || (moved.nlink == 1 && !map.taken.has_other(*ino, &place));
        let at = if single && *ino != map.root { self.known_names(moved)?.pop() } else { None };
        let Some((at, since)) = at else { return Ok(None) };
        let by_theirs = map.is_foreign(since);
        let by_merge = map.is_own(since) && !map.taken.holds(*ino, &place);
        if !by_theirs && !by_merge {
            return Ok(None);
        }
        let contradicts = by_theirs || (!is_dir && is_changed(map, moved));
        let kind = match (is_dir && moved.extra > 0, contradicts) {
            (true, _) => Some(ConflictKind::DeleteFilled),
            (false, true) => Some(ConflictKind::DeleteRename),
            (false, false) => None,
        };
        if let Some(kind) = kind {
            let path = self.path_of(moved.parent, Some(&at), map)?;
            match self.conflict(kind, path, moved.ino, None, map, report) {
                Resolution::Ours => {}
                Resolution::Aborted => return Ok(Some(MergeStep::Stop)),
                _ => return Ok(Some(MergeStep::Skip(Skipped::Theirs))),
            }
        }
        let orphan = self.stays_as_orphan(moved, map, ctx.is_open);
        *event = Event::Unlink { parent: moved.parent, name: at, ino: *ino, orphan, time: *time };
        Ok(Some(MergeStep::Emit))
    }
}
