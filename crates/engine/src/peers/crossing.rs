//! The deciding side: an operation takes guards on the rows that it needs, is planned over them, is decided, and owes its effects.
//!
//! ```text
//!   plan ─▶ a row is elsewhere ─▶ acquire: rows in order, one by one ─▶ plan over them ─▶ frame [events, owes] ─▶ effects
//!                                   │ ▲
//!                                   ▼ └── a row below one that it holds is in another's hands: return all, begin again
//!                                 Guard, or a guard in memory on an own row
//! ```
//!
//! Invariants:
//! - Guards are taken one by one in the order of [`Row`], own rows among them. An operation that holds guards waits for rows that
//!   come later in that order, for leases of clients, and for nothing else of other operations.
//! - An unlink takes own rows last, so that others can change its directory while it waits for the inode's plate. If another operation
//!   has an own row that comes earlier in the order, the unlink returns all, and takes them in the order.
//! - Guards on own rows are in memory: an operation that a crash interrupts is sent again, and takes them anew.
//! - A directory gets another parent, a policy changes, and a client removes a tree, only by an operation that holds the token
//!   ([`super::moves`]).
//! - An operation of the server that frees a name of a removed tree guards no own row: nothing can come into such a directory, and the
//!   operation finds no name of an inode that leaves it meanwhile. It decides while no own row that it changes is guarded for another.
//! - Clones, whiteouts and files without a name stay on one plate, and are refused with [`Refusal::CrossDevice`].

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::{AcrossPlates, Event, Make, Op};
use chiton_namespace::permission::{self, ACL_ACCESS, Birth, Newborn};
use chiton_namespace::{Context, Entries, Fault, Namespace, PlanState, Planned, Xattrs, plan};
use chiton_types::{Attr, Cred, Ino, Kind, Name, PlateId, Position, Refusal, Time};
use chiton_wire::{DECOUPLINGS, GuardedRow, OpKey, PeerMessage};

use super::guards::is_of_no_inode;
use super::keeper::{keeper, keeps_elsewhere};
use super::moves::is_move;
use super::order::{Row, name_in, rows_of};
use super::view::OverPlates;
use super::{Guard, Owed, Peers, is_key_of_server};
use crate::engine::Engine;
use crate::execute::sets_policy;
use crate::fold::next_folded;
use crate::moment::Moment;
use crate::parts::Queue;
use crate::sessions::Slot;
use crate::step::Stop;
use crate::wait_queue::Wait;

/// An operation that needs guards.
#[derive(Default)]
pub(crate) struct Crossing {
    attempt: u64,
    /// It was answered before the start: guards of its attempts in earlier starts are its own.
    takes_over: bool,
    /// The attempt before took its own rows last, and another operation had one of them: this one takes all in their order.
    in_order: bool,
    /// Rows that the attempt before needed.
    hinted: BTreeSet<Row>,
    /// Rows that this attempt needs, as far as it knows.
    pub(super) wanted: BTreeSet<Row>,
    /// The guard that is under way.
    asked: Option<Asking>,
    pub(super) held: BTreeMap<Row, Held>,
    /// The directory above the target that is asked for, and the child whose name is.
    asked_place: Option<(Ino, Option<Ino>)>,
    places: BTreeMap<Ino, Option<Attr>>,
    /// Names in directories of other plates, by directory and child.
    names: BTreeMap<(Ino, Ino), Option<Name>>,
}

/// A request for a guard.
#[derive(Clone)]
struct Asking {
    row: Row,
    is_late: bool,
    /// The entries of the directory are needed.
    entries: bool,
    /// The name in the directory that the operation is about.
    name: Option<Name>,
    /// The client that keeps its leases, or 0.
    client: u64,
}

/// A guard that an operation holds.
pub(super) enum Held {
    /// On an own row, which is read where it is.
    Own,
    /// On a row of another plate, or the token; no row if the inode does not exist.
    Other(Option<Box<OtherRow>>),
}

