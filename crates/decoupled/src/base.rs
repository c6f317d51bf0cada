//! The server that a subtree was taken from, as the engine in this process asks it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chiton_client::data::BlockIo;
use chiton_namespace::{Fetched, Need};
use chiton_runtime::sync::RwLock;
use chiton_server::Base;
use chiton_types::{Ino, ShardId};
use chiton_wire::NEEDS_MAX;

use crate::calls::ClaimCalls;

/// The rows of the server from which the subtree was decoupled.
pub(crate) struct ServerBase {
    pub(crate) calls: ClaimCalls,
    pub(crate) blocks: Arc<dyn BlockIo>,
    /// The level promises something, so blocks are as durable as the journal that names them.
    pub(crate) durable: bool,
    /// Granted inode numbers: first and last of each range.
    ranges: RwLock<Vec<(Ino, Ino)>>,
    rows_fetched: AtomicU64,
}

impl ServerBase {
    /// `ranges`: the inode numbers that the server granted with the subtree.
    pub(crate) fn new(
        calls: ClaimCalls,
        blocks: Arc<dyn BlockIo>,
        durable: bool,
        ranges: &[(Ino, Ino)],
    ) -> ServerBase {
        ServerBase {
            calls,
            blocks,
            durable,
            ranges: RwLock::new(ranges.to_vec()),
            rows_fetched: AtomicU64::new(0),
        }
    }

    /// Rows that the server gave so far.
    pub(crate) fn rows_fetched(&self) -> u64 {
        self.rows_fetched.load(Ordering::Relaxed)
    }

    /// Whether an inode has one of the numbers that were granted: then it was made in the subtree. (Grants double, so
    /// there are few of them.)
    pub(crate) fn has_granted(&self, ino: Ino) -> bool {
        self.ranges.read().iter().any(|(first, end)| (*first..*end).contains(&ino))
    }
}

impl Base for ServerBase {
    fn fetch(&self, needs: &[Need]) -> Result<Vec<Fetched>, String> {
        let mut fetched = Vec::with_capacity(needs.len());
        while fetched.len() < needs.len() {
            let rest = &needs[fetched.len()..];
            let asked = &rest[..rest.len().min(NEEDS_MAX)];
            let found = self.calls.rows(asked.to_vec()).map_err(|e| e.to_string())?;
            let rows: usize = found.iter().map(|found| found.rows.len()).sum();
            self.rows_fetched.fetch_add(rows as u64, Ordering::Relaxed);
            fetched.extend(asked.iter().zip(found).map(|(need, found)| Fetched {
                need: need.clone(),
                rows: found.rows,
                exhausted: found.exhausted,
                unreadable: false,
            }));
        }
        Ok(fetched)
    }

    fn grant(&self, shard: ShardId, count: u64) -> Result<Vec<(Ino, Ino)>, String> {
        if self.calls.calls.service.is_away() {
            return Err("the server does not answer".to_owned());
        }
        let granted = self.calls.grant(shard, count).map_err(|e| e.to_string())?;
        // Before one of them is used.
        self.ranges.write().extend_from_slice(&granted);
        Ok(granted)
    }

    fn sync_blocks(&self) -> Result<(), String> {
        if self.durable { self.blocks.sync().map_err(|e| e.to_string()) } else { Ok(()) }
    }
}

/// The rows of a [`ServerBase`], read only.
pub(crate) struct ReadBase {
    pub(crate) rows: Arc<ServerBase>,
}

impl Base for ReadBase {
    fn fetch(&self, needs: &[Need]) -> Result<Vec<Fetched>, String> {
        self.rows.fetch(needs)
    }

    fn grant(&self, _shard: ShardId, _count: u64) -> Result<Vec<(Ino, Ino)>, String> {
        Err("the base is only read".to_owned())
    }

    fn sync_blocks(&self) -> Result<(), String> {
        Ok(())
    }
}
