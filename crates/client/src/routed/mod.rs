//! A service over the services of several plates: each call goes to the plate that owns the inode that it is about.
//!
//! ```text
//!   Client ─▶ Routed ─┬─ one inode ──────────▶ its plate
//!                     ├─ lookup, listing ────▶ the directory's plate ── elsewhere ─▶ the owners: GetAttr
//!                     ├─ batch ──────────────▶ runs of operations, plate by plate, in order     runs.rs
//!                     ├─ many questions ─────▶ one message for each plate                       stats.rs
//!                     ├─ path ───────────────▶ the plate of its start; the plates carry it on
//!                     └─ commit, totals ─────▶ all plates at once
//! ```
//!
//! Invariants:
//! - Each plate has a session of its own, with its own numbers, positions, leases and blocks. All deliver recalls to one inbox.
//! - An operation is sent to the plate that decides it. Before an operation that may concern other plates is sent, these have answered
//!   what write-behind has acknowledged.
//! - A position is compared only with others of the same plate: attributes of an inode that come from another plate than its owner
//!   carry position 0 and no lease.

mod attempts;
mod blocks;
mod chain;
mod listing;
mod parts;
mod realms;
mod runs;
mod stats;

pub(crate) use parts::list_in;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Op, Outcome};
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread;
use chiton_types::{Attr, Cred, Ino, Mode, PlateId, Plates, Position, Refusal, SessionId, ShardId};
use chiton_wire::{Answer, Call, LeaseMode, Query, RealmCall, StatFs};

use crate::in_flight::refusal;
use crate::part_lists::PartLists;
use crate::plate_inodes::{crosses, index_of};
use crate::service::{
    CallError, Connection, Durability, Interrupted, PlateLookup, Service, Session, Underway,
};
use crate::{CancelToken, Recalls};
use chain::{Chain, Next};

/// A name that another plate owns and that goes while its attributes are asked for is looked up again so often.
const LOOKUP_TRIES: usize = 8;
/// A [`Service`](crate::Service) that sends each call to the plate that owns its inode, and joins the answers of several plates.
pub struct Routed(Arc<Each>);

/// The services, in the order of their plates.
pub(crate) struct Each {
    plates: Plates,
    services: Vec<Arc<dyn Service>>,
    parts: Arc<PartLists>,
}

/// The plate or plates to which a call goes.
enum Way {
    /// To one plate.
    To(usize),
    /// An operation, to the plate that decides it.
    Decider(usize),
    /// A lookup, to the directory's plate; the inode may be another's.
    Lookup(usize),
    /// A listing with attributes, likewise.
    Listing(usize),
    /// Attributes of an inode.
    Attr(usize),
    /// Attributes of many inodes, of several plates.
    Stats,
    /// Operations of several plates.
    Runs,
    /// A path, to the plate on which it begins.
    Path(usize),
    Commit,
    Totals,
    /// The decouplings of all plates.
    Realms,
    /// The decoupling that an inode of this plate is in.
    Realm(usize),
}

impl Routed {
    /// Over these services, in the order of their plates. All must have the same [`crate::Recalls`].
    ///
    /// # Panics
    /// Unless there is one for each plate.
    pub fn new(plates: Plates, services: Vec<Arc<dyn Service>>) -> Routed {
        assert!(services.len() == usize::from(plates.count()), "each plate has its service");
        Routed(Arc::new(Each { plates, services, parts: Default::default() }))
    }

    fn at(&self, ino: Ino) -> &Arc<dyn Service> {
        &self.0.services[self.0.index(ino)]
    }
}

impl Each {
    fn index(&self, ino: Ino) -> usize {
        index_of(self.plates, ino)
    }

    /// The place of a plate's service; of the first for one that there is not, which says so.
    fn nth(&self, plate: PlateId) -> usize {
        Some(usize::from(plate.0)).filter(|at| *at < self.services.len()).unwrap_or(0)
    }

    /// The plate for the session that writes a block; any can read it.
    fn writer(&self, writer: u64) -> usize {
        let own = self.plates.all().position(|plate| self.session_with(plate).0 == writer);
        // Another writer is a decoupling.
        own.unwrap_or_else(|| self.nth(Plates::of_session(SessionId(writer))))
    }

