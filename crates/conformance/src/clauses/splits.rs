//! D70 to D74: directories that get parts and lose them while they are used.

use std::collections::BTreeSet;

use chiton_model::{Make, Op};
use chiton_runtime::sync::Mutex;
use chiton_types::{Attr, Cred, Ino, Refusal};

use crate::case::{Case, alice, answered, bob, make, rmdir, unlink};
use crate::finding::{Finding, Outcome, failed, same};

/// Names before a split.
const NAMES: usize = 60;
/// Names that each of the threads makes meanwhile.
const MADE_MEANWHILE: usize = 60;
const THREADS: usize = 2;

fn dir_with_names(case: &Case<'_>) -> Outcome<(Ino, BTreeSet<String>)> {
    case.needs_plates()?;
    let dir = case.whole_dir()?;
    let names = case.files(dir, "file", NAMES)?;
    Ok((dir, names))
}

pub(super) fn changes(case: &Case<'_>) -> Outcome {
    let (dir, mut names) = dir_with_names(case)?;
    let found: Mutex<Option<Finding>> = Mutex::new(None);
    let client = case.client;
    let work = |thread: usize| -> Outcome {
        for n in 0..MADE_MEANWHILE {
            let text = format!("new{thread}-{n}");
            let op = make(dir, &text, crate::case::empty(), 0o644);
            answered(&op.describe(), client.operate(&Cred::ROOT, &op, false))?;
            // Of the names that were there, each thread removes some.
            if n < NAMES / 2 {
                let op = unlink(dir, &format!("file{}", n * THREADS + thread));
                answered(&op.describe(), client.operate(&Cred::ROOT, &op, false))?;
            }
        }
        Ok(())
    };
    let split = std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let (work, found) = (&work, &found);
            threads.spawn(move || {
                if let Err(finding) = work(thread) {
                    *found.lock() = Some(finding);
                }
            });
        }
        case.split(dir)
    });
    split?;
    if let Some(finding) = found.into_inner() {
        return Err(finding);
    }
    names.clear();
    for thread in 0..THREADS {
        names.extend((0..MADE_MEANWHILE).map(|n| format!("new{thread}-{n}")));
    }
    case.has_names(dir, 7, &names)?;
    same("size of the directory", names.len() as u64 * 32, case.attr(dir)?.size)
}

pub(super) fn listing(case: &Case<'_>) -> Outcome {
    let (dir, names) = dir_with_names(case)?;
    let (mut seen, mut cookie, mut round): (Vec<String>, u64, usize) = (Vec::new(), 0, 0);
    loop {
        let (entries, end) = answered("list", case.client.page(&Cred::ROOT, (dir, cookie), 5, false))?;
        cookie = entries.last().map_or(cookie, |last| last.cookie);
        seen.extend(entries.into_iter().map(|entry| entry.name.to_string()));
        if end {
            break;
        }
        match round {
            2 => case.split(dir)?,
            5 => case.fold(dir)?,
            _ => {}
        }
        round += 1;
    }
    seen.sort();
    same("names of a listing across a split and a fold", names.into_iter().collect::<Vec<_>>(), seen)
}

pub(super) fn removed(case: &Case<'_>) -> Outcome {
    case.needs_plates()?;
    let dir = case.whole_dir()?;
    let sub = case.subdir(dir, "sub")?.ino;
    let names = case.files(sub, "file", 12)?;
    case.split(sub)?;
    let parts = case.parts(sub)?;
    for name in names {
        // A name in any part is enough.
        case.refused(&Cred::ROOT, &rmdir(dir, "sub"), Refusal::NotEmpty)?;
        case.done(&Cred::ROOT, &unlink(sub, &name))?;
    }
    case.done(&Cred::ROOT, &rmdir(dir, "sub"))?;
    case.is_absent(dir, "sub")?;
    for part in parts {
        case.is_gone(part.ino)?;
    }
    Ok(())
}

pub(super) fn fold(case: &Case<'_>) -> Outcome {
    let (dir, names) = dir_with_names(case)?;
    let subs = case.subdir(dir, "sub")?;
    let before = case.attr(dir)?;
    case.split(dir)?;
    let parts = case.parts(dir)?;
    case.fold(dir)?;
    same("parts of a folded directory", Vec::new(), case.parts(dir)?)?;
    let home = answered("ask for attributes", case.client.attr_at(dir))?;
    same("its flag", 0, home.flags & Attr::HAS_PARTS)?;
    let after = (home.size, home.nlink, home.mtime);
    same("size, links and time", (before.size, before.nlink, before.mtime), after)?;
    for part in parts.iter().filter(|part| part.ino != dir) {
        case.is_gone(part.ino)?;
    }
    let mut all = names;
    all.insert("sub".to_owned());
    case.has_names(dir, 1000, &all)?;
    same("what is in it", subs.ino, case.found(dir, "sub")?.ino)?;
    // In the end it changes nothing.
    case.done(&Cred::ROOT, &Op::Fold { dir })?;
    same("size after a further fold", before.size, case.attr(dir)?.size)
}

pub(super) fn refusals(case: &Case<'_>) -> Outcome {
    let dir = case.whole_dir()?;
    if case.needs_plates().is_err() {
        for op in [Op::Split { dir }, Op::Fold { dir }] {
            case.refused(&Cred::ROOT, &op, Refusal::Unsupported)?;
        }
        return Ok(());
    }
    let (file, gone) = (case.file(dir, "file")?.ino, case.subdir(dir, "gone")?.ino);
    case.done(&Cred::ROOT, &rmdir(dir, "gone"))?;
    let own = case.made(&alice(), &make(dir, "own", Make::Dir, 0o755))?.ino;
    for op in [|dir| Op::Split { dir }, |dir| Op::Fold { dir }] {
        case.refused(&alice(), &op(gone), Refusal::Stale)?;
        case.refused(&alice(), &op(file), Refusal::NotDir)?;
        case.refused(&alice(), &op(dir), Refusal::NotPermitted)?;
        case.refused(&bob(), &op(own), Refusal::NotPermitted)?;
        case.done(&alice(), &op(own))?;
    }
    match case.client.parts(own)? {
        Ok(_) => Ok(()),
        Err(failure) => Err(failed("ask for the parts", "Bytes", format!("{failure:?}"))),
    }
}
