//! The rows of one moment, for all readers and for long scans.

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use chiton_async::block_on;
use futures_util::future::try_join_all;
use slatedb::DbSnapshot;
use slatedb::config::ScanOptions;

use super::{OWN_KEYS, sorted};
use crate::store::is_empty_range;
use crate::{Batch, Metastore, Row, StoreError, StoreStats};

/// Keys that are fetched side by side.
const FETCHES: usize = 32;
/// A scan for more rows than this reads ahead.
const SMALL_SCAN: usize = 64;
const READ_AHEAD_BYTES: usize = 1 << 20;

/// SlateDB keeps the rows of a snapshot through every compaction while the snapshot lives.
#[derive(Clone)]
pub(super) struct View {
    pub(super) name: PathBuf,
    pub(super) rows: Arc<DbSnapshot>,
    /// Statistics of that moment.
    pub(super) stats: StoreStats,
}

fn is_callers(key: &[u8]) -> bool {
    !key.is_empty() && !key.starts_with(OWN_KEYS)
}

impl Metastore for View {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if !is_callers(key) {
            return Ok(None);
        }
        let value = block_on(self.rows.get(key)).map_err(|e| sorted(&self.name, &e))?;
        Ok(value.map(Vec::from))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let one = async |key: &[u8]| match is_callers(key) {
            true => self.rows.get(key).await,
            false => Ok(None),
        };
        let mut values = Vec::with_capacity(keys.len());
        for some in keys.chunks(FETCHES) {
            let got = block_on(try_join_all(some.iter().map(|key| one(key))));
            values.extend(got.map_err(|e| sorted(&self.name, &e))?.into_iter().map(|v| v.map(Vec::from)));
        }
        Ok(values)
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        let end = end.unwrap_or(OWN_KEYS).min(OWN_KEYS);
        if limit == 0 || is_empty_range(start, Some(end)) {
            return Ok(Vec::new());
        }
        let mut options = ScanOptions::default();
        if limit > SMALL_SCAN {
            options.read_ahead_bytes = READ_AHEAD_BYTES;
            options.max_fetch_tasks = 2;
        }
        let range = (start.map(<[u8]>::to_vec), Bound::Excluded(end.to_vec()));
        let rows = block_on(async {
            let mut rows = Vec::new();
            let mut all = self.rows.scan_with_options(range, &options).await?;
            while rows.len() < limit
                && let Some(row) = all.next().await?
            {
                rows.push((row.key.to_vec(), row.value.to_vec()));
            }
            Ok(rows)
        });
        rows.map_err(|e: slatedb::Error| sorted(&self.name, &e))
    }

    fn commit(&self, _: &Batch) -> Result<(), StoreError> {
        Err(StoreError::Closed { path: self.name.clone() })
    }

    fn snapshot(&self) -> Result<Arc<dyn Metastore>, StoreError> {
        Ok(Arc::new(self.clone()))
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        Ok(self.stats)
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
