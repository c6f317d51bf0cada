//! Merging: a decoupled journal's events become events of this server, exactly once.
//!
//! ```text
//!   Merge call ─▶ where is the state? ─▶ piece: plan, apply, plan, apply …  ─▶ one frame: events + Merged(state, map)
//!      ▲                                   │ rows or leases are missing: the frame ends here, continues later
//!      └─── answered with the state ◀──────┴ enough for one turn: others first
//! ```
//!
//! Invariants:
//! - What events became, how far that is, and the map share one frame: after a crash all of a piece is there or nothing.
//! - The state decides which events are done, not the call: one that repeats, skips or comes late changes nothing.
//! - A piece is bounded; between two pieces everybody else has their turn.
//! - Nobody holds a lease on an inode that changes.
//! - One decoupling at a time is merged in a directory, if their clients take the merge lock (`RealmCall::MergeLock`).

use chiton_merge::{MergeContext, MergeStep, Skipped, plan_merge};
use chiton_model::merge::{Conflict, MergeMap, MergeState, OnConflict};
use chiton_model::{Body, Event, MergedUpTo, NameChange};
use chiton_namespace::{Fault, Namespace, Need};
use chiton_types::frame::{FrameBuilder, FrameHeader};
use chiton_types::{Ino, Position, RealmId, Refusal, Seq, SessionId, ShardId, Take};
use chiton_wire::{Claim, Failure, LeaseMode, MERGE_EVENTS_MAX, MergeBatch, Merged, RealmAnswer, RealmCall};
use smallvec::{SmallVec, smallvec};

use super::{Caller, RealmHandler};
use crate::leases::EVERYTHING;
use crate::moment::Moment;
use crate::parts::Shards;
use crate::sessions::Slot;
use crate::step::Stop;
use crate::wait_queue::Wait;

/// Most events of a piece.
const PIECE_EVENTS: u64 = 512;
/// About the most bytes that a piece makes of them.
const PIECE_BYTES: usize = 4 << 20;
/// Inodes for whose leases an answer waits at a time.
const RECALLED_AT_ONCE: usize = 4;
/// Most answers about one event before it is given up.
const ANSWERS_MAX: usize = 4096;

/// A merge call on its way.
#[derive(Debug)]
pub(crate) struct Merging {
    events: Vec<Event>,
    skipped: u64,
    lost: Vec<(u64, String)>,
    conflicts: Vec<Conflict>,
    /// Inodes that changed while others held leases on them: the answer waits until they are given back.
    recalled: Vec<Ino>,
}

/// The last answer about a merge batch of a decoupling, for a client that did not get it: conflicts are reported once. It is in
/// memory only.
#[derive(Debug)]
pub(crate) struct Answered {
    batch: MergeBatch,
    from: u64,
    skipped: u64,
    lost: Vec<(u64, String)>,
    conflicts: Vec<Conflict>,
}

/// The merge call as it was asked.
struct MergeCall<'a> {
    claim: Claim,
    batch: MergeBatch,
    from: u64,
    last: bool,
    blind: bool,
    count: u32,
    events: &'a [u8],
}

/// Why a piece ends.
enum End {
    /// All events of the call are done.
    Done,
    /// The piece is as long as one turn may be; a further one follows.
    Yield,
    /// The policy forbids a conflict.
    Stopped,
    Missing(Vec<Need>),
    Busy(SmallVec<[Ino; 4]>),
    Durable(Position),
    /// Another plate is to say to which realm its directory belongs.
    Realm(Ino),
}

/// The state with which a piece makes its events.
struct Piece {
    id: RealmId,
    map: MergeMap,
    /// Events that were applied; the frame is made of them.
    emitted: Vec<Event>,
    /// Kept to spare allocations.
    touched: Vec<Ino>,
    bytes: usize,
    /// Inodes that changed while others held leases on them.
    recalled: Vec<Ino>,
    /// The number for a copy.
    fresh: Ino,
    /// It was not asked whether others hold leases: nobody does.
    is_alone: bool,
}

