//! The one path of all operations: duplicates, health, inode numbers, plan, leases, journal frame, apply, outcome.
//!
//! Invariants:
//! - Either nothing happened (any [`Stop`]) or the operation is applied and its one frame is written.
//! - An operation names only its own session's new blocks, so collecting a dead session's blocks is safe.

use chiton_model::{Body, Event, Hold, NameTouch, Op, Outcome};
use chiton_namespace::{Fault, Planned, with_parts};
use chiton_types::frame::{FrameBuilder, FrameHeader};
use chiton_types::{Attr, Cred, Ino, Kind, Position, Refusal, Seq, SessionId, ShardId, Time};
use chiton_wire::{Acknowledged, Again, Failure, LeaseMode, OpKey, is_policy_attribute};
use smallvec::SmallVec;

use crate::dedup::{Done, Standing};
use crate::dispatch::clamp;
use crate::engine::Engine;
use crate::lingering::lets_linger;
use crate::moment::{Health, Moment};
use crate::opens::Opens;
use crate::parts::{Clients, Output, Shards};
use crate::peers::{is_key_of_server, made_elsewhere};
use crate::sessions::Slot;
use crate::step::Stop;
use crate::volatile::NOT_JOURNALLED;
use crate::wait_queue::Wait;
use chiton_namespace::Namespace;

/// An operation and its requester.
pub(crate) struct OpCall<'a> {
    pub(crate) session: SessionId,
    pub(crate) slot: Slot,
    pub(crate) seq: Seq,
    pub(crate) again: Option<Again>,
    pub(crate) cred: &'a Cred,
    pub(crate) open: bool,
    /// The answer can carry leases.
    pub(crate) leases: bool,
    /// Of an operation that the client has acknowledged by write-behind: the inode and time that its caller got.
    pub(crate) acknowledged: Option<Acknowledged>,
    /// Of an operation of a session that is over: nobody may have contradicted it since this position ([`crate::late`]).
    pub(crate) late: Option<Position>,
    /// Its key between plates if it has no number.
    pub(crate) unnumbered: OpKey,
    pub(crate) op: &'a Op,
}

impl OpCall<'_> {
    /// Names it between plates.
    pub(crate) fn key(&self) -> OpKey {
        if self.seq > Seq(0) { OpKey { session: self.session, seq: self.seq } } else { self.unnumbered }
    }

    /// The session whose leases do not hold it up. A split takes the names also from the client that asks for it.
    fn holder(&self) -> Slot {
        if let Op::Split { .. } = self.op { Slot::SERVER } else { self.slot }
    }

    /// When it was carried out the first time, if the client knows.
    pub(crate) fn former_time(&self) -> Option<Time> {
        self.again.map(|again| again.time).filter(|time| *time != Time(0))
    }
}

/// A carried out operation.
pub(crate) struct Performed {
    pub(crate) position: Position,
    pub(crate) outcome: Outcome,
    pub(crate) lease: LeaseMode,
    pub(crate) parent_leased: bool,
}

/// Small extents written to one file before its map is looked at.
const FRAGMENTS_MIN: u32 = 256;
/// A written extent below this many bytes is small.
const FRAGMENT_BYTES: u32 = 64 << 10;
/// Most files whose fragments are counted.
const FRAGMENT_FILES_MAX: usize = 10_000;

impl Engine {
    pub(crate) fn execute(&mut self, call: &OpCall<'_>, m: &Moment) -> Result<Performed, Stop> {
        let performed = self.perform(call, m);
        let is_refused = matches!(performed, Err(Stop::Fail(Failure::Refused(_))));
        if is_refused && self.is_resend_of_answered(call) && !self.is_explained(call) {
            self.refuse_for_good(call);
        }
        if let Err(Stop::Fail(failure)) = &performed {
            self.late_refused(call, failure);
        }
        if let (Some(peers), Err(Stop::Fail(_))) = (&mut self.peers, &performed) {
            peers.give_up(call.key(), &mut self.queue);
            self.wake_unguarded();
        }
        performed
    }

