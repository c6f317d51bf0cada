//! Records which of several merged journals changed which inode or name, from the events of the merges.
//!
//! Invariants:
//! - Inodes and directories have the numbers of the namespace that the journals were merged into.
//! - The last one that changed something counts.

use chiton_model::{Event, Over};
use chiton_types::{Ino, Name};
use hashbrown::HashMap;

use crate::report::ConflictLine;

/// The number of a journal, from 0.
type Layer = u32;

/// The last journals that changed an inode.
#[derive(Clone, Copy, Debug, Default)]
struct Doings {
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
    inodes: HashMap<Ino, Doings>,
    names: HashMap<(Ino, Name), Layer>,
}

impl Provenance {
    /// Records one event of a journal.
    pub(crate) fn note(&mut self, event: &Event, layer: Layer) {
        match event {
            Event::Make { parent, name, ino, .. } => {
                self.change(*ino, layer);
                self.name(*parent, name, layer);
            }
            Event::Link { parent, name, ino, .. } => {
                self.touch(*ino, layer);
                self.name(*parent, name, layer);
            }
            Event::Restore { parent, name, ino, .. } => {
                self.change(*ino, layer);
                self.name(*parent, name, layer);
            }
            Event::Unlink { parent, name, ino, .. } => {
                self.touch(*ino, layer);
                self.names.remove(&(*parent, name.clone()));
            }
            Event::Rename { from, from_name, to, to_name, ino, over, .. } => {
                self.touch(*ino, layer);
                self.names.remove(&(*from, from_name.clone()));
                match over {
                    Over::Nothing => {}
                    Over::Replaced { ino, .. } => self.touch(*ino, layer),
                    Over::Exchanged { ino } => {
                        self.touch(*ino, layer);
                        self.name(*from, from_name, layer);
                    }
                }
                self.name(*to, to_name, layer);
            }
            Event::SetAttr { ino, .. }
            | Event::Write { ino, .. }
            | Event::Clone { to: ino, .. }
            | Event::Revert { ino, .. }
            | Event::Xattr { ino, .. } => self.change(*ino, layer),
            Event::Touch { .. }
            | Event::Remap { .. }
            | Event::Reclaim { .. }
            | Event::Swept { .. }
            | Event::Reserve { .. }
            | Event::SessionOpened { .. }
            | Event::SessionClosed { .. }
            | Event::Policy(_)
            | Event::Decoupled(_)
            | Event::Attached(_)
            | Event::Granted { .. }
            | Event::Merged(_)
            | Event::DecouplingEnded { .. }
            | Event::Skipped { .. } => {}
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
