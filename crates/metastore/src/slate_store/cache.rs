//! Blocks, indexes and filters of tables in memory, the least recently used ones leave.
//!
//! SlateDB's own caches are optional features that bring many libraries; a lock and a list are enough here.

use async_trait::async_trait;
use lru::LruCache;
use parking_lot::Mutex;
use slatedb::db_cache::{CachedEntry, CachedKey, DbCache};

/// Bytes that an entry takes beside its content, about.
const ENTRY_BYTES: usize = 128;

pub(super) struct BlockCache {
    bytes_max: usize,
    state: Mutex<State>,
}

struct State {
    entries: LruCache<CachedKey, CachedEntry>,
    bytes: usize,
}

fn weight(entry: &CachedEntry) -> usize {
    entry.size() + ENTRY_BYTES
}

impl BlockCache {
    pub(super) fn new(bytes_max: usize) -> BlockCache {
        let state = State { entries: LruCache::unbounded(), bytes: 0 };
        BlockCache { bytes_max, state: Mutex::new(state) }
    }

    fn get(&self, key: &CachedKey) -> Option<CachedEntry> {
        self.state.lock().entries.get(key).cloned()
    }
}

#[async_trait]
impl DbCache for BlockCache {
    async fn get_block(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.get(key))
    }

    async fn get_index(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.get(key))
    }

    async fn get_filter(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.get(key))
    }

    async fn get_stats(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.get(key))
    }

    async fn insert(&self, key: CachedKey, entry: CachedEntry) {
        let mut state = self.state.lock();
        state.bytes += weight(&entry);
        if let Some((_, before)) = state.entries.push(key, entry) {
            state.bytes -= weight(&before);
        }
        while state.bytes > self.bytes_max
            && let Some((_, oldest)) = state.entries.pop_lru()
        {
            state.bytes -= weight(&oldest);
        }
    }

    async fn remove(&self, key: &CachedKey) {
        let mut state = self.state.lock();
        if let Some(entry) = state.entries.pop(key) {
            state.bytes -= weight(&entry);
        }
    }

    fn entry_count(&self) -> u64 {
        self.state.lock().entries.len() as u64
    }
}