    /// Whether the caller of this operation had an answer before the crash from which clients are coming back.
    fn is_resend_of_answered(&self, call: &OpCall<'_>) -> bool {
        let was_answered = call.again.is_some_and(|again| again.position > Position(0));
        self.clients.resends.is_running && call.seq > Seq(0) && (was_answered || call.acknowledged.is_some())
    }

    /// Whether it is tried again after one that may explain its answer.
    fn is_explained(&self, call: &OpCall<'_>) -> bool {
        let Some(again) = call.again.filter(|again| again.position > Position(0)) else { return false };
        self.peers.is_none() && self.clients.resends.explaining(call.op, call.session, again).is_some()
    }

    fn perform(&mut self, call: &OpCall<'_>, m: &Moment) -> Result<Performed, Stop> {
        if call.seq > Seq(0) {
            let session = self.clients.sessions.get(call.session).ok_or(Failure::SessionGone)?;
            match session.dedup.standing(call.seq) {
                Standing::New => {}
                Standing::Done(done) => return self.repeat(call, done, m),
                Standing::Refused => return Err(Refusal::Io.into()),
                Standing::Absurd => {
                    let seq = call.seq;
                    return Err(
                        Failure::Malformed(format!("operation {seq} is settled or too far ahead")).into()
                    );
                }
            }
        }
        self.keep_in_subtree(call, m)?;
        self.may_be_late(call)?;
        if call.again.is_some() && m.health != Health::Good {
            // It was answered, or may have been: it is not given up because nothing can be written just now.
            return Err(Stop::Wait(Wait::Room));
        }
        self.shards.may_change(m)?;
        // Operations that were answered, or are answered already, use the space that is reserved for a full disk.
        let is_new = call.again.is_none() && call.acknowledged.is_none() && call.slot != Slot::SERVER;
        if m.tight && is_new && call.op.grows() {
            return Err(Refusal::NoSpace.into());
        }
        if call.slot != Slot::SERVER {
            // An operation that was answered before a crash is carried out again as it was, also where the end of a decoupling, after
            // which it was asked for, is lost.
            if call.again.is_none_or(|again| again.position == Position(0)) {
                self.may_operate(call.op)?;
            }
            if call.again.is_none() {
                self.shards.require_decoupling(call, &self.clients)?;
            }
        }
        // An operation that was answered before a restart took place before all that is declared: it takes nothing from any client.
        let is_settled =
            self.clients.resends.is_running && call.again.is_some_and(|again| again.position > Position(0));
        if !is_settled {
            self.clients.recall_names(call, &self.shards.ns, m)?;
        }
        // The holders of leases on inodes that a late operation changes return them first.
        if !is_settled && call.acknowledged.is_none() && call.late.is_none() {
            self.clients.check_holds(call)?;
        }
        self.check_tree(call)?;
        let names_blocks = self.check_allowed(call)?;
        self.await_parent(call.op)?;
        let (offered, counted) = self.offer(call, m)?;
        let parts = self.offer_parts(call, offered, m)?;
        let now = self.clients.time_of(call, m);

        self.events.clear();
        let mut newborn_parts: Vec<Ino> =
            parts.iter().map(|part| part.ino).filter(|ino| *ino != offered).collect();
        let planned = if let Op::Split { dir } = call.op {
            let (planned, numbers) = self.plan_split(call, *dir, m)?;
            newborn_parts = numbers;
            planned
        } else if let Op::Fold { dir } = call.op {
            self.plan_fold(call, *dir, is_settled, m)?
        } else if sets_policy(call.op) {
            let holders =
                if is_settled { SmallVec::new() } else { self.clients.leases.any_names_conflict(m.mono) };
            if !holders.is_empty() {
                // Pending operations were acknowledged under the policy that holds until now.
                return Err(Stop::Wait(Wait::Leases(holders)));
            }
            self.plan_policy(call, now, is_settled, m)?
        } else if let Op::RemoveTree { ino, .. } = call.op
            && !is_key_of_server(call.key())
        {
            self.plan_tree(call, *ino, (now, offered), is_settled, m)?
        } else {
            self.plan(call, (now, offered), is_settled, m)?
        };
        if !parts.is_empty() {
            with_parts(&mut self.events, parts);
        }
        self.shards.keep_roots(&self.events)?;
        if self.shards.ns.has_decouplings() {
            // Rows as they were are kept for decoupled clients: they must be here.
            let needs = self.shards.ns.needs_all(&self.events);
            if !needs.is_empty() {
                return Err(Stop::Missing(needs));
            }
        }
        let is_volatile = self.shards.is_volatile_change(call.op, &self.events)?;
        if let Some(since) = call.late {
            self.is_uncontradicted(call, (since, offered), is_volatile)?;
        }
        if !is_settled
            && !self.clients.leases.is_alone(call.holder())
            && !matches!(call.op, Op::Reclaim { .. })
        {
            self.touched.clear();
            Namespace::touched(&self.events, &mut self.touched);
            // Leases on inodes of other plates are lent there.
            let ns = &self.shards.ns;
            self.touched.retain(|ino| ns.owns(*ino));
            self.clients.recall_conflicting(call, &self.touched, m)?;
        }
        let mut elsewhere = None;
        if let Some(peers) = &self.peers {
            elsewhere = peers.attr_after(call.key(), planned.subject, &self.events);
            peers.owe(&self.shards.ns, call.key(), &mut self.events);
        }
        let before = self.output.position;
        if !self.events.is_empty() {
            let shard = self.events[0].shard();
            if is_volatile {
                self.output.apply_volatile(&self.events, &mut self.shards);
            } else {
                let header = FrameHeader { event_count: 0, shard, session: call.session, seq: call.seq };
                self.output.commit(&self.events, header, &mut self.shards);
            }
            self.output.blocks_named |= names_blocks;
        }
        if let Some(peers) = &mut self.peers {
            peers.decided(call.key(), &self.events, self.output.position, &mut self.queue);
            self.wake_unguarded();
            if matches!(self.events.first(), Some(Event::Policy(_))) {
                self.policies_changed();
            }
        }
        self.late_carried_out(call, before.next());
        // An operation that changes nothing has no place of its own among the events. With that of the
        // event before, it would be sent again after a crash, and carried out on the state at that time:
        // a rename onto another name of the same file, after someone removed that name, would rename.
        let position =
            if is_volatile || self.events.is_empty() { NOT_JOURNALLED } else { self.output.journalled() };
        if planned.gone.is_some() {
            self.parts_ended(call.slot);
        }
        if counted {
            self.use_number(offered);
        }
        for part in newborn_parts {
            self.use_number(part);
        }
        if is_volatile && let Some(gone) = planned.gone.filter(|gone| gone.orphan) {
            self.shards.volatile.orphans.insert(gone.ino);
        }
        if is_volatile && matches!(call.op, Op::MakeUnnamed { .. }) {
            self.shards.volatile.orphans.extend(planned.subject);
        }
        self.note_growth(call);
        let mut performed = self.finish(call, planned, elsewhere, position, m);
        performed.outcome.time = now;
        if call.acknowledged.is_some()
            && let Some(session) = self.clients.sessions.get_mut(call.session)
        {
            session.clock.acknowledged(now);
        }
        Ok(performed)
    }

