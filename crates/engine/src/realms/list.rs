//! Lists of decouplings, for clients and for reports.

use chiton_model::{Decoupling, Interference};
use chiton_types::Ino;
use chiton_wire::{Claim, RealmAnswer, RealmInfo};

use super::near::PathHere;
use super::{Caller, Found, NOW, RealmHandler};
use crate::engine::Engine;
use crate::step::Stop;

impl Engine {
    /// All decouplings, as the status of the server lists them.
    pub fn realms_json(&self) -> serde_json::Value {
        let all = self.shards.ns.decouplings().map(|d| {
            let (reserved, used) = d.map.numbers();
            let path = self.shards.path_known(d.root()).ok();
            serde_json::json!({
                "realm": d.id.0,
                "inode": d.root().0,
                "path": path.map(|path| String::from_utf8_lossy(&path).into_owned()),
                "branch": d.branch.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned()),
                "owner": d.identity,
                "attached": self.clients.sessions.get(d.owner).is_some(),
                "generation": d.generation,
                "journal_at": d.journal_at,
                "policy": String::from_utf8_lossy(&d.policy),
                "interfere": match d.interference {
                    Interference::Allow => "allow",
                    Interference::Block => "block",
                    Interference::BlockWrites => "block_writes",
                },
                "since_ns": d.since.0,
                "base": d.base().0,
                "merged": d.state.merged.0,
                "batch": d.state.batch.map(|(upto, done)| serde_json::json!({ "upto": upto.0, "done": done })),
                "inodes_reserved": reserved,
                "inodes_used": used,
            })
        });
        all.collect()
    }
}

impl RealmHandler<'_> {
    pub(super) fn of(&mut self, caller: &Caller<'_>, ino: Ino) -> Found {
        let root = self.shards.ns.realm(ino)?;
        let decoupled = match self.shards.ns.decoupled_root(ino)? {
            Some(at) => self.shards.ns.decouplings_of(at).find(|d| d.branch.is_none()),
            None => None,
        };
        let decoupled = decoupled.map(|d| self.info(caller, d)).transpose()?.map(Box::new);
        Ok((RealmAnswer::Of { root, decoupled }, NOW))
    }

    pub(super) fn list_realms(&self, caller: &Caller<'_>) -> Found {
        let all: Result<Vec<RealmInfo>, Stop> =
            self.shards.ns.decouplings().map(|d| self.info(caller, d)).collect();
        Ok((RealmAnswer::Realms(all?), self.shards.realms.claims_ended))
    }

    fn info(&self, caller: &Caller<'_>, d: &Decoupling) -> Result<RealmInfo, Stop> {
        let (reserved, used) = d.map.numbers();
        let PathHere { path, above } = self.shards.path_here(d.root())?;
        Ok(RealmInfo {
            claim: Claim { realm: d.id, generation: d.generation },
            root: d.root(),
            path,
            above,
            branch: d.branch.clone(),
            owner: d.identity.clone(),
            is_attached: self.clients.sessions.get(d.owner).is_some(),
            is_own: d.owner == caller.session,
            journal_at: d.journal_at.clone(),
            policy: d.policy.clone(),
            since: d.since,
            base: d.base(),
            state: d.state,
            reserved,
            used,
            is_merging: self.merge_lock_holder(d.root()).is_some_and(|claim| claim.realm == d.id),
        })
    }
}
