//! How much is under way between this plate and the others, for metrics.

use crate::engine::Engine;

/// All zero with one plate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerGauges {
    /// Own rows that are guarded for operations of other plates.
    pub guards: usize,
    /// Operations that are decided here and wait for rows of other plates.
    pub crossings: usize,
    /// Decided effects that other plates have not carried out durably.
    pub outbox: usize,
    /// Requests of other plates that wait to be worked on.
    pub requests: usize,
    /// Ranges of own inode numbers that other plates may use.
    pub lent_ranges: usize,
    /// Other plates that have not answered the greeting of this start.
    pub ungreeted: usize,
}

impl Engine {
    pub fn peer_gauges(&self) -> PeerGauges {
        let Some(peers) = &self.peers else { return PeerGauges::default() };
        PeerGauges {
            guards: peers.guards.len(),
            crossings: peers.crossings.len(),
            outbox: peers.others.values().map(|other| other.owed.len()).sum(),
            requests: peers.tasks.len(),
            lent_ranges: peers.lent.len(),
            ungreeted: peers.others.values().filter(|other| !other.has_answered).count(),
        }
    }
}
