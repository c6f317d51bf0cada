//! Where things are on the server: is it there, is it below the root, what is it called, which name is free.

use chiton_model::merge::{Conflict, ConflictKind, MergeMap, Place, Resolution, Settled};
use chiton_model::{Event, Over};
use chiton_namespace::{Fault, Inode, Known, Namespace, Slot};
use chiton_types::{Ino, Kind, Name, Position, Refusal, Time};

use crate::foreign::is_changed;
use crate::{Merge, MergeStep, Skipped, found};

/// An answer, or the step that must be taken instead.
pub(crate) type Found<T> = Result<Result<T, MergeStep>, Fault>;

/// An inode of the decoupled side, on the server.
pub(crate) enum Located<'a> {
    Live(&'a Inode),
    /// Others took its last name; it can be brought back.
    Removed(&'a Inode),
    Gone,
    Outside,
}

/// Longest walk to the root: deeper trees than a path can name are nobody's.
const DEPTH_MAX: usize = 1 << 16;

impl<'a> Merge<'a> {
    pub(crate) fn locate(&mut self, ino: Ino) -> Result<Located<'a>, Fault> {
        let inode = match self.state.inode(ino) {
            Ok(inode) => inode,
            Err(Fault::Refused(_)) => return Ok(Located::Gone),
            Err(fault) => return Err(fault),
        };
        if inode.nlink == 0 {
            let removed = self.map.contested.has_any(ino) && !self.map.is_agreed_gone(ino);
            return Ok(if removed { Located::Removed(inode) } else { Located::Gone });
        }
        let is_dir = inode.kind() == Kind::Dir;
        let dir = if is_dir { inode.ino } else { inode.parent };
        // A file with several names may have been born in a directory that is gone.
        let inside = self.is_below_root(dir)? || (!is_dir && self.map.is_vouched(ino));
        if inside && !is_dir && inode.nlink > 1 {
            self.map.vouch(ino);
        }
        Ok(if inside { Located::Live(inode) } else { Located::Outside })
    }

    #[inline]
    fn is_below_root(&mut self, dir: Ino) -> Result<bool, Fault> {
        if dir == self.map.root() || self.map.is_inside(dir) {
            return Ok(true);
        }
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == self.map.root() || self.map.is_inside(at) {
                self.map.note_inside(dir);
                return Ok(true);
            }
            let inode = match self.state.inode(at) {
                Ok(inode) => inode,
                // Another plate's directory is above the subtree.
                Err(Fault::Refused(_) | Fault::Elsewhere(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            };
            if self.state.policy(at).is_some()
                || inode.parent == at
                || (inode.nlink == 0 && !self.map.contested.has_any(at))
            {
                return Ok(false);
            }
            at = inode.parent;
        }
        Ok(false)
    }

    /// The directory in which an event changes a name; brings it back if others removed it.
    #[inline]
    pub(crate) fn merge_dir(&mut self, ino: Ino, time: Time) -> Found<&'a Inode> {
        Ok(match self.locate(ino)? {
            Located::Live(inode) if inode.kind() == Kind::Dir => Ok(inode),
            Located::Live(_) => {
                Err(MergeStep::Skip(Skipped::Invalid("names in an inode that is no directory")))
            }
            Located::Removed(inode) if inode.kind() == Kind::Dir => {
                Err(self.bring_back(inode, ConflictKind::EditDelete, time, self.ctx.is_open)?)
            }
            Located::Removed(_) => {
                Err(MergeStep::Skip(Skipped::Invalid("names in an inode that is no directory")))
            }
            Located::Gone => Err(MergeStep::Skip(Skipped::Gone)),
            Located::Outside => Err(MergeStep::Skip(Skipped::Outside)),
        })
    }

    /// Gives what others removed a name again: the one that it had, or one beside it.
    pub(crate) fn bring_back(
        &mut self,
        inode: &Inode,
        kind: ConflictKind,
        time: Time,
        is_open: &dyn Fn(Ino) -> bool,
    ) -> Result<MergeStep, Fault> {
        let (mut inode, mut kind, wanted) = (inode, kind, inode.ino);
        let mut above = None;
        // The directory that held it may be removed too: that comes back first. Names of directories lead upwards, as ours has them.
        for _ in 0..DEPTH_MAX {
            let (parent, _) =
                self.map.contested.last_except(inode.ino, None).cloned().expect("it was located as removed");
            match self.locate(parent)? {
                Located::Removed(dir) if dir.ino != inode.ino && dir.kind() == Kind::Dir => {
                    (inode, kind) = (dir, ConflictKind::EditDelete);
                }
                found => {
                    above = Some(found);
                    break;
                }
            }
        }
        let place =
            self.map.contested.last_except(inode.ino, None).cloned().expect("it was located as removed");
        let above = match above {
            Some(Located::Live(dir)) if dir.kind() == Kind::Dir => dir,
            _ => match self.locate(self.map.root())? {
                Located::Live(root) => root,
                _ => return Ok(MergeStep::Skip(Skipped::Gone)),
            },
        };
        let mut events = Vec::new();
        let name = match self.state.entry(above, &place.1)? {
            Known::Absent => place.1.clone(),
            // Theirs put something else under the name that ours has: ours has the name.
            Known::Present(slot)
                if kind == ConflictKind::EditDelete
                    && above.ino == place.0
                    && self.map.is_foreign(slot.position)
                    // A directory destroys no file: it comes back beside it.
                    && (inode.kind() != Kind::Dir || slot.kind() == Some(Kind::Dir)) =>
            {
                let theirs = self.state.inode(slot.ino)?;
                let moved = is_elsewhere(theirs, self.map);
                let kind = match theirs.kind() == Kind::Dir {
                    _ if moved => ConflictKind::FileMoved,
                    false if self.sets_attributes && theirs.kind() != inode.kind() => ConflictKind::AttrOther,
                    false if self.sets_attributes && theirs.nlink <= 1 && !self.map.may_know(theirs.ino) => {
                        ConflictKind::AttrFile
                    }
                    false => ConflictKind::EditFile,
                    true => ConflictKind::EditDir,
                };
                let at = (above, &place.1);
                events.extend(found!(self.take_name(at, theirs, kind, moved, time, is_open)));
                place.1.clone()
            }
            Known::Present(_) => self.free_name(above, &place.1, b".ours")?,
        };
        if events.is_empty() {
            let path = self.path_of(above.ino, Some(&name))?;
            if self.conflict(kind, path, inode.ino, None) == Resolution::Aborted {
                return Ok(MergeStep::Stop);
            }
        }
        // Ours changes the directory itself, or only needs it for something in it.
        let is_whole = inode.ino == wanted && (kind == ConflictKind::RenameDelete || self.sets_attributes);
        let restored = self.restored(inode, (above.ino, &name), is_whole, time)?;
        events.extend(restored);
        self.map.note_placed(inode.ino, &place, &(above.ino, name));
        Ok(MergeStep::First(events))
    }

    /// Whether others changed an inode itself after the base, and ours has not met that.
    pub(crate) fn is_changed(&self, inode: &Inode) -> bool {
        is_changed(self.map, inode)
    }

    /// This name, or one beside it if it is not free.
    fn own_name(&self, dir: &Inode, name: &Name) -> Result<Name, Fault> {
        match self.state.entry(dir, name)? {
            Known::Absent => Ok(name.clone()),
            Known::Present(_) => self.free_name(dir, name, b".ours"),
        }
    }

    /// Takes a name from an inode. A file that ours has under another name, which others took, gets that one again: it is
    /// not what ours removes.
    pub(crate) fn removal(
        &mut self,
        inode: &Inode,
        place: Place,
        time: Time,
        is_open: &dyn Fn(Ino) -> bool,
    ) -> Found<Event> {
        let last = inode.kind() != Kind::Dir && inode.nlink <= 1;
        let other = self.map.contested.last_except(inode.ino, Some(&place)).filter(|_| last).cloned();
        let (parent, name) = place;
        let Some(other) = other else {
            let orphan = self.stays_as_orphan(inode, is_open);
            return Ok(Ok(Event::Unlink { parent, name, ino: inode.ino, orphan, kind: inode.kind(), time }));
        };
        let dir = match self.locate(other.0)? {
            Located::Live(dir) if dir.kind() == Kind::Dir => dir,
            Located::Removed(dir) if dir.kind() == Kind::Dir => {
                return Ok(Err(self.bring_back(dir, ConflictKind::EditDelete, time, is_open)?));
            }
            _ => self.state.dir_inode(self.map.root())?,
        };
        // Theirs put another file under the name that ours has: ours has the name.
        if let Known::Present(slot) = self.state.entry(dir, &other.1)?
            && dir.ino == other.0
            && slot.kind() != Some(Kind::Dir)
            && self.map.is_foreign(slot.position)
            && !self.is_changed(inode)
        {
            let theirs = self.state.inode(slot.ino)?;
            if !is_elsewhere(theirs, self.map) {
                let (at, kind) = ((dir, &other.1), ConflictKind::EditFile);
                let away = self.take_name(at, theirs, kind, false, time, is_open)?;
                return Ok(Err(away.map_or_else(|step| step, MergeStep::First)));
            }
        }
        let to_name = self.own_name(dir, &other.1)?;
        self.map.note_placed(inode.ino, &other, &(dir.ino, to_name.clone()));
        let (ino, kind, to, over) = (inode.ino, inode.kind(), dir.ino, Over::Nothing);
        Ok(Ok(Event::Rename { from: parent, from_name: name, to, to_name, ino, kind, over, time }))
    }

    /// Reports a conflict, and returns its resolution.
    pub(crate) fn conflict(
        &mut self,
        kind: ConflictKind,
        path: Vec<u8>,
        ino: Ino,
        aside: Option<Name>,
    ) -> Resolution {
        let resolution = kind.resolution(self.map.on_conflict());
        let beside = matches!(resolution, Resolution::TheirsAside | Resolution::TheirsCopied);
        let conflict = Conflict { kind, resolution, path, ino, aside: aside.filter(|_| beside) };
        // An event that is asked for again may meet its conflict again.
        if !self.report.iter().rev().take(4).any(|reported| *reported == conflict) {
            self.report.push(conflict);
        }
        resolution
    }

    /// Puts what bears a name out of the way of ours, as the table says. `meant`: ours knew that it bears that name.
    pub(crate) fn displace(
        &mut self,
        dir: &Inode,
        name: &Name,
        slot: &Slot,
        (ours_is_dir, meant): (bool, bool),
        time: Time,
    ) -> Result<MergeStep, Fault> {
        let theirs = self.state.inode(slot.ino)?;
        // Ours has it, and not under this name: it did not mean to destroy it.
        let moved = !meant && is_elsewhere(theirs, self.map);
        let kind = match (ours_is_dir, theirs.kind() == Kind::Dir) {
            _ if moved => ConflictKind::FileMoved,
            (false, false) => ConflictKind::FileFile,
            (true, false) => ConflictKind::DirFile,
            (false, true) => ConflictKind::FileDir,
            (true, true) => ConflictKind::DirDir,
        };
        let events = self.take_name((dir, name), theirs, kind, moved, time, self.ctx.is_open)?;
        Ok(events.map_or_else(|step| step, MergeStep::First))
    }

    /// The events that take a name from the inode that bears it, as the table says.
    pub(crate) fn take_name(
        &mut self,
        (dir, name): (&Inode, &Name),
        theirs: &Inode,
        kind: ConflictKind,
        moved: bool,
        time: Time,
        is_open: &dyn Fn(Ino) -> bool,
    ) -> Found<Vec<Event>> {
        let aside = self.free_name(dir, name, b".theirs")?;
        let path = self.path_of(dir.ino, Some(name))?;
        let (dir, ino) = (dir.ino, theirs.ino);
        let is_settled = match self.map.settled(theirs.ino, theirs.position) {
            Some(Settled::Same) => kind.is_of_texts() || kind == ConflictKind::FileMoved,
            settled => kind.is_of_texts() && settled.is_some(),
        };
        let resolution = match is_settled {
            true => {
                self.note_settled(kind, path, theirs);
                Resolution::Ours
            }
            false => self.conflict(kind, path, ino, Some(aside.clone())),
        };
        Ok(match resolution {
            Resolution::Ours => {
                let place = (dir, name.clone());
                self.removal(theirs, place, time, is_open)?.map(|event| vec![event])
            }
            Resolution::Aborted => Err(MergeStep::Stop),
            _ => {
                if moved && let Some(place) = self.map.contested.last_except(ino, None).cloned() {
                    // There it stands for the inode that ours has under that name.
                    self.map.note_placed(ino, &place, &(dir, aside.clone()));
                }
                Ok(vec![Event::Rename {
                    from: dir,
                    from_name: name.clone(),
                    to: dir,
                    to_name: aside,
                    ino,
                    kind: theirs.kind(),
                    over: Over::Nothing,
                    time,
                }])
            }
        })
    }

    /// Whether an inode that loses one name now lives on as an orphan, if that was its last. One that theirs took
    /// another name of does: ours may know it by that name, and still use it.
    pub(crate) fn stays_as_orphan(&self, victim: &Inode, is_open: &dyn Fn(Ino) -> bool) -> bool {
        let last = victim.kind() == Kind::Dir || victim.nlink <= 1;
        let wanted = victim.is_mapped() || self.map.contested.has_any(victim.ino) || is_open(victim.ino);
        last && wanted
    }

    /// `name` with a suffix, and a number if that is taken; cut so that it is a name.
    pub(crate) fn free_name(&self, dir: &Inode, name: &Name, suffix: &[u8]) -> Result<Name, Fault> {
        for n in 1..=u32::MAX {
            let mut end = suffix.to_vec();
            if n > 1 {
                end.extend_from_slice(format!("-{n}").as_bytes());
            }
            let keep = name.as_bytes().len().min(chiton_types::NAME_BYTES_MAX - end.len());
            let candidate = Name::new(&[&name.as_bytes()[..keep], &end].concat())?;
            if let Known::Absent = self.state.entry(dir, &candidate)? {
                return Ok(candidate);
            }
        }
        Err(Refusal::Exists.into())
    }

    /// A name that an inode bears in a directory.
    fn name_in(&self, dir: Ino, ino: Ino) -> Result<Option<Name>, Fault> {
        Ok(self.state.names_in(dir, ino)?.into_iter().next().map(|(name, _)| name))
    }

    /// The path from the decoupled subtree's root, for reports.
    pub(crate) fn path_of(&self, dir: Ino, name: Option<&Name>) -> Result<Vec<u8>, Fault> {
        let mut parts: Vec<Name> = name.cloned().into_iter().collect();
        let mut at = dir;
        while at != self.map.root() && parts.len() < DEPTH_MAX {
            let Ok(inode) = self.state.inode(at) else { break };
            match self.name_in(inode.parent, at) {
                Ok(Some(name)) => parts.push(name),
                Ok(None) | Err(Fault::Refused(_)) => break,
                Err(fault) => return Err(fault),
            }
            at = inode.parent;
        }
        parts.reverse();
        Ok(parts.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/'))
    }

    /// The path of an inode by one of its names.
    pub(crate) fn path_to(&self, inode: &Inode) -> Result<Vec<u8>, Fault> {
        if inode.ino == self.map.root() {
            return Ok(Vec::new());
        }
        match known_name(self.state, inode)? {
            Some(name) => self.path_of(inode.parent, Some(&name)),
            None => Ok(unnamed(inode.ino).as_bytes().to_vec()),
        }
    }
}

/// Whether this is a file that ours knows, and by its one name is where ours has another.
fn is_elsewhere(theirs: &Inode, map: &MergeMap) -> bool {
    theirs.kind() != Kind::Dir && theirs.nlink <= 1 && map.may_know(theirs.ino)
}

/// A name for a file none of whose names is known.
pub(crate) fn unnamed(ino: Ino) -> Name {
    Name::new(format!("inode-{ino}").as_bytes()).expect("digits")
}

/// The names of an inode in the directory that its row names, if that is still its place.
pub(crate) fn known_names(state: &Namespace, inode: &Inode) -> Result<Vec<(Name, Position)>, Fault> {
    match state.names_in(inode.parent, inode.ino) {
        Err(Fault::Refused(_)) => Ok(Vec::new()),
        other => other,
    }
}

/// The first of these names.
pub(crate) fn known_name(state: &Namespace, inode: &Inode) -> Result<Option<Name>, Fault> {
    Ok(known_names(state, inode)?.into_iter().next().map(|(name, _)| name))
}
