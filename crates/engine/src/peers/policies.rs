//! Policies of several plates. Every plate has all of them: the plate of the directory decides a change, and owes it to all others. A
//! plate asks another for the realm of a directory that the other one owns.
//!
//! ```text
//!   set a policy on d, d on plate 1                         create in e on plate 2, whose parent d is on plate 1
//!     1 guards d, takes the token, reads the way up           2 ── AskRealm(d, version) ─▶ 1   once it has that version
//!     1   frame [policy, owes all]                            2 ◀── Realm(d, version) ──── 1
//!     1 ── Effect [policy] ─▶ 2, 3 …                          2   remembers it until the next change of a policy
//!     1 ◀── CarriedOut ────── 2, 3 …  once that is durable
//!     1 ── RecallNames ─────▶ 2, 3 …  recall the names that clients hold exclusively
//!     1 ◀── NamesRecalled ─── 2, 3 …  ─▶ answers the client
//! ```
//!
//! Invariants:
//! - Names never leave their realm, so the realm of a directory changes only with a policy. A change of a policy holds the token until
//!   all plates have it, so no directory moves meanwhile, and versions have one order.
//! - A question about a realm waits for rows, for further such questions, and for policies and births that are decided and on their
//!   way, and for nothing else. So requests that hold guards may ask it.
//! - A directory that is decided on one plate and born on another may be asked about before its birth arrives. The answer waits for the
//!   birth, because the asker remembers it: an answer that there is no such directory would refuse renames into it (EXDEV) for good.
//! - The answer to a change of a policy comes when no client acknowledges anything under the policies before.

use chiton_namespace::{Fault, Namespace};
use chiton_types::{Ino, PlateId};
use chiton_wire::{OpKey, PeerMessage};

use super::Peers;
use crate::engine::Engine;
use crate::moment::Moment;
use crate::step::Stop;
use crate::wait_queue::Wait;

impl Peers {
    /// Whether a change of a policy waits for other plates.
    pub(crate) fn is_settling(&self, key: OpKey) -> bool {
        self.settling.contains_key(&key)
    }

    /// A change of a policy is written here, and owed to all others.
    pub(super) fn policy_decided(&mut self, key: OpKey) {
        self.settling.insert(key, self.others.keys().copied().collect());
    }

    /// Questions about policies that another plate has not answered.
    pub(super) fn asked_of_policies(&self, ns: &Namespace, plate: PlateId) -> Vec<PeerMessage> {
        let version = ns.policy_version();
        let realms = self.asked_realms.iter().filter(|ino| self.plates.of(**ino) == Some(plate));
        let realms = realms.map(|ino| PeerMessage::AskRealm { ino: *ino, version });
        let peer = &self.others[&plate];
        let is_owed = |key: &OpKey| peer.owed.values().any(|owed| owed.key == *key);
        // Another plate is asked once it has carried out the change.
        let settling = self.settling.iter().filter(|(key, plates)| plates.contains(&plate) && !is_owed(key));
        let names = settling.map(|(key, _)| PeerMessage::RecallNames { key: *key });
        realms.chain(names).collect()
    }
}

impl Engine {
    /// A request begins to wait, and the plate asks others for what it needs.
    pub(crate) fn ask_for(&mut self, wait: &Wait) {
        if let Wait::Subtree(question) = wait {
            return self.ask_about_subtree(question);
        }
        let (Wait::Realm(ino), Some(peers)) = (wait, &mut self.peers) else { return };
        let Some(plate) = peers.other_of(*ino) else { return };
        if peers.asked_realms.insert(*ino) && peers.others[&plate].boot != 0 {
            let version = self.shards.ns.policy_version();
            peers.send(plate, PeerMessage::AskRealm { ino: *ino, version }, &mut self.queue);
        }
    }

    /// Another plate asks for the realm of a directory.
    pub(super) fn show_realm(&mut self, to: PlateId, ino: Ino, asked: u64) -> Result<(), Stop> {
        let version = self.shards.ns.policy_version();
        if version < asked {
            return Err(Stop::Wait(Wait::Policies));
        }
        self.await_birth(ino)?;
        let realm = match self.shards.ns.realm(ino) {
            // A directory that is gone has nothing below it.
            Err(Fault::Refused(_) | Fault::Elsewhere(_)) => Ino::ROOT,
            realm => realm?,
        };
        if let Some(peers) = &self.peers {
            peers.send(to, PeerMessage::Realm { ino, version, realm }, &mut self.queue);
        }
        Ok(())
    }

    /// Another plate has said to which realm a directory belongs. If the answer is for other policies, the question is put again when
    /// these have come.
    pub(super) fn realm_came(&mut self, ino: Ino, version: u64, realm: Ino) {
        let Some(peers) = &mut self.peers else { return };
        if self.shards.ns.learn_realm(ino, realm, version) {
            peers.asked_realms.remove(&ino);
            self.wake_where(|wait| *wait == Wait::Realm(ino));
        }
    }

    /// A policy has changed here.
    pub(crate) fn policies_changed(&mut self) {
        if let Some(peers) = &mut self.peers {
            peers.asked_realms.clear();
            self.wake_where(|wait| matches!(wait, Wait::Realm(_) | Wait::Policies));
        }
    }

    /// Recalls the names that clients hold exclusively, for a change of a policy that is carried out here.
    pub(super) fn recall_all_names(&mut self, from: PlateId, key: OpKey, m: &Moment) -> Result<(), Stop> {
        let holders = self.clients.leases.any_names_conflict(m.mono);
        if !holders.is_empty() {
            return Err(Stop::Wait(Wait::Leases(holders)));
        }
        if let Some(peers) = &self.peers {
            peers.send(from, PeerMessage::NamesRecalled { key }, &mut self.queue);
        }
        Ok(())
    }

    /// Clients hold no names any more at another plate under the policies before a change.
    pub(super) fn names_recalled(&mut self, at: PlateId, key: OpKey) {
        let Some(peers) = &mut self.peers else { return };
        let Some(plates) = peers.settling.get_mut(&key) else { return };
        plates.remove(&at);
        if plates.is_empty() {
            peers.settling.remove(&key);
            self.wake_where(|wait| *wait == Wait::PolicySet(key));
        }
    }
}