/// A guarded row of another plate.
pub(super) struct OtherRow {
    pub(super) row: GuardedRow,
    /// The access list among extended attributes.
    pub(super) access: Xattrs,
}

impl Crossing {
    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    fn ask(&self, key: OpKey) -> Option<(PlateId, PeerMessage)> {
        let Asking { row: Row { plate, ino, .. }, is_late, entries, name, client } = self.asked.clone()?;
        let (takes_over, attempt) = (self.takes_over, self.attempt);
        Some((plate, PeerMessage::Guard { takes_over, is_late, entries, key, attempt, ino, name, client }))
    }

    /// A row of another plate that is held.
    pub(super) fn other_row(&self, ino: Ino) -> Option<Option<&OtherRow>> {
        let mut rows = self.held.iter().filter(|(row, _)| row.ino == ino);
        let (_, held) = rows.next()?;
        match held {
            Held::Own => None,
            Held::Other(other) => Some(other.as_deref()),
        }
    }

    /// The inode under the operation's name in a directory of another plate that it holds.
    pub(super) fn named_in(&self, dir: Ino) -> Option<Ino> {
        self.other_row(dir)??.row.named.map(|(ino, _)| ino)
    }

    /// The parts of a directory of another plate that is held, beside its own inode.
    pub(super) fn parts(&self, dir: Ino) -> &[Ino] {
        self.other_row(dir).flatten().map_or(&[], |other| &other.row.parts)
    }

    /// A part of another plate that it holds: its attributes, and its entries if they were asked for.
    ///
    /// # Errors
    /// Why the operation may not have it.
    pub(crate) fn part(&self, part: Ino) -> Result<(&Attr, Option<&Entries>), Refusal> {
        let other = self.other_row(part).flatten().ok_or(Refusal::Stale)?;
        other.row.kept.map_or(Ok(()), Err)?;
        Ok((&other.row.attr, other.row.entries.as_ref()))
    }

    /// A directory above the target.
    pub(crate) fn place(&self, ino: Ino) -> Option<Option<&Attr>> {
        self.places.get(&ino).map(Option::as_ref)
    }

    /// The name that a child has in a directory above the target.
    pub(crate) fn name(&self, dir: Ino, child: Ino) -> Option<Option<&Name>> {
        self.names.get(&(dir, child)).map(Option::as_ref)
    }

    fn has_token(&self) -> bool {
        self.held.contains_key(&Row::TOKEN)
    }

    /// The plates at which it holds guards or asks for one.
    fn plates(&self) -> BTreeSet<PlateId> {
        let asked = self.asked.as_ref().map(|asked| &asked.row);
        self.held.keys().chain(asked).map(|row| row.plate).collect()
    }
}

impl Peers {
    pub(crate) fn is_crossing(&self, key: OpKey) -> bool {
        self.crossings.contains_key(&key)
    }

    /// An operation that takes guards.
    pub(crate) fn crossing(&self, key: OpKey) -> &Crossing {
        &self.crossings[&key]
    }

    /// An operation needs rows of other plates, or the token: it begins to take guards.
    pub(crate) fn begin_crossing(&mut self, ns: &Namespace, op: &Op, key: OpKey) -> Result<(), Refusal> {
        match op.across_plates() {
            AcrossPlates::Guarded => {
                // The whiteout would be made on the other plate.
                if let Op::Rename { from, how, .. } = op
                    && how.leaves_whiteout()
                    && !ns.owns(*from)
                {
                    return Err(Refusal::CrossDevice);
                }
            }
            // The parts of a directory change with it.
            AcrossPlates::OfParts if sets_policy(op) || ns.is_parted(op.footprint().place) => {}
            AcrossPlates::Refused => return Err(Refusal::CrossDevice),
            AcrossPlates::OfParts | AcrossPlates::Never => return Err(Refusal::Stale),
        }
        self.attempts += 1;
        let takes_over = self.resends.as_ref().is_some_and(|resends| resends.contains(&key));
        let crossing = Crossing { attempt: self.attempts, takes_over, ..Crossing::default() };
        self.crossings.insert(key, crossing);
        Ok(())
    }

