//! D45 to D49: the entries of a directory.

use std::collections::BTreeSet;

use chiton_types::{Attr, Cred, Kind, Refusal, name_hash};
use chiton_wire::DirEntry;

use crate::case::{Case, alice, answered, is_refused, unlink};
use crate::finding::{Outcome, failed, holds, same};

/// Names in a directory that is listed by pages.
const NAMES: usize = 60;

pub(super) fn order(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    case.files(dir, "file", 20)?;
    case.subdir(dir, "sub")?;
    let entries = answered("list", case.client.entries(&Cred::ROOT, dir, 1000, false))?;
    same("number of entries", 21, entries.len())?;
    let mut before = 0;
    for DirEntry { name, ino, kind, cookie, .. } in entries {
        same(&format!("cookie of {name}"), name_hash(name.as_bytes()), cookie)?;
        holds("order of the entries", cookie >= before, "rising cookies", (before, cookie))?;
        before = cookie;
        let found = case.found(dir, &name.to_string())?;
        same(&format!("inode and type of {name}"), (found.ino, found.kind), (ino, kind))?;
        let expected = if name.as_bytes() == b"sub" { Kind::Dir } else { Kind::File };
        same(&format!("type of {name}"), expected, kind)?;
    }
    Ok(())
}

pub(super) fn pages(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let nothing = answered("list an empty directory", case.client.page(&Cred::ROOT, (dir, 0), 10, false))?;
    same("an empty directory", (0, true), (nothing.0.len(), nothing.1))?;
    let names = case.files(dir, "file", NAMES)?;
    for entries_max in [1, 2, 7, NAMES as u32 - 1, NAMES as u32, 1000] {
        case.has_names(dir, entries_max, &names)?;
        let step = format!("a page of {entries_max}");
        let (page, _) = answered(&step, case.client.page(&Cred::ROOT, (dir, 0), entries_max, false))?;
        let most = if page.last().map(|last| last.cookie) == page.first().map(|first| first.cookie) {
            page.len()
        } else {
            entries_max as usize
        };
        holds(&step, (1..=most).contains(&page.len()), "one entry to so many", page.len())?;
    }
    let past = answered("list", case.client.page(&Cred::ROOT, (dir, (1 << 63) - 1), 10, false))?;
    same("a listing after the last hash", (0, true), (past.0.len(), past.1))
}

pub(super) fn changes(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let stay = case.files(dir, "stays", NAMES)?;
    case.files(dir, "goes", NAMES)?;
    let (mut seen, mut cookie, mut round) = (Vec::new(), 0, 0);
    loop {
        let (entries, end) = answered("list", case.client.page(&Cred::ROOT, (dir, cookie), 7, false))?;
        seen.extend(entries.iter().map(|entry| entry.name.to_string()));
        if end {
            break;
        }
        cookie = entries.last().map_or(cookie, |last| last.cookie);
        if round < NAMES {
            case.done(&alice(), &unlink(dir, &format!("goes{round}")))?;
            case.file(dir, &format!("comes{round}"))?;
        }
        round += 1;
    }
    let distinct: BTreeSet<&String> = seen.iter().collect();
    same("names that were listed twice", 0, seen.len() - distinct.len())?;
    match stay.iter().find(|name| !distinct.contains(name)) {
        Some(missing) => Err(failed("list while names change", missing, "not listed")),
        None => Ok(()),
    }
}

pub(super) fn attributes(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    case.files(dir, "file", 10)?;
    case.subdir(dir, "sub")?;
    for entry in answered("list", case.client.entries(&Cred::ROOT, dir, 1000, false))? {
        holds("a listing without attributes", entry.attr.is_none(), "none", &entry.attr)?;
    }
    for entry in answered("list", case.client.entries(&Cred::ROOT, dir, 1000, true))? {
        let at = case.client.place(dir, &entry.name);
        let is_here = case.client.server.plate_of(at)? == case.client.server.plate_of(entry.ino)?;
        match entry.attr {
            Some((attr, _)) => {
                let seen = answered("ask for attributes", case.client.attr_at(entry.ino))?;
                same(&format!("attributes of {}", entry.name), stable(seen), stable(attr))?;
            }
            None => {
                let step = format!("attributes of {} in a listing", entry.name);
                holds(&step, !is_here, "attributes, since its plate was asked", "none")?;
            }
        }
    }
    Ok(())
}

/// Attributes without those that may change while nobody does anything.
fn stable(attr: Attr) -> Attr {
    Attr { position: chiton_types::Position(0), ..attr }
}

pub(super) fn refusals(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (file, gone) = (case.file(dir, "file")?, case.subdir(dir, "gone")?);
    case.done(&Cred::ROOT, &crate::case::rmdir(dir, "gone"))?;
    let list = |cred: &Cred, dir| case.client.page(cred, (dir, 0), 10, false);
    is_refused("list an inode that is gone", list(&alice(), gone.ino)?, Refusal::Stale)?;
    is_refused("list a file", list(&alice(), file.ino)?, Refusal::NotDir)?;
    case.chmod(dir, 0o733)?;
    is_refused("list without the right to read", list(&alice(), dir)?, Refusal::Access)?;
    case.chmod(dir, 0o444)?;
    let step = "list with the right to read alone";
    same(step, 1, answered(step, list(&alice(), dir))?.0.len())?;
    if case.state == crate::report::State::Split || !case.parts(dir)?.is_empty() {
        return Ok(());
    }
    // The right was asked for when the session opened it.
    case.open(dir)?;
    case.chmod(dir, 0o700)?;
    let step = "list what the session has open";
    same(step, 1, answered(step, list(&alice(), dir))?.0.len())?;
    case.close(dir)
}
