//! Inodes that theirs removed and ours has, put under a name again: a file, or a directory with everything that ours has in it.
//!
//! ```text
//!   base: d/f      theirs: rm -r d      ours: mv d e   ──▶   e/f
//!                                       ours: put d/g  ──▶   d/g      (theirs removed d/f, which ours did not change)
//! ```
//!
//! Invariants:
//! - Entries come back only with a directory that ours itself moved or changed. Those that theirs moved elsewhere stay there.
//! - All is in memory before anything is decided, so that a directory comes back in one frame.

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::merge::{ConflictKind, Place, Resolution};
use chiton_model::{Event, LINKS_MAX};
use chiton_namespace::{Fault, Inode};
use chiton_types::{Ino, Kind, Name, Refusal, Time};

use crate::{Merge, MergeStep};

/// Most bytes of events that bring one directory back: they are in one frame.
const RESTORED_BYTES_MAX: usize = 16 << 20;

impl<'a> Merge<'a> {
    /// The events that give a removed inode a name, as ours has it; `is_whole`: with its entries, if it is a directory. From
    /// here on it is as ours has it.
    pub(crate) fn restored(
        &mut self,
        inode: &Inode,
        (parent, name): (Ino, &Name),
        is_whole: bool,
        time: Time,
    ) -> Result<Vec<Event>, Fault> {
        let mut events = vec![Event::Restore { parent, name: name.clone(), ino: inode.ino, time }];
        events.extend(self.as_known(inode)?);
        let mut met = vec![inode.ino];
        let mut placed: Vec<(Ino, Place)> = Vec::new();
        if is_whole && inode.kind() == Kind::Dir {
            let entries = self.entries_to_restore(inode.ino)?;
            let mut bytes = Vec::new();
            let mut needs = Vec::new();
            for (entry, (dir, name)) in entries {
                let is_further = met.contains(&entry.ino) && entry.kind() != Kind::Dir;
                let (parent, place, ino) = (dir, (dir, name.clone()), entry.ino);
                let first = events.len();
                match is_further {
                    true => events.push(Event::Link { parent, name, ino, kind: entry.kind(), time }),
                    false => {
                        events.push(Event::Restore { parent, name, ino, time });
                        events.extend(self.as_known(entry)?);
                        met.push(ino);
                    }
                }
                for event in &events[first..] {
                    event.encode(&mut bytes);
                    needs.extend(self.state.needs(event));
                }
                if bytes.len() > RESTORED_BYTES_MAX {
                    return Err(Refusal::TooBig.into());
                }
                placed.push((ino, place));
            }
            if !needs.is_empty() {
                return Err(Fault::Missing(needs));
            }
        }
        for (ino, place) in placed {
            self.map.note_placed(ino, &place, &place);
        }
        met.into_iter().for_each(|ino| self.map.met(ino));
        Ok(events)
    }

    /// Puts a removed inode under a new name that is free. Done.
    pub(crate) fn restore_at(
        &mut self,
        (dir, name): (&Inode, &Name),
        inode: &Inode,
        kind: ConflictKind,
        time: Time,
    ) -> Result<MergeStep, Fault> {
        if inode.kind() == Kind::Dir && dir.nlink >= LINKS_MAX {
            return Err(Refusal::TooManyLinks.into());
        }
        let path = self.path_of(dir.ino, Some(name))?;
        if kind.resolution(self.map.on_conflict()) == Resolution::Aborted {
            self.conflict(kind, path, inode.ino, None);
            return Ok(MergeStep::Stop);
        }
        let events = self.restored(inode, (dir.ino, name), true, time)?;
        self.conflict(kind, path, inode.ino, None);
        if inode.kind() != Kind::Dir {
            self.map.vouch(inode.ino);
        }
        Ok(MergeStep::Instead(events))
    }

    /// Ours continues without the changes that theirs made to a file before they removed it.
    fn as_known(&self, inode: &Inode) -> Result<Vec<Event>, Fault> {
        let known = self.state.file_as_known(inode)?;
        Ok(self.reverting(inode, known)?.unwrap_or_default())
    }

    /// The inodes that ours has below a directory and that theirs removed, each with its place: directories before their entries.
    fn entries_to_restore(&self, dir: Ino) -> Result<Vec<(&'a Inode, Place)>, Fault> {
        let mut by_dir: BTreeMap<Ino, Vec<(Ino, &Place)>> = BTreeMap::new();
        for (ino, place) in self.map.contested.known() {
            by_dir.entry(place.0).or_default().push((ino, place));
        }
        let (mut found, mut needs) = (Vec::new(), Vec::new());
        let (mut dirs, mut seen) = (vec![dir], BTreeSet::from([dir]));
        while let Some(dir) = dirs.pop() {
            for &(ino, place) in by_dir.get(&dir).into_iter().flatten() {
                let inode = match self.state.known_inode(ino) {
                    Ok(Some(inode)) => inode,
                    Ok(None) => continue,
                    Err(Fault::Missing(more)) => {
                        needs.extend(more);
                        continue;
                    }
                    Err(fault) => return Err(fault),
                };
                let is_removed = inode.nlink == 0 && !self.map.is_agreed_gone(ino);
                let is_dir = inode.kind() == Kind::Dir;
                if !is_removed || (is_dir && !seen.insert(ino)) {
                    continue;
                }
                found.push((inode, place.clone()));
                if is_dir {
                    dirs.push(ino);
                }
            }
        }
        if needs.is_empty() { Ok(found) } else { Err(Fault::Missing(needs)) }
    }
}
