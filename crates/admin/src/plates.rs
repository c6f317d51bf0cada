//! The rows of several plates as those of one file system, to look at.
//!
//! ```text
//!   plate 0   rows of its shards, its own ─┐
//!   plate 1   rows of its shards, its own ─┴▶ one sorted range
//! ```
//!
//! Invariants:
//! - A row of an inode or of a shard is that of the plate which owns the shard. Of the plates' own rows that bear one key, counts are added
//!   up, and of positions and marks the highest counts.
//! - Nothing is changed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use chiton_engine::{MARK, OwnRow};
use chiton_metastore::{Batch, Metastore, Row, StoreError, StoreStats};
use chiton_namespace::{StoredRow, shard_of, tag, tag_of};
use chiton_types::{PlateId, Plates};

/// The metadata stores of all plates, joined into one sequence of rows. Nothing is written.
pub struct RowsOfPlates {
    plates: Plates,
    stores: Vec<Arc<dyn Metastore>>,
}

/// A row as some plates have it.
type Found = Vec<(PlateId, Vec<u8>)>;

impl RowsOfPlates {
    /// The rows of these stores, one of each plate.
    ///
    /// # Panics
    /// If there are more or fewer.
    pub fn new(plates: Plates, stores: Vec<Arc<dyn Metastore>>) -> RowsOfPlates {
        assert_eq!(stores.len(), usize::from(plates.count()), "a store of each plate");
        RowsOfPlates { plates, stores }
    }

    pub(crate) fn plates(&self) -> Plates {
        self.plates
    }

    /// The store of each plate.
    pub(crate) fn stores(&self) -> impl Iterator<Item = (PlateId, &dyn Metastore)> {
        self.numbered().map(|(plate, store)| (plate, &**store))
    }

    /// The plate which has a row of an inode or of a shard. Others may have copies: of policies, and of marks.
    fn owner(&self, key: &[u8]) -> Option<PlateId> {
        home_of(Some(self.plates), key)
    }

    fn counts(&self, plate: PlateId, key: &[u8]) -> bool {
        self.owner(key).is_none_or(|owner| owner == plate)
    }

    /// The plate which has all rows of a range; `None` if several may.
    fn owner_of_range(&self, start: Bound<&[u8]>, end: Option<&[u8]>) -> Option<PlateId> {
        let (Bound::Included(start) | Bound::Excluded(start)) = start else { return None };
        let kind = start.first_chunk::<3>()?;
        end.filter(|end| end.first_chunk::<3>() == Some(kind)).and_then(|_| self.owner(start))
    }

    fn row(&self, key: &[u8], mut found: Found) -> Option<Vec<u8>> {
        if found.len() > 1
            && let Some(together) = together(key, &found)
        {
            return Some(together);
        }
        (!found.is_empty()).then(|| found.swap_remove(0).1)
    }

    fn numbered(&self) -> impl Iterator<Item = (PlateId, &Arc<dyn Metastore>)> {
        self.plates.all().zip(&self.stores)
    }

