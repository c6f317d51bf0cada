//! Whether the target has every row of the source, and no other.

use std::ops::Bound;

use chiton_metastore::{Metastore, Row};
use chiton_types::PlateId;

use crate::RowsOfPlates;
use crate::fsck::Progress;
use crate::growth::copy::placed;
use crate::growth::{GrowError, PAGE_ROWS, Parted, Plan, each_row};

/// Compares all rows of files and directories with what the plates have.
pub(super) fn rows(
    plan: &Plan,
    source: &dyn Metastore,
    target: &RowsOfPlates,
    parted: &Parted,
    total: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), GrowError> {
    let mut copy = Copy { plan, target, page: Vec::new().into_iter(), last: None };
    let mut done = 0;
    each_row(source, (&[], None), &mut |key, value| {
        done += 1;
        progress(Progress { pass: "comparing rows", done, total });
        let Some((_, expected)) = placed(plan, parted, key, value)? else { return Ok(()) };
        match copy.next()? {
            Some((found, value)) if found == key && value == expected => Ok(()),
            Some((found, _)) if found == key => Err(differs("is another", key)),
            Some((found, _)) if found.as_slice() < key => Err(differs("is only there", &found)),
            Some(_) | None => Err(differs("is missing there", key)),
        }
    })?;
    match copy.next()? {
        Some((found, _)) => Err(differs("is only there", &found)),
        None => Ok(()),
    }
}

fn differs(how: &str, key: &[u8]) -> GrowError {
    GrowError::Differs(format!("the row {} {how}", key.escape_ascii()))
}

/// The rows of the target that come from the source, in order.
struct Copy<'a> {
    plan: &'a Plan,
    target: &'a RowsOfPlates,
    page: std::vec::IntoIter<Row>,
    last: Option<Vec<u8>>,
}

impl Copy<'_> {
    fn next(&mut self) -> Result<Option<Row>, GrowError> {
        loop {
            let Some((key, value)) = self.page.next() else {
                let from = self.last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let page = self.target.scan(from, None, PAGE_ROWS)?;
                let Some((last, _)) = page.last() else { return Ok(None) };
                self.last = Some(last.clone());
                self.page = page.into_iter();
                continue;
            };
            // Here blocks bear their new names already.
            if let Some((PlateId(_), _)) = placed(self.plan, &Parted::new(), &key, &value)? {
                return Ok(Some((key, value)));
            }
        }
    }
}
