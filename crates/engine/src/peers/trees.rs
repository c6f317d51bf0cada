//! Trees over plates: operations of the server that free names
//! ([`crate::removed_trees`]), and the questions of a client's removal to other plates.
//!
//! Invariants:
//! - An operation that frees a name has a key of its own, which no other operation of any start has.
//! - It guards no own row. It decides while none that it changes is guarded for another, and holds nothing while it waits for that.

use chiton_types::Ino;
use chiton_wire::{DECOUPLINGS, OpKey};

use super::crossing::{Crossing, Held};
use super::keys::key_of_server;
use crate::engine::Engine;
use crate::step::Stop;
use crate::wait_queue::Wait;

impl Crossing {
    /// The roots of the subtrees that are decoupled on other plates, of an operation that guards that.
    pub(crate) fn decoupled_elsewhere(&self) -> impl Iterator<Item = Ino> {
        let rows = self.held.iter().filter(|(row, _)| row.ino == DECOUPLINGS);
        rows.flat_map(|(_, held)| match held {
            Held::Other(Some(other)) => other.row.parts.clone(),
            Held::Other(None) | Held::Own => Vec::new(),
        })
    }
}

impl Engine {
    /// For an operation that frees a name, and guards no own rows: waits until none of these is guarded for another. It holds nothing
    /// meanwhile.
    pub(super) fn await_own_rows(&mut self, key: OpKey) -> Result<(), Stop> {
        let Some(peers) = &mut self.peers else { return Ok(()) };
        let crossing = &peers.crossings[&key];
        let own = crossing.wanted.iter().filter(|row| row.plate == peers.plate);
        let Some(guarded) = own.map(|row| row.ino).find(|ino| peers.guards.contains_key(ino)) else {
            return Ok(());
        };
        if !crossing.held.is_empty() {
            peers.begin_again(key, &mut self.queue);
        }
        Err(Stop::Wait(Wait::Guarded(guarded)))
    }

    /// An operation that takes guards can continue.
    pub(super) fn wake_crossing(&mut self, key: OpKey) {
        self.wake_where(|wait| *wait == Wait::Guard(key));
        self.shards.far.wake(key);
    }

    /// A key for the next operation that frees a name.
    pub(crate) fn next_key_of_server(&mut self) -> OpKey {
        let boot = self.peers.as_ref().map_or(0, |peers| peers.boot);
        self.shards.far.last += 1;
        key_of_server(boot, self.shards.far.last)
    }
}
