//! The pending operations that a call must wait for, since it could see or undo them.

use chiton_types::Ino;
use chiton_wire::{Call, Query};

/// The pending operations that a call must not overtake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    Nothing,
    /// Those about an inode, or about names in it.
    Inode(Ino),
    /// All that were made before.
    All,
}

impl Behind {
    pub(crate) fn of(call: &Call) -> Behind {
        match call {
            // Changes, and calls that say something about all answered operations.
            Call::Op { .. } | Call::Batch { .. } | Call::Commit { .. } | Call::Realm(_) => Behind::All,
            // They may find a directory with pending operations.
            Call::Query(
                Query::Lookup { .. }
                | Query::StatEach { .. }
                | Query::Resolve { .. }
                | Query::ReadDir { .. }
                | Query::NameOf { .. },
            ) => Behind::All,
            Call::Query(
                Query::GetAttr { ino }
                | Query::Parts { dir: ino }
                | Query::Open { ino, .. }
                | Query::Access { ino, .. }
                | Query::ReadLink { ino }
                | Query::GetXattr { ino, .. }
                | Query::ListXattr { ino }
                | Query::Map { ino, .. },
            )
            | Call::Lease { ino, .. } => Behind::Inode(*ino),
            Call::SetLock { lock, .. } | Call::GetLock { lock } => Behind::Inode(lock.ino),
            Call::Grown { ino, .. } => Behind::Inode(*ino),
            // Closes of pending files are held back: see `Session::take_closes`.
            Call::Closed { .. }
            | Call::Reopen { .. }
            | Call::WriteBehind { .. }
            | Call::Late { .. }
            | Call::LeaseNames { .. } => Behind::Nothing,
            Call::Query(Query::StatFs)
            | Call::CancelLock { .. }
            | Call::Ended { .. }
            | Call::PutBlock { .. }
            | Call::GetBlock { .. }
            | Call::Admin { .. }
            | Call::Ping
            | Call::Bye => Behind::Nothing,
        }
    }
}
