//! Checks that all plates have the same policies, and the same history of them.
//!
//! The rows of the other checks are those of all plates together, where only one plate's row of each policy is seen. This check looks at
//! each plate's own rows. It holds them in memory in short, as each plate holds them whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_metastore::{Metastore, StoreError};
use chiton_namespace::{rows_with_tag, tag};
use chiton_types::{PlateId, Plates, ShardId};

use crate::fsck::rows::each_row;
use crate::fsck::{CheckError, Problem};

/// Checksums of the values of a plate's policies, by key.
type Rows = BTreeMap<Vec<u8>, u32>;

/// Calls `found` for each row that a plate lacks, or has with another content. `stores` are those of all plates, in order.
pub(super) fn check(
    plates: Plates,
    stores: &[Arc<dyn Metastore>],
    found: &mut dyn FnMut(Problem) -> Result<(), CheckError>,
) -> Result<(), CheckError> {
    let mut of_plates = Vec::new();
    for store in stores {
        of_plates.push(match policy_rows(&**store, plates.shards()) {
            Ok(rows) => rows,
            // Rows that cannot be read are found by the other checks, and explain every difference.
            Err(CheckError::Store(StoreError::Corrupt { .. })) => return Ok(()),
            Err(error) => return Err(error),
        });
    }
    let mut keys: Vec<&Vec<u8>> = of_plates.iter().flat_map(BTreeMap::keys).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let has = |plate: PlateId| of_plates[usize::from(plate.0)].get(key);
        // The plate of the directory has decided the change; the history is plate 0's, in whose shard it stands.
        let shard = key.first_chunk::<2>().map(|bytes| ShardId(u16::from_be_bytes(*bytes)));
        let owner = shard.and_then(|shard| plates.of_shard(shard)).filter(|owner| has(*owner).is_some());
        let Some(like) = owner.or_else(|| plates.all().find(|plate| has(*plate).is_some())) else { continue };
        for plate in plates.all().filter(|plate| has(*plate) != has(like)) {
            found(Problem::PlatesDiffer { plate, like, key: key.clone() })?;
        }
    }
    Ok(())
}

fn policy_rows(store: &dyn Metastore, shards: u16) -> Result<Rows, CheckError> {
    let mut rows = Rows::new();
    let history = rows_with_tag(ShardId(0), tag::HISTORY);
    let carried = (0..shards).map(|shard| rows_with_tag(ShardId(shard), tag::POLICY));
    for (start, end) in carried.chain([history]) {
        each_row::<CheckError>(store, &start, Some(&end), |(key, value)| {
            rows.insert(key, crc32c::crc32c(&value));
            Ok(true)
        })?;
    }
    Ok(rows)
}
