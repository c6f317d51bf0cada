//! The processors of a machine, and the tasks that wait for one.

use std::collections::VecDeque;

/// A task that finds no free processor waits behind those that came before, or ahead of them if others wait for it.
pub(crate) struct Processors<T> {
    free: usize,
    waiting: VecDeque<T>,
}

impl<T> Processors<T> {
    pub(crate) fn new(count: usize) -> Processors<T> {
        Processors { free: count, waiting: VecDeque::new() }
    }

    /// The task, if it can start now.
    pub(crate) fn ask(&mut self, task: T) -> Option<T> {
        if self.free == 0 {
            self.waiting.push_back(task);
            return None;
        }
        self.free -= 1;
        Some(task)
    }

    /// The same, ahead of those that wait.
    pub(crate) fn ask_first(&mut self, task: T) -> Option<T> {
        let started = self.ask(task);
        if started.is_none() {
            self.waiting.rotate_right(1);
        }
        started
    }

    /// A task has ended. The one that starts on its processor.
    pub(crate) fn ended(&mut self) -> Option<T> {
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.free += 1;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_wait_for_a_processor_in_their_order() {
        let mut two = Processors::new(2);
        assert_eq!([two.ask(1), two.ask(2), two.ask(3), two.ask(4)], [Some(1), Some(2), None, None]);
        assert_eq!(two.ask_first(5), None);
        assert_eq!([two.ended(), two.ended(), two.ended(), two.ended()], [Some(5), Some(3), Some(4), None]);
        assert_eq!([two.ask_first(6), two.ask(7)], [Some(6), None]);
    }
}
