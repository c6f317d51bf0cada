//! Names that moved.

use chiton_model::LINKS_MAX;
use chiton_model::merge::MergeMap;
use chiton_model::merge::Place;
use chiton_model::merge::{Conflict, ConflictKind, Resolution};
use chiton_model::{Event, Over};
use chiton_types::{Ino, Kind, Name, Position, Refusal, Time};

use super::foreign::is_changed;
use super::locate::{Found, Located};
use super::{MergeContext, MergeStep, Skipped, found};
use crate::fault::Fault;
use crate::inode::Inode;
use crate::namespace::{Known, Namespace};

/// Where the inode is on the server before its name moves.
struct Source<'a> {
    inode: &'a Inode,
    dir: &'a Inode,
    /// None of its names moves if there is none: it gets a further one.
    name: Option<Name>,
}

impl Namespace {
    pub(super) fn merge_rename(
        &self,
        event: &mut Event,
        map: &mut MergeMap,
        ctx: &MergeContext<'_>,
        report: &mut Vec<Conflict>,
    ) -> Result<MergeStep, Fault> {
        let Event::Rename { from, from_name, to, to_name, ino, over, time } = event else {
            unreachable!("asked for a rename")
        };
        let time = *time;
        (*from, *to, *ino) = (map.translate(*from), map.translate(*to), map.translate(*ino));
        if *ino == map.root {
            return Ok(MergeStep::Skip(Skipped::Invalid("the root of the subtree moves")));
        }
        if let Some(unlink) = unlink_instead(*from, from_name, *to, to_name, *ino, over, time, map) {
            *event = unlink;
            return self.merge_unlink(event, map, ctx, report);
        }
        let to_dir = found!(self.merge_dir(*to, map, time, ctx.is_open, report));
        let source = found!(self.source_of(*from, from_name, to_dir, to_name, *ino, time, map, ctx, report));
        let inode = source.inode;
        if inode.kind == Kind::Dir && self.is_at_or_above(inode.ino, to_dir)? {
            return self.stands(ConflictKind::Loop, inode, map, report);
        }
        let is_dir = inode.kind == Kind::Dir;
        let exchange = matches!(over, Over::Exchanged { .. });
        let expected = over.ino().map(|ino| map.translate(ino));
        let target = match self.entry(to_dir, to_name)? {
            Known::Present(slot) => Some((slot, self.inode(slot.ino)?)),
            Known::Absent => None,
        };
        let gains = is_dir && source.dir.ino != to_dir.ino;
        let new_over = match target {
            Some((slot, target)) if target.ino == inode.ino => {
                map.note_agreed(target.ino, to_dir.ino, to_name, slot.position);
                return Ok(already_there(&source, to_dir, to_name, time));
            }
            None if gains && to_dir.nlink >= LINKS_MAX => return Err(Refusal::TooManyLinks.into()),
            None if source.name.is_none() => {
                map.vouch(inode.ino);
                let (parent, name) = (to_dir.ino, to_name.clone());
                return Ok(MergeStep::First(vec![Event::Link { parent, name, ino: inode.ino, time }]));
            }
            None => Over::Nothing,
            Some((_, target)) if exchange && expected == Some(target.ino) => {
                if target.kind == Kind::Dir && self.is_at_or_above(target.ino, source.dir)? {
                    return self.stands(ConflictKind::Loop, inode, map, report);
                }
                let target_gains = target.kind == Kind::Dir && source.dir.ino != to_dir.ino;
                if (gains && target.kind != Kind::Dir && to_dir.nlink >= LINKS_MAX)
                    || (target_gains && !is_dir && source.dir.nlink >= LINKS_MAX)
                {
                    return Err(Refusal::TooManyLinks.into());
                }
                Over::Exchanged { ino: target.ino }
            }
            Some((slot, target)) => {
                let place = (to_dir.ino, to_name.clone());
                let is_as_known = || match is_dir {
                    true => target.extra == 0,
                    false => !is_changed(map, target) && !map.taken.has_other(target.ino, &place),
                };
                let as_expected =
                    expected == Some(target.ino) && (target.kind == Kind::Dir) == is_dir && is_as_known();
                // Ours has it under another name as well, which others took: it is not theirs, and gets that one.
                let stays_ours = expected == Some(target.ino)
                    && !is_dir
                    && !is_changed(map, target)
                    && map.taken.has_other(target.ino, &place);
                if stays_ours {
                    let given = found!(self.removal(target, place, time, map, ctx.is_open, report));
                    return Ok(MergeStep::First(vec![given]));
                }
                if !as_expected {
                    let how = (is_dir, expected == Some(target.ino));
                    return self.displace(to_dir, to_name, slot, how, time, map, ctx.is_open, report);
                }
                // What is open on our side lives on: whoever goes on with it opens it here.
                let is_kept = matches!(over, Over::Replaced { orphan: true, .. });
                let is_open = |ino: Ino| is_kept || (ctx.is_open)(ino);
                if source.name.is_none() {
                    let gone = found!(self.removal(target, place, time, map, &is_open, report));
                    return Ok(MergeStep::First(vec![gone]));
                }
                Over::Replaced { ino: target.ino, orphan: self.stays_as_orphan(target, map, &is_open) }
            }
        };
        let Some(name) = source.name else { return Ok(MergeStep::Skip(Skipped::Theirs)) };
        (*from, *from_name, *over) = (source.dir.ino, name, new_over);
        Ok(MergeStep::Emit)
    }

