//! D20 and D21: further names.

use chiton_types::{Cred, Refusal};

use crate::case::{Case, alice, link, rmdir, unlink};
use crate::finding::{Outcome, same};

pub(super) fn further(case: &Case<'_>) -> Outcome {
    let (dir, other) = (case.dir()?, case.dir()?);
    let file = case.file(dir, "first")?;
    for (at, (parent, text)) in [(dir, "second"), (other, "third")].into_iter().enumerate() {
        let before = case.attr(parent)?;
        let attr = case.made(&alice(), &link(file.ino, parent, text))?;
        same("links of the file", (file.ino, 2 + at as u32), (attr.ino, attr.nlink))?;
        same("the inode under the new name", file.ino, case.found(parent, text)?.ino)?;
        let after = case.attr(parent)?;
        same("size and links of the directory", (before.size + 32, before.nlink), (after.size, after.nlink))?;
        same("time of the change", (after.mtime, after.mtime), (after.ctime, case.attr(file.ino)?.ctime))?;
    }
    same("the first name", file.ino, case.found(dir, "first")?.ino)
}

pub(super) fn refusals(case: &Case<'_>) -> Outcome {
    let (dir, target) = (case.dir()?, case.dir()?);
    let (file, sub) = (case.file(dir, "file")?, case.subdir(dir, "sub")?);
    let (gone, removed) = (case.file(dir, "gone")?, case.subdir(dir, "removed")?);
    case.file(target, "there")?;
    case.done(&Cred::ROOT, &unlink(dir, "gone"))?;
    case.done(&Cred::ROOT, &rmdir(dir, "removed"))?;
    case.refused(&alice(), &link(file.ino, removed.ino, "new"), Refusal::Stale)?;
    case.refused(&alice(), &link(file.ino, file.ino, "new"), Refusal::NotDir)?;
    case.refused(&alice(), &link(gone.ino, target, "new"), Refusal::Stale)?;
    // The new name is checked before the inode that gets it.
    case.refused(&alice(), &link(sub.ino, target, "there"), Refusal::Exists)?;
    case.chmod(target, 0o666)?;
    case.refused(&alice(), &link(file.ino, target, "there"), Refusal::Access)?;
    case.chmod(target, 0o555)?;
    case.refused(&alice(), &link(file.ino, target, "there"), Refusal::Exists)?;
    case.refused(&alice(), &link(sub.ino, target, "new"), Refusal::Access)?;
    case.chmod(target, 0o777)?;
    case.refused(&alice(), &link(sub.ino, target, "new"), Refusal::NotPermitted)?;
    let protected = Cred { protected_hardlinks: true, ..alice() };
    case.refused(&protected, &link(file.ino, target, "new"), Refusal::NotPermitted)?;
    case.is_absent(target, "new")
}
