//! Decoupled realms: clients take subtrees, resume them and return them.
//!
//! ```text
//!   Decouple ─▶ may they? ─▶ all leases below are given up ─▶ Event::Decoupled, durable ─▶ Granted
//! ```
//!
//! Invariants:
//! - A client can repeat each call, and gets the first answer again.
//! - A claim is worth something only in the hands of the session that it was granted to, and only the latest.
//! - When a decoupling begins, nobody holds a lease in it, and nothing in it is what only memory holds.

mod become_branch;
mod borders;
mod check;
mod interference;
mod list;
mod merge;
mod near;
mod numbers;
mod required;
mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_model::merge::{MergeMap, MergeState, OnConflict, Settled};
use chiton_model::{Attached, Decoupling, Event, Interference, MergedUpTo};
use chiton_namespace::Fault;
use chiton_policy::{Durability, Policy};
use chiton_types::frame::FrameHeader;
use chiton_types::{
    Cred, Ino, Kind, Name, PlateId, Plates, Position, RealmId, Refusal, Seq, SessionId, ShardId, access,
};
use chiton_wire::{
    Answer, Call, Claim, Failure, GRANT_MAX, Granted, LeaseMode, Merged, RealmAnswer, RealmCall,
};
use hashbrown::HashMap;
use smallvec::smallvec;

use merge::Answered;
pub(crate) use merge::Merging;
use near::Here;
use rows::AsOf;

use crate::dispatch::answer_done;
use crate::engine::Engine;
use crate::leases::EVERYTHING;
use crate::moment::{Health, Moment};
use crate::parts::{Clients, Output, Shards};
use crate::peers::Peers;
use crate::sessions::Slot;
use crate::step::{Command, Stop};
use crate::wait_queue::{Task, Wait};

/// Inodes looked for in the metadata store at a time.
const NEEDS_AT_ONCE: usize = 4096;

/// State about realms beside the namespace.
#[derive(Debug)]
pub(crate) struct Realms {
    pub(crate) here: Here,
    /// Ids never used, for the writers of decouplings that begin.
    writers: Vec<u64>,
    /// Identity of the file system, for answers.
    filesystem: u64,
    /// The last answers to merge calls.
    answered: BTreeMap<RealmId, Answered>,
    /// Which decoupling holds the merge lock of a directory. In memory only: a client that waits asks again.
    merge_locks: BTreeMap<Ino, (Claim, SessionId)>,
    /// Position of the last event that ended a claim: an ended decoupling, or one that another client attached to.
    claims_ended: Position,
}

/// An answer, and the position that must be durable before it is given.
type Found = Result<(RealmAnswer, Position), Stop>;

/// An answer with this position waits for no durability.
const NOW: Position = Position(0);

/// The client whose call is answered.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    session: SessionId,
    cred: &'a Cred,
}

/// The state that a call about decouplings may touch.
pub(crate) struct RealmHandler<'a> {
    shards: &'a mut Shards,
    clients: &'a mut Clients,
    output: &'a mut Output,
    commands: &'a mut Vec<Command>,
    /// With several plates only.
    peers: Option<&'a Peers>,
}

/// The request of a client that takes a subtree for itself.
struct Wanted<'a> {
    root: Ino,
    branch: Option<&'a Name>,
    nonce: u64,
    journal_at: &'a str,
    policy: &'a [u8],
}

impl Engine {
    /// An id that was never used, for the writer of a decoupling that is about to be asked for.
    pub fn add_writer(&mut self, id: SessionId) {
        self.shards.realms.writers.push(id.0);
    }

    /// The identity of the file system that clients get.
    pub fn set_filesystem(&mut self, filesystem: u64) {
        self.shards.realms.filesystem = filesystem;
    }

    /// Writers whose blocks are nobody's garbage yet: of sessions, and of decouplings.
    pub fn live_writers(&self) -> Vec<SessionId> {
        let decoupled = self.shards.ns.decouplings().map(|d| SessionId(d.map.writer()));
        self.clients.session_ids().into_iter().chain(decoupled).collect()
    }

    /// Decouplings that are not over, and the last that began.
    pub fn decoupled_realms(&self) -> (Vec<RealmId>, RealmId) {
        (self.shards.ns.decouplings().map(|d| d.id).collect(), self.shards.ns.decoupling_last())
    }

