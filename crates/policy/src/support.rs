//! The part of the language that a server can carry out. The rest is refused when a policy is set, never silently accepted.

use crate::fault::{Fault, Place};
use crate::file::PolicyFile;
use crate::level::{Consistency, Durability};
use crate::mechanism::Mechanism;
use crate::policy::Policy;
use crate::values::{LeasePolicy, Placement};

/// Mechanisms that a server carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// The mechanisms that may be part of a composition.
    pub mechanisms: &'static [Mechanism],
    /// Changes of the servers may live in memory alone (`durability: none`).
    pub in_memory: bool,
}

impl Support {
    /// The mechanisms that a server carries out. `stream` is as durable as the journal's place: the disk of the data directory, or
    /// the bucket.
    pub const LOCAL: Support = Support {
        mechanisms: &[
            Mechanism::Rpcs,
            Mechanism::Stream,
            Mechanism::LocalPersist,
            Mechanism::AppendClientJournal,
            Mechanism::GlobalPersist,
            Mechanism::VolatileApply,
            Mechanism::NonvolatileApply,
        ],
        in_memory: true,
    };

    /// The mechanisms of a file system with several plates. A subtree that clients decouple lies on one of them.
    pub const PLATES: Support = Support { in_memory: false, ..Support::LOCAL };

    /// Refuses what `file`, resolved to `policy`, asks for and cannot have.
    pub fn check(&self, file: &PolicyFile, policy: &Policy) -> Result<(), Fault> {
        let composed = [
            file.composition.as_ref().map(|at| at.place),
            file.consistency.as_ref().map(|at| at.place),
            file.durability.as_ref().map(|at| at.place),
        ];
        let place = composed.into_iter().flatten().next().unwrap_or(Place::START);
        for mechanism in policy.composition.mechanisms() {
            if !self.mechanisms.contains(&mechanism) {
                let there: Vec<&str> = self.mechanisms.iter().map(|m| m.name()).collect();
                let reason = format!(
                    "this version of Chiton does not carry out {} yet, only {}",
                    mechanism.name(),
                    there.join(", ")
                );
                return Err(Fault::new(place, reason).or_rather("durability: none | local | global"));
            }
        }
        // A decoupled client has its memory to itself.
        let is_servers = policy.consistency() == Consistency::Strong;
        if !self.in_memory && is_servers && policy.durability() == Durability::None {
            let reason = "a file system with several plates journals every change".to_owned();
            return Err(Fault::new(place, reason).or_rather("durability: local | global"));
        }
        // A client that works without the server writes its own journal; the server has one for all.
        let is_clients = policy.consistency() != Consistency::Strong;
        let keys = [
            (
                file.flush_interval
                    .as_ref()
                    .filter(|at| at.value != Policy::default().flush_interval && !is_clients)
                    .map(|at| at.place),
                "flush_interval",
            ),
            (
                file.placement
                    .as_ref()
                    .filter(|at| matches!(at.value, Placement::Servers(_)))
                    .map(|at| at.place),
                "placement",
            ),
            (file.lease.as_ref().filter(|at| at.value != LeasePolicy::DEFAULT).map(|at| at.place), "lease"),
            (file.retain.as_ref().filter(|at| at.value.ms() > 0).map(|at| at.place), "retain"),
        ];
        match keys.into_iter().find_map(|(place, key)| Some((place?, key))) {
            None => Ok(()),
            Some((place, key)) => {
                let reason =
                    format!("this version of Chiton does not carry out `{key}` yet: leave the key out");
                Err(Fault::new(place, reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_carried_out_is_named() {
        for (text, named) in [
            ("composition: append_client_journal", None),
            (
                "composition: append_client_journal + local_persist + volatile_apply\nflush_interval: 10s",
                None,
            ),
            ("consistency: weak\ndurability: global", None),
            ("composition: create + persist + nonvolatile_apply", None),
            ("consistency: invisible\ndurability: none\non_conflict: abort", None),
            ("durability: geo", Some("replicate")),
            ("retain: 7d", Some("`retain`")),
            ("data: lazy", None),
            ("data: close_to_open", None),
            ("flush_interval: 10s", Some("`flush_interval`")),
            ("placement: near", None),
            ("huge: always", None),
            ("huge: never\nplacement: near", None),
            ("placement: servers=[a]", Some("`placement`")),
            ("lease: quota", Some("`lease`")),
            ("huge: threshold\nhuge_threshold: 0", None),
            ("huge: auto", None),
            ("durability: none", None),
            ("durability: local\ninterfere_policy: block\nallocated_inodes: 5", None),
            (
                "composition: rpcs + stream\ndata: linearizable\nacknowledge: durable\nflush_interval: 1s\nlease: best_effort",
                None,
            ),
            ("", None),
        ] {
            let file = PolicyFile::parse(text).expect(text);
            let policy = Policy::resolve(&file, &Policy::default()).expect(text);
            match (Support::LOCAL.check(&file, &policy), named) {
                (Ok(()), None) => {}
                (Err(fault), Some(named)) => assert!(fault.reason.contains(named), "{text}: {fault}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }
}
