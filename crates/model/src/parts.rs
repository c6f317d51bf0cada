//! The parts of a directory: which inode has which of its names.
//!
//! Invariants:
//! - Ranges of [`chiton_types::name_hash`] in ascending order; the first begins at 0, and each ends where the next begins.
//! - The directory's own inode, its home, is the first of them.

use chiton_types::Ino;
use chiton_types::codec::{Malformed, Put, Take};
use serde_json::json;

use crate::code;

/// A range of names, and the inode that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRange {
    /// The lowest hash of a name.
    pub first: u64,
    pub ino: Ino,
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
    let width = (1u64 << 63) / inodes.len().max(1) as u64;
    inodes.iter().enumerate().map(|(at, &ino)| PartRange { first: at as u64 * width, ino }).collect()
}

/// The inode that has names with this hash; `None` of an empty list.
pub fn part_of(parts: &[PartRange], hash: u64) -> Option<Ino> {
    parts.iter().rev().find(|part| part.first <= hash).or(parts.first()).map(|part| part.ino)
}

/// The lowest and the highest hash of an inode's range.
pub fn range_of(parts: &[PartRange], ino: Ino) -> Option<(u64, u64)> {
    let at = parts.iter().position(|part| part.ino == ino)?;
    let last = parts.get(at + 1).map_or(u64::MAX, |next| next.first - 1);
    Some((parts[at].first, last))
}

/// The lowest and the highest hash of the home's range, from the bytes of a list. The home has the first range.
///
/// # Errors
/// As [`decode_parts`], as far as it looks.
pub fn home_range(bytes: &[u8]) -> Result<(u64, u64), Malformed> {
    let mut from = Take::new(bytes);
    let (first, _) = (from.varint()?, from.u64()?);
    let last = if from.is_empty() { u64::MAX } else { from.varint()?.saturating_sub(1) };
    Ok((first, last))
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
            next = last.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last range ends with the last hash");
        assert_eq!(home_range(&encode_parts(&parts)).ok(), range_of(&parts, Ino(7)));
        assert_eq!(home_range(&encode_parts(&parts[..1])).ok(), Some((0, u64::MAX)));
        assert_eq!((part_of(&[], 5), range_of(&parts, Ino(1))), (None, None));
        let (mut swapped, mut late) = (parts.clone(), parts);
        swapped.swap(1, 2);
        late.remove(0);
        assert!(
            decode_parts(&encode_parts(&swapped)).is_err() && decode_parts(&encode_parts(&late)).is_err()
        );
        assert!(decode_parts(&[]).is_err());
    }
}
