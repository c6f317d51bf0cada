//! The codecs of single values: numbers, names, and the types of operations, outcomes and merges.
//!
//! By hand stand here only layouts that a table cannot say: a value that follows a set of bits, and the attributes, which
//! consist of 15 fields and of which replies to batches consist.

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{
    Attr, BlockId, Epoch, Ino, Kind, Mode, Name, PlateId, Position, RealmId, Refusal, Seq, SessionId,
    ShardId, Time,
};
use serde_json::{Value, json};

use super::{Code, OverLimit, Sample, Samples, Shown, within};
use crate::change::Body;
use crate::code;
use crate::codec::{
    file_bytes, put_body, put_extents, take_body, take_extents, take_flag, take_id, take_kind, take_mode,
    take_name,
};
use crate::decoupling::{Attached, Decoupling, MergedUpTo};
use crate::extent::{CHUNK_BYTES, Extent};
use crate::op::FILE_BYTES_MAX;
use crate::policy::PolicyChange;
use crate::reverted::{OldContent, Reverted};
use crate::text::{kind_name, octal, text};

/// A size of a file, or a position or length in one: refused past the largest file.
#[derive(Debug)]
pub struct FileBytes;
/// Bytes that are shown as text.
#[derive(Debug)]
pub struct Text;
/// Bytes that are never shown.
#[derive(Debug)]
pub struct Hidden;
/// A number in as many bytes as its type has, not as a varint.
#[derive(Debug)]
pub struct Fixed;
/// A range of inode numbers: the first, and the first past it.
#[derive(Debug)]
pub struct Range;
/// A byte in which only these bits may be set, so that the others can get a meaning later.
#[derive(Debug)]
pub struct Bits<const MASK: u8>;

pub(super) fn small(from: &mut Take<'_>) -> Result<u32, Malformed> {
    u32::try_from(from.varint()?).map_err(|_| Malformed { expected: "a number of 32 bits" })
}

code!(Ino, 8, "ino", |v, out| out.put_u64(v.0), |from| Ok(Ino(from.u64()?)), |v| json!(v.0); draw = |from| Ino(from.number()));
code!(Time, 8, "time", |v, out| out.put_i64(v.0), |from| Ok(Time(from.i64()?)), |v| json!(v.0); draw = |from| Time(from.number() as i64));
code!(Position, 8, "position", |v, out| out.put_u64(v.0), |from| Ok(Position(from.u64()?)), |v| json!(v.0); draw = |from| Position(from.number()));
code!(Kind, 1, "kind", |v, out| out.put_u8(*v as u8), take_kind, |v| json!(kind_name(*v)); draw = |from| from.one_of(&KINDS));
code!(Mode, 2, "mode", |v, out| out.put_u16(v.0), take_mode, |v| json!(octal(v.0)); draw = |from| Mode(from.number() as u16 & 0o7777));
code!(Name, 2, "b", |v, out| out.put_bytes(v.as_bytes()), take_name, |v| json!(text(v)); draw = draw_name);
code!(bool, 1, "flag", |v, out| out.put_u8(u8::from(*v)), take_flag, |v| json!(v); draw = |from| from.flag());
code!(u16, 1, "v", |v, out| out.put_varint(u64::from(*v)), |from| {
    u16::try_from(from.varint()?).map_err(|_| Malformed { expected: "a number of 16 bits" })
}; draw = |from| from.number() as u16);
code!(u32, 1, "v", |v, out| out.put_varint(u64::from(*v)), small, |v| json!(v); draw = |from| from.number() as u32);
code!(u64, 1, "v", |v, out| out.put_varint(*v), |from| from.varint(), |v| json!(v); draw = |from| from.number());
code!(FileBytes => u64, 1, "v", |v, out| out.put_varint(*v), |from| file_bytes(from.varint()?), |v| json!(v); draw = |from| from.number() & FILE_BYTES_MAX);
code!(Text => Vec<u8>, 1, "b", |v, out| out.put_bytes(v), |from| Ok(from.bytes()?.to_vec()), |v| {
    json!(String::from_utf8_lossy(v))
}; draw = |from| from.bytes());
code!(Hidden => Vec<u8>, 1, "b", |v, out| out.put_bytes(v), |from| Ok(from.bytes()?.to_vec()), |_| Value::Null; draw = |from| from.bytes());
code!(RealmId, 4, "realm", |v, out| out.put_u32(v.0), take_id, |v| json!(v.0); draw = |from| RealmId((from.number() as u32).max(1)));
code!(SessionId, 8, "session", |v, out| out.put_u64(v.0), |from| Ok(SessionId(from.u64()?)), |v| json!(v.0); draw = |from| SessionId(from.number()));
code!(ShardId, 2, "shard", |v, out| out.put_u16(v.0), |from| Ok(ShardId(from.u16()?)), |v| json!(v.0); draw = |from| ShardId(from.number() as u16));
code!(PlateId, 2, "plate", |v, out| out.put_u16(v.0), |from| Ok(PlateId(from.u16()?)), |v| json!(v.0); draw = |from| PlateId(from.number() as u16));
code!(Body, 2, "body", |v, out| put_body(out, v), take_body, |v| match v {
    Body::Inline(bytes) => json!({ "inline_bytes": bytes.len() }),
    Body::Extents(list) => json!({ "extents": extents_json(list) }),
}; draw = |from| match from.flag() {
    true => Body::Extents(draw_extents(from)),
    false => Body::Inline(from.bytes()),
});
code!(Vec<Extent>, 1, "extents", |v, out| put_extents(out, v), take_extents, |v| extents_json(v); draw = draw_extents);
code!(
    BlockId,
    16,
    "writer u64, number u64",
    |v, out| {
        out.put_u64(v.writer);
        out.put_u64(v.number);
    },
    |from| Ok(BlockId { writer: from.u64()?, number: from.u64()? }),
    |v| json!({ "writer": v.writer, "number": v.number });
    draw = |from| BlockId { writer: from.number(), number: from.number() }
);
code!(
    Range => (Ino, Ino),
    16,
    "first ino, end ino",
    |v, out| {
        out.put_u64(v.0.0);
        out.put_u64(v.1.0);
    },
    |from| Ok((Ino(from.u64()?), Ino(from.u64()?))),
    |v| json!({ "first": v.0.0, "end": v.1.0 });
    draw = |from| (Ino(from.number()), Ino(from.number()))
);

