//! Blocks that the server has taken and not yet made durable: it may lose them with all it knows, and then they are put
//! again, before anything that names them is sent again. Pure.
//!
//! ```text
//!   put ── answered ──▶ kept ── an operation names it, and is durable ──▶ forgotten
//!                         ├──── a commit that was asked later is answered ──▶ forgotten
//!                         └──── new boot ──▶ put again
//! ```
//!
//! Invariants:
//! - A kept block can be put again: it is the request itself.
//! - An operation that was refused makes no block durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_model::{Body, Op};
use chiton_types::{BlockId, Seq};
use chiton_wire::{Call, Request};

/// The blocks of one session.
#[derive(Default)]
pub(crate) struct KeptBlocks {
    blocks: BTreeMap<BlockId, Block>,
    bytes: usize,
    next: u64,
}

struct Block {
    put: Arc<Request>,
    bytes: usize,
    /// The boot that has it.
    boot: u64,
    /// Its place among all puts.
    number: u64,
    /// The last operation that names it.
    named: Seq,
}

impl KeptBlocks {
    /// The server has answered `put`.
    pub(crate) fn keep(&mut self, put: &Arc<Request>, boot: u64) {
        let Call::PutBlock { block, bytes } = &put.call else { return };
        let number = self.mark();
        self.next += 1;
        let new = Block { put: put.clone(), bytes: bytes.len(), boot, number, named: Seq(0) };
        self.bytes += new.bytes;
        if let Some(before) = self.blocks.insert(*block, new) {
            self.bytes -= before.bytes;
        }
    }

    /// Operation `seq` is asked.
    pub(crate) fn asked(&mut self, op: &Op, seq: Seq) {
        if self.blocks.is_empty() {
            return;
        }
        for block in named(op) {
            if let Some(kept) = self.blocks.get_mut(&block) {
                kept.named = seq;
            }
        }
    }

    /// Operation `seq` is durable.
    pub(crate) fn durable(&mut self, op: &Op, seq: Seq) {
        if self.blocks.is_empty() {
            return;
        }
        for block in named(op) {
            if self.blocks.get(&block).is_some_and(|kept| kept.named == seq) {
                self.bytes -= self.blocks.remove(&block).map_or(0, |kept| kept.bytes);
            }
        }
    }

    /// The position of a commit among the puts.
    pub(crate) fn mark(&self) -> u64 {
        self.next
    }

    /// A commit was answered that was asked at `mark`.
    pub(crate) fn committed(&mut self, mark: u64) {
        self.blocks.retain(|_, kept| kept.number >= mark);
        self.bytes = self.blocks.values().map(|kept| kept.bytes).sum();
    }

    /// The blocks that this boot of the server does not have yet.
    pub(crate) fn missing_in(&self, boot: u64) -> Vec<Arc<Request>> {
        self.blocks.values().filter(|kept| kept.boot != boot).map(|kept| kept.put.clone()).collect()
    }

    /// It has this one now.
    pub(crate) fn has(&mut self, put: &Request, boot: u64) {
        if let Call::PutBlock { block, .. } = &put.call
            && let Some(kept) = self.blocks.get_mut(block)
        {
            kept.boot = boot;
        }
    }

    /// It will never take this one: nothing that names it will be taken either.
    pub(crate) fn forget(&mut self, put: &Request) {
        if let Call::PutBlock { block, .. } = &put.call
            && let Some(kept) = self.blocks.remove(block)
        {
            self.bytes -= kept.bytes;
        }
    }

    /// Memory that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn named(op: &Op) -> impl Iterator<Item = BlockId> + '_ {
    let extents: &[_] = if let Op::Write { body: Body::Extents(extents), .. } = op { extents } else { &[] };
    extents.iter().map(|e| e.block).filter(|block| !block.is_hole())
}

#[cfg(test)]
mod tests {
    use chiton_model::Extent;
    use chiton_types::{Cred, Epoch, Ino, Time};

    use super::*;

    const BOOT: u64 = 7;

    fn block(number: u64) -> BlockId {
        BlockId { writer: 3, number }
    }

    fn kept(numbers: &[u64]) -> KeptBlocks {
        let mut blocks = KeptBlocks::default();
        numbers.iter().for_each(|&number| put(&mut blocks, number));
        blocks
    }

    fn put(blocks: &mut KeptBlocks, number: u64) {
        let call = Call::PutBlock { block: block(number), bytes: vec![1; 10] };
        let (seq, cred) = (Seq(0), Cred::ROOT);
        let put = Request { id: number, seq, settled: seq, epoch: Epoch(0), again: None, cred, call };
        blocks.keep(&Arc::new(put), BOOT);
    }

    fn write(number: u64) -> Op {
        let extent = Extent { offset: 0, len: 4, block: block(number), block_offset: 0, shared: false };
        let body = Body::Extents(vec![extent]);
        Op::Write { ino: Ino(9), body, size: 4, mtime: Time(1), kill_setid: false, hold: Default::default() }
    }

    fn missing(blocks: &KeptBlocks, boot: u64) -> Vec<u64> {
        blocks.missing_in(boot).iter().map(|put| put.id).collect()
    }

    #[test]
    fn a_block_is_forgotten_when_the_last_operation_that_names_it_is_durable() {
        let mut blocks = kept(&[1, 2]);
        blocks.asked(&write(1), Seq(1));
        // The first was refused, and the file pushed anew.
        blocks.asked(&write(1), Seq(2));
        blocks.durable(&write(1), Seq(1));
        assert_eq!((missing(&blocks, BOOT + 1), blocks.bytes()), (vec![1, 2], 20));
        blocks.durable(&write(1), Seq(2));
        assert_eq!((missing(&blocks, BOOT + 1), blocks.bytes()), (vec![2], 10));
    }

    #[test]
    fn a_commit_covers_what_was_put_before_it_was_asked() {
        let mut blocks = kept(&[1]);
        let mark = blocks.mark();
        put(&mut blocks, 2);
        blocks.committed(mark);
        assert_eq!((missing(&blocks, BOOT + 1), blocks.bytes()), (vec![2], 10));
    }

    #[test]
    fn a_block_that_is_never_taken_is_not_put_again() {
        let mut blocks = kept(&[1, 2]);
        let put = blocks.missing_in(BOOT + 1).remove(0);
        blocks.forget(&put);
        blocks.forget(&put);
        assert_eq!((missing(&blocks, BOOT + 1), blocks.bytes()), (vec![2], 10));
    }

    #[test]
    fn a_new_boot_misses_what_it_was_not_given() {
        let mut blocks = kept(&[1, 2]);
        assert_eq!(missing(&blocks, BOOT), [0; 0]);
        let first = blocks.missing_in(BOOT + 1)[0].clone();
        blocks.has(&first, BOOT + 1);
        assert_eq!(missing(&blocks, BOOT + 1), [2]);
        assert_eq!(missing(&blocks, BOOT + 2), [1, 2]);
    }
}
