//! Rebases a branch: makes it anew from the present directory, and repeats its changes there.
//!
//! ```text
//!   branch "a" (base: then) ─ diff ─▶ changes ─ done again, path by path ─▶ branch "a~rebase" (base: now)
//!                                                                     then "a" is dropped, and "a~rebase" is "a"
//! ```
//!
//! Invariants:
//! - Nothing happens to the branch before all of it was done again: an error leaves it as it was.
//! - Conflicts must be resolved before ([`crate::Choice`]). The branch's side is repeated.
//! - Files are found by their names at the base; what moves leaves all old names before it takes the new ones.
//! - A new file gets another inode number. Names of one file stay names of one file, unless others replaced the file.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use chiton_client::{Client, Lookup};
use chiton_model::RenameHow;
use chiton_types::{Ino, Kind, Name, Refusal};

use crate::branches::text;
use crate::copied::Copying;
use crate::diff::{Compared, DirName};
use crate::error::RealmError;
use crate::quoted::quoted;
use crate::realm::Realm;
use crate::realms::Realms;
use crate::report::{Change, ChangeKind, MergeReport};
use crate::resolve::{ConflictState, path_of, rooted};

impl Realms {
    /// Rebases a branch that no process has mounted. If a conflict is open, the report is stopped and nothing was
    /// changed.
    ///
    /// # Errors
    /// Why not; the branch is as it was.
    pub fn rebase_branch(&self, root: Ino, name: &Name) -> Result<MergeReport, RealmError> {
        let info = self.branch(root, name)?.info;
        let old = self.open_branch(root, name)?;
        if let ConflictState::Open(conflicts) = old.conflict_state()? {
            return Ok(MergeReport::of_conflicts(&conflicts));
        }
        let compared = old.comparison()?;
        let temporary = Name::new(format!("{}~rebase", text(name)).as_bytes())
            .map_err(|refusal| RealmError::refused("the name of the branch is too long", refusal))?;
        self.create_branch(&self.global.caller(), root, &temporary, Some(&info.policy))?;
        let rebased = self.open_branch(root, &temporary).and_then(|new| {
            do_again(&old, &new, &compared)?;
            new.client().sync().map_err(|r| RealmError::refused("the rebased branch is not durable", r))?;
            Ok(new)
        });
        let new = match rebased {
            Ok(new) => new,
            Err(error) => {
                // If this fails, the list of branches shows the temporary branch.
                let _ = self.close_branch(root, &temporary);
                let _ = self.delete_branch(root, &temporary, true);
                return Err(error);
            }
        };
        old.discard()?;
        let id = new.id();
        new.leave()?;
        drop((old, new));
        self.rename_branch(id, name)?;
        Ok(MergeReport { events: compared.changes.len() as u64, ..MergeReport::default() })
    }

    fn close_branch(&self, root: Ino, name: &Name) -> Result<(), RealmError> {
        let of = |realm: &Realm| realm.root() == root && realm.branch() == Some(name);
        self.list().iter().filter(|realm| of(realm)).try_for_each(|realm| realm.leave())
    }
}

/// A change, and the name at the base of what it moved or removed.
type Based<'a> = (&'a Change, Option<&'a DirName>);

