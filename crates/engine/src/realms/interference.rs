//! The access of others where a subtree is decoupled.
//!
//! ```text
//!   request ─▶ is anything decoupled? ─no─▶ as ever
//!                     │ yes
//!                     ▼
//!   the root above each inode that it names ─▶ block: EBUSY · block_writes: EBUSY if it changes · allow: as ever
//! ```
//!
//! Invariants:
//! - A client that is refused may be given a lease on the root. It then refuses such calls without asking, until the server
//!   recalls the lease: before the decoupling ends.
//! - Where a directory with a policy of its own lies in a subtree that is kept from others, the directories that lead to it
//!   can be passed: looked up, and asked for attributes as they were. They are not listed, and not changed.
//! - The owner's own session is like any other: it acts through the realm.
//! - Requests that end or declare something (closes, unlocks, reopens, commits, blocks) always pass.
//! - The root of a decoupling, and any directory above it, is neither moved nor removed nor given another policy.

use chiton_model::{Decoupling, Event, Interference, NameUse, Op};
use chiton_namespace::Fault;
use chiton_types::{Cred, Ino, Name, RealmId, Refusal};
use chiton_wire::{Blocked, Call, LeaseMode, Query};

use super::RealmHandler;
use crate::engine::Engine;
use crate::execute::sets_policy;
use crate::moment::Moment;
use crate::parts::Shards;
use crate::sessions::Slot;
use crate::step::Stop;

impl Engine {
    /// Refuses a call that a decoupling forbids. Operations are looked at one by one: [`Engine::may_operate`].
    #[inline]
    pub(crate) fn may_call(&self, call: &Call) -> Result<(), Stop> {
        match self.shards.ns.has_decouplings() {
            true => self.shards.check_call(call),
            false => self.decoupled.as_ref().map_or(Ok(()), |decoupled| decoupled.stays_within(call)),
        }
    }

    /// Refuses an operation that a decoupling forbids.
    #[inline]
    pub(crate) fn may_operate(&self, op: &Op) -> Result<(), Stop> {
        match self.shards.ns.has_decouplings() {
            true => self.shards.check_operation(op),
            false => self
                .decoupled
                .as_ref()
                .map_or(Ok(()), |decoupled| decoupled.keep_borders(op, &self.shards.ns)),
        }
    }
}

impl RealmHandler<'_> {
    /// The decoupling that keeps other clients from an inode, or from a name in it. The answer grants a lease on its root, which is
    /// recalled before the decoupling ends.
    pub(crate) fn blocked_by(
        &mut self,
        slot: Slot,
        ino: Ino,
        name: Option<&Name>,
        m: &Moment,
    ) -> Result<Option<Blocked>, Stop> {
        if self.shards.leads_on(ino)? {
            // Not all that is asked of it is refused: it is asked each time.
            return Ok(None);
        }
        let mut root = self.shards.root_of(ino)?.filter(|root| self.shards.keeps_out(*root).is_some());
        let is_name = root.is_none();
        if let (None, Some(name)) = (root, name) {
            root = match self.shards.ns.lookup(&Cred::ROOT, ino, name) {
                Err(Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
                found => found.ok().flatten(),
            };
            if let Some(found) = root
                && !self.shards.is_hidden(found)?
            {
                root = None;
            }
        }
        let Some((root, only_writes)) = root.and_then(|root| Some((root, self.shards.keeps_out(root)?)))
        else {
            return Ok(None);
        };
        let leased =
            self.clients.leases.grant(root, slot, LeaseMode::Shared, false, m.mono) > LeaseMode::None;
        self.clients.leases.limit(m.mono);
        Ok(Some(Blocked { root, only_writes, is_name, leased }))
    }

    /// Recalls the leases that [`RealmHandler::blocked_by`] gave: the root, if a client still has one.
    pub(crate) fn recall_blocked(&mut self, id: RealmId, m: &Moment) -> Option<Ino> {
        let kept = self.shards.ns.decoupling(id).filter(|d| d.branch.is_none())?;
        let (root, keeps) = (kept.root(), kept.interference != Interference::Allow);
        (keeps && self.clients.leases.conflict(root, Slot::SERVER, LeaseMode::None, m.mono)).then_some(root)
    }
}

impl Shards {
    /// Refuses planned events that move or remove a decoupled root, or a directory above one.
    #[inline]
    pub(crate) fn keep_roots(&self, events: &[Event]) -> Result<(), Stop> {
        if !self.ns.has_decouplings() {
            return Ok(());
        }
        for event in events {
            for ino in event.footprint().names().filter_map(|change| change.before) {
                // Another plate refused it when it guarded the row. (A file may be made by an event before.)
                if event.kind_of(ino).is_none_or(|kind| kind == chiton_types::Kind::Dir)
                    && self.ns.owns(ino)
                    && self.ns.attr(ino)?.kind == chiton_types::Kind::Dir
                    && self.ns.is_above_decoupled(ino)?
                {
                    return Err(Refusal::Busy.into());
                }
            }
        }
        Ok(())
    }

