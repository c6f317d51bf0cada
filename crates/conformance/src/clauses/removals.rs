//! D25 to D32: names and inodes that go.

use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_runtime::thread;
use chiton_types::{Cred, Kind, Refusal};
use chiton_wire::Failure;

use crate::case::{Case, alice, bob, empty, link, make, name, rmdir, unlink};
use crate::finding::{Outcome, failed, same};

/// How often the suite looks for the end of an inode that nobody has open any more.
const TRIES: usize = 400;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

pub(super) fn last_name(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let before = case.attr(dir)?;
    let file = case.file(dir, "file")?;
    let outcome = case.done(&alice(), &unlink(dir, "file"))?;
    case.has_gone(file.ino, &outcome)?;
    case.is_absent(dir, "file")?;
    let after = case.attr(dir)?;
    same("size and links of the directory", (before.size, before.nlink), (after.size, after.nlink))?;
    same("times of the directory", (outcome.time, outcome.time), (after.mtime, after.ctime))
}

pub(super) fn one_of_several(case: &Case<'_>) -> Outcome {
    let (dir, other) = (case.dir()?, case.dir()?);
    let file = case.file(dir, "first")?;
    case.done(&alice(), &link(file.ino, other, "second"))?;
    let outcome = case.done(&alice(), &unlink(dir, "first"))?;
    let (gone, links) = (outcome.gone, outcome.attr.as_ref().map(|attr| attr.nlink));
    same("the outcome while another name stays", (None, Some(1)), (gone, links))?;
    let found = case.found(other, "second")?;
    same("the other name", (file.ino, 1, outcome.time), (found.ino, found.nlink, found.ctime))?;
    let outcome = case.done(&alice(), &unlink(other, "second"))?;
    case.has_gone(file.ino, &outcome)
}

pub(super) fn open_file(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let file = case.file(dir, "file")?;
    case.open(file.ino)?;
    let outcome = case.done(&alice(), &unlink(dir, "file"))?;
    let gone = outcome.gone.map(|gone| (gone.ino, gone.orphan));
    same("a file that is open", Some((file.ino, true)), gone)?;
    case.is_absent(dir, "file")?;
    same("links of an open file without names", 0, case.attr(file.ino)?.nlink)?;
    case.close(file.ino)?;
    for _ in 0..TRIES {
        match case.client.attr_at(file.ino)? {
            Err(Failure::Refused(Refusal::Stale)) => return Ok(()),
            _ => thread::sleep(BETWEEN_TRIES),
        }
    }
    Err(failed("wait for the end of a file that nobody has open", "Refused(Stale)", "it is still there"))
}

pub(super) fn unlink_refusals(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (file, gone) = (case.file(dir, "file")?, case.subdir(dir, "gone")?);
    case.subdir(dir, "sub")?;
    case.done(&Cred::ROOT, &rmdir(dir, "gone"))?;
    case.refused(&alice(), &unlink(gone.ino, "x"), Refusal::Stale)?;
    case.refused(&alice(), &unlink(file.ino, "x"), Refusal::NotDir)?;
    case.chmod(dir, 0o666)?;
    case.refused(&alice(), &unlink(dir, "absent"), Refusal::Access)?;
    case.chmod(dir, 0o555)?;
    // The name is checked before the right to change names, and this right before the inode that has the name.
    case.refused(&alice(), &unlink(dir, "absent"), Refusal::NotFound)?;
    case.refused(&alice(), &unlink(dir, "sub"), Refusal::Access)?;
    case.chmod(dir, 0o1777)?;
    case.refused(&alice(), &unlink(dir, "sub"), Refusal::NotPermitted)?;
    case.refused(&alice(), &unlink(dir, "file"), Refusal::NotPermitted)?;
    case.done(&alice(), &make(dir, "own", empty(), 0o644))?;
    case.refused(&bob(), &unlink(dir, "own"), Refusal::NotPermitted)?;
    case.done(&alice(), &unlink(dir, "own"))?;
    case.chmod(dir, 0o777)?;
    case.refused(&alice(), &unlink(dir, "sub"), Refusal::IsDir)?;
    case.found(dir, "file").map(drop)
}

