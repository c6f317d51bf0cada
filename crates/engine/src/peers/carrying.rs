//! Paths that lead over several plates. The plate that a client asks follows the path as far as it has the directories. Then it
//! asks the next plate to carry the path on, and so forth, until it can answer.
//!
//! ```text
//!   client ── Resolve ──▶ 1   a/b on 1
//!                         1 ── Carry(c/d, in b) ─▶ 2   c on 2
//!                         1 ◀─ Carried(c, d → 3) ─ 2   once what it shows is durable
//!                         1 ── Carry(, d) ───────▶ 3
//!          ◀── Resolved ─ 1 ◀─ Carried(d) ──────── 3
//! ```
//!
//! Invariants:
//! - Nothing is shown to another plate before it is durable: a client that acts on it need not make that plate commit.
//! - The plate that carries a path on grants its leases to the client's own session with it, and to none if there is no such session.
//! - A question that is lost with a start or a connection is asked again after the greeting; a second answer has no effect.
//! - A plate that waits for its sessions after a start carries nothing.

use std::collections::BTreeMap;

use chiton_types::{Cred, PlateId, Position, Refusal};
use chiton_wire::{Answer, Call, Failure, PeerMessage, Query, Resolved, Walk};

use crate::engine::Engine;
use crate::moment::{Health, Moment};
use crate::path::{Carried, Going};
use crate::sessions::Slot;
use crate::step::Stop;
use crate::wait_queue::{Task, Wait};

/// Plates at which a path is asked for, one after the other, at most: each component may be on another one, and each link may lead back.
const HOPS_MAX: u32 = 4_096;
/// A path is followed from its start again so often.
const TRIES_MAX: u32 = 8;

/// How far a request for a path is that leads over several plates.
#[derive(Clone, Debug)]
pub(crate) struct Resolving {
    going: Going,
    /// The question that another plate is to answer.
    asked: Option<u64>,
    /// The answer, once it has come.
    said: Option<Said>,
    hops: u32,
    /// How often it has begun again: an inode went while the path was on its way to its plate.
    tries: u32,
    /// At the plate that was asked: the answer, and the position that must be durable first.
    shown: Option<(Position, PeerMessage)>,
}

/// The answer of another plate.
type Said = Result<(Resolved, Option<Walk>), Failure>;

/// Questions to other plates that the requests of clients wait for.
#[derive(Default)]
pub(super) struct Carrying {
    last: u64,
    asked: BTreeMap<u64, (PlateId, PeerMessage)>,
}

impl Carrying {
    /// Questions that a plate has not answered.
    pub(super) fn asked_of(&self, plate: PlateId) -> Vec<PeerMessage> {
        let of_plate = self.asked.values().filter(|(of, _)| *of == plate);
        of_plate.map(|(_, message)| message.clone()).collect()
    }

    /// Forgets questions whose client is gone.
    pub(super) fn keep(&mut self, is_wanted: impl Fn(u64) -> bool) {
        self.asked.retain(|number, _| is_wanted(*number));
    }
}

impl Engine {
    /// A client's question for a path.
    pub(crate) fn resolve(&mut self, task: &mut Task, slot: Slot, m: &Moment) -> Result<Answer, Stop> {
        loop {
            let resolved = self.resolve_on(task, slot, m);
            let is_gone = matches!(resolved, Err(Stop::Fail(Failure::Refused(Refusal::Stale))));
            let Some(resolving) =
                task.resolving.as_mut().filter(|resolving| is_gone && resolving.tries < TRIES_MAX)
            else {
                return resolved;
            };
            let Call::Query(Query::Resolve { from, path, follow, .. }) = &task.request.call else {
                return resolved;
            };
            // Its name led here at one moment, and is another's or nobody's by now.
            let roots = (self.settings.root, self.root_of_session(task.session, m)?);
            let going = Going::begin(roots, *from, path, *follow)?;
            let tries = resolving.tries + 1;
            **resolving = Resolving { going, asked: None, said: None, hops: 0, tries, shown: None };
        }
    }

