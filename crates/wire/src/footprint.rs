//! Which inodes a call looks at or changes. A decoupling that keeps others out refuses calls by that, wherever it is decided.
//!
//! Invariants:
//! - What ends or declares something (closes, unlocks, reopens, commits, blocks) touches nothing: it is never refused.
//! - Operations are looked at one by one, by their footprint ([`chiton_model::Footprint::visit`]).
//! - What a call reaches ([`Call::reach`]) is another question: there it matters what a client may learn or change, and everything that it
//!   names counts.

use chiton_types::{Ino, access};

use crate::{Call, LeaseMode, LockKind, Query};

/// True for attributes that name policies. Any client may ask for them anywhere, also in a foreign decoupled subtree: it must find out
/// where it is.
pub fn is_policy_attribute(name: &[u8]) -> bool {
    name.starts_with(b"chiton.")
}

impl Call {
    /// Visits each inode that the call itself touches, and whether it changes something there, until `visit` refuses.
    ///
    /// # Errors
    /// The error of `visit`.
    pub fn visit_footprint<E>(&self, mut visit: impl FnMut(Ino, bool) -> Result<(), E>) -> Result<(), E> {
        match self {
            Call::Query(query) => match query {
                Query::Open { ino, want, .. } => visit(*ino, want & access::WRITE != 0),
                Query::GetXattr { name, .. } if is_policy_attribute(name) => Ok(()),
                Query::Lookup { parent: ino, .. }
                | Query::GetAttr { ino }
                | Query::Access { ino, .. }
                | Query::ReadDir { dir: ino, .. }
                | Query::NameOf { dir: ino, .. }
                | Query::Parts { dir: ino }
                | Query::ReadLink { ino }
                | Query::GetXattr { ino, .. }
                | Query::ListXattr { ino }
                | Query::Map { ino, .. }
                | Query::Resolve { from: ino, .. } => visit(*ino, false),
                // Its targets are looked at one by one.
                Query::StatEach { .. } => Ok(()),
                Query::StatFs => Ok(()),
            },
            Call::Grown { ino, .. } => visit(*ino, false),
            Call::Lease { ino, mode } => visit(*ino, *mode == LeaseMode::Exclusive),
            Call::SetLock { lock, .. } if lock.kind != LockKind::Unlock => {
                visit(lock.ino, lock.kind == LockKind::Write)
            }
            Call::GetLock { lock } => visit(lock.ino, false),
            Call::SetLock { .. }
            | Call::Op { .. }
            | Call::Batch { .. }
            | Call::WriteBehind { .. }
            | Call::Late { .. }
            | Call::LeaseNames { .. }
            | Call::Ended { .. }
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
}

/// The inodes that a call lets its client learn of or change, for clients that are limited to a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing beyond the client's own session, and the totals of the file system.
    Own,
    /// This inode, and the names in it if it is a directory.
    Inode(Ino),
    /// Several things, each of which is looked at where it is carried out: operations, targets, declarations, blocks.
    Each,
    /// Other clients, or the file system as a whole.
    Everything,
}

impl Call {
    pub fn reach(&self) -> Reach {
        match self {
            Call::Query(query) => match query {
                Query::Lookup { parent: ino, .. }
                | Query::GetAttr { ino }
                | Query::Open { ino, .. }
                | Query::Access { ino, .. }
                | Query::ReadDir { dir: ino, .. }
                | Query::Parts { dir: ino }
                | Query::NameOf { dir: ino, .. }
                | Query::ReadLink { ino }
                | Query::GetXattr { ino, .. }
                | Query::ListXattr { ino }
                | Query::Map { ino, .. } => Reach::Inode(*ino),
                // It begins at the client's root, wherever that is.
                Query::Resolve { path, .. } if path.starts_with(b"/") => Reach::Own,
                Query::Resolve { from, .. } => Reach::Inode(*from),
                Query::StatEach { .. } => Reach::Each,
                Query::StatFs => Reach::Own,
            },
            Call::Grown { ino, .. } | Call::Lease { ino, .. } | Call::LeaseNames { dir: ino, .. } => {
                Reach::Inode(*ino)
            }
            Call::SetLock { lock, .. } if lock.kind == LockKind::Unlock => Reach::Own,
            Call::SetLock { lock, .. } | Call::GetLock { lock } => Reach::Inode(lock.ino),
            Call::Op { .. }
            | Call::Batch { .. }
            | Call::WriteBehind { .. }
            | Call::Late { .. }
            | Call::Reopen { .. }
            | Call::GetBlock { .. } => Reach::Each,
            Call::Commit { .. }
            | Call::Closed { .. }
            | Call::Ended { .. }
            | Call::CancelLock { .. }
            | Call::PutBlock { .. }
            | Call::Ping
            | Call::Bye => Reach::Own,
            Call::Realm(_) | Call::Admin { .. } => Reach::Everything,
        }
    }
}