pub(super) fn rmdir_done(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let before = case.attr(dir)?;
    let sub = case.made(&alice(), &make(dir, "sub", Make::Dir, 0o755))?;
    let outcome = case.done(&alice(), &rmdir(dir, "sub"))?;
    case.has_gone(sub.ino, &outcome)?;
    case.is_absent(dir, "sub")?;
    let after = case.attr(dir)?;
    same("size and links of the directory", (before.size, before.nlink), (after.size, after.nlink))
}

pub(super) fn rmdir_refusals(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    case.file(dir, "file")?;
    let full = case.subdir(dir, "full")?;
    case.file(full.ino, "inside")?;
    case.chmod(dir, 0o666)?;
    case.refused(&alice(), &rmdir(dir, "absent"), Refusal::Access)?;
    case.chmod(dir, 0o555)?;
    case.refused(&alice(), &rmdir(dir, "absent"), Refusal::NotFound)?;
    case.refused(&alice(), &rmdir(dir, "full"), Refusal::Access)?;
    case.chmod(dir, 0o1777)?;
    case.refused(&alice(), &rmdir(dir, "full"), Refusal::NotPermitted)?;
    case.chmod(dir, 0o777)?;
    case.refused(&alice(), &rmdir(dir, "file"), Refusal::NotDir)?;
    case.refused(&alice(), &rmdir(dir, "full"), Refusal::NotEmpty)?;
    same("what is in the directory", "inside".to_owned(), {
        case.names(full.ino, 10)?.into_iter().collect::<Vec<_>>().join(", ")
    })
}

pub(super) fn tree(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let before = case.attr(dir)?;
    let (tree, other) = (case.subdir(dir, "tree")?, case.subdir(dir, "other")?);
    case.file(dir, "file")?;
    case.files(tree.ino, "f", 5)?;
    let deeper = case.subdir(tree.ino, "deeper")?;
    case.file(deeper.ino, "deepest")?;
    let remove = |text: &str, ino| Op::RemoveTree { parent: dir, name: name(text), ino };
    case.refused(&Cred::ROOT, &remove("absent", tree.ino), Refusal::NotFound)?;
    case.refused(&Cred::ROOT, &remove("file", tree.ino), Refusal::NotDir)?;
    // Another directory has the name by now.
    case.refused(&Cred::ROOT, &remove("other", tree.ino), Refusal::Stale)?;
    let outcome = case.done(&Cred::ROOT, &remove("tree", tree.ino))?;
    same("the tree that goes", Some(tree.ino), outcome.gone.map(|gone| gone.ino))?;
    case.is_absent(dir, "tree")?;
    same("links of the directory", before.nlink + 1, case.attr(dir)?.nlink)?;
    same("the other directory", other.ino, case.found(dir, "other")?.ino)
}

pub(super) fn removed_directory(case: &Case<'_>) -> Outcome {
    let (dir, other) = (case.dir()?, case.dir()?);
    let (file, sub) = (case.file(other, "file")?, case.subdir(dir, "sub")?);
    case.open(sub.ino)?;
    case.done(&Cred::ROOT, &rmdir(dir, "sub"))?;
    let attr = case.attr(sub.ino)?;
    same("an open directory without a name", (Kind::Dir, 0), (attr.kind, attr.nlink))?;
    case.refused(&alice(), &make(sub.ino, "new", empty(), 0o644), Refusal::NotFound)?;
    case.refused(&alice(), &link(file.ino, sub.ino, "new"), Refusal::NotFound)?;
    let moved = Op::Rename {
        from: other,
        to: sub.ino,
        how: chiton_model::RenameHow::Replace,
        from_name: name("file"),
        to_name: name("new"),
    };
    case.refused(&alice(), &moved, Refusal::NotFound)?;
    same("names of a removed directory", 0, case.names(sub.ino, 10)?.len())?;
    case.close(sub.ino)
}
