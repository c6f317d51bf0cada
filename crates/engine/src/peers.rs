//! Operations that change rows of several plates. The plate whose directory gives or takes the name decides; the others guard the
//! rows that the decision rests on, and carry out its events afterwards. `spec/plates` is a model of this protocol.
//!
//! ```text
//!   deciding (crossing.rs)                                owner of a row (guards.rs, effects.rs)
//!     acquire: rows in order (order.rs) ── Guard ──────▶  recall leases, frame [guarded], durable
//!     plan again ◀──────────────── Granted(row) ────────
//!     frame [events, owes] ─▶ answers the client
//!     … durable … ──────────────── Effect(events) ─────▶  frame [carried-out, events]: the guards of the operation end
//!     frame [settled] ◀─────────── CarriedOut ──────────  once that is durable
//! ```
//!
//! Invariants:
//! - One frame decides, with the client's session and number in it.
//! - A guard is granted, and an effect sent, only when its frame is durable: no plate rests on events that another may lose.
//! - Effects are carried out in the order of their numbers, each once. They are never refused.
//! - A row with a guard stays as it is, and requests that look at it wait.
//! - The guards of a plate that starts anew stand until it has carried out again what it had answered.
//! - With one plate there is nothing of this ([`Engine::peers`] is `None`).

mod births;
mod carrying;
mod crossing;
mod effects;
mod failed_rows;
mod folds;
mod gauges;
mod guards;
mod keeper;
mod keys;
mod moves;
mod order;
mod policies;
mod rows;
mod subtrees;
mod trees;
mod view;
mod waits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chiton_model::Event;
use chiton_types::{Ino, PlateId, Plates, Position, Seq, ShardId};
use chiton_wire::{Answer, OpKey, PeerMessage, SubtreeQuestion};
use hashbrown::HashSet;

use folds::FoldStep;
use guards::Asked;
use order::Row;

use crate::engine::Engine;
use crate::moment::{Health, Moment};
use crate::parts::Queue;
use crate::step::{Command, Progress, Step, Stop};
use crate::subtree::Said;
use crate::wait_queue::{Task, Wait};

pub(crate) use carrying::Resolving;
pub(crate) use crossing::{Crossing, made_elsewhere};
pub use gauges::PeerGauges;
pub(crate) use keys::{is_key_of_server, is_of_ticket, unnumbered_key};
pub(crate) use moves::moves_directory;
pub use rows::{OwedEffect, PeerState};
pub(crate) use rows::{PeerRows, TAGS};

/// The state of operations over plates, and of the other plates.
pub(crate) struct Peers {
    plate: PlateId,
    plates: Plates,
    /// Number of this start. Other plates learn from it that this one was restarted.
    boot: u64,
    /// Operations that were answered before the start and are carried out again, once they are known.
    resends: Option<BTreeSet<OpKey>>,
    /// They are carried out again, up to this position.
    opened_at: Option<Position>,
    others: BTreeMap<PlateId, Peer>,
    /// Attempts to take guards, so far.
    attempts: u64,
    /// Operations that are decided here and need rows of other plates.
    crossings: BTreeMap<OpKey, Crossing>,
    /// Own rows that are guarded, and at the first plate the token.
    guards: BTreeMap<Ino, Guard>,
    /// Own moves of directories that keep the token, with the positions of their decisions.
    moves: BTreeMap<OpKey, Position>,
    /// Directories that are being folded, by the last steps.
    folds: BTreeMap<Ino, FoldStep>,
    /// Paths that other plates carry on for clients of this one.
    carried: carrying::Carrying,
    /// Everything up to here is durable.
    durable: Position,
    /// Own numbers that others may use, by the first of a range.
    lent: BTreeMap<Ino, Lent>,
    /// Numbers of others of which an earlier start may have made use: whether they are unused, once that is known.
    unborn: BTreeMap<Ino, Option<bool>>,
    /// Directories of other plates whose realm is asked for.
    asked_realms: BTreeSet<Ino>,
    /// Questions about subtrees of clients that other plates have not answered.
    asked_subtrees: HashSet<SubtreeQuestion>,
    /// Own changes of policies, with the plates at which clients may still hold names under the policies before.
    settling: BTreeMap<OpKey, BTreeSet<PlateId>>,
    /// Births that their plates were asked for since they greeted.
    asked_births: BTreeSet<Ino>,
    /// Lent numbers whose borrower has no birth to send.
    not_coming: BTreeSet<Ino>,
    /// Births that others wait for, to be looked at when the plate is open.
    awaited: Vec<(PlateId, Ino)>,
    /// Requests of other plates.
    tasks: VecDeque<Task>,
    /// Rows that are no more, since the last checkpoint.
    removed: Vec<Vec<u8>>,
    /// A request waits for an event that is not durable yet.
    wants_commit: bool,
}