    /// Whether a session has this claim.
    ///
    /// # Errors
    /// Why not, and the position that must be durable before the session hears it.
    pub fn holds_claim(&self, session: SessionId, claim: Claim) -> Result<(), (Refusal, Position)> {
        let caller = Caller { session, cred: &Cred::ROOT };
        match self.shards.claimed(&caller, claim) {
            Ok(_) => Ok(()),
            Err(Stop::Fail(Failure::Refused(refusal))) => Err((refusal, self.shards.realms.claims_ended)),
            Err(_) => Err((Refusal::Stale, self.shards.realms.claims_ended)),
        }
    }

    /// Whether a session may put blocks of this writer: its own, or that of its decoupled subtree.
    pub fn may_put(&self, session: SessionId, writer: u64) -> bool {
        session.0 == writer
            || self.shards.ns.decouplings().any(|d| d.map.writer() == writer && d.owner == session)
    }

    pub(crate) fn realms(&mut self) -> RealmHandler<'_> {
        RealmHandler {
            shards: &mut self.shards,
            clients: &mut self.clients,
            output: &mut self.output,
            commands: &mut self.queue.commands,
            peers: self.peers.as_deref(),
        }
    }
}

impl RealmHandler<'_> {
    pub(crate) fn answer(&mut self, task: &mut Task, m: &Moment) -> Result<Answer, Stop> {
        let Call::Realm(call) = &task.request.call else { unreachable!("called for realms only") };
        let caller = Caller { session: task.session, cred: &task.request.cred };
        let found = match &**call {
            RealmCall::Decouple { root, branch, nonce, journal_at, policy } => {
                let (root, branch, nonce) = (*root, branch.as_ref(), *nonce);
                self.decouple(&caller, &Wanted { root, branch, nonce, journal_at, policy }, m)
            }
            RealmCall::Attach { realm, nonce, journal_at } => {
                self.attach(&caller, *realm, *nonce, journal_at, m)
            }
            RealmCall::Grant { claim, shard, count } => self.grant(&caller, *claim, *shard, *count, m),
            RealmCall::Rows { claim, needs } => self.shards.serve_rows(&caller, *claim, needs, AsOf::Base),
            RealmCall::Present { claim, needs } => self.shards.serve_rows(&caller, *claim, needs, AsOf::Now),
            RealmCall::Remembered { claim, after } => self.shards.remembered_rows(&caller, *claim, after),
            RealmCall::Check { claim, inodes, names } => {
                self.shards.check_foreign(&caller, *claim, inodes, names)
            }
            RealmCall::Merge { .. } => {
                self.merge(&caller, call, &mut task.merging, m).map(|answer| (answer, NOW))
            }
            RealmCall::Resolve { claim, on_conflict } => self.resolve_by(&caller, *claim, *on_conflict, m),
            RealmCall::MergeLock { claim, acquire } => self.merge_lock(&caller, *claim, *acquire),
            RealmCall::Settle { claim, files } => self.settle_files(&caller, *claim, files, m),
            RealmCall::End { claim, force } => self.end_decoupling(&caller, *claim, *force, m),
            RealmCall::BecomeBranch { realm, name } => self.become_branch(&caller, *realm, name.as_ref(), m),
            RealmCall::Of { ino } => self.of(&caller, *ino),
            RealmCall::BlockedBy { ino, name } => {
                let slot = self.clients.sessions.get(caller.session).map_or(Slot::SERVER, |s| s.slot);
                let blocked = self.blocked_by(slot, *ino, name.as_ref(), m)?;
                Ok((RealmAnswer::BlockedBy(blocked), NOW))
            }
            RealmCall::List => self.list_realms(&caller),
            RealmCall::Object { .. } => unreachable!("the runtime answers these"),
        };
        let (answer, position) = found.map_err(|stop| self.shards.realms.when_durable(stop, m))?;
        let answer = Answer::Realm(answer);
        if position <= m.durable {
            return Ok(answer);
        }
        task.done = Some(Box::new((position, answer)));
        answer_done(task, m)
    }

    fn decouple(&mut self, caller: &Caller<'_>, wanted: &Wanted<'_>, m: &Moment) -> Found {
        let root = wanted.root;
        let known = self.shards.ns.decouplings_of(root).find(|d| d.nonce == wanted.nonce);
        if let Some((id, owner)) = known.map(|d| (d.id, d.owner)) {
            if owner != caller.session {
                return self.attach(caller, id, wanted.nonce, wanted.journal_at, m);
            }
            return Ok((self.shards.granted(id)?, self.output.journalled()));
        }
        self.shards.may_change(m)?;
        let attr = self.shards.ns.attr(root)?;
        if attr.kind != Kind::Dir {
            return Err(Refusal::NotDir.into());
        }
        self.shards.may_manage(caller, attr.uid)?;
        self.shards.ns.access(caller.cred, root, access::READ | access::WRITE | access::EXEC)?;
        if let Some(peers) = self.peers {
            // The effects of their decisions come first.
            peers.await_guards_below(root, self.shards)?;
        }
        self.shards.ns.plan_decouple(root, wanted.branch)?;
        let policy = self.shards.policy_wanted(wanted, caller.cred)?;
        // The client must not build on changes that only memory holds.
        self.shards.settle()?;
        if self.peers.is_some() {
            self.shards.check_near(root)?;
        }
        // Work in a branch changes nothing here: readers keep their leases.
        let keep = if wanted.branch.is_some() { LeaseMode::Shared } else { LeaseMode::None };
        self.recall_below(root, keep, m)?;
        let Some(writer) = self.shards.realms.writers.pop() else { return Err(Refusal::NoSpace.into()) };
        let here = &self.shards.realms.here;
        let id = here.plates.next_realm(here.plate, self.shards.ns.decoupling_last());
        let on_conflict = match policy.on_conflict {
            chiton_policy::OnConflict::Overwrite => OnConflict::Overwrite,
            chiton_policy::OnConflict::Abort => OnConflict::Abort,
            chiton_policy::OnConflict::KeepBoth => OnConflict::KeepBoth,
            chiton_policy::OnConflict::Merge => OnConflict::Merge,
        };
        let mut map = MergeMap::new(root, self.output.position, writer, on_conflict);
        for shard in here.shards() {
            map.note_born_after(shard, self.shards.inodes.next_counter(shard));
        }
        self.shards.ns.decouplings_of(root).for_each(|other| map.note_unborn(&other.map));
        let (ranges, marks) = self.shards.take_numbers(root.shard(), policy.allocated_inodes)?;
        for &(first, end) in &ranges {
            map.grant(first, end);
        }
        let identity =
            self.clients.sessions.get(caller.session).map_or(String::new(), |s| s.identity.clone());
        let decoupling = Decoupling {
            id,
            branch: wanted.branch.cloned(),
            nonce: wanted.nonce,
            generation: 1,
            owner: caller.session,
            identity,
            uid: caller.cred.uid,
            journal_at: wanted.journal_at.to_owned(),
            policy: policy.text().into_bytes(),
            interference: match policy.interfere {
                chiton_policy::Interfere::Allow => Interference::Allow,
                chiton_policy::Interfere::Block => Interference::Block,
                chiton_policy::Interfere::BlockWrites => Interference::BlockWrites,
            },
            is_fleeting: policy.durability() == Durability::None,
            since: m.now,
            state: MergeState::default(),
            map,
        };
        self.commit_with_marks(Event::Decoupled(Box::new(decoupling)), &marks);
        self.clients.leases.decoupled(true);
        Ok((self.shards.granted(id)?, self.output.journalled()))
    }

    /// Waits until nobody holds a lease stronger than `keep` on anything from `root` down. Meanwhile no new ones are given.
    fn recall_below(&mut self, root: Ino, keep: LeaseMode, m: &Moment) -> Result<(), Stop> {
        self.clients.leases.freeze(m.mono);
        if self.clients.leases.recall_everything(keep, m.mono) {
            return Err(Stop::Wait(Wait::Leases(smallvec![EVERYTHING])));
        }
        let mut known = HashMap::new();
        let mut needs = Vec::new();
        let mut last = None;
        for ino in self.clients.leases.held(keep) {
            match self.shards.ns.is_below(ino, root, &mut known) {
                Ok(false) | Err(Fault::Refused(_)) => {}
                Ok(true) => {
                    if self.clients.leases.conflict(ino, Slot::SERVER, keep, m.mono) {
                        last = Some(ino);
                    }
                }
                Err(Fault::Missing(more)) if needs.len() < NEEDS_AT_ONCE => needs.extend(more),
                Err(Fault::Missing(_)) => break,
                Err(fault) => return Err(fault.into()),
            }
        }
        if !needs.is_empty() {
            return Err(Stop::Missing(needs));
        }
        match last {
            // They come back in about the order in which they were asked for: one look at all for the last of them.
            Some(ino) => Err(Stop::Wait(Wait::Leases(smallvec![ino]))),
            None => {
                self.clients.leases.thaw();
                Ok(())
            }
        }
    }

    fn attach(
        &mut self,
        caller: &Caller<'_>,
        id: RealmId,
        nonce: u64,
        journal_at: &str,
        m: &Moment,
    ) -> Found {
        let claim = Claim { realm: id, generation: 0 };
        let Some(known) = self.shards.ns.decoupling(id) else {
            return Err(self.shards.claimed(caller, claim).err().unwrap_or(Refusal::Stale.into()));
        };
        let (uid, generation, again) =
            (known.uid, known.generation, known.nonce == nonce && known.owner == caller.session);
        self.shards.may_manage(caller, uid)?;
        // Asked before anything changes.
        self.shards.granted(id)?;
        if !again {
            self.shards.may_change(m)?;
            let identity =
                self.clients.sessions.get(caller.session).map_or(String::new(), |s| s.identity.clone());
            self.end_claim(&Event::Attached(Box::new(Attached {
                id,
                nonce,
                generation: generation.saturating_add(1),
                owner: caller.session,
                identity,
                journal_at: journal_at.to_owned(),
                branch: None,
            })));
        }
        Ok((self.shards.granted(id)?, self.output.journalled()))
    }

    fn grant(&mut self, caller: &Caller<'_>, claim: Claim, shard: ShardId, count: u64, m: &Moment) -> Found {
        let id = self.shards.claimed(caller, claim)?.id;
        if count == 0 || count > GRANT_MAX || !self.shards.ns.owns(Ino::new(shard, 0)) {
            return Err(Refusal::Invalid.into());
        }
        self.shards.may_change(m)?;
        let (first, end, mark) = self.shards.inodes.take_range(shard, count).ok_or(Refusal::NoSpace)?;
        let marks: Vec<_> = mark.map(|mark| (shard, mark)).into_iter().collect();
        let ranges = vec![(first, end)];
        self.commit_with_marks(Event::Granted { id, ranges: ranges.clone() }, &marks);
        Ok((RealmAnswer::Ranges(ranges), self.output.journalled()))
    }

    /// Something else is done with conflicts from now on.
    fn resolve_by(
        &mut self,
        caller: &Caller<'_>,
        claim: Claim,
        on_conflict: OnConflict,
        m: &Moment,
    ) -> Found {
        let decoupling = self.shards.claimed(caller, claim)?;
        let (id, state, mut map) = (decoupling.id, decoupling.state, decoupling.map.clone());
        if map.on_conflict() != on_conflict {
            self.shards.may_change(m)?;
            map.set_on_conflict(on_conflict);
            self.output.commit_own(&Event::Merged(Box::new(MergedUpTo { id, state, map })), self.shards);
        }
        let position = self.output.journalled();
        Ok((RealmAnswer::Merged(Merged { state, position, ..Merged::default() }), position))
    }

    /// Takes or frees a directory's merge lock: pieces of two merges would interleave.
    fn merge_lock(&mut self, caller: &Caller<'_>, claim: Claim, acquire: bool) -> Found {
        let decoupling = self.shards.claimed(caller, claim)?;
        let (root, state) = (decoupling.root(), decoupling.state);
        let holder = self.merge_lock_holder(root);
        if acquire && holder.is_some_and(|holder| holder.realm != claim.realm) {
            return Err(Refusal::Busy.into());
        }
        if acquire {
            self.shards.realms.merge_locks.insert(root, (claim, caller.session));
        } else if holder == Some(claim) {
            self.shards.realms.merge_locks.remove(&root);
        }
        Ok((
            RealmAnswer::Merged(Merged { state, position: self.output.journalled(), ..Merged::default() }),
            NOW,
        ))
    }

    /// The decoupling that holds a directory's merge lock. The lock ends with its client, and with that client's session.
    pub(crate) fn merge_lock_holder(&self, root: Ino) -> Option<Claim> {
        let (claim, session) = *self.shards.realms.merge_locks.get(&root)?;
        let has_it = |d: &Decoupling| d.generation == claim.generation && d.owner == session;
        let lives = self.clients.sessions.get(session).is_some()
            && self.shards.ns.decoupling(claim.realm).is_some_and(has_it);
        lives.then_some(claim)
    }

    /// The decoupled side has the merged content of these files of others in its own journal.
    fn settle_files(
        &mut self,
        caller: &Caller<'_>,
        claim: Claim,
        files: &[(Ino, Position, Settled)],
        m: &Moment,
    ) -> Found {
        let decoupling = self.shards.claimed(caller, claim)?;
        let (id, state, mut map) = (decoupling.id, decoupling.state, decoupling.map.clone());
        if !files.is_empty() {
            self.shards.may_change(m)?;
            files.iter().for_each(|&(ino, position, how)| map.settle(ino, position, how));
            self.output.commit_own(&Event::Merged(Box::new(MergedUpTo { id, state, map })), self.shards);
        }
        let position = self.output.journalled();
        Ok((RealmAnswer::Merged(Merged { state, position, ..Merged::default() }), position))
    }

    /// Writes an event and the reservations that it needs as one frame, and applies them.
    fn commit_with_marks(&mut self, event: Event, marks: &[(ShardId, u64)]) {
        let shard = event.shard();
        let reserve = |&(shard, counter_end): &(ShardId, u64)| Event::Reserve { shard, counter_end };
        let mut events: Vec<Event> = marks.iter().map(reserve).collect();
        events.push(event);
        let header = FrameHeader { event_count: 0, shard, session: SessionId(0), seq: Seq(0) };
        self.output.commit(&events, header, self.shards);
        for &(shard, counter_end) in marks {
            self.shards.inodes.reserved(shard, counter_end, self.output.position);
        }
    }

    fn end_decoupling(&mut self, caller: &Caller<'_>, claim: Claim, force: bool, m: &Moment) -> Found {
        let over = self.shards.ns.decoupling(claim.realm).is_none()
            && claim.realm <= self.shards.ns.decoupling_last();
        if over && claim.realm != RealmId::GLOBAL {
            return Ok((RealmAnswer::Ended, self.output.journalled()));
        }
        if force {
            let uid = self.shards.ns.decoupling(claim.realm).ok_or(Refusal::Invalid)?.uid;
            self.shards.may_manage(caller, uid)?;
        } else {
            self.shards.claimed(caller, claim)?;
        }
        self.shards.may_change(m)?;
        if let Some(root) = self.recall_blocked(claim.realm, m) {
            return Err(Stop::Wait(Wait::Leases(smallvec![root])));
        }
        self.drop_decoupling(claim.realm);
        Ok((RealmAnswer::Ended, self.output.journalled()))
    }

    /// Journals an event that ends a claim.
    fn end_claim(&mut self, event: &Event) {
        self.output.commit_own(event, self.shards);
        self.shards.realms.claims_ended = self.output.position;
    }

    /// A decoupling ends: events that are not merged are dropped.
    pub(crate) fn drop_decoupling(&mut self, id: RealmId) {
        let Some(writer) = self.shards.ns.decoupling(id).map(|d| d.map.writer()) else { return };
        self.end_claim(&Event::DecouplingEnded { id });
        self.shards.realms.answered.remove(&id);
        // Its blocks that nothing names are swept as those of a dead session.
        self.commands.push(Command::DropSession(SessionId(writer), self.output.position));
        self.clients.leases.decoupled(self.shards.ns.has_decouplings());
        // Nobody needs the orphans any more that it could have brought back.
        let free = self.shards.orphans.iter().filter(|ino| !self.clients.opens.is_open(**ino));
        self.shards.reclaims.extend(free);
    }

    /// A session ends: with it what it has decoupled of which nothing survives it.
    pub(crate) fn end_fleeting(&mut self, session: SessionId, m: &Moment) {
        if self.shards.ns.has_decouplings() {
            for id in self.shards.those(|d| d.is_fleeting && d.owner == session) {
                // No request waits for the recall: the client is gone, and a refusal may come a moment late.
                let _ = self.recall_blocked(id, m);
                self.drop_decoupling(id);
            }
        }
    }

    /// After a start: sessions that are not known any more ended with the server.
    pub(crate) fn end_forsaken(&mut self) {
        let known = self.clients.session_ids();
        let over = self.shards.those(|d| d.is_fleeting && !known.contains(&d.owner));
        over.into_iter().for_each(|id| self.drop_decoupling(id));
    }
}

