//! The rows that an operation over plates needs, and the order in which it takes their guards.
//!
//! Invariants:
//! - The order is the same everywhere: plate, then inode; the token comes last. So operations that hold guards and wait for further
//!   ones never wait for each other in a circle.
//! - A name that is taken away or given anew brings the inode that bears it.

use std::collections::BTreeSet;

use chiton_model::{NameUse, Op};
use chiton_namespace::{Fault, Namespace};
use chiton_types::{Cred, Ino, Name, PlateId, Plates};
use chiton_wire::TOKEN;

use super::crossing::Crossing;

/// A row that is guarded, or the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    is_token: bool,
    pub(super) plate: PlateId,
    pub(super) ino: Ino,
}

impl Row {
    /// The token is at the first plate.
    pub(super) const TOKEN: Row = Row { is_token: true, plate: PlateId(0), ino: TOKEN };

    /// Of an inode of this plate, or the token.
    pub(super) fn new(plate: PlateId, ino: Ino) -> Row {
        Row { is_token: ino == TOKEN, plate, ino }
    }
}

/// The name in a directory that an operation is about.
pub(super) fn name_in(op: &Op, dir: Ino) -> Option<Name> {
    op.footprint().names().find(|touch| touch.dir == dir).map(|touch| touch.name.clone())
}

/// All rows that an operation needs, as far as the rows it holds show; not the token.
pub(super) fn rows_of(
    ns: &Namespace,
    plates: Plates,
    op: &Op,
    crossing: &Crossing,
) -> Result<BTreeSet<Row>, Fault> {
    let footprint = op.footprint();
    let mut inodes: Vec<Ino> = footprint.inodes().iter().map(|touch| touch.ino).collect();
    for touch in footprint.names().filter(|touch| touch.how != NameUse::Given) {
        inodes.extend(match ns.owns(touch.dir) {
            true => bearer(ns, touch.dir, touch.name)?,
            false => crossing.named_in(touch.dir),
        });
    }
    // Parts change and end with their directory; a directory that moves keeps them as they are.
    if let Some(ino) = ending_or_changed(ns, op, crossing)? {
        inodes.extend(match ns.owns(ino) {
            true => ns.parts(ino)?.into_iter().map(|part| part.ino).collect(),
            false => crossing.parts(ino).to_vec(),
        });
    }
    Ok(inodes.into_iter().filter_map(|ino| Some(Row::new(plates.of(ino)?, ino))).collect())
}

/// The inode that an operation may end, or whose attributes it changes.
fn ending_or_changed(ns: &Namespace, op: &Op, crossing: &Crossing) -> Result<Option<Ino>, Fault> {
    let footprint = op.footprint();
    match footprint.victim_dir() {
        Some(touch) if ns.owns(touch.dir) => match bearer(ns, touch.dir, touch.name)? {
            // One that is not here any more has no parts to look for.
            Some(ino) if ns.owns(ino) => Ok(existing(ns, ino)?),
            bearer => Ok(bearer),
        },
        Some(touch) => Ok(crossing.named_in(touch.dir)),
        None if footprint.names().next().is_some() => Ok(None),
        None => {
            footprint.subject_inode().filter(|ino| ns.owns(*ino)).map_or(Ok(None), |ino| existing(ns, ino))
        }
    }
}

/// An own inode, unless it is gone.
fn existing(ns: &Namespace, ino: Ino) -> Result<Option<Ino>, Fault> {
    match ns.attr(ino) {
        Ok(_) => Ok(Some(ino)),
        Err(Fault::Missing(needs)) => Err(Fault::Missing(needs)),
        Err(_) => Ok(None),
    }
}

/// The inode that bears a name in an own directory. None if there is no such directory: the plan says so.
pub(super) fn bearer(ns: &Namespace, dir: Ino, name: &Name) -> Result<Option<Ino>, Fault> {
    match ns.lookup(&Cred::ROOT, dir, name) {
        Err(Fault::Missing(needs)) => Err(Fault::Missing(needs)),
        found => Ok(found.unwrap_or_default()),
    }
}
