//! An event as JSON: every field under its name.

use chiton_model::{Body, Event, Extent, Over};
use chiton_types::{Ino, Kind, Name, Time};
use serde_json::{Value, json};

/// One table: an event gets its type's name here, and `--type` accepts it.
macro_rules! types {
    ($($event:pat => $name:literal,)*) => {
        /// The names of all types of events, which `--type` takes.
        pub const TYPE_NAMES: &[&str] = &[$($name),*];

        /// The name of an event's type.
        pub fn type_name(event: &Event) -> &'static str {
            match event {
                $($event => $name,)*
            }
        }
    };
}

types! {
    Event::Make { .. } => "make",
    Event::Link { .. } => "link",
    Event::Unlink { .. } => "unlink",
    Event::Rename { .. } => "rename",
    Event::SetAttr { .. } => "setattr",
    Event::Write { .. } => "write",
    Event::Clone { .. } => "clone",
    Event::Remap { .. } => "remap",
    Event::Revert { .. } => "revert",
    Event::Xattr { .. } => "xattr",
    Event::Reclaim { .. } => "reclaim",
    Event::Swept { .. } => "swept",
    Event::Reserve { .. } => "reserve",
    Event::SessionOpened { .. } => "session-opened",
    Event::SessionClosed { .. } => "session-closed",
    Event::Skipped { .. } => "skipped",
    Event::Restore { .. } => "restore",
    Event::Touch { .. } => "touch",
    Event::Policy(_) => "policy",
    Event::Decoupled(_) => "decoupled",
    Event::Attached(_) => "attached",
    Event::Granted { .. } => "granted",
    Event::Merged(_) => "merged",
    Event::DecouplingEnded { .. } => "decoupling-ended",
}

/// The name of a type of inode.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::Char => "character device",
        Kind::Block => "block device",
    }
}