/// Repeats the changes of one branch in another.
fn do_again(old: &Realm, new: &Realm, compared: &Compared) -> Result<(), RealmError> {
    let again = Again { old: old.client(), new: new.client(), copies: RefCell::default() };
    let changes = || compared.changes.iter().zip(compared.bases.iter().map(Option::as_ref));
    let of = |kinds: &[ChangeKind]| -> Vec<Based<'_>> {
        changes().filter(|(change, _)| kinds.contains(&change.kind)).collect()
    };
    let failed = |change: &Change, refusal: Refusal| {
        let what = format!("{}: this change cannot be repeated: {refusal}", quoted(&path_of(change)));
        RealmError::new(refusal, what, "the branch is unchanged: merge it instead")
    };
    // All that moves leaves its place first: its new name may be that of another thing that moves.
    let mut on_the_way = BTreeMap::new();
    for (change, base) in of(&[ChangeKind::Renamed, ChangeKind::Linked]) {
        let aside = again.put_aside(change, base, on_the_way.len()).map_err(|r| failed(change, r))?;
        on_the_way.extend(aside.map(|aside| (path_of(change), aside)));
    }
    let named: BTreeSet<Vec<u8>> = changes()
        .map(|(change, _)| change)
        .filter(|change| change.kind != ChangeKind::Removed)
        .map(path_of)
        .collect();
    let mut removed = of(&[ChangeKind::Removed]);
    // Deeper paths first.
    removed.sort_by_key(|(change, _)| std::cmp::Reverse(path_of(change)));
    for (change, base) in removed {
        let is_named = named.contains(&path_of(change));
        again.remove(change, base, is_named).map_err(|r| failed(change, r))?;
    }
    // In the order of paths, so that directories come before their entries.
    let placed = of(&[ChangeKind::Renamed, ChangeKind::Created, ChangeKind::Linked]);
    let (placed, links): (Vec<_>, Vec<_>) = placed.into_iter().partition(|(change, _)| {
        change.kind != ChangeKind::Linked || on_the_way.contains_key(&path_of(change))
    });
    let changed = of(&[ChangeKind::Written, ChangeKind::Attributes]);
    for (change, _) in placed.into_iter().chain(links).chain(changed) {
        again.change(change, &mut on_the_way).map_err(|r| failed(change, r))?;
    }
    named.iter().try_for_each(|path| again.check(path))
}

/// The two clients; paths are from the root of the directory.
struct Again<'a> {
    old: &'a Client,
    new: &'a Client,
    /// Inodes of the old branch that were copied, and their copies.
    copies: RefCell<BTreeMap<Ino, Ino>>,
}