/// The state of the link to another plate: the messages that it has sent, and the effects that this plate owes it.
#[derive(Default)]
struct Peer {
    /// Of its start that has greeted this one; 0 if none has.
    boot: u64,
    /// It has answered the greeting of this start. Earlier messages were for an earlier one.
    has_answered: bool,
    /// Effects that it has not carried out durably, by number.
    owed: BTreeMap<u64, Owed>,
    /// The last number of an effect.
    last_owed: u64,
    /// Effects up to this one were sent since the greeting.
    sent: u64,
    /// Its effects up to this one are carried out here, at this position.
    carried_out: u64,
    carried_out_at: Position,
    /// It knows that those up to this one are durable.
    reported: u64,
    /// Its numbers that may be used here, by shard.
    numbers: BTreeMap<ShardId, births::Numbers>,
    /// It is to hear that this plate is open, once all births from before are sent.
    owes_open: bool,
    /// Ranges that are lent and not yet sent, with the positions that must be durable first.
    lending: VecDeque<(Position, Ino, Ino)>,
}

/// An effect on another plate that is decided and not yet carried out there.
struct Owed {
    /// Journal position of the decision.
    position: Position,
    key: OpKey,
    count: u32,
    events: Vec<u8>,
}

/// A guard on an own row. Those of own operations are in memory alone.
#[derive(Clone, Copy)]
struct Guard {
    holder: PlateId,
    key: OpKey,
    /// Start of the holder and attempt of the operation.
    boot: u64,
    attempt: u64,
    /// It counts once this is durable.
    position: Position,
}

/// A lent range of numbers.
#[derive(Clone, Copy)]
struct Lent {
    to: PlateId,
    /// Number of the borrower's start.
    boot: u64,
    /// The first number past it.
    end: Ino,
}

/// Most numbers that are remembered as not coming.
const NOT_COMING_MAX: usize = 4096;

impl Peers {
    /// Of a file system with several plates; `None` of one with one.
    pub(crate) fn new(plate: PlateId, plates: Plates) -> Option<Box<Peers>> {
        let others = plates.all().filter(|other| *other != plate).map(|other| (other, Peer::default()));
        (plates.count() > 1).then(|| {
            Box::new(Peers {
                plate,
                plates,
                boot: 0,
                resends: None,
                opened_at: None,
                others: others.collect(),
                attempts: 0,
                crossings: BTreeMap::new(),
                guards: BTreeMap::new(),
                moves: BTreeMap::new(),
                folds: BTreeMap::new(),
                carried: carrying::Carrying::default(),
                durable: Position(0),
                lent: BTreeMap::new(),
                unborn: BTreeMap::new(),
                asked_realms: BTreeSet::new(),
                asked_subtrees: HashSet::new(),
                settling: BTreeMap::new(),
                asked_births: BTreeSet::new(),
                not_coming: BTreeSet::new(),
                awaited: Vec::new(),
                tasks: VecDeque::new(),
                removed: Vec::new(),
                wants_commit: false,
            })
        })
    }

    /// The plate of an inode, if it is another.
    fn other_of(&self, ino: Ino) -> Option<PlateId> {
        self.plates.of(ino).filter(|plate| *plate != self.plate)
    }

    fn send(&self, to: PlateId, message: PeerMessage, queue: &mut Queue) {
        queue.commands.push(Command::Peer(to, message));
    }

    /// A request of another plate is carried out as soon as it can be.
    fn push_task(&mut self, from: PlateId, message: PeerMessage, queue: &mut Queue) {
        let task = Task { ticket: Some(queue.waiting.issue()), ..Task::of_peer(from, message) };
        self.tasks.push_back(task);
    }

