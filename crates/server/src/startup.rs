//! Steps of a start: the server's own rows, frames that are replayed, and what the errors of the stores mean.

use std::ops::Bound;

use chiton_journal::{Frame, JournalError};
use chiton_metastore::{Metastore, StoreError};
use chiton_namespace::{Fetched, Namespace, Need};
use chiton_types::{Epoch, Position, ShardId};

use crate::error::StartError;
use crate::rows::install;
use chiton_engine::{Engine, Moment, OwnRows, POSITION_KEY, ReplayFault, SESSION_MARK_KEY, mark_key};

/// The maps' epoch, as long as a server is alone.
pub(crate) const EPOCH: Epoch = Epoch(1);
const PAGE_ROWS: usize = 4096;

/// What a frame needs and lacks is fetched.
pub(crate) type Fetch<'a> = dyn Fn(&[Need]) -> Result<Vec<Fetched>, StartError> + 'a;

/// `base_changes`: what the events were planned on may have changed since; what does not fit it any more is passed over.
pub(crate) fn replay_frame(
    engine: &mut Engine,
    fetch: &Fetch<'_>,
    frame: &Frame<'_>,
    base_changes: bool,
    m: &Moment,
) -> Result<(), StartError> {
    loop {
        let needs = match engine.replay(&frame.header, frame.first, frame.payload, base_changes, m) {
            Ok(()) => return Ok(()),
            Err(ReplayFault::Malformed(cause)) => {
                let at = frame.first;
                return Err(StartError::Corrupt(format!("the journal's frame at position {at}: {cause}")));
            }
            Err(ReplayFault::Misfit(at, _)) if base_changes => {
                engine.pass_over(at);
                continue;
            }
            Err(ReplayFault::Misfit(at, misfit)) => {
                return Err(StartError::Corrupt(format!(
                    "the journal's event at position {at} does not fit the metadata store: {misfit}. Do the two belong \
                     together? `chiton journal event recover` passes over what does not fit"
                )));
            }
            Err(ReplayFault::Missing(needs)) => needs,
        };
        let generation = engine.namespace().generation();
        install(engine, fetch(&needs)?, generation).map_err(StartError::Corrupt)?;
    }
}

/// The server's own rows, and those of the namespace that are always in memory: one range of each shard.
pub(crate) fn start_rows(
    store: &dyn Metastore,
    shards: u16,
) -> Result<(OwnRows, chiton_namespace::Rows), StartError> {
    let (mut own, mut others) = (OwnRows::of_shards(shards), chiton_namespace::Rows::new());
    let corrupt = |key: &[u8], cause: &dyn std::fmt::Display| {
        StartError::Corrupt(format!("row {:?}: {cause}", String::from_utf8_lossy(key)))
    };
    let mut knows_position = false;
    for shard in (0..shards).map(ShardId) {
        let (mut start, end) = chiton_namespace::start_rows(shard);
        let mut bound: fn(&[u8]) -> Bound<&[u8]> = |key| Bound::Included(key);
        loop {
            let page = store.scan(bound(&start), Some(&end), PAGE_ROWS).map_err(|e| store_error(&e))?;
            let Some((last, _)) = page.last() else { break };
            start = last.clone();
            for (key, value) in page {
                knows_position |= key == POSITION_KEY;
                if !own.take(&key, &value).map_err(|e| corrupt(&key, &e))? {
                    others.push((key, value));
                }
            }
            bound = |key| Bound::Excluded(key);
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
pub(crate) fn namespace_of(store: &dyn Metastore, shards: u16) -> Result<(Namespace, OwnRows), StartError> {
    let (own, rows) = start_rows(store, shards)?;
    let ns = Namespace::of_start_rows(rows).map_err(|row| StartError::Corrupt(row.to_string()))?;
    Ok((ns, own))
}

pub(crate) fn session_mark(store: &dyn Metastore) -> Result<u64, StartError> {
    let row = store.get(SESSION_MARK_KEY).map_err(|e| store_error(&e))?;
    let mark = row.as_deref().and_then(|row| row.try_into().ok()).map(u64::from_le_bytes);
    mark.filter(|mark| (1..u64::MAX / 2).contains(mark))
        .ok_or_else(|| StartError::Corrupt("the row of session ids is missing or not a number".to_owned()))
}

/// `stored`: up to where the metadata store holds the events.
pub(crate) fn journal_error(error: &JournalError, stored: Position) -> StartError {
    match error {
        JournalError::Absent => StartError::Corrupt(format!(
            "there is no journal: if it cannot be brought back, `chiton journal reset` goes on with what the metadata store \
             holds, which is all up to position {stored}"
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
