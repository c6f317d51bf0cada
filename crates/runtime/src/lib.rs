//! Clock, randomness and threads, handed in from outside, so that a whole cluster can run from one seed.
//!
//! Storage and network have their own traits (`Objects`, `Place`, `Metastore`, `Dialer`). This crate is the rest of
//! the outside world.
//!
//! ```text
//!   runtime code ─▶ sync::{Mutex, Condvar}, thread::{spawn, sleep} ─┬▶ parking_lot, std::thread
//!                                                                   └▶ a Schedule: many threads in one, by a seed
//! ```
//!
//! # Getting started
//!
//! ```
//! use std::time::Duration;
//!
//! use chiton_runtime::{SeededWorld, World};
//!
//! // Code that takes a `World` runs with the machine's clock, or with one that a test moves.
//! let world = SeededWorld::new(7);
//! let begun = world.monotonic();
//! world.advance(Duration::from_secs(3));
//! assert_eq!(world.monotonic() - begun, Duration::from_secs(3));
//! ```
//!
//! Invariants:
//! - The rest of the workspace calls no clock of the standard library and no random source (both banned in
//!   `clippy.toml`).
//! - [`World::monotonic`] never goes back.
//! - Code that may run in a simulation takes locks, waits and starts threads through [`sync`] and [`thread`] only.
//!
//! # Layout
//!
//! - [`World`]: clock and random numbers: [`RealWorld`], [`SeededWorld`].
//! - [`sync`], [`thread`]: locks and threads, which a [`schedule`] replaces in simulation.
//! - [`log`]: standard error and the log.

mod real;
mod seeded;

pub mod log;
pub mod parallel;
pub mod pool;
pub mod schedule;
pub mod sync;
pub mod thread;

use std::sync::Arc;
use std::time::Duration;

use chiton_types::Time;

pub use real::RealWorld;
pub use seeded::SeededWorld;

pub trait World: Send + Sync {
    /// Wall-clock time for timestamps that users see (mtime …). It may jump.
    fn now(&self) -> Time;
    /// Time since some fixed point of this process, for durations. Never goes back.
    fn monotonic(&self) -> Duration;
    /// 64 random bits, unpredictable in the real world.
    fn random(&self) -> u64;
}

/// The world, as it is handed around.
pub type SharedWorld = Arc<dyn World>;
