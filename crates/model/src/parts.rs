//! The parts of a directory: which inode has which of its names.
//!
//! Invariants:
//! - Ranges of [`chiton_types::name_hash`] in ascending order; the first begins at 0, and each ends where the next begins.
//! - The directory's own inode, its home, is the first of them.
//! - A part that was folded has a range past the hashes of all names, until the inodes that were named in it know their directory.

use chiton_types::Ino;
use chiton_types::codec::{Malformed, Put, Take};
use serde_json::json;

use crate::code;

/// Hashes of names are below this.
pub const HASHES: u64 = 1 << 63;

/// A range of names, and the inode that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRange {
    /// The lowest hash of a name.
    pub first: u64,
    pub ino: Ino,
}

impl PartRange {
    /// Whether it has no names any more: its directory has folded it.
    pub fn is_folded(&self) -> bool {
        self.first >= HASHES
    }
}

code!(
    PartRange,
    9,
    "v first hash, ino",
    |v, out| {
        out.put_varint(v.first);
        out.put_u64(v.ino.0);
    },
    |from| Ok(PartRange { first: from.varint()?, ino: Ino(from.u64()?) }),
    |v| json!({ "first": v.first, "inode": v.ino.0 });
    draw = |from| PartRange { first: from.number(), ino: Ino(from.number()) }
);

/// Equal ranges for these inodes, the first of which is the home.
pub fn equal_parts(inodes: &[Ino]) -> Vec<PartRange> {
    let width = HASHES / inodes.len().max(1) as u64;
    inodes.iter().enumerate().map(|(at, &ino)| PartRange { first: at as u64 * width, ino }).collect()
}

/// The inode that has names with this hash; `None` of an empty list.
pub fn part_of(parts: &[PartRange], hash: u64) -> Option<Ino> {
    parts.iter().rev().find(|part| part.first <= hash).or(parts.first()).map(|part| part.ino)
}

/// The lowest and the highest hash of an inode's range.
pub fn range_of(parts: &[PartRange], ino: Ino) -> Option<(u64, u64)> {
    let at = parts.iter().position(|part| part.ino == ino)?;
    Some((parts[at].first, last_before(parts[at].first, parts.get(at + 1).map(|next| next.first))))
}

/// The highest hash of a range, from its lowest, and that of the next one.
fn last_before(first: u64, next: Option<u64>) -> u64 {
    let last = next.map_or(u64::MAX, |next| next.saturating_sub(1));
    if first < HASHES { last.min(HASHES - 1) } else { u64::MAX }
}

/// The lowest and the highest hash of the home's range, from the bytes of a list. The home has the first range.
///
/// # Errors
/// As [`decode_parts`], as far as it looks.
pub fn home_range(bytes: &[u8]) -> Result<(u64, u64), Malformed> {
    let mut from = Take::new(bytes);
    let (first, _) = (from.varint()?, from.u64()?);
    let next = if from.is_empty() { None } else { Some(from.varint()?) };
    Ok((first, last_before(first, next)))
}

/// The bytes of a list, as a directory's content row has them.
pub fn encode_parts(parts: &[PartRange]) -> Vec<u8> {
    let mut out = Vec::with_capacity(parts.len() * 17);
    for part in parts {
        out.put_varint(part.first);
        out.put_u64(part.ino.0);
    }
    out
}

/// Reads [`encode_parts`].
///
/// # Errors
/// If the bytes are no list in ascending order from 0 on.
pub fn decode_parts(bytes: &[u8]) -> Result<Vec<PartRange>, Malformed> {
    let mut from = Take::new(bytes);
    let mut parts: Vec<PartRange> = Vec::new();
    while !from.is_empty() {
        let part = PartRange { first: from.varint()?, ino: Ino(from.u64()?) };
        let is_next = parts.last().map_or(part.first == 0, |last| part.first > last.first);
        if !is_next {
            return Err(Malformed { expected: "parts of a directory in order" });
        }
        parts.push(part);
    }
    if parts.is_empty() { Err(Malformed { expected: "parts of a directory" }) } else { Ok(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hash_belongs_to_one_part() {
        let parts = equal_parts(&[Ino(7), Ino(8), Ino(9)]);
        assert_eq!(decode_parts(&encode_parts(&parts)).expect("a list"), parts);
        let mut next = 0;
        for part in &parts {
            let (first, last) = range_of(&parts, part.ino).expect("its range");
            assert_eq!(first, next);
            assert_eq!((part_of(&parts, first), part_of(&parts, last)), (Some(part.ino), Some(part.ino)));
            next = last + 1;
        }
        assert_eq!(next, HASHES, "the last range ends with the last hash");
        assert_eq!(home_range(&encode_parts(&parts)).ok(), range_of(&parts, Ino(7)));
        assert_eq!(home_range(&encode_parts(&parts[..1])).ok(), Some((0, HASHES - 1)));
        assert_eq!((part_of(&[], 5), range_of(&parts, Ino(1))), (None, None));
        let (mut swapped, mut late) = (parts.clone(), parts);
        swapped.swap(1, 2);
        late.remove(0);
        assert!(
            decode_parts(&encode_parts(&swapped)).is_err() && decode_parts(&encode_parts(&late)).is_err()
        );
        assert!(decode_parts(&[]).is_err());
    }

    #[test]
    fn folded_parts_have_no_names() {
        let folded = [PartRange { first: HASHES, ino: Ino(8) }, PartRange { first: HASHES + 1, ino: Ino(9) }];
        let all = [&[PartRange { first: 0, ino: Ino(7) }], &folded[..]].concat();
        assert_eq!(decode_parts(&encode_parts(&all)).expect("a list"), all);
        assert_eq!(range_of(&all, Ino(7)), Some((0, HASHES - 1)));
        assert_eq!(home_range(&encode_parts(&all)).ok(), Some((0, HASHES - 1)));
        for part in folded {
            assert!(part.is_folded() && range_of(&all, part.ino).expect("its range").0 >= HASHES);
        }
        assert_eq!(part_of(&all, HASHES - 1), Some(Ino(7)));
    }
}
