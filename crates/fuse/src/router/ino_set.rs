//! A set of inode numbers. Files that are created one after the other have neighbouring numbers, and sixty-four of
//! these share a word. So a client that creates many files changes the same word again and again, and the set takes
//! little memory.

use chiton_types::Ino;
use hashbrown::HashMap;

/// Numbers in a word.
const WORD: u64 = 64;

/// Bits of 64 neighbouring numbers.
#[derive(Debug, Default)]
pub(super) struct InoSet {
    /// Words by number / 64.
    words: HashMap<u64, u64>,
}

impl InoSet {
    /// Adds a number; false if the set had it.
    pub(super) fn insert(&mut self, ino: Ino) -> bool {
        let word = self.words.entry(ino.0 / WORD).or_default();
        let bit = 1 << (ino.0 % WORD);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub(super) fn add(&mut self, other: InoSet) {
        for (at, word) in other.words {
            *self.words.entry(at).or_default() |= word;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Ino> {
        self.words.iter().flat_map(|(&at, &word)| {
            let bits = (0..WORD).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| Ino(at * WORD + bit))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_added_number_is_in_the_set_once() {
        let mut set = InoSet::default();
        let numbers = [0, 1, 63, 64, 65, 1 << 48, (1 << 48) + 63, u64::MAX - 1, u64::MAX];
        for n in numbers {
            assert!(set.insert(Ino(n)), "{n} is new");
            assert!(!set.insert(Ino(n)), "{n} is there");
        }
        let mut other = InoSet::default();
        assert!(other.insert(Ino(64)) && other.insert(Ino(66)));
        set.add(other);
        let mut found: Vec<u64> = set.iter().map(|ino| ino.0).collect();
        found.sort_unstable();
        assert_eq!(found, [0, 1, 63, 64, 65, 66, 1 << 48, (1 << 48) + 63, u64::MAX - 1, u64::MAX]);
    }
}
