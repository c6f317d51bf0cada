//! A cluster of real engines in one thread on a simulated world, made from a seed.
//!
//! ```text
//!   seed ─▶ plan (operations, faults) ─▶ cluster: server runtime, client libraries ─▶ history ─▶ checkers
//!                                        on simulated clock, threads, network, storage
//! ```
//!
//! Invariants:
//! - Everything that happens follows from the seed: the same seed gives the same trace.

pub mod clock;
pub mod random;
pub mod scheduler;

pub mod canary;
pub mod disk;
pub mod net;
pub mod party;
pub mod record;

pub mod judge;
pub mod perform;
pub mod plan;
pub mod run;
pub mod structure;

pub mod command;
pub mod kept_parts;
pub mod shrink;

pub mod history;
pub mod model;
pub mod tree;
pub mod users;

pub mod checkers;

pub mod ace;
pub mod mix;