impl RealmHandler<'_> {
    pub(crate) fn merge(
        &mut self,
        caller: &Caller<'_>,
        call: &RealmCall,
        merging: &mut Option<Box<Merging>>,
        m: &Moment,
    ) -> Result<RealmAnswer, Stop> {
        let RealmCall::Merge { claim, batch, from, count, events, last, blind } = call else {
            unreachable!("called for merges only")
        };
        let (claim, batch, from, count) = (*claim, *batch, *from, *count);
        let call = MergeCall { claim, batch, from, last: *last, blind: *blind, count, events };
        let decoupling = self.shards.claimed(caller, claim)?;
        let (state, root) = (decoupling.state, decoupling.root());
        if self.merge_lock_holder(root).is_some_and(|holder| holder.realm != claim.realm) {
            return Err(Refusal::Busy.into());
        }
        let mut under_way = match merging.take() {
            Some(merging) => merging,
            None => Box::new(call.decode()?),
        };
        let answer = match call.standing(state, under_way.events.len() as u64) {
            Some(done) => self.may_merge(m).and_then(|()| self.piece(&call, &mut under_way, state, done, m)),
            None => {
                self.shards.answer_again(&call, &mut under_way);
                Ok(false)
            }
        };
        match answer {
            Ok(false) if self.is_still_held(&mut under_way.recalled, m) => {
                let held = under_way.recalled.iter().copied().take(RECALLED_AT_ONCE).collect();
                *merging = Some(under_way);
                Err(Stop::Wait(Wait::Leases(held)))
            }
            Ok(stopped) => {
                let state = self.shards.ns.decoupling(claim.realm).expect("it is claimed").state;
                let Merging { skipped, lost, conflicts, .. } = *under_way;
                self.shards.remember_answer(&call, skipped, &lost, &conflicts);
                let position = self.output.journalled();
                Ok(RealmAnswer::Merged(Merged { state, position, skipped, lost, conflicts, stopped }))
            }
            Err(stop) => {
                *merging = Some(under_way);
                Err(stop)
            }
        }
    }

    /// Recalls everything from a session that holds all leases: otherwise the merge would recall each inode separately.
    fn may_merge(&mut self, m: &Moment) -> Result<(), Stop> {
        self.shards.may_change(m)?;
        if m.tight {
            return Err(chiton_types::Refusal::NoSpace.into());
        }
        match self.clients.leases.recall_everything(LeaseMode::None, m.mono) {
            true => Err(Stop::Wait(Wait::Leases(smallvec![EVERYTHING]))),
            false => Ok(()),
        }
    }

    /// Merges events from the `done`-th of the merge batch on. True if a conflict stops it.
    fn piece(
        &mut self,
        call: &MergeCall<'_>,
        merging: &mut Merging,
        state: MergeState,
        mut done: u64,
        m: &Moment,
    ) -> Result<bool, Stop> {
        let id = call.claim.realm;
        let on_conflict = self.shards.ns.decoupling(id).expect("it is claimed").map.on_conflict();
        let fresh = match on_conflict {
            OnConflict::KeepBoth | OnConflict::Merge => self.shards.fresh_number(call, m)?,
            _ => Ino(0),
        };
        // Positions that no frame stands for go first.
        self.output.write_skipped();
        let map = self.shards.ns.borrow_map(id);
        let is_alone = self.clients.leases.is_nobodys();
        let (emitted, touched, recalled) = (Vec::new(), Vec::new(), std::mem::take(&mut merging.recalled));
        let mut piece = Piece { id, map, emitted, touched, bytes: 0, recalled, fresh, is_alone };
        let base = call.blind.then(|| piece.map.set_base(Position(u64::MAX)));
        let (first, begun) = (call.from, done);
        let end = loop {
            let at = (done - first) as usize;
            let Some(event) = merging.events.get_mut(at) else { break End::Done };
            if done - begun >= PIECE_EVENTS || piece.bytes >= PIECE_BYTES {
                break End::Yield;
            }
            match self.merge_event(event, &mut piece, &mut merging.conflicts, m) {
                Ok(None) => {}
                Ok(Some(skipped)) => {
                    merging.skipped += 1;
                    if skipped.loses() {
                        merging.lost.push((done, skipped.reason()));
                    }
                }
                Err(end) => break end,
            }
            done += 1;
        };
        if let Some(base) = base {
            piece.map.set_base(base);
        }
        let is_whole = matches!(end, End::Done) && call.last;
        let now = match is_whole {
            true => MergeState { merged: call.batch.upto, batch: None },
            false => MergeState { merged: state.merged, batch: Some((call.batch.upto, done)) },
        };
        let Piece { map, emitted, recalled, .. } = piece;
        merging.recalled = recalled;
        if emitted.is_empty() && done == begun && !is_whole {
            self.shards.ns.return_map(id, map);
        } else {
            self.close_piece(id, now, map, &emitted);
        }
        match end {
            End::Done => Ok(false),
            End::Stopped => Ok(true),
            End::Yield => Err(Stop::Yield),
            End::Missing(needs) => Err(Stop::Missing(needs)),
            End::Busy(inos) => Err(Stop::Wait(Wait::Leases(inos))),
            End::Durable(position) => Err(Stop::Wait(Wait::Durable(position))),
            End::Realm(dir) => Err(Stop::Wait(Wait::Realm(dir))),
        }
    }

    /// Writes the frame of the applied events, and notes how far the merge is.
    fn close_piece(&mut self, id: RealmId, state: MergeState, map: MergeMap, emitted: &[Event]) {
        let event_count = u32::try_from(emitted.len() + 1).expect("a piece is bounded");
        let shard = map.root().shard();
        let header = FrameHeader { event_count, shard, session: SessionId(0), seq: Seq(0) };
        let merged = Event::Merged(Box::new(MergedUpTo { id, state, map }));
        let mut frame = FrameBuilder::begin(&mut self.output.frames, &header);
        for event in emitted {
            event.encode(frame.payload());
        }
        merged.encode(frame.payload());
        frame.close();
        self.output.frame_events += u64::from(event_count);
        self.output.position = self.output.position.next();
        let Event::Merged(merged) = merged else { unreachable!("made above") };
        self.shards.ns.merged(*merged);
    }

    /// Applies one event (nothing to report), or skips it.
    fn merge_event(
        &mut self,
        event: &mut Event,
        piece: &mut Piece,
        conflicts: &mut Vec<Conflict>,
        m: &Moment,
    ) -> Result<Option<Skipped>, End> {
        if !piece.is_alone {
            self.recall_for_merge(event, piece, m)?;
        }
        for _ in 0..ANSWERS_MAX {
            let step = {
                let (opens, ns, id) = (&self.clients.opens, &self.shards.ns, piece.id);
                let is_open =
                    |ino: Ino| opens.is_open(ino) || ns.is_wanted_by_others(ino, id).unwrap_or(true);
                let context = MergeContext { is_open: &is_open, fresh: piece.fresh, now: m.now };
                plan_merge(ns, event, &mut piece.map, &context, conflicts)
            };
            match step {
                Ok(MergeStep::Emit) => {
                    return self.apply_merged(event.clone(), piece, m).map(|()| None);
                }
                Ok(MergeStep::First(events)) => {
                    let copied =
                        events.iter().any(|e| matches!(e, Event::Make { ino, .. } if *ino == piece.fresh));
                    for event in events {
                        self.apply_merged(event, piece, m)?;
                    }
                    if copied {
                        self.used_fresh(piece, m)?;
                    }
                }
                Ok(MergeStep::Instead(events)) => {
                    for event in events {
                        self.apply_merged(event, piece, m)?;
                    }
                    return Ok(None);
                }
                Ok(MergeStep::Skip(why)) => return Ok(Some(why)),
                Ok(MergeStep::Stop) => return Err(End::Stopped),
                Err(Fault::Missing(needs)) => return Err(End::Missing(needs)),
                Err(Fault::Refused(refusal)) => return Ok(Some(Skipped::Refused(refusal))),
                // The subtree is on this plate, whole.
                Err(Fault::Elsewhere(_)) => return Ok(Some(Skipped::Outside)),
                Err(Fault::Realm(dir)) => return Err(End::Realm(dir)),
                Err(Fault::NeedGroups) => unreachable!("merges ask as root, whose groups decide nothing"),
            }
        }
        Ok(Some(Skipped::Refused(Refusal::Io)))
    }

    /// Applies an event of the merge, or returns the rows that it lacks.
    fn apply_merged(&mut self, event: Event, piece: &mut Piece, m: &Moment) -> Result<(), End> {
        if !matches!(event, Event::Make { .. }) {
            let needs = self.shards.ns.needs(&event);
            if !needs.is_empty() {
                return Err(End::Missing(needs));
            }
        }
        self.output.position = self.output.position.next();
        debug_assert_eq!(
            self.shards.ns.fit(&event, self.output.position, self.shards.inodes.shard_count() as u16),
            Ok(()),
            "{event:?}"
        );
        self.shards.ns.apply(&event, self.output.position);
        piece.map.note_own(self.output.position);
        piece.bytes += size_about(&event);
        if let Some(ino) = event.footprint().loser() {
            self.name_lost(ino);
        }
        if let Event::Restore { ino, .. } = &event {
            self.shards.orphans.remove(ino);
        }
        if let Event::Write { ino, body: Body::Extents(extents), .. } = &event {
            self.output.blocks_named |= extents.iter().any(|extent| !extent.block.is_hole());
            self.shards.count_fragments(*ino, extents);
        }
        if !piece.is_alone {
            // Leases that the server could foresee were given back before; for the others the answer to the call waits.
            piece.touched.clear();
            Namespace::touched(std::slice::from_ref(&event), &mut piece.touched);
            for ino in &piece.touched {
                if self.clients.leases.conflict(*ino, Slot::SERVER, LeaseMode::None, m.mono) {
                    piece.recalled.push(*ino);
                }
            }
        }
        piece.emitted.push(event);
        Ok(())
    }

    /// An inode lost a name. If that was the last, the inode becomes an orphan or is forgotten.
    fn name_lost(&mut self, ino: Ino) {
        match self.shards.ns.attr(ino) {
            Ok(attr) if attr.nlink == 0 => {
                if self.shards.orphans.insert(ino) && !self.clients.opens.is_open(ino) {
                    self.shards.reclaims.push_back(ino);
                }
            }
            Ok(_) => {}
            Err(_) => {
                self.shards.orphans.remove(&ino);
                self.clients.leases.forget(ino);
                self.shards.fragments.remove(&ino);
            }
        }
    }

    /// Waits for the sessions that hold leases on the inodes that an event will change.
    fn recall_for_merge(&mut self, event: &Event, piece: &mut Piece, m: &Moment) -> Result<(), End> {
        let Piece { map, touched, .. } = piece;
        touched.clear();
        Namespace::touched(std::slice::from_ref(event), touched);
        let target = event.footprint().names().last();
        for ino in touched.iter_mut() {
            *ino = map.translate(*ino);
        }
        if let Some(NameChange { dir, name, .. }) = target {
            match self.shards.ns.lookup(&chiton_types::Cred::ROOT, map.translate(dir), name) {
                Ok(found) => touched.extend(found),
                Err(Fault::Missing(needs)) => return Err(End::Missing(needs)),
                Err(_) => {}
            }
        }
        let mut busy: SmallVec<[Ino; 4]> = smallvec![];
        for &ino in touched.iter() {
            if !busy.contains(&ino)
                && self.clients.leases.conflict(ino, Slot::SERVER, LeaseMode::None, m.mono)
            {
                busy.push(ino);
            }
        }
        if busy.is_empty() { Ok(()) } else { Err(End::Busy(busy)) }
    }

    /// Whether others hold leases on some of these inodes, which are recalled. Leaves those.
    fn is_still_held(&mut self, inos: &mut Vec<Ino>, m: &Moment) -> bool {
        inos.sort_unstable();
        inos.dedup();
        inos.retain(|ino| self.clients.leases.conflict(*ino, Slot::SERVER, LeaseMode::None, m.mono));
        !inos.is_empty()
    }

    fn used_fresh(&mut self, piece: &mut Piece, m: &Moment) -> Result<(), End> {
        let shard: ShardId = piece.fresh.shard();
        if let Some(counter_end) = self.shards.inodes.take(shard) {
            self.output.position = self.output.position.next();
            piece.map.note_own(self.output.position);
            piece.emitted.push(Event::Reserve { shard, counter_end });
            self.shards.inodes.reserved(shard, counter_end, self.output.position);
        }
        piece.fresh = self.shards.inodes.offer(shard, m.durable).map_err(End::Durable)?;
        Ok(())
    }
}

