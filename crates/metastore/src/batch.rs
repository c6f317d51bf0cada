//! Changes that happen together.

use crate::store::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Rows to store, or to delete where there is no value. If a key comes twice, the last one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Key, and value or deletion. Ascending order saves the store a sort.
    pub rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Batch {
    /// No change yet.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Stores a row.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.rows.push((key.into(), Some(value.into())));
    }

    /// Deletes a row, if there is one.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) {
        self.rows.push((key.into(), None));
    }

    /// Its rows, ascending and each key once. Panics on keys and values that no store takes.
    pub(crate) fn into_sorted_rows(mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        for (key, value) in &self.rows {
            let fits = (1..=KEY_BYTES_MAX).contains(&key.len()) && key[0] != 0xff;
            assert!(fits, "a row's key has 1 to {KEY_BYTES_MAX} bytes and does not begin with 0xff: {key:?}");
            let bytes = value.as_ref().map_or(0, Vec::len);
            assert!(
                bytes <= VALUE_BYTES_MAX,
                "a row's value has at most {VALUE_BYTES_MAX} bytes, not {bytes}"
            );
        }
        if !self.rows.is_sorted_by(|a, b| a.0 < b.0) {
            // Stable, so that the last of equal keys is the one that came last.
            self.rows.sort_by(|a, b| a.0.cmp(&b.0));
            self.rows.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    std::mem::swap(later, kept);
                }
                same
            });
        }
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_counts() {
        let mut batch = Batch::new();
        batch.put("b", "1");
        batch.put("a", "1");
        batch.delete("b");
        batch.put("a", "2");
        batch.put("a", "3");
        let rows = vec![(b"a".to_vec(), Some(b"3".to_vec())), (b"b".to_vec(), None)];
        assert_eq!(batch.into_sorted_rows(), rows);
    }

    #[test]
    #[should_panic(expected = "does not begin with 0xff")]
    fn the_stores_own_keys_are_not_the_callers() {
        Batch { rows: vec![(vec![0xff, 1], None)] }.into_sorted_rows();
    }
}
