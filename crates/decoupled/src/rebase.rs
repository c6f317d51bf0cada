//! A branch made anew from what is there now, with what was done in it done again.
//!
//! ```text
//!   branch "a" (base: then) ─ diff ─▶ changes ─ done again, path by path ─▶ branch "a~rebase" (base: now)
//!                                                                     then "a" is dropped, and "a~rebase" is "a"
//! ```
//!
//! Invariants:
//! - Nothing happens to the branch before all of it was done again: an error leaves it as it was.
//! - What both sides did is to be resolved before ([`crate::Choice`]): the branch's side is what is done again.
//! - It is done again by paths: what is new in the branch gets other inode numbers, and each new name of a file a copy of it.

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
use crate::resolve::{Standing, path_of, rooted};

impl Realms {
    /// Rebases a branch that nobody has mounted. The report is stopped if something is not resolved; then nothing was done.
    ///
    /// # Errors
    /// Why not; the branch is as it was.
    pub fn rebase_branch(&self, root: Ino, name: &Name) -> Result<MergeReport, RealmError> {
        let info = self.branch(root, name)?.info;
        let old = self.open_branch(root, name)?;
        if let Standing::Open(diff) = old.standing()? {
            return Ok(MergeReport::of_conflicts(&diff));
        }
        let changes = old.diff()?.changes;
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
                // What is left of it is in the list of branches.
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

/// Does in one branch what was done in another.
fn do_again(old: &Realm, new: &Realm, changes: &[Change]) -> Result<(), RealmError> {
    let again = Again { old: old.client(), new: new.client() };
    let named: BTreeSet<Vec<u8>> =
        changes.iter().filter(|change| change.kind != ChangeKind::Removed).map(path_of).collect();
    let of = |kinds: &[ChangeKind]| -> Vec<&Change> {
        changes.iter().filter(|change| kinds.contains(&change.kind)).collect()
    };
    let renamed = of(&[ChangeKind::Renamed]);
    let mut removed = of(&[ChangeKind::Removed]);
    // What lies deeper goes first.
    removed.sort_by_key(|change| std::cmp::Reverse(path_of(change)));
    removed.retain(|change| !named.contains(&path_of(change)));
    // Directories before what is in them: in the order of their paths.
    let made = of(&[ChangeKind::Created]);
    let rest = of(&[ChangeKind::Linked, ChangeKind::Written, ChangeKind::Attributes]);
    for change in renamed.into_iter().chain(removed).chain(made).chain(rest) {
        again.change(change).map_err(|refusal| {
            let what = format!("{}: it cannot be done again: {refusal}", quoted(&path_of(change)));
            RealmError::new(refusal, what, "merge the branch instead; it is as it was")
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
                self.new.rename_path(rooted(&from.unwrap_or_default()), &at)?;
                // It may have been changed as well, which its row tells once.
                self.copy(&at)
            }
            ChangeKind::Removed => match self.new.remove(&at) {
                Err(Refusal::NotFound) => Ok(()),
                removed => removed,
            },
            ChangeKind::Created | ChangeKind::Linked | ChangeKind::Written => self.copy(&at),
            ChangeKind::Attributes => {
                self.copying().attributes(&self.old.lstat(&at)?, self.new.lstat(&at)?.ino)
            }
        }
    }
    /// Creates or changes the file at a path, so that it is as in the old branch.
    fn copy(&self, at: &[u8]) -> Result<(), Refusal> {
        self.copying().copy(at, &self.old.lstat(at)?)
    }

    fn copying(&self) -> Copying<'_> {
        Copying { from: self.old, to: self.new }
    }
}