impl Shards {
    /// A call that is done already, asked again: its answer is repeated.
    fn answer_again(&self, call: &MergeCall<'_>, merging: &mut Merging) {
        let last = self.realms.answered.get(&call.claim.realm);
        if let Some(last) = last.filter(|last| last.batch == call.batch && last.from == call.from) {
            merging.skipped += last.skipped;
            merging.lost.extend_from_slice(&last.lost);
            merging.conflicts.extend_from_slice(&last.conflicts);
        }
    }

    fn remember_answer(
        &mut self,
        call: &MergeCall<'_>,
        skipped: u64,
        lost: &[(u64, String)],
        found: &[Conflict],
    ) {
        let (realm, batch, from) = (call.claim.realm, call.batch, call.from);
        if lost.is_empty() && found.is_empty() {
            // An answer with losses or conflicts is not replaced by an empty one, unless that is of another piece.
            self.realms.answered.retain(|id, last| *id != realm || (last.batch, last.from) == (batch, from));
            return;
        }
        let (lost, conflicts) = (lost.to_vec(), found.to_vec());
        self.realms.answered.insert(realm, Answered { batch, from, skipped, lost, conflicts });
    }

    /// A number for a copy, without using it up.
    fn fresh_number(&mut self, call: &MergeCall<'_>, m: &Moment) -> Result<Ino, Stop> {
        let root = self.ns.decoupling(call.claim.realm).expect("it is claimed").root();
        let offer = self.inodes.offer(root.shard(), m.durable);
        offer.map_err(|position| Stop::Wait(Wait::Durable(position)))
    }
}

