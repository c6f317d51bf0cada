//! Replies.
//!
//! ```text
//!  0        8           16           24    25
//!  │ id u64 │ epoch u64 │ durable u64│ tag │ the answer (tag below 128) or the failure
//! ```

use chiton_model::Outcome;
use chiton_model::codec::{put_extents, take_extents, take_name};
use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Epoch, Ino, Position, Refusal, Seq, Time};

use super::outcome::{put_outcome, take_outcome};
use super::realm::{put_realm_answer, take_realm_answer};
use super::{
    bad, put_attr, put_lock, put_text, take_attr, take_bool, take_flags, take_kind, take_lease, take_lock,
    take_text,
};
use crate::message::{Answer, BATCH_OPS_MAX, Content, DirEntry, Failure, LeaseMode, Reply, StatFs};

/// Tags from here on are failures, in replies and in the results of a batch.
const FAILURES: u8 = 128;
/// Fewest bytes of an entry: name of one byte, inode, type, cookie, flag.
const ENTRY_BYTES_MIN: usize = 20;
/// Most items for which memory is reserved before the first is read; as for operations.
const ITEMS_RESERVED_MAX: usize = 1024;
/// Bytes of an operation's result that holds attributes.
const RESULT_BYTES: usize = 1 + 8 + super::ATTR_BYTES;

const PARENT_LEASED: u8 = 1;
const PARENT_OPEN: u8 = 2;
const END: u8 = 4;

