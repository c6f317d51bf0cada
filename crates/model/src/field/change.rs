//! The changes that operations ask for.
//!
//! By hand where a set of bits says what follows.

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Kind, Mode, Time};
use serde_json::{Value, json};

use super::values::{KINDS, small, take_flags};
use crate::change::{AttrChange, Hold, Make, RenameHow, SetTime, XattrHow};
use crate::code;
use crate::codec::{take_kind, take_mode};
use crate::text::{kind_name, octal};

code!(
    RenameHow,
    1,
    "u8 (0 replace, 1 not replace, 2 exchange, 3 replace and leave a whiteout, 4 not replace and leave a whiteout)",
    |v, out| out.put_u8(*v as u8),
    |from| RenameHow::from_u8(from.u8()?).ok_or(Malformed { expected: "a kind of rename" }),
    |v| json!(match v {
        RenameHow::Replace => "replace",
        RenameHow::NoReplace => "no_replace",
        RenameHow::Exchange => "exchange",
        RenameHow::Whiteout => "whiteout",
        RenameHow::NoReplaceWhiteout => "no_replace_whiteout",
    });
    draw = |from| RenameHow::from_u8(from.below(5) as u8).expect("a kind of rename")
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
    },
    |v| json!(match v {
        XattrHow::Set => "set",
        XattrHow::Create => "create",
        XattrHow::Replace => "replace",
    });
    draw = |from| from.one_of(&[XattrHow::Set, XattrHow::Create, XattrHow::Replace])
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
    },
    |v| match v {
        Hold::None => json!("none"),
        Hold::Exclusive => json!("exclusive"),
        Hold::Shared => json!("shared"),
        Hold::Appended(end) => json!({ "appended_at": end }),
    };
    draw = |from| match from.below(4) {
        0 => Hold::None,
        1 => Hold::Exclusive,
        2 => Hold::Shared,
        _ => Hold::Appended(from.number()),
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
    }),
    |make| match make {
        Make::File { content } => json!({ "kind": kind_name(Kind::File), "content_bytes": content.len() }),
        Make::Dir => json!({ "kind": kind_name(Kind::Dir) }),
        Make::Symlink { target } => json!({
            "kind": kind_name(Kind::Symlink), "target": String::from_utf8_lossy(target),
        }),
        Make::Node { kind, rdev } => json!({ "kind": kind_name(*kind), "rdev": rdev }),
    };
    draw = |from| match from.one_of(&KINDS) {
        Kind::File => Make::File { content: from.bytes() },
        Kind::Dir => Make::Dir,
        Kind::Symlink => Make::Symlink { target: from.bytes() },
        kind => Make::Node { kind, rdev: u32::sample(from) },
    }
);
code!(
    AttrChange,
    2,
    "set u8 (bits 0 mode, 1 uid, 2 gid, 3 size, 4 size by handle, 5 kill setid), times u8 (bits 0-1 atime, 2-3 mtime: 0 \
     left, 1 now, 2 given), then what is set: mode, uid u32, gid u32, size u64, atime, mtime",
    |change, out| put_change(out, change),
    take_change,
    |change| {
        let time = |time: Option<SetTime>| match time {
            None => Value::Null,
            Some(SetTime::Now) => json!("now"),
            Some(SetTime::At(time)) => json!(time.0),
        };
        json!({
            "mode": change.mode.map(|mode| octal(mode.0)), "uid": change.uid, "gid": change.gid, "size": change.size,
            "size_by_handle": change.size_by_handle, "kill_setid": change.kill_setid,
            "atime_ns": time(change.atime), "mtime_ns": time(change.mtime),
        })
    };
    draw = |from| {
        let mode = Option::<Mode>::sample(from);
        let mut id = || Option::<u32>::sample(from);
        let (uid, gid) = (id(), id());
        let size = Option::<u64>::sample(from);
        let (size_by_handle, kill_setid) = (from.flag(), from.flag());
        let mut time = || match from.below(3) {
            0 => None,
            1 => Some(SetTime::Now),
            _ => Some(SetTime::At(Time::sample(from))),
        };
        AttrChange { mode, uid, gid, size, size_by_handle, atime: time(), mtime: time(), kill_setid }
    }
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
