//! A block on its way into the store.
//!
//! Invariants:
//! - The payload stays readable, and in memory, until the block is stored; a put that failed can be tried again, with
//!   the same name and the same bytes.
//! - Exactly one thread at a time puts it: a thread of the pool, or the one that waits for it.

use std::sync::atomic::{AtomicU8, Ordering};

use chiton_objects::block::seal_block;
use chiton_runtime::sync::RwLock;
use chiton_types::{BlockId, Refusal};

use super::block_io::BlockIo;
use super::budget::Budget;

const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const STORED: u8 = 2;
const FAILED: u8 = 3;

/// A block that is being stored.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) block: BlockId,
    payload_bytes: usize,
    stage: AtomicU8,
    /// The payload; with its trailer once it was sealed; empty once it is stored.
    bytes: RwLock<Vec<u8>>,
}

impl Upload {
    /// A block of this payload, whose memory was taken from a budget.
    pub(super) fn new(block: BlockId, payload: Vec<u8>, budget: &Budget) -> Upload {
        budget.moving(payload.capacity());
        Upload {
            block,
            payload_bytes: payload.len(),
            stage: AtomicU8::new(WAITING),
            bytes: RwLock::new(payload),
        }
    }

    pub(super) fn is_failed(&self) -> bool {
        self.stage.load(Ordering::Acquire) == FAILED
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.stage.load(Ordering::Acquire) == WAITING
    }

    /// A failed one may be tried again. It counts as moving first: a thread that has waited for this begins at once.
    pub(super) fn again(&self, budget: &Budget) {
        if !self.is_failed() {
            return;
        }
        let moving_bytes = self.bytes.read().capacity();
        budget.moving(moving_bytes);
        if self.stage.compare_exchange(FAILED, WAITING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            budget.moved(moving_bytes);
        }
    }

    /// Stores the block, unless another thread does or did (`None`). After a failure it counts as being stored until
    /// [`Upload::fail`] or [`Upload::finish`] is called.
    pub(super) fn run(&self, io: &dyn BlockIo, budget: &Budget) -> Option<Result<(), Refusal>> {
        self.stage.compare_exchange(WAITING, RUNNING, Ordering::AcqRel, Ordering::Acquire).ok()?;
        let moving_bytes = self.seal(budget);
        let result = io.put(self.block, &self.bytes.read());
        budget.moved(moving_bytes);
        match result {
            Ok(()) => Some(Ok(())),
            Err(error) => {
                tracing::warn!("cannot store block {}: {error}", self.block.key());
                Some(Err(error.refusal()))
            }
        }
    }

    /// Notes that its put failed. The caller holds the file's lock, under which it also notes the refusal: no thread sees the one
    /// without the other.
    pub(super) fn fail(&self) {
        self.stage.store(FAILED, Ordering::Release);
    }

    /// Appends the trailer, once. Returns the memory held.
    fn seal(&self, budget: &Budget) -> usize {
        let mut bytes = self.bytes.write();
        if bytes.len() == self.payload_bytes {
            let room = bytes.capacity();
            seal_block(&mut bytes);
            let grown = bytes.capacity() - room;
            budget.take(grown);
            budget.moving(grown);
        }
        bytes.capacity()
    }

    /// Copies a part of the payload.
    pub(super) fn read(&self, offset: u32, into: &mut [u8]) {
        let bytes = self.bytes.read();
        into.copy_from_slice(&bytes[offset as usize..offset as usize + into.len()]);
    }

    /// Gives the memory back: nobody will read here again.
    pub(super) fn finish(&self, budget: &Budget) {
        self.stage.store(STORED, Ordering::Release);
        budget.give_buffer(std::mem::take(&mut *self.bytes.write()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::data::block_io::BlockError;

    /// A store without room.
    struct Full;

    impl BlockIo for Full {
        fn put(&self, _: BlockId, _: &[u8]) -> Result<(), BlockError> {
            Err(BlockError::Refused(Refusal::NoSpace, String::new()))
        }

        fn sync(&self) -> Result<(), BlockError> {
            Ok(())
        }

        fn read_into(&self, _: BlockId, _: u32, _: &mut [u8]) -> Result<(), BlockError> {
            Err(BlockError::Refused(Refusal::NoSpace, String::new()))
        }
    }

    /// A job that was queued for an earlier try may begin the next one before the thread that allows it has returned.
    #[test]
    fn a_try_that_begins_at_once_is_counted() {
        let budget = Budget::new(1 << 20, 0);
        budget.take(100);
        let upload = Arc::new(Upload::new(BlockId { writer: 1, number: 1 }, vec![7; 100], &budget));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let job = scope.spawn(|| {
                for _ in 0..50_000 {
                    while upload.run(&Full, &budget).is_none() {
                        std::hint::spin_loop();
                    }
                    upload.fail();
                }
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    upload.again(&budget);
                }
            });
            let ended = job.join();
            is_over.store(true, Ordering::Release);
            assert!(ended.is_ok(), "the job counted what it moved");
        });
    }
}
