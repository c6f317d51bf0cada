//! Checks that all plates have the same history of policies.
//!
//! The rows of the other checks are those of all plates together, where only plate 0's row of each change is seen. This check looks at each
//! plate's own rows. It holds them in memory in short, as each plate holds them whole.

use std::collections::BTreeMap;

use chiton_metastore::{Metastore, StoreError};
use chiton_namespace::{rows_with_tag, tag};
use chiton_types::{PlateId, ShardId};

use crate::fsck::rows::each_row;
use crate::fsck::{CheckError, Problem};

/// Checksums of the changes in a plate's history, by version.
type History = BTreeMap<u64, u32>;

/// The changes that a plate lacks, or has with another content than plate 0. `stores` are those of all plates, in order.
pub(super) fn differences(stores: &[(PlateId, &dyn Metastore)]) -> Result<Vec<Problem>, CheckError> {
    let mut histories = Vec::new();
    for (plate, store) in stores {
        histories.push(match history(&**store) {
            Ok(history) => (*plate, history),
            // Rows that cannot be read are found by the other checks, and explain every difference.
            Err(CheckError::Store(StoreError::Corrupt { .. })) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        });
    }
    let Some(((_, first), others)) = histories.split_first() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (plate, other) in others {
        let mut versions: Vec<u64> = first.keys().chain(other.keys()).copied().collect();
        versions.sort_unstable();
        versions.dedup();
        let differs = |version: &u64| first.get(version) != other.get(version);
        found.extend(
            versions
                .into_iter()
                .filter(differs)
                .map(|version| Problem::StalePolicyHistory { plate: *plate, version }),
        );
    }
    Ok(found)
}

fn history(store: &dyn Metastore) -> Result<History, CheckError> {
    let mut history = History::new();
    let (start, end) = rows_with_tag(ShardId(0), tag::HISTORY);
    each_row::<CheckError>(store, &start, Some(&end), |(key, value)| {
        // Keys of another form are found by the other checks.
        if let Some(version) = key.last_chunk() {
            history.insert(u64::from_be_bytes(*version), crc32c::crc32c(&value));
        }
        Ok(true)
    })?;
    Ok(history)
}
