//! A list of keys that grows by pieces: a burst makes millions of them, and one allocation that doubles would have to be
//! copied, and touched anew, each time.

use super::DirtyKey;

const PIECE_KEYS: usize = 8192;

/// A stack of keys.
#[derive(Default)]
pub(crate) struct Keys {
    full: Vec<Vec<DirtyKey>>,
    last: Vec<DirtyKey>,
    len: usize,
}

impl Keys {
    #[inline]
    pub(crate) fn push(&mut self, key: DirtyKey) {
        if self.last.len() == self.last.capacity() && self.last.len() >= PIECE_KEYS {
            self.full.push(std::mem::replace(&mut self.last, Vec::with_capacity(PIECE_KEYS)));
        }
        self.len += 1;
        self.last.push(key);
    }

    pub(crate) fn pop(&mut self) -> Option<DirtyKey> {
        if self.last.is_empty() {
            self.last = self.full.pop()?;
        }
        self.len -= 1;
        self.last.pop()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The same keys, the lowest by `order` to be popped first.
    pub(crate) fn sorted<K: Ord>(self, order: impl Fn(&DirtyKey) -> K) -> Keys {
        let mut all = Vec::with_capacity(self.len);
        for piece in self.full.into_iter().chain([self.last]) {
            all.extend(piece);
        }
        all.sort_unstable_by_key(|key| std::cmp::Reverse(order(key)));
        Keys { full: Vec::new(), len: all.len(), last: all }
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::Ino;

    use super::*;

    #[test]
    fn keys_come_back_last_first_or_sorted() {
        let count = 3 * PIECE_KEYS as u64 + 5;
        let key = |n: u64| DirtyKey::Inode(Ino(n * 7919 % count));
        let filled = || {
            let mut keys = Keys::default();
            (0..count).for_each(|n| keys.push(key(n)));
            assert_eq!(keys.len() as u64, count);
            keys
        };
        let mut keys = filled();
        assert!((0..count).rev().all(|n| keys.pop() == Some(key(n))));
        assert_eq!((keys.pop(), keys.len()), (None, 0));
        let mut keys = filled().sorted(DirtyKey::order);
        assert!((0..count).all(|n| keys.pop() == Some(DirtyKey::Inode(Ino(n)))));
        assert_eq!((keys.pop(), keys.len()), (None, 0));
    }
}
