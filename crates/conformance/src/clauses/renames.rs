//! D35 to D43: names that move.

use chiton_model::{Make, Op, RenameHow};
use chiton_types::{Cred, Ino, Kind, Refusal};
use chiton_wire::Failure;

use crate::case::{Case, alice, answered, link, make, name, rmdir};
use crate::finding::{Outcome, holds, same};

fn rename(from: (Ino, &str), to: (Ino, &str), how: RenameHow) -> Op {
    Op::Rename { from: from.0, to: to.0, how, from_name: name(from.1), to_name: name(to.1) }
}

fn replace(from: (Ino, &str), to: (Ino, &str)) -> Op {
    rename(from, to, RenameHow::Replace)
}

pub(super) fn free_name(case: &Case<'_>) -> Outcome {
    let (dir, other) = (case.dir()?, case.dir()?);
    let file = case.file(dir, "a")?;
    let before = case.attr(dir)?;
    let outcome = case.done(&alice(), &replace((dir, "a"), (dir, "b")))?;
    holds("the outcome of a rename", outcome.gone.is_none(), "nothing is gone", &outcome)?;
    case.is_absent(dir, "a")?;
    let found = case.found(dir, "b")?;
    same("the inode under its new name", (file.ino, outcome.time), (found.ino, found.ctime))?;
    let after = case.attr(dir)?;
    same("size and links", (before.size, before.nlink), (after.size, after.nlink))?;
    same("times of the directory", (outcome.time, outcome.time), (after.mtime, after.ctime))?;
    // To another directory, and a directory with its content.
    case.done(&alice(), &replace((dir, "b"), (other, "c")))?;
    case.is_absent(dir, "b")?;
    same("the inode in another directory", file.ino, case.found(other, "c")?.ino)?;
    let sub = case.subdir(dir, "sub")?;
    case.file(sub.ino, "inside")?;
    let links = |dir| case.attr(dir).map(|attr| attr.nlink);
    let (links_from, links_to) = (links(dir)?, links(other)?);
    case.done(&Cred::ROOT, &replace((dir, "sub"), (other, "sub")))?;
    same("links of both directories", (links_from - 1, links_to + 1), (links(dir)?, links(other)?))?;
    same("the directory under its new name", sub.ino, case.found(other, "sub")?.ino)?;
    same("what is in it", 1, case.names(sub.ino, 10)?.len())
}

pub(super) fn replaces_file(case: &Case<'_>) -> Outcome {
    let (dir, other) = (case.dir()?, case.dir()?);
    let (file, victim) = (case.file(dir, "file")?, case.file(other, "victim")?);
    let before = (case.attr(dir)?, case.attr(other)?);
    let outcome = case.done(&alice(), &replace((dir, "file"), (other, "victim")))?;
    case.has_gone(victim.ino, &outcome)?;
    same("the file under its name", file.ino, case.found(other, "victim")?.ino)?;
    case.is_absent(dir, "file")?;
    let after = (case.attr(dir)?, case.attr(other)?);
    same("sizes", (before.0.size - 32, before.1.size), (after.0.size, after.1.size))?;
    // A file that has another name loses one.
    let twice = case.file(dir, "twice")?;
    case.done(&alice(), &link(twice.ino, other, "further"))?;
    case.file(dir, "next")?;
    let outcome = case.done(&alice(), &replace((dir, "next"), (dir, "twice")))?;
    same("the file that loses a name", (None, Some(twice.ino)), (outcome.gone, outcome.other))?;
    same("its links", 1, case.attr(twice.ino)?.nlink)
}

pub(super) fn replaces_dir(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (sub, empty) = (case.subdir(dir, "sub")?, case.subdir(dir, "empty")?);
    let full = case.subdir(dir, "full")?;
    case.file(full.ino, "inside")?;
    case.file(dir, "file")?;
    case.refused(&alice(), &replace((dir, "sub"), (dir, "file")), Refusal::NotDir)?;
    case.refused(&alice(), &replace((dir, "file"), (dir, "empty")), Refusal::IsDir)?;
    case.refused(&alice(), &replace((dir, "sub"), (dir, "full")), Refusal::NotEmpty)?;
    let before = case.attr(dir)?.nlink;
    let outcome = case.done(&alice(), &replace((dir, "sub"), (dir, "empty")))?;
    case.has_gone(empty.ino, &outcome)?;
    same("the directory under its name", sub.ino, case.found(dir, "empty")?.ino)?;
    case.is_absent(dir, "sub")?;
    same("links of the directory", before - 1, case.attr(dir)?.nlink)
}

pub(super) fn no_replace(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (a, b) = (case.file(dir, "a")?, case.file(dir, "b")?);
    let quiet = |to| rename((dir, "a"), (dir, to), RenameHow::NoReplace);
    case.refused(&alice(), &quiet("b"), Refusal::Exists)?;
    same("the name that stays", (a.ino, b.ino), (case.found(dir, "a")?.ino, case.found(dir, "b")?.ino))?;
    case.done(&alice(), &quiet("c"))?;
    same("the name that is free", a.ino, case.found(dir, "c")?.ino)
}

pub(super) fn exchange(case: &Case<'_>) -> Outcome {
    let (dir, other) = (case.dir()?, case.dir()?);
    let (file, sub) = (case.file(dir, "file")?, case.subdir(other, "sub")?);
    case.file(sub.ino, "inside")?;
    let both = |to| rename((dir, "file"), (other, to), RenameHow::Exchange);
    case.refused(&Cred::ROOT, &both("absent"), Refusal::NotFound)?;
    let links = |dir| case.attr(dir).map(|attr| attr.nlink);
    let before = (links(dir)?, links(other)?);
    let outcome = case.done(&Cred::ROOT, &both("sub"))?;
    same("the outcome", (None, Some(sub.ino)), (outcome.gone, outcome.other))?;
    same("the first name", (sub.ino, Kind::Dir), {
        let found = case.found(dir, "file")?;
        (found.ino, found.kind)
    })?;
    same("the second name", file.ino, case.found(other, "sub")?.ino)?;
    same("links of both", (before.0 + 1, before.1 - 1), (links(dir)?, links(other)?))
}

