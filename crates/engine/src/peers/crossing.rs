//! The deciding side: an operation waits for guards on rows of other plates, is decided, and owes its effects.
//!
//! Invariants:
//! - Guards are taken one by one, in the order (plate, inode). If the plan asks for one below a guard that the operation has, it
//!   returns all of them and begins again.
//! - With each guard the operation is planned again; if it is refused, all guards are returned.
//! - What changes the parent of a directory, and files that would live elsewhere than their names, is refused
//!   with [`Refusal::CrossDevice`].

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::{Event, Make, Op};
use chiton_namespace::permission::{self, Birth, Newborn};
use chiton_namespace::{Context, Fault, Namespace, PlanState, Planned, plan};
use chiton_types::{Attr, Cred, Ino, Kind, PlateId, Position, Refusal, Time};
use chiton_wire::{GuardedRow, OpKey, PeerMessage};

use super::view::OverPlates;
use super::{Owed, Peers};
use crate::parts::Queue;
use crate::step::Stop;
use crate::wait_queue::Wait;

/// An operation that needs guards.
#[derive(Default)]
pub(crate) struct Crossing {
    attempt: u64,
    /// It was answered before the start: guards of its attempts in earlier starts are its own.
    takes_over: bool,
    /// Rows that its plan has asked for so far.
    wanted: BTreeSet<(PlateId, Ino)>,
    /// The guard that is under way.
    asked: Option<(PlateId, Ino)>,
    /// Guards that it has; no row if the inode does not exist.
    held: BTreeMap<(PlateId, Ino), Option<GuardedRow>>,
}

impl Crossing {
    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    fn ask(&self, key: OpKey, ino: Ino) -> PeerMessage {
        PeerMessage::Guard { takes_over: self.takes_over, key, attempt: self.attempt, ino }
    }
}

impl Peers {
    /// Plans an operation that looks at inodes of other plates; waits for guards on them.
    pub(crate) fn plan(
        &mut self,
        ns: &Namespace,
        (op, key): (&Op, OpKey),
        context: &Context<'_>,
        events: &mut Vec<Event>,
        queue: &mut Queue,
    ) -> Result<Planned, Stop> {
        let takes_over = self.resends.as_ref().is_some_and(|resends| resends.contains(&key));
        let crossing = self.crossings.entry(key).or_insert_with(|| {
            self.attempts += 1;
            Crossing { attempt: self.attempts, takes_over, ..Crossing::default() }
        });
        if crossing.asked.is_some() {
            return Err(Stop::Wait(Wait::Guard(key)));
        }
        let rows = crossing.held.iter().filter_map(|((_, ino), row)| Some((*ino, row.as_ref()?)));
        let view = OverPlates { ns, rows: rows.collect() };
        let ino = match plan(&view, op, context, events) {
            Ok(planned) => return Ok(planned),
            Err(Fault::Elsewhere(ino)) => ino,
            Err(fault) => return Err(fault.into()),
        };
        let plate = self.plates.of(ino).ok_or(Refusal::Stale)?;
        let crossing = self.crossings.entry(key).or_default();
        if crossing.held.contains_key(&(plate, ino)) {
            // Its name is here and the inode is gone: both ends of a decision cannot disagree, but damage can.
            return Err(Refusal::Stale.into());
        }
        let named = named_elsewhere(ns, op, ino)?;
        crossing.wanted.extend(named.into_iter().filter_map(|ino| Some((self.plates.of(ino)?, ino))));
        let begins_again = crossing.held.last_key_value().is_some_and(|(last, _)| *last > (plate, ino));
        if begins_again {
            let plates: BTreeSet<PlateId> = crossing.held.keys().map(|(plate, _)| *plate).collect();
            crossing.held.clear();
            self.attempts += 1;
            crossing.attempt = self.attempts;
            for plate in plates {
                self.send(plate, PeerMessage::Release { key }, queue);
            }
        }
        let crossing = self.crossings.entry(key).or_default();
        let next = crossing.wanted.iter().find(|row| !crossing.held.contains_key(row)).copied();
        crossing.asked = next;
        if let Some((plate, ino)) = next.filter(|(plate, _)| self.others[plate].boot != 0) {
            let guard = self.crossings[&key].ask(key, ino);
            self.send(plate, guard, queue);
        }
        Err(Stop::Wait(Wait::Guard(key)))
    }

    /// A guard came. False if nothing waits for it.
    pub(super) fn granted(
        &mut self,
        from: (PlateId, Ino),
        key: OpKey,
        attempt: u64,
        row: Option<GuardedRow>,
    ) -> bool {
        let Some(crossing) = self.crossings.get_mut(&key) else { return false };
        if crossing.asked != Some(from) || crossing.attempt != attempt {
            return false;
        }
        crossing.asked = None;
        crossing.held.insert(from, row);
        true
    }

    /// Requests for guards that another plate has not answered.
    pub(super) fn asked_of(&self, plate: PlateId) -> Vec<PeerMessage> {
        let asked = self.crossings.iter().filter_map(|(key, crossing)| {
            let (_, ino) = crossing.asked.filter(|(of, _)| *of == plate)?;
            Some(crossing.ask(*key, ino))
        });
        asked.collect()
    }