    /// Finds what moves: under the name that ours knows, or under one that theirs gave it, or brings it back.
    #[expect(clippy::too_many_arguments)]
    fn source_of<'a>(
        &'a self,
        from: Ino,
        from_name: &Name,
        to_dir: &'a Inode,
        to_name: &Name,
        ino: Ino,
        time: Time,
        map: &mut MergeMap,
        ctx: &MergeContext<'_>,
        report: &mut Vec<Conflict>,
    ) -> Found<Source<'a>> {
        let from_dir = match self.locate(from, map)? {
            Located::Live(dir) if dir.kind == Kind::Dir => Some(dir),
            Located::Outside => return Ok(Err(MergeStep::Skip(Skipped::Outside))),
            _ => None,
        };
        if let Some(dir) = from_dir
            && let Known::Present(slot) = self.entry(dir, from_name)?
            && slot.ino == ino
        {
            return Ok(Ok(Source { inode: self.inode(ino)?, dir, name: Some(from_name.clone()) }));
        }
        let inode = match self.locate(ino, map)? {
            Located::Live(inode) => inode,
            Located::Removed(inode) => {
                return Ok(Err(self.bring_back(
                    inode,
                    ConflictKind::RenameDelete,
                    map,
                    time,
                    ctx.is_open,
                    report,
                )?));
            }
            Located::Gone => return Ok(Err(MergeStep::Skip(Skipped::Gone))),
            Located::Outside => return Ok(Err(MergeStep::Skip(Skipped::Outside))),
        };
        if let Known::Present(slot) = self.entry(to_dir, to_name)?
            && slot.ino == ino
        {
            map.note_agreed(ino, to_dir.ino, to_name, slot.position);
            return Ok(Err(MergeStep::Skip(Skipped::Needless)));
        }
        let is_dir = inode.kind == Kind::Dir;
        if is_dir && self.is_at_or_above(ino, to_dir)? {
            return Ok(Err(self.stands(ConflictKind::Loop, inode, map, report)?));
        }
        let moved = self.moved_to(inode, &(from, from_name.clone()), map)?;
        let path = self.path_of(to_dir.ino, Some(to_name), map)?;
        let kind = match moved {
            // It has other names, and has lost this one.
            None if !is_dir && map.taken.holds(ino, &(from, from_name.clone())) => ConflictKind::RenameDelete,
            _ if is_dir => ConflictKind::RenameRenameDir,
            _ => ConflictKind::RenameRename,
        };
        // Ours may have changed the row since: the name says who moved it.
        let by_theirs = moved.as_ref().is_none_or(|(_, since)| map.is_foreign(*since));
        let resolution = if map.is_foreign(inode.position) || by_theirs {
            self.conflict(kind, path, ino, None, map, report)
        } else {
            Resolution::Ours
        };
        let may_link = !is_dir && inode.nlink < LINKS_MAX;
        Ok(match (resolution, moved) {
            (Resolution::Aborted, _) => Err(MergeStep::Stop),
            (Resolution::BothNames, _) | (_, None) if may_link => {
                Ok(Source { inode, dir: to_dir, name: None })
            }
            (_, Some((name, _))) => {
                Ok(Source { inode, dir: self.dir_inode(inode.parent)?, name: Some(name) })
            }
            (_, None) => Err(MergeStep::Skip(Skipped::Theirs)),
        })
    }

    /// The name that stands on the server for one that ours has and it has not, and since when: theirs moved it there, or
    /// a merge put it there. `None` if none is known to, since ours may have all that there are as well.
    fn moved_to(
        &self,
        inode: &Inode,
        from: &Place,
        map: &MergeMap,
    ) -> Result<Option<(Name, Position)>, Fault> {
        let names = self.known_names(inode)?;
        let is_dir = inode.kind == Kind::Dir;
        let alone = is_dir || inode.nlink <= 1;
        let was_taken = map.taken.holds(inode.ino, from);
        let stands = |(name, since): &&(Name, Position)| {
            let is_ours = map.taken.holds(inode.ino, &(inode.parent, name.clone()));
            let by_merge = alone && map.is_own(*since) && !was_taken;
            is_dir || (map.is_foreign(*since) && !is_ours) || by_merge
        };
        Ok(names.iter().find(stands).cloned())
    }

    /// Theirs stays as it is.
    fn stands(
        &self,
        kind: ConflictKind,
        inode: &Inode,
        map: &MergeMap,
        report: &mut Vec<Conflict>,
    ) -> Result<MergeStep, Fault> {
        let path = self.path_to(inode, map)?;
        Ok(match self.conflict(kind, path, inode.ino, None, map, report) {
            Resolution::Aborted => MergeStep::Stop,
            _ => MergeStep::Skip(Skipped::Theirs),
        })
    }
}

