//! The records of merges: the decoupling's map, how far a merge is, conflicts and how they are treated.

mod conflict;
mod contested;
mod map;
mod settled;
mod state;

pub use conflict::{Conflict, ConflictKind, OnConflict, Resolution, Version};
pub use contested::{ContestedNames, Place};
pub use map::{InodeRange, MergeMap};
pub use settled::Settled;
pub use state::MergeState;
