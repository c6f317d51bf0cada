//! Calls and answers about decoupled realms: rare, so written with varints where that is shorter.

use chiton_model::codec::take_name;
use chiton_model::merge::{Conflict, ConflictKind, Resolution};
use chiton_namespace::{Need, Rows};
use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{BlockId, Ino, Name, Position, RealmId, ShardId, Time};

use super::{bad, put_attr, put_text, take_attr, take_bool, take_text, take_u32_varint};
use crate::realm::{
    Blocked, Claim, Foreign, FoundRows, Granted, MERGE_EVENTS_MAX, MergeState, MergeWindow, Merged,
    NAMES_MAX, NEEDS_MAX, ObjectAnswer, ObjectCall, OnConflict, REALM_OBJECT_BYTES_MAX, RealmAnswer,
    RealmCall, RealmInfo, Settled, TEXT_BYTES_MAX,
};

fn put_claim(out: &mut Vec<u8>, claim: Claim) {
    out.put_u32(claim.realm.0);
    out.put_u32(claim.generation);
}

fn take_claim(from: &mut Take<'_>) -> Result<Claim, Malformed> {
    Ok(Claim { realm: RealmId(from.u32()?), generation: from.u32()? })
}

fn put_some_name(out: &mut Vec<u8>, name: Option<&Name>) {
    out.put_u8(u8::from(name.is_some()));
    if let Some(name) = name {
        out.put_bytes(name.as_bytes());
    }
}

fn take_some_name(from: &mut Take<'_>) -> Result<Option<Name>, Malformed> {
    Ok(if take_bool(from)? { Some(take_name(from)?) } else { None })
}

fn take_short_text(from: &mut Take<'_>) -> Result<String, Malformed> {
    let text = take_text(from)?;
    if text.len() > TEXT_BYTES_MAX { bad("a text of bounded length") } else { Ok(text) }
}

fn take_policy(from: &mut Take<'_>) -> Result<Vec<u8>, Malformed> {
    let policy = from.bytes()?;
    if policy.len() > TEXT_BYTES_MAX { bad("a policy of bounded length") } else { Ok(policy.to_vec()) }
}

/// A count of at most `max` items, each of at least `bytes_min` bytes.
fn take_count(from: &mut Take<'_>, bytes_min: usize, max: usize) -> Result<usize, Malformed> {
    let n = from.count(bytes_min)?;
    if n > max { bad("a count within its limit") } else { Ok(n) }
}