    pub(crate) fn may_change(&self, m: &Moment) -> Result<(), Stop> {
        self.shards.may_change(m)
    }

    /// Refuses operations that only the server may ask for, and blocks of other writers. True if new blocks are named.
    fn check_allowed(&self, call: &OpCall<'_>) -> Result<bool, Stop> {
        let is_server = call.slot == Slot::SERVER;
        if call.op.is_server_only() && !is_server {
            return Err(Refusal::NotPermitted.into());
        }
        // A merge knows files by their names.
        if matches!(call.op, Op::MakeUnnamed { .. } | Op::LinkUnnamed { .. }) && self.is_realm() {
            return Err(Refusal::Unsupported.into());
        }
        let (Op::Write { body: Body::Extents(extents), .. } | Op::Remap { extents, .. }) = call.op else {
            return Ok(false);
        };
        let own = |writer: u64| is_server || writer == call.session.0;
        if extents.iter().any(|e| !e.block.is_hole() && !own(e.block.writer)) {
            return Err(Refusal::NotPermitted.into());
        }
        Ok(extents.iter().any(|e| !e.block.is_hole()))
    }

    /// After the change: opens, orphans, leases, the window, the answer. `elsewhere`: the attributes of an inode of another plate.
    fn finish(
        &mut self,
        call: &OpCall<'_>,
        planned: Planned,
        elsewhere: Option<Attr>,
        position: Position,
        m: &Moment,
    ) -> Performed {
        let mut outcome = self.shards.ns.outcome(planned);
        let born = elsewhere.as_ref().filter(|_| matches!(call.op, Op::Make { .. })).map(|attr| attr.btime);
        outcome.attr = outcome.attr.or(elsewhere);
        let mut open_counted = false;
        if call.open
            && let Some(attr) = &outcome.attr
        {
            self.clients.opens.add(attr.ino, call.slot);
            open_counted = true;
        }
        if matches!(call.op, Op::MakeUnnamed { .. }) {
            self.shards.unnamed_made(&outcome, &self.clients.opens);
        }
        if let Op::LinkUnnamed { ino, .. } = call.op {
            self.shards.orphans.remove(ino);
            self.shards.volatile.orphans.remove(ino);
        }
        // Of an inode of another plate that plate decides.
        if let Some(gone) = outcome.gone.filter(|gone| self.shards.ns.owns(gone.ino)) {
            if gone.orphan {
                match self.shards.orphans.insert(gone.ino) {
                    true if matches!(call.op, Op::RemoveTree { .. }) => {
                        self.shards.tree_removed(gone.ino, call.slot)
                    }
                    true if lets_linger(call.op, call.slot, m) => self.shards.linger(gone.ino, m),
                    true if !self.clients.opens.is_open(gone.ino) => self.shards.reclaims.push_back(gone.ino),
                    _ => {}
                }
            } else {
                self.shards.orphans.remove(&gone.ino);
                self.shards.volatile.orphans.remove(&gone.ino);
                self.clients.leases.forget(gone.ino);
                self.shards.fragments.remove(&gone.ino);
            }
        }
        if call.seq > Seq(0)
            && let Some(session) = self.clients.sessions.get_mut(call.session)
        {
            let done = Done::new(position, planned.subject, planned.gone, open_counted);
            session.dedup.record(call.seq, done.born_at(born));
        }
        if let Op::Write { ino, body: Body::Extents(extents), .. } = call.op {
            self.shards.count_fragments(*ino, extents);
        }
        let ns = &self.shards.ns;
        let (lease, parent_leased) = if call.leases {
            self.clients.leases_after(call, &outcome, |ino| ns.owns(ino), |dir| ns.is_parted(dir), m)
        } else {
            NO_LEASES
        };
        Performed { position, outcome, lease, parent_leased }
    }

