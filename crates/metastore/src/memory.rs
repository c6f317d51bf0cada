//! The reference store, in memory, with switches for faults.
//!
//! Invariants: a fault that is not [`Fault::LostReply`] changes nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::is_empty_range;
use crate::{Batch, Metastore, Row, StoreError, StoreStats};

/// A fault for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `Io`, and nothing is done.
    Io,
    /// `NoSpace`, and nothing is done.
    NoSpace,
    /// The operation is done, but the caller gets `Io`.
    LostReply,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    faults: Option<(usize, Fault)>,
    closed: bool,
}

/// Rows in a `BTreeMap`.
#[derive(Default)]
pub struct MemoryMetastore {
    state: Mutex<State>,
}

impl MemoryMetastore {
    pub fn new() -> MemoryMetastore {
        MemoryMetastore::default()
    }

    /// Lets the next `n` operations suffer `fault`.
    pub fn fail_next(&self, n: usize, fault: Fault) {
        self.state.lock().faults = Some((n, fault));
    }

    /// The process dies and the store is reopened: it has all commits, and faults are reset.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        (state.faults, state.closed) = (None, false);
    }

    fn run<T>(&self, op: impl FnOnce(&mut State) -> T) -> Result<T, StoreError> {
        let mut state = self.state.lock();
        let path = PathBuf::new();
        if state.closed {
            return Err(StoreError::Closed { path });
        }
        let fault = match &mut state.faults {
            Some((left, fault)) if *left > 0 => {
                *left -= 1;
                Some(*fault)
            }
            _ => None,
        };
        match fault {
            Some(Fault::Io) => Err(StoreError::Io { path, cause: "injected".to_owned() }),
            Some(Fault::NoSpace) => Err(StoreError::NoSpace { path }),
            Some(Fault::LostReply) => {
                op(&mut state);
                Err(StoreError::Io { path, cause: "the reply was lost".to_owned() })
            }
            None => Ok(op(&mut state)),
        }
    }
}

impl Metastore for MemoryMetastore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.run(|s| s.rows.get(key).cloned())
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.run(|s| keys.iter().map(|key| s.rows.get(*key).cloned()).collect())
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.run(|s| {
            if is_empty_range(start, end) {
                return Vec::new();
            }
            let end = end.map_or(Bound::Unbounded, Bound::Excluded);
            s.rows.range::<[u8], _>((start, end)).take(limit).map(|(k, v)| (k.clone(), v.clone())).collect()
        })
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.run(|s| {
            for (key, value) in batch.rows() {
                match value {
                    Some(value) => s.rows.insert(key.to_vec(), value.to_vec()),
                    None => s.rows.remove(key),
                };
            }
        })
    }

    fn snapshot(&self) -> Result<Arc<dyn Metastore>, StoreError> {
        let rows = self.run(|s| s.rows.clone())?;
        Ok(Arc::new(MemoryMetastore { state: Mutex::new(State { rows, ..State::default() }) }))
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        self.run(|s| StoreStats {
            disk_bytes: s.rows.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum(),
            rows_approx: s.rows.len() as u64,
        })
    }

    fn close(&self) -> Result<(), StoreError> {
        self.state.lock().closed = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults() {
        let store = MemoryMetastore::new();
        let mut batch = Batch::new();
        batch.put("a", "1");
        store.fail_next(1, Fault::NoSpace);
        assert!(matches!(store.commit(&batch), Err(StoreError::NoSpace { .. })));
        assert_eq!(store.get(b"a"), Ok(None));
        store.fail_next(1, Fault::LostReply);
        assert!(matches!(store.commit(&batch), Err(StoreError::Io { .. })));
        assert_eq!(store.get(b"a"), Ok(Some(b"1".to_vec())));
        store.close().unwrap();
        assert!(matches!(store.get(b"a"), Err(StoreError::Closed { .. })));
        store.crash();
        assert_eq!(store.get(b"a"), Ok(Some(b"1".to_vec())));
    }
}
