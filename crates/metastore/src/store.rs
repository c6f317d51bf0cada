//! The trait of a metadata store.
//!
//! Invariants:
//! - Keys have 1 to 1024 bytes and do not begin with 0xff (a store keeps rows of its own there); values have up to
//!   64 MiB. A batch that breaks this is a defect of the caller and panics.
//! - `get_many` and `scan` answer from one state: no commit happens in their midst.

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Batch, StoreError};

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes that it takes on disk (in memory, for a store in memory), its own log included.
    pub disk_bytes: u64,
    /// About how many rows; versions and deletions not yet cleaned up may count.
    pub rows_approx: u64,
}

/// Rows sorted by key (bytewise). Blocking, callable from many threads.
///
/// Every method may fail with each [`StoreError`] but `NoSpace`, which only `commit` gives.
pub trait Metastore: Send + Sync {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// The values of keys, in the order asked.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;

    /// At most `limit` rows from `start` on and before `end` (none: to the last), ascending. The next page starts
    /// at `Bound::Excluded(last key)`. For the rows of a prefix, `end` is [`prefix_end`].
    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError>;

    /// Makes all changes of the batch. On an error it makes all or none, and the store may refuse everything until
    /// it is reopened. Durable on return.
    fn commit(&self, batch: &Batch) -> Result<(), StoreError>;

    /// A view of the present rows that later commits do not change, and to which nothing can be committed. It keeps
    /// disk space until it is dropped; drop it before the store is reopened. `Io` from a wrapper without views.
    fn snapshot(&self) -> Result<Arc<dyn Metastore>, StoreError> {
        let cause = "this kind of store gives no snapshots".to_owned();
        Err(StoreError::Io { path: PathBuf::new(), cause })
    }

    /// Frees the disk space of removed rows, and of rows that only the store's own journal still holds, with at most
    /// about `free` bytes of temporary space. `removed`: removed rows since this last returned true, also before the
    /// store was reopened. False: the removed rows still take space, since more than `free` bytes would be needed.
    fn reclaim(&self, free: u64, removed: u64) -> Result<bool, StoreError> {
        // A store that keeps no removed rows has nothing to do.
        let _ = (free, removed);
        Ok(true)
    }

    /// How many commits there were since the store was opened, and how many of them, the first ones, do not rest on a journal of
    /// the store's own any more. Commits from before the store was opened count with the first.
    fn settled(&self) -> (u64, u64) {
        (0, u64::MAX)
    }

    /// Moves the content of the store's own log to its tables, so that the next opening replays little. Commits continue meanwhile.
    fn shorten_log(&self) -> Result<(), StoreError> {
        // A store without such a log, or with a short one, has nothing to do.
        Ok(())
    }

    /// How large the store is. May walk its files: for reports, not for hot paths.
    fn stats(&self) -> Result<StoreStats, StoreError>;

    /// Lets go of the files; every later call fails with `Closed`. Closing again does nothing.
    fn close(&self) -> Result<(), StoreError>;
}

/// The first key after all that begin with `prefix`; none if there is no such key.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// True if no key can lie between the two bounds (back ends may panic on such).
pub(crate) fn is_empty_range(start: Bound<&[u8]>, end: Option<&[u8]>) -> bool {
    match (start, end) {
        (_, None) | (Bound::Unbounded, _) => false,
        (Bound::Included(start) | Bound::Excluded(start), Some(end)) => start >= end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_prefixes() {
        let cases: [(&[u8], Option<&[u8]>); 5] = [
            (b"a", Some(b"b")),
            (b"a\xff\xff", Some(b"b")),
            (b"", None),
            (b"\xff", None),
            (b"a\0", Some(b"a\x01")),
        ];
        for (prefix, end) in cases {
            assert_eq!(prefix_end(prefix).as_deref(), end, "{prefix:?}");
        }
    }
}
