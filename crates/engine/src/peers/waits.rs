//! Requests wait for rows that are guarded, and for inodes that another plate is about to make.

use chiton_model::Op;
use chiton_types::Ino;
use chiton_wire::{Call, Query, RealmCall};
use smallvec::SmallVec;

use super::{Peers, order};
use crate::engine::Engine;
use crate::step::Stop;
use crate::wait_queue::Wait;

impl Peers {
    /// Waits until none of these rows is guarded, and names that were brought home are there durably. The row that a guard has shown stays as it is, and no request sees a row that an effect
    /// is about to change.
    #[inline]
    pub(crate) fn await_unguarded(&self, inodes: &[Ino]) -> Result<(), Stop> {
        self.await_folds(inodes)?;
        if self.guards.is_empty() {
            return Ok(());
        }
        match inodes.iter().find(|ino| self.guards.contains_key(ino)) {
            Some(ino) => Err(Stop::Wait(Wait::Guarded(*ino))),
            None => Ok(()),
        }
    }
}

impl Engine {
    /// Waits until no row that a question names is guarded, and every inode that it names is born. Operations ask for themselves
    /// ([`Engine::await_rows`]).
    pub(crate) fn await_peers(&mut self, call: &Call) -> Result<(), Stop> {
        if !call.ops().is_empty() || self.peers.as_ref().is_none_or(|peers| !peers.may_hold_up()) {
            return Ok(());
        }
        let mut named = Vec::new();
        match call {
            Call::LeaseNames { dir: ino, .. } | Call::Query(Query::GetXattr { ino, .. }) => named.push(*ino),
            Call::Realm(call) => match &**call {
                RealmCall::Decouple { root: ino, .. }
                | RealmCall::Of { ino }
                | RealmCall::BlockedBy { ino, .. } => named.push(*ino),
                _ => {}
            },
            _ => {}
        }
        let _: Result<(), ()> = call.visit_footprint(|ino, _| {
            named.push(ino);
            Ok(())
        });
        self.await_inodes(&named)
    }

    /// The same for one inode.
    pub(crate) fn await_peers_at(&mut self, ino: Ino) -> Result<(), Stop> {
        match self.peers.as_ref().is_some_and(|peers| peers.may_hold_up()) {
            true => self.await_inodes(&[ino]),
            false => Ok(()),
        }
    }

    /// Waits until no row that an operation looks at is guarded for another, and every inode that it names is born.
    pub(crate) fn await_rows(&mut self, op: &Op) -> Result<(), Stop> {
        let Some(peers) = self.peers.as_ref().filter(|peers| peers.may_hold_up()) else { return Ok(()) };
        let footprint = op.footprint();
        let mut named: SmallVec<[Ino; 8]> = footprint.inodes().iter().map(|touch| touch.ino).collect();
        if !peers.guards.is_empty() {
            for touch in footprint.names().filter(|touch| self.shards.ns.owns(touch.dir)) {
                named.extend(order::bearer(&self.shards.ns, touch.dir, touch.name)?);
            }
        }
        self.await_inodes(&named)
    }

    fn await_inodes(&mut self, named: &[Ino]) -> Result<(), Stop> {
        if let Some(peers) = &self.peers {
            peers.await_unguarded(named)?;
        }
        named.iter().try_for_each(|ino| self.await_birth(*ino))
    }
}
