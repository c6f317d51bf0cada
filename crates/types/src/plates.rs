//! Which plate owns which shards.
//!
//! ```text
//!   shards  0 … 31 │ 32 … 63      of a file system with 64 shards and 2 plates
//!   plates     0   │    1
//! ```
//!
//! Invariants:
//! - Each shard belongs to one plate; the shards of a plate follow one another.
//! - The parts are even: their sizes differ by one shard at most.

use std::ops::Range;

use crate::id::{Ino, PlateId, RealmId, SessionId, ShardId};

/// The numbers of shards and plates of a file system, which fix the range of shards that each plate owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plates {
    shards: u16,
    plates: u16,
}

impl Plates {
    /// So many plates for so many shards. `None` unless each plate has at least one shard.
    pub fn new(shards: u16, plates: u16) -> Option<Plates> {
        (1..=shards).contains(&plates).then_some(Plates { shards, plates })
    }

    /// One plate with all shards.
    ///
    /// # Panics
    /// Without shards.
    pub fn one(shards: u16) -> Plates {
        Plates::new(shards, 1).expect("a file system has shards")
    }

    pub fn count(self) -> u16 {
        self.plates
    }

    pub fn shards(self) -> u16 {
        self.shards
    }

    pub fn all(self) -> impl Iterator<Item = PlateId> {
        (0..self.plates).map(PlateId)
    }

    /// The plate that owns a shard; `None` if there is no such shard.
    #[inline]
    pub fn of_shard(self, shard: ShardId) -> Option<PlateId> {
        if shard.0 >= self.shards {
            return None;
        }
        // The last plate that begins at or before the shard.
        let plate = ((u32::from(shard.0) + 1) * u32::from(self.plates) - 1) / u32::from(self.shards);
        Some(PlateId(plate as u16))
    }

    /// The plate that owns an inode; `None` if its shard does not exist.
    #[inline]
    pub fn of(self, ino: Ino) -> Option<PlateId> {
        self.of_shard(ino.shard())
    }

    /// The plate that has a decoupling.
    pub fn of_realm(self, id: RealmId) -> PlateId {
        PlateId((id.0 % u32::from(self.plates)) as u16)
    }

    /// The number of the next decoupling on a plate, after its last.
    pub fn next_realm(self, plate: PlateId, last: RealmId) -> RealmId {
        let plates = u32::from(self.plates);
        RealmId((last.0 / plates + 1) * plates + u32::from(plate.0))
    }

    /// The plate whose servers gave a number to a session, or to a writer of blocks.
    pub fn of_session(session: SessionId) -> PlateId {
        PlateId((session.0 >> PlateId::SESSION_SHIFT) as u16)
    }

    pub fn shards_of(self, plate: PlateId) -> Range<u16> {
        let start = |plate: u32| (plate * u32::from(self.shards) / u32::from(self.plates)) as u16;
        start(u32::from(plate.0))..start(u32::from(plate.0) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_a_decoupling_says_on_which_plate_it_is() {
        let one = Plates::one(64);
        assert_eq!(one.next_realm(PlateId(0), RealmId(6)), RealmId(7));
        let four = Plates::new(64, 4).expect("a plate has shards");
        for plate in four.all() {
            let first = four.next_realm(plate, RealmId::GLOBAL);
            let next = four.next_realm(plate, first);
            assert!(RealmId::GLOBAL < first && first < next);
            assert_eq!((four.of_realm(first), four.of_realm(next)), (plate, plate));
            // The last of a file system that had one plate before.
            let after = four.next_realm(plate, RealmId(9));
            assert!(after > RealmId(9) && four.of_realm(after) == plate);
        }
    }

    #[test]
    fn each_shard_has_one_plate_and_the_parts_are_even() {
        for (shards, plates) in [(1, 1), (2, 2), (64, 1), (64, 2), (64, 3), (64, 64), (7, 3), (32_768, 300)] {
            let all = Plates::new(shards, plates).expect("a plate has shards");
            let ranges: Vec<_> = all.all().map(|plate| (plate, all.shards_of(plate))).collect();
            assert_eq!(ranges.iter().map(|(_, range)| range.len()).sum::<usize>(), usize::from(shards));
            let (least, most) = ranges.iter().fold((usize::MAX, 0), |(least, most), (_, range)| {
                (least.min(range.len()), most.max(range.len()))
            });
            assert!(most - least <= 1, "{shards} shards, {plates} plates");
            for (plate, range) in ranges {
                assert!(range.clone().all(|shard| all.of_shard(ShardId(shard)) == Some(plate)), "{range:?}");
            }
            assert_eq!(all.of_shard(ShardId(shards)), None);
        }
        assert_eq!((Plates::new(64, 0), Plates::new(2, 3)), (None, None));
    }
}