impl Again<'_> {
    /// Gives a file or directory that a change moved, or a file that it gave a further name, a temporary name. `None`: it has the
    /// new name already, since others did the same, or it is a file that the branch made.
    fn put_aside(
        &self,
        change: &Change,
        base: Option<&DirName>,
        number: usize,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let at = rooted(&path_of(change));
        let here = self.inode_at(&at)?;
        let of = |client: &Client| Ok((client.stat(above(&at))?.ino, client.lstat(&at)?.ino));
        let is_there = of(self.new).is_ok_and(|there: (Ino, Ino)| Ok::<_, Refusal>(there) == of(self.old));
        if is_there {
            return Ok(None);
        }
        let aside = format!(".chiton-rebase-{number}").into_bytes();
        let (caller, root) = (self.new.caller(), self.new.root());
        if change.kind == ChangeKind::Linked {
            let is_base = self.new.getattr(here, None).is_ok_and(|found| found.attr.nlink > 0);
            return match is_base {
                true => self.new.link(&caller, here, root, &aside).map(|_| Some(aside)),
                false => Ok(None),
            };
        }
        let (dir, name) = base.ok_or(Refusal::NotFound)?;
        self.new.rename(&caller, *dir, name.as_bytes(), root, &aside, RenameHow::NoReplace)?;
        Ok(Some(aside))
    }

    /// Removes something again. `is_named`: the branch has something else there, which takes its place if it can.
    fn remove(&self, change: &Change, base: Option<&DirName>, is_named: bool) -> Result<(), Refusal> {
        let Some((dir, name)) = base else { return Ok(()) };
        let caller = self.new.caller();
        let there = match self.new.lookup(&caller, *dir, name.as_bytes()) {
            Ok(Lookup::Found { attr, .. }) => attr,
            Ok(Lookup::Absent { .. }) | Err(Refusal::NotFound | Refusal::NotDir | Refusal::Stale) => {
                return Ok(());
            }
            Err(refusal) => return Err(refusal),
        };
        let is_dir = there.kind == Kind::Dir;
        if is_named {
            let here = self.old.lstat(rooted(&path_of(change)))?;
            if (here.kind == Kind::Dir) == is_dir {
                return Ok(());
            }
        }
        match is_dir {
            true => self.new.rmdir(&caller, *dir, name.as_bytes()),
            false => self.new.unlink(&caller, *dir, name.as_bytes()),
        }
    }

    /// Repeats a change of something that is not gone. `on_the_way`: paths, and the temporary names of what comes there.
    fn change(&self, change: &Change, on_the_way: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), Refusal> {
        let at = rooted(&path_of(change));
        match change.kind {
            ChangeKind::Removed => Ok(()),
            ChangeKind::Attributes => {
                self.copying().attributes(&self.old.lstat(&at)?, self.new.lstat(&at)?.ino)
            }
            ChangeKind::Renamed | ChangeKind::Linked => {
                let aside = on_the_way.remove(&path_of(change));
                if let Some(aside) = &aside {
                    self.new.rename_path(rooted(aside), &at)?;
                }
                match change.kind == ChangeKind::Linked && (aside.is_some() || self.link(&at)?) {
                    true => Ok(()),
                    // A rename that also changed the file has only one row.
                    false => self.copy(&at),
                }
            }
            ChangeKind::Created | ChangeKind::Written | ChangeKind::Replaced => self.copy(&at),
        }
    }

    /// Gives the copy of a file that the branch made a further name. `false`: it has none.
    fn link(&self, at: &[u8]) -> Result<bool, Refusal> {
        let Some(ino) = self.copies.borrow().get(&self.inode_at(at)?).copied() else { return Ok(false) };
        match self.new.lstat(at) {
            Ok(there) if there.ino == ino => return Ok(true),
            Ok(_) => self.new.remove(at)?,
            Err(Refusal::NotFound) => {}
            Err(refusal) => return Err(refusal),
        }
        let dir = self.new.stat(above(at))?.ino;
        let name = at.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.new.link(&self.new.caller(), ino, dir, name).map(|_| true)
    }

    /// The inode at a path of the old branch.
    fn inode_at(&self, at: &[u8]) -> Result<Ino, Refusal> {
        self.old.lstat(at).map(|attr| attr.ino)
    }

    /// Creates or changes the file at a path, so that it is as in the old branch.
    fn copy(&self, at: &[u8]) -> Result<(), Refusal> {
        let here = self.old.lstat(at)?;
        // A file that the branch has under another name, too, keeps its content there.
        let there = self.new.lstat(at).ok().filter(|there| there.ino != here.ino && there.kind != Kind::Dir);
        if there.is_some_and(|there| self.old.getattr(there.ino, None).is_ok_and(|was| was.attr.nlink > 0)) {
            self.new.remove(at)?;
        }
        self.copying().copy(at, &here)?;
        self.copies.borrow_mut().insert(here.ino, self.new.lstat(at)?.ino);
        Ok(())
    }

    fn copying(&self) -> Copying<'_> {
        Copying { from: self.old, to: self.new }
    }

    /// Whether the rebased branch has at a path what the branch has there, before that is dropped.
    fn check(&self, path: &[u8]) -> Result<(), RealmError> {
        let of = |client: &Client| client.lstat(rooted(path)).map(|attr| (attr.kind, attr.size));
        let (here, there) = (of(self.old), of(self.new));
        let is_as_before = match (here, there) {
            (Ok((Kind::Dir, _)), Ok((kind, _))) => kind == Kind::Dir,
            // A path of something that is gone by now is of a directory that is gone.
            (Err(_), _) => true,
            (here, there) => here == there,
        };
        match is_as_before {
            true => Ok(()),
            false => {
                let what = format!("{}: the rebased branch would not have it", quoted(path));
                Err(RealmError::new(Refusal::Io, what, "the branch is unchanged: merge it instead"))
            }
        }
    }
}

/// The directory of a path from the root.
fn above(at: &[u8]) -> &[u8] {
    match at.iter().rposition(|byte| *byte == b'/') {
        Some(0) | None => b"/",
        Some(cut) => &at[..cut],
    }
}