    /// The rows of a range up to a key at which each store was asked; that key, unless it was the end.
    fn page(
        &self,
        start: Bound<&[u8]>,
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<(Vec<Row>, Option<Vec<u8>>), StoreError> {
        if let Some(owner) = self.owner_of_range(start, end) {
            let page = self.stores[usize::from(owner.0)].scan(start, end, limit)?;
            let upto = page.last().map(|(last, _)| last.clone());
            return Ok((page, upto));
        }
        let mut rows: BTreeMap<Vec<u8>, Found> = BTreeMap::new();
        let mut upto: Option<Vec<u8>> = None;
        for (plate, store) in self.numbered() {
            let page = store.scan(start, end, limit)?;
            if let Some((last, _)) = page.last()
                && upto.as_ref().is_none_or(|upto| last < upto)
                && !store.scan(Bound::Excluded(last), end, 1)?.is_empty()
            {
                upto = Some(last.clone());
            }
            for (key, value) in page {
                if self.counts(plate, &key) {
                    rows.entry(key).or_default().push((plate, value));
                }
            }
        }
        rows.retain(|key, _| upto.as_ref().is_none_or(|upto| key <= upto));
        let rows = rows.into_iter().filter_map(|(key, found)| {
            let value = self.row(&key, found)?;
            Some((key, value))
        });
        Ok((rows.collect(), upto))
    }
}

/// The plate where a row of an inode or of a shard counts; `None` for rows that each plate has of its own. `plates`: `None` for one.
pub(crate) fn home_of(plates: Option<Plates>, key: &[u8]) -> Option<PlateId> {
    let is_of_shard = matches!(
        tag_of(key)?,
        tag::INODE
            | tag::ENTRY
            | tag::CONTENT
            | tag::CHUNK
            | tag::XATTRS
            | tag::ORPHAN
            | tag::LINKED
            | tag::POLICY
            | MARK
    );
    let shard = shard_of(key)?;
    match plates {
        _ if !is_of_shard => None,
        None => Some(PlateId(0)),
        Some(plates) => plates.of_shard(shard),
    }
}

/// The plates' own rows of one key; `None` if it is no such row, or is damaged in one of them.
fn together(key: &[u8], found: &Found) -> Option<Vec<u8>> {
    if StoredRow::InodeCount(0).key() == key {
        let counts = found.iter().map(|(_, value)| match StoredRow::decode(key, value) {
            Ok(Some(StoredRow::InodeCount(count))) => Some(count),
            _ => None,
        });
        return Some(StoredRow::InodeCount(counts.sum::<Option<u64>>()?).value());
    }
    if StoredRow::DecouplingLast(0).key() == key {
        let numbers = found.iter().map(|(_, value)| match StoredRow::decode(key, value) {
            Ok(Some(StoredRow::DecouplingLast(last))) => Some(last),
            _ => None,
        });
        let last = numbers.collect::<Option<Vec<u32>>>()?.into_iter().max()?;
        return Some(StoredRow::DecouplingLast(last).value());
    }
    let mut highest: Option<OwnRow> = None;
    for (_, value) in found {
        let own = OwnRow::decode(key, value).ok()??;
        highest = Some(match (highest, own) {
            (Some(OwnRow::Position(a)), OwnRow::Position(b)) => OwnRow::Position(a.max(b)),
            (Some(OwnRow::SessionMark(a)), OwnRow::SessionMark(b)) => OwnRow::SessionMark(a.max(b)),
            (None, own @ (OwnRow::Position(_) | OwnRow::SessionMark(_))) => own,
            _ => return None,
        });
    }
    Some(highest?.encode()?.1)
}

impl Metastore for RowsOfPlates {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut found = Found::new();
        for (plate, store) in self.numbered().filter(|(plate, _)| self.counts(*plate, key)) {
            found.extend(store.get(key)?.map(|value| (plate, value)));
        }
        Ok(self.row(key, found))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        let mut from = start.map(<[u8]>::to_vec);
        while rows.len() < limit {
            let (page, upto) = self.page(from.as_ref().map(Vec::as_slice), end, limit)?;
            rows.extend(page);
            match upto {
                Some(upto) => from = Bound::Excluded(upto),
                None => break,
            }
        }
        rows.truncate(limit);
        Ok(rows)
    }

    fn commit(&self, _: &Batch) -> Result<(), StoreError> {
        let cause = "the rows of several plates are only looked at".to_owned();
        Err(StoreError::Io { path: Default::default(), cause })
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        let mut all = StoreStats::default();
        for store in &self.stores {
            let stats = store.stats()?;
            all.disk_bytes += stats.disk_bytes;
            all.rows_approx += stats.rows_approx;
        }
        Ok(all)
    }