pub(super) fn put_realm_call(out: &mut Vec<u8>, call: &RealmCall) {
    match call {
        RealmCall::Decouple { root, branch, nonce, journal_at, policy } => {
            out.put_u8(0);
            out.put_u64(root.0);
            put_some_name(out, branch.as_ref());
            out.put_u64(*nonce);
            put_text(out, journal_at);
            out.put_bytes(policy);
        }
        RealmCall::Attach { realm, nonce, journal_at } => {
            out.put_u8(1);
            out.put_u32(realm.0);
            out.put_u64(*nonce);
            put_text(out, journal_at);
        }
        RealmCall::Grant { claim, shard, count } => {
            out.put_u8(2);
            put_claim(out, *claim);
            out.put_u16(shard.0);
            out.put_varint(*count);
        }
        RealmCall::Rows { claim, needs } => {
            out.put_u8(3);
            put_claim(out, *claim);
            out.put_varint(needs.len() as u64);
            for need in needs {
                put_need(out, need);
            }
        }
        RealmCall::Check { claim, inodes, names } => {
            out.put_u8(4);
            put_claim(out, *claim);
            out.put_varint(inodes.len() as u64);
            for ino in inodes {
                out.put_u64(ino.0);
            }
            out.put_varint(names.len() as u64);
            for (dir, name) in names {
                out.put_u64(dir.0);
                out.put_bytes(name.as_bytes());
            }
        }
        RealmCall::Merge { claim, window, from, count, events, last, blind } => {
            out.put_u8(5);
            put_claim(out, *claim);
            out.put_u64(window.after.0);
            out.put_u64(window.upto.0);
            out.put_varint(*from);
            out.put_varint(u64::from(*count));
            out.put_bytes(events);
            out.put_u8(u8::from(*last));
            out.put_u8(u8::from(*blind));
        }
        RealmCall::End { claim, force } => {
            out.put_u8(6);
            put_claim(out, *claim);
            out.put_u8(u8::from(*force));
        }
        RealmCall::Of { ino } => {
            out.put_u8(7);
            out.put_u64(ino.0);
        }
        RealmCall::List => out.put_u8(8),
        RealmCall::Object { claim, name, what } => {
            out.put_u8(9);
            put_claim(out, *claim);
            put_text(out, name);
            match what {
                ObjectCall::PutIfAbsent { bytes } => {
                    out.put_u8(0);
                    out.put_bytes(bytes);
                }
                ObjectCall::Get { bytes_max } => {
                    out.put_u8(1);
                    out.put_u64(*bytes_max);
                }
                ObjectCall::Delete => out.put_u8(2),
                ObjectCall::List { after } => {
                    out.put_u8(3);
                    put_text(out, after);
                }
            }
        }
        RealmCall::Resolve { claim, on_conflict } => {
            out.put_u8(10);
            put_claim(out, *claim);
            out.put_u8(*on_conflict as u8);
        }
        RealmCall::Settle { claim, files } => {
            out.put_u8(13);
            put_claim(out, *claim);
            out.put_varint(files.len() as u64);
            for (ino, position, how) in files {
                out.put_u64(ino.0);
                out.put_u64(position.0);
                out.put_u8(*how as u8);
            }
        }
        RealmCall::Turn { claim, begins } => {
            out.put_u8(14);
            put_claim(out, *claim);
            out.put_u8(u8::from(*begins));
        }
        RealmCall::BlockedBy { ino, name } => {
            out.put_u8(11);
            out.put_u64(ino.0);
            put_some_name(out, name.as_ref());
        }
        RealmCall::BecomeBranch { realm, name } => {
            out.put_u8(12);
            out.put_u32(realm.0);
            put_some_name(out, name.as_ref());
        }
    }
}

fn take_object_call(from: &mut Take<'_>) -> Result<ObjectCall, Malformed> {
    Ok(match from.u8()? {
        0 => match from.bytes()? {
            bytes if bytes.len() > REALM_OBJECT_BYTES_MAX => return bad("an object of bounded size"),
            bytes => ObjectCall::PutIfAbsent { bytes: bytes.to_vec() },
        },
        1 => ObjectCall::Get { bytes_max: from.u64()? },
        2 => ObjectCall::Delete,
        3 => ObjectCall::List { after: take_short_text(from)? },
        _ => return bad("what to do with an object"),
    })
}

fn put_object_answer(out: &mut Vec<u8>, answer: &ObjectAnswer) {
    match answer {
        ObjectAnswer::Put(done) => {
            out.put_u8(0);
            out.put_u8(u8::from(*done));
        }
        ObjectAnswer::Bytes(bytes) => {
            out.put_u8(1);
            out.put_u8(u8::from(bytes.is_some()));
            if let Some(bytes) = bytes {
                out.put_bytes(bytes);
            }
        }
        ObjectAnswer::Deleted => out.put_u8(2),
        ObjectAnswer::Names(names) => {
            out.put_u8(3);
            out.put_varint(names.len() as u64);
            for (name, bytes) in names {
                put_text(out, name);
                out.put_varint(*bytes);
            }
        }
    }
}

