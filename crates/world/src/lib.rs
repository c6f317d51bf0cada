//! Clock and randomness, handed in from outside, so that a whole cluster can run from one seed.
//!
//! Storage and network are behind traits of their own (`Objects`, `Place`, `Metastore`, `Transport`); what is
//! here is all that remains of the outside world for the deciding parts.
//!
//! Invariants:
//! - The rest of the workspace never calls `SystemTime::now`, `Instant::now` or a random source of its own
//!   (banned in `clippy.toml`).
//! - [`World::monotonic`] never goes back.

mod real;
mod seeded;

use std::sync::Arc;
use std::time::Duration;

use chiton_types::Time;

pub use real::RealWorld;
pub use seeded::SeededWorld;

/// Clock and randomness.
pub trait World: Send + Sync {
    /// Wall-clock time, for what users see (mtime …). May jump.
    fn now(&self) -> Time;
    /// Time since some fixed point of this process, for durations. Never goes back.
    fn monotonic(&self) -> Duration;
    /// 64 random bits, unpredictable in the real world.
    fn random(&self) -> u64;
}

/// The world, as it is handed around.
pub type SharedWorld = Arc<dyn World>;
