//! Changes that happen together.
//!
//! ```text
//!   put, delete ──▶ above the last of `ascending`? ──▶ ascending   (a checkpoint's rows, all but a few)
//!                        │ no ──────────────────────▶ others       sorted when they are read
//!   rows() = both, merged
//! ```
//!
//! A checkpoint after a burst has millions of rows: they lie one after the other in a few large allocations, and are
//! kept there until the commit has succeeded.
//!
//! Invariants:
//! - A key in `others` that `ascending` has too came later: `ascending` only grows upwards.

use std::cmp::Ordering;
use std::fmt;

use crate::store::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Bytes of one allocation; a larger row has one for itself.
const CHUNK_BYTES: usize = 1 << 20;
/// Length of the key (u16), of the value plus one, 0 for a deletion (u32).
const HEAD_BYTES: usize = 6;

/// A row to store, or to delete where there is no value.
pub type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// Rows to store, or to delete where there is no value. If a key comes twice, the last one counts.
#[derive(Clone, Default)]
pub struct Batch {
    ascending: Rows,
    others: Rows,
}

impl Batch {
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Stores a row. Panics on keys and values that no store takes.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push((key.as_ref(), Some(value.as_ref())));
    }

    /// Deletes a row, if there is one. Panics on keys that no store takes.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.push((key.as_ref(), None));
    }

    /// Stores or deletes a row. In ascending order rows take the least memory and time.
    ///
    /// # Panics
    /// On keys and values that no store takes.
    pub fn push(&mut self, (key, value): Change<'_>) {
        let fits = (1..=KEY_BYTES_MAX).contains(&key.len()) && key[0] != 0xff;
        assert!(fits, "a row's key has 1 to {KEY_BYTES_MAX} bytes and does not begin with 0xff: {key:?}");
        let bytes = value.map_or(0, <[u8]>::len);
        assert!(bytes <= VALUE_BYTES_MAX, "a row's value has at most {VALUE_BYTES_MAX} bytes, not {bytes}");
        let is_above = self.ascending.last().is_none_or(|(last, _)| key > last);
        if is_above { &mut self.ascending } else { &mut self.others }.push(key, value);
    }

    /// How many rows were given; a key that came twice counts twice.
    pub fn len(&self) -> usize {
        self.ascending.len + self.others.len
    }

    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its rows, ascending and each key once.
    pub fn rows(&self) -> impl Iterator<Item = Change<'_>> {
        let mut others: Vec<Change<'_>> = self.others.iter().collect();
        // Stable: the last of equal keys is the one that came last.
        others.sort_by(|a, b| a.0.cmp(b.0));
        others.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                *kept = *later;
            }
            same
        });
        let (mut below, mut above) = (self.ascending.iter().peekable(), others.into_iter().peekable());
        std::iter::from_fn(move || match (below.peek(), above.peek()) {
            (Some(a), Some(b)) => match a.0.cmp(b.0) {
                Ordering::Less => below.next(),
                Ordering::Greater => above.next(),
                Ordering::Equal => {
                    below.next();
                    above.next()
                }
            },
            (Some(_), None) => below.next(),
            (None, _) => above.next(),
        })
    }
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>> Extend<(K, Option<V>)> for Batch {
    fn extend<T: IntoIterator<Item = (K, Option<V>)>>(&mut self, rows: T) {
        rows.into_iter()
            .for_each(|(key, value)| self.push((key.as_ref(), value.as_ref().map(AsRef::as_ref))));
    }
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(K, Option<V>)> for Batch {
    fn from_iter<T: IntoIterator<Item = (K, Option<V>)>>(rows: T) -> Batch {
        let mut batch = Batch::new();
        batch.extend(rows);
        batch
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.rows()).finish()
    }
}

/// Rows in the order in which they came.
#[derive(Clone, Default)]
struct Rows {
    /// Rows one after the other, none in two chunks.
    chunks: Vec<Vec<u8>>,
    /// Where in the last chunk the last row begins.
    last: usize,
    len: usize,
}

impl Rows {
    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let bytes = HEAD_BYTES + key.len() + value.map_or(0, <[u8]>::len);
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < bytes) {
            // A small batch takes little.
            let room = if self.chunks.is_empty() { 4 << 10 } else { CHUNK_BYTES };
            self.chunks.push(Vec::with_capacity(bytes.max(room)));
        }
        let chunk = self.chunks.last_mut().expect("there is one");
        self.last = chunk.len();
        self.len += 1;
        chunk.extend_from_slice(&(key.len() as u16).to_le_bytes());
        chunk.extend_from_slice(&value.map_or(0, |value| value.len() as u32 + 1).to_le_bytes());
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(value.unwrap_or_default());
    }

    fn last(&self) -> Option<Change<'_>> {
        self.chunks.last().map(|chunk| first_of(&chunk[self.last..]).0)
    }

    fn iter(&self) -> impl Iterator<Item = Change<'_>> {
        self.chunks.iter().flat_map(|chunk| {
            let mut left = &chunk[..];
            std::iter::from_fn(move || {
                let (row, rest) = (!left.is_empty()).then(|| first_of(left))?;
                left = rest;
                Some(row)
            })
        })
    }
}

/// The first row, and the rows behind it.
fn first_of(rows: &[u8]) -> (Change<'_>, &[u8]) {
    let (head, rest) = rows.split_at(HEAD_BYTES);
    let key_len = u16::from_le_bytes([head[0], head[1]]);
    let value_len = u32::from_le_bytes([head[2], head[3], head[4], head[5]]);
    let (key, rest) = rest.split_at(usize::from(key_len));
    let (value, rest) = rest.split_at(value_len.saturating_sub(1) as usize);
    ((key, (value_len > 0).then_some(value)), rest)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_last_of_equal_keys_counts() {
        let mut batch = Batch::new();
        batch.put("b", "1");
        batch.put("a", "1");
        batch.delete("b");
        batch.put("a", "2");
        batch.put("a", "3");
        let rows: Vec<_> = batch.rows().collect();
        assert_eq!(rows, [(&b"a"[..], Some(&b"3"[..])), (b"b", None)]);
        assert_eq!(batch.len(), 5);
    }

    #[test]
    fn rows_of_any_size_in_any_order_are_those_of_a_map() {
        let mut x = 5u64;
        let mut draw = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) % n
        };
        for round in 0..50 {
            let (mut batch, mut model) = (Batch::new(), BTreeMap::new());
            for n in 0..draw(2_000) {
                // Mostly ascending, as a checkpoint's are.
                let number = if draw(10) == 0 { draw(2_000) } else { n };
                let key = number.to_be_bytes()[6..].repeat(1 + draw(2) as usize * round as usize % 5);
                let large = if draw(500) == 0 { 3 << 20 } else { 100 };
                let value = (draw(4) > 0).then(|| vec![n as u8; draw(large) as usize]);
                batch.push((&key, value.as_deref()));
                model.insert(key, value);
            }
            assert!(batch.rows().eq(model.iter().map(|(key, value)| (&key[..], value.as_deref()))));
            assert_eq!(batch.is_empty(), model.is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "does not begin with 0xff")]
    fn the_stores_own_keys_are_not_the_callers() {
        Batch::new().delete([0xff, 1]);
    }
}
