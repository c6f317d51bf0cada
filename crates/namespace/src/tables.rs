//! Rows beside inodes and entries: content, chunks, extended attributes, block references, orphans, garbage.
//!
//! One table type for all: a row that is not in the table is not in memory; a row without a value is known to be absent.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

use crate::dirty::{Dirty, DirtyKey, FRESH, Marks, is_dirty};
use crate::namespace::RowChange;

/// Key of a side table.
pub(crate) trait TableKey: Copy + Ord {
    fn dirty(self) -> DirtyKey;
    fn row(self) -> Vec<u8>;
}

/// Value of a side table.
pub(crate) trait TableValue {
    fn encode(&self) -> Vec<u8>;
    /// Bytes on the heap.
    fn heap_bytes(&self) -> usize;
}

struct Row<V> {
    value: Option<V>,
    marks: Marks,
}

pub(crate) struct Table<K, V> {
    rows: BTreeMap<K, Row<V>>,
    bytes: usize,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table { rows: BTreeMap::new(), bytes: 0 }
    }
}

impl<K: TableKey, V: TableValue> Table<K, V> {
    /// `None`: not in memory. `Some(None)`: there is no such row.
    pub(crate) fn get(&self, key: K) -> Option<Option<&V>> {
        self.rows.get(&key).map(|r| r.value.as_ref())
    }

    /// The value, if it is in memory and there.
    pub(crate) fn value(&self, key: K) -> Option<&V> {
        self.rows.get(&key)?.value.as_ref()
    }

    /// Changes a value. `fresh`: if it is not in memory, the store has none either.
    pub(crate) fn change<R>(
        &mut self,
        key: K,
        dirty: &mut Dirty,
        fresh: bool,
        f: impl FnOnce(&mut Option<V>) -> R,
    ) -> R {
        let row = self
            .rows
            .entry(key)
            .or_insert_with(|| Row { value: None, marks: Cell::new(if fresh { FRESH } else { 0 }) });
        dirty.before_change(&row.marks, key.dirty(), || (key.row(), row.value.as_ref().map(V::encode)));
        let before = row.value.as_ref().map_or(0, V::heap_bytes);
        let result = f(&mut row.value);
        self.bytes = self.bytes - before + row.value.as_ref().map_or(0, V::heap_bytes);
        if row.value.is_none() && dirty.is_traceless(&row.marks) {
            self.rows.remove(&key);
        }
        result
    }

    /// Takes in a row that was fetched, unless something is in memory already.
    pub(crate) fn install(&mut self, key: K, value: Option<V>) {
        if let std::collections::btree_map::Entry::Vacant(e) = self.rows.entry(key) {
            self.bytes += value.as_ref().map_or(0, V::heap_bytes);
            e.insert(Row { value, marks: Cell::new(0) });
        }
    }

    /// Encodes the row if the running checkpoint still wants it.
    pub(crate) fn take(&mut self, key: K, dirty: &Dirty) -> Option<RowChange> {
        let row = self.rows.get(&key)?;
        if !dirty.take_mark(&row.marks) {
            return None;
        }
        Some((key.row(), row.value.as_ref().map(V::encode)))
    }

    /// Values in a range of keys, in order.
    pub(crate) fn range(&self, keys: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (K, &V)> {
        self.rows.range(keys).filter_map(|(&k, r)| Some((k, r.value.as_ref()?)))
    }

    /// Values whose row is in the store as it is.
    pub(crate) fn clean(&self) -> impl Iterator<Item = K> {
        self.rows.iter().filter(|(_, r)| r.value.is_some() && !is_dirty(&r.marks)).map(|(&k, _)| k)
    }

    /// Drops clean rows in a range of keys; true if none is left there.
    pub(crate) fn drop_clean(&mut self, keys: impl RangeBounds<K> + Clone) -> bool {
        let clean: Vec<K> =
            self.rows.range(keys.clone()).filter(|(_, r)| !is_dirty(&r.marks)).map(|(&k, _)| k).collect();
        for key in clean {
            if let Some(row) = self.rows.remove(&key) {
                self.bytes -= row.value.as_ref().map_or(0, V::heap_bytes);
            }
        }
        self.rows.range(keys).next().is_none()
    }

    /// Drops clean rows that say "absent".
    pub(crate) fn drop_absent(&mut self) {
        self.rows.retain(|_, r| r.value.is_some() || is_dirty(&r.marks));
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.rows.len() * (size_of::<K>() + size_of::<Row<V>>()) * 3 / 2 + self.bytes
    }
}
