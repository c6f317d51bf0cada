//! Settings of a journal.

use std::time::Duration;

use chiton_types::Epoch;

use crate::segment::FENCE_NUMBERS;

/// The identity of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Which journal: every segment carries it, so that a foreign one is refused.
    pub journal: u64,
    /// The writer's fence. A reopened journal takes the next epoch after all in it, if that is higher.
    pub epoch: Epoch,
    /// Drawn at random for each opening (`World::random`).
    pub nonce: u64,
}

/// Tunables, with the names of the papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A segment is ended once it is this long. Objects: an object is at most this long, or one frame.
    pub segment_bytes: usize,
    /// Maximum time that frames stay in memory when no caller waits for them.
    pub flush_interval: Duration,
    /// Objects only: how many are being put at a time.
    pub dispatch_size: usize,
    /// `append` blocks while this much is not durable.
    pub pending_bytes_max: usize,
    /// Pause before a write is repeated that failed for lack of space, or without an answer.
    pub retry_interval: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 4 << 20,
            flush_interval: Duration::from_millis(100),
            dispatch_size: 8,
            pending_bytes_max: 256 << 20,
            retry_interval: Duration::from_millis(100),
        }
    }
}

impl Options {
    /// Stops the process at options that contradict each other.
    pub(crate) fn check(&self) {
        assert!(self.segment_bytes >= 1, "segment_bytes is 0");
        assert!(
            (1..=FENCE_NUMBERS as usize).contains(&self.dispatch_size),
            "dispatch_size {} is not 1 to {FENCE_NUMBERS}",
            self.dispatch_size
        );
        assert!(
            self.pending_bytes_max >= self.segment_bytes,
            "pending_bytes_max {} is below segment_bytes {}",
            self.pending_bytes_max,
            self.segment_bytes
        );
    }
}