    /// Goes on from where it is.
    fn resolve_on(&mut self, task: &mut Task, slot: Slot, m: &Moment) -> Result<Answer, Stop> {
        let Call::Query(Query::Resolve { from, path, follow, sessions }) = &task.request.call else {
            unreachable!("called for paths only")
        };
        let limit = self.root_of_session(task.session, m)?;
        let cred = &task.request.cred;
        if let Some(resolving) = &mut task.resolving
            && let Some(number) = resolving.asked
        {
            let Some(said) = resolving.said.take() else {
                return Err(Stop::Wait(Wait::Carried(number)));
            };
            let (passed, onward) = said?;
            if !resolving.going.went(passed, onward.as_ref())? {
                return Ok(Answer::Resolved(std::mem::take(&mut resolving.going.passed)));
            }
            // The rest of the path may have to wait for rows, and begin here again.
            resolving.asked = None;
        }
        let (mut going, hops, tries) = match &task.resolving {
            Some(resolving) => (resolving.going.clone(), resolving.hops + 1, resolving.tries),
            None => (Going::begin((self.settings.root, limit), *from, path, *follow)?, 1, 0),
        };
        // Another plate may have named a part that it is about to make here.
        self.await_birth(going.at)?;
        let next = match self.queries(cred, slot, m).walk(&mut going)? {
            Carried::ToTheEnd => return Ok(Answer::Resolved(going.passed)),
            Carried::To(next) => next,
        };
        let plate = self.peers.as_ref().and_then(|peers| peers.other_of(next)).ok_or(Refusal::Stale)?;
        if hops > HOPS_MAX {
            return Err(Refusal::Loop.into());
        }
        let session = sessions.get(usize::from(plate.0)).copied().unwrap_or_default();
        let peers = self.peers.as_mut().expect("it has named a plate");
        peers.carried.last += 1;
        let number = peers.carried.last;
        let identity = self.clients.sessions.get(task.session).map(|own| own.identity.clone().into_bytes());
        let (identity, cred, walk) = (identity.unwrap_or_default(), cred.clone(), going.walk());
        let message = PeerMessage::Carry { number, session, identity, cred, walk };
        peers.carried.asked.insert(number, (plate, message.clone()));
        if peers.others[&plate].boot != 0 {
            peers.send(plate, message, &mut self.queue);
        }
        task.resolving =
            Some(Box::new(Resolving { going, asked: Some(number), said: None, hops, tries, shown: None }));
        Err(Stop::Wait(Wait::Carried(number)))
    }

    /// Another plate has carried a path on, or refuses.
    pub(super) fn was_carried(&mut self, from: PlateId, number: u64, said: Said) {
        let Some(peers) = &mut self.peers else { return };
        if peers.carried.asked.get(&number).is_none_or(|(of, _)| *of != from) {
            return;
        }
        peers.carried.asked.remove(&number);
        let mut said = Some(said);
        for ticket in self.queue.waiting.select(|_, wait| *wait == Wait::Carried(number)) {
            let Some(mut task) = self.queue.dequeue(ticket, &mut self.clients.leases) else { continue };
            if let Some(resolving) = &mut task.resolving {
                resolving.said = said.take();
            }
            self.queue.ready.push_back(task);
        }
    }

    /// Carries a path on for another plate.
    pub(super) fn carry_on(&mut self, task: &mut Task, m: &Moment) -> Result<Answer, Stop> {
        let Some((from, PeerMessage::Carry { number, session, identity, cred, walk })) = task.asked_by_peer()
        else {
            unreachable!("called for these only")
        };
        let (from, number) = (*from, *number);
        let shown = task.resolving.as_ref().and_then(|resolving| resolving.shown.clone());
        let (position, message) = match shown {
            Some(shown) => shown,
            None => {
                if self.peers.as_ref().is_some_and(|peers| peers.opened_at.is_none()) {
                    return Err(Stop::Wait(Wait::Recovery));
                }
                // A client might name another's session, which would get leases that it did not ask for.
                let own = self.clients.sessions.get(*session);
                let own = own.filter(|own| own.identity.as_bytes() == &identity[..]);
                let slot = own.map_or(Slot::SERVER, |own| own.slot);
                let (going, message) = self.walk_on((number, walk), cred, slot, m)?;
                let position = going.last_change();
                let shown = Some((position, message.clone()));
                task.resolving =
                    Some(Box::new(Resolving { going, asked: None, said: None, hops: 0, tries: 0, shown }));
                (position, message)
            }
        };
        let Some(peers) = &mut self.peers else { return Ok(Answer::Done) };
        if position > m.durable {
            if m.health == Health::Failed {
                let failure = Failure::Refused(Refusal::Io);
                peers.send(from, PeerMessage::NotCarried { number, failure }, &mut self.queue);
                return Ok(Answer::Done);
            }
            peers.wants_commit = true;
            return Err(Stop::Wait(Wait::Durable(position)));
        }
        peers.send(from, message, &mut self.queue);
        Ok(Answer::Done)
    }

    /// Follows it as far as this plate has it. Returns the walk, with the rows that the answer rests on, and the answer.
    fn walk_on(
        &mut self,
        (number, walk): (u64, &Walk),
        cred: &Cred,
        slot: Slot,
        m: &Moment,
    ) -> Result<(Going, PeerMessage), Stop> {
        self.await_birth(walk.at)?;
        let mut going = Going::onward(walk)?;
        let failure = match self.queries(cred, slot, m).walk(&mut going) {
            Ok(carried) => {
                let onward = matches!(carried, Carried::To(_)).then(|| going.walk());
                let passed = going.passed.clone();
                return Ok((going, PeerMessage::Carried { number, passed, onward }));
            }
            Err(Stop::Fail(failure)) => failure,
            Err(stop) => return Err(stop),
        };
        Ok((going, PeerMessage::NotCarried { number, failure }))
    }
}
