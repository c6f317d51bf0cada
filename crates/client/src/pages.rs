//! Invalidating the pages of a kernel that may hold some of them locked for a waiting write.
//!
//! ```text
//!   recall ─▶ invalidate all ──waits──▶ page of a write ──waits──▶ another client ──waits──▶ this recall
//!                  └─ after a moment: all but the pages of such writes; theirs follow when they are answered
//! ```
//!
//! A kernel keeps the pages of a write locked until the mount answers it. In a mount that shares its files, files that are open for
//! writing bypass the page cache. Files that a mount opened while it was alone keep it.
//!
//! Invariants:
//! - No recall waits for the pages of a write that waits itself.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::thread;
use chiton_types::Ino;

use crate::core::Invalidator;
use crate::data::{Files, WriteNumber};

/// After so long a page is not just in use: a write that holds it may be waiting.
const MOMENT: Duration = Duration::from_millis(2);
/// The kernel locks pages together, in runs that are this long and aligned, or shorter.
const RUN_BYTES_MAX: u64 = 2 << 20;

/// Makes the kernel forget the content of a file, but for pages that writes which wait hold: these go when they are free.
pub(crate) fn forget(invalidator: &Arc<dyn Invalidator>, files: &Files, ino: Ino) {
    if !files.is_open(ino) {
        return invalidator.inval_inode(ino);
    }
    let all = beside(invalidator, move |invalidator| invalidator.inval_inode(ino));
    let mut before: Vec<(WriteNumber, Range<u64>)> = Vec::new();
    while !all.wait(MOMENT) {
        let under_way = files.writes_under_way(ino);
        let waiting: Vec<_> = under_way.iter().filter(|write| before.contains(write)).cloned().collect();
        if !waiting.is_empty() {
            let gaps = gaps(waiting.iter().map(|(_, range)| range.clone()));
            let most = beside(invalidator, move |invalidator| {
                gaps.into_iter().for_each(|gap| invalidator.inval_range(ino, gap));
            });
            while !most.wait(MOMENT) {
                if all.wait(Duration::ZERO) || files.writes_under_way(ino) != under_way {
                    break;
                }
            }
            if most.wait(Duration::ZERO) {
                return;
            }
        }
        before = under_way;
    }
}

/// The ranges of a file that are in none of these pages, in order.
fn gaps(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut held: Vec<Range<u64>> = ranges
        .map(|range| {
            let end = range.end.div_ceil(RUN_BYTES_MAX).saturating_mul(RUN_BYTES_MAX);
            range.start / RUN_BYTES_MAX * RUN_BYTES_MAX..end
        })
        .collect();
    held.sort_unstable_by_key(|range| range.start);
    let (mut gaps, mut from) = (Vec::new(), 0);
    for range in held {
        if from < range.start {
            gaps.push(from..range.start);
        }
        from = from.max(range.end);
    }
    gaps.push(from..u64::MAX);
    gaps
}

/// Work on a thread of its own.
#[derive(Clone, Default)]
struct Beside(Arc<(Mutex<bool>, Condvar)>);

impl Beside {
    /// Whether it is done, after at most so long.
    fn wait(&self, most: Duration) -> bool {
        let (is_done, changed) = &*self.0;
        let mut is_done = is_done.lock();
        while !*is_done && !most.is_zero() && !changed.wait_for(&mut is_done, most).timed_out() {}
        *is_done
    }
}

fn beside(
    invalidator: &Arc<dyn Invalidator>,
    work: impl FnOnce(&dyn Invalidator) + Send + 'static,
) -> Beside {
    let (beside, invalidator) = (Beside::default(), invalidator.clone());
    let over = beside.clone();
    let body = move || {
        work(&*invalidator);
        *over.0.0.lock() = true;
        over.0.1.notify_all();
    };
    drop(thread::spawn("chiton-inval", body).expect("a thread can be started"));
    beside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_hold_is_left_out() {
        const M: u64 = 1 << 20;
        let gaps_of = |ranges: &[Range<u64>]| gaps(ranges.iter().cloned());
        assert_eq!(gaps_of(&[8 * M..9 * M, 3 * M..5 * M]), [0..2 * M, 6 * M..8 * M, 10 * M..u64::MAX]);
        assert_eq!(gaps_of(&[2 * M..4 * M, 4 * M..4 * M + 1]), [0..2 * M, 6 * M..u64::MAX]);
        let last = u64::MAX / (2 * M) * (2 * M);
        assert_eq!(gaps_of(&[0..10, u64::MAX - 5..u64::MAX]), [2 * M..last, u64::MAX..u64::MAX]);
    }
}
