//! D60 to D67: directories whose names are spread over parts.

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::{AttrChange, HASHES, Make, Op, PartRange, RenameHow, part_of, range_of};
use chiton_types::{Attr, Cred, Ino, Mode, PlateId, Refusal, name_hash};
use chiton_wire::{Answer, Call, Query};

use crate::case::{Case, alice, answered, empty, is_refused, link, make, name, rmdir, unlink};
use crate::finding::{Outcome, failed, holds, same};

/// Names in a directory that is split.
const NAMES: usize = 40;

/// A directory that everybody may change, with names, and its parts.
fn split_dir(case: &Case<'_>) -> Outcome<(Ino, BTreeSet<String>, Vec<PartRange>)> {
    case.needs_plates()?;
    let dir = case.whole_dir()?;
    let names = case.files(dir, "file", NAMES)?;
    case.split(dir)?;
    let parts = case.parts(dir)?;
    holds("split a directory", parts.len() > 1, "several parts", &parts)?;
    Ok((dir, names, parts))
}

fn hash(text: &str) -> u64 {
    name_hash(text.as_bytes())
}

/// The part that has a name, and another one.
fn right_and_wrong(parts: &[PartRange], text: &str) -> Outcome<(Ino, Ino)> {
    let right = part_of(parts, hash(text));
    let wrong = parts.iter().map(|part| part.ino).find(|ino| Some(*ino) != right);
    right.zip(wrong).ok_or_else(|| failed("choose a part", "two parts", format!("{parts:?}")))
}

pub(super) fn list(case: &Case<'_>) -> Outcome {
    let dir = case.whole_dir()?;
    let flags = |ino| Ok(answered("ask for attributes", case.client.attr_at(ino))?.flags);
    let has_parts = |ino| -> Outcome<bool> { Ok(flags(ino)? & Attr::HAS_PARTS != 0) };
    same("the flag of a directory", !case.parts(dir)?.is_empty(), has_parts(dir)?)?;
    if case.needs_plates().is_err() {
        return same("parts on one plate", Vec::new(), case.parts(dir)?);
    }
    let (dir, _, parts) = split_dir(case)?;
    same("the first part", Some(PartRange { first: 0, ino: dir }), parts.first().copied())?;
    let is_rising = parts.windows(2).all(|pair| pair[0].first < pair[1].first);
    holds("the order of parts", is_rising, "rising first hashes", &parts)?;
    same("the flag of a directory with parts", true, has_parts(dir)?)?;
    for part in &parts[1..] {
        let attr = answered("ask for attributes", case.client.attr_at(part.ino))?;
        same("flag and parent of a part", (Attr::PART, dir), (attr.flags & Attr::PART, attr.parent))?;
        let asked = case.client.parts(part.ino)?;
        same("parts of a part", Ok(Vec::new()), asked)?;
    }
    Ok(())
}

pub(super) fn split(case: &Case<'_>) -> Outcome {
    let (dir, names, parts) = split_dir(case)?;
    let mut widths: BTreeMap<PlateId, u64> = BTreeMap::new();
    for part in &parts {
        let (first, last) = range_of(&parts, part.ino).unwrap_or_default();
        *widths.entry(case.client.server.plate_of(part.ino)?).or_default() += last - first + 1;
    }
    let plates = u64::from(case.client.server.plate_count());
    same("plates with a part", plates, widths.len() as u64)?;
    let share = HASHES / plates;
    let is_even = widths.values().all(|width| width.abs_diff(share) <= plates);
    holds("ranges of the plates", is_even, &format!("about {share} hashes each"), &widths)?;
    case.has_names(dir, 1000, &names)?;
    // In the end it changes nothing.
    let before = case.attr(dir)?;
    case.done(&Cred::ROOT, &Op::Split { dir })?;
    same("parts after a further split", parts, case.parts(dir)?)?;
    same("times after a further split", (before.mtime, before.ctime), {
        let after = case.attr(dir)?;
        (after.mtime, after.ctime)
    })
}

pub(super) fn ranges(case: &Case<'_>) -> Outcome {
    let (dir, names, parts) = split_dir(case)?;
    let file = case.file(case.whole_dir()?, "file")?;
    let lookup = |parent, text: &str| {
        let query = Query::Lookup { parent, name: name(text) };
        case.client.server.ask(parent, &Cred::ROOT, Call::Query(query))
    };
    for text in &names {
        let (right, wrong) = right_and_wrong(&parts, text)?;
        match lookup(right, text)? {
            Ok(Answer::Attr { .. } | Answer::Elsewhere { .. }) => {}
            other => {
                let step = format!("look up {text} in {right}");
                return Err(failed(step, "Attr or Elsewhere", format!("{other:?}")));
            }
        }
        is_refused(&format!("look up {text} in {wrong}"), lookup(wrong, text)?, Refusal::OtherPart)?;
    }
    let text = "new";
    let (_, wrong) = right_and_wrong(&parts, text)?;
    is_refused("look up an absent name in another part", lookup(wrong, text)?, Refusal::OtherPart)?;
    for op in [
        make(wrong, text, empty(), 0o644),
        make(wrong, text, Make::Dir, 0o755),
        link(file.ino, wrong, text),
        unlink(wrong, text),
        rmdir(wrong, text),
    ] {
        let answer = case.client.operate_at(&Cred::ROOT, op.clone(), false)?;
        is_refused(&op.describe(), answer, Refusal::OtherPart)?;
    }
    case.has_names(dir, 1000, &names)
}

