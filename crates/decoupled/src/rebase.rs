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
//! - Changes are repeated by path: a new file gets another inode number, and each new hard link becomes a copy.

use std::collections::BTreeSet;

use chiton_client::Client;
use chiton_types::{Ino, Name, Refusal};

use crate::branches::text;
use crate::copied::Copying;
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
        let changes = old.comparison()?.changes;
        let temporary = Name::new(format!("{}~rebase", text(name)).as_bytes())
            .map_err(|refusal| RealmError::refused("the name of the branch is too long", refusal))?;
        self.create_branch(&self.global.caller(), root, &temporary, Some(&info.policy))?;
        let rebased = self.open_branch(root, &temporary).and_then(|new| {
            do_again(&old, &new, &changes)?;
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
        Ok(MergeReport { events: changes.len() as u64, ..MergeReport::default() })
    }

    fn close_branch(&self, root: Ino, name: &Name) -> Result<(), RealmError> {
        let of = |realm: &Realm| realm.root() == root && realm.branch() == Some(name);
        self.list().iter().filter(|realm| of(realm)).try_for_each(|realm| realm.leave())
    }
}

/// Repeats the changes of one branch in another.
fn do_again(old: &Realm, new: &Realm, changes: &[Change]) -> Result<(), RealmError> {
    let again = Again { old: old.client(), new: new.client() };
    let named: BTreeSet<Vec<u8>> =
        changes.iter().filter(|change| change.kind != ChangeKind::Removed).map(path_of).collect();
    let of = |kinds: &[ChangeKind]| -> Vec<&Change> {
        changes.iter().filter(|change| kinds.contains(&change.kind)).collect()
    };
    let renamed = of(&[ChangeKind::Renamed]);
    let mut removed = of(&[ChangeKind::Removed]);
    // Deeper paths first.
    removed.sort_by_key(|change| std::cmp::Reverse(path_of(change)));
    removed.retain(|change| !named.contains(&path_of(change)));
    // In the order of paths, so that directories come before their entries.
    let made = of(&[ChangeKind::Created]);
    let rest = of(&[ChangeKind::Linked, ChangeKind::Written, ChangeKind::Attributes]);
    for change in renamed.into_iter().chain(removed).chain(made).chain(rest) {
        again.change(change).map_err(|refusal| {
            let what = format!("{}: this change cannot be repeated: {refusal}", quoted(&path_of(change)));
            RealmError::new(refusal, what, "the branch is unchanged: merge it instead")
        })?;
    }
    Ok(())
}

/// The two clients; paths are from the root of the directory.
struct Again<'a> {
    old: &'a Client,
    new: &'a Client,
}

impl Again<'_> {
    fn change(&self, change: &Change) -> Result<(), Refusal> {
        let at = rooted(&path_of(change));
        match change.kind {
            ChangeKind::Renamed => {
                let from = change.from_bytes.clone().or(change.from.clone().map(String::into_bytes));
                // If others moved it there, too, it has the name already.
                let is_there = self.new.lstat(&at).is_ok_and(|there| Ok(there.ino) == self.inode_at(&at));
                if !is_there {
                    self.new.rename_path(rooted(&from.unwrap_or_default()), &at)?;
                }
                // A rename that also changed the file has only one row.
                self.copy(&at)
            }
            ChangeKind::Removed => match self.new.remove(&at) {
                Err(Refusal::NotFound | Refusal::NotDir) => Ok(()),
                removed => removed,
            },
            ChangeKind::Created | ChangeKind::Linked | ChangeKind::Written | ChangeKind::Replaced => {
                self.copy(&at)
            }
            ChangeKind::Attributes => {
                self.copying().attributes(&self.old.lstat(&at)?, self.new.lstat(&at)?.ino)
            }
        }
    }

    /// The inode at a path of the old branch.
    fn inode_at(&self, at: &[u8]) -> Result<Ino, Refusal> {
        self.old.lstat(at).map(|attr| attr.ino)
    }

    /// Creates or changes the file at a path, so that it is as in the old branch.
    fn copy(&self, at: &[u8]) -> Result<(), Refusal> {
        self.copying().copy(at, &self.old.lstat(at)?)
    }

    fn copying(&self) -> Copying<'_> {
        Copying { from: self.old, to: self.new }
    }
}
