//! Decoupled subtrees of a file system with several plates: each lies on one plate, with all its rows.
//!
//! ```text
//!   /job, placement near ── plate 2 has its directories and files ── plate 2 decouples, serves rows, merges
//! ```
//!
//! Invariants:
//! - A decoupling begins only when no inode of its subtree is on another plate, no file of it has a name outside, and no operation of
//!   another plate guards a row of it.
//! - While there is one, directories in it are born on its plate, and other plates neither bring anything in nor take anything out:
//!   a guarded row says that it is kept ([`chiton_wire::GuardedRow::kept`]).
//! - The number of a decoupling says on which plate it is ([`chiton_types::Plates::of_realm`]).

use chiton_namespace::{Fault, path_of};
use chiton_types::{Ino, Kind, PlateId, Plates, Refusal, ShardId};
use chiton_wire::{DECOUPLINGS, TOKEN};
use hashbrown::HashMap;

use crate::parts::Shards;
use crate::peers::Peers;
use crate::step::Stop;
use crate::wait_queue::Wait;

/// Names read at a time.
const PAGE: usize = 4096;
/// Directories looked for in the metadata store at a time.
const DIRS_AT_ONCE: usize = 4096;

/// The plate of an engine, and the directories whose subtrees were found to lie on several.
#[derive(Debug)]
pub(crate) struct Here {
    pub(crate) plate: PlateId,
    pub(crate) plates: Plates,
    /// With the version of the policies at which that was found.
    spread: HashMap<Ino, u64>,
}

impl Here {
    pub(crate) fn new(plate: PlateId, plates: Plates) -> Here {
        Here { plate, plates, spread: HashMap::new() }
    }

    /// The shards of this plate.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        self.plates.shards_of(self.plate).map(ShardId)
    }
}

impl Peers {
    /// Waits for an operation of another plate that guards a row at or below `root`, and for one that removes a tree.
    pub(crate) fn await_guards_below(&self, root: Ino, shards: &Shards) -> Result<(), Stop> {
        self.await_unguarded(&[DECOUPLINGS])?;
        for ino in self.guarded().filter(|ino| *ino != TOKEN) {
            match shards.ns.is_above(root, ino) {
                Ok(true) => return Err(Stop::Wait(Wait::Guarded(ino))),
                Ok(false) | Err(Fault::Refused(_)) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(())
    }
}

/// The path of a directory, as far as this plate has its names.
pub(crate) struct PathHere {
    /// The path, or the end of it.
    pub(crate) path: Vec<u8>,
    /// The directory that the end begins at, and the one of another plate that it is in.
    pub(crate) above: Option<(Ino, Ino)>,
}

impl Shards {
    /// Whether a subtree was found to lie on several plates, since policies changed last.
    pub(crate) fn is_known_spread(&self, root: Ino) -> bool {
        self.realms.here.spread.get(&root) == Some(&self.ns.policy_version())
    }

    /// Refuses unless all rows of a subtree, down to the next policies, are here, and no file in it has a name outside.
    pub(crate) fn check_near(&mut self, root: Ino) -> Result<(), Stop> {
        let found = self.is_near(root);
        match found {
            Ok(true) => {
                self.realms.here.spread.remove(&root);
                Ok(())
            }
            Ok(false) => {
                self.realms.here.spread.insert(root, self.ns.policy_version());
                Err(Refusal::CrossDevice.into())
            }
            Err(stop) => Err(stop),
        }
    }

    fn is_near(&self, root: Ino) -> Result<bool, Stop> {
        let (mut dirs, mut needs) = (vec![root], Vec::new());
        // Names of files that have several, found and not found yet.
        let mut names: HashMap<Ino, u32> = HashMap::new();
        while let Some(dir) = dirs.pop() {
            let mut after = 0;
            loop {
                let listing = match self.ns.readdir(dir, after, PAGE) {
                    Ok(listing) => listing,
                    Err(Fault::Missing(more)) if needs.len() < DIRS_AT_ONCE => {
                        needs.extend(more);
                        break;
                    }
                    Err(Fault::Missing(_)) => return Err(Stop::Missing(needs)),
                    Err(fault) => return Err(fault.into()),
                };
                if self.ns.is_parted(dir) {
                    return Ok(false);
                }
                for (_, ino, kind, cookie) in &listing.entries {
                    after = *cookie;
                    if !self.ns.owns(*ino) {
                        return Ok(false);
                    }
                    match kind {
                        Kind::Dir if self.ns.policy(*ino).is_none() => dirs.push(*ino),
                        Kind::Dir => {}
                        _ => match self.ns.attr(*ino) {
                            Ok(attr) if attr.nlink > 1 => {
                                let missing = names.entry(*ino).or_insert(attr.nlink);
                                *missing = missing.saturating_sub(1);
                            }
                            Ok(_) => {}
                            Err(Fault::Missing(more)) => needs.extend(more),
                            Err(fault) => return Err(fault.into()),
                        },
                    }
                }
                if listing.end || needs.len() >= DIRS_AT_ONCE {
                    break;
                }
            }
        }
        match needs.is_empty() {
            true => Ok(names.values().all(|missing| *missing == 0)),
            false => Err(Stop::Missing(needs)),
        }
    }

    /// Why an operation of another plate may not have a row: it would bring something into a decoupled subtree or take it out, or
    /// move or remove what is decoupled. With a name, the row is a directory that gives or takes that name.
    pub(crate) fn kept(&self, ino: Ino, is_parent: bool) -> Result<Option<Refusal>, Stop> {
        if !self.ns.has_decouplings() {
            return Ok(None);
        }
        let is_dir = self.ns.attr(ino)?.kind == Kind::Dir;
        if !is_parent && is_dir && self.ns.is_above_decoupled(ino)? {
            return Ok(Some(Refusal::Busy));
        }
        Ok(self.root_of(ino)?.map(|_| Refusal::CrossDevice))
    }

    /// The path of a decoupled directory, as far as this plate knows it.
    pub(crate) fn path_here(&self, root: Ino) -> Result<PathHere, Fault> {
        match self.ns.dir_path(root) {
            Err(Fault::Elsewhere(_)) => {}
            found => return found.map(|path| PathHere { path, above: None }),
        }
        let mut below: Vec<Vec<u8>> = Vec::new();
        let mut at = root;
        loop {
            let parent = self.ns.attr(at)?.parent;
            if !self.ns.owns(parent) {
                return Ok(PathHere { path: path_of(b"", &below), above: Some((at, parent)) });
            }
            below.push(self.ns.name_held(parent, at)?);
            at = parent;
        }
    }

    /// Where a decoupled directory is, for reports of this plate: below a directory that got a policy, where that was then.
    pub(crate) fn path_known(&self, root: Ino) -> Result<Vec<u8>, Fault> {
        match self.ns.dir_path(root) {
            Err(Fault::Elsewhere(_)) => {}
            found => return found,
        }
        let mut below: Vec<Vec<u8>> = Vec::new();
        let mut at = root;
        let above = loop {
            if let Some(policy) = self.ns.policy(at) {
                break policy.path.clone();
            }
            let parent = self.ns.attr(at)?.parent;
            if !self.ns.owns(parent) {
                break format!("/…/inode {}", at.0).into_bytes();
            }
            below.push(self.ns.name_held(parent, at)?);
            at = parent;
        };
        Ok(path_of(&above, &below))
    }
}
