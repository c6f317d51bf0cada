//! Checks the stores while no server runs: every block in a map exists, and no others.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use chiton_admin::RowsOfPlates;
use chiton_engine::PeerState;
use chiton_metastore::Metastore;
use chiton_namespace::chunk::Chunk;
use chiton_namespace::{tag, tag_of};
use chiton_objects::Objects;
use chiton_types::{Plates, Take};

use crate::checkers;
use crate::disk::Disk;
use crate::history::Violation;

const ALL: usize = usize::MAX;

fn violation(what: String) -> Violation {
    Violation { checker: "structure", what }
}

/// Compares the maps with the blocks. `strays`: a server that was paused during a take-over may have stored a block
/// after the other looked for those of its session; such a block stays until fsck.
///
/// # Errors
/// The first block that is missing or left over.
pub fn check(disk: &Arc<Disk>, strays: bool) -> Result<(), Violation> {
    let (objects, rows) = disk.remains();
    let mut all = Vec::new();
    for rows in rows {
        all.extend(rows.scan(Bound::Unbounded, None, ALL).map_err(|e| violation(e.to_string()))?);
    }
    let with = |tag| all.iter().filter(move |(key, _)| tag_of(key) == Some(tag));
    let mut named = BTreeSet::new();
    for (key, value) in with(tag::CHUNK) {
        let chunk =
            Chunk::decode(&mut Take::new(value)).map_err(|e| violation(format!("row {key:02x?}: {e}")))?;
        for extent in chunk.extents().iter().filter(|extent| !extent.block.is_hole()) {
            named.insert(extent.block.key());
        }
    }
    let listed = objects.list("blocks/", None, ALL).map_err(|e| violation(e.to_string()))?;
    let stored: BTreeSet<String> = listed.into_iter().map(|object| object.key).collect();
    if let Some(missing) = named.difference(&stored).next() {
        return Err(violation(format!("block {missing} is named by a map and missing")));
    }
    // Garbage that is known is deleted with the next checkpoints.
    if !strays
        && with(tag::GARBAGE).next().is_none()
        && let Some(leaked) = stored.difference(&named).next()
    {
        return Err(violation(format!("block {leaked} is named by nothing and not collected")));
    }
    Ok(())
}

/// Checks that decoupled clients leave no objects, and that `fsck` finds nothing. `strays`: a server that was taken
/// over may have put objects afterwards; the next start deletes them.
///
/// # Errors
/// The first violation.
pub fn check_realms(disk: &Arc<Disk>, plates: Plates, strays: bool) -> Result<(), Violation> {
    let (objects, rows) = disk.remains();
    if strays {
        return Ok(());
    }
    nothing_apart(&*objects)?;
    let rows = rows.into_iter().map(|rows| rows as Arc<dyn Metastore>).collect();
    checkers::structure::check_plates(&RowsOfPlates::new(plates, rows), &*objects)
}

/// Checks that no plate guards a row for another or owes it an effect.
///
/// # Errors
/// The first violation.
pub fn check_plates_rest(disk: &Arc<Disk>) -> Result<(), Violation> {
    let (_, rows) = disk.remains();
    for (plate, rows) in disk.plates().zip(rows) {
        for (key, value) in rows.scan(Bound::Unbounded, None, ALL).map_err(|e| violation(e.to_string()))? {
            match PeerState::decode(&key, &value) {
                Ok(None | Some(PeerState::CarriedOut { .. })) => {}
                state => return Err(violation(format!("plate {plate} has {state:?}"))),
            }
        }
    }
    Ok(())
}

/// That no object of a decoupling is left.
///
/// # Errors
/// The first violation.
pub fn check_nothing_apart(disk: &Arc<Disk>) -> Result<(), Violation> {
    let (objects, _) = disk.remains();
    nothing_apart(&*objects)
}

fn nothing_apart(objects: &dyn Objects) -> Result<(), Violation> {
    let kept = objects.list("decoupled/", None, 1).map_err(|e| violation(e.to_string()))?;
    match kept.first() {
        Some(object) => Err(violation(format!("{} is of a decoupling that is over", object.key))),
        None => Ok(()),
    }
}