    /// Plans an operation over the rows that it holds. [`Fault::Elsewhere`]: it needs a directory above its target.
    pub(crate) fn plan(
        &self,
        ns: &Namespace,
        (op, key): (&Op, OpKey),
        context: &Context<'_>,
        events: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        plan(&OverPlates { ns, crossing: &self.crossings[&key] }, op, context, events)
    }

    /// A guard came. False if nothing waits for it.
    pub(super) fn granted(
        &mut self,
        (from, ino): (PlateId, Ino),
        key: OpKey,
        attempt: u64,
        row: Option<GuardedRow>,
    ) -> bool {
        let from = Row::new(from, ino);
        let Some(crossing) = self.crossings.get_mut(&key) else { return false };
        if crossing.asked.as_ref().is_none_or(|asked| asked.row != from) || crossing.attempt != attempt {
            return false;
        }
        crossing.asked = None;
        let other = row.map(|mut row| {
            let access = row.access.take().map(|list| (ACL_ACCESS.to_vec(), list));
            Box::new(OtherRow { row, access: Xattrs(access.into_iter().collect()) })
        });
        crossing.held.insert(from, Held::Other(other));
        true
    }

    /// Another operation has the guard, and this one holds others that come later in the order. False if nothing waits for it.
    pub(super) fn occupied(
        &mut self,
        (from, ino): (PlateId, Ino),
        key: OpKey,
        attempt: u64,
        queue: &mut Queue,
    ) -> bool {
        let from = Row::new(from, ino);
        let Some(crossing) = self.crossings.get_mut(&key) else { return false };
        if crossing.asked.as_ref().is_none_or(|asked| asked.row != from) || crossing.attempt != attempt {
            return false;
        }
        self.begin_again(key, queue);
        true
    }

    /// A directory above the target came. False if nothing waits for it.
    pub(super) fn place_came(
        &mut self,
        key: OpKey,
        attempt: u64,
        ino: Ino,
        (attr, name): (Option<Attr>, Option<Name>),
    ) -> bool {
        let Some(crossing) = self.crossings.get_mut(&key) else { return false };
        let Some((_, child)) =
            crossing.asked_place.filter(|(asked, _)| *asked == ino && crossing.attempt == attempt)
        else {
            return false;
        };
        crossing.asked_place = None;
        crossing.places.insert(ino, attr);
        if let Some(child) = child {
            crossing.names.insert((ino, child), name);
        }
        true
    }

    /// An operation returns all its guards, and takes them again in the order of the inodes that it knows by now.
    pub(crate) fn begin_again(&mut self, key: OpKey, queue: &mut Queue) {
        self.attempts += 1;
        let attempt = self.attempts;
        let Some(crossing) = self.crossings.get_mut(&key) else { return };
        let plates = crossing.plates();
        let hinted = std::mem::take(&mut crossing.wanted);
        let (takes_over, in_order) = (crossing.takes_over, crossing.in_order);
        *crossing = Crossing { attempt, takes_over, in_order, hinted, ..Crossing::default() };
        self.release(key, plates, queue);
    }

    /// Returns the guards of an operation at these plates.
    fn release(&mut self, key: OpKey, plates: impl IntoIterator<Item = PlateId>, queue: &mut Queue) {
        for plate in plates {
            match plate == self.plate {
                true => self.end_own_guards(key, &[]),
                false => self.send(plate, PeerMessage::Release { key }, queue),
            }
        }
    }

    /// Requests for guards and places that another plate has not answered.
    pub(super) fn asked_of(&self, plate: PlateId) -> Vec<PeerMessage> {
        let guards = self.crossings.iter().filter_map(|(key, crossing)| {
            let (of, guard) = crossing.ask(*key)?;
            (of == plate).then_some(guard)
        });
        let places = self.crossings.iter().filter_map(|(key, crossing)| {
            let (ino, child) = crossing.asked_place.filter(|(ino, _)| self.plates.of(*ino) == Some(plate))?;
            Some(PeerMessage::AskPlace { key: *key, attempt: crossing.attempt, ino, child })
        });
        guards.chain(places).collect()
    }