impl Realms {
    pub(crate) fn new(plate: PlateId, plates: Plates) -> Realms {
        Realms {
            here: Here::new(plate, plates),
            writers: Vec::new(),
            filesystem: 0,
            answered: BTreeMap::new(),
            merge_locks: BTreeMap::new(),
            claims_ended: Position(0),
        }
    }

    /// Delays the refusal of a claim until the end of the claim is durable. A client whose claim is refused for good drops or
    /// abandons its journal: if a crash took the end back, the decoupling would be there without a client.
    fn when_durable(&self, stop: Stop, m: &Moment) -> Stop {
        let is_void = matches!(stop, Stop::Fail(Failure::Refused(Refusal::Stale)));
        match m.health {
            _ if !is_void || self.claims_ended <= m.durable => stop,
            Health::Good => Stop::Wait(Wait::Durable(self.claims_ended)),
            Health::Full => Refusal::NoSpace.into(),
            Health::Failed => Refusal::Io.into(),
        }
    }
}

impl Shards {
    /// The decoupling that a claim is about, if it is worth something.
    fn claimed(&self, caller: &Caller<'_>, claim: Claim) -> Result<&Decoupling, Stop> {
        match self.ns.decoupling(claim.realm) {
            Some(d) if d.generation == claim.generation && d.owner == caller.session => Ok(d),
            Some(_) => Err(Refusal::Stale.into()),
            None if claim.realm <= self.ns.decoupling_last() => Err(Refusal::Stale.into()),
            None => Err(Refusal::Invalid.into()),
        }
    }

