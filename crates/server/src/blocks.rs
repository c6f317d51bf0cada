//! Blocks through the server, for clients that cannot reach the object store.

use std::sync::atomic::Ordering::SeqCst;

use chiton_objects::{ObjectError, Objects, read_block};
use chiton_types::{BlockId, Refusal, SessionId};
use chiton_wire::{Answer, Failure};

use crate::often::Often;
use crate::shared::Shared;

impl Shared {
    /// Stores a block of the session, or of what it has decoupled. Durable at the latest when an event that names it is, or
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
                self.blocks_put.fetch_add(1, SeqCst);
                Ok(Answer::Done)
            }
            Err(error) => Err(self.object_failure(&error)),
        }
    }

    /// True if no block that was put has still to be made durable.
    pub(crate) fn blocks_are_safe(&self) -> bool {
        self.blocks_safe.load(SeqCst) >= self.blocks_put.load(SeqCst)
    }

    /// Makes all blocks durable that clients have put: after a commit they need not keep them any more.
    pub(crate) fn sync_blocks(&self) -> Result<(), Failure> {
        let asked = self.blocks_put.load(SeqCst);
        if self.blocks_safe.load(SeqCst) >= asked {
            return Ok(());
        }
        let mut synced = self.blocks_synced.lock();
        if *synced < asked {
            let put = self.blocks_put.load(SeqCst);
            self.user_objects().sync().map_err(|error| self.object_failure(&error))?;
            *synced = put;
            self.blocks_safe.store(put, SeqCst);
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
