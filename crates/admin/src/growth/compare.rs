//! Whether each plate of the target has every row of the source that it needs, and no other.

use std::ops::Bound;

use chiton_metastore::{Metastore, Row};
use chiton_types::PlateId;

use crate::fsck::Progress;
use crate::growth::copy::{Stores, placed};
use crate::growth::{GrowError, PAGE_ROWS, Parted, Plan, each_row};

/// Rows of all plates that are in memory at a time.
const ROWS_MAX: usize = 64 * 1024;

/// Compares all rows of files, directories and policies with the rows of each plate.
pub(super) fn rows(
    plan: &Plan,
    source: &dyn Metastore,
    target: &Stores,
    parted: &Parted,
    total: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), GrowError> {
    let page_rows = (ROWS_MAX / usize::from(plan.plates.count())).clamp(1, PAGE_ROWS);
    let copy = |plate| Copy {
        plan,
        plate,
        store: target.of(plate),
        page_rows,
        page: Vec::new().into_iter(),
        last: None,
    };
    let mut copies: Vec<Copy<'_>> = plan.plates.all().map(copy).collect();
    let mut done = 0;
    each_row(source, (&[], None), &mut |key, value| {
        done += 1;
        progress(Progress { pass: "comparing rows", done, total });
        let Some(expected) = placed(plan, parted, key, value)? else { return Ok(()) };
        for plate in expected.plates(plan) {
            let copy = &mut copies[usize::from(plate.0)];
            match copy.next()? {
                Some((found, value)) if found == key && value == expected.value => {}
                Some((found, _)) if found == key => return Err(copy.differs("is another", key)),
                Some((found, _)) if found.as_slice() < key => {
                    return Err(copy.differs("is only there", &found));
                }
                Some(_) | None => return Err(copy.differs("is missing there", key)),
            }
        }
        Ok(())
    })?;
    for mut copy in copies {
        if let Some((found, _)) = copy.next()? {
            return Err(copy.differs("is only there", &found));
        }
    }
    Ok(())
}

/// The rows of a plate that come from the source, in order.
struct Copy<'a> {
    plan: &'a Plan,
    plate: PlateId,
    store: &'a dyn Metastore,
    page_rows: usize,
    page: std::vec::IntoIter<Row>,
    last: Option<Vec<u8>>,
}