impl MergeCall<'_> {
    /// Reads the events. They come from a client: hostile until checked.
    fn decode(&self) -> Result<Merging, Stop> {
        let bad = |what: String| Stop::Fail(Failure::Malformed(what));
        if self.count as usize > MERGE_EVENTS_MAX {
            return Err(bad(format!("a merge has at most {MERGE_EVENTS_MAX} events a call")));
        }
        if self.batch.after >= self.batch.upto || self.from.checked_add(u64::from(self.count)).is_none() {
            return Err(bad("a merge batch must begin before it ends".to_owned()));
        }
        let mut from = Take::new(self.events);
        let events = (0..self.count).map(|_| Event::decode(&mut from)).collect::<Result<Vec<_>, _>>();
        let events = events.and_then(|events| from.finish().map(|()| events));
        let events = events.map_err(|e| bad(format!("the events of a merge: {e}")))?;
        Ok(Merging { events, skipped: 0, lost: Vec::new(), conflicts: Vec::new(), recalled: Vec::new() })
    }

    /// How many events of the batch are done, if this call's are the next.
    fn standing(&self, state: MergeState, count: u64) -> Option<u64> {
        let done = match state.batch {
            Some((upto, done)) if upto == self.batch.upto => done,
            None => 0,
            Some(_) => return None,
        };
        let is_next = state.merged == self.batch.after && self.from <= done && done <= self.from + count;
        // Of what is done already only the batch's end may be missing.
        (is_next && (done < self.from + count || self.last)).then_some(done)
    }
}

/// About the bytes of an event in a frame.
fn size_about(event: &Event) -> usize {
    let mut bytes = 64;
    if let Event::Make { content, .. } | Event::Write { body: Body::Inline(content), .. } = event {
        bytes += content.len();
    }
    if let Event::Write { body: Body::Extents(extents), .. } = event {
        bytes += extents.len() * 40;
    }
    if let Event::Xattr { value: Some(value), .. } = event {
        bytes += value.len();
    }
    bytes
}

#[cfg(test)]
mod tests;