    /// Answers an operation that was carried out before, with attributes as they are now.
    fn repeat(&mut self, call: &OpCall<'_>, done: Done, m: &Moment) -> Result<Performed, Stop> {
        let attr = match self.shards.ns.attr(done.subject) {
            _ if done.subject == Ino(0) => None,
            Ok(attr) => Some(attr),
            Err(Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
            Err(Fault::Elsewhere(ino)) => {
                made_elsewhere(&self.shards.ns, call.op, call.cred, ino, done.born)?
            }
            Err(_) => None,
        };
        // An open that the client knows of (it was answered) was declared again separately.
        let was_answered = call.again.is_some_and(|again| again.position > Position(0));
        if call.open && !done.open_counted && !was_answered && attr.is_some() {
            self.clients.opens.add(done.subject, call.slot);
            if let Some(session) = self.clients.sessions.get_mut(call.session) {
                session.dedup.open_counted(call.seq);
            }
        }
        let is_born = call.op.makes_inode();
        let changed = |attr: &Attr| if is_born { attr.btime } else { attr.ctime };
        let time = call.former_time().or(attr.as_ref().map(changed)).unwrap_or_default();
        // Of another inode the client knows nothing by now: its cache ended with the connection.
        let outcome = Outcome { attr, gone: done.gone(), other: None, time };
        let lease = match &outcome.attr {
            Some(attr) if call.leases && self.shards.ns.owns(attr.ino) => {
                self.clients.lease_in_passing(attr, call.slot, m)
            }
            _ => LeaseMode::None,
        };
        Ok(Performed { position: done.position, outcome, lease, parent_leased: false })
    }
}

impl Shards {
    /// Whether anything may be changed now.
    pub(crate) fn may_change(&self, m: &Moment) -> Result<(), Stop> {
        match m.health {
            Health::Good => {}
            Health::Full => return Err(Refusal::NoSpace.into()),
            Health::Failed => return Err(Refusal::Io.into()),
        }
        if (m.budget_spent && !m.store_full) || self.frozen {
            return Err(Stop::Wait(Wait::Room));
        }
        if self.ns.dirty_rows() > self.dirty_rows_max {
            return Err(if m.store_full { Refusal::NoSpace.into() } else { Stop::Wait(Wait::Room) });
        }
        Ok(())
    }

