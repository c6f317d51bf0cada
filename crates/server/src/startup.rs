//! Steps of a start: the rows that are always in memory, and the meaning of the stores' errors.

use std::ops::Bound;
use std::sync::Arc;

use chiton_journal::JournalError;
use chiton_metastore::{Metastore, StoreError};
use chiton_namespace::{Namespace, Rows};
use chiton_types::{Epoch, PlateId, Position, ShardId};

use crate::error::StartError;
use crate::session_ids::plate_of_session_id;
use chiton_engine::{OwnRows, POSITION_KEY, SESSION_MARK_KEY, mark_key};

/// The epoch in messages and journals. It is the same everywhere: messages do not carry the epoch of a cluster's map yet.
pub(crate) const EPOCH: Epoch = Epoch(1);
const PAGE_ROWS: usize = 4096;

/// The server's own rows, and those of the namespace that are always in memory: one range of keys.
pub(crate) fn start_rows(store: &dyn Metastore, shards: u16) -> Result<(OwnRows, Rows), StartError> {
    let (mut own, mut others) = (OwnRows::of_shards(shards), Rows::new());
    let corrupt = |key: &[u8], cause: &dyn std::fmt::Display| {
        StartError::Corrupt(format!("row {:?}: {cause}", String::from_utf8_lossy(key)))
    };
    let (mut start, end) = chiton_namespace::start_rows();
    let mut knows_position = false;
    loop {
        let page = store.scan(Bound::Excluded(&start), Some(&end), PAGE_ROWS).map_err(|e| store_error(&e))?;
        let is_last = page.len() < PAGE_ROWS;
        for (key, value) in page {
            knows_position |= key == POSITION_KEY;
            start.clone_from(&key);
            if !own.take(&key, &value).map_err(|e| corrupt(&key, &e))? {
                others.push((key, value));
            }
        }
        if is_last {
            break;
        }
    }
    if !knows_position {
        return Err(corrupt(POSITION_KEY, &"it is missing"));
    }
    if let Some(shard) = own.marks.iter().position(|mark| *mark == 0) {
        return Err(corrupt(&mark_key(ShardId(shard as u16)), &"it is missing"));
    }
    Ok((own, others))
}

/// The namespace and the server's own rows in a metadata store.
pub(crate) fn namespace_of(
    store: &Arc<dyn Metastore>,
    shards: u16,
) -> Result<(Namespace, OwnRows), StartError> {
    let (own, rows) = start_rows(&**store, shards)?;
    let ns = Namespace::of_start_rows(rows).map_err(|row| StartError::Corrupt(row.to_string()))?;
    Ok((ns, own))
}

/// Where the session ids of a plate continue.
pub(crate) fn session_mark(store: &dyn Metastore, plate: PlateId) -> Result<u64, StartError> {
    let row = store.get(SESSION_MARK_KEY).map_err(|e| store_error(&e))?;
    let mark = row.as_deref().and_then(|row| row.try_into().ok()).map(u64::from_le_bytes);
    let mark = mark
        .filter(|mark| (1..u64::MAX / 2).contains(mark))
        .ok_or_else(|| StartError::Corrupt("the row of session ids is missing or not a number".to_owned()))?;
    let found = plate_of_session_id(mark);
    if found == plate {
        return Ok(mark);
    }
    Err(StartError::Corrupt(format!(
        "the metadata store of plate {plate} has the session ids of plate {found}: put the folders of the plates back into their \
         places"
    )))
}

/// `stored`: up to where the metadata store holds the events.
pub(crate) fn journal_error(error: &JournalError, stored: Position) -> StartError {
    match error {
        JournalError::Absent => StartError::Corrupt(format!(
            "there is no journal: if it cannot be brought back, `chiton journal reset` continues with the content of the metadata \
             store, which has all events up to position {stored}"
        )),
        JournalError::NoSpace(_) => {
            StartError::Failed(format!("{error}; free space there, then start again"))
        }
        JournalError::Unreachable(_)
        | JournalError::Denied(_)
        | JournalError::Failed(_)
        | JournalError::Fenced { .. } => StartError::Failed(error.to_string()),
        _ => StartError::Corrupt(error.to_string()),
    }
}

pub(crate) fn store_error(error: &StoreError) -> StartError {
    match error {
        StoreError::Corrupt { .. } => StartError::Corrupt(error.to_string()),
        _ => StartError::Failed(error.to_string()),
    }
}