pub(super) fn whiteout(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (a, b) = (case.file(dir, "a")?, case.file(dir, "b")?);
    let both = rename((dir, "a"), (dir, "b"), RenameHow::Whiteout);
    let plate_of = |text| case.client.server.plate_of(case.client.place(dir, &name(text)));
    let answer = case.client.operate(&Cred::ROOT, &both, false)?;
    if answer == Err(Failure::Refused(Refusal::CrossDevice)) && plate_of("a")? != plate_of("b")? {
        same("both names stay", (a.ino, b.ino), (case.found(dir, "a")?.ino, case.found(dir, "b")?.ino))?;
        return Ok(());
    }
    case.has_gone(b.ino, &answered(&both.describe(), Ok(answer))?)?;
    same("the name that is taken", a.ino, case.found(dir, "b")?.ino)?;
    let left = case.found(dir, "a")?;
    same("the name that is left", (Kind::Char, 0, 0), (left.kind, left.rdev, left.mode.0))?;
    let quiet = rename((dir, "b"), (dir, "a"), RenameHow::NoReplaceWhiteout);
    case.refused(&Cred::ROOT, &quiet, Refusal::Exists)
}

pub(super) fn same_inode(case: &Case<'_>) -> Outcome {
    let (dir, other) = (case.dir()?, case.dir()?);
    let file = case.file(dir, "first")?;
    case.done(&alice(), &link(file.ino, other, "second"))?;
    let before = (case.attr(file.ino)?, case.attr(dir)?, case.attr(other)?);
    let outcome = case.done(&alice(), &replace((dir, "first"), (other, "second")))?;
    same("the outcome", (None, None), (outcome.gone, outcome.other))?;
    let found = (case.found(dir, "first")?.ino, case.found(other, "second")?.ino);
    same("both names stay", (file.ino, file.ino), found)?;
    let after = (case.attr(file.ino)?, case.attr(dir)?, case.attr(other)?);
    same("times", (before.0.ctime, before.1.mtime, before.2.mtime), {
        (after.0.ctime, after.1.mtime, after.2.mtime)
    })
}

pub(super) fn loops(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let top = case.subdir(dir, "top")?;
    let middle = case.subdir(top.ino, "middle")?;
    case.subdir(middle.ino, "low")?;
    let below = replace((dir, "top"), (middle.ino, "top"));
    case.refused(&Cred::ROOT, &below, Refusal::Invalid)?;
    case.refused(&Cred::ROOT, &replace((dir, "top"), (top.ino, "self")), Refusal::Invalid)?;
    case.refused(&Cred::ROOT, &replace((middle.ino, "low"), (dir, "top")), Refusal::NotEmpty)?;
    let exchanged = rename((middle.ino, "low"), (dir, "top"), RenameHow::Exchange);
    case.refused(&Cred::ROOT, &exchanged, Refusal::Invalid)?;
    same("the tree", (top.ino, middle.ino), {
        (case.found(dir, "top")?.ino, case.found(top.ino, "middle")?.ino)
    })
}

pub(super) fn refusals(case: &Case<'_>) -> Outcome {
    let (dir, target) = (case.dir()?, case.dir()?);
    let (file, gone) = (case.file(dir, "file")?, case.subdir(dir, "gone")?);
    case.file(target, "there")?;
    case.done(&Cred::ROOT, &rmdir(dir, "gone"))?;
    case.refused(&alice(), &replace((dir, "file"), (gone.ino, "x")), Refusal::Stale)?;
    case.refused(&alice(), &replace((file.ino, "x"), (target, "x")), Refusal::NotDir)?;
    case.refused(&alice(), &replace((dir, "file"), (file.ino, "x")), Refusal::NotDir)?;
    let check = |from_mode, to_mode, op: Op, refusal| {
        case.chmod(dir, from_mode)?;
        case.chmod(target, to_mode)?;
        case.refused(&alice(), &op, refusal)
    };
    let absent = || replace((dir, "absent"), (target, "there"));
    let quiet = || rename((dir, "file"), (target, "there"), RenameHow::NoReplace);
    check(0o666, 0o777, absent(), Refusal::Access)?;
    check(0o777, 0o666, absent(), Refusal::Access)?;
    check(0o555, 0o555, absent(), Refusal::NotFound)?;
    check(0o555, 0o555, quiet(), Refusal::Exists)?;
    check(0o555, 0o777, replace((dir, "file"), (target, "there")), Refusal::Access)?;
    check(0o777, 0o555, replace((dir, "file"), (target, "there")), Refusal::Access)?;
    check(0o1777, 0o777, replace((dir, "file"), (target, "free")), Refusal::NotPermitted)?;
    check(0o777, 0o1777, replace((dir, "file"), (target, "there")), Refusal::NotPermitted)?;
    // A directory that gets another parent is changed itself.
    case.chmod(dir, 0o777)?;
    case.chmod(target, 0o777)?;
    case.done(&Cred::ROOT, &make(dir, "closed", Make::Dir, 0o755))?;
    case.refused(&alice(), &replace((dir, "closed"), (target, "closed")), Refusal::Access)?;
    case.done(&alice(), &replace((dir, "closed"), (dir, "renamed"))).map(drop)
}
