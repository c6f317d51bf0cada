//! Contested names: names that ours has of an inode, and that others removed, moved away or replaced since the base.
//!
//! An inode that lost its last name by that comes back under one of them when ours continues to use it. An inode that still
//! has another name is not what ours removes, or moves, under a contested one.
//!
//! Invariants:
//! - A name goes when ours gives it up itself, or when a merge puts the inode somewhere instead.
//! - Only names that ours may know are here, but for the last one of an inode: an inode that lost it must be found again. That
//!   one is marked as unknown.

use std::collections::{BTreeMap, BTreeSet};

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Ino, Name};

use crate::codec::take_name;

/// A name in a directory.
pub type Place = (Ino, Name);

/// Most names that are remembered of an inode: beyond them the last is replaced.
const NAMES_MAX: usize = 64;

/// The contested names of a merge, by inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContestedNames {
    /// Of each inode in the order in which they became contested; never none.
    names: BTreeMap<Ino, Vec<Place>>,
    /// Those of them that ours may not know.
    unknown: BTreeSet<(Ino, Place)>,
}

impl ContestedNames {
    /// Others took a name that ours has.
    pub fn note(&mut self, ino: Ino, place: Place) {
        let names = self.names.entry(ino).or_default();
        names.retain(|other| *other != place);
        self.unknown.remove(&(ino, place.clone()));
        if names.len() >= NAMES_MAX {
            for dropped in names.drain(NAMES_MAX - 1..) {
                self.unknown.remove(&(ino, dropped));
            }
        }
        names.push(place);
    }

    /// Others took the last name of an inode. They had given it this name, so ours may have something else there.
    pub fn note_unknown(&mut self, ino: Ino, place: Place) {
        self.note(ino, place.clone());
        self.unknown.insert((ino, place));
    }

    /// Whether ours has the inode under this name.
    pub fn knows(&self, ino: Ino, place: &Place) -> bool {
        self.holds(ino, place) && !self.unknown.contains(&(ino, place.clone()))
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn has_any(&self, ino: Ino) -> bool {
        self.names.contains_key(&ino)
    }

    pub fn holds(&self, ino: Ino, place: &Place) -> bool {
        self.of(ino).contains(place)
    }

    /// Whether the inode has a contested name other than this one.
    pub fn has_other(&self, ino: Ino, place: &Place) -> bool {
        self.of(ino).iter().any(|other| other != place)
    }

    /// The name that became contested last, except for one.
    pub fn last_except(&self, ino: Ino, except: Option<&Place>) -> Option<&Place> {
        self.of(ino).iter().rfind(|place| Some(*place) != except)
    }

    pub fn is_contested_at(&self, dir: Ino, name: &Name) -> bool {
        self.names.values().flatten().any(|(parent, was)| *parent == dir && was == name)
    }

    /// Ours does not have it under this name any more, or the server does. True if it was contested.
    pub fn forget(&mut self, ino: Ino, place: &Place) -> bool {
        let Some(names) = self.names.get_mut(&ino) else { return false };
        let before = names.len();
        names.retain(|other| other != place);
        self.unknown.remove(&(ino, place.clone()));
        let was_contested = names.len() < before;
        if names.is_empty() {
            self.names.remove(&ino);
        }
        was_contested
    }

    pub fn of(&self, ino: Ino) -> &[Place] {
        self.names.get(&ino).map_or(&[], Vec::as_slice)
    }

    /// All names that ours knows, by inode.
    pub fn known(&self) -> impl Iterator<Item = (Ino, &Place)> {
        let all = self.names.iter().flat_map(|(ino, places)| places.iter().map(|place| (*ino, place)));
        all.filter(|(ino, place)| self.knows(*ino, place))
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.names.values().map(|names| names.len() as u64).sum());
        for (ino, names) in &self.names {
            for (parent, name) in names {
                out.put_u64(ino.0);
                out.put_u64(parent.0);
                out.put_bytes(name.as_bytes());
                out.put_u8(u8::from(self.unknown.contains(&(*ino, (*parent, name.clone())))));
            }
        }
    }

    pub fn decode(from: &mut Take<'_>) -> Result<ContestedNames, Malformed> {
        let mut contested = ContestedNames::default();
        for _ in 0..from.count(18)? {
            let ino = Ino(from.u64()?);
            let place = (Ino(from.u64()?), take_name(from)?);
            let is_behind = contested.names.last_key_value().is_some_and(|(last, _)| *last > ino);
            if is_behind || contested.holds(ino, &place) || contested.of(ino).len() == NAMES_MAX {
                return Err(Malformed { expected: "contested names in order" });
            }
            match from.u8()? {
                0 => contested.note(ino, place),
                1 => contested.note_unknown(ino, place),
                _ => return Err(Malformed { expected: "whether ours knows a contested name" }),
            }
        }
        Ok(contested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: u64, name: &str) -> Place {
        (Ino(dir), Name::try_from(name).expect("a name"))
    }

    #[test]
    fn each_name_is_remembered_once_and_the_last_is_found_first() {
        let mut contested = ContestedNames::default();
        for name in ["a", "b", "a"] {
            contested.note(Ino(8), place(5, name));
        }
        assert_eq!(contested.last_except(Ino(8), None), Some(&place(5, "a")));
        assert_eq!(contested.last_except(Ino(8), Some(&place(5, "a"))), Some(&place(5, "b")));
        assert!(contested.holds(Ino(8), &place(5, "b")) && contested.has_other(Ino(8), &place(5, "b")));
        contested.forget(Ino(8), &place(5, "a"));
        assert!(!contested.has_other(Ino(8), &place(5, "b")));
        contested.note_unknown(Ino(8), place(5, "c"));
        assert!(contested.knows(Ino(8), &place(5, "b")) && !contested.knows(Ino(8), &place(5, "c")));
        let mut bytes = Vec::new();
        contested.encode(&mut bytes);
        assert_eq!(ContestedNames::decode(&mut Take::new(&bytes)), Ok(contested.clone()));
        contested.note(Ino(8), place(5, "c"));
        assert!(contested.knows(Ino(8), &place(5, "c")), "ours has it now");
        contested.forget(Ino(8), &place(5, "c"));
        contested.forget(Ino(8), &place(5, "b"));
        assert!(contested.is_empty() && !contested.has_any(Ino(8)));
    }

    #[test]
    fn an_inode_has_a_bounded_number_of_them() {
        let mut contested = ContestedNames::default();
        for n in 0..2 * NAMES_MAX {
            contested.note(Ino(8), place(5, &n.to_string()));
        }
        assert_eq!(contested.of(Ino(8)).len(), NAMES_MAX);
        assert!(contested.holds(Ino(8), &place(5, "0")), "what ours knew from the beginning stays");
        assert_eq!(contested.last_except(Ino(8), None), Some(&place(5, &(2 * NAMES_MAX - 1).to_string())));
        let mut bytes = Vec::new();
        contested.encode(&mut bytes);
        assert_eq!(ContestedNames::decode(&mut Take::new(&bytes)), Ok(contested));
    }
}
