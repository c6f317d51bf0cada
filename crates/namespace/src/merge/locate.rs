//! Where things are on the server: is it there, is it below the root, what is it called, which name is free.

use chiton_model::merge::MergeMap;
use chiton_model::merge::Place;
use chiton_model::merge::Settled;
use chiton_model::merge::{Conflict, ConflictKind, Resolution};
use chiton_model::{Event, Over};
use chiton_types::{Ino, Kind, Name, Position, Refusal, Time};

use super::foreign::is_changed;
use super::{MergeStep, Skipped, found};
use crate::dir::Slot;
use crate::fault::Fault;
use crate::inode::{COMPLETE, Inode, MAPPED};
use crate::namespace::{Known, Namespace};

/// An answer, or the step that must be taken instead.
pub(super) type Found<T> = Result<Result<T, MergeStep>, Fault>;

/// An inode of the decoupled side, on the server.
pub(super) enum Located<'a> {
    Live(&'a Inode),
    /// Others took its last name; it can be brought back.
    Removed(&'a Inode),
    Gone,
    Outside,
}

/// Longest walk to the root: deeper trees than a path can name are nobody's.
const DEPTH_MAX: usize = 1 << 16;

impl Namespace {
    pub(super) fn locate(&self, ino: Ino, map: &mut MergeMap) -> Result<Located<'_>, Fault> {
        let inode = match self.inode(ino) {
            Ok(inode) => inode,
            Err(Fault::Refused(_)) => return Ok(Located::Gone),
            Err(fault) => return Err(fault),
        };
        if inode.nlink == 0 {
            let removed = map.taken.has_any(ino) && !map.is_agreed_gone(ino);
            return Ok(if removed { Located::Removed(inode) } else { Located::Gone });
        }
        let is_dir = inode.kind == Kind::Dir;
        let dir = if is_dir { inode.ino } else { inode.parent };
        // A file with several names may have been born in a directory that is gone.
        let inside = self.is_below_root(dir, map)? || (!is_dir && map.is_vouched(ino));
        if inside && !is_dir && inode.nlink > 1 {
            map.vouch(ino);
        }
        Ok(if inside { Located::Live(inode) } else { Located::Outside })
    }

    #[inline]
    fn is_below_root(&self, dir: Ino, map: &mut MergeMap) -> Result<bool, Fault> {
        if dir == map.root || map.is_inside(dir) {
            return Ok(true);
        }
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == map.root || map.is_inside(at) {
                map.note_inside(dir);
                return Ok(true);
            }
            let inode = match self.inode(at) {
                Ok(inode) => inode,
                Err(Fault::Refused(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            };
            if self.policy(at).is_some() || inode.parent == at || (inode.nlink == 0 && !map.taken.has_any(at))
            {
                return Ok(false);
            }
            at = inode.parent;
        }
        Ok(false)
    }

    /// The directory in which an event changes a name; brings it back if others removed it.
    #[inline]
    pub(super) fn merge_dir<'a>(
        &'a self,
        ino: Ino,
        map: &mut MergeMap,
        time: Time,
        is_open: &dyn Fn(Ino) -> bool,
        report: &mut Vec<Conflict>,
    ) -> Found<&'a Inode> {
        Ok(match self.locate(ino, map)? {
            Located::Live(inode) if inode.kind == Kind::Dir => Ok(inode),
            Located::Live(_) => Err(MergeStep::Skip(Skipped::Invalid("names in what is no directory"))),
            Located::Removed(inode) if inode.kind == Kind::Dir => {
                Err(self.bring_back(inode, ConflictKind::EditDelete, map, time, is_open, report)?)
            }
            Located::Removed(_) => Err(MergeStep::Skip(Skipped::Invalid("names in what is no directory"))),
            Located::Gone => Err(MergeStep::Skip(Skipped::Gone)),
            Located::Outside => Err(MergeStep::Skip(Skipped::Outside)),
        })
    }

    /// Gives what others removed a name again: the one that it had, or one beside it.
    pub(super) fn bring_back(
        &self,
        inode: &Inode,
        kind: ConflictKind,
        map: &mut MergeMap,
        time: Time,
        is_open: &dyn Fn(Ino) -> bool,
        report: &mut Vec<Conflict>,
    ) -> Result<MergeStep, Fault> {
        let (mut inode, mut kind) = (inode, kind);
        let mut above = None;
        // What held it may be removed too: that comes back first. Names of directories lead upwards, as ours has them.
        for _ in 0..DEPTH_MAX {
            let (parent, _) =
                map.taken.last_but(inode.ino, None).cloned().expect("it was located as removed");
            match self.locate(parent, map)? {
                Located::Removed(dir) if dir.ino != inode.ino && dir.kind == Kind::Dir => {
                    (inode, kind) = (dir, ConflictKind::EditDelete);
                }
                found => {
                    above = Some(found);
                    break;
                }
            }
        }
        let place = map.taken.last_but(inode.ino, None).cloned().expect("it was located as removed");
        let above = match above {
            Some(Located::Live(dir)) if dir.kind == Kind::Dir => dir,
            _ => match self.locate(map.root, map)? {
                Located::Live(root) => root,
                _ => return Ok(MergeStep::Skip(Skipped::Gone)),
            },
        };
        let mut events = Vec::new();
        let name = match self.entry(above, &place.1)? {
            Known::Absent => place.1.clone(),
            // Theirs put something else under the name that ours has: ours has the name.
            Known::Present(slot)
                if kind == ConflictKind::EditDelete
                    && above.ino == place.0
                    && map.is_foreign(slot.position)
                    // A directory destroys no file: it comes back beside it.
                    && (inode.kind != Kind::Dir || slot.kind() == Some(Kind::Dir)) =>
            {
                let theirs = self.inode(slot.ino)?;
                let moved = is_elsewhere(theirs, map);
                let kind = match theirs.kind == Kind::Dir {
                    _ if moved => ConflictKind::FileMoved,
                    false => ConflictKind::EditFile,
                    true => ConflictKind::EditDir,
                };
                let at = (above, &place.1);
                events
                    .extend(found!(self.out_of_the_way(at, theirs, kind, moved, time, map, is_open, report)));
                place.1.clone()
            }
            Known::Present(_) => self.free_name(above, &place.1, b".ours")?,
        };
        if events.is_empty() {
            let path = self.path_of(above.ino, Some(&name), map)?;
            if self.conflict(kind, path, inode.ino, None, map, report) == Resolution::Aborted {
                return Ok(MergeStep::Stop);
            }
        }
        // What theirs did to it before they removed it is not what ours goes on with.
        let reverting = self.reverting(inode, self.file_as_known(inode)?)?;
        events.push(Event::Restore { parent: above.ino, name: name.clone(), ino: inode.ino, time });
        events.extend(reverting.into_iter().flatten());
        map.note_placed(inode.ino, &place, &(above.ino, name));
        // It is as ours has it from here on.
        map.met(inode.ino);
        Ok(MergeStep::First(events))
    }

    /// This name, or one beside it if it is not free.
    fn own_name(&self, dir: &Inode, name: &Name) -> Result<Name, Fault> {
        match self.entry(dir, name)? {
            Known::Absent => Ok(name.clone()),
            Known::Present(_) => self.free_name(dir, name, b".ours"),
        }
    }

    /// Takes a name from an inode. A file that ours has under another name, which others took, gets that one again: it is
    /// not what ours removes.
    pub(super) fn removal(
        &self,
        inode: &Inode,
        place: Place,
        time: Time,
        map: &mut MergeMap,
        is_open: &dyn Fn(Ino) -> bool,
        report: &mut Vec<Conflict>,
    ) -> Found<Event> {
        let last = inode.kind != Kind::Dir && inode.nlink <= 1;
        let other = map.taken.last_but(inode.ino, Some(&place)).filter(|_| last).cloned();
        let (parent, name) = place;
        let Some(other) = other else {
            let orphan = self.stays_as_orphan(inode, map, is_open);
            return Ok(Ok(Event::Unlink { parent, name, ino: inode.ino, orphan, time }));
        };
        let dir = match self.locate(other.0, map)? {
            Located::Live(dir) if dir.kind == Kind::Dir => dir,
            Located::Removed(dir) if dir.kind == Kind::Dir => {
                return Ok(Err(self.bring_back(
                    dir,
                    ConflictKind::EditDelete,
                    map,
                    time,
                    is_open,
                    report,
                )?));
            }
            _ => self.dir_inode(map.root)?,
        };
        // Theirs put another file under the name that ours has: ours has the name.
        if let Known::Present(slot) = self.entry(dir, &other.1)?
            && dir.ino == other.0
            && slot.kind() != Some(Kind::Dir)
            && map.is_foreign(slot.position)
            && !is_changed(map, inode)
        {
            let theirs = self.inode(slot.ino)?;
            if !is_elsewhere(theirs, map) {
                let (at, kind) = ((dir, &other.1), ConflictKind::EditFile);
                let away = self.out_of_the_way(at, theirs, kind, false, time, map, is_open, report)?;
                return Ok(Err(away.map_or_else(|step| step, MergeStep::First)));
            }
        }
        let to_name = self.own_name(dir, &other.1)?;
        map.note_placed(inode.ino, &other, &(dir.ino, to_name.clone()));
        let (ino, to, over) = (inode.ino, dir.ino, Over::Nothing);
        Ok(Ok(Event::Rename { from: parent, from_name: name, to, to_name, ino, over, time }))
    }

    /// Reports a conflict; what to do about it.
    pub(super) fn conflict(
        &self,
        kind: ConflictKind,
        path: Vec<u8>,
        ino: Ino,
        aside: Option<Name>,
        map: &MergeMap,
        report: &mut Vec<Conflict>,
    ) -> Resolution {
        let resolution = kind.resolution(map.on_conflict);
        let beside = matches!(resolution, Resolution::TheirsAside | Resolution::TheirsCopied);
        let conflict = Conflict { kind, resolution, path, ino, aside: aside.filter(|_| beside) };
        // An event that is asked for again may meet its conflict again.
        if !report.iter().rev().take(4).any(|reported| *reported == conflict) {
            report.push(conflict);
        }
        resolution
    }

    /// Puts what bears a name out of the way of ours, as the table says. `meant`: ours knew that it bears that name.
    #[expect(clippy::too_many_arguments)]
    pub(super) fn displace(
        &self,
        dir: &Inode,
        name: &Name,
        slot: &Slot,
        (ours_is_dir, meant): (bool, bool),
        time: Time,
        map: &mut MergeMap,
        is_open: &dyn Fn(Ino) -> bool,
        report: &mut Vec<Conflict>,
    ) -> Result<MergeStep, Fault> {
        let theirs = self.inode(slot.ino)?;
        // Ours has it, and not under this name: it did not mean to destroy it.
        let moved = !meant && is_elsewhere(theirs, map);
        let kind = match (ours_is_dir, theirs.kind == Kind::Dir) {
            _ if moved => ConflictKind::FileMoved,
            (false, false) => ConflictKind::FileFile,
            (true, false) => ConflictKind::DirFile,
            (false, true) => ConflictKind::FileDir,
            (true, true) => ConflictKind::DirDir,
        };
        let events = self.out_of_the_way((dir, name), theirs, kind, moved, time, map, is_open, report)?;
        Ok(events.map_or_else(|step| step, MergeStep::First))
    }

    /// The events that take a name from what bears it, as the table says.
    #[expect(clippy::too_many_arguments)]
    fn out_of_the_way(
        &self,
        (dir, name): (&Inode, &Name),
        theirs: &Inode,
        kind: ConflictKind,
        moved: bool,
        time: Time,
        map: &mut MergeMap,
        is_open: &dyn Fn(Ino) -> bool,
        report: &mut Vec<Conflict>,
    ) -> Found<Vec<Event>> {
        let aside = self.free_name(dir, name, b".theirs")?;
        let path = self.path_of(dir.ino, Some(name), map)?;
        let (dir, ino) = (dir.ino, theirs.ino);
        let is_settled = match map.settled(theirs.ino, theirs.position) {
            Some(Settled::Same) => kind.is_of_texts() || kind == ConflictKind::FileMoved,
            settled => kind.is_of_texts() && settled.is_some(),
        };
        let resolution = match is_settled {
            true => {
                self.note_settled(kind, path, theirs, map, report);
                Resolution::Ours
            }
            false => self.conflict(kind, path, ino, Some(aside.clone()), map, report),
        };
        Ok(match resolution {
            Resolution::Ours => {
                let place = (dir, name.clone());
                self.removal(theirs, place, time, map, is_open, report)?.map(|event| vec![event])
            }
            Resolution::Aborted => Err(MergeStep::Stop),
            _ => {
                if moved && let Some(place) = map.taken.last_but(ino, None).cloned() {
                    // There it stands for what ours has under that name.
                    map.note_placed(ino, &place, &(dir, aside.clone()));
                }
                Ok(vec![Event::Rename {
                    from: dir,
                    from_name: name.clone(),
                    to: dir,
                    to_name: aside,
                    ino,
                    over: Over::Nothing,
                    time,
                }])
            }
        })
    }

    /// Whether an inode that loses one name now lives on as an orphan, if that was its last. One that theirs took
    /// another name of does: ours may know it by that name, and go on with it.
    pub(super) fn stays_as_orphan(
        &self,
        victim: &Inode,
        map: &MergeMap,
        is_open: &dyn Fn(Ino) -> bool,
    ) -> bool {
        let last = victim.kind == Kind::Dir || victim.nlink <= 1;
        let wanted = victim.has(MAPPED) || map.taken.has_any(victim.ino) || is_open(victim.ino);
        last && wanted
    }

    /// `name` with a suffix, and a number if that is taken; cut so that it is a name.
    pub(super) fn free_name(&self, dir: &Inode, name: &Name, suffix: &[u8]) -> Result<Name, Fault> {
        for n in 1..=u32::MAX {
            let mut end = suffix.to_vec();
            if n > 1 {
                end.extend_from_slice(format!("-{n}").as_bytes());
            }
            let keep = name.as_bytes().len().min(chiton_types::NAME_BYTES_MAX - end.len());
            let candidate = Name::new(&[&name.as_bytes()[..keep], &end].concat())?;
            if let Known::Absent = self.entry(dir, &candidate)? {
                return Ok(candidate);
            }
        }
        Err(Refusal::Exists.into())
    }

    /// A name that an inode bears in a directory.
    fn name_in(&self, dir: Ino, ino: Ino) -> Result<Option<Name>, Fault> {
        Ok(self.names_in(dir, ino)?.into_iter().next().map(|(name, _)| name))
    }

    /// The names that an inode bears in a directory, and when it got each, by looking through all of it (only conflicts
    /// ask).
    fn names_in(&self, dir: Ino, ino: Ino) -> Result<Vec<(Name, Position)>, Fault> {
        let inode = self.dir_inode(dir)?;
        if !inode.has(COMPLETE) {
            return Err(self.need_dir(dir));
        }
        let slots = self.dirs.get(&dir).into_iter().flat_map(|d| d.iter_after(0));
        let found = slots.into_iter().filter(|(_, slot)| slot.ino == ino && slot.kind().is_some());
        let named = |name: &[u8]| Name::new(name).expect("names in memory were checked");
        Ok(found.map(|(name, slot)| (named(name), slot.position)).collect())
    }

    /// The names of an inode in the directory that its row names, if that is still its place.
    pub(super) fn known_names(&self, inode: &Inode) -> Result<Vec<(Name, Position)>, Fault> {
        match self.names_in(inode.parent, inode.ino) {
            Err(Fault::Refused(_)) => Ok(Vec::new()),
            other => other,
        }
    }

    /// One of them.
    pub(super) fn known_name(&self, inode: &Inode) -> Result<Option<Name>, Fault> {
        Ok(self.known_names(inode)?.into_iter().next().map(|(name, _)| name))
    }

    /// The path from the decoupled subtree's root, for reports.
    pub(super) fn path_of(&self, dir: Ino, name: Option<&Name>, map: &MergeMap) -> Result<Vec<u8>, Fault> {
        let mut parts: Vec<Name> = name.cloned().into_iter().collect();
        let mut at = dir;
        while at != map.root && parts.len() < DEPTH_MAX {
            let Ok(inode) = self.inode(at) else { break };
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
    pub(super) fn path_to(&self, inode: &Inode, map: &MergeMap) -> Result<Vec<u8>, Fault> {
        if inode.ino == map.root {
            return Ok(Vec::new());
        }
        match self.known_name(inode)? {
            Some(name) => self.path_of(inode.parent, Some(&name), map),
            None => Ok(unnamed(inode.ino).as_bytes().to_vec()),
        }
    }
}

/// Whether this is a file that ours knows, and by its one name is where ours has another.
fn is_elsewhere(theirs: &Inode, map: &MergeMap) -> bool {
    theirs.kind != Kind::Dir && theirs.nlink <= 1 && map.may_know(theirs.ino)
}

/// What stands for a file none of whose names is known.
pub(super) fn unnamed(ino: Ino) -> Name {
    Name::new(format!("inode-{ino}").as_bytes()).expect("digits")
}