fn take_object_answer(from: &mut Take<'_>) -> Result<ObjectAnswer, Malformed> {
    Ok(match from.u8()? {
        0 => ObjectAnswer::Put(take_bool(from)?),
        1 if !take_bool(from)? => ObjectAnswer::Bytes(None),
        1 => ObjectAnswer::Bytes(Some(from.bytes()?.to_vec())),
        2 => ObjectAnswer::Deleted,
        3 => {
            let n = take_count(from, 2, NAMES_MAX)?;
            let one = |_| Ok((take_short_text(from)?, from.varint()?));
            ObjectAnswer::Names((0..n).map(one).collect::<Result<_, Malformed>>()?)
        }
        _ => return bad("what became of an object"),
    })
}

pub(super) fn take_realm_call(from: &mut Take<'_>) -> Result<RealmCall, Malformed> {
    Ok(match from.u8()? {
        0 => RealmCall::Decouple {
            root: Ino(from.u64()?),
            branch: take_some_name(from)?,
            nonce: from.u64()?,
            journal_at: take_short_text(from)?,
            policy: take_policy(from)?,
        },
        1 => RealmCall::Attach {
            realm: RealmId(from.u32()?),
            nonce: from.u64()?,
            journal_at: take_short_text(from)?,
        },
        2 => {
            RealmCall::Grant { claim: take_claim(from)?, shard: ShardId(from.u16()?), count: from.varint()? }
        }
        3 => {
            let claim = take_claim(from)?;
            let n = take_count(from, 9, NEEDS_MAX)?;
            let needs = (0..n).map(|_| take_need(from)).collect::<Result<_, _>>()?;
            RealmCall::Rows { claim, needs }
        }
        4 => {
            let claim = take_claim(from)?;
            let n = take_count(from, 8, NEEDS_MAX)?;
            let inodes = (0..n).map(|_| Ok(Ino(from.u64()?))).collect::<Result<_, Malformed>>()?;
            let n = take_count(from, 10, NEEDS_MAX)?;
            let names =
                (0..n).map(|_| Ok((Ino(from.u64()?), take_name(from)?))).collect::<Result<_, Malformed>>()?;
            RealmCall::Check { claim, inodes, names }
        }
        5 => {
            let claim = take_claim(from)?;
            let window = MergeWindow { after: Position(from.u64()?), upto: Position(from.u64()?) };
            let (first, count) = (from.varint()?, take_u32_varint(from)?);
            if count as usize > MERGE_EVENTS_MAX {
                return bad("at most 4,096 events");
            }
            let events = from.bytes()?.to_vec();
            let (last, blind) = (take_bool(from)?, take_bool(from)?);
            RealmCall::Merge { claim, window, from: first, count, events, last, blind }
        }
        6 => RealmCall::End { claim: take_claim(from)?, force: take_bool(from)? },
        7 => RealmCall::Of { ino: Ino(from.u64()?) },
        8 => RealmCall::List,
        9 => RealmCall::Object {
            claim: take_claim(from)?,
            name: take_short_text(from)?,
            what: take_object_call(from)?,
        },
        10 => {
            let (claim, word) = (take_claim(from)?, from.u8()?);
            let on_conflict = OnConflict::from_u8(word);
            let on_conflict = on_conflict.ok_or(Malformed { expected: "what to do with conflicts" })?;
            RealmCall::Resolve { claim, on_conflict }
        }
        11 => RealmCall::BlockedBy { ino: Ino(from.u64()?), name: take_some_name(from)? },
        12 => RealmCall::BecomeBranch { realm: RealmId(from.u32()?), name: take_some_name(from)? },
        13 => {
            let claim = take_claim(from)?;
            let count = from.count(17)?;
            if count > NEEDS_MAX {
                return bad("a bounded number of files");
            }
            let file = |_| Ok((Ino(from.u64()?), Position(from.u64()?), Settled::from_u8(from.u8()?)?));
            RealmCall::Settle { claim, files: (0..count).map(file).collect::<Result<_, Malformed>>()? }
        }
        14 => RealmCall::Turn { claim: take_claim(from)?, begins: take_bool(from)? },
        _ => return bad("a call about realms"),
    })
}