    /// A file was made that has no name: it ends with its last open.
    fn unnamed_made(&mut self, outcome: &Outcome, opens: &Opens) {
        let Some(attr) = &outcome.attr else { return };
        if self.orphans.insert(attr.ino) && !opens.is_open(attr.ino) {
            self.reclaims.push_back(attr.ino);
        }
    }

    /// The last open of an inode ended.
    pub(crate) fn closed(&mut self, ino: Ino) {
        if self.orphans.contains(&ino) {
            self.reclaims.push_back(ino);
        }
    }

    pub(crate) fn count_fragments(&mut self, ino: Ino, extents: &[chiton_model::Extent]) {
        let small = extents.iter().filter(|e| !e.block.is_hole() && e.len < FRAGMENT_BYTES).count();
        if small == 0 {
            return;
        }
        if self.fragments.len() >= FRAGMENT_FILES_MAX {
            self.fragments.clear();
        }
        let fragments = self.fragments.entry(ino).or_default();
        *fragments += small as u32;
        if *fragments >= FRAGMENTS_MIN {
            self.fragments.remove(&ino);
            self.fragmented.push_back(ino);
        }
    }
}

impl Clients {
    /// Waits until no other client has pending operations in the directories of the names. A refusal, too, must rest on all
    /// operations that were acknowledged before.
    #[inline]
    fn recall_names(&mut self, call: &OpCall<'_>, ns: &Namespace, m: &Moment) -> Result<(), Stop> {
        let mut busy: SmallVec<[Ino; 4]> = SmallVec::new();
        for dir in call.op.footprint().dirs() {
            if self.leases.names_taken(dir, call.holder(), m.mono) {
                busy.push(dir);
            }
        }
        let victim = call.op.footprint().victim_dir();
        if let Some(NameTouch { dir, name, .. }) = victim.filter(|_| self.leases.has_names()) {
            // Whether it is empty is known to the client that holds its names.
            match ns.lookup(&Cred::ROOT, dir, name) {
                Ok(Some(ino)) if self.leases.names_taken(ino, call.slot, m.mono) => busy.push(ino),
                Err(chiton_namespace::Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
                _ => {}
            }
        }
        let waits_for_itself = |dir: &Ino| self.leases.holds_names(*dir, call.slot);
        if self.resends.is_running && matches!(call.op, Op::Split { .. }) && busy.iter().any(waits_for_itself)
        {
            // Names that its caller made there after it are sent again behind it.
            return Err(Refusal::Busy.into());
        }
        if busy.is_empty() { Ok(()) } else { Err(Stop::Wait(Wait::Leases(busy))) }
    }

    /// Recalls the leases of others on inodes that the planned events touch; waits if there are any.
    fn recall_conflicting(&mut self, call: &OpCall<'_>, touched: &[Ino], m: &Moment) -> Result<(), Stop> {
        let slot = call.holder();
        let is_mapped = matches!(call.op, Op::Write { hold: Hold::Shared, .. });
        let mut busy: SmallVec<[Ino; 4]> = SmallVec::new();
        for &ino in touched {
            let is_busy = !busy.contains(&ino) && self.leases.conflict(ino, slot, LeaseMode::None, m.mono);
            // It gives its lease up when this is carried out, and the others may do so after it.
            let goes_first =
                is_mapped && self.leases.is_recalled(ino, slot) && !self.leases.is_written(ino, slot);
            if is_busy && !goes_first {
                busy.push(ino);
            }
        }
        if busy.is_empty() { Ok(()) } else { Err(Stop::Wait(Wait::Leases(busy))) }
    }

    fn leases_after(
        &mut self,
        call: &OpCall<'_>,
        outcome: &Outcome,
        owns: impl Fn(Ino) -> bool,
        is_parted: impl Fn(Ino) -> bool,
        m: &Moment,
    ) -> (LeaseMode, bool) {
        if call.slot == Slot::SERVER || self.resends.are_left() {
            return NO_LEASES;
        }
        let is_born = call.op.makes_inode();
        let lease = match &outcome.attr {
            // Its own plate lends it.
            Some(attr) if !owns(attr.ino) => LeaseMode::None,
            // It has parts, whose names are not here.
            Some(attr) if attr.is_parted() => LeaseMode::None,
            // Nobody else knows of a new file yet.
            Some(attr) if is_born && attr.kind == Kind::File => {
                self.leases.grant_born(attr.ino, call.slot, LeaseMode::Exclusive, m.mono)
            }
            Some(attr) if is_born && attr.kind == Kind::Dir => {
                let lease = self.leases.grant_born(attr.ino, call.slot, LeaseMode::Shared, m.mono);
                if call.acknowledged.is_some() && call.again.is_none() {
                    // Things are made in it already.
                    self.leases.born_with_names(attr.ino, call.slot, attr.btime);
                }
                clamp(lease, attr)
            }
            Some(attr) => self.lease_in_passing(attr, call.slot, m),
            None => LeaseMode::None,
        };
        let footprint = call.op.footprint();
        let parent = footprint.dirs().next().map(|_| footprint.place);
        // In a directory with parts many clients make files: a look at its names gives a lease on them, and a change of them does not.
        let is_leased = |parent| !is_parted(parent) && self.parent_leased(parent, call.slot, m);
        let parent_leased = parent.is_some_and(is_leased);
        self.leases.limit(m.mono);
        (lease, parent_leased)
    }

    /// Whether a writer that claims so still holds the file. If it does not and others do, its write rests on a state that they have
    /// changed by now.
    fn check_holds(&self, call: &OpCall<'_>) -> Result<(), Stop> {
        let Op::Write { ino, hold: Hold::Exclusive | Hold::Appended(_), .. } = call.op else {
            return Ok(());
        };
        let holds = self.leases.mode(*ino, call.slot) == LeaseMode::Exclusive;
        match holds || call.slot == Slot::SERVER || !self.leases.others_have(*ino, call.slot) {
            true => Ok(()),
            false => Err(Refusal::NotPermitted.into()),
        }
    }
}

impl Output {
    /// Writes events as one frame and applies them.
    pub(crate) fn commit(&mut self, events: &[Event], header: FrameHeader, shards: &mut Shards) {
        self.write_skipped();
        let event_count = u32::try_from(events.len()).expect("an operation has few events");
        let mut frame = FrameBuilder::begin(&mut self.frames, &FrameHeader { event_count, ..header });
        for event in events {
            event.encode(frame.payload());
        }
        frame.close();
        self.frame_events += u64::from(event_count);
        for event in events {
            self.position = self.position.next();
            shards.ns.apply(event, self.position);
        }
    }

    /// An event of the server itself.
    pub(crate) fn commit_own(&mut self, event: &Event, shards: &mut Shards) {
        let header = FrameHeader { event_count: 0, shard: event.shard(), session: SessionId(0), seq: Seq(0) };
        self.commit(std::slice::from_ref(event), header, shards);
    }

    /// Asks for the next chunk of a shard's inode numbers.
    pub(crate) fn reserve(&mut self, shard: ShardId, counter_end: u64, shards: &mut Shards) {
        self.commit_own(&Event::Reserve { shard, counter_end }, shards);
        shards.inodes.reserved(shard, counter_end, self.position);
    }
}

const NO_LEASES: (LeaseMode, bool) = (LeaseMode::None, false);

/// Whether an operation sets or removes a policy.
pub(crate) fn sets_policy(op: &Op) -> bool {
    op.xattr().is_some_and(|(_, name)| is_policy_attribute(name))
}
