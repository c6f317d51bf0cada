//! The targets: each is a reader of bytes from outside.

mod certificate;
mod dump;
mod journal;
mod policy;
mod rows;
mod wire;

use crate::mutate::Random;

/// A reader, and valid input for it.
pub struct Target {
    /// The name on the command line.
    pub name: &'static str,
    /// Reads; true if the input was right. Must not panic.
    pub run: fn(&[u8]) -> bool,
    /// Valid inputs, from which the fuzzer begins.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Makes checksums right, or they would be all that is tried.
    pub repair: fn(&mut [u8], &mut Random),
    /// Number of inputs of a short run.
    pub short_run: u64,
}

pub const TARGETS: &[Target] = &[
    wire::WIRE,
    journal::JOURNAL,
    journal::EVENT,
    journal::REPLAY,
    rows::ROWS,
    policy::POLICY,
    certificate::CERTIFICATE,
    dump::EXPORT,
    dump::LOAD,
];

fn as_it_is(_: &mut [u8], _: &mut Random) {}
