//! The owner's side of guards.
//!
//! Invariants:
//! - A row has one guard at most. It is granted when its frame is durable, with the row as it then is and stays.
//! - While a plate waits for its sessions after a start it grants only guards that its journal holds already.
//! - An operation that asks late, out of order, waits for no other operation.
//! - Every request is granted, or sent back as late, in the end. While the plate cannot write it waits.

use chiton_model::Event;
use chiton_namespace::permission::ACL_ACCESS;
use chiton_namespace::{Entries, Fault, PlanState};
use chiton_types::{Attr, Ino, Kind, Name, PlateId, Position, Refusal};
use chiton_wire::{DECOUPLINGS, GuardedRow, LeaseMode, OpKey, PeerMessage, TOKEN};
use smallvec::smallvec;

use super::Guard;
use super::keeper::ends;
use crate::engine::Engine;
use crate::fold::FOLDED_MAX;
use crate::moment::Moment;
use crate::sessions::Slot;
use crate::step::Stop;
use crate::wait_queue::{Task, Wait};

/// A request for a guard.
pub(super) struct Asked<'a> {
    pub(super) key: OpKey,
    pub(super) attempt: u64,
    pub(super) takes_over: bool,
    pub(super) is_late: bool,
    pub(super) entries: bool,
    pub(super) ino: Ino,
    pub(super) name: Option<&'a Name>,
    /// Of the client that keeps its leases, or 0.
    pub(super) client: u64,
}

