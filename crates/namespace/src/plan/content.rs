//! Operations that change content: write, clone, remap, reclaim.

use chiton_model::{Body, Event, Extent, FILE_BYTES_MAX, Gone, Hold, INLINE_BYTES_MAX};
use chiton_types::{Ino, Kind, Position, Refusal, Time};

use super::{ContentIn, Context, InodeFacts, PlanState, Planned};
use crate::chunk::share_repeated;
use crate::fault::Fault;
use crate::paging::chunk_of;
use crate::permission;

pub(super) fn write<S: PlanState>(
    state: &S,
    ino: Ino,
    (body, size, hold): (&Body, u64, Hold),
    mtime: Time,
    kill_setid: bool,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let inode = file(state, ino)?;
    let placed = match hold {
        Hold::Appended(end) if end != inode.size => Some(appended(state, &inode, body, size, end)?),
        _ => None,
    };
    let (body, size) = placed.as_ref().map_or((body, size), |(body, size)| (body, *size));
    if size > FILE_BYTES_MAX {
        return Err(Refusal::TooBig.into());
    }
    // The right to write was checked at open; these flags hold also for descriptors that are open.
    let is_refused = inode.is_append_only() && !only_appends(state, &inode, body, size)?;
    if inode.is_immutable() || is_refused {
        return Err(Refusal::NotPermitted.into());
    }
    let is_mapped = inode.content == ContentIn::Blocks;
    let body = match body {
        Body::Inline(bytes) => {
            if bytes.len() > INLINE_BYTES_MAX || bytes.len() as u64 > size || is_mapped {
                return Err(Refusal::Invalid.into());
            }
            Body::Inline(bytes.clone())
        }
        Body::Extents(extents) => {
            let end = extents.iter().filter(|e| !e.block.is_hole()).map(Extent::end).max().unwrap_or(0);
            if size < inode.size || end > size || !in_order(extents) {
                return Err(Refusal::Invalid.into());
            }
            Body::Extents(unshared(extents))
        }
    };
    let event = Event::Write { ino, body, size, mode: permission::written(&inode, kill_setid), mtime };
    state.has_maps_for(&event)?;
    out.push(event);
    Ok(Planned { subject: Some(ino), gone: None, other: None })
}

/// Whether a write leaves all bytes as they are that a file has. Where content moves from its row into blocks, which the server
/// does not read, the writer is believed.
fn only_appends<S: PlanState>(state: &S, inode: &InodeFacts, body: &Body, size: u64) -> Result<bool, Fault> {
    if size < inode.size {
        return Ok(false);
    }
    match body {
        Body::Inline(bytes) => {
            let held = state.inline_content(inode)?;
            let len = (bytes.len().max(held.len()) as u64).min(inode.size) as usize;
            let at = |content: &[u8], n: usize| content.get(n).copied().unwrap_or(0);
            Ok((0..len).all(|n| at(bytes, n) == at(held, n)))
        }
        Body::Extents(extents) => {
            Ok(inode.content == ContentIn::Inline || extents.iter().all(|e| e.offset >= inode.size))
        }
    }
}

/// Moves an append at `end` to where the end of the file is now, with the size then. The bytes below belong to a state of the
/// file that is no more.
fn appended<S: PlanState>(
    state: &S,
    inode: &InodeFacts,
    body: &Body,
    size: u64,
    end: u64,
) -> Result<(Body, u64), Fault> {
    let more = size.checked_sub(end).ok_or(Refusal::Invalid)?;
    let size = inode.size.checked_add(more).filter(|size| *size <= FILE_BYTES_MAX).ok_or(Refusal::TooBig)?;
    let body = match body {
        Body::Inline(bytes) => {
            let tail = bytes.get(end as usize..).ok_or(Refusal::Invalid)?;
            if inode.content == ContentIn::Blocks || size > INLINE_BYTES_MAX as u64 {
                return Err(Refusal::Invalid.into());
            }
            let mut content = state.inline_content(inode)?.to_vec();
            content.resize(inode.size as usize, 0);
            content.extend_from_slice(tail);
            Body::Inline(content)
        }
        Body::Extents(extents) => {
            let is_inline = inode.content == ContentIn::Inline;
            if is_inline || extents.iter().any(|e| e.offset < end) {
                return Err(Refusal::Invalid.into());
            }
            let mut placed = Vec::with_capacity(extents.len());
            for e in extents {
                Extent { offset: e.offset - end + inode.size, ..*e }.split_at_chunks(&mut placed);
            }
            Body::Extents(placed)
        }
    };
    Ok((body, size))
}

