//! Many questions in one request: attributes of inodes, by their numbers or by names.
//!
//! Invariants:
//! - Each target is answered as a question of its own would be, and true at a moment while the request is under way. Not all are true at
//!   the same moment.
//! - A target that must wait, for rows or for another client, holds up the answer and not the others: they are not looked at again.
//! - A target that opens a file counts one open, however often the request is tried again.

use chiton_namespace::WARM_OPS;
use chiton_types::{Cred, Refusal, SessionId, access};
use chiton_wire::{Answer, Call, Failure, LeaseMode, Query, Stat, StatTarget};

use crate::counters;
use crate::engine::Engine;
use crate::moment::Moment;
use crate::query::QueryHandler;
use crate::sessions::Slot;
use crate::step::Stop;
use crate::wait_queue::{Task, Wait};

/// The answer about a target, once there is one.
pub(crate) type Answered = Option<Result<Stat, Failure>>;

impl Engine {
    /// The targets that have no answer yet.
    pub(crate) fn stat_each(&mut self, task: &mut Task, slot: Slot, m: &Moment) -> Result<Answer, Stop> {
        let request = &task.request;
        let Call::Query(Query::StatEach { stop_on_failure, leases, targets }) = &request.call else {
            unreachable!("called for these questions only")
        };
        let mut answered = std::mem::take(&mut task.stats);
        if answered.is_empty() {
            answered.resize_with(targets.len(), || None);
        }
        let (mut needs, mut wait) = (Vec::new(), None);
        for (at, target) in targets.iter().enumerate().take(answered.len()) {
            if at.is_multiple_of(WARM_OPS) {
                self.shards.ns.warm_names(targets[at..].iter().take(WARM_OPS).filter_map(StatTarget::named));
            }
            if answered[at].is_none() {
                let may_ask = self.may_ask(target, (task.session, slot), &request.cred, m);
                let stat = may_ask.and_then(|()| self.queries(&request.cred, slot, m).stat(target, *leases));
                answered[at] = match stat {
                    Ok(stat) => Some(Ok(stat)),
                    Err(Stop::Fail(failure)) => Some(Err(failure)),
                    Err(Stop::Missing(more)) => {
                        needs.extend(more);
                        None
                    }
                    Err(Stop::Wait(more)) => {
                        wait = Some(both(wait, more));
                        None
                    }
                    Err(Stop::Yield) => unreachable!("a question is not done in turns"),
                };
                if answered[at].is_some() {
                    self.counters.count(counters::kind_of_target(target));
                }
            }
            if *stop_on_failure && matches!(&answered[at], Some(Err(_) | Ok(Stat::Absent))) {
                answered.truncate(at + 1);
                break;
            }
        }
        self.clients.leases.limit(m.mono);
        if !needs.is_empty() {
            task.stats = answered;
            return Err(Stop::Missing(needs));
        }
        if let Some(wait) = wait {
            task.stats = answered;
            return Err(Stop::Wait(wait));
        }
        let mut stats = Vec::with_capacity(answered.len());
        stats.extend(answered.into_iter().flatten());
        Ok(Answer::Stats(stats))
    }

    /// Waits, or refuses, as a question for this target alone does before it is answered.
    fn may_ask(
        &mut self,
        target: &StatTarget,
        (session, slot): (SessionId, Slot),
        cred: &Cred,
        m: &Moment,
    ) -> Result<(), Stop> {
        self.may_reach(session, slot, target.place(), "stat_each", m)?;
        if self.shards.ns.has_decouplings() || self.decoupled.is_some() {
            self.may_call(&Call::Query(match target {
                StatTarget::Inode(ino) => Query::GetAttr { ino: *ino },
                StatTarget::Name { parent, name } => Query::Lookup { parent: *parent, name: name.clone() },
                StatTarget::Open { ino, want } => Query::Open { ino: *ino, want: *want, content: false },
            }))?;
        }
        self.await_peers_at(target.place())?;
        match target {
            StatTarget::Open { ino, want } if want & access::WRITE != 0 => {
                self.shards.opened_decoupled(*ino, session, cred, &self.clients)
            }
            StatTarget::Open { .. } | StatTarget::Inode(_) | StatTarget::Name { .. } => Ok(()),
        }
    }
}

/// The wait of a request for two things, as far as one wait can be for both: else it waits for the first, and then for the second.
fn both(wait: Option<Wait>, more: Wait) -> Wait {
    match (wait, more) {
        (Some(Wait::Leases(mut inos)), Wait::Leases(more)) => {
            for ino in more {
                if !inos.contains(&ino) {
                    inos.push(ino);
                }
            }
            Wait::Leases(inos)
        }
        (Some(first), _) => first,
        (None, more) => more,
    }
}

impl QueryHandler<'_> {
    fn stat(&mut self, target: &StatTarget, leases: bool) -> Result<Stat, Stop> {
        let attr = match target {
            StatTarget::Inode(ino) => {
                let attr = self.shards.ns.attr(*ino)?;
                self.await_attr(&attr)?;
                attr
            }
            StatTarget::Name { parent, name } => {
                self.clients.see_names(*parent, self.slot, self.m)?;
                let Some(ino) = self.shards.ns.lookup(self.cred, *parent, name)? else {
                    return Ok(Stat::Absent);
                };
                if !self.shards.ns.owns(ino) {
                    return Ok(Stat::Elsewhere(ino));
                }
                let attr = self.shards.ns.attr(ino)?;
                self.await_named(&attr)?;
                attr
            }
            StatTarget::Open { ino, want } => {
                return match self.open(*ino, *want, false)? {
                    Answer::Attr { attr, lease, .. } => Ok(Stat::Attr { attr, lease }),
                    _ => Err(Refusal::Io.into()),
                };
            }
        };
        let lease = match leases {
            true => self.clients.lease_looked_at(&attr, self.slot, self.m),
            false => LeaseMode::None,
        };
        Ok(Stat::Attr { attr, lease })
    }
}
