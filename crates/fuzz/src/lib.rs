//! Hostile input: every reader of bytes from outside, and almost valid inputs for it.
//!
//! ```text
//!   seeds (valid input) ──▶ mutate ──▶ repair (checksums) ──▶ target: any answer, but no panic and no allocation by an
//!        ▲                                                            unchecked length
//!        └── libFuzzer searches for interesting inputs: `fuzz/` has the same targets for it
//! ```
//!
//! Invariants:
//! - A run is a function of its seed: a failing input is saved, with the command that repeats it.
//! - It needs neither a nightly compiler nor a sanitizer, so that a short run is part of every test run.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes and real mounts: nothing here runs in a simulation"
)]

mod memory;
mod mutate;
mod run;
mod targets;

pub use memory::Watched;
pub use mutate::{Random, mutate};
pub use run::{Failure, Report, command, run};
pub use targets::{TARGETS, Target};

/// Gives an input to the target of this name.
///
/// # Panics
/// If there is no such target, or it does not survive.
pub fn try_one(name: &str, input: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    (target.run)(input)
}
