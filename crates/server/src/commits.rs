//! Waits for durability: of clients, without a thread each, and of the engine.
//!
//! Apart from [`crate::plate::Plate`], because the journal's thread holds it: that must never be the last
//! to hold the journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chiton_runtime::sync::Mutex;
use chiton_transport::{ConnectionLost, Sender};
use chiton_types::Position;
use chiton_wire::{Reply, Welcome};

use crate::latency::{Begun, Latency};
use crate::wake_up::WakeUp;

/// The answer that a client gets when a position is durable.
#[expect(clippy::large_enum_variant, reason = "nearly all are replies")]
pub(crate) enum OnDurable {
    /// The answer to a commit, whose time may run.
    Reply(Reply, Option<Begun>),
    /// A session has begun.
    Welcome(Box<Welcome>),
}

impl OnDurable {
    fn send(self, sender: &Sender, now: Position) -> Result<(), ConnectionLost> {
        match self {
            OnDurable::Reply(reply, _) => sender.send(&Reply { durable: now, ..reply }),
            OnDurable::Welcome(mut welcome) => {
                if let Welcome::Accepted { durable, .. } = &mut *welcome {
                    *durable = now;
                }
                sender.welcome(*welcome)
            }
        }
    }
}

/// Requests that wait for durability.
pub(crate) struct Commits {
    /// Answers by the position that they wait for.
    waiting: Mutex<BTreeMap<(Position, u64), (Sender, OnDurable)>>,
    count: AtomicU64,
    /// The position that a request in the engine waits for; `u64::MAX` if none.
    engine_wants: AtomicU64,
    /// Wakes the thread that reports durable positions to the engine.
    pub(crate) scheduler_wake_up: WakeUp,
    /// Commits that passed the engine by and are not yet in its counters.
    pub(crate) here: AtomicU64,
    latency: Option<Arc<Latency>>,
}

impl Commits {
    pub(crate) fn new(latency: Option<Arc<Latency>>) -> Commits {
        Commits {
            waiting: Mutex::default(),
            count: AtomicU64::new(0),
            engine_wants: AtomicU64::new(u64::MAX),
            scheduler_wake_up: WakeUp::default(),
            here: AtomicU64::new(0),
            latency,
        }
    }

    pub(crate) fn wait(&self, position: Position, sender: Sender, notice: OnDurable) {
        let n = self.count.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().insert((position, n), (sender, notice));
    }

    /// Those that wait for a position up to `durable`.
    pub(crate) fn due(&self, durable: Position) -> Vec<(Sender, OnDurable)> {
        let mut waiting = self.waiting.lock();
        let rest = waiting.split_off(&(durable.next(), 0));
        std::mem::replace(&mut *waiting, rest).into_values().collect()
    }

    /// The engine waits for a position, too.
    pub(crate) fn engine_waits(&self, position: Position) {
        self.engine_wants.fetch_min(position.0, Ordering::Relaxed);
    }

    /// Whether the engine waits for a position up to this one.
    pub(crate) fn engine_waits_for(&self, upto: Position) -> bool {
        self.engine_wants.load(Ordering::Relaxed) <= upto.0
    }

    /// The engine waits for this position now, or for none.
    pub(crate) fn engine_waits_only(&self, position: Option<Position>) {
        self.engine_wants.store(position.map_or(u64::MAX, |position| position.0), Ordering::Relaxed);
    }

    /// True if the position that the engine waits for is durable.
    pub(crate) fn engine_is_due(&self, durable: Position) -> bool {
        durable.0 >= self.engine_wants.load(Ordering::Relaxed)
    }

    /// Answers clients whose commits are durable.
    pub(crate) fn answer(&self, durable: Position) {
        for (sender, notice) in self.due(durable) {
            let begun = match &notice {
                OnDurable::Reply(_, begun) => *begun,
                OnDurable::Welcome(_) => None,
            };
            // A client that is gone asks again, or its session ends by its silence.
            let _ = notice.send(&sender, durable);
            if let (Some(latency), Some(begun)) = (&self.latency, begun) {
                latency.end(&begun);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().len()
    }
}
