//! The reference store, in memory, with switches for faults.
//!
//! Invariants:
//! - [`MemoryObjects::crash`] keeps everything that the trait promises after a crash: synced puts, and every
//!   successful put-if-absent.
//! - A fault that is not [`Fault::LostReply`] changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::key::{check_key, check_prefix};
use crate::{ObjectError, ObjectInfo, Objects};

/// A fault for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `Transient`, and nothing is done.
    Transient,
    /// `Io`, and nothing is done.
    Io,
    /// `NoSpace`, and nothing is done.
    NoSpace,
    /// The operation is done, but the caller gets `Transient`.
    LostReply,
}

#[derive(Default)]
struct State {
    now: BTreeMap<String, Arc<[u8]>>,
    durable: BTreeMap<String, Arc<[u8]>>,
    unsynced: BTreeSet<String>,
    faults: Option<(usize, Fault)>,
    full: bool,
}

#[derive(Default)]
pub struct MemoryObjects {
    state: Mutex<State>,
}

impl State {
    fn run<T>(
        &mut self,
        key: &str,
        grows: bool,
        op: impl FnOnce(&mut State) -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        let fault = match &mut self.faults {
            Some((left, fault)) if *left > 0 => {
                *left -= 1;
                Some(*fault)
            }
            _ => None,
        };
        let key = key.to_owned();
        let cause = "injected".to_owned();
        match fault {
            Some(Fault::Transient) => Err(ObjectError::Transient { key, cause }),
            Some(Fault::Io) => Err(ObjectError::Io { key, cause }),
            Some(Fault::NoSpace) => Err(ObjectError::NoSpace { key }),
            Some(Fault::LostReply) => {
                op(self)?;
                Err(ObjectError::Transient { key, cause: "the reply was lost".to_owned() })
            }
            None if grows && self.full => Err(ObjectError::NoSpace { key }),
            None => op(self),
        }
    }

    fn object(&self, key: &str) -> Result<&Arc<[u8]>, ObjectError> {
        self.now.get(key).ok_or_else(|| ObjectError::not_found(key))
    }

    fn check_place(&self, key: &str) -> Result<(), ObjectError> {
        let bad = |cause: String| Err(ObjectError::BadKey { key: key.to_owned(), cause });
        for (at, _) in key.match_indices('/') {
            if self.now.contains_key(&key[..at]) {
                return bad(format!("{:?} is an object", &key[..at]));
            }
        }
        let below = format!("{key}/");
        match self.now.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded)).next() {
            Some((k, _)) if k.starts_with(&below) => bad(format!("{k:?} is an object below it")),
            _ => Ok(()),
        }
    }
}

fn part<'a>(key: &str, bytes: &'a [u8], range: &Range<u64>) -> Result<&'a [u8], ObjectError> {
    let found = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
    found
        .and_then(|(start, end)| bytes.get(start..end))
        .ok_or_else(|| ObjectError::out_of_range(key, range, bytes.len() as u64))
}

impl MemoryObjects {
    pub fn new() -> MemoryObjects {
        MemoryObjects::default()
    }

    /// Lets the next `n` operations suffer `fault`.
    pub fn fail_next(&self, n: usize, fault: Fault) {
        self.state.lock().faults = Some((n, fault));
    }