    #[inline]
    pub(crate) fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Sends what has become durable: effects, reports, numbers.
    pub(crate) fn send_durable(&mut self, durable: Position, queue: &mut Queue) {
        self.durable = self.durable.max(durable);
        self.forget_ended_folds(durable);
        let is_open = self.opened_at.is_some_and(|at| at <= durable);
        let moves: Vec<OpKey> = self.keys_of_moves().collect();
        for (&to, peer) in self.others.iter_mut().filter(|(_, peer)| peer.boot != 0) {
            let mut send = |message| queue.commands.push(Command::Peer(to, message));
            for (&number, owed) in peer.owed.range(peer.sent.saturating_add(1)..) {
                if owed.position > durable {
                    break;
                }
                let Owed { key, count, events, .. } = owed;
                let (key, count, events) = (*key, *count, events.clone());
                send(PeerMessage::Effect { number, key, count, events });
                peer.sent = number;
            }
            if is_open && std::mem::take(&mut peer.owes_open) {
                send(PeerMessage::Open { moves: moves.clone() });
            }
            if peer.carried_out > peer.reported && peer.carried_out_at <= durable {
                peer.reported = peer.carried_out;
                send(PeerMessage::CarriedOut { upto: peer.reported });
            }
            while let Some(&(_, first, end)) = peer.lending.front().filter(|(at, ..)| *at <= durable) {
                peer.lending.pop_front();
                send(PeerMessage::Numbers { first, end });
            }
        }
    }

    /// The lowest position whose durability another plate waits for.
    pub(crate) fn durable_wanted(&self) -> Option<Position> {
        let of_peer = |peer: &Peer| {
            let effect = peer.owed.range(peer.sent.saturating_add(1)..).next().map(|(_, owed)| owed.position);
            let report = (peer.carried_out > peer.reported).then_some(peer.carried_out_at);
            let numbers = peer.lending.front().map(|(position, ..)| *position);
            let open = self.opened_at.filter(|_| peer.owes_open);
            [effect, report, numbers, open].into_iter().flatten().min()
        };
        let of_peers = self.others.values().filter(|peer| peer.boot != 0).filter_map(of_peer);
        of_peers.chain(self.move_wanted()).min()
    }

    fn hello(&self, to: PlateId, is_answer: bool) -> PeerMessage {
        // An effect that was carried out is reported when it is durable.
        PeerMessage::Hello { is_answer, boot: self.boot, carried_out: self.others[&to].reported }
    }

    /// Own rows that other plates guard, and at the first plate the token.
    pub(crate) fn guarded(&self) -> impl Iterator<Item = Ino> {
        self.guards.iter().filter(|(_, guard)| guard.holder != self.plate).map(|(ino, _)| *ino)
    }

    /// The guards that another plate may keep for operations of this one, once they are known.
    fn active(&self, at: PlateId) -> Option<PeerMessage> {
        let decided = self.others[&at].owed.values().map(|owed| owed.key);
        // Beyond its effects a move keeps the token, and nothing at other plates.
        let moves = self.keys_of_moves().filter(|_| at == Row::TOKEN.plate);
        let operations: BTreeSet<OpKey> =
            self.resends.as_ref()?.iter().copied().chain(decided).chain(moves).collect();
        let guards = self.crossings.iter().map(|(key, crossing)| (*key, crossing.attempt()));
        Some(PeerMessage::Collected {
            operations: operations.into_iter().collect(),
            guards: guards.collect(),
        })
    }

    /// The sessions of before the start have said which operations were answered: the guards of all others fall.
    pub(crate) fn collected<'a>(&mut self, tasks: impl Iterator<Item = &'a Task>, queue: &mut Queue) {
        let was_answered =
            |task: &&Task| task.request.again.is_some_and(|again| again.position > Position(0));
        let keys = tasks.filter(was_answered).flat_map(|Task { session, request, .. }| {
            let seqs = (request.seq.0..).take(request.call.ops().len());
            seqs.map(|seq| OpKey { session: *session, seq: Seq(seq) })
        });
        self.resends = Some(keys.collect());
        for (&to, _) in self.others.iter().filter(|(_, peer)| peer.boot != 0) {
            if let Some(active) = self.active(to) {
                self.send(to, active, queue);
            }
        }
    }

    /// Operations that were answered before the start are carried out again.
    pub(crate) fn open(&mut self, at: Position, durable: Position, queue: &mut Queue) {
        if self.opened_at.is_some() {
            return;
        }
        self.opened_at = Some(at);
        self.resends = Some(BTreeSet::new());
        for peer in self.others.values_mut() {
            peer.owes_open = true;
        }
        self.wants_commit = true;
        self.send_durable(durable, queue);
        for (from, ino) in std::mem::take(&mut self.awaited) {
            self.push_task(from, PeerMessage::AwaitBirth { ino }, queue);
        }
    }
}