    /// The operation is refused, or nobody waits for it any more: its guards are returned.
    pub(crate) fn give_up(&mut self, key: OpKey, queue: &mut Queue) {
        let Some(crossing) = self.crossings.remove(&key) else { return };
        self.release(key, crossing.plates(), queue);
    }

    /// Asks for a directory above the target of an operation that holds the token, and for the name of a child in it.
    pub(crate) fn ask_place(
        &mut self,
        key: OpKey,
        (ino, child): (Ino, Option<Ino>),
        queue: &mut Queue,
    ) -> Result<(), Stop> {
        let plate = self.other_of(ino).ok_or(Refusal::Stale)?;
        let crossing = self.crossings.get_mut(&key).ok_or(Refusal::Stale)?;
        if !crossing.has_token() {
            return Err(Refusal::Stale.into());
        }
        crossing.asked_place = Some((ino, child));
        let attempt = crossing.attempt;
        if self.others[&plate].boot != 0 {
            self.send(plate, PeerMessage::AskPlace { key, attempt, ino, child }, queue);
        }
        Err(Stop::Wait(Wait::Guard(key)))
    }

    /// Adds what the planned events owe to other plates.
    pub(crate) fn owe(&self, ns: &Namespace, key: OpKey, events: &mut Vec<Event>) {
        let mut plates = BTreeSet::new();
        // Every plate has all policies.
        let concerns_all = |event: &Event| {
            matches!(event, Event::Policy(_))
                || event.footprint().loser().is_some_and(|ino| ns.policy(ino).is_some())
        };
        if events.iter().any(concerns_all) {
            plates.extend(self.others.keys());
        }
        for event in &*events {
            let footprint = event.footprint();
            plates.extend(footprint.inodes().iter().filter_map(|touch| self.other_of(touch.ino)));
        }
        // A split has very many, of which each plate needs few.
        let is_for = |event: &Event, to: PlateId| {
            let is_of_split =
                matches!(event, Event::Part { .. } | Event::Moved { .. } | Event::Parent { .. });
            !is_of_split
                || event.footprint().inodes().iter().any(|touch| self.plates.of(touch.ino) == Some(to))
        };
        let owed = plates.into_iter().map(|to| {
            let (mut count, mut bytes) = (0, Vec::new());
            for event in events.iter().filter(|event| is_for(event, to)) {
                event.encode(&mut bytes);
                count += 1;
            }
            Event::Owes {
                to,
                number: self.others[&to].last_owed + 1,
                session: key.session,
                seq: key.seq,
                count,
                events: bytes,
            }
        });
        let owed: Vec<Event> = owed.collect();
        events.extend(owed);
    }

    /// The events of an operation are written, the last at this position. Guards at plates to which nothing is owed end.
    pub(crate) fn decided(&mut self, key: OpKey, events: &[Event], last: Position, queue: &mut Queue) {
        let crossing = self.crossings.remove(&key);
        // Others wait for the rows that it has guarded.
        self.wants_commit |= crossing.is_some() && !events.is_empty();
        let mut unowed = crossing.as_ref().map(Crossing::plates).unwrap_or_default();
        for event in events {
            if let Event::Owes { to, .. } = event {
                unowed.remove(to);
                self.note(event, last);
            }
        }
        self.note_fold(events, last);
        let policy_of = policy_of(events);
        if policy_of.is_some() {
            self.policy_decided(key);
        }
        let is_move = !events.is_empty() && crossing.is_some_and(|crossing| crossing.has_token());
        if is_move {
            self.moves.insert(key, last);
            unowed.remove(&Row::TOKEN.plate);
        }
        // Of the own guards some stay.
        unowed.remove(&self.plate);
        self.release(key, unowed, queue);
        let kept = policy_of.into_iter().chain(is_move.then_some(Row::TOKEN.ino)).collect::<Vec<_>>();
        self.end_own_guards(key, &kept);
    }

