//! The effects of an operation on a directory with parts on these parts.
//!
//! Invariants:
//! - Parts have the attributes and access lists of the directory. Its parts end with its name, or become orphans if the directory is
//!   removed with names in it.
//! - Nobody changes a part alone.

use std::ops::Range;

use chiton_model::{Event, HASHES, PartRange, range_of};
use chiton_types::{Attr, Ino, Kind, Name, Refusal};

use super::{InodeFacts, PlanState};
use crate::fault::Fault;
use crate::namespace::Namespace;
use crate::permission;

/// Names that are read at a time.
const PAGE: usize = 4096;

/// Adds to the events of an operation, from `from` on, those of parts.
pub(super) fn extend<S: PlanState>(state: &S, out: &mut Vec<Event>, from: usize) -> Result<(), Fault> {
    for at in from..out.len() {
        if matches!(&out[at], Event::Make { .. }) {
            // A newborn changes no part, and most operations are creates.
            continue;
        }
        if let Some(ino) = out[at].attributes_of() {
            if is_copied(&out[at], ino, &out[from]) {
                copy(state, ino, out, at)?;
            }
        } else if let Some(removed) = out[at].footprint().loser()
            && out[at].kind_of(removed) == Some(Kind::Dir)
        {
            let time = out[at].time().unwrap_or_default();
            for ino in others(state, &state.inode(removed)?)? {
                out.push(match state.is_empty(&state.inode(ino)?)? {
                    true => Event::Reclaim { ino, from_chunk: 0 },
                    // The directory is removed with its content.
                    false => Event::Detached { ino, time },
                });
            }
        }
    }
    Ok(())
}

/// Whether parts have an attribute that an event sets. Of the extended ones they have access lists; those of a newborn come with its parts.
fn is_copied(event: &Event, ino: Ino, first: &Event) -> bool {
    let Event::Xattr { name, .. } = event else { return true };
    permission::is_list(name) && first.footprint().newborn() != Some(ino)
}

fn copy<S: PlanState>(state: &S, ino: Ino, out: &mut Vec<Event>, at: usize) -> Result<(), Fault> {
    let inode = state.inode(ino)?;
    if inode.flags & Attr::PART != 0 {
        return Err(Refusal::Stale.into());
    }
    for part in others(state, &inode)? {
        // It is held.
        state.inode(part)?;
        let event = out[at].with_attributes_of(part);
        out.extend(event);
    }
    Ok(())
}

/// The directory that a part belongs to; of any other its own inode.
pub(super) fn home_of(dir: &InodeFacts) -> Ino {
    if dir.flags & Attr::PART != 0 { dir.parent } else { dir.ino }
}

/// The parts of a directory beside its own inode.
fn others<S: PlanState>(state: &S, dir: &InodeFacts) -> Result<Vec<Ino>, Fault> {
    match dir.flags & Attr::HAS_PARTS {
        0 => Ok(Vec::new()),
        _ => Ok(state.parts(dir)?.into_iter().filter(|ino| *ino != dir.ino).collect()),
    }
}