pub(super) fn listed(case: &Case<'_>) -> Outcome {
    let (dir, names, parts) = split_dir(case)?;
    let list = |part: Ino, cookie, part_end| {
        let query = Query::ReadDir { dir: part, cookie, entries_max: 1000, plus: false, part_end };
        case.client.server.ask(part, &Cred::ROOT, Call::Query(query))
    };
    let mut seen = Vec::new();
    for part in &parts {
        let (first, last) = range_of(&parts, part.ino).unwrap_or_default();
        match list(part.ino, first.saturating_sub(1), Some(last))? {
            Ok(Answer::Entries { entries, end: true, .. }) => {
                for entry in entries {
                    let is_in_it = (first..=last).contains(&entry.cookie);
                    holds("an entry of a part", is_in_it, "a hash in its range", entry.cookie)?;
                    seen.push(entry.name.to_string());
                }
            }
            other => return Err(failed("list a part", "Entries with end", format!("{other:?}"))),
        }
        let step = format!("list the part {} of {dir}", part.ino);
        is_refused(&format!("{step} without its range"), list(part.ino, 0, None)?, Refusal::OtherPart)?;
        let other = list(part.ino, 0, Some(last - 1))?;
        is_refused(&format!("{step} with another range"), other, Refusal::OtherPart)?;
    }
    seen.sort();
    same("names of all parts", names.into_iter().collect::<Vec<_>>(), seen)
}

pub(super) fn sums(case: &Case<'_>) -> Outcome {
    let (dir, names, parts) = split_dir(case)?;
    let subdirs = 6;
    let mut last = case.attr(dir)?.mtime;
    for n in 0..subdirs {
        let outcome = case.done(&Cred::ROOT, &make(dir, &format!("sub{n}"), Make::Dir, 0o755))?;
        last = last.max(outcome.time);
    }
    let (mut size, mut links, mut mtime) = (0, 2, chiton_types::Time(0));
    let mut with_names = 0;
    for part in &parts {
        let attr = answered("ask for attributes", case.client.attr_at(part.ino))?;
        size += attr.size;
        links += attr.nlink - 2;
        mtime = mtime.max(attr.mtime);
        with_names += usize::from(attr.size > 0);
    }
    same("sum of sizes", (names.len() as u64 + subdirs) * 32, size)?;
    same("sum of links", 2 + subdirs as u32, links)?;
    same("latest time", last, mtime)?;
    holds("parts with names", with_names > 1, "more than one", with_names)
}

pub(super) fn attributes(case: &Case<'_>) -> Outcome {
    let (dir, _, parts) = split_dir(case)?;
    case.chmod(dir, 0o750)?;
    let change = AttrChange { uid: Some(alice().uid), gid: Some(4), ..AttrChange::default() };
    case.done(&Cred::ROOT, &Op::SetAttr { ino: dir, change })?;
    for part in &parts {
        let attr = answered("ask for attributes", case.client.attr_at(part.ino))?;
        let seen = (attr.mode, attr.uid, attr.gid);
        same("mode and owner of a part", (Mode(0o750), alice().uid, 4), seen)?;
        // They decide at the part.
        let text =
            (0..).map(|n| format!("new{n}")).find(|text| part_of(&parts, hash(text)) == Some(part.ino));
        let text = text.unwrap_or_default();
        case.refused(&crate::case::bob(), &make(dir, &text, empty(), 0o644), Refusal::Access)?;
        case.done(&alice(), &make(dir, &text, empty(), 0o644))?;
        if part.ino != dir {
            let change = AttrChange { mode: Some(Mode(0o777)), ..AttrChange::default() };
            let alone = Op::SetAttr { ino: part.ino, change };
            is_refused(
                "change a part alone",
                case.client.operate_at(&Cred::ROOT, alone, false)?,
                Refusal::Stale,
            )?;
        }
    }
    Ok(())
}

pub(super) fn births(case: &Case<'_>) -> Outcome {
    let (dir, _, parts) = split_dir(case)?;
    let mut plates = BTreeSet::new();
    for n in 0..NAMES {
        let text = format!("new{n}");
        let attr = case.file(dir, &text)?;
        let part = part_of(&parts, hash(&text)).unwrap_or(dir);
        let plate = case.client.server.plate_of(part)?;
        same(&format!("plate of {text}"), plate, case.client.server.plate_of(attr.ino)?)?;
        plates.insert(plate);
    }
    same("plates with new files", usize::from(case.client.server.plate_count()), plates.len())
}

pub(super) fn renames(case: &Case<'_>) -> Outcome {
    let (dir, mut names, parts) = split_dir(case)?;
    let before = case.attr(dir)?;
    let move_name = |from: &str, to: &str| Op::Rename {
        from: dir,
        to: dir,
        how: RenameHow::Replace,
        from_name: name(from),
        to_name: name(to),
    };
    for n in 0..8 {
        let from = format!("file{n}");
        let (right, _) = right_and_wrong(&parts, &from)?;
        // To a name of another part.
        let to = (0..).map(|m| format!("moved{n}-{m}"));
        let Some(to) = to.into_iter().find(|to| part_of(&parts, hash(to)) != Some(right)) else { continue };
        let ino = case.found(dir, &from)?.ino;
        case.done(&alice(), &move_name(&from, &to))?;
        same("the inode in the other part", ino, case.found(dir, &to)?.ino)?;
        case.is_absent(dir, &from)?;
        names.remove(&from);
        names.insert(to);
    }
    case.has_names(dir, 7, &names)?;
    same("size of the directory", before.size, case.attr(dir)?.size)
}