    /// The guards of an own operation on own rows end, but for these.
    pub(super) fn end_own_guards(&mut self, key: OpKey, kept: &[Ino]) {
        let own = self.plate;
        self.guards.retain(|ino, guard| (guard.holder, guard.key) != (own, key) || kept.contains(ino));
    }

    /// An effect is owed.
    pub(super) fn note_owed(&mut self, to: PlateId, number: u64, owed: Owed) {
        let Some(peer) = self.others.get_mut(&to) else { return };
        peer.last_owed = peer.last_owed.max(number);
        peer.owed.insert(number, owed);
    }

    /// Attributes, after these events, of an inode of another plate that they are about.
    pub(crate) fn attr_after(&self, key: OpKey, subject: Option<Ino>, events: &[Event]) -> Option<Attr> {
        let subject = subject.filter(|ino| self.other_of(*ino).is_some())?;
        let Some(crossing) = self.crossings.get(&key) else { return born_elsewhere(events) };
        let before = crossing.other_row(subject)??.row.attr.clone();
        let after = |nlink: u32, parent: Ino, time: Time| Attr {
            nlink,
            parent,
            ctime: before.ctime.max(time),
            ..before.clone()
        };
        match events.first() {
            Some(Event::Link { time, .. }) => Some(after(before.nlink + 1, before.parent, *time)),
            Some(Event::Unlink { kind, time, .. }) if *kind != Kind::Dir && before.nlink > 1 => {
                Some(after(before.nlink - 1, before.parent, *time))
            }
            Some(Event::Rename { to, time, .. }) => Some(after(before.nlink, *to, *time)),
            Some(_) => None,
            None => Some(before),
        }
    }
}

