//! A bounded map that forgets what was not used lately: two generations, no list to maintain.
//!
//! An entry that is used moves to the young generation; when that is full it becomes the old one, and the old one is
//! forgotten. So an entry stays for at least half the capacity of newer uses.

use std::borrow::Borrow;
use std::hash::Hash;

use hashbrown::HashMap;

/// The map. With a capacity of 0 it holds nothing.
#[derive(Debug)]
pub(crate) struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Hash + Eq, V> Generations<K, V> {
    /// Holds at most `capacity` entries.
    pub(crate) fn new(capacity: usize) -> Generations<K, V> {
        Generations { young: HashMap::new(), old: HashMap::new(), half: capacity / 2 }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.half == 0 {
            return;
        }
        self.old.remove(&key);
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// A value, which counts as used.
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.insert(key, value);
        }
        self.young.get(key)
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Forgets those for which `keep` says no.
    pub(crate) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.young.retain(|key, _| keep(key));
        self.old.retain(|key, _| keep(key));
    }

    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut map = Generations::new(8);
        for n in 0..100 {
            map.insert(n, n);
            assert_eq!(map.get(&0), Some(&0), "used each time, after {n}");
            assert!(map.young.len() + map.old.len() <= 8);
        }
        assert_eq!(map.get(&50), None);
        assert_eq!(map.remove(&0), Some(0));
        assert_eq!(map.get(&0), None);
        map.retain(|n| *n < 99);
        assert_eq!(map.get(&98), Some(&98));
        assert_eq!(map.get(&99), None);
        let mut none = Generations::new(0);
        none.insert(1, 1);
        assert_eq!(none.get(&1), None);
    }
}
