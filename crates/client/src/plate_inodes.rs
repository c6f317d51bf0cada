//! The inodes that one session is about: those of its plate.

use chiton_model::Op;
use chiton_types::{Ino, PlateId, Plates};

/// The inodes that a plate owns. The only plate owns all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlateInodes(Option<(Plates, PlateId)>);

impl PlateInodes {
    /// Those of the only plate.
    pub fn all() -> PlateInodes {
        PlateInodes(None)
    }

    /// Those of one of these plates.
    pub fn of(plates: Plates, plate: PlateId) -> PlateInodes {
        PlateInodes((plates.count() > 1).then_some((plates, plate)))
    }

    /// The plate, if there are several.
    pub(crate) fn plate(&self) -> Option<PlateId> {
        self.0.map(|(_, plate)| plate)
    }

    /// Whether the plate owns an inode.
    #[inline]
    pub fn has(&self, ino: Ino) -> bool {
        self.0.is_none_or(|(plates, plate)| index_of(plates, ino) == usize::from(plate.0))
    }
}

/// The number of the plate that owns an inode. Of inode numbers of no shard that is the first plate: it refuses them.
#[inline]
pub(crate) fn index_of(plates: Plates, ino: Ino) -> usize {
    plates.of(ino).map_or(0, |plate| usize::from(plate.0))
}

/// Whether an operation may concern inodes of other plates than that which decides it.
pub(crate) fn crosses(plates: Plates, op: &Op) -> bool {
    let footprint = op.footprint();
    let decider = index_of(plates, footprint.place);
    footprint.victim_dir().is_some()
        || footprint.inodes().iter().any(|touch| index_of(plates, touch.ino) != decider)
}

#[cfg(test)]
mod tests {
    use chiton_types::ShardId;

    use super::*;

    #[test]
    fn each_inode_is_of_one_plate() {
        let plates = Plates::new(4, 2).expect("two plates");
        let (first, second) = (PlateInodes::of(plates, PlateId(0)), PlateInodes::of(plates, PlateId(1)));
        for shard in 0..10 {
            let ino = Ino::new(ShardId(shard), 77);
            assert_eq!(
                (first.has(ino), second.has(ino)),
                (shard != 2 && shard != 3, shard == 2 || shard == 3)
            );
            assert!(PlateInodes::all().has(ino) && PlateInodes::of(Plates::one(4), PlateId(0)).has(ino));
        }
    }
}
