//! The write-behind of a client: one for each plate, since each plate has its own session, grants its own inode numbers, and carries
//! out its own pending operations.

use std::sync::Arc;

use chiton_model::Op;
use chiton_types::{Ino, Plates};
use chiton_wire::Call;
use smallvec::SmallVec;

use super::{Pause, WriteBehind};
use crate::plate_inodes::{PlateInodes, crosses, index_of};

/// Calls are under way beside which some plates acknowledge nothing by write-behind.
pub(crate) type Pauses = SmallVec<[Pause; 1]>;

pub(crate) struct WriteBehinds {
    /// Nothing of a single plate.
    plates: Option<Plates>,
    each: Vec<Arc<WriteBehind>>,
}

impl WriteBehinds {
    /// That of the only plate.
    pub(crate) fn one(write_behind: Arc<WriteBehind>) -> WriteBehinds {
        WriteBehinds { plates: None, each: vec![write_behind] }
    }

    /// One for each of several plates, in their order.
    pub(crate) fn several(plates: Plates, each: Vec<Arc<WriteBehind>>) -> WriteBehinds {
        assert!(each.len() == usize::from(plates.count()), "each plate has its write-behind");
        WriteBehinds { plates: Some(plates), each }
    }

    /// That of the plate that owns an inode.
    #[inline]
    pub(crate) fn of(&self, ino: Ino) -> &Arc<WriteBehind> {
        &self.each[self.plates.map_or(0, |plates| index_of(plates, ino))]
    }

    /// That of the plate that decides an operation.
    pub(crate) fn of_op(&self, op: &Op) -> &Arc<WriteBehind> {
        match self.plates {
            None => &self.each[0],
            Some(_) => self.of(op.footprint().place),
        }
    }

    /// That of a plate.
    pub(crate) fn of_plate(&self, inodes: &PlateInodes) -> impl Iterator<Item = &Arc<WriteBehind>> {
        let plate = inodes.plate();
        let is_of = move |at: usize| plate.is_none_or(|plate| usize::from(plate.0) == at);
        self.each.iter().enumerate().filter(move |(at, _)| is_of(*at)).map(|(_, write_behind)| write_behind)
    }

    /// Whether operations may be acknowledged before the server knows of them.
    pub(crate) fn is_on(&self) -> bool {
        self.each[0].is_on()
    }

    /// Whether one plate owns both.
    pub(crate) fn is_near(&self, ino: Ino, other: Ino) -> bool {
        self.plates.is_none_or(|plates| index_of(plates, ino) == index_of(plates, other))
    }

    /// See [`WriteBehind::pause_for`]. An operation over plates may change what the write-behind of any plate rests on.
    pub(crate) fn pause_for(&self, call: &Call) -> Pauses {
        let Some(plates) = self.plates else { return self.each[0].pause_for(call).into_iter().collect() };
        if matches!(call, Call::Realm(_)) || call.ops().iter().any(|op| crosses(plates, op)) {
            return self.each.iter().filter_map(|write_behind| write_behind.pause_for(call)).collect();
        }
        let mut concerned = vec![false; self.each.len()];
        call.ops().iter().for_each(|op| concerned[index_of(plates, op.footprint().place)] = true);
        let each = self.each.iter().zip(concerned).filter(|(_, concerned)| *concerned);
        each.filter_map(|(write_behind, _)| write_behind.pause_for(call)).collect()
    }
}
