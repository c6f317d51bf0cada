//! Makes a path here what others have there, to resolve a conflict.
//!
//! Invariants:
//! - A directory of theirs comes with all that is in it, where none is here, and with the directories above it.
//! - A directory of ours gives way to something else only if ours changed nothing in it,
//!   and others have nothing of it elsewhere: files that the user did not name stay.

use chiton_client::Client;
use chiton_types::{Attr, Kind, Refusal};

use crate::copied::Copying;
use crate::error::RealmError;
use crate::quoted::quoted;
use crate::report::{Change, ChangeKind};
use crate::resolve::{path_of, rooted};

/// Both sides, and the changes of ours.
pub(crate) struct Taking<'a> {
    pub(crate) theirs: &'a Client,
    pub(crate) ours: &'a Client,
    pub(crate) changes: &'a [Change],
}

impl Taking<'_> {
    /// Makes our version at a path equal to theirs, which is `attr`.
    pub(crate) fn take(&self, path: &[u8], attr: Option<&Attr>) -> Result<(), RealmError> {
        let at = rooted(path);
        let here = self.ours.lstat(&at).ok();
        let gives_way =
            |here: &Attr| here.kind == Kind::Dir && attr.is_none_or(|attr| attr.kind != Kind::Dir);
        if here.as_ref().is_some_and(gives_way) {
            self.remove_below(path)?;
        }
        let taken = match attr {
            None => match self.ours.remove(&at) {
                Err(Refusal::NotFound | Refusal::NotDir) => Ok(()),
                removed => removed,
            },
            Some(attr) => self.copy(&at, attr, here.as_ref()),
        };
        taken.map_err(|refusal| {
            let what = format!("{}: the version of the others cannot be copied: {refusal}", quoted(path));
            RealmError::new(refusal, what, "edit it here, then resolve it with --ours")
        })
    }

    fn copy(&self, at: &[u8], attr: &Attr, here: Option<&Attr>) -> Result<(), Refusal> {
        let copying = Copying { from: self.theirs, to: self.ours };
        let borders = at.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        for above in borders.map(|(end, _)| &at[..end]) {
            if self.ours.lstat(above) == Err(Refusal::NotFound) {
                copying.copy(above, &self.theirs.lstat(above)?)?;
            }
        }
        // Another file of theirs is under this name only: the content that ours wrote stays under the other names of ours.
        if here.is_some_and(|here| here.kind != Kind::Dir && here.nlink > 1 && here.ino != attr.ino) {
            self.ours.remove(at)?;
        }
        let is_whole = attr.kind == Kind::Dir && here.is_none_or(|here| here.kind != Kind::Dir);
        if !is_whole {
            return copying.copy(at, attr);
        }
        let mut dirs = vec![(at.to_vec(), attr.clone())];
        let mut made = Vec::new();
        while let Some((dir, attr)) = dirs.pop() {
            copying.copy(&dir, &attr)?;
            for entry in self.theirs.list(&dir)? {
                let path = [&dir, &b"/"[..], entry.name.as_bytes()].concat();
                let attr = self.theirs.lstat(&path)?;
                match attr.kind {
                    Kind::Dir => dirs.push((path, attr)),
                    Kind::File | Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block => {
                        copying.copy(&path, &attr)?;
                    }
                }
            }
            made.push((dir, attr));
        }
        // Entries changed the times of their directories.
        made.iter().rev().try_for_each(|(dir, attr)| copying.copy(dir, attr))
    }

    /// Removes the entries of a directory of ours.
    fn remove_below(&self, path: &[u8]) -> Result<(), RealmError> {
        let below = [path, b"/"].concat();
        let is_work =
            |change: &&Change| change.kind != ChangeKind::Removed && path_of(change).starts_with(&below);
        if let Some(change) = self.changes.iter().find(is_work) {
            let (dir, work) = (quoted(path), path_of(change));
            let what =
                format!("{dir}: here it is a directory in which you changed something ({})", quoted(&work));
            let next = "move files that you want to keep out of it, or remove the directory (rm -r), then run the command again";
            return Err(RealmError::new(Refusal::NotEmpty, what, next));
        }
        let mut all = Vec::new();
        let mut dirs = vec![rooted(path)];
        while let Some(dir) = dirs.pop() {
            let read = |refusal| RealmError::refused(&format!("{} cannot be read", quoted(&dir)), refusal);
            for entry in self.ours.list(&dir).map_err(read)? {
                let at = [&dir, &b"/"[..], entry.name.as_bytes()].concat();
                let attr = self.ours.lstat(&at).map_err(read)?;
                if self.theirs.getattr(attr.ino, None).is_ok_and(|entry| entry.attr.nlink > 0) {
                    let what = format!("{}: others have it under another name", quoted(&at[1..]));
                    let next = "give it that name here, then run the command again";
                    return Err(RealmError::new(Refusal::Exists, what, next));
                }
                if attr.kind == Kind::Dir {
                    dirs.push(at.clone());
                }
                all.push(at);
            }
        }
        // A directory is made before its entries.
        all.iter().rev().try_for_each(|at| self.ours.remove(at)).map_err(|refusal| {
            RealmError::refused(&format!("the content of {} cannot be removed", quoted(path)), refusal)
        })
    }
}