/// The rest of a move whose directory or file both sides removed: the old name goes. Ours later removes everything that it moves into
/// such a directory, and a file that such a file replaced is gone.
#[expect(clippy::too_many_arguments)]
fn unlink_instead(
    from: Ino,
    from_name: &Name,
    to: Ino,
    to_name: &Name,
    ino: Ino,
    over: &Over,
    time: Time,
    map: &MergeMap,
) -> Option<Event> {
    let unlink = |parent: Ino, name: &Name, ino: Ino, orphan: bool| {
        Some(Event::Unlink { parent, name: name.clone(), ino, orphan, time })
    };
    match over {
        _ if map.is_agreed_gone(to) => unlink(from, from_name, ino, false),
        Over::Replaced { ino: victim, orphan } if map.is_agreed_gone(ino) => {
            unlink(to, to_name, *victim, *orphan)
        }
        _ => None,
    }
}

/// The new name is a name of what moves: theirs did the same, or they are two names of one file, of which the old goes.
fn already_there(source: &Source<'_>, to_dir: &Inode, to_name: &Name, time: Time) -> MergeStep {
    let Some(name) = source.name.clone() else { return MergeStep::Skip(Skipped::Needless) };
    let same = source.dir.ino == to_dir.ino && name == *to_name;
    if same || source.inode.kind == Kind::Dir || source.inode.nlink < 2 {
        return MergeStep::Skip(Skipped::Needless);
    }
    let (parent, ino) = (source.dir.ino, source.inode.ino);
    MergeStep::First(vec![Event::Unlink { parent, name, ino, orphan: false, time }])
}
