//! Names that a merge put elsewhere, for who goes on after it: the events of his journal take them from where ours had them, and
//! move them from where they are, as the next merge will.
//!
//! ```text
//!   journal:  exchange b, c        there after the merge:  b, d.theirs (which was c)        ──▶  b to c, then d.theirs to b
//! ```

use chiton_model::merge::Place;
use chiton_model::{Event, Over};
use chiton_types::{Ino, Kind, Name};

use crate::fault::Fault;
use crate::namespace::{Known, Namespace};

/// What is applied for an event that is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refit {
    /// The event as it is.
    AsItIs,
    /// This instead.
    Whole(Event),
    /// This, and then it is asked again.
    Half(Event),
    /// Nothing (more).
    Nothing,
}

impl Namespace {
    /// What an event becomes where it is replayed over a state that a merge left.
    ///
    /// # Errors
    /// [`Fault::Missing`] only: fetch, install, ask again.
    pub fn refit(&self, event: &Event) -> Result<Refit, Fault> {
        let Event::Rename { from, from_name, to, to_name, ino, over, time } = event else {
            return Ok(Refit::AsItIs);
        };
        let (ino, time) = (*ino, *time);
        let (a, b) = ((*from, from_name.clone()), (*to, to_name.clone()));
        let found = [self.borne_at(&a)?, self.borne_at(&b)?];
        let Over::Exchanged { ino: other } = *over else {
            let over = match over {
                // What it replaced is not there any more.
                Over::Replaced { .. } if found[1].is_none() => Over::Nothing,
                over => *over,
            };
            let place = if found[0] == Some(ino) { Some(a) } else { self.only_place(ino)? };
            let Some((from, from_name)) = place else { return Ok(Refit::AsItIs) };
            let (to, to_name) = b;
            return Ok(Refit::Whole(Event::Rename { from, from_name, to, to_name, ino, over, time }));
        };
        if found == [Some(ino), Some(other)] {
            return Ok(Refit::AsItIs);
        }
        let in_the_way = found[1] == Some(other) && found[0] != Some(ino);
        let (there, back) = ((ino, &a, &b), (other, &b, &a));
        for (ino, from, to) in if in_the_way { [back, there] } else { [there, back] } {
            if self.borne_at(to)? == Some(ino) {
                continue;
            }
            let is_there = self.borne_at(from)? == Some(ino);
            let place = if is_there { Some(from.clone()) } else { self.only_place(ino)? };
            let Some((from, from_name)) = place else { continue };
            let (to, to_name) = to.clone();
            let over = Over::Nothing;
            return Ok(Refit::Half(Event::Rename { from, from_name, to, to_name, ino, over, time }));
        }
        Ok(Refit::Nothing)
    }

    /// What bears a name, if the directory is there.
    fn borne_at(&self, (dir, name): &(Ino, Name)) -> Result<Option<Ino>, Fault> {
        let dir = match self.inode(*dir) {
            Ok(dir) if dir.kind == Kind::Dir => dir,
            Ok(_) | Err(Fault::Refused(_)) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        match self.entry(dir, name) {
            Ok(Known::Present(slot)) => Ok(Some(slot.ino)),
            Ok(Known::Absent) | Err(Fault::Refused(_)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// The name of what has but one.
    fn only_place(&self, ino: Ino) -> Result<Option<Place>, Fault> {
        let inode = match self.inode(ino) {
            Ok(inode) if inode.kind == Kind::Dir || inode.nlink == 1 => inode,
            Ok(_) | Err(Fault::Refused(_)) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        Ok(self.known_name(inode)?.map(|name| (inode.parent, name)))
    }
}