code!(Epoch, 8, "epoch", |v, out| out.put_u64(v.0), |from| Ok(Epoch(from.u64()?)); draw = |from| Epoch(from.number()));
code!(Seq, 8, "seq", |v, out| out.put_u64(v.0), |from| Ok(Seq(from.u64()?)), |v| json!(v.0); draw = |from| Seq(from.number()));
code!(Fixed => RealmId, 4, "realm", |v, out| out.put_u32(v.0), |from| Ok(RealmId(from.u32()?)); draw = |from| {
    RealmId(from.number() as u32)
});
code!(Fixed => u64, 8, "u64", |v, out| out.put_u64(*v), |from| from.u64(); draw = |from| from.number());
code!(Fixed => u32, 4, "u32", |v, out| out.put_u32(*v), |from| from.u32(); draw = |from| from.number() as u32);
code!(Fixed => u16, 2, "u16", |v, out| out.put_u16(*v), |from| from.u16(); draw = |from| from.number() as u16);
code!(String, 1, "text", |v, out| out.put_bytes(v.as_bytes()), |from| match str::from_utf8(from.bytes()?) {
    Ok(text) => Ok(text.to_owned()),
    Err(_) => Err(Malformed { expected: "text in UTF-8" }),
}; draw = |from| from.text());
code!(Refusal, 1, "refusal", |v, out| out.put_u8(*v as u8), |from| {
    Refusal::from_u8(from.u8()?).ok_or(Malformed { expected: "a refusal" })
}; draw = |from| from.one_of(Refusal::ALL));

pub(super) const KINDS: [Kind; 7] =
    [Kind::File, Kind::Dir, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::Char, Kind::Block];

fn draw_name(from: &mut Samples<'_>) -> Name {
    let mut bytes = from.bytes();
    bytes.iter_mut().filter(|byte| matches!(byte, 0 | b'/')).for_each(|byte| *byte = b'x');
    Name::new(&bytes).unwrap_or_else(|_| Name::new(b"name").expect("a name"))
}