    fn way(&self, call: &Call) -> Way {
        match call {
            Call::Op { op, .. } => Way::Decider(self.index(op.footprint().place)),
            Call::Batch { ops, .. } => {
                let mut places = ops.iter().map(|op| self.index(op.footprint().place));
                match places.next() {
                    None => Way::To(0),
                    Some(first)
                        if ops.iter().any(|op| crosses(self.plates, op)) || places.any(|at| at != first) =>
                    {
                        Way::Runs
                    }
                    Some(first) => Way::To(first),
                }
            }
            Call::WriteBehind { ops, .. } | Call::Late { ops, .. } => {
                Way::To(ops.first().map_or(0, |op| self.index(op.footprint().place)))
            }
            Call::Query(query) => match query {
                Query::Lookup { parent, .. } => Way::Lookup(self.index(*parent)),
                Query::ReadDir { dir, plus: true, .. } => Way::Listing(self.index(*dir)),
                Query::GetAttr { ino } => Way::Attr(self.index(*ino)),
                Query::StatEach { .. } => Way::Stats,
                Query::Open { ino, .. }
                | Query::Access { ino, .. }
                | Query::ReadDir { dir: ino, .. }
                | Query::NameOf { dir: ino, .. }
                | Query::Parts { dir: ino }
                | Query::ReadLink { ino }
                | Query::GetXattr { ino, .. }
                | Query::ListXattr { ino }
                | Query::Map { ino, .. } => Way::To(self.index(*ino)),
                Query::Resolve { path, .. } if path.starts_with(b"/") => Way::Path(self.index(Ino::ROOT)),
                Query::Resolve { from, .. } => Way::Path(self.index(*from)),
                Query::StatFs => Way::Totals,
            },
            Call::Commit { .. } => Way::Commit,
            Call::Lease { ino, .. } | Call::LeaseNames { dir: ino, .. } | Call::Grown { ino, .. } => {
                Way::To(self.index(*ino))
            }
            Call::SetLock { lock, .. } | Call::GetLock { lock } => Way::To(self.index(lock.ino)),
            Call::PutBlock { block, .. } | Call::GetBlock { block, .. } => Way::To(self.writer(block.writer)),
            // Each session says these itself.
            Call::Closed { .. } | Call::Reopen { .. } | Call::Ended { .. } | Call::Ping | Call::Bye => {
                Way::To(0)
            }
            // A wait for a lock is cancelled at its own service: see `CancelToken`.
            Call::CancelLock { .. } => Way::To(0),
            Call::Realm(call) => match &**call {
                RealmCall::Of { ino } => Way::Realm(self.index(*ino)),
                RealmCall::Decouple { root: ino, .. } | RealmCall::BlockedBy { ino, .. } => {
                    Way::To(self.index(*ino))
                }
                RealmCall::Attach { realm, .. } | RealmCall::BecomeBranch { realm, .. } => {
                    Way::To(self.nth(self.plates.of_realm(*realm)))
                }
                RealmCall::Grant { claim, .. }
                | RealmCall::Rows { claim, .. }
                | RealmCall::Present { claim, .. }
                | RealmCall::Remembered { claim, .. }
                | RealmCall::Check { claim, .. }
                | RealmCall::Merge { claim, .. }
                | RealmCall::Resolve { claim, .. }
                | RealmCall::MergeLock { claim, .. }
                | RealmCall::Settle { claim, .. }
                | RealmCall::End { claim, .. }
                | RealmCall::Object { claim, .. } => Way::To(self.nth(self.plates.of_realm(claim.realm))),
                RealmCall::List => Way::Realms,
            },
            // The first plate also answers for the server.
            Call::Admin { .. } => Way::To(0),
        }
    }

    /// Before an operation is sent to the plate that decides it, other plates answer the pending operations that it may depend on.
    fn settle_others(&self, op: &Op, decider: usize) -> Result<(), CallError> {
        if crosses(self.plates, op) {
            for (at, service) in self.services.iter().enumerate().filter(|(at, _)| *at != decider) {
                tracing::debug!(plate = at, operation = %op.describe(), "settling pending operations");
                service.settle()?;
            }
        }
        Ok(())
    }