impl Engine {
    /// Takes the guards that an operation over plates needs, as far as it knows; waits until it has them. An operation that was answered
    /// before a restart takes no leases from clients: it took place before they got them. `slot`: of the session that asks.
    pub(crate) fn acquire(
        &mut self,
        (op, key): (&Op, OpKey),
        slot: Slot,
        is_settled: bool,
        m: &Moment,
    ) -> Result<(), Stop> {
        let keeper = keeper(op, slot);
        let client = self.clients.sessions.get(key.session).map_or(0, |session| session.client);
        loop {
            let Some(peers) = &mut self.peers else { return Ok(()) };
            let (plate, plates) = (peers.plate, peers.plates);
            let Some(crossing) = peers.crossings.get_mut(&key) else { return Ok(()) };
            if crossing.asked.is_some() || crossing.asked_place.is_some() {
                return Err(Stop::Wait(Wait::Guard(key)));
            }
            let ns = &self.shards.ns;
            let frees = is_key_of_server(key);
            let mut wanted = rows_of(ns, plates, op, crossing)?;
            if matches!(op, Op::RemoveTree { .. }) && !frees {
                wanted.extend(plates.all().map(|plate| Row::new(plate, DECOUPLINGS)));
            }
            let is_complete = wanted.iter().all(|row| crossing.held.contains_key(row));
            let takes_token = |state: &OverPlates<'_>| {
                Ok::<_, Fault>(sets_policy(op) || matches!(op, Op::RemoveTree { .. }) || is_move(state, op)?)
            };
            if is_complete && !frees && takes_token(&OverPlates { ns, crossing })? {
                wanted.insert(Row::TOKEN);
            }
            crossing.wanted = wanted;
            let rows: Vec<Row> = crossing.hinted.union(&crossing.wanted).copied().collect();
            let mut missing = rows.into_iter().filter(|row| !crossing.held.contains_key(row)).peekable();
            let first = missing.peek().copied();
            // Own rows are free for other operations while one that takes them last waits for the rest.
            let own_last = frees || (matches!(op, Op::Unlink { .. }) && !crossing.in_order);
            let of_other = if own_last { missing.find(|row| row.plate != plate) } else { first };
            let Some(next) = of_other.or(first.filter(|_| !frees)) else {
                return if frees { self.await_own_rows(key) } else { Ok(()) };
            };
            let is_late = crossing.held.last_key_value().is_some_and(|(last, _)| *last > next);
            if next.plate != plate {
                let folded = if let Op::Fold { dir } = op { next_folded(&ns.parts(*dir)?) } else { None };
                let entries = folded == Some(next.ino);
                let name = name_in(op, next.ino);
                let client = if keeps_elsewhere(op, next.ino) { client } else { 0 };
                crossing.asked = Some(Asking { row: next, is_late, entries, name, client });
                let guard = crossing.ask(key);
                if let Some((to, guard)) = guard.filter(|(to, _)| peers.others[to].boot != 0) {
                    peers.send(to, guard, &mut self.queue);
                }
                return Err(Stop::Wait(Wait::Guard(key)));
            }
            if self.guard_own_row(next.ino, (key, is_late), keeper, is_settled, m)? {
                let peers = self.peers.as_mut().expect("looked at above");
                let crossing = peers.crossings.get_mut(&key).expect("looked at above");
                crossing.held.insert(next, Held::Own);
            } else {
                let peers = self.peers.as_mut().expect("looked at above");
                peers.crossings.get_mut(&key).expect("looked at above").in_order = true;
                peers.begin_again(key, &mut self.queue);
                self.wake_unguarded();
            }
        }
    }

    /// Guards an own row for an own operation. False if another has it, and the operation must not wait for it. `keeper` keeps its
    /// lease on the row.
    fn guard_own_row(
        &mut self,
        ino: Ino,
        (key, is_late): (OpKey, bool),
        keeper: Slot,
        is_settled: bool,
        m: &Moment,
    ) -> Result<bool, Stop> {
        let Some(peers) = &self.peers else { return Ok(true) };
        if let Some(guard) = peers.guards.get(&ino) {
            return match (guard.holder, guard.key) == (peers.plate, key) {
                true => Ok(true),
                false if is_late => Ok(false),
                false => Err(Stop::Wait(Wait::Guarded(ino))),
            };
        }
        if !is_of_no_inode(ino) {
            self.await_birth(ino)?;
            self.await_leases(ino, keeper, is_settled, m)?;
        }
        let Some(peers) = &mut self.peers else { return Ok(true) };
        let (holder, boot) = (peers.plate, peers.boot);
        let attempt = peers.crossings.get(&key).map_or(0, Crossing::attempt);
        peers.note_guard(ino, Guard { holder, key, boot, attempt, position: Position(0) });
        Ok(true)
    }
}

/// The directory whose policy events change.
pub(super) fn policy_of(events: &[Event]) -> Option<Ino> {
    if let Some(Event::Policy(change)) = events.first() { Some(change.ino) } else { None }
}

/// Attributes of a directory that is born at another plate, as the deciding one answers them.
fn born_elsewhere(events: &[Event]) -> Option<Attr> {
    let mut attr = events.first()?.born(Position(0))?;
    if events.iter().any(|event| matches!(event, Event::Parts { .. })) {
        attr.flags |= Attr::HAS_PARTS;
    }
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
    let newborn = Newborn { kind: Kind::Dir, rdev: 0, mode: *mode, umask: cred.umask };
    let birth = || -> Result<Birth, Fault> {
        let dir = PlanState::inode(ns, *parent)?;
        let inherited = permission::default_list(ns, &dir)?;
        permission::birth(cred, &dir, inherited.as_ref(), newborn)
    };
    let Birth { mode, gid, .. } = match birth() {
        Ok(birth) => birth,
        // The parent is gone by now, and with it the directory: it was made all the same.
        Err(Fault::Refused(_)) => return Ok(None),
        Err(fault) => return Err(fault.into()),
    };
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
