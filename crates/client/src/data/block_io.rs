//! Where blocks are put and read: straight in the object store, or through the server.
//!
//! Invariants:
//! - What [`BlockIo::read_into`] gives was covered by a checksum that fits (by the server's, if it reads for us).
//! - A put is visible when it returns; durable only when the server has synced the store, which it does before an
//!   operation that names the block is durable, and before it answers a commit. Until then a client of a server in
//!   another process keeps what it has put, and puts it again to a server that was restarted (`kept_blocks`).

use std::fmt;
use std::sync::Arc;

use chiton_objects::{BlockIndex, ObjectError, Objects};
use chiton_runtime::sync::Mutex;
use chiton_types::{BlockId, Cred, Position, Refusal};
use chiton_wire::{Answer, Call};
use hashbrown::HashMap;

use crate::{CallError, Service};

/// Indexes of blocks that are remembered: at most 1 KiB each.
const INDEXES_MAX: usize = 4096;

/// Why a block could not be put or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// It is not there (any more).
    NotFound,
    /// Its bytes are not what was written; how that shows, in words.
    Corrupt(String),
    /// The store or the server refuses; in words if it said more.
    Refused(Refusal, String),
}

impl BlockError {
    /// The error that the caller of the file system gets.
    pub fn refusal(&self) -> Refusal {
        match self {
            BlockError::NotFound | BlockError::Corrupt(_) => Refusal::Io,
            BlockError::Refused(refusal, _) => *refusal,
        }
    }
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockError::NotFound => f.write_str("not found"),
            BlockError::Corrupt(cause) => write!(f, "corrupt: {cause}"),
            BlockError::Refused(refusal, cause) => write!(f, "{refusal}: {cause}"),
        }
    }
}

impl From<ObjectError> for BlockError {
    fn from(error: ObjectError) -> BlockError {
        match error {
            ObjectError::NotFound { .. } => BlockError::NotFound,
            ObjectError::Corrupt { cause, .. } => BlockError::Corrupt(cause),
            ObjectError::NoSpace { .. } => BlockError::Refused(Refusal::NoSpace, error.to_string()),
            _ => BlockError::Refused(Refusal::Io, error.to_string()),
        }
    }
}

/// A store of blocks.
pub trait BlockIo: Send + Sync {
    /// Stores a block. `encoded`: payload and trailer, as [`chiton_objects::block::seal_block`] makes them. The same
    /// block may be put again.
    ///
    /// # Errors
    /// Why not; it may have landed nevertheless.
    fn put(&self, block: BlockId, encoded: &[u8]) -> Result<(), BlockError>;

    /// Everything put before is durable on return.
    ///
    /// # Errors
    /// Why not.
    fn sync(&self) -> Result<(), BlockError>;

    /// Fills `into` with the payload from byte `offset` on, verified.
    ///
    /// # Errors
    /// As in [`BlockError`]; then `into` holds anything.
    fn read_into(&self, block: BlockId, offset: u32, into: &mut [u8]) -> Result<(), BlockError>;

    /// The block will be read soon. `true`: the store itself sees to it that this does not wait; `false`: reading
    /// ahead is left to the caller.
    fn will_need(&self, _block: BlockId) -> bool {
        false
    }
}

/// Blocks in an object store that this process reaches itself.
pub struct DirectBlocks {
    objects: Arc<dyn Objects>,
    indexes: Mutex<HashMap<BlockId, Arc<BlockIndex>>>,
}

impl DirectBlocks {
    /// Blocks in `objects` (to be wrapped with retries by the opener).
    pub fn new(objects: Arc<dyn Objects>) -> DirectBlocks {
        DirectBlocks { objects, indexes: Mutex::default() }
    }

    fn index(&self, block: BlockId, key: &str) -> Result<Arc<BlockIndex>, BlockError> {
        if let Some(index) = self.indexes.lock().get(&block) {
            return Ok(index.clone());
        }
        let index = Arc::new(BlockIndex::fetch(&*self.objects, key)?);
        let mut indexes = self.indexes.lock();
        if indexes.len() >= INDEXES_MAX {
            indexes.clear();
        }
        indexes.insert(block, index.clone());
        Ok(index)
    }
}

impl BlockIo for DirectBlocks {
    fn put(&self, block: BlockId, encoded: &[u8]) -> Result<(), BlockError> {
        Ok(self.objects.put(&block.key(), encoded)?)
    }

    fn sync(&self) -> Result<(), BlockError> {
        Ok(self.objects.sync()?)
    }

    fn read_into(&self, block: BlockId, offset: u32, into: &mut [u8]) -> Result<(), BlockError> {
        let key = block.key();
        let index = self.index(block, &key)?;
        Ok(index.read_into(&*self.objects, &key, u64::from(offset), into)?)
    }

    fn will_need(&self, block: BlockId) -> bool {
        self.objects.will_need(&block.key())
    }
}

/// Blocks that the server puts and reads for us.
pub struct ServerBlocks {
    service: Arc<dyn Service>,
}

impl ServerBlocks {
    /// Reads and writes blocks through `service`: all of them pass the server.
    pub fn new(service: Arc<dyn Service>) -> ServerBlocks {
        ServerBlocks { service }
    }

    fn ask(&self, call: Call) -> Result<Answer, BlockError> {
        self.service.call(&Cred::ROOT, call).map_err(|error| match error {
            CallError::Refused(Refusal::NotFound) => BlockError::NotFound,
            CallError::Refused(refusal) => BlockError::Refused(refusal, "said the server".to_owned()),
            CallError::NeedGroups => BlockError::Refused(Refusal::Access, "asked for groups".to_owned()),
        })
    }
}

impl BlockIo for ServerBlocks {
    fn put(&self, block: BlockId, encoded: &[u8]) -> Result<(), BlockError> {
        self.ask(Call::PutBlock { block, bytes: encoded.to_vec() }).map(|_| ())
    }

    fn sync(&self) -> Result<(), BlockError> {
        self.service
            .commit(Position(0))
            .map_err(|refusal| BlockError::Refused(refusal, "blocks are not durable".to_owned()))
    }

    fn read_into(&self, block: BlockId, offset: u32, into: &mut [u8]) -> Result<(), BlockError> {
        match self.ask(Call::GetBlock { block, offset, len: into.len() as u32 })? {
            Answer::Bytes(bytes) if bytes.len() == into.len() => {
                into.copy_from_slice(&bytes);
                Ok(())
            }
            Answer::Bytes(bytes) => {
                Err(BlockError::Corrupt(format!("the server sent {} bytes of {}", bytes.len(), into.len())))
            }
            _ => Err(BlockError::Refused(Refusal::Io, "the server answered something else".to_owned())),
        }
    }
}