    /// Removes from an outcome the position of an inode of another plate. False if there is one: the client has no lease on it.
    fn owned(&self, decider: usize, outcome: &mut Outcome) -> bool {
        let foreign = outcome.attr.as_mut().filter(|attr| self.index(attr.ino) != decider);
        foreign.map(|attr| attr.position = Position(0)).is_none()
    }

    /// The answer to an operation.
    fn decided(&self, decider: usize, answer: Answer) -> Answer {
        match answer {
            Answer::Op { position, mut outcome, lease, parent_leased } => {
                let lease = if self.owned(decider, &mut outcome) { lease } else { LeaseMode::None };
                Answer::Op { position, outcome, lease, parent_leased }
            }
            answer => answer,
        }
    }

    /// A question for a path, with the sessions to which the plates on the way grant their leases.
    fn with_sessions(&self, mut call: Call) -> Call {
        if let Call::Query(Query::Resolve { sessions, .. }) = &mut call {
            *sessions = self.plates.all().map(|plate| self.session_with(plate)).collect();
        }
        call
    }

    /// This client's session with a plate.
    fn session_with(&self, plate: PlateId) -> SessionId {
        let first = Ino::new(ShardId(self.plates.shards_of(plate).start), 0);
        self.services[usize::from(plate.0)].session(first)
    }

    fn ask_attr(&self, cred: &Cred, ino: Ino) -> Box<dyn Underway> {
        self.services[self.index(ino)].start(cred, Call::Query(Query::GetAttr { ino }))
    }

    // ---- lookups ------------------------------------------------------------------------------------

    fn look_up(&self, at: usize, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        for _ in 0..LOOKUP_TRIES {
            let answer = self.services[at].call(cred, call.clone())?;
            let Answer::Elsewhere { ino, parent_leased, parent_open } = answer else { return Ok(answer) };
            let found = self.services[self.index(ino)].call(cred, Call::Query(Query::GetAttr { ino }));
            if let Some(answer) = found_elsewhere(found, parent_leased, parent_open) {
                return answer;
            }
        }
        Err(Refusal::Stale.into())
    }

    fn start_look_up(self: Arc<Each>, at: usize, cred: Cred, call: Call, tries: usize) -> Next {
        let underway = self.services[at].start(&cred, call.clone());
        Next::one(underway, move |answer| {
            let (ino, parent_leased, parent_open) = match answer {
                Ok(Answer::Elsewhere { ino, parent_leased, parent_open }) => {
                    (ino, parent_leased, parent_open)
                }
                answer => return Next::Answer(answer),
            };
            let underway = self.ask_attr(&cred, ino);
            Next::one(underway, move |found| match found_elsewhere(found, parent_leased, parent_open) {
                Some(answer) => Next::Answer(answer),
                None if tries > 1 => self.start_look_up(at, cred, call, tries - 1),
                None => Next::Answer(Err(Refusal::Stale.into())),
            })
        })
    }

    // ---- all plates ---------------------------------------------------------------------------------

    /// Has these plates make everything durable, all at once.
    fn commit(&self, concerns: impl Fn(usize, &dyn Service) -> bool) -> Result<(), Refusal> {
        let services = self.services.iter().enumerate();
        let concerned = services.filter(|(at, service)| concerns(*at, &***service));
        let concerned: Vec<_> = concerned.map(|(_, service)| service).collect();
        let result = match concerned.as_slice() {
            [service] => service.commit(Position(0)),
            services if services.iter().any(|service| service.is_embedded()) => commit_in_threads(services),
            services => {
                let ask = |service: &&Arc<dyn Service>| {
                    service.start(&Cred::ROOT, Call::Commit { upto: Position(0) })
                };
                let under_way: Vec<_> = services.iter().map(ask).collect();
                let answers = under_way.into_iter().map(|commit| commit.wait().map(drop).map_err(refusal));
                // All are waited for.
                answers.fold(Ok(()), Result::and)
            }
        };
        // Each says it once: none is left out.
        let lost = self.services.iter().filter(|service| service.take_lost()).count();
        if lost > 0 { Err(Refusal::Io) } else { result }
    }

