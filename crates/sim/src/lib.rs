//! A cluster of real engines in one thread on a simulated world, made from a seed.
//!
//! ```text
//!   seed ─▶ plan (operations, faults) ─▶ cluster: server runtime, client libraries ─▶ history ─▶ checkers
//!                                        on simulated clock, threads, network, storage
//! ```
//!
//! # Getting started
//!
//! `./x sim --seconds 60` runs fresh seeds, `cargo run -p chiton-sim --bin chiton-sim -- --seed 7 --trace` one of
//! them. A failure prints the command that repeats it. `docs/simulation.md` describes what is simulated.
//!
//! Invariants:
//! - Everything that happens follows from the seed: the same seed gives the same trace.
//!
//! # Layout
//!
//! - [`plan`]: draws a run from a seed. [`run`]: carries it out. [`history`], [`record`]: its events.
//! - [`scheduler`], [`clock`], [`net`], [`disk`]: the simulated machine.
//! - [`judge`] turns a history into the values that [`checkers`] check, one for each promise. [`model`]: the naive
//!   file system. [`canary`]: broken rules that a checker must notice.
//! - [`part_steps`]: splits and folds of directories that a run contains.
//! - [`shrink`], [`kept_parts`]: shortening a failing run.
//! - [`ace`]: exhaustive small worlds. [`mix`]: several clients in one decoupled subtree.

pub mod clock;
pub mod random;
pub mod scheduler;

pub mod canary;
pub mod disk;
pub mod net;
pub mod part_steps;
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
pub mod orders;
