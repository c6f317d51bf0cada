//! Records which of several merged journals changed which inode or name, from the events of the merges.
//!
//! Invariants:
//! - Inodes and directories have the numbers of the namespace that the journals were merged into.
//! - The last one that changed something counts.

use chiton_model::{Event, Role, Rows};
use chiton_types::{Ino, Name};
use hashbrown::HashMap;

use crate::report::ConflictLine;

/// The number of a journal, from 0.
type Layer = u32;

/// The last journals that changed an inode.
#[derive(Clone, Copy, Debug, Default)]
struct LastChanges {
    /// Made it, or changed its content or attributes.
    changed: Option<Layer>,
    /// Did anything to it, its names included.
    touched: Option<Layer>,
    /// Put a name into the directory.
    filled: Option<Layer>,
}

/// The last journal that changed each inode and name.
#[derive(Debug, Default)]
pub(crate) struct Provenance {
    inodes: HashMap<Ino, LastChanges>,
    names: HashMap<(Ino, Name), Layer>,
}

impl Provenance {
    /// Records one event of a journal.
    pub(crate) fn note(&mut self, event: &Event, layer: Layer) {
        let footprint = event.footprint();
        for change in footprint.names() {
            if change.before.is_some() {
                self.names.remove(&(change.dir, change.name.clone()));
            }
            if change.after.is_some() {
                self.name(change.dir, change.name, layer);
            }
        }
        let makes_or_brings_back = matches!(event, Event::Make { .. } | Event::Restore { .. });
        let is_of_names = footprint.names().next().is_some() && !makes_or_brings_back;
        for touch in footprint.inodes() {
            match touch.role {
                Role::Newborn => self.change(touch.ino, layer),
                Role::Subject if !touch.writes.has_any(Rows::SEEN) => {}
                Role::Subject if is_of_names => self.touch(touch.ino, layer),
                Role::Subject => self.change(touch.ino, layer),
                Role::Victim => self.touch(touch.ino, layer),
                Role::Directory | Role::Orphan | Role::Source | Role::Root => {}
            }
        }
    }

    fn touch(&mut self, ino: Ino, layer: Layer) {
        self.inodes.entry(ino).or_default().touched = Some(layer);
    }

    fn change(&mut self, ino: Ino, layer: Layer) {
        self.touch(ino, layer);
        self.inodes.entry(ino).or_default().changed = Some(layer);
    }

    fn name(&mut self, dir: Ino, name: &Name, layer: Layer) {
        self.names.insert((dir, name.clone()), layer);
        self.inodes.entry(dir).or_default().filled = Some(layer);
    }

    /// The journal that gave an inode this name, or changed the inode since; `None` if no journal did.
    pub(crate) fn of(&self, dir: Ino, name: &Name, ino: Ino) -> Option<Layer> {
        let named = self.names.get(&(dir, name.clone())).copied();
        named.max(self.inodes.get(&ino).and_then(|doings| doings.changed))
    }

    /// The journal that made the other side's change of a conflict; `None` if no journal did.
    pub(crate) fn of_conflict(&self, line: &ConflictLine) -> Option<Layer> {
        let doings = self.inodes.get(&line.ino).copied().unwrap_or_default();
        if line.is_filled() { doings.filled } else { doings.touched }
    }
}
