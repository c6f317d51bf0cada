//! Names that moved.

use chiton_model::merge::{ConflictKind, MergeMap, Place, Resolution};
use chiton_model::{Event, LINKS_MAX, Over};
use chiton_namespace::{Fault, Inode, Known};
use chiton_types::{Ino, Kind, Name, Position, Refusal, Time};

use crate::locate::{Found, Located, known_names};
use crate::{Merge, MergeStep, Skipped, found};

/// Where the inode is on the server before its name moves.
struct Source<'a> {
    inode: &'a Inode,
    dir: &'a Inode,
    /// None of its names moves if there is none: it gets a further one.
    name: Option<Name>,
}

impl<'a> Merge<'a> {
    pub(crate) fn merge_rename(&mut self, event: &mut Event) -> Result<MergeStep, Fault> {
        let Event::Rename { from, from_name, to, to_name, ino, kind, over, time } = event else {
            unreachable!("asked for a rename")
        };
        let time = *time;
        (*from, *to, *ino) = (self.map.translate(*from), self.map.translate(*to), self.map.translate(*ino));
        if *ino == self.map.root() {
            return Ok(MergeStep::Skip(Skipped::Invalid("the root of the subtree moves")));
        }
        if let Some(unlink) =
            unlink_instead(*from, from_name, *to, to_name, (*ino, *kind), over, time, self.map)
        {
            *event = unlink;
            return self.merge_unlink(event);
        }
        let to_dir = found!(self.merge_dir(*to, time));
        let source = found!(self.source_of(*from, from_name, to_dir, to_name, *ino, time));
        let inode = source.inode;
        if inode.kind() == Kind::Dir && self.state.is_above(inode.ino, to_dir.ino)? {
            return self.stands(ConflictKind::Loop, inode);
        }
        let is_dir = inode.kind() == Kind::Dir;
        let exchange = matches!(over, Over::Exchanged { .. });
        let expected = over.ino().map(|ino| self.map.translate(ino));
        let target = match self.state.entry(to_dir, to_name)? {
            Known::Present(slot) => Some((slot, self.state.inode(slot.ino)?)),
            Known::Absent => None,
        };
        let gains = is_dir && source.dir.ino != to_dir.ino;
        let new_over = match target {
            Some((slot, target)) if target.ino == inode.ino => {
                self.map.note_agreed(target.ino, to_dir.ino, to_name, slot.position);
                return Ok(already_there(&source, to_dir, to_name, time));
            }
            None if gains && to_dir.nlink >= LINKS_MAX => return Err(Refusal::TooManyLinks.into()),
            None if source.name.is_none() => {
                self.map.vouch(inode.ino);
                let (parent, name) = (to_dir.ino, to_name.clone());
                return Ok(MergeStep::First(vec![Event::Link {
                    parent,
                    name,
                    ino: inode.ino,
                    kind: inode.kind(),
                    time,
                }]));
            }
            None => Over::Nothing,
            Some((_, target)) if exchange && expected == Some(target.ino) => {
                if target.kind() == Kind::Dir && self.state.is_above(target.ino, source.dir.ino)? {
                    return self.stands(ConflictKind::Loop, inode);
                }
                let target_gains = target.kind() == Kind::Dir && source.dir.ino != to_dir.ino;
                if (gains && target.kind() != Kind::Dir && to_dir.nlink >= LINKS_MAX)
                    || (target_gains && !is_dir && source.dir.nlink >= LINKS_MAX)
                {
                    return Err(Refusal::TooManyLinks.into());
                }
                Over::Exchanged { ino: target.ino, kind: target.kind() }
            }
            Some((slot, target)) => {
                let place = (to_dir.ino, to_name.clone());
                // A file that theirs changed stays under another name if ours alone gave it this one.
                let is_further = target.nlink > 1 && self.map.is_own(slot.position);
                let is_as_known = || match is_dir {
                    true => target.entries() == 0,
                    false => {
                        (is_further || !self.is_changed(target))
                            && !self.map.contested.has_other(target.ino, &place)
                    }
                };
                let as_expected =
                    expected == Some(target.ino) && (target.kind() == Kind::Dir) == is_dir && is_as_known();
                // Ours has it under another name as well, which others took: it is not theirs, and gets that one.
                let stays_ours = expected == Some(target.ino)
                    && !is_dir
                    && !self.is_changed(target)
                    && self.map.contested.has_other(target.ino, &place);
                if stays_ours {
                    let given = found!(self.removal(target, place, time, self.ctx.is_open));
                    return Ok(MergeStep::First(vec![given]));
                }
                if !as_expected {
                    let how = (is_dir, expected == Some(target.ino));
                    return self.displace(to_dir, to_name, slot, how, time);
                }
                // An inode that is open on our side lives on: the client that still uses it opens it here.
                let is_kept = matches!(over, Over::Replaced { orphan: true, .. });
                let ctx = self.ctx;
                let is_open = |ino: Ino| is_kept || (ctx.is_open)(ino);
                if source.name.is_none() {
                    let gone = found!(self.removal(target, place, time, &is_open));
                    return Ok(MergeStep::First(vec![gone]));
                }
                let orphan = self.stays_as_orphan(target, &is_open);
                Over::Replaced { ino: target.ino, kind: target.kind(), orphan }
            }
        };
        let Some(name) = source.name else { return Ok(MergeStep::Skip(Skipped::Theirs)) };
        (*from, *from_name, *over) = (source.dir.ino, name, new_over);
        Ok(MergeStep::Emit)
    }