impl Copy<'_> {
    fn next(&mut self) -> Result<Option<Row>, GrowError> {
        loop {
            let Some((key, value)) = self.page.next() else {
                let from = self.last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let page = self.store.scan(from, None, self.page_rows)?;
                let Some((last, _)) = page.last() else { return Ok(None) };
                self.last = Some(last.clone());
                self.page = page.into_iter();
                continue;
            };
            // Here blocks bear their new names already.
            if placed(self.plan, &Parted::new(), &key, &value)?.is_some() {
                return Ok(Some((key, value)));
            }
        }
    }

    fn differs(&self, how: &str, key: &[u8]) -> GrowError {
        GrowError::Differs(format!("of plate {}, the row {} {how}", self.plate, key.escape_ascii()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chiton_metastore::{Batch, MemoryMetastore};
    use chiton_model::PolicyChange;
    use chiton_namespace::StoredRow;
    use chiton_types::{Ino, Plates, ShardId, Time};

    use super::*;
    use crate::growth::blocks::Copied;
    use crate::growth::copy;
    use crate::growth::policies::Policies;

    const SHARDS: u16 = 4;
    const PLATES: u16 = 3;

    fn change(ino: Ino, version: u64, text: Option<&str>) -> PolicyChange {
        PolicyChange {
            ino,
            version,
            path: format!("/{version}").into_bytes(),
            text: text.map(|text| text.as_bytes().to_vec()),
            uid: 0,
            time: Time(7),
            around: Ino::ROOT,
            below: Vec::new(),
        }
    }

    /// Policies of directories in the first and the last shard, and one that was removed.
    fn source_rows() -> Vec<StoredRow> {
        let (first, last) = (Ino::new(ShardId(0), 5), Ino::new(ShardId(SHARDS - 1), 6));
        let changes = [
            change(first, 1, Some("data: lazy")),
            change(last, 2, Some("placement: near")),
            change(Ino(9), 3, Some("")),
            change(Ino(9), 4, None),
        ];
        let carried = changes[..2].iter().map(|change| StoredRow::Policy(change.ino, change.clone()));
        let history = changes.iter().map(|change| StoredRow::PolicyChange(change.version, change.clone()));
        let content = [first, last].map(|ino| StoredRow::Content(ino, b"text".to_vec()));
        carried.chain(history).chain(content).chain([StoredRow::DecouplingLast(7)]).collect()
    }

    struct Grown {
        source: MemoryMetastore,
        plan: Plan,
        stores: Stores,
    }

    fn grown() -> Grown {
        let source = MemoryMetastore::new();
        source
            .commit(&source_rows().iter().map(|row| (row.key(), Some(row.value()))).collect())
            .expect("commits");
        let plates = Plates::new(SHARDS, PLATES).expect("a plate has shards");
        let policies = Policies::read(&source, SHARDS).expect("read");
        let plan = Plan { plates, writers: vec![0; usize::from(PLATES)], policies };
        let stores = plates.all().map(|_| Arc::new(MemoryMetastore::new()) as Arc<dyn Metastore>);
        let stores = Stores::of_all(stores.collect());
        copy::rows(&plan, &source, &Copied::default(), &stores, 1, &mut |_| {}).expect("copies");
        Grown { source, plan, stores }
    }

    impl Grown {
        /// How the copy differs.
        fn difference(&self) -> Option<String> {
            let compared = rows(&self.plan, &self.source, &self.stores, &Parted::new(), 1, &mut |_| {});
            compared.err().map(|error| error.to_string())
        }
    }

    #[test]
    fn every_plate_has_all_policies_and_their_history() {
        let grown = grown();
        assert_eq!(grown.difference(), None);
        let owned = |row: &StoredRow| matches!(row, StoredRow::Content(..));
        for plate in grown.plan.plates.all() {
            for row in source_rows().iter().filter(|row| !owned(row)) {
                let found = grown.stores.of(plate).get(&row.key()).expect("read");
                assert_eq!(found, Some(row.value()), "{row:?} of plate {plate}");
            }
        }
    }

    #[test]
    fn a_policy_row_that_is_missing_changed_or_extra_on_any_plate_is_found() {
        let extra = [
            StoredRow::Policy(Ino::new(ShardId(1), 3), change(Ino::new(ShardId(1), 3), 2, Some(""))),
            StoredRow::PolicyChange(5, change(Ino(9), 5, None)),
        ];
        let is_policy = |row: &StoredRow| matches!(row, StoredRow::Policy(..) | StoredRow::PolicyChange(..));
        // A key, its value, and how the copy differs then.
        type Case = (Vec<u8>, Option<Vec<u8>>, &'static str);
        let mut cases: Vec<Case> = Vec::new();
        for row in source_rows().iter().filter(|row| is_policy(row)) {
            cases.push((row.key(), None, "missing there"));
            let (StoredRow::Policy(_, had) | StoredRow::PolicyChange(_, had)) = row else { continue };
            let other = PolicyChange { text: Some(b"acknowledge: durable".to_vec()), ..had.clone() };
            let other = match row {
                StoredRow::Policy(ino, _) => StoredRow::Policy(*ino, other),
                _ => StoredRow::PolicyChange(had.version, other),
            };
            cases.push((row.key(), Some(other.value()), "is another"));
        }
        cases.extend(extra.iter().map(|row| (row.key(), Some(row.value()), "only there")));
        for plate in grown().plan.plates.all() {
            for (key, value, how) in &cases {
                let grown = grown();
                let damage = Batch::from_iter([(key.clone(), value.clone())]);
                grown.stores.of(plate).commit(&damage).expect("commits");
                let found = grown.difference().unwrap_or_default();
                let key = key.escape_ascii().to_string();
                assert!(
                    found.contains(how)
                        && found.contains(&key)
                        && found.contains(&format!("of plate {plate},")),
                    "{key} {how} of plate {plate}: {found}"
                );
            }
        }
    }

    #[test]
    fn a_row_on_a_plate_that_does_not_own_it_is_found() {
        let grown = grown();
        let row = source_rows().into_iter().find(|row| matches!(row, StoredRow::Content(..))).expect("made");
        let stray = Batch::from_iter([(row.key(), Some(row.value()))]);
        grown.stores.of(PlateId(PLATES - 1)).commit(&stray).expect("commits");
        let found = grown.difference().unwrap_or_default();
        assert!(found.contains("of plate 2,") && found.contains("only there"), "{found}");
    }
}
