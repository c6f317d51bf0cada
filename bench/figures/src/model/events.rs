//! Events in the order of their times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events of one time happen in the order in which they were planned.
pub(crate) struct Events<E> {
    now: u64,
    planned: u64,
    heap: BinaryHeap<Planned<E>>,
}

struct Planned<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> Default for Events<E> {
    fn default() -> Events<E> {
        Events { now: 0, planned: 0, heap: BinaryHeap::new() }
    }
}

impl<E> Events<E> {
    /// The time of the last event.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn at(&mut self, at: u64, event: E) {
        self.planned += 1;
        self.heap.push(Planned { at, number: self.planned, event });
    }

    pub(crate) fn after(&mut self, delay: u64, event: E) {
        self.at(self.now + delay, event);
    }

    /// The next one, if its time is before the end.
    pub(crate) fn next_before(&mut self, end: u64) -> Option<E> {
        let next = self.heap.pop().filter(|next| next.at < end)?;
        self.now = next.at;
        Some(next.event)
    }
}

impl<E> Planned<E> {
    fn key(&self) -> (u64, u64) {
        (self.at, self.number)
    }
}

/// The earliest is the greatest, as the heap wants it.
impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Planned<E>) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Planned<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Planned<E>) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Planned<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_equals_keep_their_order() {
        let mut events = Events::default();
        for (at, event) in [(30, 'd'), (10, 'a'), (20, 'b'), (20, 'c'), (40, 'e')] {
            events.at(at, event);
        }
        let order: String = std::iter::from_fn(|| events.next_before(40)).collect();
        assert_eq!((order.as_str(), events.now()), ("abcd", 30));
    }
}
