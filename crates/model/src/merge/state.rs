//! How far a merge is.

use chiton_types::Position;

use crate::record;

record! {
    /// How far the server has got with a decoupled journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct MergeState "state" {
        /// All of the journal up to here is merged.
        pub merged: Position,
        /// The end of the merge batch under way, and how many of its events are done.
        pub batch: Option<(Position, u64)>,
    }
}