    fn check_call(&self, call: &Call) -> Result<(), Stop> {
        if let Call::Query(
            Query::Lookup { parent: dir, .. } | Query::GetAttr { ino: dir } | Query::Access { ino: dir, .. },
        ) = call
            && self.leads_on(*dir)?
        {
            return match call {
                Call::Query(Query::Lookup { parent, name }) => self.may_look_up(*parent, name),
                _ => Ok(()),
            };
        }
        call.visit_footprint(|ino, changes| self.meets(ino, changes))
    }

    fn check_operation(&self, op: &Op) -> Result<(), Stop> {
        let footprint = op.footprint();
        if sets_policy(op) && self.is_below_decoupled(footprint.place)? {
            return Err(Refusal::Busy.into());
        }
        footprint.visit(|ino, changes| self.meets(ino, changes))?;
        if let Some(removed) = footprint.names().find(|name| name.how == NameUse::RemovedDir) {
            match self.ns.lookup(&Cred::ROOT, removed.dir, removed.name) {
                // Whether it is empty is the decoupled side's matter.
                Ok(Some(ino)) if self.ns.decouplings_of(ino).next().is_some() => {
                    return Err(Refusal::Busy.into());
                }
                Err(Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Refuses what touches an inode in a subtree that is kept from others.
    pub(crate) fn meets(&self, ino: Ino, changes: bool) -> Result<(), Stop> {
        let Some(root) = self.root_of(ino)? else { return Ok(()) };
        match self.holder(root).map(|d| d.interference) {
            Some(Interference::Block) => Err(Refusal::Busy.into()),
            Some(Interference::BlockWrites) if changes => Err(Refusal::Busy.into()),
            _ => Ok(()),
        }
    }

    /// Whether a directory that is kept from others leads to one with a policy of its own, which is not: it may be passed on
    /// the way there.
    pub(crate) fn leads_on(&self, dir: Ino) -> Result<bool, Stop> {
        let Some(root) = self.root_of(dir)?.filter(|root| self.keeps_out(*root).is_some()) else {
            return Ok(false);
        };
        for policy in self.ns.policies().filter(|policy| policy.ino != root) {
            match self.ns.is_above(dir, policy.ino) {
                Ok(true) => return Ok(true),
                Ok(false) | Err(Fault::Refused(_)) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(false)
    }

    /// Refuses a name, in a directory that leads on, that does not lead on. The refusal does not say whether there is such a name.
    pub(crate) fn may_look_up(&self, dir: Ino, name: &Name) -> Result<(), Stop> {
        let found = match self.ns.lookup(&Cred::ROOT, dir, name) {
            Err(Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
            found => found.ok().flatten(),
        };
        match found {
            Some(ino) if self.root_of(ino)?.is_none() || self.leads_on(ino)? => Ok(()),
            _ => self.meets(dir, false),
        }
    }

    /// Whether a policy there may have to do with a decoupling: borders stay where they are, too.
    fn is_below_decoupled(&self, ino: Ino) -> Result<bool, Stop> {
        match self.ns.is_below_decoupled(ino) {
            Err(Fault::Refused(_)) => Ok(false),
            found => Ok(found?),
        }
    }

    /// The decoupled root above an inode; none if the inode is gone.
    pub(crate) fn root_of(&self, ino: Ino) -> Result<Option<Ino>, Stop> {
        match self.ns.decoupled_root(ino) {
            Err(Fault::Refused(_)) => Ok(None),
            root => Ok(root?),
        }
    }

    /// The decoupling that has a root for itself.
    pub(crate) fn holder(&self, root: Ino) -> Option<&Decoupling> {
        self.ns.decouplings_of(root).find(|d| d.branch.is_none())
    }

    /// Whether others are kept out of a decoupled root: of changes only, or altogether.
    fn keeps_out(&self, root: Ino) -> Option<bool> {
        match self.holder(root)?.interference {
            Interference::Allow => None,
            Interference::Block => Some(false),
            Interference::BlockWrites => Some(true),
        }
    }

    /// True if no answer may describe an inode: it is a root that is kept from others, and leads nowhere. (Inodes below one are
    /// not found.)
    #[inline]
    pub(crate) fn is_hidden(&self, ino: Ino) -> Result<bool, Stop> {
        if !self.ns.has_decouplings() {
            return Ok(false);
        }
        let is_kept = self.holder(ino).is_some_and(|d| d.interference == Interference::Block);
        Ok(is_kept && !self.leads_on(ino)?)
    }
}
