//! The kinds of calls, for the runtime.

use chiton_wire::{Call, RealmCall, is_policy_attribute};

/// True for calls that need no decision and may take long.
#[inline]
pub(crate) fn is_outside(call: &Call) -> bool {
    match call {
        Call::Commit { .. } | Call::PutBlock { .. } | Call::GetBlock { .. } | Call::Admin { .. } => true,
        Call::Realm(call) => matches!(**call, RealmCall::Object { .. }),
        _ => false,
    }
}

/// True for calls that change the file system, or prepare that.
pub(crate) fn changes(call: &Call) -> bool {
    match call {
        Call::Op { .. }
        | Call::Batch { .. }
        | Call::WriteBehind { .. }
        | Call::Late { .. }
        | Call::Grown { .. }
        | Call::PutBlock { .. } => true,
        Call::Realm(call) => {
            !matches!(**call, RealmCall::Of { .. } | RealmCall::BlockedBy { .. } | RealmCall::List)
        }
        Call::Query(_)
        | Call::Commit { .. }
        | Call::Lease { .. }
        | Call::LeaseNames { .. }
        | Call::Closed { .. }
        | Call::Reopen { .. }
        | Call::Ended { .. }
        | Call::SetLock { .. }
        | Call::CancelLock { .. }
        | Call::GetLock { .. }
        | Call::GetBlock { .. }
        | Call::Admin { .. }
        | Call::Ping
        | Call::Bye => false,
    }
}

/// True for calls that work only for a file system with one plate so far: policies within a batch.
pub(crate) fn needs_one_plate(call: &Call) -> bool {
    match call {
        Call::Batch { .. } => {
            call.ops().iter().any(|op| op.xattr().is_some_and(|(_, name)| is_policy_attribute(name)))
        }
        _ => false,
    }
}
