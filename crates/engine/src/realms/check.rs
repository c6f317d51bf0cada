//! Changes of others in a decoupled subtree since its base, for clients that ask before a merge.

use chiton_merge::{Change, foreign_to_inode, foreign_to_name};
use chiton_types::{Ino, Name, Refusal};
use chiton_wire::{Claim, Foreign, NEEDS_MAX, RealmAnswer};

use super::{Caller, Found, NOW};
use crate::parts::Shards;
use crate::step::Stop;

impl Shards {
    pub(crate) fn check_foreign(
        &mut self,
        caller: &Caller<'_>,
        claim: Claim,
        inodes: &[Ino],
        names: &[(Ino, Name)],
    ) -> Found {
        let map = &self.claimed(caller, claim)?.map;
        if inodes.len() + names.len() > NEEDS_MAX {
            return Err(Refusal::Invalid.into());
        }
        let foreign = |change: Change| match change {
            Change::None => Foreign::Same,
            Change::Changed => Foreign::Changed,
            Change::Removed => Foreign::Removed,
        };
        let mut missing = Vec::new();
        let mut answered = |found: Result<Change, chiton_namespace::Fault>| match found.map_err(Stop::from) {
            Ok(change) => Ok(foreign(change)),
            Err(Stop::Missing(needs)) => {
                missing.extend(needs);
                Ok(Foreign::Same)
            }
            Err(stop) => Err(stop),
        };
        let ns = &self.ns;
        let inodes: Result<Vec<_>, Stop> =
            inodes.iter().map(|ino| answered(foreign_to_inode(ns, *ino, map))).collect();
        let names: Result<Vec<_>, Stop> =
            names.iter().map(|(dir, name)| answered(foreign_to_name(ns, *dir, name, map))).collect();
        let (inodes, names) = (inodes?, names?);
        if missing.is_empty() {
            Ok((RealmAnswer::Foreign { inodes, names }, NOW))
        } else {
            Err(Stop::Missing(missing))
        }
    }
}