impl Engine {
    /// Guards a row for an operation of another plate, and grants it.
    pub(super) fn guard_row(&mut self, from: PlateId, asked: &Asked<'_>, m: &Moment) -> Result<(), Stop> {
        let Asked { key, attempt, takes_over, is_late, entries, ino, name, client } = *asked;
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
                let row = if ino == TOKEN { None } else { self.guarded_row(ino, name, entries)? };
                return self.grant(from, (key, attempt), ino, row);
            }
            guard => {
                let is_open = peers.opened_at.is_some();
                if is_late && (guard.is_some() || !is_open) {
                    peers.send(from, PeerMessage::Occupied { key, attempt, ino }, &mut self.queue);
                    return Ok(());
                }
                if guard.is_some() {
                    return Err(Stop::Wait(Wait::Guarded(ino)));
                }
                if !is_open {
                    return Err(Stop::Wait(Wait::Recovery));
                }
            }
        }
        if !is_of_no_inode(ino) {
            self.await_birth(ino)?;
            match self.guarded_row(ino, name, entries) {
                Ok(_) => {}
                Err(Stop::Missing(needs)) => return Err(Stop::Missing(needs)),
                Err(_) => return self.grant(from, (key, attempt), ino, None),
            }
            match self.may_change(m) {
                // No message refuses a guard: the request waits until its frame can be written.
                Err(Stop::Fail(_)) => return Err(Stop::Wait(Wait::Room)),
                may_change => may_change?,
            }
            let attr = self.shards.ns.attr(ino)?;
            // A request with a name is for a directory of a rename.
            let keeps = name.is_some() || ends(&attr, self.clients.opens.is_open(ino));
            let slot = self.clients.sessions.slot_of_client(client).filter(|_| keeps);
            let keeper = slot.unwrap_or(Slot::SERVER);
            self.await_leases(ino, keeper, false, m)?;
        }
        let OpKey { session, seq } = key;
        self.commit_peer_event(&Event::Guarded { ino, holder: from, boot, attempt, session, seq });
        if let Some(peers) = &mut self.peers {
            peers.wants_commit = true;
        }
        Err(Stop::Wait(Wait::Durable(self.output.position)))
    }

    /// Waits until no client but `keeper` has a lease on an inode, and none has pending operations in it. None is waited for by an
    /// operation that took place before they got them.
    pub(super) fn await_leases(
        &mut self,
        ino: Ino,
        keeper: Slot,
        is_settled: bool,
        m: &Moment,
    ) -> Result<(), Stop> {
        match self.shards.ns.attr(ino) {
            Err(Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
            Err(_) => return Ok(()),
            Ok(_) => {}
        }
        let leases = &mut self.clients.leases;
        let is_leased = !is_settled
            && (leases.conflict(ino, keeper, LeaseMode::None, m.mono)
                || leases.names_taken(ino, Slot::SERVER, m.mono));
        if is_leased { Err(Stop::Wait(Wait::Leases(smallvec![ino]))) } else { Ok(()) }
    }

    fn guarded_row(&self, ino: Ino, name: Option<&Name>, entries: bool) -> Result<Option<GuardedRow>, Stop> {
        let ns = &self.shards.ns;
        if ino == DECOUPLINGS {
            let roots = ns.decouplings().map(|decoupling| decoupling.root());
            return Ok(Some(GuardedRow::of_decouplings(roots.collect())));
        }
        let attr = ns.attr(ino)?;
        let facts = PlanState::inode(ns, ino)?;
        let is_dir = attr.kind == Kind::Dir;
        let is_empty = !is_dir || PlanState::is_empty(ns, &facts)?;
        let mut kept = self.shards.kept(ino, name.is_some())?;
        let named = match name.filter(|_| is_dir).map(|name| ns.named(ino, name)) {
            // The client does not know where the name is.
            Some(Err(Fault::Refused(Refusal::OtherPart))) => {
                kept = Some(Refusal::OtherPart);
                None
            }
            Some(named) => named?,
            None => None,
        };
        let list = match attr.flags & Attr::ACCESS_LIST {
            0 => None,
            _ => PlanState::xattrs(ns, &facts)?.and_then(|xattrs| xattrs.0.get(ACL_ACCESS).cloned()),
        };
        let parts = ns.parts(ino)?.into_iter().map(|part| part.ino).filter(|part| *part != ino).collect();
        let (kept, entries) = match entries && is_dir && kept.is_none() {
            true => {
                self.entries_to_fold(ino)?.map_or((Some(Refusal::ArgTooBig), None), |all| (None, Some(all)))
            }
            false => (kept, None),
        };
        Ok(Some(GuardedRow { attr, is_empty, named, access: list, kept, parts, entries }))
    }

    /// The entries of a part, unless they are too many to be brought home.
    fn entries_to_fold(&self, part: Ino) -> Result<Option<Entries>, Stop> {
        let ns = &self.shards.ns;
        if ns.entries_of(part)? > FOLDED_MAX as u64 {
            return Ok(None);
        }
        let page = ns.readdir(part, 0, FOLDED_MAX + 1)?;
        let entries = page.entries.into_iter().map(|(name, ino, kind, _)| (name, (ino, kind)));
        Ok(page.end.then(|| entries.collect()))
    }

    /// A directory above the target of a move, as it is: the move holds the token, so it keeps its parent.
    pub(super) fn show_place(
        &mut self,
        to: PlateId,
        (key, attempt): (OpKey, u64),
        ino: Ino,
        child: Option<Ino>,
    ) -> Result<(), Stop> {
        let attr = found(self.shards.ns.attr(ino))?;
        let name = match child {
            Some(child) => found(self.shards.ns.name_held(ino, child))?,
            None => None,
        };
        let name = name.and_then(|name| Name::new(&name).ok());
        if let Some(peers) = &self.peers {
            peers.send(to, PeerMessage::Place { key, attempt, ino, attr, name }, &mut self.queue);
        }
        Ok(())
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
    pub(super) fn end_guards(&mut self, holder: PlateId, ended: impl Fn(Ino, &Guard) -> bool) {
        let Some(peers) = &self.peers else { return };
        let boot = peers.others[&holder].boot;
        self.drop_tasks(|task| match task.asked_by_peer() {
            Some((from, PeerMessage::Guard { key, attempt, ino, .. })) => {
                let asked = Guard { holder, key: *key, boot, attempt: *attempt, position: Position(0) };
                *from == holder && ended(*ino, &asked)
            }
            _ => false,
        });
        let Some(peers) = &self.peers else { return };
        let is_ended = |(ino, guard): &(&Ino, &Guard)| guard.holder == holder && ended(**ino, guard);
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
    pub(super) fn peer_opened(&mut self, plate: PlateId, moves: &[OpKey]) {
        let Some(peers) = &self.peers else { return };
        let boot = peers.others[&plate].boot;
        // The effects of those that were taken over came before this.
        self.end_guards(plate, |ino, guard| {
            let keeps_token = ino == TOKEN && moves.contains(&guard.key);
            guard.boot < boot && !keeps_token
        });
        let Some(peers) = &self.peers else { return };
        if peers.lent.values().any(|lent| lent.to == plate && lent.boot < boot) {
            self.commit_peer_event(&Event::PeerOpened { plate, boot });
        }
        self.wake_where(|wait| matches!(wait, Wait::Birth(_)));
    }

    /// Resumes requests for rows that are guarded no more.
    pub(crate) fn wake_unguarded(&mut self) {
        let Some(peers) = &self.peers else { return };
        let guards = &peers.guards;
        let is_free = |wait: &Wait| matches!(wait, Wait::Guarded(ino) if !guards.contains_key(ino));
        self.queue.wake_where(is_free, &mut self.clients.leases);
        self.shards.far.wake_all();
    }
}

impl super::Peers {
    pub(super) fn note_guard(&mut self, ino: Ino, guard: Guard) {
        self.guards.insert(ino, guard);
    }

    pub(super) fn note_guard_end(&mut self, ino: Ino) {
        if self.guards.remove(&ino).is_some() {
            self.removed.push(super::rows::guard_key(ino));
        }
    }

    /// The guards of an operation end, but not the token.
    pub(super) fn note_guards_end(&mut self, holder: PlateId, key: OpKey) {
        let is_ended = |guard: &Guard| (guard.holder, guard.key) == (holder, key);
        let guards = self.guards.iter().filter(|(ino, guard)| is_ended(guard) && **ino != TOKEN);
        let ended = guards.map(|(ino, _)| *ino);
        for ino in ended.collect::<Vec<_>>() {
            self.note_guard_end(ino);
        }
    }
}

/// Whether a guard is the token's, or that of the decoupled directories here.
pub(super) fn is_of_no_inode(ino: Ino) -> bool {
    ino == TOKEN || ino == DECOUPLINGS
}

/// The row that was found; nothing if there is none.
fn found<T>(answer: Result<T, Fault>) -> Result<Option<T>, Stop> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Missing(needs)) => Err(Stop::Missing(needs)),
        Err(_) => Ok(None),
    }
}
