//! Parts of blocks that were read ahead. Blocks never change, so nothing here ever gets stale.
//!
//! Invariants:
//! - A part is read at most once at a time; other readers wait for it meanwhile.
//! - Bytes held never exceed the maximum (what readers still copy from not counted).

use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_types::BlockId;
use hashbrown::HashMap;

use super::block_io::{BlockError, BlockIo};

/// Payload bytes of one part; a multiple of the bytes under one checksum.
pub(super) const PART_BYTES: u32 = 1 << 20;
/// Buffers of evicted parts that are kept for the next ones.
const SPARE_BUFFERS_MAX: usize = 4;

/// Block and number of the part.
type Key = (BlockId, u32);

struct Entry {
    /// First byte of the payload.
    offset: u32,
    len: u32,
    /// `None` while they are being read.
    bytes: Option<Arc<Vec<u8>>>,
    stamp: u64,
}

#[derive(Default)]
struct State {
    entries: HashMap<Key, Entry>,
    /// Least recently used first.
    order: BTreeMap<u64, Key>,
    stamp: u64,
    held_bytes: usize,
    spare: Vec<Vec<u8>>,
}

pub(super) struct ReadCache {
    bytes_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl ReadCache {
    pub(super) fn new(bytes_max: usize) -> ReadCache {
        ReadCache { bytes_max, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Fills `into` from a block, from here where it is here.
    pub(super) fn read(
        &self,
        io: &dyn BlockIo,
        block: BlockId,
        offset: u32,
        mut into: &mut [u8],
    ) -> Result<(), BlockError> {
        let mut at = offset;
        let mut missing: &mut [u8] = &mut [];
        let mut missing_at = at;
        while !into.is_empty() {
            let n = into.len().min((PART_BYTES - at % PART_BYTES) as usize);
            match self.find((block, at / PART_BYTES), at, n) {
                Some((bytes, from)) => {
                    let (part, rest) = into.split_at_mut(n);
                    part.copy_from_slice(&bytes[from..from + n]);
                    into = rest;
                }
                None => {
                    // As much as is missing in one go.
                    let mut end = n;
                    while end < into.len() && !self.has((block, (at + end as u32) / PART_BYTES)) {
                        end = into.len().min(end + PART_BYTES as usize);
                    }
                    (missing, into) = into.split_at_mut(end);
                    missing_at = at;
                }
            }
            if !missing.is_empty() {
                io.read_into(block, missing_at, missing)?;
            }
            at += (missing.len().max(n)) as u32;
            missing = &mut [];
        }
        Ok(())
    }

    fn has(&self, key: Key) -> bool {
        self.state.lock().entries.contains_key(&key)
    }

    /// The bytes of a part, and where in them `offset` is, if all `len` are there. Waits for a read under way.
    fn find(&self, key: Key, offset: u32, len: usize) -> Option<(Arc<Vec<u8>>, usize)> {
        let mut state = self.state.lock();
        loop {
            let entry = state.entries.get(&key)?;
            if offset < entry.offset
                || u64::from(offset) + len as u64 > u64::from(entry.offset) + u64::from(entry.len)
            {
                return None;
            }
            let from = (offset - entry.offset) as usize;
            if let Some(bytes) = entry.bytes.clone() {
                state.touch(key);
                return Some((bytes, from));
            }
            self.changed.wait(&mut state);
        }
    }

    /// Room for `len` bytes of a part from `offset` on, to be filled with [`ReadCache::fill`] or given up with
    /// [`ReadCache::give_up`]. `false`: it is here already, or there is no room.
    pub(super) fn reserve(&self, key: Key, offset: u32, len: u32) -> bool {
        let mut state = self.state.lock();
        if let Some(entry) = state.entries.get(&key) {
            let covers = entry.offset <= offset && entry.offset + entry.len >= offset + len;
            if covers || entry.bytes.is_none() {
                return false;
            }
            state.remove(key);
        }
        while state.held_bytes + len as usize > self.bytes_max {
            let oldest =
                state.order.iter().map(|(_, &key)| key).find(|key| state.entries[key].bytes.is_some());
            match oldest {
                Some(key) => state.remove(key),
                None => return false,
            }
        }
        state.held_bytes += len as usize;
        state.stamp += 1;
        let stamp = state.stamp;
        state.order.insert(stamp, key);
        state.entries.insert(key, Entry { offset, len, bytes: None, stamp });
        true
    }

    /// A buffer of `len` bytes of any content.
    pub(super) fn buffer(&self, len: usize) -> Vec<u8> {
        let spare = self.state.lock().spare.pop();
        let mut buffer = spare.unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// The part was read.
    pub(super) fn fill(&self, key: Key, bytes: Vec<u8>) {
        let mut state = self.state.lock();
        if let Some(entry) = state.entries.get_mut(&key) {
            entry.bytes = Some(Arc::new(bytes));
        }
        self.changed.notify_all();
    }

    /// The part cannot be read: each thread that waits for it tries, and fails, on its own.
    pub(super) fn give_up(&self, key: Key) {
        self.state.lock().remove(key);
        self.changed.notify_all();
    }
}

impl State {
    fn touch(&mut self, key: Key) {
        self.stamp += 1;
        let stamp = self.stamp;
        if let Some(entry) = self.entries.get_mut(&key) {
            self.order.remove(&std::mem::replace(&mut entry.stamp, stamp));
            self.order.insert(stamp, key);
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(entry) = self.entries.remove(&key) else { return };
        self.order.remove(&entry.stamp);
        self.held_bytes -= entry.len as usize;
        if let Some(bytes) = entry.bytes.and_then(Arc::into_inner)
            && self.spare.len() < SPARE_BUFFERS_MAX
        {
            self.spare.push(bytes);
        }
    }
}