    /// While true, every put fails with `NoSpace`.
    pub fn set_full(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// Drops the changes that were not synced, as a crash does.
    pub fn crash(&self) {
        self.crash_keeping(|_| false);
    }

    /// Drops unsynced changes of keys for which `keep` returns false.
    pub fn crash_keeping(&self, mut keep: impl FnMut(&str) -> bool) {
        let state = &mut *self.state.lock();
        for key in std::mem::take(&mut state.unsynced) {
            let (from, to) = match keep(&key) {
                true => (&state.now, &mut state.durable),
                false => (&state.durable, &mut state.now),
            };
            copy(&key, from, to);
        }
    }

    /// Changes the bytes of an object like disk damage.
    pub fn corrupt(&self, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        let mut bytes = state.now.get(key).expect("corrupt() is for objects that are there").to_vec();
        change(&mut bytes);
        let bytes: Arc<[u8]> = bytes.into();
        state.now.insert(key.to_owned(), bytes.clone());
        state.durable.insert(key.to_owned(), bytes);
    }
}

fn copy(key: &str, from: &BTreeMap<String, Arc<[u8]>>, to: &mut BTreeMap<String, Arc<[u8]>>) {
    match from.get(key) {
        Some(bytes) => to.insert(key.to_owned(), bytes.clone()),
        None => to.remove(key),
    };
}

impl Objects for MemoryObjects {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        check_key(key)?;
        let bytes = self.state.lock().run(key, false, |s| s.object(key).cloned())?;
        Ok(match range {
            None => bytes.to_vec(),
            Some(range) => part(key, &bytes, &range)?.to_vec(),
        })
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        check_key(key)?;
        let bytes = self.state.lock().run(key, false, |s| s.object(key).cloned())?;
        into.copy_from_slice(part(key, &bytes, &(offset..offset.saturating_add(into.len() as u64)))?);
        Ok(())
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        check_key(key)?;
        self.state.lock().run(key, false, |s| Ok(s.object(key)?.len() as u64))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        check_key(key)?;
        self.state.lock().run(key, true, |s| {
            s.check_place(key)?;
            s.now.insert(key.to_owned(), bytes.into());
            s.unsynced.insert(key.to_owned());
            Ok(())
        })
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        check_key(key)?;
        self.state.lock().run(key, true, |s| {
            s.check_place(key)?;
            let won = !s.now.contains_key(key);
            if won {
                s.now.insert(key.to_owned(), bytes.into());
            }
            copy(key, &s.now, &mut s.durable);
            s.unsynced.remove(key);
            Ok(won)
        })
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        check_key(key)?;
        self.state.lock().run(key, false, |s| {
            if s.now.remove(key).is_some() {
                s.unsynced.insert(key.to_owned());
            }
            Ok(())
        })
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        check_prefix(prefix)?;
        self.state.lock().run(prefix, false, |s| {
            let start = match after {
                Some(after) if after >= prefix => Bound::Excluded(after),
                _ => Bound::Included(prefix),
            };
            let all =
                s.now.range::<str, _>((start, Bound::Unbounded)).take_while(|(k, _)| k.starts_with(prefix));
            Ok(all.take(max).map(|(k, v)| ObjectInfo { key: k.clone(), bytes: v.len() as u64 }).collect())
        })
    }

    fn sync(&self) -> Result<(), ObjectError> {
        self.state.lock().run("", false, |s| {
            for key in std::mem::take(&mut s.unsynced) {
                copy(&key, &s.now, &mut s.durable);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_loses_unsynced_changes() {
        let m = MemoryObjects::new();
        m.put("a", b"1").unwrap();
        m.put("gone", b"1").unwrap();
        m.sync().unwrap();
        m.put("a", b"2").unwrap();
        m.put("b", b"2").unwrap();
        m.delete("gone").unwrap();
        assert_eq!(m.put_if_absent("c", b"2"), Ok(true));
        m.crash();
        let keys: Vec<String> = m.list("", None, 9).unwrap().into_iter().map(|i| i.key).collect();
        assert_eq!(keys, ["a", "c", "gone"]);
        assert_eq!(m.get("a", None).unwrap(), b"1");
        m.put("a", b"3").unwrap();
        m.put("b", b"3").unwrap();
        m.crash_keeping(|key| key == "b");
        assert_eq!((m.get("a", None).unwrap(), m.get("b", None).unwrap()), (b"1".to_vec(), b"3".to_vec()));
    }

    #[test]
    fn faults() {
        let m = MemoryObjects::new();
        m.fail_next(1, Fault::LostReply);
        assert!(m.put_if_absent("a", b"x").unwrap_err().is_transient());
        assert_eq!(m.put_if_absent("a", b"y"), Ok(false));
        m.fail_next(2, Fault::Io);
        assert!(matches!(m.get("a", None), Err(ObjectError::Io { .. })));
        assert!(matches!(m.sync(), Err(ObjectError::Io { .. })));
        assert_eq!(m.get("a", None).unwrap(), b"x");
        m.set_full(true);
        assert!(matches!(m.put("b", b""), Err(ObjectError::NoSpace { .. })));
        m.delete("a").unwrap();
    }
}
