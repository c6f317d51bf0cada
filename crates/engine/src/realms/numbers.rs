//! Inode numbers for decoupled clients, from the counters of this plate's shards.

use chiton_types::{Ino, Refusal, ShardId};

use crate::parts::Shards;
use crate::step::Stop;

/// Fewer numbers than this are given in one shard.
const SPREAD_FROM: u64 = 10_000;
/// Shards over which more are spread.
const SPREAD_SHARDS: u64 = 8;

impl Shards {
    /// So many inode numbers: in one shard, or over several. With them the marks that must be reserved.
    #[allow(clippy::type_complexity)]
    pub(super) fn take_numbers(
        &mut self,
        home: ShardId,
        count: u64,
    ) -> Result<(Vec<(Ino, Ino)>, Vec<(ShardId, u64)>), Stop> {
        let own = self.realms.here.plates.shards_of(self.realms.here.plate);
        let (first, all) = (u64::from(own.start), own.len() as u64);
        let shards = if count < SPREAD_FROM { 1 } else { SPREAD_SHARDS.min(all) };
        let (mut ranges, mut marks) = (Vec::new(), Vec::new());
        let part = count.div_ceil(shards);
        let chosen =
            (0..shards.min(count)).map(|n| ShardId((first + (u64::from(home.0) - first + n) % all) as u16));
        // All or none: numbers that are taken here and not granted would be passed over for good.
        if !chosen.clone().all(|shard| self.inodes.has_range(shard, part)) {
            return Err(Refusal::NoSpace.into());
        }
        for shard in chosen {
            let (first, end, mark) = self.inodes.take_range(shard, part).ok_or(Refusal::NoSpace)?;
            ranges.push((first, end));
            marks.extend(mark.map(|mark| (shard, mark)));
        }
        Ok((ranges, marks))
    }
}
