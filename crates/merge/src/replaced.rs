//! Names that ours has of a file and that theirs gave to another (as by saving to a temporary file and renaming it).
//!
//! ```text
//!   base:  f = 1        theirs:  f = 2, and 1 is gone
//!   ours:  chmod f      ──▶  f = 2 with the mode of ours; 1 has it, too
//!          ln f g       ──▶  f = 2, g = 1
//!          ln f g, then a write to f       ──▶  f = 1 and g = 1, as ours wrote it; 2 goes, or is beside it
//! ```
//!
//! Invariants:
//! - Attributes that ours sets under `overwrite` take no content from others. They are set on the file of ours as well: if ours
//!   writes to it afterwards it prevails, whole.
//! - A further name takes none from others: the file of ours has only the new one until ours writes.

use chiton_model::Event;
use chiton_model::merge::{ConflictKind, MergeMap, Place, Resolution};
use chiton_namespace::{Fault, Inode, Known, Namespace};
use chiton_types::{Kind, Time};

use crate::locate::known_names;
use crate::{Merge, MergeStep};

/// A name that ours has of an inode, and the other inode that bears it now.
struct Replacing<'a> {
    place: Place,
    dir: &'a Inode,
    theirs: &'a Inode,
}

/// The names of an inode that theirs gave to other inodes.
fn replacing<'a>(state: &'a Namespace, map: &MergeMap, inode: &Inode) -> Result<Vec<Replacing<'a>>, Fault> {
    let mut all = Vec::new();
    for place in map.contested.of(inode.ino).iter().filter(|place| map.contested.knows(inode.ino, place)) {
        let Some(dir) = state.known_inode(place.0)?.filter(|dir| dir.kind() == Kind::Dir && dir.nlink > 0)
        else {
            continue;
        };
        if let Known::Present(slot) = state.entry(dir, &place.1)?
            && slot.ino != inode.ino
            && map.is_foreign(slot.position)
        {
            all.push(Replacing { place: place.clone(), dir, theirs: state.inode(slot.ino)? });
        }
    }
    Ok(all)
}

/// Those of them that are new to ours, and of the same type.
fn saved_over<'a>(state: &'a Namespace, map: &MergeMap, inode: &Inode) -> Result<Vec<Replacing<'a>>, Fault> {
    if inode.kind() == Kind::Dir {
        return Ok(Vec::new());
    }
    let mut all = replacing(state, map, inode)?;
    all.retain(|one| one.theirs.kind() == inode.kind() && !map.may_know(one.theirs.ino));
    Ok(all)
}

/// The name that a file takes back when ours writes to it: theirs gave it to another, and ours alone gave the file those
/// that it has. A name that theirs gave it, or left it, is a place for the content of ours.
fn name_to_take_back<'a>(
    state: &'a Namespace,
    map: &MergeMap,
    inode: &Inode,
) -> Result<Option<Replacing<'a>>, Fault> {
    if !map.contested.has_any(inode.ino) || inode.nlink == 0 {
        return Ok(None);
    }
    let Some(found) = saved_over(state, map, inode)?.into_iter().next() else { return Ok(None) };
    let is_ours = known_names(state, inode)?.iter().all(|(_, since)| map.is_own(*since));
    Ok(is_ours.then_some(found))
}

/// Whether theirs took a name of a file that ours takes back when it writes.
pub(crate) fn lost_a_name(state: &Namespace, map: &MergeMap, inode: &Inode) -> Result<bool, Fault> {
    Ok(name_to_take_back(state, map, inode)?.is_some())
}

impl<'a> Merge<'a> {
    /// Ours sets attributes of a file that theirs replaced: they are set on both. `None`: an event like any other.
    pub(crate) fn set_of_replaced(
        &mut self,
        event: &Event,
        inode: &Inode,
    ) -> Result<Option<MergeStep>, Fault> {
        let kind = ConflictKind::AttrFile;
        if !self.sets_attributes || kind.resolution(self.map.on_conflict()) != Resolution::Together {
            return Ok(None);
        }
        let mut saved = saved_over(self.state, self.map, inode)?;
        // A further name of theirs is of no file of ours.
        saved.retain(|one| one.theirs.nlink <= 1);
        if saved.is_empty() {
            return Ok(None);
        }
        let mut events = Vec::new();
        for target in std::iter::once(inode).chain(saved.iter().map(|one| one.theirs)) {
            let Some(mut event) = event.with_attributes_of(target.ino) else { continue };
            if self.planned_content(&mut event, target)? == MergeStep::Emit {
                events.push(event);
            }
        }
        for one in saved {
            let is_met = self.map.settled(one.theirs.ino, one.theirs.position).is_some();
            // If ours set something on it before, that was reported.
            if !is_met && self.map.is_foreign(one.theirs.position) {
                let path = self.path_of(one.dir.ino, Some(&one.place.1))?;
                self.conflict(kind, path, one.theirs.ino, None);
            }
        }
        Ok(Some(MergeStep::Instead(events)))
    }

    /// Ours writes to a file that is there by further names of ours alone, and whose name theirs gave to another file: ours has
    /// that name.
    pub(crate) fn take_back_name(&mut self, inode: &Inode, time: Time) -> Result<Option<MergeStep>, Fault> {
        let Some(Replacing { place, dir, theirs }) = name_to_take_back(self.state, self.map, inode)? else {
            return Ok(None);
        };
        let at = (dir, &place.1);
        let taken = self.take_name(at, theirs, ConflictKind::EditFile, false, time, self.ctx.is_open)?;
        Ok(Some(match taken {
            Ok(mut events) => {
                let (parent, name) = place.clone();
                events.push(Event::Link { parent, name, ino: inode.ino, kind: inode.kind(), time });
                self.map.note_placed(inode.ino, &place, &place);
                self.map.vouch(inode.ino);
                MergeStep::First(events)
            }
            Err(step) => step,
        }))
    }

    /// Whether theirs gave a name of a file that they removed to something else, in which ours has no part.
    pub(crate) fn has_replaced_name(&self, inode: &Inode) -> Result<bool, Fault> {
        let all = replacing(self.state, self.map, inode)?;
        let is_met = |one: &Replacing<'_>| self.map.settled(one.theirs.ino, one.theirs.position).is_some();
        Ok(!all.is_empty() && !all.iter().any(is_met))
    }

    /// Ours gives a further name to a file that theirs replaced: it has that one, and theirs keeps the other.
    pub(crate) fn link_replaced(
        &mut self,
        event: &Event,
        dir: &Inode,
        inode: &Inode,
    ) -> Result<MergeStep, Fault> {
        let Event::Link { name, time, .. } = event else { unreachable!("asked for a link") };
        if let Known::Present(slot) = self.state.entry(dir, name)? {
            return self.displace(dir, name, slot, (false, false), *time);
        }
        self.restore_at((dir, name), inode, ConflictKind::EditDelete, *time)
    }
}
