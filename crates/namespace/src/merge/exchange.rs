//! Two names that were exchanged, where others did something to either.
//!
//! ```text
//!   ours:  a = 1, b = 2 ──▶ a = 2, b = 1      both as ours knew them: one exchange
//!                                             else two moves: 1 to b, 2 to a, each meeting what is there
//! ```
//!
//! Invariant: neither of the two is in the way of the other: who stands where the other goes is moved first.

use chiton_model::merge::Conflict;
use chiton_model::merge::MergeMap;
use chiton_model::{Event, Over};
use chiton_types::{Ino, Kind, Name, Position};

use super::locate::Located;
use super::{MergeContext, MergeStep, Skipped};
use crate::fault::Fault;
use crate::namespace::{Known, Namespace};

impl Namespace {
    pub(super) fn merge_exchange(
        &self,
        event: &mut Event,
        map: &mut MergeMap,
        ctx: &MergeContext<'_>,
        report: &mut Vec<Conflict>,
    ) -> Result<MergeStep, Fault> {
        let Event::Rename { from, from_name, to, to_name, ino, over: Over::Exchanged { ino: other }, time } =
            &*event
        else {
            unreachable!("asked for an exchange")
        };
        let (one, two) = (map.translate(*ino), map.translate(*other));
        let places = [(map.translate(*from), from_name.clone()), (map.translate(*to), to_name.clone())];
        let at = |place: &(Ino, Name), map: &mut MergeMap| {
            self.slot_at(place, map).map(|found| found.map(|(ino, _)| ino))
        };
        let found = [at(&places[0], map)?, at(&places[1], map)?];
        if found == [Some(one), Some(two)] {
            return self.merge_rename(event, map, ctx, report);
        }
        let [a, b] = places;
        let there = (one, &a, &b);
        let back = (two, &b, &a);
        let in_the_way = found[1] == Some(two) && found[0] != Some(one);
        for (ino, (from, from_name), to) in if in_the_way { [back, there] } else { [there, back] } {
            if let Some((found, position)) = self.slot_at(to, map)?
                && found == ino
            {
                // If theirs put it there it is ours under this name too.
                map.note_agreed(ino, to.0, &to.1, position);
                continue;
            }
            let mut half = Event::Rename {
                from: *from,
                from_name: from_name.clone(),
                to: to.0,
                to_name: to.1.clone(),
                ino,
                over: Over::Nothing,
                time: *time,
            };
            match self.merge_rename(&mut half, map, ctx, report)? {
                MergeStep::Emit => return Ok(MergeStep::First(vec![half])),
                // The other goes where it should nevertheless.
                MergeStep::Skip(Skipped::Gone | Skipped::Needless) => {}
                step => return Ok(step),
            }
        }
        Ok(MergeStep::Skip(Skipped::Needless))
    }

    /// What bears a name, and since when, if the directory is there.
    fn slot_at(
        &self,
        (dir, name): &(Ino, Name),
        map: &mut MergeMap,
    ) -> Result<Option<(Ino, Position)>, Fault> {
        Ok(match self.locate(*dir, map)? {
            Located::Live(dir) if dir.kind == Kind::Dir => match self.entry(dir, name)? {
                Known::Present(slot) => Some((slot.ino, slot.position)),
                Known::Absent => None,
            },
            _ => None,
        })
    }
}
