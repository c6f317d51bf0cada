//! Counts calls and bytes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{ObjectError, ObjectInfo, Objects};

/// A decorator that counts operations and bytes.
pub struct Metered {
    inner: Arc<dyn Objects>,
    counters: Counters,
}

/// Counters since the decorator was made; each may be read at any time.
#[derive(Debug, Default)]
pub struct Counters {
    /// Calls of `get` and `read_into`.
    pub gets: AtomicU64,
    /// Number of calls of `size`.
    pub sizes: AtomicU64,
    /// Number of calls of `put`.
    pub puts: AtomicU64,
    /// Number of calls of `put_if_absent`.
    pub puts_if_absent: AtomicU64,
    /// Number of calls of `delete`.
    pub deletes: AtomicU64,
    /// Number of calls of `list`.
    pub lists: AtomicU64,
    /// Number of calls of `sync`.
    pub syncs: AtomicU64,
    /// Calls of any kind that failed (`NotFound` included).
    pub errors: AtomicU64,
    pub read_bytes: AtomicU64,
    /// Bytes that were stored.
    pub written_bytes: AtomicU64,
}

impl Metered {
    /// Counts the calls to `inner`.
    pub fn new(inner: Arc<dyn Objects>) -> Metered {
        Metered { inner, counters: Counters::default() }
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn count<T>(&self, calls: &AtomicU64, result: Result<T, ObjectError>) -> Result<T, ObjectError> {
        calls.fetch_add(1, Relaxed);
        if result.is_err() {
            self.counters.errors.fetch_add(1, Relaxed);
        }
        result
    }
}

impl Objects for Metered {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        let bytes = self.count(&self.counters.gets, self.inner.get(key, range))?;
        self.counters.read_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Ok(bytes)
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        self.count(&self.counters.gets, self.inner.read_into(key, offset, into))?;
        self.counters.read_bytes.fetch_add(into.len() as u64, Relaxed);
        Ok(())
    }

    fn will_need(&self, key: &str) -> bool {
        self.inner.will_need(key)
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        self.count(&self.counters.sizes, self.inner.size(key))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        self.count(&self.counters.puts, self.inner.put(key, bytes))?;
        self.counters.written_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        let won = self.count(&self.counters.puts_if_absent, self.inner.put_if_absent(key, bytes))?;
        if won {
            self.counters.written_bytes.fetch_add(bytes.len() as u64, Relaxed);
        }
        Ok(won)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.count(&self.counters.deletes, self.inner.delete(key))
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        self.count(&self.counters.lists, self.inner.list(prefix, after, max))
    }

    fn sync(&self) -> Result<(), ObjectError> {
        self.count(&self.counters.syncs, self.inner.sync())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryObjects;

    #[test]
    fn counts() {
        let m = Metered::new(Arc::new(MemoryObjects::new()));
        m.put("a", b"12345").unwrap();
        m.get("a", Some(1..3)).unwrap();
        m.read_into("a", 0, &mut [0; 4]).unwrap();
        assert_eq!(m.put_if_absent("a", b"123"), Ok(false));
        m.get("b", None).unwrap_err();
        let c = m.counters();
        let seen = [&c.puts, &c.gets, &c.puts_if_absent, &c.errors, &c.read_bytes, &c.written_bytes];
        assert_eq!(seen.map(|n| n.load(Relaxed)), [1, 3, 1, 1, 6, 5]);
    }
}