fn draw_extents(from: &mut Samples<'_>) -> Vec<Extent> {
    let one = |n: usize, from: &mut Samples<'_>| {
        let block = if from.flag() { BlockId::sample(from) } else { BlockId::HOLE };
        let block_offset = if block.is_hole() { 0 } else { u32::from(u8::sample(from)) };
        let len = 1 + from.below(200) as u32;
        Extent { offset: n as u64 * CHUNK_BYTES + 5, len, block, block_offset, shared: from.flag() }
    };
    (0..from.below(5)).map(|n| one(n, from)).collect()
}

// A list of bytes is a string of bytes: copied at once, and shown by its length.
impl Code<u8> for u8 {
    const BYTES_MIN: usize = 1;
    fn form() -> String {
        "u8".to_owned()
    }
    #[inline]
    fn put(value: &u8, out: &mut Vec<u8>) {
        out.put_u8(*value);
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<u8, Malformed> {
        from.u8()
    }
    fn form_all() -> String {
        "b".to_owned()
    }
    #[inline]
    fn put_all(items: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(items);
    }
    #[inline]
    fn take_all(count: usize, from: &mut Take<'_>) -> Result<Vec<u8>, Malformed> {
        Ok(from.take(count, "a byte string of its stated length")?.to_vec())
    }
    // Without optimisation, the loop over a block would take long.
    #[inline]
    fn check_all(_: &[u8]) -> Result<(), OverLimit> {
        Ok(())
    }
}

impl Sample<u8> for u8 {
    fn sample(from: &mut Samples<'_>) -> u8 {
        from.below(256) as u8
    }
    fn sample_all(from: &mut Samples<'_>) -> Vec<u8> {
        from.bytes()
    }
}

impl Shown<u8> for u8 {
    fn json(value: &u8) -> Value {
        json!(value)
    }
    fn json_all(items: &[u8]) -> Value {
        json!(items.len())
    }
}

/// A number of at least 1, as a varint.
#[derive(Debug)]
pub struct Positive;

code!(Positive => u32, 1, "v", |v, out| out.put_varint(u64::from(*v)), |from| match small(from)? {
    0 => Err(Malformed { expected: "a number of at least 1" }),
    number => Ok(number),
}, |v| json!(v); draw = |from| (from.number() as u32).max(1));

/// A number of at most `N`, as a varint.
#[derive(Debug)]
pub struct Upto<const N: usize>;

impl<const N: usize> Code<u32> for Upto<N> {
    const BYTES_MIN: usize = 1;
    fn form() -> String {
        format!("v (at most {N})")
    }
    fn put(value: &u32, out: &mut Vec<u8>) {
        out.put_varint(u64::from(*value));
    }
    fn take(from: &mut Take<'_>) -> Result<u32, Malformed> {
        let number = small(from)?;
        if number as usize > N {
            Err(Malformed { expected: "a number within its limit" })
        } else {
            Ok(number)
        }
    }
    fn check(value: &u32) -> Result<(), OverLimit> {
        within::<N>(*value as usize)
    }
}

impl<const N: usize> Sample<u32> for Upto<N> {
    fn sample(from: &mut Samples<'_>) -> u32 {
        from.number() as u32 % (N as u32 + 1)
    }
}

impl<const MASK: u8> Code<u8> for Bits<MASK> {
    const BYTES_MIN: usize = 1;
    fn form() -> String {
        format!("u8 (bits of {MASK})")
    }
    #[inline]
    fn put(value: &u8, out: &mut Vec<u8>) {
        out.put_u8(*value);
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<u8, Malformed> {
        take_flags(from, MASK)
    }
}

impl<const MASK: u8> Sample<u8> for Bits<MASK> {
    fn sample(from: &mut Samples<'_>) -> u8 {
        u8::sample(from) & MASK
    }
}

impl Shown<PolicyChange> for PolicyChange {
    fn json(change: &PolicyChange) -> Value {
        json!({
            "inode": change.ino.0, "version": change.version, "path": String::from_utf8_lossy(&change.path),
            "text": change.text.as_ref().map(|t| String::from_utf8_lossy(t)), "uid": change.uid, "time_ns": change.time.0,
        })
    }
}

impl Shown<Decoupling> for Decoupling {
    fn json(d: &Decoupling) -> Value {
        json!({
            "realm": d.id.0, "inode": d.root().0, "branch": d.branch.as_ref().map(text), "owner": d.identity,
            "session": d.owner.0, "generation": d.generation, "journal_at": d.journal_at, "uid": d.uid,
            "policy": String::from_utf8_lossy(&d.policy), "base": d.base().0, "writer": d.map.writer(),
            "ranges": d.map.ranges().iter().map(|r| Range::json(&(r.first, r.end))).collect::<Value>(),
            "time_ns": d.since.0,
        })
    }
}

impl Shown<Attached> for Attached {
    fn json(a: &Attached) -> Value {
        json!({
            "realm": a.id.0, "owner": a.identity, "session": a.owner.0, "generation": a.generation,
            "journal_at": a.journal_at, "branch": a.branch.as_ref().map(text),
        })
    }
}

impl Shown<MergedUpTo> for MergedUpTo {
    fn json(merged: &MergedUpTo) -> Value {
        json!({
            "realm": merged.id.0, "merged": merged.state.merged.0,
            "batch": merged.state.batch.map(|(upto, done)| json!({ "upto": upto.0, "done": done })),
        })
    }
}

code!(Reverted, 1, "how the file is", Reverted::put, Reverted::take, |to| json!({
    "mode": octal(to.mode.0), "uid": to.uid, "gid": to.gid, "size": to.size,
    "xattrs": to.xattrs.as_ref().map(|xattrs| xattrs.len()), "temporary": to.temporary, "time_ns": to.ctime.0,
}); draw = draw_reverted);

fn draw_reverted(from: &mut Samples<'_>) -> Reverted {
    let content = match from.below(3) {
        0 => OldContent::Same,
        1 => OldContent::Inline(from.bytes()),
        _ => {
            // Each extent that is drawn lies in a chunk of its own.
            let extents = draw_extents(from).into_iter().filter(|extent| !extent.block.is_hole());
            OldContent::Chunks(extents.map(|e| ((e.offset / CHUNK_BYTES) as u32, vec![e])).collect())
        }
    };
    let xattrs = from.flag().then(|| (0..from.below(4)).map(|_| (from.bytes(), from.bytes())).collect());
    Reverted {
        mode: Mode::sample(from),
        flags: u8::sample(from) & Attr::SETTABLE,
        uid: u32::sample(from),
        gid: u32::sample(from),
        size: from.number() & FILE_BYTES_MAX,
        atime: Time::sample(from),
        mtime: Time::sample(from),
        ctime: Time::sample(from),
        xattrs,
        content,
        temporary: from.flag(),
    }
}

/// A checked flag byte: no bit outside `known` may be set, so that bits can get a meaning later.
pub(super) fn take_flags(from: &mut Take<'_>, known: u8) -> Result<u8, Malformed> {
    let flags = from.u8()?;
    if flags & !known != 0 { Err(Malformed { expected: "known flags" }) } else { Ok(flags) }
}

fn extents_json(list: &[Extent]) -> Value {
    let one = |e: &Extent| match e.block.is_hole() {
        true => json!({ "offset": e.offset, "bytes": e.len, "hole": true }),
        false => json!({
            "offset": e.offset, "bytes": e.len, "writer": e.block.writer, "number": e.block.number,
            "block_offset": e.block_offset, "shared": e.shared,
        }),
    };
    list.iter().map(one).collect()
}

/// Bytes of encoded [`Attr`].
const ATTR_BYTES: usize = 92;

code!(
    Attr,
    ATTR_BYTES,
    "attributes",
    put_attr,
    take_attr;
    draw = |from| {
        let mut time = || Time::sample(from);
        let (atime, mtime, ctime, btime) = (time(), time(), time(), time());
        let mut small = || u32::sample(from);
        let (nlink, uid, gid, rdev) = (small(), small(), small(), small());
        Attr {
            ino: Ino::sample(from),
            kind: Kind::sample(from),
            mode: Mode::sample(from),
            nlink,
            uid,
            gid,
            rdev,
            size: from.number(),
            allocated: from.number(),
            atime,
            mtime,
            ctime,
            btime,
            parent: Ino::sample(from),
            position: Position::sample(from),
            flags: u8::sample(from) & Attr::FLAGS,
        }
    }
);

/// One store of 92 bytes instead of 16 appends: replies to batches consist of little else, and a batch of 1,000 results is encoded
/// in 5 µs instead of 21.
#[inline]
fn put_attr(attr: &Attr, out: &mut Vec<u8>) {
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
