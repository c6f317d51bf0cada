//! Policies of the source: settings that the plates cannot carry out, subtrees that get several plates, and the present paths of both.
//!
//! ```text
//!   row of the policy ──▶ its text on top of the policy around it ──▶ Support: carried out, or an obstacle
//!                    └──▶ the path of its directory today ──▶ the row that every plate of the target gets
//! ```
//!
//! Invariants:
//! - A policy is read as the server reads it: a text that cannot be read leaves the policy around it.
//! - A policy that only inherits a refused setting is not named: the one above it that has the setting is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chiton_metastore::Metastore;
use chiton_model::PolicyChange;
use chiton_namespace::{StoredRow, path_of, rows_with_tag, tag};
use chiton_policy::{Consistency, Fault, Placement, Policy, PolicyFile, Support};
use chiton_types::{Ino, Kind, Plates, ShardId};

use crate::fsck::rows::{entries_prefix, inode, names_in, shown};
use crate::growth::{GrowError, each_row};

/// More directories are not above each other in a file system that is whole.
const DEPTH_MAX: usize = 4096;

/// The policies of the source, by directory.
#[derive(Default)]
pub(super) struct Policies(BTreeMap<Ino, Carried>);

/// A policy and its directory.
struct Carried {
    change: PolicyChange,
    /// Where the directory is; if that is not found, where it was when the policy was set.
    path: Vec<u8>,
}

impl Policies {
    pub(super) fn read(rows: &dyn Metastore, shards: u16) -> Result<Policies, GrowError> {
        let mut all = Vec::new();
        for shard in (0..shards).map(ShardId) {
            let (start, end) = rows_with_tag(shard, tag::POLICY);
            each_row(rows, (&start, Some(&end)), &mut |key, value| {
                if let Some(StoredRow::Policy(ino, change)) = StoredRow::decode(key, value)? {
                    all.push((ino, change));
                }
                Ok(())
            })?;
        }
        let mut policies = Policies::default();
        for (ino, change) in all {
            let path = path_of_dir(rows, ino)?.unwrap_or_else(|| change.path.clone());
            policies.0.insert(ino, Carried { change, path });
        }
        Ok(policies)
    }

    /// The row of a directory's policy as the plates of the target have it: with the path of today, since a plate that does not own the
    /// directories above cannot look for it.
    pub(super) fn with_present_path(&self, ino: Ino, change: PolicyChange) -> PolicyChange {
        match self.0.get(&ino) {
            Some(carried) => PolicyChange { path: carried.path.clone(), ..change },
            None => change,
        }
    }

    /// Settings that so many plates do not carry out: the subtree, the setting, and the commands that change it.
    pub(super) fn obstacles(&self, plates: u16) -> Vec<String> {
        let support = if plates > 1 { Support::PLATES } else { Support::LOCAL };
        let resolved = ResolvedPolicies::of(self, support);
        let mut all = Vec::new();
        for carried in self.0.values() {
            let Some((file, fault)) = resolved.fault(&carried.change) else { continue };
            if !sets_a_level(&file) && resolved.is_refused_around(&carried.change) {
                continue;
            }
            let at = shown(&carried.path);
            let rather = match &fault.nearest {
                Some(nearest) => format!("to {nearest} "),
                None => String::new(),
            };
            all.push(format!(
                "the policy of {at} has {}, which a cluster does not carry out, because {}: mount the file system and change it {rather}\
                 (chiton policy set MOUNT{at} FILE), or remove it (chiton policy rm MOUNT{at})",
                setting(&carried.change, &fault),
                fault.reason,
            ));
        }
        all
    }

    /// The subtrees which clients could decouple and which get several plates: then the cluster refuses to decouple them.
    pub(super) fn parted(&self, rows: &dyn Metastore, plates: Plates) -> Result<Vec<String>, GrowError> {
        let resolved = ResolvedPolicies::of(self, Support::PLATES);
        let mut parted = Vec::new();
        for (ino, carried) in &self.0 {
            let policy = resolved.of_directory(*ino);
            let stays = policy.consistency() != Consistency::Strong || policy.placement == Placement::Near;
            if stays && !self.is_on_one_plate(rows, plates, *ino)? {
                parted.push(shown(&carried.path));
            }
        }
        Ok(parted)
    }

