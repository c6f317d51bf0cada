//! Further names, and names less.

use chiton_types::{Kind, Refusal};

use super::conflict::{Conflict, ConflictKind, Resolution};
use super::locate::Located;
use super::{MergeContext, MergeMap, MergeStep, Skipped, found};
use crate::event::Event;
use crate::fault::Fault;
use crate::inode::Inode;
use crate::namespace::{Known, Namespace};
use crate::op::LINKS_MAX;

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
        let dir = found!(self.merge_dir(*parent, map, *time, report));
        let inode = match self.locate(*ino, map)? {
            Located::Live(inode) if inode.kind == Kind::Dir => {
                return Ok(MergeStep::Skip(Skipped::Invalid("a further name of a directory")));
            }
            Located::Live(inode) => inode,
            Located::Removed(inode) if inode.kind != Kind::Dir => {
                return self.bring_back(inode, ConflictKind::EditDelete, map, *time, report);
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
            Known::Present(slot) if slot.ino == *ino => Ok(MergeStep::Skip(Skipped::Needless)),
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
        let Event::Unlink { parent, name, ino, orphan, .. } = event else {
            unreachable!("asked for an unlink")
        };
        *parent = map.translate(*parent);
        *ino = map.translate(*ino);
        let dir = match self.locate(*parent, map)? {
            Located::Live(dir) if dir.kind == Kind::Dir => dir,
            Located::Outside => return Ok(MergeStep::Skip(Skipped::Outside)),
            _ => return Ok(MergeStep::Skip(Skipped::Needless)),
        };
        let found = match self.entry(dir, name)? {
            Known::Present(slot) => Some(self.inode(slot.ino)?),
            Known::Absent => None,
        };
        match found {
            Some(victim) if victim.ino == *ino => {
                let kind = if victim.kind == Kind::Dir {
                    (victim.extra > 0).then_some(ConflictKind::DeleteFilled)
                } else {
                    map.is_changed(victim).then_some(ConflictKind::DeleteEdit)
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
                *orphan = self.stays_as_orphan(victim, map, ctx.is_open);
                Ok(MergeStep::Emit)
            }
            Some(other) => self.unlink_other(dir, other, event, map, ctx, report),
            None => self.unlink_elsewhere(event, map, ctx, report),
        }
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
        let path = self.path_of(dir.ino, Some(name), map)?;
        Ok(match self.conflict(kind, path, other.ino, None, map, report) {
            Resolution::Ours => {
                *ino = other.ino;
                *orphan = self.stays_as_orphan(other, map, ctx.is_open);
                MergeStep::Emit
            }
            Resolution::Aborted => MergeStep::Stop,
            _ => MergeStep::Skip(Skipped::Theirs),
        })
    }

    /// Ours removed a name that is not there: both removed it, or theirs moved it.
    fn unlink_elsewhere(
        &self,
        event: &mut Event,
        map: &mut MergeMap,
        ctx: &MergeContext<'_>,
        report: &mut Vec<Conflict>,
    ) -> Result<MergeStep, Fault> {
        let Event::Unlink { parent, name, ino, orphan, .. } = event else {
            unreachable!("asked for an unlink")
        };
        let Located::Live(moved) = self.locate(*ino, map)? else {
            return Ok(MergeStep::Skip(Skipped::Needless));
        };
        // A file with several names may have lost this one only: which of the others was it? None.
        let single = moved.kind == Kind::Dir || moved.nlink == 1;
        let at = if single { self.known_name(moved)? } else { None };
        let Some(at) = at.filter(|_| moved.ino != map.root && map.is_foreign(moved.position)) else {
            return Ok(MergeStep::Skip(Skipped::Needless));
        };
        let filled = moved.kind == Kind::Dir && moved.extra > 0;
        let kind = if filled { ConflictKind::DeleteFilled } else { ConflictKind::DeleteRename };
        let path = self.path_of(moved.parent, Some(&at), map)?;
        Ok(match self.conflict(kind, path, moved.ino, None, map, report) {
            Resolution::Ours => {
                (*parent, *name) = (moved.parent, at);
                *orphan = self.stays_as_orphan(moved, map, ctx.is_open);
                MergeStep::Emit
            }
            Resolution::Aborted => MergeStep::Stop,
            _ => MergeStep::Skip(Skipped::Theirs),
        })
    }
}
