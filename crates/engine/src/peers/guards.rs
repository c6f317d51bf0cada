//! The owner's side of guards.
//!
//! Invariants:
//! - A row has one guard at most. It is granted when its frame is durable, with the row as it then is and stays.
//! - While a plate waits for its sessions after a start it grants only guards that its journal holds already.

use chiton_model::Event;
use chiton_namespace::PlanState;
use chiton_types::{Ino, Kind, PlateId, Position};
use chiton_wire::{GuardedRow, LeaseMode, OpKey, PeerMessage};
use smallvec::smallvec;

use super::Guard;
use crate::engine::Engine;
use crate::moment::Moment;
use crate::sessions::Slot;
use crate::step::Stop;
use crate::wait_queue::{Task, Wait};

impl Engine {
    /// Guards a row for an operation of another plate, and grants it.
    pub(super) fn guard_row(
        &mut self,
        from: PlateId,
        (key, attempt, takes_over): (OpKey, u64, bool),
        ino: Ino,
        m: &Moment,
    ) -> Result<(), Stop> {
        let Some(peers) = &self.peers else { return Ok(()) };
        let boot = peers.others[&from].boot;
        match peers.guards.get(&ino) {
            Some(guard)
                if (guard.holder, guard.key) == (from, key)
                    && (takes_over || (guard.boot, guard.attempt) == (boot, attempt)) =>
            {
                let position = guard.position;
                if position > m.durable {
                    return Err(Stop::Wait(Wait::Durable(position)));
                }
                let row = self.guarded_row(ino)?;
                return self.grant(from, (key, attempt), ino, row);
            }
            Some(_) => return Err(Stop::Wait(Wait::Guarded(ino))),
            None if peers.opened_at.is_none() => return Err(Stop::Wait(Wait::Recovery)),
            None => {}
        }
        self.await_birth(ino)?;
        match self.guarded_row(ino) {
            Ok(_) => {}
            Err(Stop::Missing(needs)) => return Err(Stop::Missing(needs)),
            Err(_) => return self.grant(from, (key, attempt), ino, None),
        }
        self.may_change(m)?;
        let leases = &mut self.clients.leases;
        if leases.conflict(ino, Slot::SERVER, LeaseMode::None, m.mono)
            || leases.names_taken(ino, Slot::SERVER, m.mono)
        {
            return Err(Stop::Wait(Wait::Leases(smallvec![ino])));
        }
        let OpKey { session, seq } = key;
        self.commit_peer_event(&Event::Guarded { ino, holder: from, boot, attempt, session, seq });
        if let Some(peers) = &mut self.peers {
            peers.wants_commit = true;
        }
        Err(Stop::Wait(Wait::Durable(self.output.position)))
    }

    fn guarded_row(&self, ino: Ino) -> Result<Option<GuardedRow>, Stop> {
        let ns = &self.shards.ns;
        let attr = ns.attr(ino)?;
        let is_empty = match attr.kind {
            Kind::Dir => PlanState::is_empty(ns, &PlanState::inode(ns, ino)?)?,
            _ => true,
        };
        Ok(Some(GuardedRow { attr, is_empty }))
    }

    fn grant(
        &mut self,
        to: PlateId,
        (key, attempt): (OpKey, u64),
        ino: Ino,
        row: Option<GuardedRow>,
    ) -> Result<(), Stop> {
        if let Some(peers) = &self.peers {
            peers.send(to, PeerMessage::Granted { key, attempt, ino, row }, &mut self.queue);
        }
        Ok(())
    }

    /// Guards that another plate does not need any more, and its requests for such.
    pub(super) fn end_guards(&mut self, holder: PlateId, ended: impl Fn(&Guard) -> bool) {
        let Some(peers) = &self.peers else { return };
        let boot = peers.others[&holder].boot;
        self.drop_tasks(|task| match task.asked_by_peer() {
            Some((from, PeerMessage::Guard { key, attempt, .. })) => {
                let asked = Guard { holder, key: *key, boot, attempt: *attempt, position: Position(0) };
                *from == holder && ended(&asked)
            }
            _ => false,
        });
        let Some(peers) = &self.peers else { return };
        let is_ended = |(_, guard): &(&Ino, &Guard)| guard.holder == holder && ended(guard);
        let guards = peers.guards.iter().filter(is_ended).map(|(ino, guard)| (*ino, guard.key));
        for (ino, OpKey { session, seq }) in guards.collect::<Vec<_>>() {
            self.commit_peer_event(&Event::GuardEnded { ino, holder, session, seq });
        }
        self.wake_unguarded();
    }

    /// Drops requests of other plates, wherever they are.
    pub(super) fn drop_tasks(&mut self, which: impl Fn(&Task) -> bool) {
        if let Some(peers) = &mut self.peers {
            peers.tasks.retain(|task| !which(task));
        }
        self.queue.ready.retain(|task| !which(task));
        for ticket in self.queue.waiting.select(|task, _| which(task)) {
            self.queue.dequeue(ticket, &mut self.clients.leases);
        }
    }

    /// A plate has carried out again what it had answered before its start.
    pub(super) fn peer_opened(&mut self, plate: PlateId) {
        let Some(peers) = &self.peers else { return };
        let boot = peers.others[&plate].boot;
        if peers.lent.values().any(|lent| lent.to == plate && lent.boot < boot) {
            self.commit_peer_event(&Event::PeerOpened { plate, boot });
        }
        self.wake_where(|wait| matches!(wait, Wait::Birth(_)));
    }

    /// Requests for rows that are guarded no more go on.
    pub(super) fn wake_unguarded(&mut self) {
        let Some(peers) = &self.peers else { return };
        let guards = &peers.guards;
        let is_free = |wait: &Wait| matches!(wait, Wait::Guarded(ino) if !guards.contains_key(ino));
        self.queue.wake_where(is_free, &mut self.clients.leases);
    }
}

impl super::Peers {
    pub(super) fn note_guard(&mut self, ino: Ino, guard: Guard) {
        self.guards.insert(ino, guard);
    }

    /// A guard ends.
    pub(super) fn note_guard_end(&mut self, ino: Ino) {
        if self.guards.remove(&ino).is_some() {
            self.removed.push(super::rows::guard_key(ino));
        }
    }

    /// The guards of an operation end.
    pub(super) fn note_guards_end(&mut self, holder: PlateId, key: OpKey) {
        let is_ended = |guard: &Guard| (guard.holder, guard.key) == (holder, key);
        let ended = self.guards.iter().filter(|(_, guard)| is_ended(guard)).map(|(ino, _)| *ino);
        for ino in ended.collect::<Vec<_>>() {
            self.note_guard_end(ino);
        }
    }
}
