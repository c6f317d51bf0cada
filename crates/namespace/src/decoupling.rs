//! Decouplings: which subtrees clients have taken for themselves.
//!
//! ```text
//!   Decoupled ─▶ Granted, Attached, Merged … ─▶ DecouplingEnded
//! ```
//!
//! Invariants:
//! - Two decouplings are disjoint, or of the same root; then at most one of them is no branch. Each ends at the next policy
//!   below it (a branch has none below it).
//! - A decoupled root is a border like that of a policy: a name never crosses it, nor is it moved or removed. So what is
//!   below it changes only when a decoupling begins or ends.
//! - All decouplings are always in memory whole. Where there is none, nothing is looked up.

use std::cell::RefCell;

use chiton_model::field::Code;
use chiton_model::merge::MergeMap;
use chiton_model::{Attached, Decoupling, MergedUpTo};
use chiton_types::{Ino, Kind, Name, Position, RealmId, Refusal};
use hashbrown::HashMap;

use crate::fault::Fault;
use crate::namespace::{Known, Namespace};
use crate::tables::TableValue;
use crate::values::DecouplingKey;

/// Directories of which it is remembered whether they are decoupled.
const CACHE_MAX: usize = 1 << 16;

impl TableValue for Decoupling {
    fn encode(&self) -> Vec<u8> {
        let mut v = Vec::new();
        Decoupling::put(self, &mut v);
        v
    }
    fn heap_bytes(&self) -> usize {
        size_of::<Decoupling>() + self.identity.len() + self.journal_at.len() + self.policy.len()
    }
}

/// Which decoupled root directories are below, as it was found since a decoupling began or ended.
#[derive(Default)]
pub(crate) struct Decoupled {
    cache: RefCell<HashMap<Ino, Option<Ino>>>,
}

impl Namespace {
    /// True if anything is decoupled.
    #[inline]
    pub fn has_decouplings(&self) -> bool {
        self.decoupling_count > 0
    }

    /// A decoupling by its number.
    pub fn decoupling(&self, id: RealmId) -> Option<&Decoupling> {
        self.decouplings.value(DecouplingKey(id.0))
    }

    /// All, in the order in which they began.
    pub fn decouplings(&self) -> impl Iterator<Item = &Decoupling> {
        self.decouplings.range(..).map(|(_, decoupling)| decoupling)
    }

    /// Those of a root directory.
    pub fn decouplings_of(&self, root: Ino) -> impl Iterator<Item = &Decoupling> {
        self.decouplings().filter(move |d| d.root() == root)
    }

    /// Number of the last decoupling that began.
    pub fn decoupling_last(&self) -> RealmId {
        RealmId(self.decoupling_last)
    }

    /// The decoupled root at or above an inode, down to the next policy: an inode with a policy of its own is not in the subtree. An inode
    /// without a name counts as where it was.
    #[inline]
    pub fn decoupled_root(&self, ino: Ino) -> Result<Option<Ino>, Fault> {
        if self.decoupling_count == 0 { Ok(None) } else { self.find_decoupled_root(ino) }
    }

    fn find_decoupled_root(&self, ino: Ino) -> Result<Option<Ino>, Fault> {
        if let Some(found) = self.decoupled.cache.borrow().get(&ino) {
            return Ok(*found);
        }
        let is_root = |at: Ino| self.decouplings().any(|d| d.root() == at);
        let mut dirs = Vec::new();
        let mut at = ino;
        let found = loop {
            if let Some(found) = self.decoupled.cache.borrow().get(&at) {
                break *found;
            }
            if !self.owns(at) {
                break None;
            }
            let inode = self.inode(at)?;
            if inode.kind() == Kind::Dir {
                dirs.push(at);
                if is_root(at) {
                    break Some(at);
                }
                if self.policy_count > 0 && self.policy(at).is_some() {
                    break None;
                }
            }
            if at == Ino::ROOT {
                break None;
            }
            at = inode.parent;
        };
        let mut cache = self.decoupled.cache.borrow_mut();
        if cache.len() + dirs.len() > CACHE_MAX {
            cache.clear();
        }
        cache.extend(dirs.into_iter().map(|dir| (dir, found)));
        Ok(found)
    }