    /// The first plate's bytes, which are those of the one store, and the inodes of all.
    fn totals(&self, cred: &Cred) -> Result<Answer, CallError> {
        let ask = |service: &Arc<dyn Service>| service.start(cred, Call::Query(Query::StatFs));
        let under_way: Vec<_> = self.services.iter().map(ask).collect();
        let mut totals: Option<StatFs> = None;
        for answer in under_way {
            let Answer::StatFs(of_plate) = answer.wait()? else { return Err(Refusal::Io.into()) };
            let before = totals.map_or(0, |totals| totals.inodes_used);
            let inodes_used = before + of_plate.inodes_used;
            totals = Some(StatFs { inodes_used, ..totals.unwrap_or(of_plate) });
        }
        totals.map(Answer::StatFs).ok_or(Refusal::Io.into())
    }

    /// The answer to a call that is neither one plate's nor a chain.
    fn call_many(&self, way: &Way, cred: &Cred, call: &Call) -> Result<Answer, CallError> {
        match (way, call) {
            (Way::Commit, _) => Ok(self.commit(|_, _| true).map(|()| Answer::Done)?),
            (Way::Totals, _) => self.totals(cred),
            (Way::Realms, call) => self.all_realms(cred, call),
            (Way::Realm(at), call) => self.realm_of(*at, cred, call),
            _ => Err(Refusal::Io.into()),
        }
    }
}

/// A commit in this process is waited for by the thread that asks for it.
fn commit_in_threads(services: &[&Arc<dyn Service>]) -> Result<(), Refusal> {
    let result = Arc::new(Mutex::new(Ok(())));
    let body = |service: &Arc<dyn Service>| {
        let (service, result) = (service.clone(), result.clone());
        move || {
            let committed = service.commit(Position(0));
            let mut result = result.lock();
            *result = result.and(committed);
        }
    };
    let threads: Vec<_> = services
        .iter()
        .map(|service| thread::spawn("chiton-commit", body(service)).expect("a thread can be started"))
        .collect();
    for thread in threads {
        // A thread that panicked has said so.
        drop(thread.join());
    }
    *result.lock()
}

/// The answer to a lookup from that of the inode's owner. `None`: the inode is gone, and the name with it.
fn found_elsewhere(
    found: Result<Answer, CallError>,
    parent_leased: bool,
    parent_open: bool,
) -> Option<Result<Answer, CallError>> {
    match found {
        Ok(Answer::Attr { attr, lease, .. }) => {
            Some(Ok(Answer::Attr { attr, lease, parent_leased, parent_open }))
        }
        Err(CallError::Refused(Refusal::Stale | Refusal::NotFound)) => None,
        answer => Some(answer),
    }
}

impl Service for Routed {
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        let each = &self.0;
        match &call {
            Call::Batch { .. } => Chain::run(each.clone().start_batch(cred.clone(), call)),
            Call::Query(Query::ReadDir { part_end: None, .. }) => {
                Chain::run(each.clone().start_placed(cred.clone(), call, parts::TRIES))
            }
            Call::Op { .. } | Call::Query(Query::Lookup { .. }) => {
                let again = call.clone();
                let placed = each.placed(call);
                let is_at_part = each.has_moved(&again, &placed);
                let dirs = parts::dirs_of(&again);
                match each.call_once(cred, placed) {
                    Err(CallError::Refused(refusal)) if each.is_elsewhere(refusal, is_at_part, &dirs) => {
                        let next = each.clone().learn(cred.clone(), dirs, move |each, cred| {
                            each.start_placed(cred, again, parts::TRIES)
                        });
                        Chain::run(next)
                    }
                    answer => answer,
                }
            }
            Call::GetBlock { .. } => each.get_block(cred, call),
            _ => each.call_once(cred, call),
        }
    }

    fn call_in(&self, session: SessionId, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        let each = &self.0;
        let call = each.placed(call);
        let Way::Decider(at) = each.way(&call) else { return self.call(cred, call) };
        if let Call::Op { op, .. } = &call {
            each.settle_others(op, at)?;
        }
        let answer = each.services[at].call_in(session, cred, call)?;
        Ok(each.decided(at, answer))
    }

    fn call_at(&self, plate: PlateId, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        let service = self.0.services.get(usize::from(plate.0)).ok_or(Refusal::Invalid)?;
        service.call(cred, call)
    }

    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        let each = self.0.clone();
        if let Way::To(at) = each.way(&call)
            && !matches!(call, Call::Batch { .. } | Call::Query(Query::ReadDir { .. }))
        {
            return each.services[at].start(cred, call);
        }
        Chain::begin(match &call {
            Call::Batch { .. } => each.start_batch(cred.clone(), call),
            _ => each.start_placed(cred.clone(), call, parts::TRIES),
        })
    }

    fn call_cancellable(&self, cred: &Cred, call: Call, token: &CancelToken) -> Result<Answer, CallError> {
        let at = match self.0.way(&call) {
            Way::To(at) => at,
            _ => {
                let answer = self.call(cred, call);
                token.over();
                return answer;
            }
        };
        token.waits_at(&self.0.services[at]);
        self.0.services[at].call_cancellable(cred, call, token)
    }

    fn create_lazily(&self, cred: &Cred, parent: Ino, names: &[&[u8]], mode: Mode) -> Vec<Attr> {
        self.at(parent).create_lazily(cred, parent, names, mode)
    }

    fn write_locally(&self, cred: &Cred, op: &Op, known: &Attr) -> Option<Attr> {
        self.at(known.ino).write_locally(cred, op, known)
    }
}

