//! Why requests wait, for the log of slow operations and for metrics.

use crate::engine::Engine;
use crate::wait_queue::{Ticket, Wait};

/// The resource or event that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    Leases,
    Durability,
    Lock,
    Room,
    Recovery,
    Numbers,
    Growth,
    OtherPlates,
}

impl WaitReason {
    pub const ALL: [WaitReason; 8] = [
        WaitReason::Leases,
        WaitReason::Durability,
        WaitReason::Lock,
        WaitReason::Room,
        WaitReason::Recovery,
        WaitReason::Numbers,
        WaitReason::Growth,
        WaitReason::OtherPlates,
    ];

    /// One word, for labels.
    pub fn name(self) -> &'static str {
        match self {
            WaitReason::Leases => "leases",
            WaitReason::Durability => "durability",
            WaitReason::Lock => "lock",
            WaitReason::Room => "room",
            WaitReason::Recovery => "recovery",
            WaitReason::Numbers => "numbers",
            WaitReason::Growth => "growth",
            WaitReason::OtherPlates => "other_plates",
        }
    }

    /// The reason in words.
    pub fn words(self) -> &'static str {
        match self {
            WaitReason::Leases => "other clients to give up leases",
            WaitReason::Durability => "durability",
            WaitReason::Lock => "a lock",
            WaitReason::Room => "a checkpoint",
            WaitReason::Recovery => "the recovery after a start",
            WaitReason::Numbers => "inode numbers",
            WaitReason::Growth => "other clients to note the growth of a file",
            WaitReason::OtherPlates => "other plates",
        }
    }
}

impl Engine {
    /// Why a request waits; `None` if it does not wait any more.
    pub fn waits_for(&self, ticket: Ticket) -> Option<WaitReason> {
        Some(match self.queue.waiting.wait_of(ticket)? {
            Wait::Leases(_) => WaitReason::Leases,
            Wait::Durable(_) => WaitReason::Durability,
            Wait::Lock => WaitReason::Lock,
            Wait::Room | Wait::Checkpoint => WaitReason::Room,
            Wait::Recovery => WaitReason::Recovery,
            Wait::Numbers => WaitReason::Numbers,
            Wait::Growth(_) => WaitReason::Growth,
            Wait::Guard(_) | Wait::Guarded(_) | Wait::Birth(_) | Wait::Unborn(_) => WaitReason::OtherPlates,
            Wait::Carried(_) | Wait::Realm(_) | Wait::Policies | Wait::PolicySet(_) | Wait::Subtree(_) => {
                WaitReason::OtherPlates
            }
        })
    }
}