    /// Refuses unless two inodes are in one decoupled subtree, or both in none.
    pub(crate) fn same_decoupled(&self, a: Ino, b: Ino) -> Result<(), Fault> {
        if self.decoupling_count == 0 || self.find_decoupled_root(a)? == self.find_decoupled_root(b)? {
            Ok(())
        } else {
            Err(Refusal::CrossDevice.into())
        }
    }

    /// Whether an inode is a decoupled root or below one, also below a policy there.
    ///
    /// # Errors
    /// [`Fault::Missing`], or it does not exist.
    pub fn is_below_decoupled(&self, ino: Ino) -> Result<bool, Fault> {
        for decoupling in self.decouplings() {
            if self.is_above(decoupling.root(), ino)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a directory is an inode, or above it.
    ///
    /// # Errors
    /// As [`Namespace::is_below_decoupled`].
    pub fn is_above(&self, dir: Ino, ino: Ino) -> Result<bool, Fault> {
        let mut at = ino;
        loop {
            if at == dir {
                return Ok(true);
            }
            if !self.owns(at) {
                return Ok(false);
            }
            let inode = self.inode(at)?;
            if inode.parent == at || inode.nlink == 0 {
                return Ok(false);
            }
            at = inode.parent;
        }
    }

    /// Whether a subtree that begins at `root` reaches down to `dir`, with no policy in between.
    fn reaches(&self, root: Ino, dir: Ino) -> Result<bool, Fault> {
        let mut at = dir;
        while at != root {
            if !self.owns(at) {
                return Ok(false);
            }
            let inode = self.inode(at)?;
            if at == Ino::ROOT || inode.nlink == 0 || self.policy(at).is_some() {
                return Ok(false);
            }
            at = inode.parent;
        }
        Ok(true)
    }

    /// Whether a directory is a decoupled root or above one.
    pub fn is_above_decoupled(&self, dir: Ino) -> Result<bool, Fault> {
        for decoupling in self.decouplings() {
            if self.is_above(dir, decoupling.root())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses unless a directory can be decoupled.
    ///
    /// # Errors
    /// `Busy` if it overlaps another decoupling, or is to be branched and a policy begins below it; `CrossDevice` if files bear names on both
    /// sides of the border.
    pub fn plan_decouple(&self, root: Ino, branch: Option<&Name>) -> Result<(), Fault> {
        let dir = self.dir_inode(root)?;
        if dir.nlink == 0 {
            return Err(Refusal::NotFound.into());
        }
        for other in self.decouplings() {
            if other.root() == root {
                if other.branch.as_ref() == branch {
                    return Err(Refusal::Busy.into());
                }
                continue;
            }
            if self.reaches(root, other.root())? || self.reaches(other.root(), root)? {
                return Err(Refusal::Busy.into());
            }
        }
        // The mount of a branch sees nothing but the branch.
        for policy in self.policies().filter(|policy| branch.is_some() && policy.ino != root) {
            if self.is_above(root, policy.ino)? {
                return Err(Refusal::Busy.into());
            }
        }
        if self.crossing(root)?.is_empty() { Ok(()) } else { Err(Refusal::CrossDevice.into()) }
    }

    pub(crate) fn apply_decoupled(&mut self, decoupling: &Decoupling) {
        let key = DecouplingKey(decoupling.id.0);
        let before = self.decouplings.value(key).is_some();
        self.decouplings.change(key, &mut self.dirty, true, |v| *v = Some(decoupling.clone()));
        self.decoupling_count += usize::from(!before);
        self.decoupling_last = self.decoupling_last.max(decoupling.id.0);
        self.decoupled.cache.borrow_mut().clear();
    }

    pub(crate) fn apply_attached(&mut self, attached: &Attached) {
        self.change_decoupling(attached.id, |d| {
            d.nonce = attached.nonce;
            d.generation = attached.generation;
            d.owner = attached.owner;
            d.identity.clone_from(&attached.identity);
            d.journal_at.clone_from(&attached.journal_at);
            if attached.branch.is_some() {
                d.branch.clone_from(&attached.branch);
            }
        });
    }

    pub(crate) fn apply_granted(&mut self, id: RealmId, ranges: &[(Ino, Ino)]) {
        self.change_decoupling(id, |d| {
            for &(first, end) in ranges {
                d.map.grant(first, end);
            }
        });
    }

    pub(crate) fn apply_merged(&mut self, merged: &MergedUpTo) {
        self.merging = None;
        self.change_decoupling(merged.id, |d| {
            d.state = merged.state;
            d.map.replace(&merged.map);
        });
    }

    /// Takes a decoupling's map out, to be changed; until it is given back ([`Namespace::return_map`], or with how far
    /// a merge is by [`Namespace::merged`]) an empty one stands in its place.
    ///
    /// # Panics
    /// If there is no such decoupling.
    pub fn borrow_map(&mut self, id: RealmId) -> MergeMap {
        assert!(self.merging.is_none(), "two decouplings are merged at once");
        self.merging = Some(id);
        // A running checkpoint gets the row as it is.
        self.change_decoupling(id, |d| {
            let map = &mut d.map;
            let stand_in = MergeMap::new(map.root(), map.base(), map.writer(), map.on_conflict());
            std::mem::replace(map, stand_in)
        })
    }

    /// Gives back a map in which nothing changed that counts.
    pub fn return_map(&mut self, id: RealmId, map: MergeMap) {
        self.merging = None;
        self.change_decoupling(id, |d| d.map = map);
    }

    /// Applies [`chiton_model::Event::Merged`], for the caller that has the map.
    pub fn merged(&mut self, merged: MergedUpTo) {
        let MergedUpTo { id, state, map } = merged;
        self.merging = None;
        self.change_decoupling(id, |d| (d.state, d.map) = (state, map));
    }

    /// Whether another decoupling than `own` of the subtree in which an inode is may know it: then it must stay as it was.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn is_wanted_by_others(&self, ino: Ino, own: RealmId) -> Result<bool, Fault> {
        if self.decoupling_count > 1 { self.is_kept(ino, own) } else { Ok(false) }
    }

    /// Whether an inode without a name must stay, because a decoupling of the subtree in which it was may know it.
    ///
    /// # Errors
    /// [`Fault::Missing`] only.
    pub fn is_pinned(&self, ino: Ino) -> Result<bool, Fault> {
        if self.decoupling_count > 0 { self.is_kept(ino, RealmId::GLOBAL) } else { Ok(false) }
    }

    fn is_kept(&self, ino: Ino, but: RealmId) -> Result<bool, Fault> {
        match self.find_decoupled_root(ino) {
            Ok(Some(root)) => Ok(self.decouplings_of(root).any(|d| d.id != but && d.map.may_know(ino))),
            Ok(None) | Err(Fault::Refused(_)) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// An operation is about to take this name of an inode: those others who may know it remember it. `moves`: it gets another.
    pub(crate) fn note_contested(&mut self, ino: Ino, parent: Ino, name: &Name, moves: bool) {
        let Ok(Some(root)) = self.decoupled_root(parent) else { return };
        let others = self.decouplings_of(root).filter(|d| Some(d.id) != self.merging);
        let ids: Vec<RealmId> = others.filter(|d| d.map.may_know(ino)).map(|d| d.id).collect();
        if ids.is_empty() {
            return;
        }
        let found = self.dir_inode(parent).and_then(|dir| self.entry(dir, name));
        let position = match found {
            Ok(Known::Present(slot)) => slot.position,
            // Where that is unknown, it is remembered.
            _ => Position(0),
        };
        let names =
            self.inodes.get(ino).map_or(1, |inode| if inode.kind() == Kind::Dir { 1 } else { inode.nlink });
        for id in ids {
            self.change_decoupling(id, |d| {
                d.map.note_contested(ino, parent, name, position, !moves && names <= 1);
            });
        }
    }

    pub(crate) fn apply_decoupling_ended(&mut self, id: RealmId) {
        let key = DecouplingKey(id.0);
        if self.decouplings.value(key).is_some() {
            self.decouplings.change(key, &mut self.dirty, false, |v| *v = None);
            self.decoupling_count -= 1;
            self.dirty.before_images.drop_all(id.0);
        }
        self.decoupled.cache.borrow_mut().clear();
    }

    fn change_decoupling<R>(&mut self, id: RealmId, f: impl FnOnce(&mut Decoupling) -> R) -> R {
        let key = DecouplingKey(id.0);
        self.decouplings.change(key, &mut self.dirty, false, |v| {
            f(v.as_mut().unwrap_or_else(|| panic!("decoupling {id} is changed after its end")))
        })
    }

    /// Forgets a directory that was removed.
    pub(crate) fn forget_decoupled(&mut self, ino: Ino) {
        self.decoupled.cache.get_mut().remove(&ino);
    }
}
