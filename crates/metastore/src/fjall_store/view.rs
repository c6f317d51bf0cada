//! The rows of one moment, for readers that take long.

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use fjall::{Keyspace, Snapshot};

use super::fault::{guarded, sort_error};
use super::{disk_bytes, rows, value};
use crate::{Batch, Metastore, Row, StoreError, StoreStats};

#[derive(Clone)]
pub(super) struct View {
    path: PathBuf,
    view: Snapshot,
    rows: Keyspace,
}

impl View {
    pub(super) fn new(path: PathBuf, view: Snapshot, rows: Keyspace) -> View {
        View { path, view, rows }
    }

    fn run<T>(&self, f: impl FnOnce() -> fjall::Result<T>) -> Result<T, StoreError> {
        guarded(&self.path, || f().map_err(|e| sort_error(&self.path, e)))
    }
}

impl Metastore for View {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.run(|| value(&self.view, &self.rows, key))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.run(|| keys.iter().map(|key| value(&self.view, &self.rows, key)).collect())
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.run(|| rows(&self.view, &self.rows, start, end, limit))
    }

    fn commit(&self, _: &Batch) -> Result<(), StoreError> {
        Err(StoreError::Closed { path: self.path.clone() })
    }

    fn snapshot(&self) -> Result<Arc<dyn Metastore>, StoreError> {
        Ok(Arc::new(self.clone()))
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        let rows_approx = self.run(|| Ok(self.rows.approximate_len() as u64))?;
        let disk_bytes = disk_bytes(&self.path).map_err(|e| sort_error(&self.path, e.into()))?;
        Ok(StoreStats { disk_bytes, rows_approx })
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
