//! A metadata store that is a map.

use std::collections::BTreeMap;
use std::convert::Infallible;

use chiton_namespace::{RowChange, RowSource, Rows};

#[derive(Clone, Default)]
pub(crate) struct MemoryRows(BTreeMap<Vec<u8>, Vec<u8>>);

impl MemoryRows {
    pub(crate) fn write(&mut self, batch: &[RowChange]) {
        for (key, value) in batch {
            match value {
                Some(value) => self.0.insert(key.clone(), value.clone()),
                None => self.0.remove(key),
            };
        }
    }
}

impl RowSource for MemoryRows {
    type Error = Infallible;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Rows, Infallible> {
        let range = self.0.range(start.to_vec()..end.to_vec());
        Ok(range.take(limit).map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}
