//! Bytes of the messages: `encode` appends, `decode` reads back.
//!
//! Invariants:
//! - `decode(encode(m)) == m` for every message within the limits of [`crate::message`].
//! - Decoding never panics, and allocates at most a small multiple of the bytes that are there: every count is
//!   checked against what is left, and the counts of operations and groups against their limits.
//! - What occurs in every request or in masses (headers, attributes, operations) has fixed offsets; what is rare
//!   is written with varints. `docs/formats.md`, "Wire protocol", has the layouts.

mod cred;
mod handshake;
mod outcome;
mod realm;
mod reply;
mod request;

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Attr, Ino, Kind, Mode, Position, Time};

use crate::message::{LeaseMode, Lock, LockKind};

pub use handshake::IDENTITY_BYTES_MAX;

/// Bytes of encoded [`Attr`].
pub(crate) const ATTR_BYTES: usize = 92;
/// Bytes of an encoded [`Lock`].
const LOCK_BYTES: usize = 38;

fn bad<T>(expected: &'static str) -> Result<T, Malformed> {
    Err(Malformed { expected })
}

fn take_bool(from: &mut Take<'_>) -> Result<bool, Malformed> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => bad("a flag of 0 or 1"),
    }
}

fn take_u32_varint(from: &mut Take<'_>) -> Result<u32, Malformed> {
    u32::try_from(from.varint()?).or(bad("a number of 32 bits"))
}

/// A checked flag byte: no bit outside `known` may be set, so that bits can get a meaning later.
fn take_flags(from: &mut Take<'_>, known: u8) -> Result<u8, Malformed> {
    let flags = from.u8()?;
    if flags & !known != 0 { bad("known flags") } else { Ok(flags) }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.put_bytes(text.as_bytes());
}

fn take_text(from: &mut Take<'_>) -> Result<String, Malformed> {
    match str::from_utf8(from.bytes()?) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => bad("text in UTF-8"),
    }
}

fn take_lease(from: &mut Take<'_>) -> Result<LeaseMode, Malformed> {
    Ok(match from.u8()? {
        0 => LeaseMode::None,
        1 => LeaseMode::Shared,
        2 => LeaseMode::Exclusive,
        _ => return bad("a lease mode"),
    })
}

fn take_kind(from: &mut Take<'_>) -> Result<Kind, Malformed> {
    Kind::from_u8(from.u8()?).ok_or(Malformed { expected: "a type of inode" })
}

fn take_mode(from: &mut Take<'_>) -> Result<Mode, Malformed> {
    let bits = from.u16()?;
    if bits > 0o7777 { bad("permissions of 12 bits") } else { Ok(Mode(bits)) }
}

/// One store of 92 bytes instead of 15 appends: replies to batches consist of little else.
#[inline]
fn put_attr(out: &mut Vec<u8>, attr: &Attr) {
    let mut bytes = [0u8; ATTR_BYTES];
    bytes[0..8].copy_from_slice(&attr.ino.0.to_le_bytes());
    bytes[8] = attr.kind as u8;
    bytes[9..11].copy_from_slice(&attr.mode.0.to_le_bytes());
    bytes[11..15].copy_from_slice(&attr.nlink.to_le_bytes());
    bytes[15..19].copy_from_slice(&attr.uid.to_le_bytes());
    bytes[19..23].copy_from_slice(&attr.gid.to_le_bytes());
    bytes[23..27].copy_from_slice(&attr.rdev.to_le_bytes());
    bytes[27..35].copy_from_slice(&attr.size.to_le_bytes());
    bytes[35..43].copy_from_slice(&attr.allocated.to_le_bytes());
    bytes[43..51].copy_from_slice(&attr.atime.0.to_le_bytes());
    bytes[51..59].copy_from_slice(&attr.mtime.0.to_le_bytes());
    bytes[59..67].copy_from_slice(&attr.ctime.0.to_le_bytes());
    bytes[67..75].copy_from_slice(&attr.btime.0.to_le_bytes());
    bytes[75..83].copy_from_slice(&attr.parent.0.to_le_bytes());
    bytes[83..91].copy_from_slice(&attr.position.0.to_le_bytes());
    bytes[91] = attr.flags;
    out.extend_from_slice(&bytes);
}

#[inline]
fn take_attr(from: &mut Take<'_>) -> Result<Attr, Malformed> {
    // One length check; the reads below are then known to stay within.
    let mut from = Take::new(from.take(ATTR_BYTES, "attributes")?);
    Ok(Attr {
        ino: Ino(from.u64()?),
        kind: take_kind(&mut from)?,
        mode: take_mode(&mut from)?,
        nlink: from.u32()?,
        uid: from.u32()?,
        gid: from.u32()?,
        rdev: from.u32()?,
        size: from.u64()?,
        allocated: from.u64()?,
        atime: Time(from.i64()?),
        mtime: Time(from.i64()?),
        ctime: Time(from.i64()?),
        btime: Time(from.i64()?),
        parent: Ino(from.u64()?),
        position: Position(from.u64()?),
        flags: take_flags(&mut from, Attr::FLAGS)?,
    })
}

fn put_lock(out: &mut Vec<u8>, lock: &Lock) {
    out.put_u64(lock.ino.0);
    out.put_u8(u8::from(lock.flock));
    out.put_u64(lock.owner);
    out.put_u64(lock.start);
    out.put_u64(lock.end);
    out.put_u8(lock.kind as u8);
    out.put_u32(lock.pid);
}

fn take_lock(from: &mut Take<'_>) -> Result<Lock, Malformed> {
    Ok(Lock {
        ino: Ino(from.u64()?),
        flock: take_bool(from)?,
        owner: from.u64()?,
        start: from.u64()?,
        end: from.u64()?,
        kind: match from.u8()? {
            0 => LockKind::Unlock,
            1 => LockKind::Read,
            2 => LockKind::Write,
            _ => return bad("a kind of lock"),
        },
        pid: from.u32()?,
    })
}
