//! Fencing: the next writer has everything that a writer acknowledged, and a writer acknowledges nothing that the
//! next one lacks.
//!
//! One rule covers both: *every position that a writer of epoch e acknowledged, at whatever time, is at or below
//! the position at which the next higher epoch took over.* Acknowledged before the take-over and above it:
//! acknowledged data were lost. Acknowledged after it and above it: the writer did not notice that it was fenced.

use std::collections::BTreeMap;

use chiton_types::{Epoch, Position};

use crate::checkers::violation;
use crate::history::Violation;

const CHECKER: &str = "fencing";

/// The observations of all writers of one journal.
#[derive(Clone, Debug, Default)]
pub struct Fencing {
    /// Highest position that each epoch acknowledged.
    acknowledged: BTreeMap<Epoch, Position>,
    /// Where each epoch began: the last position that it found.
    began: BTreeMap<Epoch, Position>,
}

impl Fencing {
    /// A writer reports everything up to here as durable.
    ///
    /// # Errors
    /// If it was replaced, and its successor does not have that.
    pub fn acknowledged(&mut self, epoch: Epoch, position: Position) -> Result<(), Violation> {
        let highest = self.acknowledged.entry(epoch).or_default();
        *highest = position.max(*highest);
        match self.began.range(Epoch(epoch.0 + 1)..).find(|(_, began)| **began < position) {
            Some((successor, began)) => Err(violation(
                CHECKER,
                format!(
                    "the writer of epoch {epoch} acknowledged position {position} after epoch {successor} had taken over at \
                 position {began}"
                ),
            )),
            None => Ok(()),
        }
    }

    /// A writer takes over, having found everything up to here.
    ///
    /// # Errors
    /// If an epoch began twice, or a writer before it acknowledged more than was found.
    pub fn took_over(&mut self, epoch: Epoch, found: Position) -> Result<(), Violation> {
        if self.began.insert(epoch, found).is_some() {
            return Err(violation(
                CHECKER,
                format!("epoch {epoch} began twice: two writers believe to be the one"),
            ));
        }
        match self.acknowledged.range(..epoch).find(|(_, highest)| **highest > found) {
            Some((before, highest)) => Err(violation(
                CHECKER,
                format!(
                    "epoch {epoch} took over at position {found}, epoch {before} had acknowledged position {highest}"
                ),
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: [Position; 5] = [Position(0), Position(10), Position(20), Position(30), Position(40)];

    #[test]
    fn an_orderly_succession_passes() {
        let mut f = Fencing::default();
        assert_eq!(f.took_over(Epoch(1), P[0]), Ok(()));
        assert_eq!(f.acknowledged(Epoch(1), P[1]), Ok(()));
        // More was written than was acknowledged.
        assert_eq!(f.took_over(Epoch(2), P[2]), Ok(()));
        assert_eq!(f.acknowledged(Epoch(1), P[2]), Ok(()), "late, but the successor has it");
        assert_eq!(f.acknowledged(Epoch(2), P[3]), Ok(()));
    }

    #[test]
    fn an_acknowledgement_after_the_fence_is_seen() {
        let mut f = Fencing::default();
        f.took_over(Epoch(1), P[0]).unwrap();
        f.took_over(Epoch(2), P[1]).unwrap();
        f.took_over(Epoch(3), P[3]).unwrap();
        let said = f.acknowledged(Epoch(1), P[2]).unwrap_err().what;
        assert!(said.contains("after epoch 2 had taken over at position 10"), "{said}");
        assert_eq!(f.acknowledged(Epoch(2), P[3]), Ok(()));
        assert!(f.acknowledged(Epoch(2), P[4]).is_err());
    }

    #[test]
    fn lost_acknowledgements_and_twins_are_seen() {
        let mut f = Fencing::default();
        f.took_over(Epoch(1), P[0]).unwrap();
        f.acknowledged(Epoch(1), P[3]).unwrap();
        assert!(f.took_over(Epoch(2), P[2]).unwrap_err().what.contains("had acknowledged position 30"));
        assert!(f.took_over(Epoch(2), P[3]).unwrap_err().what.contains("began twice"));
    }
}
