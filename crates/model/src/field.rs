//! Fields of operations and events: how each type is encoded, named in `docs/formats.md`, and shown as JSON.
//!
//! A field's own type says so, unless the table names another: `size: u64 as FileBytes` is an integer that is refused past
//! the largest file.

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{BlockId, Ino, Kind, Mode, Name, Position, RealmId, SessionId, ShardId, Time};
use serde_json::{Value, json};

use crate::codec::{
    file_bytes, put_body, put_extents, take_body, take_extents, take_flag, take_id, take_kind, take_mode,
    take_name,
};
use crate::decoupling::{Attached, Decoupling, MergedUpTo};
use crate::extent::Extent;
use crate::op::{AttrChange, Body, Hold, Make, RenameHow, SetTime, XattrHow};
use crate::policy::PolicyChange;
use crate::reverted::Reverted;
use crate::text::{kind_name, octal, text};

/// How a value of type `T` is written.
pub(crate) trait Code<T> {
    /// Fewest bytes that it takes.
    const BYTES_MIN: usize;
    /// What `docs/formats.md` calls it.
    fn form() -> String;
    fn put(value: &T, out: &mut Vec<u8>);
    fn take(from: &mut Take<'_>) -> Result<T, Malformed>;
}

/// How a value of type `T` is shown as JSON; fields of operations are not.
pub(crate) trait Shown<T> {
    fn json(value: &T) -> Value;
}

/// `code!(Type, bytes, "form", put, take[, json])`; `code!(Codec => Type, …)` is for a type that has another codec already.
macro_rules! code {
    ($codec:ty => $type:ty, $min:expr, $form:expr, $put:expr, $take:expr $(, $json:expr)?) => {
        impl Code<$type> for $codec {
            const BYTES_MIN: usize = $min;
            fn form() -> String {
                $form.to_owned()
            }
            #[inline]
            fn put(value: &$type, out: &mut Vec<u8>) {
                let put: fn(&$type, &mut Vec<u8>) = $put;
                put(value, out);
            }
            #[inline]
            fn take(from: &mut Take<'_>) -> Result<$type, Malformed> {
                let take: fn(&mut Take<'_>) -> Result<$type, Malformed> = $take;
                take(from)
            }
        }
        $(impl Shown<$type> for $codec {
            fn json(value: &$type) -> Value {
                let json: fn(&$type) -> Value = $json;
                json(value)
            }
        })?
    };
    ($type:ty, $($rest:expr),+) => {
        code!($type => $type, $($rest),+);
    };
}

/// A size of a file, or a position or length in one: refused past the largest file.
pub(crate) struct FileBytes;
/// Bytes that are shown as text.
pub(crate) struct Text;
/// Bytes that are never shown.
pub(crate) struct Hidden;

fn small(from: &mut Take<'_>) -> Result<u32, Malformed> {
    u32::try_from(from.varint()?).map_err(|_| Malformed { expected: "a number of 32 bits" })
}

code!(Ino, 8, "ino", |v, out| out.put_u64(v.0), |from| Ok(Ino(from.u64()?)), |v| json!(v.0));
code!(Time, 8, "time", |v, out| out.put_i64(v.0), |from| Ok(Time(from.i64()?)), |v| json!(v.0));
code!(Position, 8, "position", |v, out| out.put_u64(v.0), |from| Ok(Position(from.u64()?)));
code!(Kind, 1, "kind", |v, out| out.put_u8(*v as u8), take_kind, |v| json!(kind_name(*v)));
code!(Mode, 2, "mode", |v, out| out.put_u16(v.0), take_mode, |v| json!(octal(v.0)));
code!(Name, 2, "b", |v, out| out.put_bytes(v.as_bytes()), take_name, |v| json!(text(v)));
code!(bool, 1, "flag", |v, out| out.put_u8(u8::from(*v)), take_flag, |v| json!(v));
code!(u8, 1, "u8", |v, out| out.put_u8(*v), |from| from.u8(), |v| json!(v));
code!(u32, 1, "v", |v, out| out.put_varint(u64::from(*v)), small, |v| json!(v));
code!(u64, 1, "v", |v, out| out.put_varint(*v), |from| from.varint(), |v| json!(v));
code!(FileBytes => u64, 1, "v", |v, out| out.put_varint(*v), |from| file_bytes(from.varint()?), |v| json!(v));
code!(Vec<u8>, 1, "b", |v, out| out.put_bytes(v), |from| Ok(from.bytes()?.to_vec()), |v| json!(v.len()));
code!(Text => Vec<u8>, 1, "b", |v, out| out.put_bytes(v), |from| Ok(from.bytes()?.to_vec()), |v| {
    json!(String::from_utf8_lossy(v))
});
code!(Hidden => Vec<u8>, 1, "b", |v, out| out.put_bytes(v), |from| Ok(from.bytes()?.to_vec()), |_| Value::Null);
code!(RealmId, 4, "realm", |v, out| out.put_u32(v.0), take_id, |v| json!(v.0));
code!(SessionId, 8, "session", |v, out| out.put_u64(v.0), |from| Ok(SessionId(from.u64()?)), |v| json!(v.0));
code!(ShardId, 2, "shard", |v, out| out.put_u16(v.0), |from| Ok(ShardId(from.u16()?)), |v| json!(v.0));
code!(Body, 2, "body", |v, out| put_body(out, v), take_body, |v| match v {
    Body::Inline(bytes) => json!({ "inline_bytes": bytes.len() }),
    Body::Extents(list) => json!({ "extents": extents_json(list) }),
});
code!(Vec<Extent>, 1, "extents", |v, out| put_extents(out, v), take_extents, |v| extents_json(v));
code!(
    BlockId,
    16,
    "writer u64, number u64",
    |v, out| {
        out.put_u64(v.writer);
        out.put_u64(v.number);
    },
    |from| Ok(BlockId { writer: from.u64()?, number: from.u64()? }),
    |v| json!({ "writer": v.writer, "number": v.number })
);
code!(
    (Ino, Ino),
    16,
    "first ino, end ino",
    |v, out| {
        out.put_u64(v.0.0);
        out.put_u64(v.1.0);
    },
    |from| Ok((Ino(from.u64()?), Ino(from.u64()?))),
    |v| json!({ "first": v.0.0, "end": v.1.0 })
);

/// A count and the items.
macro_rules! lists {
    ($($item:ty),*) => {
        $(impl Code<Vec<$item>> for Vec<$item> {
            const BYTES_MIN: usize = 1;
            fn form() -> String {
                format!("list of ({})", <$item as Code<$item>>::form())
            }
            fn put(value: &Vec<$item>, out: &mut Vec<u8>) {
                out.put_varint(value.len() as u64);
                for item in value {
                    <$item as Code<$item>>::put(item, out);
                }
            }
            fn take(from: &mut Take<'_>) -> Result<Vec<$item>, Malformed> {
                let count = from.count(<$item as Code<$item>>::BYTES_MIN)?;
                (0..count).map(|_| <$item as Code<$item>>::take(from)).collect()
            }
        }

        impl Shown<Vec<$item>> for Vec<$item> {
            fn json(value: &Vec<$item>) -> Value {
                value.iter().map(<$item as Shown<$item>>::json).collect()
            }
        })*
    };
}

lists!(BlockId, (Ino, Ino));

/// What is not there takes a byte: 0. What is there stands after a 1.
impl<T, C: Code<T>> Code<Option<T>> for Option<C> {
    const BYTES_MIN: usize = 1;
    fn form() -> String {
        format!("[{}]", C::form())
    }
    fn put(value: &Option<T>, out: &mut Vec<u8>) {
        out.put_u8(u8::from(value.is_some()));
        if let Some(value) = value {
            C::put(value, out);
        }
    }
    fn take(from: &mut Take<'_>) -> Result<Option<T>, Malformed> {
        Ok(if take_flag(from)? { Some(C::take(from)?) } else { None })
    }
}

impl<T, C: Shown<T>> Shown<Option<T>> for Option<C> {
    fn json(value: &Option<T>) -> Value {
        value.as_ref().map_or(Value::Null, C::json)
    }
}

impl<T: Code<T>> Code<Box<T>> for Box<T> {
    const BYTES_MIN: usize = T::BYTES_MIN;
    fn form() -> String {
        T::form()
    }
    fn put(value: &Box<T>, out: &mut Vec<u8>) {
        T::put(value, out);
    }
    fn take(from: &mut Take<'_>) -> Result<Box<T>, Malformed> {
        T::take(from).map(Box::new)
    }
}

impl<T: Shown<T>> Shown<Box<T>> for Box<T> {
    fn json(value: &Box<T>) -> Value {
        T::json(value)
    }
}

code!(PolicyChange, 31, "a change of a policy", PolicyChange::put, PolicyChange::take, |change| json!({
    "inode": change.ino.0, "version": change.version, "path": String::from_utf8_lossy(&change.path),
    "text": change.text.as_ref().map(|t| String::from_utf8_lossy(t)), "uid": change.uid, "time_ns": change.time.0,
}));
code!(Decoupling, 1, "a decoupling", Decoupling::put, Decoupling::take, |d| json!({
    "realm": d.id.0, "inode": d.root().0, "branch": d.branch.as_ref().map(text), "owner": d.identity,
    "session": d.owner.0, "generation": d.generation, "journal_at": d.journal_at, "uid": d.uid,
    "policy": String::from_utf8_lossy(&d.policy), "base": d.base().0, "writer": d.map.writer(),
    "ranges": d.map.ranges().iter().map(|r| <(Ino, Ino)>::json(&(r.first, r.end))).collect::<Value>(),
    "time_ns": d.since.0,
}));
code!(Attached, 1, "an attachment", Attached::put, Attached::take, |a| json!({
    "realm": a.id.0, "owner": a.identity, "session": a.owner.0, "generation": a.generation,
    "journal_at": a.journal_at, "branch": a.branch.as_ref().map(text),
}));
code!(MergedUpTo, 1, "realm, state, map", MergedUpTo::put, MergedUpTo::take, |merged| json!({
    "realm": merged.id.0, "merged": merged.state.merged.0,
    "window": merged.state.window.map(|(upto, done)| json!({ "upto": upto.0, "done": done })),
}));
code!(Reverted, 1, "how the file is", Reverted::put, Reverted::take, |to| json!({
    "mode": octal(to.mode.0), "uid": to.uid, "gid": to.gid, "size": to.size,
    "xattrs": to.xattrs.as_ref().map(|xattrs| xattrs.len()), "temporary": to.temporary, "time_ns": to.ctime.0,
}));

code!(
    RenameHow,
    1,
    "u8 (0 replace, 1 not replace, 2 exchange, 3 replace and leave a whiteout, 4 not replace and leave a whiteout)",
    |v, out| out.put_u8(*v as u8),
    |from| RenameHow::from_u8(from.u8()?).ok_or(Malformed { expected: "a kind of rename" })
);
code!(
    XattrHow,
    1,
    "u8 (0 set, 1 create, 2 replace)",
    |v, out| out.put_u8(*v as u8),
    |from| match from.u8()? {
        0 => Ok(XattrHow::Set),
        1 => Ok(XattrHow::Create),
        2 => Ok(XattrHow::Replace),
        _ => Err(Malformed { expected: "a kind of setxattr" }),
    }
);
code!(
    Hold,
    1,
    "u8 (0 none, 1 exclusive, 2 appended, 3 shared), end u64 if it is 2",
    |v, out| match v {
        Hold::None => out.put_u8(0),
        Hold::Exclusive => out.put_u8(1),
        Hold::Shared => out.put_u8(3),
        Hold::Appended(end) => {
            out.put_u8(2);
            out.put_u64(*end);
        }
    },
    |from| match from.u8()? {
        0 => Ok(Hold::None),
        1 => Ok(Hold::Exclusive),
        3 => Ok(Hold::Shared),
        2 => Ok(Hold::Appended(from.u64()?)),
        _ => Err(Malformed { expected: "what a writer knows" }),
    }
);
code!(
    Make,
    2,
    "kind, then content b (file), target b (symbolic link) or rdev v (others but directories)",
    |make, out| match make {
        Make::File { content } => {
            out.put_u8(Kind::File as u8);
            out.put_bytes(content);
        }
        Make::Dir => out.put_u8(Kind::Dir as u8),
        Make::Symlink { target } => {
            out.put_u8(Kind::Symlink as u8);
            out.put_bytes(target);
        }
        Make::Node { kind, rdev } => {
            out.put_u8(*kind as u8);
            out.put_varint(u64::from(*rdev));
        }
    },
    |from| Ok(match take_kind(from)? {
        Kind::File => Make::File { content: from.bytes()?.to_vec() },
        Kind::Dir => Make::Dir,
        Kind::Symlink => Make::Symlink { target: from.bytes()?.to_vec() },
        kind @ (Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block) =>
            Make::Node { kind, rdev: small(from)? },
    })
);
code!(
    AttrChange,
    2,
    "set u8 (bits 0 mode, 1 uid, 2 gid, 3 size, 4 size by handle, 5 kill setid), times u8 (bits 0-1 atime, 2-3 mtime: 0 \
     left, 1 now, 2 given), then what is set: mode, uid u32, gid u32, size u64, atime, mtime",
    |change, out| put_change(out, change),
    take_change
);

/// Two bytes say what follows: bit 0 mode, 1 uid, 2 gid, 3 size, 4 `size_by_handle`, 5 `kill_setid`; then
/// bits 0-1 atime and 2-3 mtime (0 left, 1 now, 2 given).
fn put_change(out: &mut Vec<u8>, change: &AttrChange) {
    let bit = |set: bool, n: u8| u8::from(set) << n;
    out.put_u8(
        bit(change.mode.is_some(), 0)
            | bit(change.uid.is_some(), 1)
            | bit(change.gid.is_some(), 2)
            | bit(change.size.is_some(), 3)
            | bit(change.size_by_handle, 4)
            | bit(change.kill_setid, 5),
    );
    let time = |t: Option<SetTime>| match t {
        None => 0,
        Some(SetTime::Now) => 1,
        Some(SetTime::At(_)) => 2,
    };
    out.put_u8(time(change.atime) | time(change.mtime) << 2);
    if let Some(mode) = change.mode {
        out.put_u16(mode.0);
    }
    for id in [change.uid, change.gid].into_iter().flatten() {
        out.put_u32(id);
    }
    if let Some(size) = change.size {
        out.put_u64(size);
    }
    for time in [change.atime, change.mtime] {
        if let Some(SetTime::At(time)) = time {
            out.put_i64(time.0);
        }
    }
}

fn take_change(from: &mut Take<'_>) -> Result<AttrChange, Malformed> {
    let bits = take_flags(from, 0x3f)?;
    let times = take_flags(from, 0x0f)?;
    let has = |n: u8| bits & 1 << n != 0;
    let time = |which: u8, from: &mut Take<'_>| match which & 3 {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => Ok(Some(SetTime::At(Time(from.i64()?)))),
        _ => Err(Malformed { expected: "a way to set a time" }),
    };
    Ok(AttrChange {
        mode: if has(0) { Some(take_mode(from)?) } else { None },
        uid: if has(1) { Some(from.u32()?) } else { None },
        gid: if has(2) { Some(from.u32()?) } else { None },
        size: if has(3) { Some(from.u64()?) } else { None },
        size_by_handle: has(4),
        kill_setid: has(5),
        atime: time(times, from)?,
        mtime: time(times >> 2, from)?,
    })
}

/// A checked flag byte: no bit outside `known` may be set, so that bits can get a meaning later.
fn take_flags(from: &mut Take<'_>, known: u8) -> Result<u8, Malformed> {
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

/// A field as `docs/formats.md` lists it: its name and form, or once if they are the same.
pub(crate) fn listed(name: &str, form: &str) -> String {
    if name == form { name.to_owned() } else { format!("{name} {form}") }
}

/// Adds a field to an object; one with the key `""` is an object whose fields are added, or is never shown.
pub(crate) fn add_json(object: &mut serde_json::Map<String, Value>, key: &str, value: Value) {
    match value {
        Value::Object(fields) if key.is_empty() => object.extend(fields),
        _ if key.is_empty() => {}
        value => drop(object.insert(key.to_owned(), value)),
    }
}
