//! The settings of a server.

use chiton_types::{Epoch, Ino, PlateId, Plates};

/// Settings that do not change while a server runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A session not heard of for so long is over.
    pub session_ms: u32,
    /// How long a restarted server waits for sessions to come back.
    pub grace_ms: u32,
    /// The same for sessions of clients that are gone ([`crate::Engine::note_present`]): not shorter than the time for which clients believe
    /// what they have cached.
    pub gone_ms: u32,
    /// About how many leases are kept before the oldest are recalled.
    pub lease_entries_max: usize,
    /// How long after a recall for a change nobody is given a lease on the inode unasked.
    pub lease_rest_ms: u32,
    /// Most sessions at a time.
    pub sessions_max: usize,
    /// Changed rows in memory above which changes wait for a checkpoint.
    pub dirty_rows_max: usize,
    /// Epoch of the cluster map at the start. The epoch of replies also counts changes of policies.
    pub epoch: Epoch,
    /// Weight of each shard for the birth of directories.
    pub shard_weights: Vec<u32>,
    /// The plate that this engine is of, and which plates there are.
    pub plate: PlateId,
    pub plates: Plates,
    /// The directory at which absolute paths begin.
    pub root: Ino,
}
