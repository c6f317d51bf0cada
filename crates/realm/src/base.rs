//! The server that a subtree was taken from, as the engine in this process asks it.

use std::sync::Arc;

use chiton_client::data::BlockIo;
use chiton_namespace::{Fetched, Need};
use chiton_proto::NEEDS_MAX;
use chiton_server::Base;
use chiton_types::{Ino, ShardId};

use crate::calls::ClaimCalls;

/// See the module.
pub(crate) struct ServerBase {
    pub(crate) calls: ClaimCalls,
    pub(crate) blocks: Arc<dyn BlockIo>,
    /// The level promises something, so blocks are as durable as the journal that names them.
    pub(crate) durable: bool,
}

impl Base for ServerBase {
    fn fetch(&self, needs: &[Need]) -> Result<Vec<Fetched>, String> {
        let mut fetched = Vec::with_capacity(needs.len());
        while fetched.len() < needs.len() {
            let rest = &needs[fetched.len()..];
            let asked = &rest[..rest.len().min(NEEDS_MAX)];
            let found = self.calls.rows(asked.to_vec()).map_err(|e| e.to_string())?;
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
        self.calls.grant(shard, count).map_err(|e| e.to_string())
    }

    fn sync_blocks(&self) -> Result<(), String> {
        if self.durable { self.blocks.sync().map_err(|e| e.to_string()) } else { Ok(()) }
    }
}