    fn may_manage(&self, caller: &Caller<'_>, uid: u32) -> Result<(), Stop> {
        if caller.cred.uid == uid || self.is_administrator(caller.cred)? {
            return Ok(());
        }
        Err(Refusal::NotPermitted.into())
    }

    /// The policy that a decoupling is to have: the one that holds, or the given one on top of the policy around.
    fn policy_wanted(&mut self, wanted: &Wanted<'_>, cred: &Cred) -> Result<Arc<Policy>, Stop> {
        let holds = self.policy_of(wanted.root)?.1;
        if wanted.policy.is_empty() {
            return Ok(holds);
        }
        let policy = self.policy_on_top(wanted.root, wanted.policy)?;
        if !self.is_administrator(cred)? {
            match wanted.branch {
                // The directory keeps its policy while there is a branch of it.
                Some(_) => self.check_owner_may(&policy, &policy)?,
                None => self.check_owner_may_decouple(&policy, &holds)?,
            }
        }
        Ok(policy)
    }

    fn granted(&self, id: RealmId) -> Result<RealmAnswer, Stop> {
        let d = self.ns.decoupling(id).expect("asked for what is there");
        let own = self.realms.here.plates.shards_of(self.realms.here.plate);
        Ok(RealmAnswer::Granted(Box::new(Granted {
            claim: Claim { realm: id, generation: d.generation },
            root: self.ns.attr(d.root())?,
            base: d.base(),
            writer: d.map.writer(),
            ranges: d.map.ranges().iter().map(|range| (range.first, range.end)).collect(),
            borders: self.borders_below(d.root())?,
            shards: self.inodes.shard_count() as u16,
            first_shard: own.start,
            end_shard: own.end,
            policy: d.policy.clone(),
            state: d.state,
            filesystem: self.realms.filesystem,
        })))
    }

    fn those(&self, which: impl Fn(&Decoupling) -> bool) -> Vec<RealmId> {
        self.ns.decouplings().filter(|d| which(d)).map(|d| d.id).collect()
    }
}