/// Whether a directory has no entries in any of its parts.
pub(super) fn is_empty<S: PlanState>(state: &S, dir: &InodeFacts) -> Result<bool, Fault> {
    if !state.is_empty(dir)? {
        return Ok(false);
    }
    for part in others(state, dir)? {
        if !state.is_empty(&state.inode(part)?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The events by which a directory has these parts from now on. Those at `newborn` begin to exist, with its attributes and the names in
/// their ranges. They stand together in the list.
///
/// # Errors
/// [`Fault::Missing`] of rows that are not known here; `Io` if some of the names cannot be read.
pub fn split(
    ns: &Namespace,
    dir: Ino,
    (parts, newborn): (Vec<PartRange>, Range<usize>),
    out: &mut Vec<Event>,
) -> Result<(), Fault> {
    if ns.torn_dirs.contains(&dir) {
        return Err(Refusal::Io.into());
    }
    let inode = ns.inode(dir)?;
    let (mode, uid, gid, flags) = (inode.mode, inode.uid, inode.gid, inode.attr_flags() & Attr::SETTABLE);
    // Callers see the latest time of all parts.
    let (time, ctime) = (inode.mtime, inode.ctime);
    let lists: Vec<(Vec<u8>, Vec<u8>)> = match ns.xattrs_of(inode)? {
        Some(xattrs) => {
            let lists = xattrs.0.iter().filter(|(name, _)| permission::is_list(name));
            lists.map(|(name, value)| (name.clone(), value.clone())).collect()
        }
        None => Vec::new(),
    };
    let (mut moved, mut known_there) = (Vec::new(), Vec::new());
    for part in &parts[newborn.clone()] {
        let (first, last) = range_of(&parts, part.ino).unwrap_or_default();
        let mut after = first.saturating_sub(1);
        loop {
            let page = ns.readdir(dir, after, PAGE)?;
            let Some(end) = page.entries.last().map(|(.., cookie)| *cookie) else { break };
            let names = page.entries.into_iter().take_while(|(.., cookie)| *cookie <= last);
            for (name, ino, kind, _) in names {
                // A file that has its only name here, on this plate, knows the directory: that is enough.
                if kind == Kind::Dir || !ns.owns(ino) || ns.is_linked(ino) {
                    known_there.push(Event::Parent { ino, from: dir, to: part.ino });
                }
                moved.push(Event::Moved { kind, from: dir, to: part.ino, ino, name });
            }
            if page.end || end >= last {
                break;
            }
            after = end;
        }
    }
    let needs: Vec<_> = known_there.iter().flat_map(|event| ns.needs(event)).collect();
    if !needs.is_empty() {
        return Err(Fault::Missing(needs));
    }
    out.push(Event::Parts { ino: dir, parts: parts.clone() });
    for ino in parts[newborn].iter().map(|part| part.ino) {
        let (first, last) = range_of(&parts, ino).unwrap_or_default();
        out.push(Event::Part { home: dir, ino, first, last, mode, uid, gid, time });
        let set = |(name, value): &(Vec<u8>, Vec<u8>)| Event::Xattr {
            ino,
            name: name.clone(),
            value: Some(value.clone()),
            ctime,
        };
        out.extend(lists.iter().map(set));
        if flags != 0 {
            out.push(Event::Flags { ino, ctime, flags });
        }
    }
    out.append(&mut moved);
    out.append(&mut known_there);
    Ok(())
}

/// The entries of a part, each with its inode.
pub type Entries = Vec<(Name, (Ino, Kind))>;

/// The events by which a directory has the names of one of its parts, the last that begins where its own range ends. The part stays in the list
/// without names.
pub fn fold(
    ns: &Namespace,
    dir: Ino,
    mut parts: Vec<PartRange>,
    (part, entries): (&Attr, Entries),
    out: &mut Vec<Event>,
) -> Result<(), Fault> {
    let inode = ns.inode(dir)?;
    let (mtime, ctime) = (inode.mtime.max(part.mtime), inode.ctime.max(part.ctime));
    let first = parts.last().map_or(HASHES, |last| last.first.max(HASHES - 1) + 1);
    parts.retain(|other| other.ino != part.ino);
    parts.push(PartRange { first, ino: part.ino });
    let (from, to) = (part.ino, dir);
    let known = entries.iter().map(|(_, (ino, _))| Event::Parent { ino: *ino, from, to });
    let known: Vec<_> = known.collect();
    let needs: Vec<_> = known.iter().flat_map(|event| ns.needs(event)).collect();
    if !needs.is_empty() {
        return Err(Fault::Missing(needs));
    }
    out.push(Event::Parts { ino: dir, parts });
    out.push(Event::Folded { ino: from, first });
    out.extend(entries.into_iter().map(|(name, (ino, kind))| Event::Moved { kind, from, to, ino, name }));
    out.extend(known);
    let times = Event::SetAttr {
        ino: dir,
        ctime,
        mode: None,
        uid: None,
        gid: None,
        size: None,
        atime: None,
        mtime: Some(mtime),
    };
    out.push(times);
    Ok(())
}

/// The events by which the parts of a directory that have no names end.
pub fn end_folded(dir: Ino, parts: Vec<PartRange>, out: &mut Vec<Event>) {
    let (ended, mut left): (Vec<_>, Vec<_>) = parts.into_iter().partition(PartRange::is_folded);
    if left.len() == 1 {
        left.clear();
    }
    out.push(Event::Parts { ino: dir, parts: left });
    out.extend(ended.into_iter().map(|part| Event::Reclaim { ino: part.ino, from_chunk: 0 }));
}

/// Adds to the events that make a directory those that give it parts. The first of them is the directory's own.
pub fn with_parts(events: &mut Vec<Event>, parts: Vec<PartRange>) {
    let Some(&Event::Make { ino: home, mode, uid, gid, time, .. }) = events.first() else { return };
    let lists = events[1..].to_vec();
    events.push(Event::Parts { ino: home, parts: parts.clone() });
    for part in parts.iter().filter(|part| part.ino != home) {
        let ino = part.ino;
        let (first, last) = range_of(&parts, ino).unwrap_or_default();
        events.push(Event::Part { home, ino, first, last, mode, uid, gid, time });
        events.extend(lists.iter().filter_map(|list| list.with_attributes_of(ino)));
    }
}
