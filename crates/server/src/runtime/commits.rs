//! Clients that wait for durability, without a thread each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use chiton_proto::{Reply, Sender};
use chiton_types::Position;
use parking_lot::Mutex;

/// Answers by the position that they wait for.
#[derive(Default)]
pub(crate) struct Commits {
    waiting: Mutex<BTreeMap<(Position, u64), (Sender, Reply)>>,
    count: AtomicU64,
}

impl Commits {
    pub(crate) fn wait(&self, position: Position, sender: Sender, reply: Reply) {
        let n = self.count.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().insert((position, n), (sender, reply));
    }

    /// Those that wait for a position up to `durable`.
    pub(crate) fn due(&self, durable: Position) -> Vec<(Sender, Reply)> {
        let mut waiting = self.waiting.lock();
        let rest = waiting.split_off(&(durable.next(), 0));
        std::mem::replace(&mut *waiting, rest).into_values().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().len()
    }
}
