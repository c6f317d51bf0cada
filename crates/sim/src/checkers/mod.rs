//! One checker per promise. Each takes observations as plain values, and describes a violation. None knows where
//! the observations come from (simulation, exhaustive small worlds, real processes).
//!
//! | checker | promise |
//! |---|---|
//! | [`appends`] | no record that was acknowledged is lost, torn, doubled or overtaken, unless its client got an error (S1, S16, S18, S26) |
//! | [`crash`] | after a crash the tree is a prefix of the acknowledged operations, no shorter than the durable ones (S18 to S27) |
//! | [`exactly_once`] | over retries and restarts nothing answered is missed, nothing happens twice (S26) |
//! | [`inodes`] | no inode number is used twice (S12) |
//! | [`linear`] | the answers to concurrent callers fit one order (S1, S2, S13, S14) |
//! | [`leases`] | no stale read after a recall, no two that exclude each other (S2, S4) |
//! | [`structure`] | none of the inconsistencies that `fsck` knows |
//! | [`fencing`] | nothing is acknowledged by a writer that was replaced |

pub mod appends;
pub mod compare;
pub mod crash;
pub mod exactly_once;
pub mod fencing;
pub mod inodes;
pub mod leases;
pub mod linear;
pub mod structure;

use crate::history::Violation;

fn violation(checker: &'static str, what: impl Into<String>) -> Violation {
    Violation { checker, what: what.into() }
}