/// The event's fields as JSON.
pub fn fields(event: &Event) -> Value {
    let mut value = match event {
        Event::Make { parent, name, ino, kind, mode, uid, gid, rdev, time, content } => json!({
            "parent": parent.0, "name": text(name), "inode": ino.0, "kind": kind_name(*kind), "mode": octal(mode.0),
            "uid": uid, "gid": gid, "rdev": rdev, "time_ns": time.0, "content_bytes": content.len(),
        }),
        Event::Link { parent, name, ino, time } | Event::Restore { parent, name, ino, time } => {
            json!({ "parent": parent.0, "name": text(name), "inode": ino.0, "time_ns": time.0 })
        }
        Event::Unlink { parent, name, ino, orphan, time } => json!({
            "parent": parent.0, "name": text(name), "inode": ino.0, "orphan": orphan, "time_ns": time.0,
        }),
        Event::Rename { from, from_name, to, to_name, ino, over, time } => json!({
            "from": from.0, "from_name": text(from_name), "to": to.0, "to_name": text(to_name), "inode": ino.0,
            "over": match over {
                Over::Nothing => Value::Null,
                Over::Replaced { ino, orphan } => json!({ "replaced": ino.0, "orphan": orphan }),
                Over::Exchanged { ino } => json!({ "exchanged": ino.0 }),
            },
            "time_ns": time.0,
        }),
        Event::SetAttr { ino, mode, uid, gid, size, atime, mtime, ctime } => json!({
            "inode": ino.0, "mode": mode.map(|m| octal(m.0)), "uid": uid, "gid": gid, "size": size,
            "atime_ns": atime.map(|t| t.0), "mtime_ns": mtime.map(|t| t.0), "time_ns": ctime.0,
        }),
        Event::Write { ino, body, size, mode, mtime } => json!({
            "inode": ino.0, "size": size, "mode": mode.map(|m| octal(m.0)), "time_ns": mtime.0,
            "content": match body {
                Body::Inline(bytes) => json!({ "inline_bytes": bytes.len() }),
                Body::Extents(list) => json!({ "extents": extents(list) }),
            },
        }),
        Event::Clone { from, from_offset, to, to_offset, len, time } => json!({
            "from": from.0, "from_offset": from_offset, "inode": to.0, "to_offset": to_offset, "bytes": len,
            "time_ns": time.0,
        }),
        Event::Revert { ino, to } => json!({
            "inode": ino.0, "mode": to.mode.0, "uid": to.uid, "gid": to.gid, "size": to.size,
            "xattrs": to.xattrs.as_ref().map(|xattrs| xattrs.len()), "temporary": to.temporary,
            "time_ns": to.ctime.0,
        }),
        Event::Remap { ino, extents: list } => json!({ "inode": ino.0, "extents": extents(list) }),
        Event::Xattr { ino, name, value, ctime } => json!({
            "inode": ino.0, "name": String::from_utf8_lossy(name), "value_bytes": value.as_ref().map(Vec::len),
            "time_ns": ctime.0,
        }),
        Event::Reclaim { ino, from_chunk } => json!({ "inode": ino.0, "from_chunk": from_chunk }),
        Event::Swept { blocks } => {
            let blocks: Vec<Value> =
                blocks.iter().map(|b| json!({ "writer": b.writer, "number": b.number })).collect();
            json!({ "blocks": blocks })
        }
        Event::Reserve { shard, counter_end } => json!({ "shard": shard.0, "counter_end": counter_end }),
        Event::SessionOpened { session, .. } | Event::SessionClosed { session } => {
            json!({ "session": session.0 })
        }
        Event::Touch { ino, time } => json!({ "inode": ino.0, "time_ns": time.0 }),
        Event::Policy(change) => json!({
            "inode": change.ino.0, "version": change.version, "path": String::from_utf8_lossy(&change.path),
            "text": change.text.as_ref().map(|t| String::from_utf8_lossy(t)), "uid": change.uid,
            "time_ns": change.time.0,
        }),
        Event::Decoupled(d) => json!({
            "realm": d.id.0, "inode": d.root().0, "branch": d.branch.as_ref().map(text), "owner": d.identity,
            "session": d.owner.0, "generation": d.generation, "journal_at": d.journal_at, "uid": d.uid,
            "policy": String::from_utf8_lossy(&d.policy), "base": d.base().0, "writer": d.map.writer(),
            "ranges": ranges(d.map.ranges().iter().map(|range| (range.first, range.end))), "time_ns": d.since.0,
        }),
        Event::Attached(a) => json!({
            "realm": a.id.0, "owner": a.identity, "session": a.owner.0, "generation": a.generation,
            "journal_at": a.journal_at, "branch": a.branch.as_ref().map(text),
        }),
        Event::Granted { id, ranges: list } => {
            json!({ "realm": id.0, "ranges": ranges(list.iter().copied()) })
        }
        Event::Merged(merged) => json!({
            "realm": merged.id.0, "merged": merged.state.merged.0,
            "window": merged.state.window.map(|(upto, done)| json!({ "upto": upto.0, "done": done })),
        }),
        Event::DecouplingEnded { id } => json!({ "realm": id.0 }),
        Event::Skipped { count } => json!({ "count": count }),
    };
    value["type"] = json!(type_name(event));
    value
}

fn ranges(list: impl Iterator<Item = (Ino, Ino)>) -> Value {
    list.map(|(first, end)| json!({ "first": first.0, "end": end.0 })).collect()
}

/// The time of an event, if it has one.
pub(crate) fn time_of(event: &Event) -> Option<Time> {
    match event {
        Event::Make { time, .. }
        | Event::Link { time, .. }
        | Event::Unlink { time, .. }
        | Event::Rename { time, .. }
        | Event::Restore { time, .. }
        | Event::Touch { time, .. }
        | Event::Clone { time, .. } => Some(*time),
        Event::SetAttr { ctime, .. } | Event::Xattr { ctime, .. } => Some(*ctime),
        Event::Write { mtime, .. } => Some(*mtime),
        Event::Policy(change) => Some(change.time),
        Event::Decoupled(d) => Some(d.since),
        _ => None,
    }
}

/// A name as text: invalid UTF-8 becomes `\xNN`, so that different names stay different.
pub(crate) fn text(name: &Name) -> String {
    let mut out = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

pub(crate) fn octal(mode: u16) -> String {
    format!("{mode:04o}")
}

fn extents(list: &[Extent]) -> Value {
    let one = |e: &Extent| match e.block.is_hole() {
        true => json!({ "offset": e.offset, "bytes": e.len, "hole": true }),
        false => json!({
            "offset": e.offset, "bytes": e.len, "writer": e.block.writer, "number": e.block.number,
            "block_offset": e.block_offset, "shared": e.shared,
        }),
    };
    list.iter().map(one).collect()
}