fn put_need(out: &mut Vec<u8>, need: &Need) {
    let mut one = |tag: u8, ino: &Ino| {
        out.put_u8(tag);
        out.put_u64(ino.0);
    };
    match need {
        Need::Inode(ino) => one(0, ino),
        Need::Entry(dir, name) => {
            one(1, dir);
            out.put_bytes(name.as_bytes());
        }
        Need::Dir(dir) => one(2, dir),
        Need::Slice { dir, after, rows } => {
            one(3, dir);
            out.put_u64(*after);
            out.put_u32(*rows);
        }
        Need::Content(ino) => one(4, ino),
        Need::Chunk(ino, n) => {
            one(5, ino);
            out.put_u32(*n);
        }
        Need::Chunks(ino) => one(6, ino),
        Need::Xattrs(ino) => one(7, ino),
        Need::Block(block) => {
            one(8, &Ino(block.writer));
            out.put_u64(block.number);
        }
    }
}

fn take_need(from: &mut Take<'_>) -> Result<Need, Malformed> {
    let (tag, id) = (from.u8()?, from.u64()?);
    let ino = Ino(id);
    Ok(match tag {
        0 => Need::Inode(ino),
        1 => Need::Entry(ino, take_name(from)?),
        2 => Need::Dir(ino),
        3 => Need::Slice { dir: ino, after: from.u64()?, rows: from.u32()? },
        4 => Need::Content(ino),
        5 => Need::Chunk(ino, from.u32()?),
        6 => Need::Chunks(ino),
        7 => Need::Xattrs(ino),
        8 => Need::Block(BlockId { writer: id, number: from.u64()? }),
        _ => return bad("a kind of row"),
    })
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[(Ino, Ino)]) {
    out.put_varint(ranges.len() as u64);
    for (first, end) in ranges {
        out.put_u64(first.0);
        out.put_u64(end.0);
    }
}

fn take_ranges(from: &mut Take<'_>) -> Result<Vec<(Ino, Ino)>, Malformed> {
    let n = from.count(16)?;
    (0..n).map(|_| Ok((Ino(from.u64()?), Ino(from.u64()?)))).collect()
}

fn put_state(out: &mut Vec<u8>, state: &MergeState) {
    out.put_u64(state.merged.0);
    out.put_u8(u8::from(state.window.is_some()));
    if let Some((upto, done)) = state.window {
        out.put_u64(upto.0);
        out.put_u64(done);
    }
}

fn take_state(from: &mut Take<'_>) -> Result<MergeState, Malformed> {
    let merged = Position(from.u64()?);
    let window = if take_bool(from)? { Some((Position(from.u64()?), from.u64()?)) } else { None };
    Ok(MergeState { merged, window })
}