pub(super) fn clone<S: PlanState>(
    state: &S,
    (from, from_offset): (Ino, u64),
    (to, to_offset): (Ino, u64),
    len: u64,
    ctx: &Context<'_>,
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let (source, target) = (file(state, from)?, file(state, to)?);
    if target.is_immutable() || (target.is_append_only() && to_offset < target.size) {
        return Err(Refusal::NotPermitted.into());
    }
    let source_end = from_offset.checked_add(len).filter(|&end| end <= source.size);
    let target_end = to_offset.checked_add(len).filter(|&end| end <= FILE_BYTES_MAX);
    let (Some(source_end), Some(target_end)) = (source_end, target_end) else {
        return Err(Refusal::Invalid.into());
    };
    let overlap = from == to && from_offset < target_end && to_offset < source_end;
    let is_inline = |inode: &InodeFacts| inode.content == ContentIn::Inline;
    if len == 0 || overlap || is_inline(&source) || is_inline(&target) {
        return Err(Refusal::Invalid.into());
    }
    let event = Event::Clone { from, from_offset, to, to_offset, len, time: ctx.now };
    state.has_maps_for(&event)?;
    out.push(event);
    Ok(Planned { subject: Some(to), gone: None, other: None })
}

pub(super) fn remap<S: PlanState>(
    state: &S,
    ino: Ino,
    expected: Position,
    extents: &[Extent],
    out: &mut Vec<Event>,
) -> Result<Planned, Fault> {
    let inode = file(state, ino)?;
    if inode.position != expected || inode.content != ContentIn::Blocks {
        return Err(Refusal::WouldBlock.into());
    }
    let end = extents.last().map_or(0, Extent::end);
    if end > inode.size || !in_order(extents) || extents.iter().any(|e| e.block.is_hole()) {
        return Err(Refusal::Invalid.into());
    }
    let event = Event::Remap { ino, extents: unshared(extents) };
    state.has_maps_for(&event)?;
    out.push(event);
    Ok(Planned { subject: Some(ino), gone: None, other: None })
}

pub(super) fn reclaim<S: PlanState>(state: &S, ino: Ino, out: &mut Vec<Event>) -> Result<Planned, Fault> {
    let inode = state.inode(ino)?;
    if inode.nlink > 0 {
        return Err(Refusal::Busy.into());
    }
    let from_chunk = state.reclaim_from(&inode)?;
    out.push(Event::Reclaim { ino, from_chunk });
    Ok(Planned { subject: Some(ino), gone: Some(Gone { ino, orphan: from_chunk > 0 }), other: None })
}

fn file<S: PlanState>(state: &S, ino: Ino) -> Result<InodeFacts, Fault> {
    let inode = state.inode(ino)?;
    match inode.kind {
        Kind::File => Ok(inode),
        Kind::Dir => Err(Refusal::IsDir.into()),
        _ => Err(Refusal::Invalid.into()),
    }
}

/// Extents of which only those are shared that name a block twice: a caller's word on it does not count.
fn unshared(extents: &[Extent]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = extents.iter().map(|e| Extent { shared: false, ..*e }).collect();
    share_repeated(&mut extents);
    extents
}

/// Extents as an operation must bring them: within the largest file, whole, in order, without overlap.
fn in_order(extents: &[Extent]) -> bool {
    extents
        .iter()
        .all(|e| e.len > 0 && e.end() <= FILE_BYTES_MAX + 1 && chunk_of(e.offset) == chunk_of(e.end() - 1))
        && extents.windows(2).all(|w| w[0].end() <= w[1].offset)
}
