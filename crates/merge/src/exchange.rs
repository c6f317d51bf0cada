//! Two names that were exchanged, where others did something to either.
//!
//! ```text
//!   ours:  a = 1, b = 2 ──▶ a = 2, b = 1      both as ours knew them: one exchange
//!                                             else two moves: 1 to b, 2 to a, each meeting the inode there
//! ```
//!
//! Invariant: neither of the two is in the way of the other: the one that stands where the other goes is moved first.

use chiton_model::merge::Place;
use chiton_model::{Event, Over};
use chiton_namespace::{Fault, Known};
use chiton_types::{Ino, Kind, Position};

use crate::locate::Located;
use crate::{Merge, MergeStep, Skipped};

impl<'a> Merge<'a> {
    pub(crate) fn merge_exchange(&mut self, event: &mut Event) -> Result<MergeStep, Fault> {
        let Event::Rename {
            from,
            from_name,
            to,
            to_name,
            ino,
            kind,
            over: Over::Exchanged { ino: other, kind: other_kind },
            time,
        } = &*event
        else {
            unreachable!("asked for an exchange")
        };
        let (one, two) = (self.map.translate(*ino), self.map.translate(*other));
        let places =
            [(self.map.translate(*from), from_name.clone()), (self.map.translate(*to), to_name.clone())];
        let mut at = |place: &Place| self.slot_at(place).map(|found| found.map(|(ino, _)| ino));
        let found = [at(&places[0])?, at(&places[1])?];
        if found == [Some(one), Some(two)] {
            return self.merge_rename(event);
        }
        let [a, b] = places;
        let there = ((one, *kind), &a, &b);
        let back = ((two, *other_kind), &b, &a);
        let in_the_way = found[1] == Some(two) && found[0] != Some(one);
        for ((ino, kind), (from, from_name), to) in if in_the_way { [back, there] } else { [there, back] } {
            if let Some((found, position)) = self.slot_at(to)?
                && found == ino
            {
                // If theirs put it there it is ours under this name too.
                self.map.note_agreed(ino, to.0, &to.1, position);
                continue;
            }
            let mut half = Event::Rename {
                from: *from,
                from_name: from_name.clone(),
                to: to.0,
                to_name: to.1.clone(),
                ino,
                kind,
                over: Over::Nothing,
                time: *time,
            };
            match self.merge_rename(&mut half)? {
                MergeStep::Emit => return Ok(MergeStep::First(vec![half])),
                // It came back where it goes. The other is still to go.
                MergeStep::Instead(events) => return Ok(MergeStep::First(events)),
                // The other goes where it should nevertheless.
                MergeStep::Skip(Skipped::Gone | Skipped::Needless) => {}
                step => return Ok(step),
            }
        }
        Ok(MergeStep::Skip(Skipped::Needless))
    }

    /// The inode that bears a name, and since when, if the directory is there.
    fn slot_at(&mut self, (dir, name): &Place) -> Result<Option<(Ino, Position)>, Fault> {
        Ok(match self.locate(*dir)? {
            Located::Live(dir) if dir.kind() == Kind::Dir => match self.state.entry(dir, name)? {
                Known::Present(slot) => Some((slot.ino, slot.position)),
                Known::Absent => None,
            },
            _ => None,
        })
    }
}