pub(super) fn put_realm_answer(out: &mut Vec<u8>, answer: &RealmAnswer) {
    match answer {
        RealmAnswer::Granted(granted) => {
            out.put_u8(0);
            let Granted { claim, root, base, writer, ranges, borders, shards, policy, state, filesystem } =
                &**granted;
            put_claim(out, *claim);
            put_attr(out, root);
            out.put_u64(base.0);
            out.put_u64(*writer);
            put_ranges(out, ranges);
            out.put_varint(borders.len() as u64);
            borders.iter().for_each(|border| out.put_u64(border.0));
            out.put_u16(*shards);
            out.put_bytes(policy);
            put_state(out, state);
            out.put_u64(*filesystem);
        }
        RealmAnswer::Ranges(ranges) => {
            out.put_u8(1);
            put_ranges(out, ranges);
        }
        RealmAnswer::Rows(found) => {
            out.put_u8(2);
            out.put_varint(found.len() as u64);
            for FoundRows { rows, exhausted } in found {
                out.put_u8(u8::from(*exhausted));
                out.put_varint(rows.len() as u64);
                for (key, value) in rows {
                    out.put_bytes(key);
                    out.put_bytes(value);
                }
            }
        }
        RealmAnswer::Foreign { inodes, names } => {
            out.put_u8(3);
            for list in [inodes, names] {
                out.put_varint(list.len() as u64);
                out.extend(list.iter().map(|foreign| *foreign as u8));
            }
        }
        RealmAnswer::Merged(merged) => {
            out.put_u8(4);
            put_state(out, &merged.state);
            out.put_u64(merged.position.0);
            out.put_varint(merged.skipped);
            out.put_varint(merged.lost.len() as u64);
            for (at, reason) in &merged.lost {
                out.put_varint(*at);
                put_text(out, reason);
            }
            out.put_varint(merged.conflicts.len() as u64);
            for conflict in &merged.conflicts {
                put_conflict(out, conflict);
            }
            out.put_u8(u8::from(merged.stopped));
        }
        RealmAnswer::Ended => out.put_u8(5),
        RealmAnswer::Of { root, decoupled } => {
            out.put_u8(6);
            out.put_u64(root.0);
            out.put_u8(u8::from(decoupled.is_some()));
            if let Some(info) = decoupled {
                put_info(out, info);
            }
        }
        RealmAnswer::Realms(all) => {
            out.put_u8(7);
            out.put_varint(all.len() as u64);
            for info in all {
                put_info(out, info);
            }
        }
        RealmAnswer::Object(answer) => {
            out.put_u8(8);
            put_object_answer(out, answer);
        }
        RealmAnswer::BlockedBy(blocked) => {
            out.put_u8(9);
            out.put_u8(u8::from(blocked.is_some()));
            if let Some(Blocked { root, only_writes, is_name, leased }) = blocked {
                out.put_u64(root.0);
                out.put_u8(u8::from(*only_writes));
                out.put_u8(u8::from(*is_name));
                out.put_u8(u8::from(*leased));
            }
        }
    }
}

pub(super) fn take_realm_answer(from: &mut Take<'_>) -> Result<RealmAnswer, Malformed> {
    Ok(match from.u8()? {
        0 => RealmAnswer::Granted(Box::new(Granted {
            claim: take_claim(from)?,
            root: take_attr(from)?,
            base: Position(from.u64()?),
            writer: from.u64()?,
            ranges: take_ranges(from)?,
            borders: (0..from.count(8)?).map(|_| Ok(Ino(from.u64()?))).collect::<Result<_, Malformed>>()?,
            shards: from.u16()?,
            policy: take_policy(from)?,
            state: take_state(from)?,
            filesystem: from.u64()?,
        })),
        1 => RealmAnswer::Ranges(take_ranges(from)?),
        2 => {
            let n = from.count(2)?;
            let found = (0..n).map(|_| {
                let exhausted = take_bool(from)?;
                let n = from.count(2)?;
                let rows = (0..n).map(|_| Ok((from.bytes()?.to_vec(), from.bytes()?.to_vec())));
                Ok(FoundRows { rows: rows.collect::<Result<Rows, Malformed>>()?, exhausted })
            });
            RealmAnswer::Rows(found.collect::<Result<_, Malformed>>()?)
        }
        3 => {
            let mut list = || -> Result<Vec<Foreign>, Malformed> {
                let n = from.count(1)?;
                from.take(n, "changes of others")?.iter().map(|byte| foreign(*byte)).collect()
            };
            RealmAnswer::Foreign { inodes: list()?, names: list()? }
        }
        4 => {
            let (state, position, skipped) = (take_state(from)?, Position(from.u64()?), from.varint()?);
            let n = from.count(2)?;
            let lost =
                (0..n).map(|_| Ok((from.varint()?, take_text(from)?))).collect::<Result<_, Malformed>>()?;
            let n = from.count(12)?;
            let conflicts = (0..n).map(|_| take_conflict(from)).collect::<Result<_, _>>()?;
            RealmAnswer::Merged(Merged {
                state,
                position,
                skipped,
                lost,
                conflicts,
                stopped: take_bool(from)?,
            })
        }
        5 => RealmAnswer::Ended,
        6 => {
            let root = Ino(from.u64()?);
            let decoupled = if take_bool(from)? { Some(Box::new(take_info(from)?)) } else { None };
            RealmAnswer::Of { root, decoupled }
        }
        7 => {
            let n = from.count(INFO_BYTES_MIN)?;
            RealmAnswer::Realms((0..n).map(|_| take_info(from)).collect::<Result<_, _>>()?)
        }
        8 => RealmAnswer::Object(take_object_answer(from)?),
        9 if !take_bool(from)? => RealmAnswer::BlockedBy(None),
        9 => RealmAnswer::BlockedBy(Some(Blocked {
            root: Ino(from.u64()?),
            only_writes: take_bool(from)?,
            is_name: take_bool(from)?,
            leased: take_bool(from)?,
        })),
        _ => return bad("an answer about realms"),
    })
}