impl Reply {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut head = [0u8; 24];
        head[0..8].copy_from_slice(&self.id.to_le_bytes());
        head[8..16].copy_from_slice(&self.epoch.0.to_le_bytes());
        head[16..24].copy_from_slice(&self.durable.0.to_le_bytes());
        out.extend_from_slice(&head);
        match &self.result {
            Ok(answer) => put_answer(out, answer),
            Err(failure) => put_failure(out, failure),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// If the bytes are none.
    pub fn decode(from: &mut Take<'_>) -> Result<Reply, Malformed> {
        let mut head = Take::new(from.take(25, "a reply's header")?);
        let (id, epoch, durable) = (head.u64()?, Epoch(head.u64()?), Position(head.u64()?));
        let tag = head.u8()?;
        let result = if tag < FAILURES { Ok(take_answer(tag, from)?) } else { Err(take_failure(tag, from)?) };
        Ok(Reply { id, epoch, durable, result })
    }
}

fn put_failure(out: &mut Vec<u8>, failure: &Failure) {
    match failure {
        Failure::Refused(refusal) => {
            out.put_u8(FAILURES);
            out.put_u8(*refusal as u8);
        }
        Failure::NeedGroups => out.put_u8(FAILURES + 1),
        Failure::SessionGone => out.put_u8(FAILURES + 2),
        Failure::Malformed(text) => {
            out.put_u8(FAILURES + 3);
            put_text(out, text);
        }
    }
}

fn take_failure(tag: u8, from: &mut Take<'_>) -> Result<Failure, Malformed> {
    Ok(match tag - FAILURES {
        0 => Failure::Refused(Refusal::from_u8(from.u8()?).ok_or(Malformed { expected: "a refusal" })?),
        1 => Failure::NeedGroups,
        2 => Failure::SessionGone,
        3 => Failure::Malformed(take_text(from)?),
        _ => return bad("a failure"),
    })
}

fn parent_flags(leased: bool, open: bool) -> u8 {
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    bit(leased, PARENT_LEASED) | bit(open, PARENT_OPEN)
}

fn put_answer(out: &mut Vec<u8>, answer: &Answer) {
    match answer {
        Answer::Done => out.put_u8(0),
        Answer::Op { position, outcome, lease, parent_leased } => {
            out.put_u8(1);
            out.put_u8(*lease as u8);
            out.put_u8(u8::from(*parent_leased));
            put_outcome(out, *position, outcome);
        }
        Answer::Batch(results) => {
            out.put_u8(2);
            out.reserve(results.len() * RESULT_BYTES);
            out.put_varint(results.len() as u64);
            for result in results {
                match result {
                    Ok((position, outcome)) => put_outcome(out, *position, outcome),
                    Err(failure) => put_failure(out, failure),
                }
            }
        }
        Answer::WriteBehind(results) => {
            out.put_u8(12);
            out.put_varint(results.len() as u64);
            for result in results {
                match result {
                    Ok((position, lease)) => {
                        out.put_u8(*lease as u8);
                        out.put_u64(position.0);
                    }
                    Err(failure) => put_failure(out, failure),
                }
            }
        }
        Answer::CarriedOut(runs) => {
            out.put_u8(14);
            out.put_varint(runs.len() as u64);
            for (first, end) in runs {
                out.put_u64(first.0);
                out.put_u64(end.0);
            }
        }
        Answer::Names { leased, attr, numbers, now } => {
            out.put_u8(13);
            out.put_u8(u8::from(*leased));
            put_attr(out, attr);
            out.put_u64(numbers.0.0);
            out.put_u64(numbers.1.0);
            out.put_i64(now.0);
        }
        Answer::Attr { attr, lease, parent_leased, parent_open } => {
            out.put_u8(3);
            out.put_u8(*lease as u8);
            out.put_u8(parent_flags(*parent_leased, *parent_open));
            put_attr(out, attr);
        }
        Answer::Absent { parent_leased, parent_open } => {
            out.put_u8(4);
            out.put_u8(parent_flags(*parent_leased, *parent_open));
        }
        Answer::Entries { entries, end, parent_leased, parent_open } => {
            out.put_u8(5);
            out.put_u8(parent_flags(*parent_leased, *parent_open) | if *end { END } else { 0 });
            out.put_varint(entries.len() as u64);
            for entry in entries {
                put_entry(out, entry);
            }
        }
        Answer::Bytes(bytes) => {
            out.put_u8(6);
            out.put_bytes(bytes);
        }
        Answer::Map { attr, lease, content } => {
            out.put_u8(7);
            out.put_u8(*lease as u8);
            put_attr(out, attr);
            put_content(out, content);
        }
        Answer::StatFs(totals) => {
            out.put_u8(8);
            out.put_u64(totals.bytes_total);
            out.put_u64(totals.bytes_free);
            out.put_u64(totals.inodes_used);
        }
        Answer::Lease { mode, attr, is_watched } => {
            out.put_u8(9);
            out.put_u8(*mode as u8);
            out.put_u8(u8::from(*is_watched));
            put_attr(out, attr);
        }
        Answer::Lock(lock) => {
            out.put_u8(10);
            out.put_u8(u8::from(lock.is_some()));
            if let Some(lock) = lock {
                put_lock(out, lock);
            }
        }
        Answer::Realm(answer) => {
            out.put_u8(11);
            put_realm_answer(out, answer);
        }
    }
}

fn take_answer(tag: u8, from: &mut Take<'_>) -> Result<Answer, Malformed> {
    Ok(match tag {
        0 => Answer::Done,
        1 => {
            let (lease, parent_leased) = (take_lease(from)?, take_bool(from)?);
            let bits = from.u8()?;
            let (position, outcome) = take_outcome(bits, from)?;
            Answer::Op { position, outcome, lease, parent_leased }
        }
        2 => Answer::Batch(take_results(from)?),
        3 => {
            let lease = take_lease(from)?;
            let flags = take_flags(from, PARENT_LEASED | PARENT_OPEN)?;
            Answer::Attr {
                attr: take_attr(from)?,
                lease,
                parent_leased: flags & PARENT_LEASED != 0,
                parent_open: flags & PARENT_OPEN != 0,
            }
        }
        4 => {
            let flags = take_flags(from, PARENT_LEASED | PARENT_OPEN)?;
            Answer::Absent {
                parent_leased: flags & PARENT_LEASED != 0,
                parent_open: flags & PARENT_OPEN != 0,
            }
        }
        5 => {
            let flags = take_flags(from, PARENT_LEASED | PARENT_OPEN | END)?;
            let n = from.count(ENTRY_BYTES_MIN)?;
            let mut entries = Vec::with_capacity(n.min(ITEMS_RESERVED_MAX));
            for _ in 0..n {
                entries.push(take_entry(from)?);
            }
            Answer::Entries {
                entries,
                end: flags & END != 0,
                parent_leased: flags & PARENT_LEASED != 0,
                parent_open: flags & PARENT_OPEN != 0,
            }
        }
        6 => Answer::Bytes(from.bytes()?.to_vec()),
        7 => Answer::Map { lease: take_lease(from)?, attr: take_attr(from)?, content: take_content(from)? },
        8 => Answer::StatFs(StatFs {
            bytes_total: from.u64()?,
            bytes_free: from.u64()?,
            inodes_used: from.u64()?,
        }),
        9 => {
            let (mode, is_watched) = (take_lease(from)?, take_bool(from)?);
            Answer::Lease { mode, attr: take_attr(from)?, is_watched }
        }
        10 => Answer::Lock(if take_bool(from)? { Some(take_lock(from)?) } else { None }),
        11 => Answer::Realm(take_realm_answer(from)?),
        12 => Answer::WriteBehind(take_pending_results(from)?),
        14 => {
            let n = from.count(16)?;
            let mut runs = Vec::with_capacity(n);
            for _ in 0..n {
                runs.push((Seq(from.u64()?), Seq(from.u64()?)));
            }
            Answer::CarriedOut(runs)
        }
        13 => Answer::Names {
            leased: take_bool(from)?,
            attr: take_attr(from)?,
            numbers: (Ino(from.u64()?), Ino(from.u64()?)),
            now: Time(from.i64()?),
        },
        _ => return bad("an answer"),
    })
}

type Results = Vec<Result<(Position, Outcome), Failure>>;

fn take_results(from: &mut Take<'_>) -> Result<Results, Malformed> {
    let n = from.count(1)?;
    if n > BATCH_OPS_MAX {
        return bad("at most 16,384 results");
    }
    let reserved = n.min(from.rest().len() / RESULT_BYTES + 16);
    let mut results = Vec::with_capacity(reserved);
    for _ in 0..n {
        let tag = from.u8()?;
        results.push(if tag < FAILURES {
            Ok(take_outcome(tag, from)?)
        } else {
            Err(take_failure(tag, from)?)
        });
    }
    Ok(results)
}

type PendingResults = Vec<Result<(Position, LeaseMode), Failure>>;

fn take_pending_results(from: &mut Take<'_>) -> Result<PendingResults, Malformed> {
    let n = from.count(1)?;
    if n > BATCH_OPS_MAX {
        return bad("at most 16,384 results");
    }
    let mut results = Vec::with_capacity(n.min(ITEMS_RESERVED_MAX));
    for _ in 0..n {
        let tag = from.u8()?;
        results.push(if tag < FAILURES {
            let lease = take_lease(&mut Take::new(&[tag]))?;
            Ok((Position(from.u64()?), lease))
        } else {
            Err(take_failure(tag, from)?)
        });
    }
    Ok(results)
}

fn put_entry(out: &mut Vec<u8>, entry: &DirEntry) {
    out.put_bytes(entry.name.as_bytes());
    out.put_u64(entry.ino.0);
    out.put_u64(entry.cookie);
    out.put_u8(entry.kind as u8);
    // 0 without attributes, else 1 + the lease on them.
    match &entry.attr {
        None => out.put_u8(0),
        Some((attr, lease)) => {
            out.put_u8(1 + *lease as u8);
            put_attr(out, attr);
        }
    }
}

fn take_entry(from: &mut Take<'_>) -> Result<DirEntry, Malformed> {
    let name = take_name(from)?;
    let (ino, cookie, kind) = (Ino(from.u64()?), from.u64()?, take_kind(from)?);
    let attr = match from.u8()? {
        0 => None,
        n @ 1..=3 => {
            let lease = take_lease(&mut Take::new(&[n - 1]))?;
            Some((take_attr(from)?, lease))
        }
        _ => return bad("an entry's lease"),
    };
    Ok(DirEntry { name, ino, kind, cookie, attr })
}

fn put_content(out: &mut Vec<u8>, content: &Content) {
    match content {
        Content::Inline(bytes) => {
            out.put_u8(0);
            out.put_bytes(bytes);
        }
        Content::Extents { start, end, extents } => {
            out.put_u8(1);
            out.put_u64(*start);
            out.put_u64(*end);
            put_extents(out, extents);
        }
    }
}

fn take_content(from: &mut Take<'_>) -> Result<Content, Malformed> {
    Ok(match from.u8()? {
        0 => Content::Inline(from.bytes()?.to_vec()),
        1 => Content::Extents { start: from.u64()?, end: from.u64()?, extents: take_extents(from)? },
        _ => return bad("a kind of content"),
    })
}
