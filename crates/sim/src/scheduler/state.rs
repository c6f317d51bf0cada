//! Threads, machines and alarms of a run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

use super::Party;
use crate::clock::PartyWorld;
use crate::random::Random;

pub(super) type Fiber = Coroutine<(), (), (), DefaultStack>;

pub(super) struct Thread {
    pub(super) name: String,
    pub(super) party: Party,
    /// `None` while it runs.
    pub(super) fiber: Option<Fiber>,
    /// Counts its waits, so that a late alarm wakes no thread.
    pub(super) waits: u64,
    pub(super) waits_for: Option<usize>,
    pub(super) timed_out: bool,
    pub(super) yielder: *const Yielder<(), ()>,
    pub(super) joiners: Vec<u64>,
}

pub(super) enum Alarm {
    Wake { thread: u64, waits: u64 },
    Call(Box<dyn FnOnce()>),
}

pub(super) struct PartyState {
    pub(super) world: Arc<PartyWorld>,
    pub(super) paused: bool,
    /// Ready, except for the pause.
    pub(super) held: Vec<u64>,
}

pub(super) struct State {
    pub(super) random: Random,
    pub(super) threads: BTreeMap<u64, Thread>,
    pub(super) next_thread: u64,
    pub(super) ready: Vec<u64>,
    pub(super) current: u64,
    /// Alarms by time, then by number.
    pub(super) alarms: BinaryHeap<Reverse<(Duration, u64)>>,
    pub(super) alarm: BTreeMap<u64, Alarm>,
    pub(super) next_alarm: u64,
    pub(super) waiting: BTreeMap<usize, VecDeque<u64>>,
    pub(super) parties: BTreeMap<Party, PartyState>,
    pub(super) stacks: Vec<DefaultStack>,
    pub(super) panic: Option<String>,
    /// The source of stalls, and the rate of late locks.
    pub(super) stalls: Option<(Random, u64)>,
    /// Calls whose time has come, if threads stall.
    pub(super) events: VecDeque<Box<dyn FnOnce()>>,
    pub(super) has_events_thread: bool,
}

impl State {
    pub(super) fn set_alarm(&mut self, at: Duration, alarm: Alarm) {
        let number = self.next_alarm;
        self.next_alarm += 1;
        self.alarms.push(Reverse((at, number)));
        self.alarm.insert(number, alarm);
    }

    pub(super) fn time_out(&mut self, number: u64, waits: u64) {
        let Some(thread) = self.threads.get_mut(&number).filter(|thread| thread.waits == waits) else {
            return;
        };
        // Woken already, its turn has not come.
        if thread.timed_out || (thread.waits_for == Some(WOKEN)) {
            return;
        }
        thread.timed_out = true;
        if let Some(key) = thread.waits_for.take()
            && let Some(queue) = self.waiting.get_mut(&key)
        {
            queue.retain(|waiting| *waiting != number);
            if queue.is_empty() {
                self.waiting.remove(&key);
            }
        }
        self.ready.push(number);
    }
}

/// In place of a key: was woken. No condition has this address.
pub(super) const WOKEN: usize = usize::MAX;
/// The key for which the thread of events waits.
pub(super) const EVENTS: usize = usize::MAX - 1;