impl Engine {
    /// Greets the other plates in this start. To be called once they can be reached, after [`Engine::begin`].
    pub fn greet_peers(&mut self, boot: u64) {
        let Some(peers) = &mut self.peers else { return };
        peers.boot = boot;
        for peer in peers.others.values_mut() {
            // The journal's events of it are durable.
            peer.reported = peer.carried_out;
        }
        peers.restore_moves();
        for &to in peers.others.keys() {
            peers.send(to, peers.hello(to, false), &mut self.queue);
        }
    }

    /// Greets another plate again, although neither has started anew, since messages on their way to
    /// it may be lost. To be called once it can be reached again, before anything else goes there.
    pub fn greet_peer(&mut self, to: PlateId) {
        // It asks again when it is greeted.
        self.drop_tasks(|task| task.asked_by_peer().is_some_and(|(by, _)| *by == to));
        // Before its first greeting nobody knows of this start.
        let Some(peers) = self.peers.as_mut().filter(|peers| peers.boot != 0) else { return };
        let Some(peer) = peers.others.get_mut(&to) else { return };
        (peer.boot, peer.has_answered) = (0, false);
        peers.send(to, peers.hello(to, false), &mut self.queue);
    }

    /// Whether an effect is owed that another plate has not carried out durably, as far as is known here.
    pub fn owes_effects(&self) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.others.values().any(|peer| !peer.owed.is_empty()))
    }

    /// True, once, if another plate waits for a commit.
    #[inline]
    pub fn wants_commit_now(&mut self) -> bool {
        self.peers.as_mut().is_some_and(|peers| std::mem::take(&mut peers.wants_commit))
    }

    /// A message of another plate. Before [`Engine::greet_peers`] it is dropped, since an answer would carry the number of no start. The other
    /// plate sends everything again when it is greeted.
    pub fn peer(&mut self, from: PlateId, message: PeerMessage, m: &Moment) {
        let Some(peers) = self.peers.as_mut().filter(|peers| peers.boot != 0) else { return };
        let Some(peer) = peers.others.get_mut(&from) else { return };
        if let PeerMessage::Hello { is_answer: true, .. } = message {
            peer.has_answered = true;
        } else if !peer.has_answered && !matches!(message, PeerMessage::Hello { .. }) {
            return;
        }
        match message {
            PeerMessage::Hello { is_answer, boot, carried_out } => {
                self.greeted(from, is_answer, boot, carried_out, m);
            }
            PeerMessage::Collected { operations, guards } => {
                let boot = peer.boot;
                self.end_guards(from, |_, guard| {
                    let is_current = guard.boot == boot && guards.contains(&(guard.key, guard.attempt));
                    !is_current && !operations.contains(&guard.key)
                });
            }
            PeerMessage::Guard { .. }
            | PeerMessage::Effect { .. }
            // The message that no birth comes any more must not overtake a birth that waits for rows.
            | PeerMessage::Open { .. }
            | PeerMessage::NotComing { .. }
            | PeerMessage::WantNumbers { .. }
            | PeerMessage::AwaitBirth { .. }
            | PeerMessage::AskPlace { .. }
            | PeerMessage::AskRealm { .. }
            | PeerMessage::RecallNames { .. }
            | PeerMessage::Carry { .. }
            | PeerMessage::AskSubtree { .. }
            | PeerMessage::AskUnborn { .. } => peers.push_task(from, message, &mut self.queue),
            PeerMessage::Granted { key, attempt, ino, row } => {
                if peers.granted((from, ino), key, attempt, row) {
                    self.wake_crossing(key);
                }
            }
            PeerMessage::Occupied { key, attempt, ino } => {
                if peers.occupied((from, ino), key, attempt, &mut self.queue) {
                    self.wake_crossing(key);
                    self.wake_unguarded();
                }
            }
            PeerMessage::Place { key, attempt, ino, attr, name } => {
                if peers.place_came(key, attempt, ino, (attr, name)) {
                    self.wake_crossing(key);
                }
            }
            PeerMessage::Realm { ino, version, realm } => self.realm_came(ino, version, realm),
            PeerMessage::NamesRecalled { key } => self.names_recalled(from, key),
            PeerMessage::Carried { number, passed, onward } => {
                self.was_carried(from, number, Ok((passed, onward)));
            }
            PeerMessage::NotCarried { number, failure } => self.was_carried(from, number, Err(failure)),
            PeerMessage::Subtree { question, found, onward } => {
                self.subtree_came(from, question, Said { found, onward }, m);
            }
            PeerMessage::Release { key } => self.end_guards(from, |_, guard| guard.key == key),
            PeerMessage::CarriedOut { upto } => {
                self.settle_effects(from, upto);
                self.return_tokens(m.durable);
            }
            PeerMessage::Numbers { first, end } => {
                peers.numbers_came(from, first, end);
                self.wake_where(|wait| *wait == Wait::Numbers);
            }
            PeerMessage::Unborn { ino, is_unborn } => {
                if let Some(answer) = peers.unborn.get_mut(&ino) {
                    *answer = Some(is_unborn);
                    self.wake_where(|wait| *wait == Wait::Unborn(ino));
                }
            }
        }
    }

    /// Another plate is there, for the first time or anew. Messages between the two may be lost, and are sent again. Requests for guards are not
    /// sent again if this greeting answers that of this plate, and another one came before: the second of two equal requests would take the guard
    /// after the operation has ended.
    fn greeted(&mut self, from: PlateId, is_answer: bool, boot: u64, carried_out: u64, m: &Moment) {
        self.settle_effects(from, carried_out);
        self.return_tokens(m.durable);
        let is_known = self.peers.as_ref().is_some_and(|peers| peers.others[&from].boot == boot);
        // An earlier start asked: the new one must not take the answer for one of its own. For guards it asks again after each greeting.
        self.drop_tasks(|task| {
            let is_void = |message: &PeerMessage| !is_known || matches!(message, PeerMessage::Guard { .. });
            task.asked_by_peer().is_some_and(|(by, message)| *by == from && is_void(message))
        });
        let Some(peers) = &mut self.peers else { return };
        let peer = peers.others.get_mut(&from).expect("checked by the caller");
        if std::mem::replace(&mut peer.boot, boot) != boot {
            // Numbers that were on their way to an earlier start are not lent to this one.
            peer.lending.clear();
        }
        peer.sent = carried_out;
        peer.owes_open = peers.opened_at.is_some();
        // An answer that was lost with the start is asked for again.
        let asked = peer.numbers.iter().filter(|(_, numbers)| numbers.is_asked).map(|(shard, _)| *shard);
        let asked: Vec<_> = asked.collect();
        let has_answered = peer.has_answered;
        if !is_answer {
            peers.send(from, peers.hello(from, true), &mut self.queue);
        }
        if !has_answered {
            // The greeting of this plate went to an earlier start.
            peers.send(from, peers.hello(from, false), &mut self.queue);
        }
        if let Some(active) = peers.active(from) {
            peers.send(from, active, &mut self.queue);
        }
        for shard in asked {
            peers.send(from, PeerMessage::WantNumbers { shard }, &mut self.queue);
        }
        peers
            .carried
            .keep(|number| !self.queue.waiting.select(|_, wait| *wait == Wait::Carried(number)).is_empty());
        for message in peers.carried.asked_of(from) {
            peers.send(from, message, &mut self.queue);
        }
        let guards = if is_known && is_answer { Vec::new() } else { peers.asked_of(from) };
        let questions = guards.into_iter().chain(peers.asked_of_subtrees(from));
        let questions = questions.chain(peers.asked_of_policies(&self.shards.ns, from));
        for question in questions.collect::<Vec<_>>() {
            peers.send(from, question, &mut self.queue);
        }
        let unborn = peers.unborn.iter().filter(|(_, answer)| answer.is_none()).map(|(ino, _)| *ino);
        let unborn: Vec<_> = unborn.filter(|ino| peers.plates.of(*ino) == Some(from)).collect();
        for ino in unborn {
            peers.send(from, PeerMessage::AskUnborn { ino }, &mut self.queue);
        }
        peers.send_durable(m.durable, &mut self.queue);
        peers.asked_births.clear();
        // Their births may come from the new start, or never.
        self.wake_where(|wait| matches!(wait, Wait::Birth(_)));
    }

    /// Carries out requests of other plates; `None` if there are none (any more).
    pub(crate) fn run_peers(&mut self, m: &Moment) -> Option<Progress> {
        loop {
            let peers = self.peers.as_mut()?;
            // An effect is not refused: it waits until it can be written.
            let is_effect =
                matches!(peers.tasks.front()?.asked_by_peer(), Some((_, PeerMessage::Effect { .. })));
            if is_effect && m.health != Health::Good {
                return None;
            }
            let task = peers.tasks.pop_front()?;
            if let Step::NeedRows(task, needs) = self.retry(task, m) {
                self.peers.as_mut()?.tasks.push_front(task);
                return Some(Progress::NeedRows(needs));
            }
        }
    }

    /// A request of another plate.
    pub(crate) fn peer_task(&mut self, task: &mut Task, m: &Moment) -> Result<Answer, Stop> {
        if matches!(task.asked_by_peer(), Some((_, PeerMessage::Carry { .. }))) {
            return self.carry_on(task, m);
        }
        let Some((from, message)) = task.asked_by_peer() else { return Ok(Answer::Done) };
        match message {
            PeerMessage::Guard { takes_over, is_late, entries, key, attempt, ino, name, client } => {
                let asked = Asked {
                    key: *key,
                    attempt: *attempt,
                    takes_over: *takes_over,
                    is_late: *is_late,
                    entries: *entries,
                    ino: *ino,
                    name: name.as_ref(),
                    client: *client,
                };
                self.guard_row(*from, &asked, m)?;
            }
            PeerMessage::AskPlace { key, attempt, ino, child } => {
                self.show_place(*from, (*key, *attempt), *ino, *child)?;
            }
            PeerMessage::AskRealm { ino, version } => self.show_realm(*from, *ino, *version)?,
            PeerMessage::RecallNames { key } => self.recall_all_names(*from, *key, m)?,
            PeerMessage::Effect { number, key, count, events } => {
                self.carry_out_effect(*from, *number, *key, *count, events, m)?;
            }
            PeerMessage::WantNumbers { shard } => self.lend_numbers(*from, *shard),
            PeerMessage::AwaitBirth { ino } => self.birth_awaited(*from, *ino),
            PeerMessage::AskUnborn { ino } => self.asked_unborn(*from, *ino)?,
            PeerMessage::Open { moves } => self.peer_opened(*from, moves),
            PeerMessage::NotComing { ino } => self.birth_not_coming(*ino),
            PeerMessage::AskSubtree { question } => {
                let question = question.clone();
                self.show_subtree(*from, &question, m)?;
            }
            PeerMessage::Carry { .. } => unreachable!("looked at above"),
            PeerMessage::Hello { .. }
            | PeerMessage::Carried { .. }
            | PeerMessage::NotCarried { .. }
            | PeerMessage::Subtree { .. }
            | PeerMessage::Collected { .. }
            | PeerMessage::Granted { .. }
            | PeerMessage::Occupied { .. }
            | PeerMessage::Place { .. }
            | PeerMessage::Realm { .. }
            | PeerMessage::NamesRecalled { .. }
            | PeerMessage::Release { .. }
            | PeerMessage::CarriedOut { .. }
            | PeerMessage::Numbers { .. }
            | PeerMessage::Unborn { .. } => unreachable!("answered at once"),
        }
        Ok(Answer::Done)
    }

    /// A session is over: its operations here are given up.
    pub(crate) fn give_up_crossings(&mut self, which: impl Fn(&OpKey) -> bool) {
        let Some(peers) = &mut self.peers else { return };
        for key in peers.crossings.keys().copied().filter(which).collect::<Vec<_>>() {
            peers.give_up(key, &mut self.queue);
        }
        self.wake_unguarded();
    }

    /// An event of the server itself about other plates.
    fn commit_peer_event(&mut self, event: &Event) {
        self.output.commit_own(event, &mut self.shards);
        let position = self.output.position;
        if let Some(peers) = &mut self.peers {
            peers.note(event, position);
        }
    }
}

#[cfg(test)]
mod tests;