    /// Finds what moves: under the name that ours knows, or under one that theirs gave it, or brings it back.
    fn source_of(
        &mut self,
        from: Ino,
        from_name: &Name,
        to_dir: &'a Inode,
        to_name: &Name,
        ino: Ino,
        time: Time,
    ) -> Found<Source<'a>> {
        let from_dir = match self.locate(from)? {
            Located::Live(dir) if dir.kind() == Kind::Dir => Some(dir),
            Located::Outside => return Ok(Err(MergeStep::Skip(Skipped::Outside))),
            _ => None,
        };
        if let Some(dir) = from_dir
            && let Known::Present(slot) = self.state.entry(dir, from_name)?
            && slot.ino == ino
        {
            return Ok(Ok(Source { inode: self.state.inode(ino)?, dir, name: Some(from_name.clone()) }));
        }
        let inode = match self.locate(ino)? {
            Located::Live(inode) => inode,
            Located::Removed(inode) => {
                let kind = ConflictKind::RenameDelete;
                return Ok(Err(match self.state.entry(to_dir, to_name)? {
                    Known::Absent => self.restore_at((to_dir, to_name), inode, kind, time)?,
                    Known::Present(_) => self.bring_back(inode, kind, time, self.ctx.is_open)?,
                }));
            }
            Located::Gone => return Ok(Err(MergeStep::Skip(Skipped::Gone))),
            Located::Outside => return Ok(Err(MergeStep::Skip(Skipped::Outside))),
        };
        if let Known::Present(slot) = self.state.entry(to_dir, to_name)?
            && slot.ino == ino
        {
            self.map.note_agreed(ino, to_dir.ino, to_name, slot.position);
            return Ok(Err(MergeStep::Skip(Skipped::Needless)));
        }
        let is_dir = inode.kind() == Kind::Dir;
        if is_dir && self.state.is_above(ino, to_dir.ino)? {
            return Ok(Err(self.stands(ConflictKind::Loop, inode)?));
        }
        let moved = self.moved_to(inode, &(from, from_name.clone()))?;
        let path = self.path_of(to_dir.ino, Some(to_name))?;
        let kind = match moved {
            // It has other names, and has lost this one.
            None if !is_dir && self.map.contested.holds(ino, &(from, from_name.clone())) => {
                ConflictKind::RenameDelete
            }
            _ if is_dir => ConflictKind::RenameRenameDir,
            _ => ConflictKind::RenameRename,
        };
        // Ours may have changed the row since: the name says who moved it.
        let by_theirs = moved.as_ref().is_none_or(|(_, since)| self.map.is_foreign(*since));
        let resolution = if self.map.is_foreign(inode.position) || by_theirs {
            self.conflict(kind, path, ino, None)
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
                Ok(Source { inode, dir: self.state.dir_inode(inode.parent)?, name: Some(name) })
            }
            (_, None) => Err(MergeStep::Skip(Skipped::Theirs)),
        })
    }

    /// The name that stands on the server for one that ours has and it has not, and since when: theirs moved it there, or
    /// a merge put it there. `None` if none is known to, since ours may have all that there are as well.
    fn moved_to(&self, inode: &Inode, from: &Place) -> Result<Option<(Name, Position)>, Fault> {
        let names = known_names(self.state, inode)?;
        let is_dir = inode.kind() == Kind::Dir;
        let alone = is_dir || inode.nlink <= 1;
        let was_contested = self.map.contested.holds(inode.ino, from);
        let stands = |(name, since): &&(Name, Position)| {
            let is_ours = self.map.contested.holds(inode.ino, &(inode.parent, name.clone()));
            let by_merge = alone && self.map.is_own(*since) && !was_contested;
            is_dir || (self.map.is_foreign(*since) && !is_ours) || by_merge
        };
        Ok(names.iter().find(stands).cloned())
    }

    /// Theirs stays as it is.
    fn stands(&mut self, kind: ConflictKind, inode: &Inode) -> Result<MergeStep, Fault> {
        let path = self.path_to(inode)?;
        Ok(match self.conflict(kind, path, inode.ino, None) {
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
    (ino, kind): (Ino, Kind),
    over: &Over,
    time: Time,
    map: &MergeMap,
) -> Option<Event> {
    let unlink = |parent: Ino, name: &Name, (ino, kind): (Ino, Kind), orphan: bool| {
        Some(Event::Unlink { parent, name: name.clone(), ino, orphan, kind, time })
    };
    match over {
        _ if map.is_agreed_gone(to) => unlink(from, from_name, (ino, kind), false),
        Over::Replaced { ino: victim, kind, orphan } if map.is_agreed_gone(ino) => {
            unlink(to, to_name, (*victim, *kind), *orphan)
        }
        _ => None,
    }
}

/// The new name is already a name of the inode that moves: theirs did the same, or they are two names of one file, of which the old goes.
fn already_there(source: &Source<'_>, to_dir: &Inode, to_name: &Name, time: Time) -> MergeStep {
    let Some(name) = source.name.clone() else { return MergeStep::Skip(Skipped::Needless) };
    let same = source.dir.ino == to_dir.ino && name == *to_name;
    if same || source.inode.kind() == Kind::Dir || source.inode.nlink < 2 {
        return MergeStep::Skip(Skipped::Needless);
    }
    let (parent, ino, kind) = (source.dir.ino, source.inode.ino, source.inode.kind());
    MergeStep::First(vec![Event::Unlink { parent, name, ino, orphan: false, kind, time }])
}
