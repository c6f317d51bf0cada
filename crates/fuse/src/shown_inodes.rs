//! The inode numbers that programs see.
//!
//! Chiton's have 64 bits. A program built for 32 bits, without large file support, gets EOVERFLOW from stat(2) and
//! readdir(3) if the number does not fit. With [`crate::MountOptions::ino32`] a table assigns a number of 32 bits
//! to every inode that is shown. The kernel continues to use the 64-bit numbers in requests.
//!
//! Invariants:
//! - As long as the mount lives an inode keeps its number, and no other inode has it.
//! - The root of a file system is number 1 in both.

use chiton_types::Ino;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// The numbers that programs see.
#[derive(Debug, Default)]
pub(crate) struct ShownInodes {
    narrow: Option<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    numbers: HashMap<Ino, u32>,
}

impl ShownInodes {
    /// `narrow`: numbers of 32 bits.
    pub(crate) fn new(narrow: bool) -> ShownInodes {
        ShownInodes { narrow: narrow.then(Mutex::default) }
    }

    /// The number that is shown for an inode.
    pub(crate) fn of(&self, ino: Ino) -> u64 {
        let Some(table) = self.narrow.as_ref().filter(|_| ino != Ino::ROOT) else { return ino.0 };
        let mut table = table.lock();
        // 0 is no inode, 1 the root.
        let next = table.numbers.len() as u64 + 2;
        match u32::try_from(next) {
            Ok(next) => u64::from(*table.numbers.entry(ino).or_insert(next)),
            // All numbers of 32 bits are in use.
            Err(_) => table.numbers.get(&ino).map_or(ino.0, |number| u64::from(*number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_numbers_are_small_stable_and_distinct() {
        let shown = ShownInodes::new(true);
        let large = [Ino(1 << 48), Ino(3 << 48 | 7), Ino(2), Ino(u64::MAX)];
        let first = large.map(|ino| shown.of(ino));
        assert_eq!(first, [2, 3, 4, 5]);
        assert_eq!(large.map(|ino| shown.of(ino)), first);
        assert_eq!(shown.of(Ino::ROOT), 1);
        assert_eq!(ShownInodes::new(false).of(Ino(1 << 48)), 1 << 48);
    }
}