impl Session for Routed {
    fn session(&self, ino: Ino) -> SessionId {
        self.at(ino).session(ino)
    }

    fn valid_until(&self, ino: Ino) -> Duration {
        self.at(ino).valid_until(ino)
    }

    fn recalls(&self) -> &Recalls {
        self.0.services[0].recalls()
    }

    fn is_shared(&self) -> bool {
        self.0.services.iter().any(|service| service.is_shared())
    }

    fn settle(&self) -> Result<(), CallError> {
        self.0.services.iter().try_for_each(|service| service.settle())
    }

    fn closed(&self, ino: Ino) {
        self.at(ino).closed(ino);
    }
}

impl Durability for Routed {
    fn durable(&self) -> Position {
        self.at(Ino::ROOT).durable()
    }

    fn commit(&self, _upto: Position) -> Result<(), Refusal> {
        self.0.commit(|_, _| true)
    }

    fn commit_with(&self, ino: Ino) -> Result<(), Refusal> {
        let owner = self.0.index(ino);
        self.0.commit(|at, service| at == owner || service.needs_commit())
    }

    fn needs_commit(&self) -> bool {
        self.0.services.iter().any(|service| service.needs_commit())
    }

    fn take_lost(&self) -> bool {
        self.0.services.iter().filter(|service| service.take_lost()).count() > 0
    }

    fn make_room(&self) -> Result<(), CallError> {
        self.0.services.iter().try_for_each(|service| service.make_room())
    }
}

impl PlateLookup for Routed {
    fn part_lists(&self) -> Arc<PartLists> {
        self.0.parts.clone()
    }

    fn plate_of(&self, ino: Ino) -> PlateId {
        self.0.plates.of(ino).unwrap_or_default()
    }

    fn plates(&self) -> u16 {
        self.0.plates.count()
    }
}

impl Connection for Routed {
    fn is_embedded(&self) -> bool {
        self.0.services[0].is_embedded()
    }

    fn is_away(&self) -> bool {
        self.0.services.iter().any(|service| service.is_away())
    }

    fn probe(&self) -> Result<(), String> {
        self.0.services.iter().try_for_each(|service| service.probe())
    }

    fn unsettled(&self) -> usize {
        self.0.services.iter().map(|service| service.unsettled()).sum()
    }

    fn messages(&self) -> u64 {
        self.0.services.iter().map(|service| service.messages()).sum()
    }

    fn set_interrupted(&self, interrupted: Interrupted) {
        let interrupted = Arc::new(interrupted);
        for service in &self.0.services {
            let interrupted = interrupted.clone();
            service.set_interrupted(Box::new(move || interrupted()));
        }
    }

    fn leave(&self, limit: Duration) {
        self.0.services.iter().for_each(|service| service.leave(limit));
    }

    fn abandon(&self) {
        self.0.services.iter().for_each(|service| service.abandon());
    }
}

impl Drop for Each {
    fn drop(&mut self) {
        // Each waits for its own server, and one that is stuck is not to add its time to that of the others.
        let ends: Vec<_> = self
            .services
            .drain(..)
            .map(|service| {
                thread::spawn("chiton-end", move || drop(service)).expect("a thread can be started")
            })
            .collect();
        for end in ends {
            // A thread that panicked has said so.
            drop(end.join());
        }
    }
}
