//! A metadata store with changes in memory on top: the state that the next checkpoint would produce.
//!
//! Invariants:
//! - Nothing reaches the store below: commits stay in memory, and end with the overlay.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use chiton_metastore::{Batch, Metastore, Row, StoreError, StoreStats};
use parking_lot::RwLock;

/// Rows of a store, with changes over them.
pub struct Overlay {
    base: Arc<dyn Metastore>,
    rows: RwLock<BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
}

impl Overlay {
    /// An overlay over `base`, without changes.
    pub fn new(base: Arc<dyn Metastore>) -> Overlay {
        Overlay { base, rows: RwLock::default() }
    }
}

impl Metastore for Overlay {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.rows.read().get(key).map_or_else(|| self.base.get(key), |value| Ok(value.clone()))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let base = self.base.scan(start, end, limit)?;
        // Rows past the base's page come with the next page.
        let full = base.len() == limit;
        let until = match (full, base.last()) {
            (true, Some((last, _))) => Bound::Included(last.as_slice()),
            _ => end.map_or(Bound::Unbounded, Bound::Excluded),
        };
        if let (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) =
            (start, until)
            && a >= b
            && !(a == b && matches!((start, until), (Bound::Included(_), Bound::Included(_))))
        {
            return Ok(base);
        }
        let mut page: BTreeMap<Vec<u8>, Vec<u8>> = base.iter().cloned().collect();
        for (key, value) in self.rows.read().range::<[u8], _>((start, until)) {
            match value {
                Some(value) => page.insert(key.clone(), value.clone()),
                None => page.remove(key),
            };
        }
        if page.is_empty() && full {
            // All of the page was deleted: there may be more behind it.
            let last = base.last().expect("a full page has a last row").0.clone();
            return self.scan(Bound::Excluded(&last), end, limit);
        }
        Ok(page.into_iter().take(limit).collect())
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let rows = batch.rows().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)));
        self.rows.write().extend(rows);
        Ok(())
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        self.base.stats()
    }

    /// The store below stays open.
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chiton_metastore::MemoryMetastore;

    use super::*;

    #[test]
    fn it_reads_as_if_the_changes_were_committed() {
        let mut x = 3u64;
        let mut draw = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) % n
        };
        for _ in 0..200 {
            let (base, committed) = (Arc::new(MemoryMetastore::new()), MemoryMetastore::new());
            let mut batch = Batch::new();
            for _ in 0..draw(20) {
                batch.put(vec![b'a' + draw(20) as u8], vec![1]);
            }
            base.commit(&batch).expect("commits");
            committed.commit(&batch).expect("commits");
            let mut change = Batch::new();
            for _ in 0..draw(20) {
                let key = vec![b'a' + draw(20) as u8];
                if draw(2) == 0 { change.put(key, vec![2]) } else { change.delete(key) }
            }
            committed.commit(&change).expect("commits");
            let overlay = Overlay::new(base.clone());
            let before = base.scan(Bound::Unbounded, None, 100).expect("scans");
            overlay.commit(&change).expect("commits");
            assert_eq!(base.scan(Bound::Unbounded, None, 100).expect("scans"), before);
            let all = |store: &dyn Metastore, limit| {
                let mut rows: Vec<Row> = Vec::new();
                loop {
                    let from = rows.last().map(|(key, _)| key.clone());
                    let from = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                    let page = store.scan(from, Some(b"r"), limit).expect("scans");
                    if page.is_empty() {
                        return rows;
                    }
                    rows.extend(page);
                }
            };
            for limit in [1, 2, 3, 100] {
                assert_eq!(all(&overlay, limit), all(&committed, limit));
            }
            for key in b'a'..b'v' {
                assert_eq!(overlay.get(&[key]), committed.get(&[key]));
            }
        }
    }
}
