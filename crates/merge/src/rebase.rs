//! Rebase: a client replays its journal over a state that a merge left. The merge may have moved names elsewhere. The
//! journal's renames take them from where ours had them; rebased, they move them from where they are, as the next merge will.
//!
//! ```text
//!   journal:  exchange b, c        there after the merge:  b, d.theirs (which was c)        ──▶  b to c, then d.theirs to b
//! ```

use chiton_model::merge::Place;
use chiton_model::{Event, Over};
use chiton_namespace::{Fault, Known, Namespace};
use chiton_types::{Ino, Kind};

use crate::locate::known_name;

/// How an event that is replayed is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rebased {
    /// The event is applied as it is.
    Unchanged,
    /// This event is applied instead.
    Replaced(Event),
    /// This event is applied first; then the original is rebased again.
    First(Event),
    /// Nothing, or nothing more.
    Nothing,
}

/// Adapts an event of the journal to a state that a merge left.
///
/// # Errors
/// [`Fault::Missing`] only: fetch, install, ask again.
pub fn rebase(state: &Namespace, event: &Event) -> Result<Rebased, Fault> {
    let Event::Rename { from, from_name, to, to_name, ino, kind, over, time } = event else {
        return Ok(Rebased::Unchanged);
    };
    let (ino, kind, time) = (*ino, *kind, *time);
    let (a, b) = ((*from, from_name.clone()), (*to, to_name.clone()));
    let found = [inode_at(state, &a)?, inode_at(state, &b)?];
    let Over::Exchanged { ino: other, kind: other_kind } = *over else {
        let over = match over {
            // The inode that it replaced is not there any more.
            Over::Replaced { .. } if found[1].is_none() => Over::Nothing,
            over => *over,
        };
        let place = if found[0] == Some(ino) { Some(a) } else { only_place(state, ino)? };
        let Some((from, from_name)) = place else { return Ok(Rebased::Unchanged) };
        let (to, to_name) = b;
        return Ok(Rebased::Replaced(Event::Rename { from, from_name, to, to_name, ino, kind, over, time }));
    };
    if found == [Some(ino), Some(other)] {
        return Ok(Rebased::Unchanged);
    }
    let in_the_way = found[1] == Some(other) && found[0] != Some(ino);
    let (there, back) = (((ino, kind), &a, &b), ((other, other_kind), &b, &a));
    for ((ino, kind), from, to) in if in_the_way { [back, there] } else { [there, back] } {
        if inode_at(state, to)? == Some(ino) {
            continue;
        }
        let is_there = inode_at(state, from)? == Some(ino);
        let place = if is_there { Some(from.clone()) } else { only_place(state, ino)? };
        let Some((from, from_name)) = place else { continue };
        let (to, to_name) = to.clone();
        let over = Over::Nothing;
        return Ok(Rebased::First(Event::Rename { from, from_name, to, to_name, ino, kind, over, time }));
    }
    Ok(Rebased::Nothing)
}

/// The inode under a name, if the directory is there.
fn inode_at(state: &Namespace, (dir, name): &Place) -> Result<Option<Ino>, Fault> {
    let dir = match state.inode(*dir) {
        Ok(dir) if dir.kind() == Kind::Dir => dir,
        Ok(_) | Err(Fault::Refused(_)) => return Ok(None),
        Err(fault) => return Err(fault),
    };
    match state.entry(dir, name) {
        Ok(Known::Present(slot)) => Ok(Some(slot.ino)),
        Ok(Known::Absent) | Err(Fault::Refused(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// The name of an inode that has exactly one.
fn only_place(state: &Namespace, ino: Ino) -> Result<Option<Place>, Fault> {
    let inode = match state.inode(ino) {
        Ok(inode) if inode.kind() == Kind::Dir || inode.nlink == 1 => inode,
        Ok(_) | Err(Fault::Refused(_)) => return Ok(None),
        Err(fault) => return Err(fault),
    };
    Ok(known_name(state, inode)?.map(|name| (inode.parent, name)))
}
