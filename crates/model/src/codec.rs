//! Encodings of values that operations, events and messages share.

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Kind, Mode, Name, RealmId};

use crate::change::Body;
use crate::extent::{EXTENT_BYTES_MIN, Extent};
use crate::op::FILE_BYTES_MAX;

/// Appends a [`Body`]: 0 and the bytes, or 1 and the extents.
pub fn put_body(out: &mut Vec<u8>, body: &Body) {
    match body {
        Body::Inline(bytes) => {
            out.put_u8(0);
            out.put_bytes(bytes);
        }
        Body::Extents(extents) => {
            out.put_u8(1);
            put_extents(out, extents);
        }
    }
}

pub fn take_body(from: &mut Take<'_>) -> Result<Body, Malformed> {
    match from.u8()? {
        0 => Ok(Body::Inline(from.bytes()?.to_vec())),
        1 => Ok(Body::Extents(take_extents(from)?)),
        _ => Err(Malformed { expected: "a kind of content" }),
    }
}

/// Appends a count and the extents.
pub fn put_extents(out: &mut Vec<u8>, extents: &[Extent]) {
    out.put_varint(extents.len() as u64);
    for e in extents {
        e.encode(out);
    }
}

/// Reads extents; they must be in ascending order and not overlap.
pub fn take_extents(from: &mut Take<'_>) -> Result<Vec<Extent>, Malformed> {
    let n = from.count(3)?;
    let mut extents: Vec<Extent> = Vec::with_capacity(n.min(from.rest().len() / EXTENT_BYTES_MIN + 1));
    for _ in 0..n {
        let e = Extent::decode(from)?;
        if extents.last().is_some_and(|last| last.end() > e.offset) {
            return Err(Malformed { expected: "extents in ascending order" });
        }
        extents.push(e);
    }
    Ok(extents)
}

/// A size, or the end of a range, of a file.
pub fn file_bytes(n: u64) -> Result<u64, Malformed> {
    if n <= FILE_BYTES_MAX { Ok(n) } else { Err(Malformed { expected: "a size within the largest file" }) }
}

/// Reads a checked name.
pub fn take_name(from: &mut Take<'_>) -> Result<Name, Malformed> {
    Name::new(from.bytes()?)
        .map_err(|_| Malformed { expected: "a name of 1 to 255 bytes without '/' and NUL" })
}

pub fn take_id(from: &mut Take<'_>) -> Result<RealmId, Malformed> {
    match from.u32()? {
        0 => Err(Malformed { expected: "the number of a decoupling" }),
        id => Ok(RealmId(id)),
    }
}

/// Reads a flag of 0 or 1.
pub fn take_flag(from: &mut Take<'_>) -> Result<bool, Malformed> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed { expected: "a flag of 0 or 1" }),
    }
}

pub fn take_kind(from: &mut Take<'_>) -> Result<Kind, Malformed> {
    Kind::from_u8(from.u8()?).ok_or(Malformed { expected: "a type of inode" })
}

pub fn take_mode(from: &mut Take<'_>) -> Result<Mode, Malformed> {
    let bits = from.u16()?;
    if bits > 0o7777 { Err(Malformed { expected: "permissions of 12 bits" }) } else { Ok(Mode(bits)) }
}