    /// The operation is refused, or nobody waits for it any more: its guards are returned.
    pub(crate) fn give_up(&mut self, key: OpKey, queue: &mut Queue) {
        let Some(crossing) = self.crossings.remove(&key) else { return };
        let plates: BTreeSet<PlateId> =
            crossing.held.keys().chain(&crossing.asked).map(|(plate, _)| *plate).collect();
        for plate in plates {
            self.send(plate, PeerMessage::Release { key }, queue);
        }
    }

    /// Adds what the planned events owe to other plates.
    pub(crate) fn owe(&self, key: OpKey, events: &mut Vec<Event>) {
        let mut plates = BTreeSet::new();
        for event in &*events {
            let footprint = event.footprint();
            plates.extend(footprint.inodes().iter().filter_map(|touch| self.other_of(touch.ino)));
        }
        if plates.is_empty() {
            return;
        }
        let count = events.len() as u32;
        let mut bytes = Vec::new();
        for event in &*events {
            event.encode(&mut bytes);
        }
        events.extend(plates.into_iter().map(|to| Event::Owes {
            to,
            number: self.others[&to].last_owed + 1,
            session: key.session,
            seq: key.seq,
            count,
            events: bytes.clone(),
        }));
    }

    /// The events of an operation are written, the last at this position. Guards at plates to which nothing is owed end.
    pub(crate) fn decided(&mut self, key: OpKey, events: &[Event], last: Position, queue: &mut Queue) {
        let crossing = self.crossings.remove(&key);
        // Others wait for the rows that it has guarded.
        self.wants_commit |= crossing.is_some() && !events.is_empty();
        let held = crossing.into_iter().flat_map(|crossing| crossing.held.into_keys());
        let mut unowed: BTreeSet<PlateId> = held.map(|(plate, _)| plate).collect();
        for event in events {
            if let Event::Owes { to, .. } = event {
                unowed.remove(to);
                self.note(event, last);
            }
        }
        for plate in unowed {
            self.send(plate, PeerMessage::Release { key }, queue);
        }
    }

    /// An effect is owed.
    pub(super) fn note_owed(&mut self, to: PlateId, number: u64, owed: Owed) {
        let Some(peer) = self.others.get_mut(&to) else { return };
        peer.last_owed = peer.last_owed.max(number);
        peer.owed.insert(number, owed);
    }
}

/// All inodes of other plates that the names of an operation bear, if it may rest on this one. All are asked for in order, so an
/// operation that is sent again finds the guards of its first attempt, and returns none of them.
fn named_elsewhere(ns: &Namespace, op: &Op, ino: Ino) -> Result<BTreeSet<Ino>, Stop> {
    let names = match op {
        Op::Rmdir { parent, name } => vec![(*parent, name)],
        Op::Rename { from, from_name, to, to_name, .. } if from == to => {
            vec![(*from, from_name), (*to, to_name)]
        }
        // Only directories live elsewhere than their names.
        Op::Unlink { .. } => return Err(Refusal::IsDir.into()),
        Op::Link { .. } | Op::LinkUnnamed { .. } | Op::Rename { .. } | Op::Clone { .. } => {
            return Err(Refusal::CrossDevice.into());
        }
        Op::Make { .. }
        | Op::MakeUnnamed { .. }
        | Op::SetAttr { .. }
        | Op::Write { .. }
        | Op::Remap { .. }
        | Op::SetXattr { .. }
        | Op::RemoveXattr { .. }
        | Op::SetFlags { .. }
        | Op::Reclaim { .. } => return Err(Refusal::Stale.into()),
    };
    let mut named = BTreeSet::new();
    for (dir, name) in names {
        named.extend(ns.lookup(&Cred::ROOT, dir, name)?.filter(|ino| !ns.owns(*ino)));
    }
    if named.contains(&ino) { Ok(named) } else { Err(Refusal::CrossDevice.into()) }
}

/// Attributes of a directory that is born at another plate, as the deciding one answers them.
pub(crate) fn born_elsewhere(events: &[Event]) -> Option<Attr> {
    let attr = events.first()?.born(Position(0))?;
    (attr.kind == Kind::Dir).then_some(attr)
}

/// The same for an operation that is sent again: the directory as its birth made it, of which only the other plate knows more.
pub(crate) fn made_elsewhere(
    ns: &Namespace,
    op: &Op,
    cred: &Cred,
    ino: Ino,
    time: Time,
) -> Result<Option<Attr>, Stop> {
    let Op::Make { parent, name, make: Make::Dir, mode } = op else { return Ok(None) };
    let dir = PlanState::inode(ns, *parent)?;
    let inherited = permission::default_list(ns, &dir)?;
    let newborn = Newborn { kind: Kind::Dir, rdev: 0, mode: *mode, umask: cred.umask };
    let Birth { mode, gid, .. } = permission::birth(cred, &dir, inherited.as_ref(), newborn)?;
    let make = Event::Make {
        parent: *parent,
        name: name.clone(),
        ino,
        kind: Kind::Dir,
        mode,
        uid: cred.uid,
        gid,
        rdev: 0,
        time,
        content: Vec::new(),
    };
    Ok(born_elsewhere(&[make]))
}
