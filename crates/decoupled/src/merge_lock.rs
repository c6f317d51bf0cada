//! The lock that lets one decoupling of a directory merge at a time: pieces of two merges would interleave.

use std::time::Duration;

use chiton_runtime::SharedWorld;
use chiton_runtime::thread;
use chiton_types::{Ino, Refusal};

use crate::branches::text;
use crate::calls::ClaimCalls;
use crate::error::RealmError;

/// How long a merge waits for another merge of the directory.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(50);

/// Holds the lock until it is dropped.
pub(crate) struct MergeLock<'a> {
    calls: &'a ClaimCalls,
}

impl Drop for MergeLock<'_> {
    fn drop(&mut self) {
        // If that message is lost, the server frees the lock with the session, or with the decoupling.
        let _ = self.calls.set_merge_lock(false);
    }
}

impl<'a> MergeLock<'a> {
    /// Waits until no other decoupling merges in the directory.
    ///
    /// # Errors
    /// Another merge takes too long (the error names it), or the server does not answer.
    pub(crate) fn wait(
        calls: &'a ClaimCalls,
        root: Ino,
        world: &SharedWorld,
    ) -> Result<MergeLock<'a>, RealmError> {
        let begun = world.monotonic();
        loop {
            match calls.set_merge_lock(true) {
                Ok(()) => return Ok(MergeLock { calls }),
                Err(error) if error.refusal() != Refusal::Busy => return Err(error),
                Err(_) if world.monotonic().saturating_sub(begun) >= PATIENCE => break,
                Err(_) => thread::sleep(PAUSE),
            }
        }
        let all = calls.calls.list()?;
        let holder = all.into_iter().find(|info| info.root == root && info.is_merging);
        let whose = holder.map_or("another".to_owned(), |info| match &info.branch {
            Some(name) => format!("that of branch {} ({})", text(name), info.owner),
            None => format!("that of decoupling {} ({})", info.claim.realm.0, info.owner),
        });
        let what = format!("another merge of this directory is under way: {whose}");
        Err(RealmError::new(Refusal::Busy, what, "wait until it is over, then merge again"))
    }
}