fn foreign(byte: u8) -> Result<Foreign, Malformed> {
    [Foreign::Same, Foreign::Changed, Foreign::Removed]
        .into_iter()
        .find(|foreign| *foreign as u8 == byte)
        .ok_or(Malformed { expected: "a change of others" })
}

fn put_conflict(out: &mut Vec<u8>, conflict: &Conflict) {
    let kind = ConflictKind::ALL.iter().position(|kind| *kind == conflict.kind);
    out.put_u8(kind.expect("the table has every kind") as u8);
    let resolution = Resolution::ALL.iter().position(|resolution| *resolution == conflict.resolution);
    out.put_u8(resolution.expect("the table has every resolution") as u8);
    out.put_bytes(&conflict.path);
    out.put_u64(conflict.ino.0);
    put_some_name(out, conflict.aside.as_ref());
}

fn take_conflict(from: &mut Take<'_>) -> Result<Conflict, Malformed> {
    let (kind, resolution) = (usize::from(from.u8()?), usize::from(from.u8()?));
    Ok(Conflict {
        kind: *ConflictKind::ALL.get(kind).ok_or(Malformed { expected: "a kind of conflict" })?,
        resolution: *Resolution::ALL.get(resolution).ok_or(Malformed { expected: "a resolution" })?,
        path: from.bytes()?.to_vec(),
        ino: Ino(from.u64()?),
        aside: take_some_name(from)?,
    })
}

/// Fewest bytes of a [`RealmInfo`].
const INFO_BYTES_MIN: usize = 61;

fn put_info(out: &mut Vec<u8>, info: &RealmInfo) {
    put_claim(out, info.claim);
    out.put_u64(info.root.0);
    out.put_bytes(&info.path);
    put_some_name(out, info.branch.as_ref());
    put_text(out, &info.owner);
    out.put_u8(u8::from(info.is_attached));
    out.put_u8(u8::from(info.is_own));
    put_text(out, &info.journal_at);
    out.put_bytes(&info.policy);
    out.put_i64(info.since.0);
    out.put_u64(info.base.0);
    put_state(out, &info.state);
    out.put_u64(info.reserved);
    out.put_u64(info.used);
    out.put_u8(u8::from(info.is_merging));
}

fn take_info(from: &mut Take<'_>) -> Result<RealmInfo, Malformed> {
    Ok(RealmInfo {
        claim: take_claim(from)?,
        root: Ino(from.u64()?),
        path: from.bytes()?.to_vec(),
        branch: take_some_name(from)?,
        owner: take_text(from)?,
        is_attached: take_bool(from)?,
        is_own: take_bool(from)?,
        journal_at: take_short_text(from)?,
        policy: take_policy(from)?,
        since: Time(from.i64()?),
        base: Position(from.u64()?),
        state: take_state(from)?,
        reserved: from.u64()?,
        used: from.u64()?,
        is_merging: take_bool(from)?,
    })
}
