//! Blocks of a server on this machine: read straight from its object store, put through it.
//!
//! Putting goes through the server because it makes blocks durable before it journals what names them, and knows only
//! of those that it put itself.

use std::sync::Arc;

use chiton_objects::Objects;
use chiton_types::BlockId;

use super::block_io::{BlockError, BlockIo, DirectBlocks, ServerBlocks};
use crate::Service;

/// Blocks of a server on this machine.
pub struct NearBlocks {
    near: DirectBlocks,
    server: ServerBlocks,
}

impl NearBlocks {
    /// Reads from `objects`, which must be the store of the server behind `service`.
    pub fn new(objects: Arc<dyn Objects>, service: Arc<dyn Service>) -> NearBlocks {
        NearBlocks { near: DirectBlocks::new(objects), server: ServerBlocks::new(service) }
    }
}

impl BlockIo for NearBlocks {
    fn put(&self, block: BlockId, encoded: &[u8]) -> Result<(), BlockError> {
        self.server.put(block, encoded)
    }

    fn sync(&self) -> Result<(), BlockError> {
        self.server.sync()
    }

    fn read_into(&self, block: BlockId, offset: u32, into: &mut [u8]) -> Result<(), BlockError> {
        match self.near.read_into(block, offset, into) {
            // The server may still read a block that cannot be read here for whatever reason, or name the reason.
            Err(BlockError::Refused(..)) => self.server.read_into(block, offset, into),
            result => result,
        }
    }
}
