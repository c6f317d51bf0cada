//! The changes of others since the base, without merging anything.

use chiton_model::merge::MergeMap;
use chiton_namespace::{Fault, Inode, Known, Namespace};
use chiton_types::{Ino, Kind, Name};

use crate::replaced::lost_a_name;

/// The change of others to an inode or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is as the decoupled side knows it.
    None,
    /// It exists, and is changed or new.
    Changed,
    /// It does not exist any more.
    Removed,
}

/// The change of others to an inode of the decoupled side.
///
/// # Errors
/// [`Fault::Missing`] only.
pub fn foreign_to_inode(state: &Namespace, ino: Ino, map: &MergeMap) -> Result<Change, Fault> {
    let ino = map.translate(ino);
    Ok(match state.known_inode(ino)? {
        Some(inode) if inode.nlink == 0 && map.contested.has_any(ino) => Change::Removed,
        Some(inode) if is_changed(map, inode) || lost_a_name(state, map, inode)? => Change::Changed,
        Some(_) => Change::None,
        // It was not merged yet, or its removal was.
        None => Change::None,
    })
}

/// The change of others to a name in a directory of the decoupled side.
///
/// # Errors
/// [`Fault::Missing`] only.
pub fn foreign_to_name(state: &Namespace, dir: Ino, name: &Name, map: &MergeMap) -> Result<Change, Fault> {
    let dir = map.translate(dir);
    let Some(inode) = state.known_inode(dir)? else { return Ok(Change::None) };
    if inode.nlink == 0 {
        return Ok(if map.contested.has_any(dir) { Change::Removed } else { Change::None });
    }
    if inode.kind() != Kind::Dir {
        return Ok(Change::None);
    }
    Ok(match state.entry(inode, name)? {
        Known::Present(slot) if map.is_foreign(slot.position) => Change::Changed,
        Known::Present(_) => Change::None,
        Known::Absent if map.contested.is_contested_at(dir, name) => Change::Removed,
        Known::Absent => Change::None,
    })
}

/// Whether others changed an inode itself after the base, and ours has not met that.
#[inline]
pub(crate) fn is_changed(map: &MergeMap, inode: &Inode) -> bool {
    map.is_foreign(inode.attrs_changed()) || (inode.kind() != Kind::Dir && map.stands(inode.ino))
}
