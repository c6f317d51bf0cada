//! The blocks of a plate, and how clients that cannot reach the object store put and get them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use chiton_objects::{Metered, ObjectError, Objects, read_block};
use chiton_runtime::sync::Mutex;
use chiton_types::{BlockId, Position, Refusal, SessionId};
use chiton_wire::{Answer, Failure};

use crate::often::Often;
use crate::plate::Plate;
use crate::sweeper::Listing;

/// The object store, and the known state of the blocks in it.
pub(crate) struct Blocks {
    pub(crate) objects: Arc<dyn Objects>,
    /// The same, with its counters.
    pub(crate) metered: Arc<Metered>,
    /// Where clients on this machine find it; empty if they cannot.
    pub(crate) address: String,
    /// The plate's own session of this boot: writer of its own blocks.
    pub(crate) writer: SessionId,
    /// How many it wrote.
    pub(crate) written: AtomicU64,
    /// Events since the last commit named new blocks, or deleted some: sync before the next.
    pub(crate) unsynced: Arc<AtomicBool>,
    /// Blocks that clients have put, and of them those that were synced.
    put: AtomicU64,
    synced: Mutex<u64>,
    /// The latter, to be looked at without the lock.
    safe: AtomicU64,
    /// Sessions that are over, whose blocks may have no name, and where what they did ends.
    pub(crate) dead_writers: Mutex<Vec<(SessionId, Position)>>,
    pub(crate) dead_writers_listing: Mutex<Listing>,
}

impl Blocks {
    pub(crate) fn new(objects: Arc<dyn Objects>, address: String, writer: SessionId) -> Blocks {
        let metered = Arc::new(Metered::new(objects));
        Blocks {
            objects: metered.clone(),
            metered,
            address,
            writer,
            written: AtomicU64::new(0),
            unsynced: Arc::default(),
            put: AtomicU64::new(0),
            synced: Mutex::new(0),
            safe: AtomicU64::new(0),
            dead_writers: Mutex::default(),
            dead_writers_listing: Mutex::new(Listing::Due),
        }
    }
}

impl Plate {
    /// Stores a block of the session, or of its decoupled subtree. Durable at the latest when an event that names it is, or
    /// a commit that was asked for after
    /// the answer is answered.
    pub(crate) fn put_block(
        &self,
        session: SessionId,
        block: BlockId,
        bytes: &[u8],
    ) -> Result<Answer, Failure> {
        let is_own = block.writer == session.0 || self.engine.lock().may_put(session, block.writer);
        if !is_own || block.is_hole() {
            return Err(Failure::Refused(Refusal::NotPermitted));
        }
        match self.user_objects().put(&block.key(), bytes) {
            Ok(()) => {
                self.blocks.put.fetch_add(1, SeqCst);
                Ok(Answer::Done)
            }
            Err(error) => Err(self.object_failure(&error)),
        }
    }

    /// True if no block that was put has still to be made durable.
    pub(crate) fn blocks_are_safe(&self) -> bool {
        self.blocks.safe.load(SeqCst) >= self.blocks.put.load(SeqCst)
    }

    /// Makes all blocks durable that clients have put: after a commit they need not keep them any more.
    pub(crate) fn sync_blocks(&self) -> Result<(), Failure> {
        let asked = self.blocks.put.load(SeqCst);
        if self.blocks.safe.load(SeqCst) >= asked {
            return Ok(());
        }
        let mut synced = self.blocks.synced.lock();
        if *synced < asked {
            let put = self.blocks.put.load(SeqCst);
            self.user_objects().sync().map_err(|error| self.object_failure(&error))?;
            *synced = put;
            self.blocks.safe.store(put, SeqCst);
        }
        Ok(())
    }

    /// Part of a block's payload, verified.
    pub(crate) fn get_block(&self, block: BlockId, offset: u32, len: u32) -> Result<Answer, Failure> {
        let end = u64::from(offset) + u64::from(len);
        if len == 0 || end > chiton_objects::BLOCK_BYTES_MAX {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        match read_block(&self.user_objects(), &block.key(), Some(u64::from(offset)..end)) {
            Ok(bytes) => Ok(Answer::Bytes(bytes)),
            // The client fetches the map anew: the block may have been compacted away.
            Err(error) if error.is_not_found() => Err(Failure::Refused(Refusal::Stale)),
            Err(error) => Err(self.object_failure(&error)),
        }
    }

    pub(crate) fn object_failure(&self, error: &ObjectError) -> Failure {
        if error.is_gone() {
            self.store_gone(&error.to_string());
        }
        self.note_often(Often::Objects, &error.to_string());
        Failure::Refused(match error {
            ObjectError::NoSpace { .. } => Refusal::NoSpace,
            // A name that is none is the client's defect.
            ObjectError::BadKey { .. } => Refusal::Invalid,
            _ => Refusal::Io,
        })
    }
}