    /// Whether all inodes of a subtree, down to the next policies, are on the plate of its root.
    fn is_on_one_plate(&self, rows: &dyn Metastore, plates: Plates, root: Ino) -> Result<bool, GrowError> {
        let home = plates.of(root);
        // A damaged file system may have a directory twice, even below itself.
        let (mut dirs, mut seen) = (vec![root], BTreeSet::new());
        while let Some(dir) = dirs.pop() {
            let prefix = entries_prefix(dir, None);
            let end = chiton_metastore::prefix_end(&prefix);
            let mut is_on_one = true;
            crate::fsck::rows::each_row(rows, &prefix, end.as_deref(), |(key, value)| {
                if let Some(StoredRow::Entry { ino, kind, .. }) = StoredRow::decode(&key, &value)? {
                    is_on_one &= plates.of(ino) == home;
                    if kind == Kind::Dir && !self.0.contains_key(&ino) && seen.insert(ino) {
                        dirs.push(ino);
                    }
                }
                Ok::<_, GrowError>(is_on_one)
            })?;
            if !is_on_one {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Where a directory is; `None` if that is not found.
pub(super) fn path_of_dir(rows: &dyn Metastore, dir: Ino) -> Result<Option<Vec<u8>>, GrowError> {
    let (mut names, mut at) = (Vec::new(), dir);
    while at != Ino::ROOT {
        let Some(found) = inode(rows, at)?.filter(|_| names.len() < DEPTH_MAX) else { return Ok(None) };
        let Some(name) = names_in(rows, found.parent, None, at)?.into_iter().next() else { return Ok(None) };
        names.push(name.as_bytes().to_vec());
        at = found.parent;
    }
    Ok(Some(path_of(b"/", &names)))
}

/// The meaning of the policies.
struct ResolvedPolicies<'a> {
    policies: &'a Policies,
    support: Support,
    by_root: BTreeMap<Ino, Arc<Policy>>,
}

impl<'a> ResolvedPolicies<'a> {
    fn of(policies: &'a Policies, support: Support) -> ResolvedPolicies<'a> {
        let mut resolved = ResolvedPolicies { policies, support, by_root: BTreeMap::new() };
        for root in policies.0.keys() {
            // From this policy up to one that is resolved; of damaged rows, up to the first that comes twice.
            let (mut chain, mut at) = (Vec::new(), *root);
            while let Some(carried) = policies.0.get(&at)
                && !resolved.by_root.contains_key(&at)
                && !chain.contains(&at)
            {
                chain.push(at);
                at = if at == Ino::ROOT { break } else { carried.change.around };
            }
            while let Some(at) = chain.pop() {
                let change = &policies.0[&at].change;
                let around = resolved.around(change);
                let policy = read(change, &around).map_or(around, |(_, policy)| Arc::new(policy));
                resolved.by_root.insert(at, policy);
            }
        }
        resolved
    }

    fn of_directory(&self, root: Ino) -> Arc<Policy> {
        self.by_root.get(&root).cloned().unwrap_or_default()
    }

    fn around(&self, change: &PolicyChange) -> Arc<Policy> {
        if change.ino == Ino::ROOT { Arc::default() } else { self.of_directory(change.around) }
    }

    /// Why the plates refuse a policy, with its text.
    fn fault(&self, change: &PolicyChange) -> Option<(PolicyFile, Fault)> {
        let (file, policy) = read(change, &self.around(change))?;
        let fault = self.support.check(&file, &policy).err()?;
        Some((file, fault))
    }

    fn is_refused_around(&self, change: &PolicyChange) -> bool {
        let around = self.policies.0.get(&change.around).filter(|_| change.ino != Ino::ROOT);
        around.is_some_and(|around| self.fault(&around.change).is_some())
    }
}

fn read(change: &PolicyChange, around: &Policy) -> Option<(PolicyFile, Policy)> {
    let text = change.text.as_deref().unwrap_or_default();
    let file = PolicyFile::parse(std::str::from_utf8(text).ok()?).ok()?;
    let policy = Policy::resolve(&file, around).ok()?;
    Some((file, policy))
}

fn sets_a_level(file: &PolicyFile) -> bool {
    file.composition.is_some() || file.consistency.is_some() || file.durability.is_some()
}

/// The line that is refused.
fn setting(change: &PolicyChange, fault: &Fault) -> String {
    let text = String::from_utf8_lossy(change.text.as_deref().unwrap_or_default()).into_owned();
    let line = text.lines().nth((fault.place.line as usize).saturating_sub(1)).unwrap_or_default();
    format!("`{}`", line.trim())
}
