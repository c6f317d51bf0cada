//! What others may do where a subtree is decoupled.
//!
//! ```text
//!   request ─▶ is anything decoupled? ─no─▶ as ever
//!                     │ yes
//!                     ▼
//!   the root above each inode that it names ─▶ block: EBUSY · block_writes: EBUSY if it changes · allow: as ever
//! ```
//!
//! Invariants:
//! - The owner's own session is like any other: it acts through the realm.
//! - What ends or declares something (closes, unlocks, reopens, commits, blocks) always passes.
//! - The root of a decoupling, and what is above it, is neither moved nor removed nor given another policy.

use chiton_namespace::{Decoupling, Event, Fault, Interference, Op, Over};
use chiton_proto::{Call, LeaseMode, LockKind, Query};
use chiton_types::{Cred, Ino, Refusal, access};

use crate::engine::policies::is_policy_attribute;
use crate::engine::{Engine, Stop};

impl Engine {
    /// Refuses a call that a decoupling forbids. Operations are looked at one by one: [`Engine::may_operate`].
    #[inline]
    pub(in crate::engine) fn may_call(&self, call: &Call) -> Result<(), Stop> {
        if self.ns.has_decouplings() { self.check_call(call) } else { Ok(()) }
    }

    fn check_call(&self, call: &Call) -> Result<(), Stop> {
        match call {
            Call::Query(query) => match query {
                Query::Open { ino, want } => self.meets(*ino, want & access::WRITE != 0),
                Query::Lookup { parent: ino, .. }
                | Query::GetAttr { ino }
                | Query::Access { ino, .. }
                | Query::ReadDir { dir: ino, .. }
                | Query::ReadLink { ino }
                | Query::ListXattr { ino }
                | Query::Map { ino, .. }
                | Query::Resolve { from: ino, .. } => self.meets(*ino, false),
                // What policy holds can be asked everywhere: a client must find out where it is.
                Query::GetXattr { name, .. } if is_policy_attribute(name) => Ok(()),
                Query::GetXattr { ino, .. } => self.meets(*ino, false),
                Query::StatFs => Ok(()),
            },
            Call::Lease { ino, mode } => self.meets(*ino, *mode == LeaseMode::Exclusive),
            Call::SetLock { lock, .. } if lock.kind != LockKind::Unlock => {
                self.meets(lock.ino, lock.kind == LockKind::Write)
            }
            Call::GetLock { lock } => self.meets(lock.ino, false),
            Call::SetLock { .. }
            | Call::Op { .. }
            | Call::Batch { .. }
            | Call::Ahead { .. }
            | Call::LeaseNames { .. }
            | Call::Commit { .. }
            | Call::Closed { .. }
            | Call::Reopen { .. }
            | Call::CancelLock { .. }
            | Call::PutBlock { .. }
            | Call::GetBlock { .. }
            | Call::Admin { .. }
            | Call::Realm(_)
            | Call::Ping
            | Call::Bye => Ok(()),
        }
    }

    /// Refuses an operation that a decoupling forbids.
    #[inline]
    pub(in crate::engine) fn may_operate(&self, op: &Op) -> Result<(), Stop> {
        if self.ns.has_decouplings() { self.check_operation(op) } else { Ok(()) }
    }

    fn check_operation(&self, op: &Op) -> Result<(), Stop> {
        match op {
            Op::Make { parent: ino, .. }
            | Op::Unlink { parent: ino, .. }
            | Op::SetAttr { ino, .. }
            | Op::Write { ino, .. }
            | Op::Remap { ino, .. }
            | Op::Reclaim { ino } => self.meets(*ino, true),
            Op::Rmdir { parent, name } => {
                self.meets(*parent, true)?;
                match self.ns.lookup(&Cred::ROOT, *parent, name) {
                    // Whether it is empty is the decoupled side's matter.
                    Ok(Some(ino)) if self.ns.decouplings_of(ino).next().is_some() => {
                        Err(Refusal::Busy.into())
                    }
                    Err(Fault::Missing(needs)) => Err(Stop::Missing(needs)),
                    _ => Ok(()),
                }
            }
            Op::SetXattr { ino, name, .. } | Op::RemoveXattr { ino, name } => {
                if is_policy_attribute(name) && self.root_of(*ino)?.is_some() {
                    return Err(Refusal::Busy.into());
                }
                self.meets(*ino, true)
            }
            Op::Link { ino, parent, .. } => {
                self.meets(*parent, true)?;
                self.meets(*ino, true)
            }
            Op::Rename { from, to, .. } => {
                self.meets(*from, true)?;
                self.meets(*to, true)
            }
            Op::Clone { from, to, .. } => {
                self.meets(*from, false)?;
                self.meets(*to, true)
            }
        }
    }

    /// Refuses what touches an inode in a subtree that is kept from others.
    pub(in crate::engine) fn meets(&self, ino: Ino, changes: bool) -> Result<(), Stop> {
        let Some(root) = self.root_of(ino)? else { return Ok(()) };
        match self.holder(root).map(|d| d.interference) {
            Some(Interference::Block) => Err(Refusal::Busy.into()),
            Some(Interference::BlockWrites) if changes => Err(Refusal::Busy.into()),
            _ => Ok(()),
        }
    }

    /// The decoupled root above an inode; none for what is gone.
    pub(in crate::engine) fn root_of(&self, ino: Ino) -> Result<Option<Ino>, Stop> {
        match self.ns.decoupled_root(ino) {
            Err(Fault::Refused(_)) => Ok(None),
            root => Ok(root?),
        }
    }

    /// Who has a root for itself.
    pub(super) fn holder(&self, root: Ino) -> Option<&Decoupling> {
        self.ns.decouplings_of(root).find(|d| d.branch.is_none())
    }

    /// True if nothing of an inode may be told: it is a root that is kept from others. (What is below one is not found.)
    #[inline]
    pub(in crate::engine) fn is_hidden(&self, ino: Ino) -> bool {
        self.ns.has_decouplings() && self.holder(ino).is_some_and(|d| d.interference == Interference::Block)
    }

    /// Refuses planned events that move or remove a decoupled root, or what is above one.
    #[inline]
    pub(in crate::engine) fn keep_roots(&self) -> Result<(), Stop> {
        if !self.ns.has_decouplings() {
            return Ok(());
        }
        for event in &self.events {
            let moved = match event {
                Event::Unlink { ino, .. } => [Some(*ino), None],
                Event::Rename { ino, over: Over::Exchanged { ino: other }, .. } => [Some(*ino), Some(*other)],
                Event::Rename { ino, over, .. } => [Some(*ino), over.ino()],
                _ => [None, None],
            };
            for ino in moved.into_iter().flatten() {
                if self.ns.attr(ino)?.kind == chiton_types::Kind::Dir && self.ns.is_above_decoupled(ino)? {
                    return Err(Refusal::Busy.into());
                }
            }
        }
        Ok(())
    }
}
