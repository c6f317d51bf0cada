//! No inode number is used twice, at any durability level, over any number of crashes (S12).
//!
//! A number belongs to the operation that made the inode, for ever: also if a crash took the inode away again. Sent
//! again after a restart, the same operation may (and should) get the same number.

use std::collections::BTreeMap;

use chiton_types::Ino;

use crate::checkers::violation;
use crate::history::Violation;

const CHECKER: &str = "inode numbers";

/// The maker of an inode: client and number of the operation, or any other pair that identifies operations.
pub type Maker = (u64, u64);

/// All inode numbers so far.
#[derive(Clone, Debug, Default)]
pub struct Births {
    makers: BTreeMap<Ino, Maker>,
}

impl Births {
    /// An operation was answered with a new inode.
    ///
    /// # Errors
    /// If the number was given to another operation before.
    pub fn born(&mut self, ino: Ino, maker: Maker) -> Result<(), Violation> {
        match self.makers.insert(ino, maker) {
            Some(other) if other != maker => Err(violation(
                CHECKER,
                format!(
                    "inode number {ino} was given to operation {} of {} and again to operation {} of {}",
                    other.1, other.0, maker.1, maker.0
                ),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_belongs_to_one_operation() {
        let mut births = Births::default();
        assert_eq!(births.born(Ino(5), (1, 1)), Ok(()));
        assert_eq!(births.born(Ino(6), (1, 2)), Ok(()));
        assert_eq!(births.born(Ino(5), (1, 1)), Ok(()), "the same operation, sent again");
        assert!(births.born(Ino(6), (2, 2)).is_err(), "another client");
        assert!(births.born(Ino(5), (1, 3)).is_err(), "another operation");
    }
}
