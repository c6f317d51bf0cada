//! Which names an event of ours gives up, and which it gives.

use chiton_model::merge::{MergeMap, Place};
use chiton_model::{Event, Over};
use chiton_types::{Ino, Name};

use crate::namespace::Namespace;

impl Namespace {
    /// The names that ours gives up by an event, as the server knows their inodes and directories.
    pub(super) fn given_up(event: &Event, map: &MergeMap) -> Vec<(Ino, Place)> {
        let mut names = Vec::new();
        let mut left = |ino: Ino, dir: Ino, name: &Name| {
            names.push((map.translate(ino), (map.translate(dir), name.clone())));
        };
        match event {
            Event::Unlink { parent, name, ino, .. } => left(*ino, *parent, name),
            Event::Rename { from, from_name, to, to_name, ino, over, .. } => {
                left(*ino, *from, from_name);
                if let Over::Replaced { ino: other, .. } | Over::Exchanged { ino: other } = over {
                    left(*other, *to, to_name);
                }
            }
            _ => {}
        }
        names
    }

    /// The names that ours gives by an event, as the server knows their directories.
    pub(super) fn gained(event: &Event, map: &MergeMap) -> Vec<Place> {
        if !map.has_names_apart() {
            return Vec::new();
        }
        let place = |dir: Ino, name: &Name| (map.translate(dir), name.clone());
        match event {
            Event::Make { parent, name, .. } | Event::Link { parent, name, .. } => vec![place(*parent, name)],
            Event::Rename { from, from_name, over: Over::Exchanged { .. }, to, to_name, .. } => {
                vec![place(*from, from_name), place(*to, to_name)]
            }
            Event::Rename { to, to_name, .. } => vec![place(*to, to_name)],
            _ => Vec::new(),
        }
    }
}