    /// The stores stay open.
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chiton_metastore::MemoryMetastore;
    use chiton_namespace::row_key;
    use chiton_types::Position;
    use chiton_types::ShardId;

    use super::*;

    fn store(rows: &[(Vec<u8>, &[u8])]) -> Arc<dyn Metastore> {
        let store = MemoryMetastore::new();
        let rows = rows.iter().map(|(key, value)| (key.clone(), Some(value.to_vec())));
        store.commit(&rows.collect()).expect("committed");
        Arc::new(store)
    }

    /// Two shards, two plates.
    fn two() -> RowsOfPlates {
        let own = |position: u64, mark: u64, count: u64| {
            let own = [OwnRow::Position(Position(position)), OwnRow::SessionMark(mark)];
            let mut rows: Vec<_> = own.into_iter().map(|row| row.encode().expect("a plain row")).collect();
            for row in [StoredRow::InodeCount(count), StoredRow::DecouplingLast(count as u32 * 3)] {
                rows.push((row.key(), row.value()));
            }
            rows
        };
        let stores =
            [own(7, 5, 2), own(4, (1 << 48) + 3, 1)].into_iter().zip([0u8, 1]).map(|(own, plate)| {
                let mut rows: Vec<(Vec<u8>, &[u8])> =
                    own.iter().map(|(key, value)| (key.clone(), &value[..])).collect();
                for shard in [0, 1] {
                    let is_own = shard == u16::from(plate);
                    rows.push((
                        row_key(ShardId(shard), chiton_engine::MARK, &[]),
                        if is_own { b"9" } else { b"1" },
                    ));
                }
                rows.push((row_key(ShardId(plate.into()), b'i', b"abcdef"), b"own"));
                rows.push((row_key(ShardId(0), b'S', &[plate; 8]), b"session"));
                rows.push((row_key(ShardId(1), b'i', b"both"), if plate == 1 { b"owner" } else { b"stray" }));
                store(&rows)
            });
        RowsOfPlates::new(Plates::new(2, 2).expect("fits"), stores.collect())
    }

    #[test]
    fn rows_are_merged_and_read_alike_in_pages_of_any_size() {
        let rows = two();
        let whole = rows.scan(Bound::Unbounded, None, 1000).expect("scanned");
        assert!(whole.is_sorted());
        assert_eq!(whole.len(), 4 + 2 + 2 + 2 + 1);
        for (key, value) in &whole {
            assert_eq!(rows.get(key).expect("read").as_ref(), Some(value));
        }
        for limit in 1..whole.len() {
            let (mut paged, mut from) = (Vec::new(), Bound::Unbounded);
            loop {
                let page = rows.scan(from.as_ref().map(Vec::as_slice), None, limit).expect("scanned");
                let Some((last, _)) = page.last() else { break };
                from = Bound::Excluded(last.clone());
                paged.extend(page);
            }
            assert_eq!(paged, whole, "in pages of {limit}");
        }
    }

    #[test]
    fn the_owner_of_a_row_decides_and_counts_are_added_up() {
        let rows = two();
        let get = |key: &[u8]| rows.get(key).expect("read").expect("there");
        assert_eq!(get(&row_key(ShardId(1), b'i', b"both")), b"owner");
        assert_eq!(get(&row_key(ShardId(0), chiton_engine::MARK, &[])), b"9");
        assert_eq!(get(&row_key(ShardId(1), chiton_engine::MARK, &[])), b"9");
        assert_eq!(get(&StoredRow::InodeCount(0).key()), StoredRow::InodeCount(3).value());
        let last = StoredRow::DecouplingLast(6);
        assert_eq!(get(&last.key()), last.value(), "the highest of all plates");
        for row in [OwnRow::Position(Position(7)), OwnRow::SessionMark((1 << 48) + 3)] {
            let (key, value) = row.encode().expect("a plain row");
            assert_eq!(get(&key), value);
        }
    }
}
