//! Which inodes a call looks at or changes: what a decoupling that keeps others out refuses, wherever that is decided.
//!
//! Invariants:
//! - What ends or declares something (closes, unlocks, reopens, commits, blocks) touches nothing: it is never refused.
//! - Operations are looked at one by one, by their footprint ([`chiton_model::Footprint::visit`]).

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
    /// What `visit` said.
    pub fn visit_footprint<E>(&self, mut visit: impl FnMut(Ino, bool) -> Result<(), E>) -> Result<(), E> {
        match self {
            Call::Query(query) => match query {
                Query::Open { ino, want } => visit(*ino, want & access::WRITE != 0),
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
